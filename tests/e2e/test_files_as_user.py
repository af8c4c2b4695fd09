"""What the agent does with files of users where jobs run as them: as that user, without running anything, and
nobody waits for another.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from mgpu_jupyter.api.files import PythonAnswers, PythonQuestion
from mgpu_jupyter.client.here import Here
from mgpu_jupyter.client.spec import spec_of
from mgpu_jupyter.client.transport import Request
from mgpu_jupyter.model.job import JobState
from tests.e2e.cluster import bash
from tests.e2e.people import OsUser, Shared, open_directory, why_not
from tests.e2e.test_run_as_user import Site

pytestmark = [pytest.mark.skipif(bool(why_not()), reason=why_not())]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with (
        open_directory() as place,
        Shared(tmp_path_factory.mktemp("files-as-user") / "cluster") as cluster,
        OsUser(place, Path(sys.executable), {}) as ann,
        OsUser(place, Path(sys.executable), {}) as bob,
    ):
        cluster.start_shared_master()
        for name in ("n1", "n2"):
            cluster.start_node(name, 1, "--run-as-user", "--scratch-dir", str(place / "scratch"))
        site = Site(cluster, ann, bob, place / "scratch")
        yield site
        site.close()


def trap_of(person: OsUser, name: str) -> tuple[Path, Path]:
    """Return a program of a user that notes who runs it, and for which job; and where it notes that."""
    trap, ran = person.home / name, person.home / f"{name}-ran"
    trap.write_text(f'#!/bin/bash\necho "$(id -un) $MGPU_JOB_ID" >> {ran}\necho 3.11\n')
    trap.chmod(0o755)
    os.chown(trap, person.uid, person.gid)
    return trap, ran


def test_an_interpreter_that_a_user_names_runs_in_jobs_alone(site: Site) -> None:
    """A question about it, or a launch that does not use it, starts nothing: there would be no job that it is
    a part of.
    """
    trap, ran = trap_of(site.ann, "python")
    ann = site.of(site.ann.name)
    for question in (
        PythonQuestion(python=str(trap), kernel_python=None, kernel_python_version=None),
        PythonQuestion(python=None, kernel_python=str(trap), kernel_python_version="3.11"),
    ):
        body = msgspec.json.encode(question)
        ann.caller.call(Request(method="POST", path="pythons", body=body), PythonAnswers)
    spec = replace(
        spec_of(None, "print(1)", {"gpus": 0}, Here.real()),
        kernel_python=str(trap),
        kernel_python_version="3.11",
    )
    ann.submit_spec(spec).wait(60)
    assert not ran.exists()
    job = ann.submit(script="print(1)", gpus=0, python=str(trap)).wait(60)
    assert ran.read_text() == f"{site.ann.name} {job.id}\n"


def test_versions_for_a_meeting_of_nodes_are_read_and_not_asked_for(site: Site) -> None:
    trap, ran = trap_of(site.ann, "python3")
    job = site.of(site.ann.name).submit([str(trap)], gpus=2, nodes=2, distributed=True)
    assert job.wait(60).state == JobState.COMPLETED, job.info
    assert ran.read_text() == 2 * f"{site.ann.name} {job.id}\n"


def test_names_in_anothers_private_directory_do_not_come_back_as_results(site: Site) -> None:
    (site.bob.home / "diary-of-bob").write_text("x")
    script = bash(f"ln -s {site.bob.home} peek; echo x > mine")
    job = site.of(site.ann.name).submit(
        script, gpus=0, chdir="/nowhere", results=["mine", "peek/*", "**/diary*"]
    )
    assert job.wait(60).state == JobState.COMPLETED, job.info
    found = job.wait_for_results()
    assert [file.path for file in found.files] == ["mine"]
    assert "diary" not in "".join(found.problems)


def test_a_huge_empty_file_of_one_user_does_not_keep_anothers_results_waiting(site: Site) -> None:
    # To read that much takes an hour and more: who waited for it would wait in vain.
    ann = site.of(site.ann.name).submit(
        bash("truncate -s 8T huge"), gpus=0, chdir="/nowhere", results=["huge"]
    )
    assert ann.wait(60).state == JobState.COMPLETED, ann.info
    bob = site.of(site.bob.name).submit(bash("echo x > mine"), gpus=0, chdir="/nowhere", results=["mine"])
    assert bob.wait(60).state == JobState.COMPLETED, bob.info
    assert [file.path for file in bob.wait_for_results().files] == ["mine"]
    found = ann.wait_for_results()
    assert found.files == ()
    assert ["results are kept up to" in problem for problem in found.problems] == [True]


def test_what_a_user_leaves_in_scratch_is_deleted_as_that_user(site: Site, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "run.sh").write_text("#!/bin/sh\nmkdir -p a/b; touch a/b/c; chmod 0 a; ln -s / root\n")
    (project / "run.sh").chmod(0o755)
    job = site.of(site.ann.name).submit(["./run.sh"], gpus=0, sync=str(project))
    assert job.wait(60).state == JobState.COMPLETED, job.info
    site.cluster.wait_until(
        lambda: not list(site.scratch.glob(f"*/scratch/{job.id}.*")), "its folder is gone"
    )
    assert Path("/etc/passwd").exists()
