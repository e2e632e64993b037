"""A client's list of messages against what is stored.

A client names messages by ids of its own until a transcript reaches it, and may
hold copies that are older, shorter or newer than the stored rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from .calls import calls_of, overlaid, same_call, same_json, settled_calls
from .parts import ANSWERABLE, Part, UIMessage, parts_of
from .sanitiser import sanitise


def reconcile(
    incoming: Sequence[UIMessage], stored: Sequence[UIMessage]
) -> list[UIMessage]:
    """The client's list under the ids of the stored messages.

    Each stored message is claimed by one of the list at most: by the same id; an
    assistant's with tool calls by sharing a call (same tool, same input) and
    disagreeing on none; one without by the same parts. The order of both lists
    decides between equals. Calls that a copy still waits for take the results of
    the message it claimed. A copy that claimed none, is not the last and only
    repeats calls which are over on a claimed message is left out.

    Neither list is changed. Messages must have passed ``valid.is_message``.
    """
    named = _named(incoming, stored)
    results = {
        message["id"]: settled_calls(message)
        for message in stored
        if message.get("role") == "assistant"
    }
    filled = [
        overlaid(message, results.get(message["id"], {}))
        if message.get("role") == "assistant"
        else message
        for message in named
    ]
    return _without_stale_copies(filled, stored)


def stale_ids(submitted: Collection[str], stored: Iterable[str]) -> list[str]:
    """The stored ids that a submitted list asks to be deleted, in order.

    Those it lacks, but only if every id in it is stored: a shortened list means
    an answer to be made anew or an edited question. A list with something new in
    it comes from a client that may not have seen all.
    """
    known = list(stored)
    if not submitted or not set(submitted) <= set(known):
        return []
    return [message_id for message_id in known if message_id not in submitted]


def _named(
    incoming: Sequence[UIMessage], stored: Sequence[UIMessage]
) -> list[UIMessage]:
    """The incoming messages under the ids of what they are copies of."""
    index = {message["id"]: at for at, message in enumerate(stored)}
    claimed: set[int] = set()
    exact: set[int] = set()
    for at, message in enumerate(incoming):
        known = index.get(message["id"])
        if known is not None and known not in claimed:
            claimed.add(known)
            exact.add(at)
    candidates = _Candidates(stored)
    named = []
    for at, message in enumerate(incoming):
        if at not in exact and message.get("role") == "assistant":
            known = candidates.first(sanitise(message), claimed)
            if known is not None:
                claimed.add(known)
                message = message | {"id": stored[known]["id"]}
        named.append(message)
    return named


class _Candidates:
    """Finds the stored message that a copy under another id may be of."""

    def __init__(self, stored: Sequence[UIMessage]) -> None:
        self._stored = stored
        self._by_call: dict[str, list[int]] = defaultdict(list)
        self._by_text: dict[str, list[int]] = defaultdict(list)
        for at, message in enumerate(stored):
            if message.get("role") != "assistant":
                continue
            calls = calls_of(message)
            for call_id in calls:
                self._by_call[call_id].append(at)
            if not calls:
                self._by_text[_text(sanitise(message))].append(at)

    def first(self, message: UIMessage, claimed: set[int]) -> int | None:
        calls = calls_of(message)
        if calls:
            found = sorted({at for call_id in calls for at in self._by_call[call_id]})
            return next(
                (at for at in found if at not in claimed and self._shares(at, calls)),
                None,
            )
        parts = message["parts"]
        return next(
            (
                at
                for at in self._by_text[_text(message)]
                if at not in claimed
                and same_json(sanitise(self._stored[at])["parts"], parts)
            ),
            None,
        )

    def _shares(self, at: int, calls: dict[str, Part]) -> bool:
        return all(
            same_call(part, calls[part["toolCallId"]])
            for part in parts_of(self._stored[at])
            if isinstance(part.get("toolCallId"), str) and part["toolCallId"] in calls
        )


def _text(message: UIMessage) -> str:
    """A key for messages that may be equal."""
    return "\0".join(str(part.get("text", "")) for part in parts_of(message))


def _without_stale_copies(
    messages: list[UIMessage], stored: Sequence[UIMessage]
) -> list[UIMessage]:
    ids = {message["id"] for message in messages}
    over: dict[str, list[Part]] = defaultdict(list)
    for message in stored:
        if message.get("role") == "assistant" and message["id"] in ids:
            for call_id, part in settled_calls(message).items():
                over[call_id].append(part)
    known = {message["id"] for message in stored}
    return [
        message
        for at, message in enumerate(messages)
        if at == len(messages) - 1
        or message.get("role") != "assistant"
        or message["id"] in known
        or not _only_repeats(sanitise(message), over)
    ]


def _only_repeats(message: UIMessage, over: dict[str, list[Part]]) -> bool:
    """Whether all it says is calls that are over elsewhere."""
    calls = [part for part in parts_of(message) if part.get("type") != "step-start"]
    return bool(calls) and all(
        isinstance(part.get("toolCallId"), str)
        and part.get("state") in ANSWERABLE | {"input-streaming"}
        and any(same_call(part, settled) for settled in over[part["toolCallId"]])
        for part in calls
    )
