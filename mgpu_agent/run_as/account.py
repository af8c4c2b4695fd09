"""An account of this machine, and what a process of it finds in its environment. Values only: changes no user, reads no file."""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

DEFAULT_PATH = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_PASSED = frozenset(
    (
        *(b"PATH", b"LANG", b"LANGUAGE", b"TZ", b"TMPDIR", b"LD_LIBRARY_PATH", b"EDITOR", b"PAGER"),
        *(b"CUDA_HOME", b"CUDA_PATH", b"CUDA_ROOT", b"OMP_NUM_THREADS", b"REQUESTS_CA_BUNDLE", b"SSL_CERT_FILE", b"SSL_CERT_DIR"),
        *(b"HTTP_PROXY", b"HTTPS_PROXY", b"NO_PROXY", b"FTP_PROXY", b"ALL_PROXY"),
        *(b"http_proxy", b"https_proxy", b"no_proxy", b"ftp_proxy", b"all_proxy"),
        *(b"MODULEPATH", b"MODULESHOME", b"MODULES_CMD", b"LMOD_CMD", b"LMOD_DIR", b"LMOD_ROOT", b"LMOD_PKG"),
    )
)
"""What of the agent's environment a job of another account gets: what a site sets for everybody on the machine, and nothing else."""
_PASSED_PREFIXES = (b"LC_", b"NCCL_", b"UCX_", b"NVIDIA_", b"FI_")


class Account(msgspec.Struct, frozen=True, array_like=True):
    """An account of this machine, under which the processes of a launch run."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    home: str = "/"
    shell: str = ""


class Confinement(msgspec.Struct, frozen=True, array_like=True):
    """What every process that runs for a user is bound by."""

    umask: int = 0o022
    limits: tuple[tuple[str, int, int], ...] = ()
    """Resource limits by name, soft and hard, as `ulimit` has them; -1 for none. What is not named stays as the agent has it."""
    no_new_privs: bool = False
    """Whether nothing that it starts can become more than it is: sudo, ping and rootless containers do not work then."""
    cgroups: bool = False
    """Whether jobs get no more processors and memory than they asked for."""


def login_environment(account: Account, base: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the node's environment as this account would find it after a login: only what is named here, never what else root has."""
    passed = {name: value for name, value in base.items() if name in _PASSED or name.startswith(_PASSED_PREFIXES)}
    passed.setdefault(b"PATH", DEFAULT_PATH)
    name = os.fsencode(account.name)
    own = {b"HOME": os.fsencode(account.home), b"USER": name, b"LOGNAME": name, b"SHELL": os.fsencode(account.shell or "/bin/sh")}
    return passed | own
