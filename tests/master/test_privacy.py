"""Who sees what of whom: answers as the owner, another user and an administrator get them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.api import models
from mgpu_jupyter.api.traces import Summary
from mgpu_jupyter.master.privacy import Privacy, Sight, shown
from mgpu_jupyter.model.explanations import Ahead, Explanation
from mgpu_jupyter.model.job import JobState

OWNERS = {JobId("AAAA1111"): "ann", JobId("BBBB2222"): "bob"}
TOLD = Explanation(
    verdict="not_now",
    code="busy",
    job_id=JobId("AAAA1111"),
    text="It waits for 2 GPUs.",
    ahead=(Ahead(job_id=JobId("BBBB2222"), user="bob", gpus=2, priority=1.0),),
)


SUMMARY = Summary(
    job_id=JobId("AAAA1111"),
    name="train",
    user="ann",
    state=JobState.FAILED,
    attempt=1,
    exit_code=1,
    reason="Rank 0: exit code 1.",
    submitted_at=1.0,
    started_at=2.0,
    ended_at=3.0,
    waited_s=1.0,
    ran_s=1.0,
    gpus_requested=1,
    nodes_requested=1,
    time_limit_s=None,
    time_used_percent=None,
    gpu_memory_requested_bytes=0,
    gpu_memory_peak_bytes=None,
    gpu_utilisation_percent=None,
    gpu_s=1.0,
)


def sight(user: str, privacy: Privacy, *, is_admin: bool = False) -> Sight:
    return Sight(privacy=privacy, user=user, is_admin=is_admin, owner_of=lambda job: OWNERS[job])


def test_nothing_is_hidden_from_administrators_and_where_all_may_see_all() -> None:
    assert shown(TOLD, sight("eve", "none", is_admin=True)) == TOLD
    assert shown(TOLD, sight("eve", "full")) == TOLD


@pytest.mark.parametrize(("privacy", "user"), [("names", "bob"), ("none", "another user")])
def test_an_explanation_is_its_owners_and_others_see_where_they_stand(privacy: Privacy, user: str) -> None:
    ahead = (Ahead(job_id=JobId("BBBB2222"), user=user, gpus=2, priority=1.0),)
    assert shown(TOLD, sight("ann", privacy)) == replace(TOLD, ahead=ahead)
    assert shown(TOLD, sight("eve", privacy)) == replace(TOLD, text="", ahead=ahead)
    of_none = replace(TOLD, job_id=None)
    assert shown(of_none, sight("eve", privacy)) == replace(of_none, ahead=ahead), "a request of their own"


@pytest.mark.parametrize(
    ("privacy", "user", "name"), [("names", "ann", "train"), ("none", "another user", "")]
)
def test_a_summary_is_its_owners_and_others_see_figures(privacy: Privacy, user: str, name: str) -> None:
    assert shown(SUMMARY, sight("ann", privacy)) == SUMMARY
    assert shown(SUMMARY, sight("eve", privacy)) == replace(SUMMARY, reason="", user=user, name=name)


def test_what_has_nothing_of_anybody_is_as_it_is() -> None:
    health = models.Health(status="ok", version="1")
    assert shown(health, sight("eve", "none")) == health
