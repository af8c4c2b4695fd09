"""Translates `#SBATCH` flags into those of `mgpu_srun`, with a sentence for each one left out. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest

_GRES = re.compile(
    r"(?:gres[:/])?gpu(?::(?P<type>[A-Za-z][\w.-]*))?(?:[:=](?P<count>\d+))?(?:\(S:[\d,-]+\))?"
)
_TYPED = re.compile(r"(?:(?P<type>[A-Za-z][\w.-]*):)?(?P<count>\d+)")
_RANGE = re.compile(r"(?P<before>[^\[\]]*)\[(?P<inside>[\d,-]+)\](?P<after>[^\[\]]*)")
_BRACKETS = re.compile(r"\[[^\[\]]*\]")
MAX_NAMES = 10_000
MAX_DIGITS = 40
Words = list[str]


class Option(msgspec.Struct, frozen=True):
    """A flag of sbatch as it was written."""

    flag: str
    """Its long name."""
    value: str | None


class Translated(msgspec.Struct):
    """The translation of a line."""

    words: Words = []
    ignored: list[str] = []
    """A sentence for each thing that is not supported."""


SHORT = {
    "-J": "--job-name",
    "-N": "--nodes",
    "-n": "--ntasks",
    "-c": "--cpus-per-task",
    "-G": "--gpus",
    "-t": "--time",
    "-p": "--partition",
    "-A": "--account",
    "-q": "--qos",
    "-w": "--nodelist",
    "-x": "--exclude",
    "-C": "--constraint",
    "-d": "--dependency",
    "-a": "--array",
    "-b": "--begin",
    "-D": "--chdir",
    "-o": "--output",
    "-e": "--error",
    "-i": "--input",
    "-H": "--hold",
    "-k": "--no-kill",
    "-s": "--oversubscribe",
    "-Q": "--quiet",
    "-v": "--verbose",
    "-W": "--wait",
    "-L": "--licenses",
    "-M": "--clusters",
    "-F": "--nodefile",
}
SWITCHES = frozenset(
    (
        "--hold",
        "--requeue",
        "--no-requeue",
        "--exclusive",
        "--oversubscribe",
        "--overcommit",
        "--no-kill",
        "--quiet",
        "--verbose",
        "--wait",
    )
)
"""Flags that take no word after them (some take a value behind =)."""
SAME = {
    "--job-name": "--name",
    "--gpus-per-node": "--gpus-per-node",
    "--time": "-t",
    "--partition": "--partition",
    "--account": "--account",
    "--qos": "--qos",
    "--constraint": "--constraint",
    "--dependency": "--dependency",
    "--array": "--array",
    "--begin": "--begin",
    "--chdir": "--chdir",
    "--mem": "--mem-per-node",
    "--ntasks-per-node": "--ntasks-per-node",
    "--priority": "--priority",
    "--signal": "--signal",
    "--output": "--output",
    "--error": "--error",
    "--open-mode": "--open-mode",
}
"""Flags whose value is taken over as it is."""
IGNORED = {
    "--input": "a batch job reads nothing; redirect from a file inside the script",
    "--mail-type": "mgpu sends no mail; let the script send one",
    "--mail-user": "mgpu sends no mail; let the script send one",
    "--oversubscribe": "GPUs are never shared; leave it out",
    "--overcommit": "CPUs are never given twice; leave it out",
    "--comment": "there are no comments on jobs; use --name",
    "--requeue": "a job runs again by itself when its node is lost; leave it out",
    "--no-kill": "a job whose node is lost runs again as a whole; leave it out",
    "--wait": "use `mgpu attach ID` to wait for it",
    "--quiet": "leave it out",
    "--verbose": "use `mgpu explain ID`",
    "--licenses": "there are no licences; leave it out",
    "--clusters": "there is one cluster; leave it out",
    "--switches": "use --policy topology in a #MGPU line",
    "--contiguous": "use --policy topology in a #MGPU line",
    "--mem-per-cpu": "give --mem, which is for the whole node",
    "--tmp": "nodes do not tell their disks; leave it out",
    "--nodefile": "name the nodes with --nodelist",
    "--reservation": "there are no reservations; leave it out",
    "--threads-per-core": "CPUs are counted, not cores; leave it out",
    "--hint": "CPUs are counted, not cores; leave it out",
    "--cpu-bind": "processes are not bound to CPUs; leave it out",
    "--gpu-bind": "each process sees all its GPUs; use LOCAL_RANK",
    "--get-user-env": "the node's environment is used; add --export NAMES",
    "--profile": "leave it out",
    "--deadline": "give --time",
    "--ntasks-per-gpu": "give --ntasks-per-node",
    "--propagate": "limits are those of the node; leave it out",
}
"""Flags of sbatch that mgpu does not support, and what to do instead."""


def is_known(flag: str) -> bool:
    """Tell whether sbatch has this flag."""
    return flag in SHORT or flag in SAME or flag in IGNORED or flag in _OTHERS or flag in SWITCHES


def translate(words: Sequence[str]) -> Translated:
    """Return the translation of the words of one `#SBATCH` line."""
    result = Translated([], [])
    for option in options(words):
        if option.flag in IGNORED:
            result.ignored.append(f"#SBATCH {option.flag} is not honoured: {IGNORED[option.flag]}.")
        elif option.flag in _OTHERS:
            _OTHERS[option.flag](option, result)
        elif option.flag in SAME:
            result.words += [SAME[option.flag], _value(option)]
        else:
            raise InvalidRequest(
                "unknown-flag",
                f"There is no flag {option.flag} of sbatch that mgpu knows: {_nearest(option.flag)}.",
            )
    return result


def options(words: Sequence[str]) -> list[Option]:
    """Return the flags of a line by their long names."""
    found: list[Option] = []
    left = list(words)
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=")
        if not word.startswith("-") or word in ("-", "--"):
            raise InvalidRequest(
                "bad-directive", f"{word!r} is no flag: write it like #SBATCH --job-name=train."
            )
        if not name.startswith("--"):
            name, equals, value = word[:2], "=" if len(word) > 2 else "", word[2:].removeprefix("=")
            if name not in SHORT:
                raise InvalidRequest(
                    "unknown-flag", f"There is no flag {name} of sbatch that mgpu knows: use the long name."
                )
            name = SHORT[name]
        if equals:
            found.append(Option(name, value))
        elif name in SWITCHES or not left or (left[0].startswith("-") and not left[0][1:2].isdigit()):
            found.append(Option(name, None))
        else:
            found.append(Option(name, left.pop(0)))
    return found


def names(text: str) -> str:
    """Return a list of nodes with ranges expanded: n[1-3,7],gpu1."""
    found: list[str] = []
    if _BRACKETS.sub("", text) != re.sub(r"[\[\]]", "", _BRACKETS.sub("", text)):
        raise InvalidRequest("bad-nodes", f"{text} is no list of nodes: write it like n[1-3,7].")
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        match = _RANGE.fullmatch(part)
        if match is None:
            found.append(part)
            continue
        for piece in match["inside"].split(","):
            first, dash, last = piece.partition("-")
            if (
                not first.isdigit()
                or (dash and not last.isdigit())
                or len(piece) > MAX_DIGITS
                or not 0 <= int(last or first) - int(first) < MAX_NAMES - len(found)
            ):
                raise InvalidRequest("bad-nodes", f"{part} is no list of nodes: write it like n[1-3,7].")
            found += [
                f"{match['before']}{str(n).zfill(len(first))}{match['after']}"
                for n in range(int(first), int(last or first) + 1)
            ]
    return ",".join(found)


def _value(option: Option) -> str:
    if not option.value:
        raise InvalidRequest(
            "bad-directive", f"{option.flag} needs a value: write it like #SBATCH {option.flag}=…."
        )
    return option.value


def _nearest(flag: str) -> str:
    import difflib

    known = [*SAME, *IGNORED, *_OTHERS]
    near = difflib.get_close_matches(flag, known, 1, 0.7)
    return f"use {near[0]}" if near else "leave it out, or write what you mean in a #MGPU line"


def _nodes(option: Option, result: Translated) -> None:
    least, dash, most = _value(option).partition("-")
    if dash and most != least:
        result.ignored.append(
            f"#SBATCH --nodes={option.value} is honoured as {least}: mgpu starts a job on a fixed number of "
            f"nodes."
        )
    result.words += ["--nodes", least]


def _ntasks(option: Option, result: Translated) -> None:
    if _value(option) != "1":
        result.ignored.append(
            f"#SBATCH --ntasks={option.value} is not honoured: give --nodes and --ntasks-per-node, which "
            f"say where the processes are."
        )


def _typed_gpus(flag: str) -> Callable[[Option, Translated], None]:
    def take(option: Option, result: Translated) -> None:
        match = _TYPED.fullmatch(_value(option))
        if match is None:
            raise InvalidRequest(
                "bad-gpus", f"{option.flag}={option.value}: write a number of GPUs, like 2 or a100:2."
            )
        result.words += [flag, match["count"], *(["--gpu-type", match["type"]] if match["type"] else [])]

    return take


def _gres(option: Option, result: Translated) -> None:
    for part in _value(option).split(","):
        match = _GRES.fullmatch(part)
        if match is None:
            result.ignored.append(
                f"#SBATCH --gres={part} is not honoured: only GPUs are handed out; leave it out."
            )
            continue
        result.words += [
            "--gpus-per-node",
            match["count"] or "1",
            *(["--gpu-type", match["type"]] if match["type"] else []),
        ]


def gpus_of(text: str) -> dict[str, str]:
    """Return the keywords that `--gres` means on a line of `mgpu_srun`."""
    match = _GRES.fullmatch(text)
    if match is None:
        raise InvalidRequest(
            "bad-gpus", f"--gres {text}: only GPUs are handed out; write it like --gres gpu:a100:2."
        )
    found = {"gpus_per_node": match["count"] or "1"}
    return found | {"gpu_type": match["type"]} if match["type"] else found


def _nodelist(flag: str) -> Callable[[Option, Translated], None]:
    def take(option: Option, result: Translated) -> None:
        result.words += [flag, names(_value(option))]

    return take


def _export(option: Option, result: Translated) -> None:
    for part in _value(option).split(","):
        if part == "ALL":
            result.ignored.append(
                "#SBATCH --export=ALL is not honoured: a job has the node's environment; name what it "
                "needs, like --export=A,B."
            )
        elif "=" in part:
            result.words += ["--env", part]
        elif part not in ("NONE", "NIL", ""):
            result.words += ["--export", part]


def _nice(option: Option, result: Translated) -> None:
    value = option.value or "100"
    if not re.fullmatch(r"-?\d+", value):
        raise InvalidRequest("bad-number", f"--nice={value}: write a whole number.")
    result.words += ["--priority", str(-int(value))]


def _switch(*words: str) -> Callable[[Option, Translated], None]:
    def take(option: Option, result: Translated) -> None:  # noqa: ARG001 - as the others
        result.words += words

    return take


def _exclusive(option: Option, result: Translated) -> None:
    if option.value is not None:
        result.ignored.append(
            f"#SBATCH --exclusive={option.value} is honoured as --exclusive: nobody else's and none of your "
            f"own jobs is placed beside it."
        )
    result.words += ["--exclusive"]


def _gpu_memory(option: Option, result: Translated) -> None:
    result.ignored.append(
        f"#SBATCH {option.flag} is not honoured: it is the host's memory; give --mem, which is for the "
        f"whole node."
    )


_OTHERS: dict[str, Callable[[Option, Translated], None]] = {
    "--nodes": _nodes,
    "--ntasks": _ntasks,
    "--gpus": _typed_gpus("--gpus"),
    "--gpus-per-node": _typed_gpus("--gpus-per-node"),
    "--gpus-per-task": _typed_gpus("--gpus-per-node"),
    "--gres": _gres,
    "--cpus-per-task": lambda option, result: result.words.extend(["--cpus", _value(option)]),
    "--mem-per-gpu": _gpu_memory,
    "--nodelist": _nodelist("--nodelist"),
    "--exclude": _nodelist("--exclude"),
    "--export": _export,
    "--nice": _nice,
    "--hold": _switch("--hold"),
    "--exclusive": _exclusive,
    "--no-requeue": _switch("--no-requeue"),
}
