"""``manage.py gc_streams``: settle abandoned streams, delete old ones."""

from __future__ import annotations

import time
from argparse import ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from ... import gc


def seconds(text: str) -> float:
    """A number of seconds that is not negative."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ArgumentTypeError(f"{text!r} is not a number of seconds from 0 up")
    return value


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1 up")
    return int(text)


class Command(BaseCommand):
    help = (
        "Settles streams whose producer vanished, deletes those that ended long ago, "
        "merges blocks that were left small and forgets old events of conversations. "
        "Safe beside traffic and beside another run."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--stale",
            type=seconds,
            default=gc.STALE,
            metavar="SECONDS",
            help="settle a live stream after this much silence without a live lease "
            "(default: %(default)g)",
        )
        parser.add_argument(
            "--completed",
            type=seconds,
            default=gc.COMPLETED,
            metavar="SECONDS",
            help="delete a stream this long after it settled (default: %(default)g)",
        )
        parser.add_argument(
            "--every",
            type=seconds,
            metavar="SECONDS",
            help="run again and again, this long after each run ended",
        )
        parser.add_argument(
            "--batch-size",
            type=positive,
            default=gc.BATCH_SIZE,
            metavar="N",
            help="streams looked up at a time (default: %(default)d)",
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="only say what would be done"
        )
        parser.add_argument(
            "--using", default="default", help="the database (default: %(default)s)"
        )

    def handle(self, **options: Any) -> None:
        every = options["every"]
        while True:
            self._run(options)
            if every is None:
                return
            time.sleep(every)

    def _run(self, options: dict[str, Any]) -> None:
        dry = options["dry_run"]
        summary = gc.collect(
            using=options["using"],
            stale=options["stale"],
            completed=options["completed"],
            batch_size=options["batch_size"],
            dry_run=dry,
            progress=self._progress if self.stdout.isatty() else None,
        )
        if self.stdout.isatty():
            self.stdout.write("\r\x1b[K", ending="")
        self.stdout.write(
            f"found {summary.found}, settled {summary.settled}, "
            f"deleted {summary.deleted}, {summary.bytes} bytes, "
            f"merged {summary.merged} blocks, forgot {summary.events} events"
            + (" (dry run: nothing was changed)" if dry else "")
        )

    def _progress(self, summary: gc.Summary) -> None:
        self.stdout.write(
            f"\r\x1b[Kfound {summary.found}, settled {summary.settled}, "
            f"deleted {summary.deleted} …",
            ending="",
        )
        self.stdout.flush()
