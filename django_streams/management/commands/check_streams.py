"""``manage.py check_streams``: what must not be in the database, and is."""

from __future__ import annotations

import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ... import conf
from ...turns import backlog, invariants
from .gc_streams import seconds

AGAIN = 0.5
"""Seconds after which a violation must still be there: beside traffic one may
be seen in the middle of a change."""


class Command(BaseCommand):
    help = (
        "Looks for what must never be in the database, such as a reply that nobody "
        "writes any more, and for turns that nobody runs. Reads only. Fails if "
        "there is anything."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--grace",
            type=seconds,
            metavar="SECONDS",
            help="how long a lapsed lease may wait for a sweep (default: one "
            "TURN_LEASE and one SWEEP_INTERVAL)",
        )

    def handle(self, **options: Any) -> None:
        settings = conf.get()
        grace = options["grace"]
        if grace is None:
            grace = settings.TURN_LEASE + settings.SWEEP_INTERVAL
        found = invariants.violations(grace=grace)
        if found:
            time.sleep(AGAIN)
            still = set(invariants.violations(grace=grace))
            found = [one for one in found if one in still]
        for one in found:
            self.stdout.write(f"{one.rule}: {one.what}")
        waiting = backlog.measure()
        oldest = waiting.oldest or 0.0
        late = oldest > settings.TURN_LEASE
        if late:
            self.stdout.write(
                f"turn-waits: {waiting.queued} turns wait, the oldest for {oldest:.0f} "
                "s with nothing before it; start manage.py run_turns"
            )
        if found or late:
            raise CommandError(f"{len(found) + late} things are not as they must be")
        self.stdout.write(
            f"all is as it must be; {waiting.running} turns run, {waiting.queued} wait"
        )
