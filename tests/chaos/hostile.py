"""Jobs that are hard to end: each makes a tree of processes of one kind and writes down every pid. Stands
alone.

Usage: python -IS hostile.py KIND FILE
"""

import os
import signal
import sys
import time

MANY = 1_000
FOREVER_S = 600


def born_at(pid: int) -> int:
    """Return when the kernel says that a process began: with the pid it names a process once and for all."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return int(file.read().rpartition(")")[2].split()[19])


class Tree:
    """Processes that write themselves down."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, text: str = "") -> None:
        """Add this process, or a word."""
        os.write(self._file, ((text or f"{os.getpid()} {born_at(os.getpid())}") + "\n").encode())

    def child(self, then: object = None) -> int:
        """Fork a child that writes itself down, does `then`, and stays."""
        pid = os.fork()
        if pid == 0:
            self.write()
            if callable(then):
                then()
            time.sleep(FOREVER_S)
            os._exit(0)
        return pid


def ignore_term() -> None:
    """Be deaf to all that can be ignored."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)


def double_fork(tree: Tree) -> None:
    """Leave a grandchild whose parent is gone at once."""
    middle = os.fork()
    if middle == 0:
        tree.child()
        os._exit(0)
    os.waitpid(middle, 0)


def own_session(tree: Tree) -> None:
    """Have children in sessions of their own, and theirs again."""
    tree.child(lambda: (os.setsid(), tree.child(lambda: (os.setsid(), ignore_term()))))


def deaf(tree: Tree) -> None:
    """Ignore TERM in parent and child."""
    ignore_term()
    tree.child(ignore_term)


def many(tree: Tree) -> None:
    """Have a thousand children."""
    for _ in range(MANY):
        tree.child()


def stopped(tree: Tree) -> None:
    """Stop the child and then itself."""
    os.kill(tree.child(), signal.SIGSTOP)


def nameless(tree: Tree) -> None:
    """Leave session and group and wipe the environment, as a daemon would, with a parent that is gone."""

    def wipe() -> None:
        os.setsid()
        if os.fork() == 0:
            ignore_term()
            tree.write()
            os.execve("/bin/sleep", ["sleep", str(FOREVER_S)], {})

    tree.child(wipe)


def ended(tree: Tree) -> None:
    """End well, and leave a deaf child in a session of its own behind."""
    tree.child(lambda: (os.setsid(), ignore_term()))


KINDS = {kind.__name__: kind for kind in (double_fork, own_session, deaf, many, stopped, nameless, ended)}


def main(kind: str, path: str) -> None:
    """Make the tree, say so, and stay."""
    tree = Tree(path)
    tree.write()
    KINDS[kind](tree)
    tree.write("ready")
    if kind == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if kind != "ended":
        time.sleep(FOREVER_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
