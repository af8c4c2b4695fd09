"""Draws replays: use and queue over time, and the shares of users. Loads matplotlib only to draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from mgpu_agent.protocol.errors import InvalidRequest, Unavailable
from mgpu_jupyter.simulate.figures import Curve, held_over_time, mean_over, waiting_over_time
from mgpu_jupyter.simulate.world import Replay

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg")
PARTS = 600
"""About as many means as there are pixels; more cannot be seen."""
PARTS_OF_DAY = 12
DAY_S = 86_400.0
COLOURS = ("#1f6fb4", "#d1603d", "#4b8b3b", "#7a5195")


def check_picture(path: Path) -> None:
    """Refuse, before anything is simulated, a picture that could not be made."""
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidRequest("bad-picture", f"--plot {path.name}: end the name with {' or '.join(SUFFIXES)}.")
    if not path.absolute().parent.is_dir():
        raise InvalidRequest("bad-picture", f"--plot {path}: there is no directory {path.parent}.")
    _figure(1)


def draw_replays(path: Path, replays: Mapping[str, Replay], title: str) -> None:
    """Draw use and queue length over time, one line for each replay."""
    begin = min(replay.works[0].submit_s for replay in replays.values())
    end = max(
        start + work.duration_s
        for one in replays.values()
        for work, start in zip(one.works, one.starts, strict=True)
    )
    end = max(end, begin + 1.0)
    figure = _figure(2)
    use, queue = figure.subplots(2, 1, sharex=True)
    for (label, replay), colour in zip(replays.items(), COLOURS, strict=False):
        times, held = mean_over(held_over_time(replay), begin, end, PARTS)
        days = _since(begin, times)
        _line(use, (days, [100.0 * gpus / replay.cluster.gpus for gpus in held]), label, colour)
        _line(queue, (days, mean_over(waiting_over_time(replay), begin, end, PARTS)[1]), label, colour)
    use.set(title=title, ylabel="GPUs in use (%)", ylim=(0, 103))
    queue.set(ylabel="jobs waiting", ylim=(0, None))
    if len(replays) > 1:
        queue.legend(frameon=False)
    _finish(figure, queue, end - begin, path)


def draw_users(path: Path, replay: Replay, users: Sequence[str], end: float, title: str) -> None:
    """Draw the GPUs that each user held over time, and their part of all that was used in the day before."""
    begin = replay.works[0].submit_s
    parts = round((end - begin) / DAY_S * PARTS_OF_DAY)
    figure = _figure(2)
    now, of_late = figure.subplots(2, 1, sharex=True)
    held = {user: mean_over(held_over_time(replay, user), begin, end, parts) for user in users}
    used = {user: _sums(values, PARTS_OF_DAY) for user, (_, values) in held.items()}
    for user, colour in zip(users, COLOURS, strict=False):
        times, values = held[user]
        percent = [
            100.0 * one / (sum(every) or 1.0)
            for one, every in zip(used[user], zip(*used.values(), strict=True), strict=True)
        ]
        _line(now, (_since(begin, times), values), user, colour)
        _line(of_late, (_since(begin, times), percent), user, colour)
    now.set(title=title, ylabel="GPUs held", ylim=(0, None))
    of_late.set(ylabel="part of the last 24 h (%)", ylim=(0, 103))
    of_late.legend(frameon=False)
    _finish(figure, of_late, end - begin, path)


def _sums(values: Sequence[float], width: int) -> list[float]:
    """Return for each value the sum of it and those before it, `width` in all."""
    sums = list(accumulate(values, initial=0.0))
    return [sums[last] - sums[max(0, last - width)] for last in range(1, len(sums))]


def _figure(rows: int) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise Unavailable(
            "no-matplotlib", 'Pictures need matplotlib: pip install "mgpu-jupyter[plot]".'
        ) from None
    return Figure(figsize=(9.0, 2.6 * rows), dpi=110, layout="constrained")


def _since(begin: float, times: Sequence[float]) -> list[float]:
    return [(at - begin) / DAY_S for at in times]


def _line(axes: Axes, curve: Curve, label: str, colour: str) -> None:
    axes.plot(*curve, label=label, color=colour, linewidth=1.1)
    axes.grid(visible=True, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _finish(figure: Figure, lowest: Axes, span_s: float, path: Path) -> None:
    lowest.set(xlabel="days", xlim=(0, span_s / DAY_S))
    try:
        # Without the program's version and the date the same figures give the same file.
        figure.savefig(path, metadata={"Software": None} if path.suffix.lower() == ".png" else {"Date": None})
    except OSError as error:
        raise InvalidRequest(
            "bad-picture", f"{path} cannot be written ({error.strerror}): name another file."
        ) from None
