"""The checker is worth what it finds: histories that break each rule, each in its own way, and sound ones
that break none.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from tests.checker.builders import a_history, a_run, a_told, sound_histories
from tests.checker.history import Fault, History, Seen, Settings, Told
from tests.checker.rules import RULES, Violation, check

LOST = Fault("node-lost", "n1", 2.0)
NO_GRACE = Settings(kill_grace_s=0.0, gang_limit_s=1.0)


def broken(history: History) -> list[str]:
    return [str(violation) for violation in check(history)]


@given(sound_histories())
def test_sound_histories_break_no_rule(history: History) -> None:
    assert check(history) == []


def test_there_are_ten_rules_and_each_says_what_it_is() -> None:
    assert list(RULES) == list(range(1, 11))
    assert [rule.__doc__.split(":")[0] for rule in RULES.values() if rule.__doc__] == [
        f"Rule {number}" for number in RULES
    ]


def test_a_violation_reads_as_a_line() -> None:
    assert str(Violation(3, "it did")) == "rule 3: it did"


GANG = [a_run(rank=rank, ranks=2, gpus=(f"GPU-{rank}",)) for rank in (0, 1)]
OVER = a_told()
TWICE = [a_run(end=2.0, code=None), a_run(attempt=2, start=3.0, end=4.0), a_told(attempt=2, at=5.0)]
PAIR = [a_run(attempt=2, start=3.0, end=4.0, rank=rank, ranks=2, pid=130 + rank) for rank in (0, 1)]

SOUND = {
    "one job": a_history(a_run(), OVER),
    "acknowledged twice under one key": replace(
        a_history(a_run(), OVER), acknowledged=[("k", "A", 0.5), ("k", "A", 0.6)]
    ),
    "a job that was cancelled before it ran": a_history(a_told(state="cancelled", attempt=0, code=None)),
    "asked for and never acknowledged": a_history(jobs=()),
    "run again after its node was lost": a_history(*TWICE, LOST),
    "run again after a node was lost that had not begun with its rank": a_history(
        a_run(ranks=2, end=2.0, code=143), *PAIR, a_told(attempt=2, at=5.0), Fault("node-lost", "n2", 0.9)
    ),
    "run again before anybody wrote down that a node was lost that had not begun with its rank": a_history(
        a_run(ranks=2, end=2.0, code=143),
        *PAIR,
        a_told(attempt=2, at=5.0),
        Fault("node-lost", "n2", 3.5, since=0.9),
    ),
    "two processes of an attempt on one node": a_history(
        a_run(ranks=2, gpus=("G",)), a_run(rank=1, ranks=2, gpus=("G",)), OVER
    ),
    "a GPU that is handed on": a_history(
        a_run(gpus=("G",), end=2.0),
        a_run("B", epoch=2, gpus=("G",), start=2.0, end=3.0),
        OVER,
        a_told("B"),
        jobs=("A", "B"),
    ),
    "a gang": a_history(*GANG, OVER),
    "a gang that was taken down when a rank failed": a_history(
        replace(GANG[0], code=3),
        replace(GANG[1], code=143),
        a_told(state="failed", code=3),
        settings=NO_GRACE,
    ),
    "a process that ends within the grace": a_history(
        a_run(end=9.0, code=143), a_told(state="cancelled", code=None)
    ),
    "a retry after its delay": a_history(
        a_run(code=3),
        a_run(attempt=2, start=5.0, end=6.0),
        a_told(attempt=2, at=7.0),
        settings=Settings(retries=1, retry_delays_s=(3.0,)),
    ),
    "run again before anybody saw that its keeper was gone": a_history(
        *TWICE, Fault("node-lost", "n1", 9.0, since=1.5)
    ),
    "run again by order": a_history(*TWICE, Fault("given-up", "", 2.0, "A")),
    "run again since a rank never began": a_history(
        replace(GANG[0], code=143),
        *(replace(run, attempt=2, epoch=2, started_at=3.0, seen_at=4.0) for run in GANG),
        a_told(attempt=2, at=5.0),
        settings=Settings(starts_fail=True),
    ),
    "failed since a rank never began": a_history(GANG[0], a_told(state="failed", code=None)),
    "killed by a signal": a_history(a_run(code=None), a_told(state="failed", code=137)),
    "a command that writes nothing down": History(
        asked={"k": {"witness": False}}, acknowledged=[("k", "A", 0.5)], told=[OVER]
    ),
}


@pytest.mark.parametrize("name", SOUND)
def test_sound(name: str) -> None:
    assert broken(SOUND[name]) == []


BROKEN = {
    "1 nothing was told": (
        a_history(),
        ["rule 1: job A was acknowledged and reached no final state: nothing was told of it afterwards"],
    ),
    "1 it waits for ever": (
        a_history(a_told(state="queued", attempt=0, code=None)),
        ["rule 1: job A was acknowledged and reached no final state: the last that was told is queued"],
    ),
    "1 it was lost": (
        a_history(unknown=[("A", 9.0)]),
        ["rule 1: job A was acknowledged, and later the API knew no such job"],
    ),
    "1 one key, two jobs": (
        replace(
            a_history(a_run(), OVER, a_run("B", epoch=2), a_told("B")),
            acknowledged=[("k", "A", 0.5), ("k", "B", 0.6)],
            asked={"k": {}},
        ),
        ["rule 1: the key k was acknowledged as A and B"],
    ),
    "2 started twice": (
        a_history(a_run(), a_run(pid=222, start=2.5, end=2.6), OVER),
        ["rule 2: job A attempt 1 rank 0 was started 2 times: pids [110, 222]"],
    ),
    "3 two attempts at once": (
        a_history(a_run(end=3.5, code=None), *TWICE[1:], LOST),
        [
            (
                "rule 3: job A: attempt 1 rank 0 (pid 110 on n1) still lived 0.500 s after attempt 2 rank 0 "
                "(pid 120 on n1) began"
            )
        ],
    ),
    "4 a GPU held twice": (
        a_history(
            a_run(gpus=("G",)),
            a_run("B", epoch=2, pid=5, gpus=("G",), start=1.5),
            OVER,
            a_told("B"),
            jobs=("A", "B"),
        ),
        [
            (
                "rule 4: GPU G was held by job A attempt 1 rank 0 (pid 110 on n1) and by job B attempt 1 "
                "rank 0 "
                "(pid 5 on n1) at once"
            )
        ],
    ),
    "4 a GPU held by two attempts": (
        a_history(
            a_run(gpus=("G",), code=None),
            a_run(attempt=2, gpus=("G",), start=1.5),
            a_told(attempt=2, at=5.0),
            LOST,
        ),
        [
            (
                "rule 3: job A: attempt 1 rank 0 (pid 110 on n1) still lived 0.500 s after attempt 2 rank 0 "
                "(pid 120 on n1) began"
            ),
            (
                "rule 4: GPU G was held by job A attempt 1 rank 0 (pid 110 on n1) and by job A attempt 2 "
                "rank 0 "
                "(pid 120 on n1) at once"
            ),
            (
                "rule 9: job A ran again as attempt 2 without a cause: attempt 1 rank 0 (pid 110 on n1) was "
                "cut "
                "off"
            ),
        ],
    ),
    "4 a GPU held twice, by one that began long before": (
        a_history(
            a_run(gpus=("G",), end=2.9),
            a_run("B", epoch=2, gpus=("G",), start=1.1, end=1.2, code=None),
            a_run("C", epoch=3, gpus=("G",), start=2.5, end=2.6),
            *(OVER, a_told("B", "cancelled", code=None), a_told("C")),
            jobs=("A", "B", "C"),
        ),
        [
            (
                "rule 4: GPU G was held by job A attempt 1 rank 0 (pid 110 on n1) and by job B attempt 1 "
                "rank 0 "
                "(pid 110 on n1) at once"
            ),
            (
                "rule 4: GPU G was held by job A attempt 1 rank 0 (pid 110 on n1) and by job C attempt 1 "
                "rank 0 "
                "(pid 110 on n1) at once"
            ),
        ],
    ),
    "5 a rank is missing": (
        a_history(GANG[0], OVER),
        ["rule 5: job A is completed, and its ranks [1] never started"],
    ),
    "5 a rank too many": (
        a_history(a_run(), a_run(rank=1), OVER),
        ["rule 5: job A attempt 1 has ranks that nobody asked for: [1]"],
    ),
    "5 two epochs": (
        a_history(GANG[0], replace(GANG[1], epoch=2), OVER),
        ["rule 5: job A attempt 1 has ranks of different epochs: [1, 2]"],
    ),
    "5 a rank runs on alone": (
        a_history(
            replace(GANG[0], code=3),
            replace(GANG[1], seen_at=4.5, code=None),
            a_told(state="failed", code=3, at=5.0),
            settings=NO_GRACE,
        ),
        [
            (
                "rule 5: job A: attempt 1 rank 0 (pid 110 on n1) was gone, and attempt 1 rank 1 (pid 111 on "
                "n1) "
                "lived on for 2.5 s"
            )
        ],
    ),
    "5 a rank runs without the others": (
        a_history(
            replace(GANG[0], seen_at=3.5, code=None),
            a_told(state="cancelled", code=None, at=4.0),
            settings=NO_GRACE,
        ),
        ["rule 5: job A: ranks [1] never started, and attempt 1 rank 0 (pid 110 on n1) lived on for 2.5 s"],
    ),
    "6 it writes on": (
        a_history(a_run(end=5.5, code=None), a_told(state="cancelled", code=None), settings=NO_GRACE),
        ["rule 6: job A was cancelled, and attempt 1 rank 0 (pid 110 on n1) still lived 2.5 s later"],
    ),
    "6 it was seen": (
        a_history(
            a_run(),
            OVER,
            settings=NO_GRACE,
            alive=[Seen("A", 55, 9.0), Seen("A", 56, 4.0), Seen("Z", 57, 9.0)],
        ),
        ["rule 6: job A was completed, and pid 55 with its mark was seen 6.0 s later"],
    ),
    "7 an epoch is used twice": (
        a_history(a_run(), a_run("B"), OVER, a_told("B"), jobs=("A", "B")),
        ["rule 7: epoch 1 was used by job A attempt 1, job B attempt 1"],
    ),
    "7 epochs fall": (
        a_history(replace(TWICE[0], epoch=9), *TWICE[1:], LOST),
        ["rule 7: job A: attempt 2 has epoch 2, and attempt 1 before it had 9"],
    ),
    "8 the code of an earlier attempt": (
        a_history(*TWICE[:2], a_told(attempt=1, at=5.0), LOST),
        ["rule 8: job A is completed with attempt 1, and its attempt 2 ran"],
    ),
    "8 another code": (
        a_history(a_run(code=4), a_told(state="failed", code=5)),
        ["rule 8: job A failed with exit code 5, and its attempt 1 ended with [4]"],
    ),
    "8 completed by a process that was killed": (
        a_history(a_run(code=None), OVER),
        ["rule 8: job A is completed, and attempt 1 rank 0 (pid 110 on n1) never came to its end"],
    ),
    "8 completed by a process that failed": (
        a_history(a_run(code=3), OVER),
        ["rule 8: job A is completed, and attempt 1 rank 0 (pid 110 on n1) ended with 3"],
    ),
    "8 completed with another code": (
        a_history(a_run(), a_told(code=1)),
        ["rule 8: job A is completed with exit code 1"],
    ),
    "8 completed without a process": (
        a_history(OVER),
        ["rule 8: job A is completed, and its attempt 1 never ran"],
    ),
    "8 failed with no error": (
        a_history(a_run(code=3), a_told(state="failed")),
        ["rule 8: job A failed with exit code 0"],
    ),
    "8 failed although all went well": (
        a_history(a_run(), a_told(state="failed", code=None)),
        ["rule 8: job A failed, and all ranks of its attempt 1 ended with 0"],
    ),
    "9 run again although it ended well": (
        a_history(a_run(), *TWICE[1:], settings=Settings(retries=5)),
        [
            (
                "rule 9: job A ran again as attempt 2 without a cause: attempt 1 rank 0 (pid 110 on n1) "
                "ended "
                "with 0"
            )
        ],
    ),
    "9 run again after a loss that never was": (
        a_history(
            *TWICE,
            *(
                Fault("node-lost", "n2", 2.0),
                Fault("agent-killed", "n1", 2.0),
                Fault("node-lost", "n1", 0.5),
                Fault("node-lost", "n1", 9.0, since=4.5),
                Fault("given-up", "n1", 2.0, "B"),
            ),
        ),
        [
            (
                "rule 9: job A ran again as attempt 2 without a cause: attempt 1 rank 0 (pid 110 on n1) was "
                "cut "
                "off"
            )
        ],
    ),
    "9 a gang run again whose missing rank no loss explains": (
        a_history(
            a_run(ranks=2, end=2.0, code=143), *PAIR, a_told(attempt=2, at=5.0), Fault("node-lost", "n2", 3.5)
        ),
        [
            (
                "rule 9: job A ran again as attempt 2 without a cause: attempt 1 rank 0 (pid 110 on n1) "
                "ended "
                "with 143"
            )
        ],
    ),
    "9 more retries than configured": (
        a_history(a_run(code=3), *TWICE[1:]),
        [
            (
                "rule 9: job A ran again as attempt 2 after attempt 1 rank 0 (pid 110 on n1) ended with 3, "
                "and "
                "0 retries are configured"
            ),
        ],
    ),
    "9 a retry too early": (
        a_history(a_run(code=3), *TWICE[1:], settings=Settings(retries=1, retry_delays_s=(1.5,))),
        ["rule 9: job A attempt 2 began 1.000 s after the one before, and 1.5 s are configured"],
    ),
    "10 a final state is left": (
        a_history(a_run(), OVER, a_told(state="queued", at=4.0, code=None)),
        [
            (
                "rule 10: job A was completed (attempt 1, exit code 0), and later queued (attempt 1, exit "
                "code "
                "None)"
            )
        ],
    ),
    "10 another end": (
        a_history(a_run(), OVER, Told("A", "failed", 1, 1, 4.0)),
        ["rule 10: job A was completed (attempt 1, exit code 0), and later failed (attempt 1, exit code 1)"],
    ),
    "10 a process begins after the end": (
        a_history(a_told(state="cancelled", attempt=1, code=None), a_run(start=4.0, end=4.5)),
        ["rule 10: job A was cancelled, and attempt 1 rank 0 (pid 110 on n1) began 1.000 s later"],
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken(name: str) -> None:
    history, sentences = BROKEN[name]
    assert broken(history) == sentences


def test_every_rule_is_broken_by_some_history() -> None:
    assert {int(name.split()[0]) for name in BROKEN} == set(RULES)
