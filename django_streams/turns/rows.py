"""Turns read by statements written by hand.

For what every visitor and every running turn asks: building such a query takes the
ORM several times as long as the database takes to answer it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, cast

from django.db.models import BooleanField, DateTimeField

from ..models import Turn
from ..store import get_store
from ..store.database import aware, aware_or_none
from ..store.generic import GenericStore
from . import door

TABLE: Final = f'"{Turn._meta.db_table}"'

_FIELDS = Turn._meta.concrete_fields
_NAMES = [field.attname for field in _FIELDS]
_COLUMNS = ", ".join(f't."{field.column}"' for field in _FIELDS)
_AS_IN_THE_MODEL: dict[int, Callable[[Any], Any]] = {
    at: aware_or_none if isinstance(field, DateTimeField) else bool
    for at, field in enumerate(_FIELDS)
    if isinstance(field, (DateTimeField, BooleanField))
}
"""By column: drivers give numbers for truth and texts for times."""


def store() -> GenericStore:
    """Where the turns are."""
    return cast(GenericStore, get_store(door.alias()))


def read(where: str, params: Sequence[Any]) -> list[tuple[Turn, datetime]]:
    """The turns ``t`` that *where* selects, which may order and limit them, each
    with the time by the database's clock. All times are aware."""
    here = store()
    found = here.rows(
        f"SELECT {here.clock}, {_COLUMNS} FROM {TABLE} t WHERE {where}", params
    )
    return [(_turn(here.alias, values), aware(now)) for now, *values in found]


def _turn(alias: str, values: list[Any]) -> Turn:
    for at, convert in _AS_IN_THE_MODEL.items():
        values[at] = convert(values[at])
    return Turn.from_db(alias, _NAMES, values)
