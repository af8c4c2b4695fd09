"""Dependencies and arrays, from text to values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.model.waits import MAX_ARRAY, After, Array, Dependency, parse_array, parse_dependency

A, B = "ABCD1234", "WXYZ5678"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ()),
        (" , ", ()),
        (f"after:{A}", (Dependency(After.STARTED, A),)),
        (f"afterok:{A}:{B}", (Dependency(After.OK, A), Dependency(After.OK, B))),
        (f"afterany:{A}, afternotok:{B}", (Dependency(After.ANY, A), Dependency(After.NOT_OK, B))),
        (f"afterok:{A},afterok:{A}", (Dependency(After.OK, A),)),
        (f"afterok: {A.lower()}", (Dependency(After.OK, A),)),
    ],
)
def test_dependencies(text: str, found: tuple[Dependency, ...]) -> None:
    assert parse_dependency(text) == found


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (A, f"--dependency {A}: begin it with after, afterany, afterok, afternotok, as in afterok:ABCD1234."),
        (
            f"singleton:{A}",
            (
                f"--dependency singleton:{A}: begin it with after, afterany, afterok, afternotok, as in "
                f"afterok:ABCD1234."
            ),
        ),
        ("afterok", "--dependency afterok: name jobs by their ids, as in afterok:ABCD1234."),
        (f"afterany:{A}:", f"--dependency afterany:{A}:: name jobs by their ids, as in afterany:ABCD1234."),
        (
            f"afterok:{A},afterany:12",
            "--dependency afterany:12: name jobs by their ids, as in afterany:ABCD1234.",
        ),
    ],
)
def test_what_is_no_dependency(text: str, sentence: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_dependency(text)
    assert (caught.value.code, caught.value.message) == ("bad-dependency", sentence)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", None),
        ("7", Array((7,))),
        ("1-4", Array((1, 2, 3, 4))),
        ("1-4%2", Array((1, 2, 3, 4), 2)),
        ("7,0, 3", Array((0, 3, 7))),
        ("0-20:5%4", Array((0, 5, 10, 15, 20), 4)),
        ("1-3,2-5", Array((1, 2, 3, 4, 5))),
        ("999999998-999999999", Array((999_999_998, 999_999_999))),
        (f"1-{MAX_ARRAY}", Array(tuple(range(1, MAX_ARRAY + 1)))),
        (f"0-999999999:{10**9 // MAX_ARRAY}", Array(tuple(range(0, 10**9, 10**9 // MAX_ARRAY)))),
    ],
)
def test_arrays(text: str, found: Array | None) -> None:
    assert parse_array(text) == found


TOO_MANY = "at most 10000 jobs in one array; submit it in parts"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("1-3%0", "after % write how many may run at once, as in 1-100%8"),
        ("1-3%", "after % write how many may run at once, as in 1-100%8"),
        ("1-3%-1", "after % write how many may run at once, as in 1-100%8"),
        ("1-3%²", "after % write how many may run at once, as in 1-100%8"),
        ("a", "write numbers and ranges, as in 1-100, 0,3,7 or 0-20:5%4"),
        ("1,,2", "write numbers and ranges, as in 1-100, 0,3,7 or 0-20:5%4"),
        ("٣", "write numbers and ranges, as in 1-100, 0,3,7 or 0-20:5%4"),
        ("%2", "write numbers and ranges, as in 1-100, 0,3,7 or 0-20:5%4"),
        ("1:2", "write numbers and ranges, as in 1-100, 0,3,7 or 0-20:5%4"),
        ("1-1000000000", "write numbers and ranges, as in 1-100, 0,3,7 or 0-20:5%4"),
        ("1,4-2", "4-2 is an empty range; write the smaller number first"),
        ("1-3:0", "1-3:0 has a step of 0; write 1 or more"),
        (f"0-{MAX_ARRAY}", TOO_MANY),
        ("0-999999999", TOO_MANY),
        (f"1-{MAX_ARRAY},0", TOO_MANY),
        (f"0-9000,0-{MAX_ARRAY - 1}", TOO_MANY),
    ],
)
def test_what_is_no_array(text: str, what: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_array(text)
    assert (caught.value.code, caught.value.message) == ("bad-array", f"--array {text}: {what}.")


@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 100), st.integers(1, 9)), min_size=1, max_size=5),
    st.none() | st.integers(1, 99),
)
def test_any_array_is_what_its_ranges_say(ranges: list[tuple[int, int, int]], throttle: int | None) -> None:
    text = ",".join(f"{first}-{first + length}:{step}" for first, length, step in ranges) + (
        f"%{throttle}" if throttle else ""
    )
    wanted = {index for first, length, step in ranges for index in range(first, first + length + 1, step)}
    assert parse_array(text) == Array(tuple(sorted(wanted)), throttle or 0)
