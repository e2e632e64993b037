"""Every index and constraint of the models is there, on every database.

Databases differ in what they can do, and Django leaves out silently what one
cannot.
"""

from __future__ import annotations

from django.apps import apps
from django.db import connections

from .stores import DatabaseUnderTest


def test_no_index_or_constraint_is_left_out(db_store: DatabaseUnderTest) -> None:
    connection = connections[db_store.alias]
    missing = []
    with connection.cursor() as cursor:
        for model in apps.get_app_config("django_streams").get_models():
            meta = model._meta
            found = connection.introspection.get_constraints(cursor, meta.db_table)
            missing += [
                f"{meta.label}: {wanted.name}"
                for wanted in (*meta.indexes, *meta.constraints)
                if wanted.name not in found
            ]
            unique = {tuple(c["columns"]) for c in found.values() if c["unique"]}
            missing += [
                f"{meta.label}: unique {field.column}"
                for field in meta.local_fields
                if field.unique
                and not field.primary_key
                and (field.column,) not in unique
            ]
    assert missing == []


def test_the_newest_streams_are_found_by_an_index(db_store: DatabaseUnderTest) -> None:
    connection = connections[db_store.alias]
    with connection.cursor() as cursor:
        found = connection.introspection.get_constraints(
            cursor, "django_streams_stream"
        )
    assert found["ds_stream_newest"]["columns"] == ["created_at", "id"]
    assert found["ds_stream_tag_newest"]["columns"] == ["tag_key", "created_at", "id"]
