"""kill -9 of the process that runs a turn, at every point of the turn.

For each policy all points are tried at once: a process dies at each, and one
that follows all their conversations is left. Nothing but the database is
between them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from django_streams.codec import decode
from django_streams.models import Message, Turn
from tests.conftest import RealDb
from tests.databases import empty
from tests.integration.chatting import message_text

from .brood import Brood
from .dying import (
    CONTINUED,
    ENDED,
    NOT_BEGUN,
    NOT_CLAIMED,
    POINTS,
    WHOLE,
    base_of,
    doomed,
    noted,
    survive,
)

pytestmark = pytest.mark.needs("postgresql")

LEASE = 1.0
SWEEP = 1.0
"""POLL_MAX: how often who follows a conversation looks at the latest."""

BUSY = 4.0
"""What eleven processes at once add on two cores, the word to them included."""

INTERRUPTED = "The reply was interrupted."

SAID = ["before the cutover", "inside of the cutover", "before the cutover commits"]
"""Where every word was stored."""

ENV = {
    "DJANGO_SETTINGS_MODULE": "tests.integration.chat_settings",
    "DS_CHAT_DATABASE": "postgresql",
    "DS_CHAT_LEASE": str(LEASE),
}


@dataclass
class Case:
    """What became of one turn."""

    policy: str
    point: str
    room: str
    died: float
    live: dict[str, Any]
    late: dict[str, Any]
    streams: list[Any]
    hooks: list[Any]
    began: list[Any]
    turn: Any
    answers: list[str]

    @property
    def begun(self) -> bool:
        """Whether something was stored when the process died."""
        return self.point not in NOT_CLAIMED + NOT_BEGUN

    @property
    def base(self) -> str:
        return base_of(self.room)

    @property
    def whole(self) -> str:
        return self.base + WHOLE

    @property
    def kept(self) -> str:
        return self.answers[0] if self.answers else ""

    @property
    def fails(self) -> bool:
        """Whether the turn must end as an error."""
        return self.policy == "fail" and self.point not in NOT_CLAIMED + ENDED


def run(policy: str, kind: str, folder: Path) -> list[Case]:
    rooms = {f"{kind}-{policy}-{at}": point for at, point in enumerate(POINTS)}
    with Brood(env=ENV) as brood:
        brood.start(
            [
                (
                    survive,
                    {"folder": str(folder), "late": LEASE + SWEEP}
                    | {"rooms": dict.fromkeys(rooms, policy)},
                ),
                *(
                    (
                        doomed,
                        {"folder": str(folder), "policy": policy}
                        | {"room": room, "point": point},
                    )
                    for room, point in rooms.items()
                ),
            ]
        )
        brood.go()
        (seen, failed), *dead = brood.outcomes()
    assert failed is None, failed
    for (room, point), (_, how) in zip(rooms.items(), dead, strict=True):
        assert how == "ended with -9", f"{point}: {how}"
        assert room in seen
    return [
        case(policy, point, room, folder, seen[room]) for room, point in rooms.items()
    ]


def case(policy: str, point: str, room: str, folder: Path, seen: Any) -> Case:
    turn = Turn.objects.using("postgresql").get(request_id=room)
    messages = Message.objects.using("postgresql").filter(
        conversation=turn.conversation_id, role="assistant"
    )
    return Case(
        policy=policy,
        point=point,
        room=room,
        died=float((folder / f"{room}.died").read_text()),
        hooks=[value for _, value in noted(folder, room, "hook")],
        began=noted(folder, room, "began"),
        turn=turn,
        answers=[message_text(decode(m.body)) for m in messages],
        **seen,
    )


@pytest.fixture(
    scope="module",
    params=itertools.product(["reply", CONTINUED], ["continue", "restart", "fail"]),
    ids="-".join,
)
def cases(
    request: pytest.FixtureRequest,
    module_db: RealDb,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, Case]]:
    """Of one policy, and a reply or a continuation, the cases by their points."""
    kind, policy = request.param
    module_db("postgresql")
    folder = tmp_path_factory.mktemp("dying")
    yield {case.point: case for case in run(policy, kind, folder)}
    empty("postgresql")


@pytest.fixture(params=POINTS, ids=lambda point: point.replace(" ", "-"))
def one(request: pytest.FixtureRequest, cases: dict[str, Case]) -> Case:
    return cases[request.param]


def test_the_turn_ends_as_configured_with_one_whole_message(one: Case) -> None:
    if one.fails:
        assert (one.turn.status, one.turn.error) == ("errored", INTERRUPTED)
        assert one.whole.startswith(one.kept)
        if one.point in SAID:
            assert one.kept == one.whole
        elif one.point == "in the middle":
            assert one.kept != one.base
    else:
        assert (one.turn.status, one.answers) == ("completed", [one.whole])
    assert len(one.answers) <= 1
    assert one.turn.running_of_id is None and one.turn.lease_expires_at is None
    again = one.point not in NOT_CLAIMED + ENDED and not one.fails
    assert one.turn.attempt == (2 if again else 1)


def test_live_and_later_readers_are_told_the_same(one: Case) -> None:
    assert one.live["text"] == one.late["text"] == one.kept
    assert one.live["error"] == one.late["error"]
    assert one.live["error"] == (INTERRUPTED if one.fails else None)


def test_plain_readers_of_its_streams_are_told_too(one: Case) -> None:
    ends = [stream[:3] for stream in one.streams]
    if one.fails:
        said = one.kept.removeprefix(one.base)
        expected: Any = [["errored", "interrupted", said]] if one.begun else []
    else:
        expected = [["completed", None, WHOLE]]
    if one.policy == "restart" and one.begun and one.point not in ENDED:
        state, error, text = ends.pop(0)
        assert (state, error) == ("errored", "interrupted")
        assert WHOLE.startswith(text)
    assert ends == expected


def test_the_hook_is_called_once_for_what_began_a_reply_or_was_to_go_on(
    one: Case,
) -> None:
    if one.fails:
        heard = one.begun or one.base
        assert one.hooks == ([["error", one.kept]] if heard else [])
    else:
        assert one.hooks == [["completed", one.whole]]


def test_somebody_goes_on_within_lease_and_sweep_interval(one: Case) -> None:
    if one.point in NOT_CLAIMED:
        # No lease was taken: it waits for whoever comes.
        assert one.began[0][0] - one.died < LEASE + SWEEP + BUSY
        return
    tries = [at for at, attempt in one.began if attempt == 2]
    told = tries[0] if tries else one.live["over"]
    assert told - one.died < LEASE + SWEEP + BUSY
