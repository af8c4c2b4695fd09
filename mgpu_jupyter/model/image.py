"""Container images: the command that runs a job's command inside one, with what the node has for that. Pure:
runs nothing.

The command is a small bash program for the node. It takes the first of podman, docker and apptainer that is
installed, gives it the job's GPUs, directory, network and variables, and prints one sentence when there is
none. A cell or job file is passed on the command line of its interpreter, since its file is not in the
container.
"""

from __future__ import annotations

import re

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.model.job import JobSpec

_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::\d{1,5})?/)?"  # a registry, with its port
    rf"{_PART}(?:/{_PART})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"  # a tag
    r"(?:@sha256:[0-9a-f]{64})?"
)
NO_ENGINE_EXIT = 127
_SHELLS = frozenset(("bash", "sh", "zsh", "dash", "ksh"))

PROGRAM = r"""
image=$1; shift
variables=()
for name in $(compgen -e); do
    case $name in
        PATH|HOME|HOSTNAME|PWD|OLDPWD|SHLVL|_|USER|LOGNAME|SHELL|TMPDIR|LD_*|PYTHONPATH|PYTHONHOME|VIRTUAL_ENV|CUDA_VISIBLE_DEVICES) ;;
        *) variables+=(--env "$name") ;;
    esac
done
real= count=0 numbers=
IFS=, read -ra gpus <<<"${MGPU_GPUS-}"
for gpu in "${gpus[@]}"; do
    case $gpu in GPU-SIM-*) ;; *) real=yes ;; esac
    numbers+=${numbers:+,}$((count++))
done
variables+=(--env "CUDA_VISIBLE_DEVICES=$numbers")
common=(--rm --init --interactive --network host --ipc host --volume "$PWD:$PWD" --workdir "$PWD" --label "mgpu.job=${MGPU_JOB_ID-}")
[ -t 0 ] && common+=(--tty)
if command -v podman >/dev/null; then
    devices=()
    [ "$real" ] && for gpu in "${gpus[@]}"; do devices+=(--device "nvidia.com/gpu=$gpu"); done
    exec podman run "${common[@]}" "${devices[@]}" "${variables[@]}" "$image" "$@"
elif command -v docker >/dev/null && docker info >/dev/null 2>&1; then
    own=mgpu-${MGPU_JOB_ID-}-${MGPU_ATTEMPT-}-${RANK-${MGPU_NODE_RANK-0}}
    devices=()
    [ "$real" ] && devices=(--gpus "\"device=$MGPU_GPUS\"")
    # The daemon starts it, so nobody here can end it but the daemon.
    trap 'docker kill --signal TERM "$own" >/dev/null 2>&1; (sleep 8; docker kill "$own" >/dev/null 2>&1) &' TERM INT
    docker run --name "$own" --user "$(id -u):$(id -g)" "${common[@]}" "${devices[@]}" "${variables[@]}" "$image" "$@" <&0 &
    while :; do wait $!; code=$?; kill -0 $! 2>/dev/null || exit $code; done
fi
for engine in apptainer singularity; do
    if command -v $engine >/dev/null; then
        case $image in */*.sif|*.sif|*://*) ;; *) image=docker://$image ;; esac
        exec $engine exec ${real:+--nv} --bind "$PWD" --pwd "$PWD" "$image" "$@"
    fi
done
echo "mgpu: node ${MGPU_NODE_ID-} has no podman, docker or apptainer that works: install one there, or leave --image out." >&2
exit 127
"""


def check_image(spec: JobSpec) -> None:
    """Refuse what is not a reference to an image, or a script that cannot be passed on a command line."""
    if not spec.image:
        return
    if not _REFERENCE.fullmatch(spec.image):
        raise InvalidRequest(
            "bad-image",
            f"--image {spec.image} is no image: write it like pytorch/pytorch:2.5.1 or ghcr.io/me/train:1.",
        )
    _words(spec, ())


def in_container(spec: JobSpec, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command that runs `words`, or the script of the request, inside its image."""
    return ("bash", "-c", PROGRAM, "mgpu-image", spec.image, *_words(spec, words))


def _words(spec: JobSpec, words: tuple[str, ...]) -> tuple[str, ...]:
    if spec.script is None:
        return words
    first = spec.script.partition("\n")[0]
    interpreter = tuple(first[2:].split()) if first.startswith("#!") else ("python3", "-u")
    program = next((word for word in reversed(interpreter) if not word.startswith("-")), "").rpartition("/")[
        2
    ]
    if program in _SHELLS or re.fullmatch(r"python[\d.]*", program):
        return (*interpreter, "-c", spec.script)
    raise InvalidRequest(
        "bad-image",
        f"{program or 'This interpreter'} takes no script from its command line: give a command with --image.",
    )
