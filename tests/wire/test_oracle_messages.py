"""Reconciling, sanitising, answers and repair against the official server's own
functions (npm ``agents``)."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_streams.messages import answers, reconcile, repaired, sanitise
from django_streams.messages.parts import as_object
from django_streams.messages.steps import DENIED_TEXT, steps
from tests.wire.oracle import Oracle, oracle
from tests.wire.replies import values

pytestmark = pytest.mark.needs("node-packages")

unhurried = settings(
    max_examples=int(os.environ.get("DS_TEST_EXAMPLES", "150")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

STATES = (
    "input-streaming",
    "input-available",
    "approval-requested",
    "approval-responded",
    "output-available",
    "output-error",
    "output-denied",
)
openai = st.fixed_dictionaries(
    {},
    optional={
        "itemId": st.just("i"),
        "reasoningEncryptedContent": st.none(),
        "phase": st.just(1),
    },
)
metadata = st.fixed_dictionaries(
    {}, optional={"openai": openai, "anthropic": st.just({"s": 1})}
)
texts = st.fixed_dictionaries(
    {
        "type": st.sampled_from(("text", "reasoning")),
        "text": st.sampled_from(("", "a", "b", " ")),
    },
    optional={"state": st.just("done"), "providerMetadata": metadata},
)
tools = st.builds(
    lambda part, dynamic: (
        part | {"type": "dynamic-tool" if dynamic else f"tool-{part['toolName']}"}
    ),
    st.fixed_dictionaries(
        {
            "toolCallId": st.sampled_from(("c1", "c2", "c3")),
            "toolName": st.sampled_from(("look", "find")),
            "state": st.sampled_from(STATES),
            "input": st.sampled_from(({}, {"q": 1}, {"q": {"r": [1, "2"]}})),
        },
        optional={
            "output": values,
            "errorText": st.just("no"),
            "approval": st.fixed_dictionaries(
                {"id": st.just("p")}, optional={"approved": st.booleans()}
            ),
            "callProviderMetadata": metadata,
        },
    ),
    st.booleans(),
)
parts = texts | tools | st.just({"type": "step-start"})


def messages(prefix: str) -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(
        st.tuples(st.sampled_from(("user", "assistant")), st.lists(parts, max_size=4)),
        max_size=4,
    ).map(
        lambda drawn: [
            {"id": f"{prefix}{at}", "role": role, "parts": said}
            for at, (role, said) in enumerate(drawn)
        ]
    )


@pytest.fixture(scope="module")
def theirs() -> Iterator[Oracle]:
    with oracle() as running:
        yield running


def changed_copy(draw: st.DrawFn, message: dict[str, Any]) -> dict[str, Any]:
    """What a client may hold of a stored message."""
    message = copy.deepcopy(message)
    if draw(st.booleans()):
        message["id"] = "client-" + message["id"]
    for part in message["parts"]:
        if "toolCallId" in part and draw(st.booleans()):
            part["state"] = draw(st.sampled_from(STATES))
        if (
            "toolName" in part
            and draw(st.booleans())
            and part["type"] != "dynamic-tool"
        ):
            del part["toolName"]
    return message


@st.composite
def submits(
    draw: st.DrawFn,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A client's list, made from what is stored, and what is stored."""
    stored = draw(messages("s"))
    sources = stored + draw(messages("n"))
    chosen = draw(st.lists(st.sampled_from(sources), max_size=6)) if sources else []
    return [changed_copy(draw, message) for message in chosen], stored


@unhurried
@given(submit=submits())
def test_a_list_is_reconciled_as_the_official_server_does(
    theirs: Oracle, submit: tuple[list[dict[str, Any]], list[dict[str, Any]]]
) -> None:
    incoming, stored = submit
    before = copy.deepcopy(submit)
    ours = reconcile(incoming, stored)
    assert ours == theirs.ask("reconcile", incoming=incoming, server=stored)
    assert submit == before


@unhurried
@given(message=st.fixed_dictionaries({"id": st.just("a"), "parts": st.lists(parts)}))
def test_a_message_is_sanitised_as_the_official_server_does(
    theirs: Oracle, message: dict[str, Any]
) -> None:
    before = copy.deepcopy(message)
    once = sanitise(message)
    assert once == theirs.ask("sanitize", message=message)
    assert sanitise(once) == once
    assert message == before


@unhurried
@given(value=values | st.sampled_from(('{"a": 1}', ' {"a":{}} ', "{", "[1]", '{"a":}')))
def test_an_input_is_made_an_object_as_the_official_server_does(
    theirs: Oracle, value: Any
) -> None:
    assert as_object(value) == theirs.ask("input", input=value)


@unhurried
@given(said=st.lists(tools, max_size=4), output=values, approved=st.booleans())
def test_answers_change_a_message_as_on_the_official_server(
    theirs: Oracle, said: list[dict[str, Any]], output: Any, approved: bool
) -> None:
    message = {"id": "a", "role": "assistant", "parts": said}
    ways = [
        (answers.tool_result("c1", output), ("result", {"output": output})),
        (
            answers.tool_result("c1", failed=True, error_text="why"),
            ("result", {"state": "output-error", "errorText": "why"}),
        ),
        (
            answers.tool_result("c1", failed=True),
            ("result", {"state": "output-error"}),
        ),
        (answers.tool_approval("c1", approved), ("approval", {"approved": approved})),
    ]
    for change, (operation, args) in ways:
        ours = answers.changed([message], change)
        parts = theirs.ask(operation, parts=said, id="c1", **args)
        assert (ours["parts"] if ours else None) == parts


@unhurried
@given(list_=messages("m"))
def test_a_half_answered_reply_is_told_as_on_the_official_server(
    theirs: Oracle, list_: list[dict[str, Any]]
) -> None:
    assert answers.is_half_answered(list_) == theirs.ask("incomplete", messages=list_)


@unhurried
@given(list_=messages("m"), continues=st.booleans(), junk=values)
def test_interrupted_calls_are_repaired_as_on_the_official_server(
    theirs: Oracle, list_: list[dict[str, Any]], continues: bool, junk: Any
) -> None:
    for part in (part for message in list_ for part in message["parts"]):
        if part.get("toolCallId") == "c3":
            part["input"] = junk
    before = copy.deepcopy(list_)
    changed = {
        message["id"]: message
        for message in repaired(list_, client_tools={"look"}, continues=continues)
    }
    expected = theirs.ask(
        "repair", messages=list_, clientTools=["look"], continuation=continues
    )
    assert [changed.get(message["id"], message) for message in list_] == expected
    assert all(message != changed.get(message["id"]) for message in list_)
    assert list_ == before


@unhurried
@given(list_=messages("m"))
def test_a_model_is_told_the_results_that_the_sdk_tells(
    theirs: Oracle, list_: list[dict[str, Any]]
) -> None:
    for part in (part for message in list_ for part in message["parts"]):
        if part.get("state") == "output-error":
            part["errorText"] = "why"
    told = theirs.ask("modelMessages", messages=list_)
    expected = [
        (part["toolCallId"], part["toolName"], outcome(part["output"]))
        for message in told
        if message["role"] == "tool"
        for part in message["content"]
        if part["type"] == "tool-result"
    ]
    assert expected == [
        (one.call_id, one.name, one.output)
        for message in list_
        if message["role"] == "assistant"
        for step in steps(message)
        for one in step.results
    ]


def outcome(output: dict[str, Any]) -> Any:
    if output["type"] == "execution-denied":
        return output.get("reason") or DENIED_TEXT
    return output["value"]
