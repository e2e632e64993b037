"""The log: a small row per stream and insert-only blocks of chunks."""

from __future__ import annotations

from django.db import models

from ..types import StreamState


class Stream(models.Model):
    """One ordered log and its state.

    The columns an append touches (cursor, updated_at, lease_expires_at) are in
    no index, so that PostgreSQL updates the row in place (heap-only).
    """

    stream_id = models.CharField(max_length=256)
    key = models.CharField(max_length=32, unique=True)
    state = models.CharField(
        max_length=10,
        choices=[(s.value, s.value) for s in StreamState],
        default=StreamState.STREAMING.value,
    )
    tag = models.CharField(max_length=256, null=True)
    tag_key = models.CharField(max_length=32, default="")
    metadata = models.TextField(null=True)
    error = models.TextField(null=True)
    cursor = models.BigIntegerField(default=0)
    epoch = models.BigIntegerField(default=1)
    lease_seconds = models.FloatField(null=True)
    lease_expires_at = models.DateTimeField(null=True)
    on_lapse = models.CharField(max_length=8, default="settle")
    expires_at = models.DateTimeField(null=True)
    cancel_requested = models.DateTimeField(null=True)
    settle_token = models.BigIntegerField(null=True)
    content_type = models.CharField(max_length=128, default="application/json")
    owner_key = models.CharField(max_length=128, default="", db_index=True)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            # By names: MariaDB silently leaves out an index of expressions.
            models.Index(
                fields=["tag_key", "-created_at", "-id"], name="ds_stream_tag_newest"
            ),
            models.Index(fields=["-created_at", "-id"], name="ds_stream_newest"),
            models.Index(fields=["state", "closed_at"], name="ds_stream_state_closed"),
        ]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(state__in=[s.value for s in StreamState]),
                name="ds_stream_state",
            ),
            models.CheckConstraint(
                condition=models.Q(state="streaming", closed_at__isnull=True)
                | (~models.Q(state="streaming") & models.Q(closed_at__isnull=False)),
                name="ds_stream_closed_when_settled",
            ),
            models.CheckConstraint(
                condition=models.Q(cursor__gte=0), name="ds_stream_cursor"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.stream_id} ({self.state}, {self.cursor})"


class ChunkBlock(models.Model):
    """Consecutive chunks: their JSON texts, joined by newlines. Insert-only."""

    stream = models.ForeignKey(
        Stream, on_delete=models.CASCADE, related_name="blocks", db_index=False
    )
    seq_from = models.BigIntegerField()
    count = models.IntegerField()
    writer = models.BigIntegerField(null=True)
    body = models.BinaryField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["stream", "seq_from"], name="ds_block_position"
            ),
            models.CheckConstraint(
                condition=models.Q(count__gt=0), name="ds_block_count"
            ),
        ]

    def __str__(self) -> str:
        return f"[{self.seq_from}, {self.seq_from + self.count})"
