"""What a client is told of a turn whose process is gone."""

from __future__ import annotations

import json

from django_streams.chat.recovering import Recovering


def told(frame: str | None) -> tuple[bool, str] | None:
    if frame is None:
        return None
    parsed = json.loads(frame)
    assert parsed.pop("type") == "cf_agent_chat_recovering"
    assert sorted(parsed) == ["id", "recovering"]
    return parsed["recovering"], parsed["id"]


def test_a_turn_that_is_met_twice_without_a_runner_is_told_once() -> None:
    recovering = Recovering()
    assert told(recovering.looked("q1")) is None
    assert told(recovering.looked("q1")) == (True, "q1")
    assert told(recovering.looked("q1")) is None
    assert told(recovering.over("q2")) is None
    assert told(recovering.over("q1")) == (False, "q1")
    assert told(recovering.over("q1")) is None


def test_a_turn_that_is_taken_up_at_once_is_not_worth_a_word() -> None:
    recovering = Recovering()
    assert told(recovering.looked("q1")) is None
    assert told(recovering.over("q1")) is None
    assert told(recovering.looked("q1")) is None
    assert told(recovering.looked("")) is None
    assert told(recovering.looked("q2")) is None


def test_a_look_also_finds_that_it_is_over() -> None:
    for after in ("", "q2"):
        recovering = Recovering()
        recovering.looked("q1")
        assert told(recovering.looked("q1")) == (True, "q1")
        assert told(recovering.looked(after)) == (False, "q1")
