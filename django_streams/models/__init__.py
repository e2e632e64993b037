"""The tables. Touched only by store, turns, gc, admin and migrations."""

from __future__ import annotations

from .chat import Attachment, Conversation, ConversationEvent, Message, Presence, Turn
from .flows import FlowCheckpoint, FlowRun
from .runtime import ExecutionHost, RuntimeThread
from .streams import ChunkBlock, Stream

__all__ = [
    "Attachment",
    "ChunkBlock",
    "Conversation",
    "ConversationEvent",
    "ExecutionHost",
    "FlowCheckpoint",
    "FlowRun",
    "Message",
    "Presence",
    "RuntimeThread",
    "Stream",
    "Turn",
]
