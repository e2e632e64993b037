"""Conversations, their messages, and turns: one row per run of the agent."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

TURN_STATUSES = ("queued", "running", "completed", "aborted", "errored", "skipped")


class Conversation(models.Model):
    """What one owner and one agent said to each other under one name."""

    agent = models.CharField(max_length=128)
    name = models.CharField(max_length=256)
    title = models.CharField(max_length=256, default="")
    owner_key = models.CharField(max_length=128, default="", db_index=True)
    key = models.CharField(max_length=32, unique=True)
    """Hash of agent, owner key and name: unique together on every database."""
    generation = models.BigIntegerField(default=0)
    event_cursor = models.BigIntegerField(default=0)
    turn_cursor = models.BigIntegerField(default=0)
    state = models.TextField(null=True)
    last_body = models.TextField(null=True)
    last_client_tools = models.TextField(null=True)
    awaited = models.TextField(null=True)
    """JSON of answers to tool calls that wait for the running turn's end, and of
    the continuation that waits for further answers."""
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.agent}/{self.name}"


class Message(models.Model):
    """A UIMessage as JSON text, at its position in the transcript."""

    conversation = models.ForeignKey(
        Conversation,
        on_delete=models.CASCADE,
        related_name="messages",
        db_index=False,
    )
    message_id = models.CharField(max_length=256)
    message_key = models.CharField(max_length=32)
    role = models.CharField(max_length=16)
    position = models.BigIntegerField()
    body = models.TextField()
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["conversation", "message_key"], name="ds_message_id"
            ),
            models.UniqueConstraint(
                fields=["conversation", "position"], name="ds_message_position"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.role} {self.message_id}"


class Turn(models.Model):
    """One run of the agent, and at the same time its place in the queue."""

    conversation = models.ForeignKey(
        Conversation, on_delete=models.CASCADE, related_name="turns", db_index=False
    )
    request_id = models.CharField(max_length=256)
    request_key = models.CharField(max_length=32)
    position = models.BigIntegerField()
    """From ``Conversation.turn_cursor``: ids skip what commits late."""
    status = models.CharField(
        max_length=10, choices=[(s, s) for s in TURN_STATUSES], default="queued"
    )
    attempt = models.IntegerField(default=0)
    handovers = models.IntegerField(default=0)
    """How many of the attempts ended because a runner gave the turn back."""
    trigger = models.CharField(max_length=32, default="submit-message")
    continuation = models.BooleanField(default=False)
    body = models.TextField(null=True)
    client_tools = models.TextField(null=True)
    generation = models.BigIntegerField(default=0)
    stream = models.CharField(max_length=256, default="")
    """Public id of the turn's stream; not a foreign key: gc deletes logs first."""
    seq_base = models.BigIntegerField(default=0)
    """What clients are told is added to it: they drop what they take for known of
    a continuation, also when it was begun anew."""
    message_id = models.CharField(max_length=256, default="")
    message_gone = models.BooleanField(default=False)
    """Its message was stored and then deleted on purpose: replaced by another
    answer, or beyond the number that is kept."""
    origin_ids = models.TextField(default="[]")
    """JSON list of the ids of the user messages that this turn answers."""
    user_key = models.CharField(max_length=128, default="")
    overlapping = models.BooleanField(default=False)
    """Accepted while another turn ran or waited: a later one may overtake it."""
    joined_ids = models.TextField(default="[]")
    """JSON list of the ids of user messages that become one before it runs."""
    deferred = models.TextField(null=True)
    """JSON list of messages that are stored when its time comes."""
    replaces_after = models.BigIntegerField(null=True)
    """Of a regeneration: what earlier turns said behind this position of the
    transcript goes when its time comes."""
    epoch = models.BigIntegerField(default=0)
    lease_seconds = models.FloatField(null=True)
    lease_expires_at = models.DateTimeField(null=True)
    runner = models.CharField(max_length=32, default="")
    """Token of the run that has the turn, or calls its completion hook: tells
    after a lost answer whether a conditional update was one's own."""
    respond_by = models.DateTimeField(null=True, db_index=True)
    """Set from the turn's end until somebody took the call of the completion
    hook; its runner's own until this time, then anybody's."""
    offered_until = models.DateTimeField(null=True)
    """A task was enqueued that runs it; after this time another one may be."""
    not_before = models.DateTimeField(null=True)
    cancel_requested = models.DateTimeField(null=True)
    error = models.TextField(null=True)
    running_of = models.OneToOneField(
        Conversation, null=True, on_delete=models.CASCADE, related_name="running_turn"
    )
    """Set exactly while running; unique: that is "one running turn at a time"."""
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["status", "created_at"], name="ds_turn_status"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["conversation", "request_key"], name="ds_turn_request"
            ),
            models.UniqueConstraint(
                fields=["conversation", "position"], name="ds_turn_position"
            ),
            models.CheckConstraint(
                condition=Q(status="running", running_of__isnull=False)
                | (~Q(status="running") & Q(running_of__isnull=True)),
                name="ds_turn_running_of",
            ),
            models.CheckConstraint(
                condition=Q(status__in=TURN_STATUSES), name="ds_turn_status_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.request_id} ({self.status})"


class ConversationEvent(models.Model):
    """What observers must learn, in order; trimmed by gc."""

    conversation = models.ForeignKey(
        Conversation, on_delete=models.CASCADE, related_name="events", db_index=False
    )
    seq = models.BigIntegerField()
    """From ``Conversation.event_cursor``, taken in the change's transaction."""
    kind = models.CharField(max_length=32)
    body = models.TextField(default="")
    created_at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["conversation", "seq"], name="ds_event_position"
            )
        ]

    def __str__(self) -> str:
        return f"{self.seq} {self.kind}"


class Presence(models.Model):
    """One open connection of a conversation, seen by its process."""

    conversation = models.ForeignKey(
        Conversation, on_delete=models.CASCADE, related_name="presences", db_index=False
    )
    connection = models.CharField(max_length=128)
    process = models.CharField(max_length=128)
    seen_at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["conversation", "connection"], name="ds_presence_connection"
            )
        ]

    def __str__(self) -> str:
        return self.connection


class Attachment(models.Model):
    """A file of a conversation, kept in Django's storage."""

    conversation = models.ForeignKey(
        Conversation,
        on_delete=models.CASCADE,
        related_name="attachments",
        db_index=False,
    )
    name = models.CharField(max_length=256)
    name_key = models.CharField(max_length=32)
    file = models.FileField(upload_to="django_streams/attachments/", max_length=256)
    content_type = models.CharField(max_length=128, default="application/octet-stream")
    size = models.BigIntegerField(default=0)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["conversation", "name_key"], name="ds_attachment_name"
            )
        ]

    def __str__(self) -> str:
        return self.name
