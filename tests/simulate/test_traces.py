"""Reading traces: what is taken, and the sentence about what is not."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from mgpu_agent.protocol.errors import MgpuError
from mgpu_jupyter.simulate.traces import TraceJob, read_trace, repeat_trace

HEADER = "submit_s,duration_s,gpus"


def test_all_columns_and_any_order(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "gpus, "
        "user,submit_s,duration_s,estimate_s,job_name,job_id,queue,exclusive\n"
        "2,ann,5,10.5,60,train,7,q,1\n\n1,,0,1,,,,,\n"
    )

    assert read_trace(path) == [
        TraceJob(0.0, 1.0, 1),
        TraceJob(5.0, 10.5, 2, 60.0, "ann", "train", exclusive=True),
    ]


def test_gzip_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(f"\ufeff{HEADER},name,job_name\r\n1,2,3,a,b\r\n".encode()))

    assert read_trace(path) == [TraceJob(1.0, 2.0, 3, name="a")]


def test_jobs_of_one_time_keep_their_order(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"{HEADER}\n9,1,1\n0,1,1\n0,2,1\n")

    assert [work.duration_s for work in read_trace(path)] == [1.0, 2.0, 1.0]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "t.csv is empty: its first line names the columns, submit_s,duration_s,gpus and others."),
        (f"{HEADER}\n", "t.csv has no jobs: each line after the first is one."),
        (
            "submit_s,gpus\n1,1\n",
            "t.csv has no column duration_s: its first line must name submit_s, duration_s, gpus.",
        ),
        (f"{HEADER},gpus\n1,1,1,1\n", "t.csv names the column gpus twice: name it once."),
        (f"{HEADER}\n1,2,3\n1,2\n", "Line 3 of t.csv has 2 fields where the first line names 3."),
        (f"{HEADER}\n1,soon,3\n", "Line 2 of t.csv has duration_s soon: write a number."),
        (f"{HEADER}\n,2,3\n", "Line 2 of t.csv has submit_s empty: write a number."),
        (f"{HEADER}\n1,-2,3\n", "Line 2 of t.csv has duration_s -2: write a number that is not negative."),
        (f"{HEADER}\nnan,2,3\n", "Line 2 of t.csv has submit_s nan: write a number that is not negative."),
        (f"{HEADER}\n1,2,1.5\n", "Line 2 of t.csv has gpus 1.5: write a whole number."),
        (f"{HEADER},exclusive\n1,2,1,yes\n", "Line 2 of t.csv has exclusive yes: write 1 or 0."),
        (f"{HEADER}\n1,2,1e9\n", "Line 2 of t.csv has gpus 1e9: write a whole number."),
        (f"{HEADER},estimate_s\n1,2,1,long\n", "Line 2 of t.csv has estimate_s long: write a number."),
        (
            f"{HEADER}\n1,2,{'1' * 200_000}\n",
            "Line 2 of t.csv is no CSV: field larger than field limit (131072).",
        ),
    ],
)
def test_bad_text(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)

    assert refusal(path) == sentence


def test_bad_files(tmp_path: Path) -> None:
    zipped = gzip.compress("\n".join([HEADER, *("1,2,3" for _ in range(1000))]).encode())
    files = {
        "no.csv.gz": b"submit_s",
        "cut.csv.gz": zipped[:-20],
        "broken.csv.gz": zipped[:20] + b"\xff" * 20,
        "latin.csv": b"\xe9,\n",
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)

    assert {name: refusal(tmp_path / name) for name in files} == {
        "no.csv.gz": "no.csv.gz is no whole gzip file: unpack it, or fetch it again.",
        "cut.csv.gz": "cut.csv.gz is no whole gzip file: unpack it, or fetch it again.",
        "broken.csv.gz": "broken.csv.gz is no whole gzip file: unpack it, or fetch it again.",
        "latin.csv": "latin.csv is no text in UTF-8: name a CSV file, plain or gzipped as .gz.",
    }
    assert (
        refusal(tmp_path / "none.csv")
        == f"There is no file {tmp_path / 'none.csv'}: name a CSV file, plain or gzipped."
    )
    assert (
        refusal(tmp_path) == f"{tmp_path} cannot be read (Is a directory): name a CSV file, plain or gzipped."
    )


def test_repeating_shifts_by_the_span_and_a_mean_gap() -> None:
    works = [TraceJob(10.0, 1.0, 1), TraceJob(12.0, 2.0, 1), TraceJob(20.0, 3.0, 1)]

    assert [work.submit_s for work in repeat_trace(works, 3)] == [
        10.0,
        12.0,
        20.0,
        25.0,
        27.0,
        35.0,
        40.0,
        42.0,
        50.0,
    ]
    assert repeat_trace(works, 1) == works
    assert repeat_trace(works[:1], 2) == works[:1] * 2


def refusal(path: Path) -> str:
    with pytest.raises(MgpuError) as caught:
        read_trace(path)
    return caught.value.message
