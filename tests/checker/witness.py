"""A job that writes down its own life: start, a beat every 50 ms, end. Stands alone; the standard library is
all it needs.

Usage: python -IS witness.py DIRECTORY SECONDS [EXIT-CODE] [talk] [RANK:SECONDS:EXIT-CODE]

With `talk` it also prints a numbered line at each beat, so that lost output shows. The last word makes one
rank end otherwise. Each process writes a file of its own, named by job, attempt, rank and process, so that a
second start can never hide the first. Start and end are fsynced; a beat is only written, since a kill of this
process loses nothing that was written.
"""

import json
import os
import signal
import sys
import time

BEAT_S = 0.05


def now() -> float:
    """Return seconds since boot, which no clock that is set anew can change and every process of the machine
    shares.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def born_at(pid: int) -> int:
    """Return when the kernel says that a process began, in ticks: with the pid it names a process once and
    for all.
    """
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return int(file.read().rpartition(")")[2].split()[19])


def who() -> dict:
    """Return what this process knows of itself."""
    env = os.environ
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    return {
        "job": env["MGPU_JOB_ID"],
        "attempt": int(env["MGPU_ATTEMPT"]),
        "epoch": int(env["MGPU_EPOCH"]),
        "rank": int(env.get("SLURM_PROCID") or env.get("MGPU_NODE_RANK") or 0),
        "ranks": int(env.get("SLURM_NTASKS") or env.get("MGPU_NNODES") or 1),
        "node": env["MGPU_NODE_ID"],
        "gpus": [gpu for gpu in env.get("MGPU_GPUS", "").split(",") if gpu],
        "devices": env.get("CUDA_VISIBLE_DEVICES", ""),
        "host": os.uname().nodename,
        "boot": boot,
        "pid": os.getpid(),
        "born": born_at(os.getpid()),
    }


class Stopped(Exception):
    """Somebody wants this process to end."""


def stop(number: int, frame: object) -> None:
    """Leave the loop by an error, so that the end is written down."""
    raise Stopped(number)


def main(directory: str, seconds: float, *words: str) -> int:
    """Live for `seconds` and return the exit code."""
    me = who()
    code = next((int(word) for word in words if word.isdecimal()), 0)
    talk = "talk" in words
    for word in words:
        rank, _, rest = word.partition(":")
        if rest and int(rank) == me["rank"]:
            seconds, code = float(rest.partition(":")[0]), int(rest.partition(":")[2])
    path = os.path.join(directory, "{job}.{attempt}.{rank}.{pid}.{born}.jsonl".format(**me))
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(what: str, sync: bool, **more: object) -> None:
        os.write(file, (json.dumps({"what": what, "at": now(), **more}) + "\n").encode())
        if sync:
            os.fsync(file)

    try:
        write("start", True, **me)
        # Not before: one that is told to end before its first line has not begun, and says nothing.
        signal.signal(signal.SIGTERM, stop)
        print("started", flush=True)
        ends = now() + seconds
        beats = 0
        while (left := ends - now()) > 0:
            time.sleep(min(BEAT_S, left))
            write("beat", False)
            if talk:
                beats += 1
                print("beat", beats, flush=True)
    except Stopped as stopped:
        code = 128 + int(stopped.args[0])
    print("ends", flush=True)
    write("end", True, code=code)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2]), *sys.argv[3:]))
