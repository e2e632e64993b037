"""Runs of staged agent flows and what each finished stage left behind."""

from __future__ import annotations

from django.db import models

RUN_STATUSES = ("queued", "running", "completed", "errored", "cancelled")


class FlowRun(models.Model):
    """One run of a flow; its replies are in the stream it names."""

    run_id = models.CharField(max_length=256)
    key = models.CharField(max_length=32, unique=True)
    owner_key = models.CharField(max_length=128, default="", db_index=True)
    thread = models.ForeignKey(
        "RuntimeThread", null=True, on_delete=models.SET_NULL, related_name="runs"
    )
    flow = models.CharField(max_length=128)
    signature = models.CharField(max_length=64)
    """Of the flow's structure: a run never resumes into a changed graph."""
    request = models.TextField()
    fingerprint = models.CharField(max_length=64)
    """Of the request: the same run id with another request is a conflict."""
    status = models.CharField(
        max_length=10, choices=[(s, s) for s in RUN_STATUSES], default="queued"
    )
    attempt = models.IntegerField(default=0)
    epoch = models.BigIntegerField(default=0)
    lease_owner = models.CharField(max_length=128, default="")
    lease_expires_at = models.DateTimeField(null=True)
    cancel_requested = models.DateTimeField(null=True)
    stream = models.CharField(max_length=256, default="")
    error = models.TextField(null=True)
    created_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["status", "created_at"], name="ds_run_status"),
        ]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(status__in=RUN_STATUSES), name="ds_run_status_known"
            )
        ]

    def __str__(self) -> str:
        return f"{self.flow} {self.run_id} ({self.status})"


class FlowCheckpoint(models.Model):
    """The state a sealed leaf left, written with its ``stage_end``."""

    run = models.ForeignKey(
        FlowRun, on_delete=models.CASCADE, related_name="checkpoints", db_index=False
    )
    path = models.CharField(max_length=256)
    path_key = models.CharField(max_length=32)
    signature = models.CharField(max_length=64)
    state = models.TextField()
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["run", "path_key", "signature"], name="ds_checkpoint_path"
            )
        ]

    def __str__(self) -> str:
        return self.path
