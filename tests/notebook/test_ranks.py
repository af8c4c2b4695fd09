"""Lines of several ranks in one cell."""

from __future__ import annotations

from mgpu_jupyter.notebook.budget import Budget
from mgpu_jupyter.notebook.ranks import GATHER_S, RankLines


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def lines(ranks: int, *, colour: bool = False) -> tuple[RankLines, Clock]:
    clock = Clock()
    return RankLines(ranks, colour=colour, clock=clock), clock


def seen(text: str) -> list[str]:
    """What a front end shows of it."""
    rows = []
    for row in text.split("\n"):
        shown = ""
        for part in row.split("\r"):
            shown = part + shown[len(part) :]
        rows.append(shown.rstrip())
    return rows


def test_what_all_say_is_one_line() -> None:
    ranks, _ = lines(4)
    out = "".join(ranks.feed(rank, "stdout", "ready\n") for rank in range(4))
    assert (out, ranks.summary()) == ("0–3 │ ready\n", "")


def test_what_some_say_waits_a_moment() -> None:
    ranks, clock = lines(4)
    assert ranks.feed(1, "stdout", "a\n") + ranks.feed(2, "stdout", "a\nb\n") == ""
    clock.now += 2 * GATHER_S
    assert ranks.due() == "1–2 │ a\n  2 │ b\n"
    assert ranks.feed(3, "stdout", "a\na\n") == ""
    assert ranks.flush() == "  3 │ a\n"
    assert ranks.summary() == "Rank 3: 1 more line · Rank 0: no output"


def test_late_repeats_are_folded() -> None:
    ranks, clock = lines(3)
    ranks.feed(0, "stdout", "a\nb\n")
    clock.now += 2 * GATHER_S
    assert ranks.due() == "  0 │ a\n  0 │ b\n"
    assert ranks.feed(1, "stdout", "a\nb\n") + ranks.feed(2, "stderr", "b\n") + ranks.flush() == ""
    assert ranks.summary() == "Ranks 1–2: 1 to 2 more lines each"


def test_pieces_of_lines_never_mix() -> None:
    ranks, _ = lines(2)
    out = (
        ranks.feed(0, "stdout", "a")
        + ranks.feed(1, "stdout", "x\ny")
        + ranks.feed(0, "stdout", "b\r")
        + ranks.feed(0, "stdout", "\nc")
    )
    assert seen(out + ranks.flush()) == ["  1 │ x", "  0 │ ab", "  0 │ c", "  1 │ y", ""]


def test_progress_bars_redraw_in_one_line() -> None:
    ranks, clock = lines(2)
    out = ""
    for step in range(1, 4):
        for rank in range(2):
            out += ranks.feed(rank, "stderr", f"\r{step * 10:3}%|{'#' * step:5}| {step}/3 of rank {rank}")
            clock.now += 0.2
    assert len(seen(out)) == 1
    out += ranks.feed(0, "stdout", "a line\n")
    clock.now += 1
    out += (
        ranks.feed(1, "stderr", "\r 90%")
        + ranks.feed(1, "stderr", "\r100%\n")
        + ranks.feed(0, "stderr", "\r100%\n")
        + ranks.flush()
    )
    assert [row for row in seen(out) if row] == ["  0 │ a line", "0–1 │ 100%"]


def test_a_line_that_never_ends_is_shown() -> None:
    ranks, clock = lines(2)
    ranks.feed(0, "stdout", "x" * 70_000)
    clock.now += 1
    assert ranks.due().count("x") == 70_000


def test_colours_are_those_of_ranks_and_the_jobs_own_stay() -> None:
    ranks, _ = lines(2, colour=True)
    assert (
        ranks.feed(1, "stdout", "\x1b[31mred\x1b[0m\n") + ranks.flush()
        == "\x1b[35m  1\x1b[0m │ \x1b[31mred\x1b[0m\n"
    )


def test_a_budget_keeps_the_beginning_and_the_end() -> None:
    budget = Budget(lines=3, chars=1000)
    out = "".join(budget.take(f"line {number}\n") for number in range(100_000))
    assert out == "line 0\nline 1\nline 2\n"
    assert (
        budget.note("ABCD1234")
        == "99,997 more lines (1 MiB) are left out here: %mgpu_logs ABCD1234 shows the whole output."
    )
    assert budget.tail().splitlines()[-1] == "line 99999"
    budget.renew()
    assert (budget.take("again\n"), budget.note("ABCD1234")) == ("again\n", "")


def test_a_budget_cuts_long_lines() -> None:
    budget = Budget(lines=10, chars=100)
    assert budget.take("x" * 250) == "x" * 100 + "\n"
    assert budget.note("ABCD1234").startswith("1 more line (150 B) is left out here: ")
    assert Budget(limited=False).take("y" * 10_000_000).count("y") == 10_000_000


def test_displays_have_a_limit() -> None:
    budget = Budget()
    assert [budget.take_display() for _ in range(502)].count(True) == 500
    assert (
        budget.note("ABCD1234") == "2 more displays are left out: %mgpu_logs ABCD1234 shows the whole output."
    )
