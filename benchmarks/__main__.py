"""The command: ``python -m benchmarks [--only G1,G6] [--quick]``."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from tests import services

from . import machine, report
from .databases import Databases
from .goals import GOALS, chosen
from .results import Circumstances, Outcome, Results, failed, row
from .runner import NotMeasured, run
from .sizes import Sizes

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results.json"
IMAGES = ROOT / "docs" / "images"
PAGE = ROOT / "docs" / "explanation" / "performance.md"
ASIDE = ROOT / "build" / "bench"
"""Where a quick look, or one on another machine, leaves its results."""

NEEDS = (services.postgresql, services.redis_server)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", default="", help="goals, such as G1,G6")
    parser.add_argument("--quick", action="store_true", help="small, to try it")
    options = parser.parse_args(arguments)
    try:
        groups = chosen(options.only)
    except ValueError as error:
        parser.error(str(error))
    for service in NEEDS:
        if reason := service.missing():
            parser.exit(2, f"the benchmark needs {service.name}: {reason}\n")
    # The databases are dropped and the processes stopped on the way out.
    signal.signal(signal.SIGTERM, _stop)
    start = time.monotonic()
    results = _measure(groups, Sizes(options.quick))
    elapsed = time.monotonic() - start
    print(f"\n{report.table(results.goals)}\n\n{report.verdict(results.goals)}")
    print(f"{elapsed / 60:.1f} minutes")
    if options.quick:
        print("a small run: it works, and its figures say nothing about the goals")
    _keep(results, quick=options.quick, whole=not options.only)
    return 0


def _stop(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _measure(groups: Sequence[str], sizes: Sizes) -> Results:
    with Databases() as databases:
        results = Results(machine.describe())
        machine.disconnect()
        for group in groups:
            databases.empty()
            start = time.monotonic()
            busy = machine.busy_share()
            outcome, why = Outcome([]), ""
            try:
                outcome = run(group, sizes)
            except NotMeasured as error:
                why = f"not measured: {error}"
                print(f"{group} {why}\n{error.details}", file=sys.stderr)
            load = machine.load()
            around = Circumstances(load, (busy + machine.busy_share()) / 2)
            rows = [row(measured, around) for measured in outcome.measured]
            if why:
                rows = [failed(g, around, why) for g in GOALS if g.group == group]
            results.put(rows, outcome.series)
            for entry in rows:
                print(report.line(entry))
            print(f"{'':<14} ({time.monotonic() - start:.0f} s)", flush=True)
    return results


def _keep(found: Results, *, quick: bool, whole: bool) -> None:
    """Save what was found, and show it on the page if it belongs there."""
    aside = quick
    if not quick and not whole and RESULTS.exists():
        # Figures of two machines, or of two versions, make no table.
        old = Results.load(RESULTS)
        aside = old.machine != found.machine
        if aside:
            print("the page has the results of another machine, and keeps them")
        else:
            found = old.merged(found)
    results, images = (ASIDE / RESULTS.name, ASIDE) if aside else (RESULTS, IMAGES)
    found.save(results)
    from . import plots  # matplotlib is in the extra `bench` only

    written = [results, *plots.draw(found.series, images)]
    if not aside:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(report.put(page, report.markdown(found)), encoding="utf-8")
        written.append(PAGE)
    print("written: " + ", ".join(str(path.relative_to(ROOT)) for path in written))


if __name__ == "__main__":
    sys.exit(main())
