"""Every program that root starts on a node with `--run-as-user`, beside a job that tries to steer it. What
each must find stands in the table of `docs/security.md`, not here.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from mgpu_jupyter.model.job import JobState
from tests.documents import SECURITY, table_of
from tests.e2e.people import OsUser, Shared, open_directory, python_for_all, why_not
from tests.e2e.test_neighbours import Street, keeper_of, processes_with
from tests.processes import wait_until

pytestmark = [pytest.mark.skipif(bool(why_not()), reason=why_not())]
COLUMNS = (
    "PATH",
    "LD_PRELOAD",
    "BASH_ENV",
    "PYTHONPATH",
    "IFS",
    "cwd",
    "fds",
    "umask",
    "rlimits",
    "symlink swapped",
)
UMASK, FILES = "0000", 123  # what the job sets
OWN_FDS = 3
# Says what the process that runs it finds: /proc tells more than a shell would.
LOOK = """#!/bin/sh
{
tr '\\0' '\\n' < /proc/$$/environ | sed 's/^/env /'
echo "uid $(id -u)"
echo "cwd $(readlink /proc/$$/cwd)"
for one in /proc/$$/fd/*; do echo "fd ${one##*/} $(readlink "$one")"; done
sed -n 's/^Umask:\\t/umask /p' /proc/$$/status
sed -n 's/^Max open files *\\([0-9]*\\) .*/files \\1/p' /proc/$$/limits
} > "$1.part" && mv "$1.part" "$1"
"""
TOOLS = ("tr", "sed", "id", "readlink", "mv", "date", "sh")


class Found:
    """What one program found."""

    def __init__(self, text: str) -> None:
        self.env = dict(line[4:].partition("=")[::2] for line in text.splitlines() if line.startswith("env "))
        self.fds = {
            int(number): target for number, target in re.findall(r"^fd (\d+) (.*)$", text, re.MULTILINE)
        }
        self.uid, self.files = (
            int(re.findall(rf"^{name} (\d+)$", text, re.MULTILINE)[0]) for name in ("uid", "files")
        )
        self.cwd, self.umask = (
            re.findall(rf"^{name} (.*)$", text, re.MULTILINE)[0] for name in ("cwd", "umask")
        )

    @classmethod
    def of_process(cls, pid: int) -> Found:
        place = Path(f"/proc/{pid}")
        lines = [
            f"env {item}" for item in (place / "environ").read_text(errors="replace").split("\0") if item
        ]
        lines += [f"fd {one.name} {os.readlink(one)}" for one in (place / "fd").iterdir()]
        status = dict(
            line.split(":\t", 1) for line in (place / "status").read_text().splitlines() if ":\t" in line
        )
        uid, umask = status["Uid"].split()[0], status["Umask"]
        (files,) = re.findall(r"Max open files *(\d+)", (place / "limits").read_text())
        lines += [f"uid {uid}", f"umask {umask}", f"cwd {os.readlink(place / 'cwd')}", f"files {files}"]
        return cls("\n".join(lines))


def found_of(pid: int) -> Found:
    """Look at a process; it opens and closes files meanwhile."""
    return wait_until(lambda: Found.of_process(pid), f"process {pid} held still")


class Trap:
    """What Ann's job brings along, and what root has that it wants."""

    def __init__(self, street: Street) -> None:
        home = street.ann.home
        self.evil, self.work, self.ran = home / "evil", home / "work", home / "ran"
        self.vault, self.look, self.logs = (
            street.place / "vault",
            street.place / "look",
            street.place / "logs",
        )
        self.work.mkdir()
        self.evil.mkdir()
        for name in TOOLS:
            (self.evil / name).write_text(
                f'#!/bin/sh\nPATH=/usr/bin:/bin\nid -u >> {self.ran}\nexec {name} "$@"\n'
            )
            (self.evil / name).chmod(0o755)
        (self.evil / "rc").write_text(f"/usr/bin/id -u >> {self.ran}\n")
        (self.evil / "sitecustomize.py").write_text(
            f"import os; open({str(self.ran)!r}, 'a').write(f'{{os.getuid()}}\\n')\n"
        )
        self.ran.touch()
        for path in (self.evil, self.work, self.ran, *self.evil.iterdir()):
            os.chown(path, street.ann.uid, street.ann.gid)
        self.vault.mkdir(mode=0o700)
        (self.vault / "secret").write_text("of root")
        self.look.write_text(LOOK)
        self.look.chmod(0o755)
        self.logs.mkdir()
        self.logs.chmod(0o1777)
        python_path = street.env.get("PYTHONPATH", "")
        self.env = street.env | {
            "PATH": f"{self.evil}:/usr/bin:/bin",
            "LD_PRELOAD": f"{self.evil}/evil.so",
            "BASH_ENV": f"{self.evil}/rc",
            "ENV": f"{self.evil}/rc",
            "PYTHONPATH": f"{self.evil}:{python_path}" if python_path else str(self.evil),
            "IFS": "/",
        }

    def log(self, name: str) -> Path:
        return self.logs / name.replace(" ", "-")

    def vault_is_whole(self) -> bool:
        info = self.vault.stat()
        return (info.st_uid, info.st_mode & 0o777, [path.name for path in self.vault.iterdir()]) == (
            0,
            0o700,
            ["secret"],
        ) and (self.vault / "secret").read_text() == "of root"

    def judge(self, found: Found, uid: int) -> tuple[str, ...]:
        """Return who runs it, and for each column whether it has something of the job's."""
        answers = ["own" if found.env.get(name) == self.env[name] else "clean" for name in COLUMNS[:5]]
        answers.append("own" if found.cwd.startswith((str(self.evil.parent), str(self.vault))) else "clean")
        planted = [
            target
            for number, target in found.fds.items()
            if number >= OWN_FDS and str(self.look) not in target
        ]
        answers.append("foreign" if any(str(self.vault) in target for target in planted) else "clean")
        answers.append("own" if found.umask == UMASK else "clean")
        answers.append("own" if found.files == FILES else "clean")
        answers.append("clean" if self.vault_is_whole() else "own")
        return ("root" if found.uid == 0 else "the user" if found.uid == uid else str(found.uid), *answers)


@pytest.fixture
def street(tmp_path: Path) -> Iterator[Street]:
    with open_directory() as place, Shared(tmp_path / "cluster") as cluster:
        python, env = python_for_all(place)
        with OsUser(place, python, env) as ann, OsUser(place, python, env) as bob:
            yield Street(cluster, place, ann, bob, python, env)


def test_nothing_that_a_job_chooses_steers_what_root_starts(street: Street) -> None:
    expected = {row[0]: tuple(row[1:]) for row in table_of(SECURITY, "program")}
    trap, ann = Trap(street), street.ann
    look, cluster = shlex.quote(str(trap.look)), street.cluster
    names = {name: shlex.quote(str(trap.log(name))) for name in expected}
    cluster.start_shared_master(
        f"--MgpuApp.prolog={look} {names['prolog of the site']}",
        f"--MgpuApp.epilog={look} {names['epilog of the site']}",
        f"--MgpuApp.health_checks={{'every_s': 1, 'program': ['{trap.look}', "
        f"'{trap.log('health check of the site')}']}}",
    )
    # The agent itself has a descriptor that is nobody's business.
    street.start_nodes("n1", before=["bash", "-c", 'exec 9< "$0"; exec "$@"', str(trap.vault / "secret")])
    client = street.of(ann)
    seen: dict[str, Found] = {}
    body = f"""
umask {UMASK}; ulimit -n {FILES}; {look} {names["process of a job"]}
/bin/rm -rf {trap.work}; /bin/ln -s {trap.vault} {trap.work}
touch {trap.logs}/swapped; while [ ! -e {trap.logs}/go ]; do /bin/sleep 0.05; done
"""
    job = client.submit(
        ["/bin/sh", "-c", body],
        gpus=1,
        chdir=str(trap.work),
        env=trap.env,
        prolog=f"{look} {names['prolog of a job']}",
        epilog=f"{look} {names['epilog of a job']}",
        results=["secret"],
    )
    wait_until((trap.logs / "swapped").exists, "the job swapped its directory", 60)
    seen["helper of an account"] = found_of(processes_with("mgpu_helper", ann.name)[0])
    seen["keeper"] = found_of(keeper_of(cluster.state / "nodes" / "n1"))
    (trap.logs / "go").touch()
    assert job.wait(60).state == JobState.COMPLETED, (job.info, job.output())
    ring = client.submit(
        [str(trap.look), str(trap.log("MPI program of a job"))],
        gpus=1,
        mpi=True,
        chdir=str(trap.evil),
        env=trap.env,
    )
    assert ring.wait(60).state == JobState.COMPLETED, (ring.info, ring.output())
    for name in expected.keys() - seen.keys():
        seen[name] = Found(wait_until(trap.log(name).read_text, f"{name} looked"))
    found = {name: trap.judge(one, ann.uid) for name, one in seen.items()}
    trapped = set(trap.ran.read_text().split())
    print(
        f"{len(found)} programs x {len(COLUMNS)} conditions; what the job laid out ran as {sorted(trapped)}"
    )

    assert found == expected
    assert trapped == {str(ann.uid)}
    assert [file.path for file in job.wait_for_results().files] == []
    assert cluster.node_states() == {"n1": "online"}
