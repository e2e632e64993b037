"""Results as text: a table for the terminal, and the page's generated part. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .results import QUIET, Results, quiet, steady

BEGIN = "<!-- figures: written by make bench, do not edit -->"
END = "<!-- end of figures -->"

Entry = Mapping[str, Any]

_HEAD = ("goal", "what", "figure", "least–most", "floor", "ratio", "wanted", "met")
_LEFT = frozenset(("goal", "what", "wanted", "met"))


def number(value: float | None) -> str:
    """Three digits or more, with commas; a dash for none."""
    if value is None:
        return "–"
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _cells(entry: Entry) -> tuple[str, ...]:
    figure = number(entry["figure"])
    if entry["figure"] is not None:
        figure += f" {entry['unit']}"
    span = "–"
    if entry["min"] is not None:
        span = f"{number(entry['min'])}–{number(entry['max'])}"
    return (
        entry["id"],
        entry["what"],
        figure,
        span,
        number(entry["floor"]),
        number(entry["ratio"]),
        entry["goal"],
        "yes" if entry["met"] else "NO",
    )


def table(entries: Sequence[Entry]) -> str:
    """For a terminal: one line a goal, then what is to be known about it."""
    head = (*_HEAD, "load", "others")
    lines = [
        (*_cells(e), f"{e['load']:.1f}", f"{100 * e['busy']:.0f} %") for e in entries
    ]
    widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
    out = []
    for place, cells in enumerate((head, *lines)):
        out.append(
            "  ".join(
                cell.ljust(width) if name in _LEFT else cell.rjust(width)
                for name, cell, width in zip(head, cells, widths, strict=True)
            ).rstrip()
        )
        if place:
            out.extend(f"    {note}" for note in entries[place - 1]["notes"])
    return "\n".join(out)


def line(entry: Entry) -> str:
    """One goal's figure in short, for who watches the run."""
    name, what, figure, *_, share, _, met = _cells(entry)
    held = "" if entry["ratio"] is None else f", {share} × floor"
    return f"{name:<14} {what}: {figure}{held}{'' if met == 'yes' else '  (missed)'}"


def verdict(entries: Sequence[Entry]) -> str:
    """What was met, and which figures can be trusted."""
    missed = [entry["id"] for entry in entries if not entry["met"]]
    noisy = [entry["id"] for entry in entries if not quiet(entry)]
    lines = [f"{len(entries) - len(missed)} of {len(entries)} met"]
    if missed:
        lines.append(f"missed: {', '.join(missed)}")
    lines.append(
        f"others used more than {100 * QUIET:.0f} % of the machine at: "
        f"{', '.join(noisy)}; measure these again"
        if noisy
        else "nobody else used the machine"
    )
    if moved := [entry["id"] for entry in entries if not steady(entry)]:
        lines.append(f"the floor moved by half at: {', '.join(moved)}; the same")
    return "\n".join(lines)


def markdown(results: Results) -> str:
    """The generated part of ``docs/explanation/performance.md``."""
    parts = [BEGIN, "", _machine(results.machine), ""]
    parts += [
        "| " + " | ".join(_HEAD) + " |",
        "|" + "|".join("---" if name in _LEFT else "---:" for name in _HEAD) + "|",
    ]
    parts += ["| " + " | ".join(_cells(entry)) + " |" for entry in results.goals]
    parts.append("")
    parts += [
        f"- {entry['id']}: {note}."
        for entry in results.goals
        for note in entry["notes"]
    ]
    if noisy := [entry["id"] for entry in results.goals if not quiet(entry)]:
        parts += [
            "",
            "Others used the machine when these were measured, so distrust them: "
            f"{', '.join(noisy)}.",
        ]
    if moved := [entry["id"] for entry in results.goals if not steady(entry)]:
        parts += [
            "",
            "The floor moved by half while these were measured, so distrust them too: "
            f"{', '.join(moved)}.",
        ]
    return "\n".join([*parts, "", END])


def _machine(machine: Mapping[str, Any]) -> str:
    packages = ", ".join(f"{name} {has}" for name, has in machine["packages"].items())
    return (
        f"{machine['cores']} cores of {machine['processor']}, {machine['memory']}, "
        f"{machine['system']}; Python {machine['python']}; {packages}; "
        f"PostgreSQL ({machine['postgresql']}); SQLite {machine['sqlite']} "
        "(WAL, synchronous NORMAL)."
    )


def put(page: str, part: str) -> str:
    """*page* with *part* in place of what is between its markers.

    Raises ``ValueError`` for a page without both.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN!r} … {END!r}")
    return before + part + after
