"""Threads and the execution host that is recorded for each."""

from __future__ import annotations

from django.db import models


class RuntimeThread(models.Model):
    """A thread that runtime streams are opened for, perhaps under a parent."""

    key = models.CharField(max_length=32, unique=True)
    name = models.CharField(max_length=256)
    parent = models.ForeignKey(
        "self", null=True, on_delete=models.CASCADE, related_name="children"
    )
    owner_key = models.CharField(max_length=128, default="", db_index=True)
    created_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.name


class ExecutionHost(models.Model):
    """The client that runs work for a thread, and its connection, if any."""

    thread = models.OneToOneField(
        RuntimeThread, on_delete=models.CASCADE, related_name="host"
    )
    client_id = models.CharField(max_length=128)
    client_name = models.CharField(max_length=256, default="")
    client_kind = models.CharField(max_length=64, default="")
    generation = models.BigIntegerField(default=0)
    claimed_at = models.DateTimeField(null=True)
    connection_id = models.UUIDField(null=True)
    """Null: not connected. A row is cleared only by the connection it names."""
    channel_name = models.CharField(max_length=128, default="")
    relay_version = models.IntegerField(default=1)
    connected_at = models.DateTimeField(null=True)
    lease_expires_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return self.client_name or self.client_id
