"""Signals, sent after commit with ``sender=Streams``.

``stream_opened``: ``stream_id``, once, when a stream is created.
``stream_settled``: ``stream_id``, ``state``, ``error``.
``stream_deleted``: ``stream_id``.

There is no signal per append: a wake tells readers, and a receiver that is
called for every token would sit in the write path.
"""

from __future__ import annotations

from django.dispatch import Signal

stream_opened = Signal()
stream_settled = Signal()
stream_deleted = Signal()
