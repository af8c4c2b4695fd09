"""Guesses which flag an unknown one means: by what other programs call the same, then by its letters.

Knows words, not what they do. Pure.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

SURE = 0.75  # of the letters, without dashes: `time` and `image` are not similar
LEAST = 4
"""The least letters of a known name that counts as the beginning of a longer word."""
# Names that are not flags of the program at hand are left out, and so are lines without any that is.
ALIKE: tuple[tuple[str, ...], ...] = (
    ("--time-limit", "-t", "--time", "--timelimit", "--walltime", "--timeout", "--limit", "--max-time",
     "--duration", "--time-min", "--deadline"),
    ("--gpus", "--gres", "--num-gpus", "--ngpus", "--n-gpus", "--gpu-count", "--gpu", "--gpus-per-task",
     "--gpus-per-job", "--nproc", "-g", "--count"),
    ("--gpus-per-node", "--nproc-per-node", "--gpus-each", "--gpn"),
    ("--nodes", "--num-nodes", "--nnodes", "--n-nodes", "--node-count"),
    ("--nodelist", "--node", "--host", "--hosts", "--hostlist", "--hostfile", "--nodefile", "--on"),
    ("--exclude", "--exclude-nodes", "--not-on", "--without", "--avoid"),
    ("--cpus", "--cpus-per-task", "--cores", "--threads", "--ncpus", "--cpus-per-gpu", "--num-cpus", "-c"),
    ("--ntasks-per-node", "--ntasks", "-n", "--tasks", "--tasks-per-node", "-np", "--np"),
    ("--gpu-mem", "--vram", "--gpu-memory", "--mem-per-gpu", "--memory-per-gpu"),
    ("--mem-per-node", "--memory", "--ram", "--mem-per-cpu", "--host-mem"),
    ("--name", "--job-name", "--jobname", "--title"),
    ("--chdir", "-D", "--workdir", "--cwd", "--working-dir", "--directory", "--dir", "--wd"),
    ("--sync", "--upload", "--stage", "--copy", "--working-directory"),
    ("--results", "--collect", "--fetch", "--artifacts", "--download"),
    ("--image", "--container", "--docker", "--container-image", "--docker-image", "--singularity"),
    ("--output", "--out-file", "--outfile", "--stdout", "--log-file", "--logfile"),
    ("--error", "--err-file", "--stderr"),
    ("--env", "--environment", "--setenv", "--var", "-x"),
    ("--background", "--detach", "--bg", "--async", "--no-wait", "--nowait", "--batch", "-b", "-d"),
    ("--interactive", "-i", "--attach", "--foreground", "--fg", "--stream"),
    ("--pty", "--tty", "--terminal", "-it"),
    ("--dry-run", "--test-only", "--dryrun", "--check", "--simulate"),
    ("--retries", "--retry", "--max-retries", "--restarts", "--max-restarts", "--attempts"),
    ("--dependency", "--after", "--depends", "--depends-on", "--afterok", "--wait-for"),
    ("--constraint", "--features", "--feature", "--labels", "--selector", "--require"),
    ("--partition", "--queue", "-q", "--pool"),
    ("--begin", "--start-time", "--at", "--not-before", "--delay"),
    ("--priority", "--nice", "--prio"),
    ("--account", "--project", "-P", "--charge"),
    ("--distributed", "--torchrun", "--ddp", "--torch", "--nccl"),
    ("--gpu-type", "--gpu-model", "--model", "--type", "--accelerator"),
    ("--master-host", "--host", "--master", "--server", "--address", "--url"),
    ("--master-port", "--port", "--server-port"),
    ("--host", "--master-host", "--master", "--server", "--bind", "--ip", "--listen", "--address"),
    ("--port", "--master-port", "--server-port"),
    ("--user", "-u", "--me", "--username", "--mine"),
    ("--all", "-a", "--everything", "--history", "--done", "--finished"),
    ("--watch", "--follow", "-f", "--iterate", "--loop", "--refresh", "-i"),
    ("--ttl", "--expires", "--valid", "--lifetime", "--for"),
    ("--config", "--config-file", "--conf", "--configuration", "-c", "-f"),
    ("--verbose", "-v", "--debug", "--log-level", "--loglevel"),
    ("--fake-gpus", "--simulated-gpus", "--simulate", "--fake"),
    ("--gpu-count", "--gpus", "--num-gpus", "--ngpus", "-G"),
)  # fmt: skip
"""Names with the same meaning; the first of a line that a program has are suggested, two at most."""


def flags_meant(word: str, known: Sequence[str]) -> list[str]:
    """Return the flags that `word` seems to mean, best first; none where nothing is similar."""
    spelled = word.replace("_", "-").lower() if word.startswith("--") else word
    if spelled in known:
        return [spelled]
    for names in ALIKE:
        if spelled in names:
            found = [name for name in names if name in known]
            if any(name.startswith("--") for name in found):  # a letter alone may mean something else here
                return _few(found)
    if not spelled.startswith("--"):
        return []
    bare = {name.removeprefix("--"): name for name in known if name.startswith("--")}
    text = spelled.removeprefix("--")
    near = difflib.get_close_matches(text, bare, 1, SURE)
    longer = sorted((name for name in bare if name.startswith(text)), key=len) if len(text) > 1 else []
    shorter = [name for name in bare if len(name) >= LEAST and text.startswith(name)]
    return [bare[name] for name in (*near, *longer, *sorted(shorter, key=len, reverse=True))][:1]


def _few(names: list[str]) -> list[str]:
    """Return the intended name, with its short form where that is another spelling of the value."""
    return names[:2] if names[:2] == ["--time-limit", "-t"] else names[:1]
