"""The plots of the performance page, from the lines in the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Plot:
    title: str
    x: str
    y: str
    scale: str
    """Of both axes, ``linear`` or ``log``."""

    def file(self, name: str) -> str:
        return f"bench-{name}.svg"


PLOTS = {
    "length": Plot(
        "An append, against the length of its stream",
        "chunks in the stream",
        "median append, ms",
        "linear",
    ),
    "readers": Plot(
        "An event, to all readers of one process",
        "SSE readers",
        "append to receipt, median, ms",
        "log",
    ),
    "writers": Plot(
        "Appends of all writers of one process",
        "async writers, each on its own stream",
        "appends a second, all together",
        "log",
    ),
}

# Told apart by colour-blind readers and in print, on white and on dark pages.
_STYLES = (("#0072b2", "o", "-"), ("#d55e00", "s", "-"))
_FLOOR = ("#666666", "^", "--")
_OPTIONS: dict[Any, Any] = {
    # The same results give the same file.
    "svg.hashsalt": "django_streams",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 11,
}


def draw(series: Sequence[Line], folder: Path) -> list[Path]:
    """Write each plot that has lines; the files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with mpl.rc_context(_OPTIONS):
        for name, plot in PLOTS.items():
            if lines := [line for line in series if line["plot"] == name]:
                path = folder / plot.file(name)
                _figure(plot, lines).savefig(
                    path, format="svg", metadata={"Date": None}, facecolor="white"
                )
                written.append(path)
    return written


def _figure(plot: Plot, lines: Sequence[Line]) -> Figure:
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.set_title(plot.title, loc="left", fontsize=12)
    axes.set(xlabel=plot.x, ylabel=plot.y, xscale=plot.scale, yscale=plot.scale)
    styles = iter(_STYLES)
    for line in sorted(lines, key=lambda line: line["label"] == "floor"):
        x, y = zip(*line["points"], strict=True)
        floor = line["label"] == "floor"
        colour, marker, dash = _FLOOR if floor else next(styles)
        axes.plot(x, y, color=colour, marker=marker, ls=dash, label=line["label"])
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axis.set_minor_formatter(NullFormatter())
    if plot.scale == "linear":
        axes.set_ylim(bottom=0)
    else:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return figure
