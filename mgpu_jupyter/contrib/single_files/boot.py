"""What a single file of `dist/` does when it is run: unpack its content, once, and run it from there.

A private directory in the user's cache becomes a virtual environment with all that is needed, so that
programs which mgpu starts itself (the keeper, local agents) find it, too, and jobs do not see it. Must be
valid syntax for old Pythons, so that it can tell them that they are too old.
"""

import os
import platform
import shutil
import stat
import sys
import tempfile
import zipfile

BUILT_FOR = "@BUILT_FOR@"
MACHINE = "@MACHINE@"
DIGEST = "@DIGEST@"
PROGRAM = "@PROGRAM@"


def main() -> None:
    """Unpack unless that was done already, and become the program."""
    own = os.path.abspath(sys.argv[0])
    find_python(own)
    place = os.path.join(cache(), DIGEST)
    if not os.path.exists(os.path.join(place, "pyvenv.cfg")):
        unpack(own, place)
    python = os.path.join(place, "bin", "python")
    if not os.path.exists(python):  # the Python that it was unpacked with is gone
        link(place)
    os.execv(python, [python, os.path.join(place, "bin", PROGRAM), *sys.argv[1:]])  # noqa: S606 - this is what it is for


def find_python(own: str) -> None:
    """Continue with the Python that this was built for."""
    if platform.machine() != MACHINE:
        sys.exit(
            f"{own} was built for {MACHINE}, and this machine is {platform.machine()}: run `make dist` here."
        )
    if ".".join(map(str, sys.version_info[:2])) == BUILT_FOR:
        return
    other = shutil.which("python" + BUILT_FOR)
    if other is None:
        sys.exit(
            f"{own} was built for Python {BUILT_FOR}: install python{BUILT_FOR}, or run `make dist` with "
            f"this one."
        )
    os.execv(other, [other, own, *sys.argv[1:]])  # noqa: S606 - this is what it is for


def cache() -> str:
    """Return a directory that nobody else can write to."""
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    for path in (
        os.path.join(root, "mgpu-dist"),
        os.path.join(tempfile.gettempdir(), f"mgpu-dist-{os.getuid()}"),
    ):
        try:
            os.makedirs(path, mode=0o700, exist_ok=True)
            found = os.lstat(path)
        except OSError:
            continue
        if (
            stat.S_ISDIR(found.st_mode)
            and found.st_uid == os.getuid()
            and not found.st_mode & 0o022
            and os.access(path, os.W_OK)
        ):
            return path
    sys.exit("There is no place to unpack to: set XDG_CACHE_HOME to a directory of your own.")


def unpack(own: str, place: str) -> None:
    """Unpack into another directory and move it there in one step; of two at a time, the first one wins."""
    aside = tempfile.mkdtemp(prefix=".unpack-", dir=os.path.dirname(place))
    try:
        packages = os.path.join(aside, "lib", "python" + BUILT_FOR, "site-packages")
        with zipfile.ZipFile(own) as archive:
            for name in archive.namelist():
                if name.startswith("site/"):
                    target = os.path.join(packages, *name.split("/")[1:])
                    os.makedirs(os.path.dirname(target), exist_ok=True)
                    with archive.open(name) as source, open(target, "wb") as sink:
                        shutil.copyfileobj(source, sink)
                elif name.startswith("bin/"):
                    os.makedirs(os.path.join(aside, "bin"), exist_ok=True)
                    with open(os.path.join(aside, *name.split("/")), "wb") as sink:
                        sink.write(archive.read(name))
        link(aside)
        os.rename(aside, place)
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)
        if not os.path.exists(os.path.join(place, "pyvenv.cfg")):
            sys.exit(
                f"{own} could not be unpacked to {place} ({error}): free some space, or set XDG_CACHE_HOME."
            )


def link(place: str) -> None:
    """Make the directory a virtual environment of this Python."""
    python = os.path.realpath(sys.executable)
    path = os.path.join(place, "bin", "python")
    if os.path.islink(path):
        os.unlink(path)
    os.symlink(python, path)
    with open(os.path.join(place, "pyvenv.cfg"), "w") as sink:
        sink.write(
            f"home = {os.path.dirname(python)}\ninclude-system-site-packages = false\nversion = "
            f"{platform.python_version()}\n"
        )


if __name__ == "__main__":
    main()
