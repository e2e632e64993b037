"""The log of a turn: opened, fenced and settled in the turn's own transactions.

So a stream that no turn knows of does not exist, and whoever gets a turn has
its stream with it: there is no moment in which an old writer can still append
to what a new one has read.

Lock order, everywhere: stream, conversation, turn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .. import codec, ids
from ..exceptions import StreamClosedError
from ..signals import stream_opened, stream_settled
from ..store import get_store
from ..store.base import (
    INTERRUPTED,
    Append,
    Opened,
    OpenRequest,
    Settle,
    StreamStore,
)
from ..streams import Streams
from ..types import OnLapse, StreamState
from ..wake import get_waker
from ..writer import StreamWriter
from . import door
from .records import ConversationRef, TurnRecord
from .replay import MAX_CHUNK_BYTES

_WAIT: OnLapse = "wait"
"""A lapsed stream of a turn is its sweeper's business, not any reader's."""


class _Anew(Exception):
    """Undoes the opening of a stream that had been deleted."""


@dataclass(frozen=True, slots=True)
class Log:
    """A stream that this process may write: what a writer is made of."""

    stream_id: str
    opened: Opened
    lease: float

    def writer(self) -> StreamWriter:
        """Make the writer, whose lease this process renews from now on.

        Call it once the transaction has committed.
        """
        return StreamWriter(
            _store(),
            get_waker(),
            self.stream_id,
            self.opened,
            lease=self.lease,
            renews=True,
            max_chunk_bytes=MAX_CHUNK_BYTES,
            sender=Streams,
        )


def create(ref: ConversationRef, turn: TurnRecord, stream_id: str, lease: float) -> Log:
    """A new stream for the reply to *turn*, in the caller's transaction."""
    metadata = {
        "conversation": ref.key,
        "messageId": turn.message_id,
        "continuation": turn.continuation,
    }
    store = _store()
    opened = store.open(
        OpenRequest(
            stream_id=stream_id,
            key=ids.stream_key(stream_id),
            tag=turn.request_id,
            tag_key=ids.tag_key(turn.request_id),
            metadata=lambda: codec.encode(metadata, limit=MAX_CHUNK_BYTES),
            owner_key=ref.owner,
            lease=lease,
            on_lapse=_WAIT,
            takeover=False,
        )
    )
    if opened.created:
        store.on_commit(lambda: stream_opened.send(Streams, stream_id=stream_id))
    return Log(stream_id, opened, lease)


def take(stream_id: str, lease: float, *, takeover: bool = True) -> Log | None:
    """The stream as ours, in the caller's transaction; None if nobody can write
    to it any more. With *takeover* every earlier writer is fenced off."""
    request = OpenRequest(
        stream_id=stream_id,
        key=ids.stream_key(stream_id),
        tag=None,
        tag_key="",
        metadata=lambda: None,
        owner_key="",
        lease=lease,
        on_lapse=_WAIT,
        takeover=takeover,
    )
    try:
        with door.atomic():
            opened = _store().open(request)
            if opened.created:
                raise _Anew
    except (StreamClosedError, _Anew):
        return None
    return Log(stream_id, opened, lease)


def start(log: Log, turn: TurnRecord) -> Log:
    """Begin the reply in an empty log, in the caller's transaction."""
    chunk = {"type": "start"}
    if not turn.continuation:
        chunk["messageId"] = turn.message_id
    entry = Append(
        log.opened.pk,
        log.stream_id,
        log.opened.epoch,
        0,
        ids.new_token(),
        (codec.encode(chunk, limit=MAX_CHUNK_BYTES),),
    )
    return replace(log, opened=replace(log.opened, cursor=_store().append(entry) + 1))


def message_id(log: Log) -> str | None:
    """The id under which clients know the reply, if it was begun."""
    page = _store().page(log.opened.pk, 0, 1)
    first = codec.decode(page.texts[0]) if page is not None and page.texts else None
    named = first.get("messageId") if isinstance(first, dict) else None
    return named if isinstance(named, str) and named else None


def length(stream_id: str) -> int:
    """How many chunks a stream has."""
    status = _store().status(ids.stream_key(stream_id))
    return 0 if status is None else status.cursor


def drop(log: Log) -> None:
    """Settle a log that another one replaces, in the caller's transaction."""
    store = _store()
    store.settle(
        Settle(
            pk=log.opened.pk,
            stream_id=log.stream_id,
            epoch=log.opened.epoch,
            token=ids.new_token(),
            state=StreamState.ERRORED,
            error=INTERRUPTED,
        )
    )
    store.on_commit(lambda: _dropped(log.stream_id))


def _dropped(stream_id: str) -> None:
    get_waker().wake(ids.stream_key(stream_id))
    stream_settled.send(
        Streams, stream_id=stream_id, state=StreamState.ERRORED, error=INTERRUPTED
    )


def _store() -> StreamStore:
    return get_store(door.alias())
