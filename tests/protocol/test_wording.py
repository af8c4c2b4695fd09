"""How durations, sizes and numbers of things are worded."""

from __future__ import annotations

from mgpu_agent.protocol import wording


def test_durations() -> None:
    seconds = (-1.0, 0.034, 3.21, 40.4, 60.0, 118.0, 4320.0, 90_000.0)
    assert [wording.duration(one) for one in seconds] == [
        *("0 ms", "34 ms", "3.2 s", "40 s", "1 m 00 s", "1 m 58 s", "1 h 12 m", "1 d 1 h")
    ]
    assert [wording.rounded(one) for one in (*seconds, float("inf"))] == [
        *("0 s", "0 s", "3 s", "40 s", "1 m 00 s", "1 m 58 s", "1 h 12 m", "1 d 1 h", "unknown time")
    ]
    assert [wording.span(one) for one in seconds] == [
        *("0 s", "0 s", "3 s", "40 s", "1 m", "1 m", "1 h 12 m", "1 d 1 h")
    ]


def test_numbers_of_things_and_sizes() -> None:
    assert [wording.count(number, "GPU") for number in (0, 1, 2)] == ["0 GPUs", "1 GPU", "2 GPUs"]


def test_sizes() -> None:
    """An A100 of 80 GB and an RTX 4090 of 24 GB have what their names say, as NVML counts."""
    told = (
        0,
        1,
        512,
        1500,
        99 << 10,
        102_350,
        (1 << 20) - 1,
        81_920 << 20,
        81_559 << 20,
        24_564 << 20,
        3 << 39,
    )
    assert [wording.size(one) for one in told] == [
        *(
            "0 B",
            "1 B",
            "512 B",
            "1.5 KiB",
            "99 KiB",
            "100 KiB",
            "1 MiB",
            "80 GiB",
            "79.6 GiB",
            "24 GiB",
            "1.5 TiB",
        )
    ]
    asked = (16 << 30, 1500 << 20, 1500 << 30, 2 << 40, 5 << 10, 20_000_000)
    assert [wording.exact(one) for one in asked] == [
        *("16 GiB", "1500 MiB", "1500 GiB", "2 TiB", "5 KiB", "19.1 MiB")
    ]
    assert wording.used_of(57.1 * 2**30, 80 << 30) == ("57.1", "80 GiB")
    assert wording.used_of(0, 81_559 << 20) == ("0.0", "79.6 GiB")
