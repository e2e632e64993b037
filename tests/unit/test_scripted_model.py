"""The scripted model of the testing kit: what it says to what."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from django_streams.testing import ClientError, NoAnswer, Pause, ScriptedModel
from django_streams.testing import tool_call as call


async def said(stream: Any) -> list[Any]:
    return [item async for item in stream]


async def text(model: ScriptedModel, question: Any) -> str:
    return "".join(await said(model(question)))


def ui(text: str, role: str = "user") -> dict[str, Any]:
    return {"id": "1", "role": role, "parts": [{"type": "text", "text": text}]}


async def test_answers_come_in_order_word_by_word() -> None:
    model = ScriptedModel("one two", "three")
    assert await said(model("x")) == ["one", " two"]
    assert await said(model("x")) == ["three"]


async def test_an_answer_is_found_by_the_text_of_the_last_user_message() -> None:
    model = ScriptedModel("in order")
    model.answer("rain", when="WEATHER").answer("four", when=re.compile(r"\d \+ \d"))
    model.answer("long", when=lambda asked: len(asked.text) > 30)
    assert await text(model, [ui("weather?"), ui("sure", "assistant")]) == "rain"
    assert await text(model, [ui("2 + 2")]) == "four"
    assert await text(model, "x" * 31) == "long"
    assert await text(model, "else") == "in order"


async def test_the_answer_added_last_is_tried_first() -> None:
    model = ScriptedModel().answer("old", when="x").answer("new", when="x", times=2)
    assert [await text(model, "x") for _ in range(3)] == ["new", "new", "old"]


@pytest.mark.parametrize(
    "question",
    [
        "hello",
        [{"role": "user", "content": "hello"}],
        [{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
        [ui("earlier"), ui("no", "assistant"), ui("hello")],
        ("hello",),
    ],
)
async def test_it_reads_what_models_are_handed(question: Any) -> None:
    model = ScriptedModel("x")
    await said(model(question))
    assert model.asked[0].text == "hello"


async def test_it_reads_messages_that_come_by_name() -> None:
    model = ScriptedModel("x")
    await said(model(model="gpt", messages=[ui("hello")], temperature=0))
    [asked] = model.asked
    assert asked.text == "hello"
    assert asked.kwargs["temperature"] == 0


async def test_it_reads_a_turn() -> None:
    class Turn:
        messages = [ui("hello")]  # noqa: RUF012

    model = ScriptedModel("x")
    await said(model(Turn()))
    assert model.asked[0].text == "hello"


async def test_chunks_and_tool_calls_come_as_they_are() -> None:
    chunk = {"type": "data-x", "data": 1}
    model = ScriptedModel()
    model.answer(chunk, call("f", {"a": 1}, output=[2], call_id="c1"), "done")
    assert await said(model("x")) == [
        chunk,
        {"type": "tool-input-start", "toolCallId": "c1", "toolName": "f"},
        {
            "type": "tool-input-available",
            "toolCallId": "c1",
            "toolName": "f",
            "input": {"a": 1},
        },
        {"type": "tool-output-available", "output": [2], "toolCallId": "c1"},
        "done",
    ]
    failed = call("f", {}, error="no")[-1]
    assert failed["type"] == "tool-output-error"
    assert call("f", {}, output=None)[-1]["output"] is None
    assert len(call("f", {})) == 2
    assert call("f", {})[0]["toolCallId"] != call("f", {})[0]["toolCallId"]


@pytest.mark.parametrize("error", [ValueError("no"), ValueError])
async def test_errors_are_raised_in_their_place(error: Any) -> None:
    model = ScriptedModel()
    model.answer("before", error, "after")
    stream = model("x")
    assert await anext(stream) == "before"
    with pytest.raises(ValueError):
        await anext(stream)
    assert model.asked[0].said == ["before"]
    assert not model.asked[0].ended


async def test_a_function_answers_by_what_is_asked() -> None:
    model = ScriptedModel(lambda asked: [f"you said {asked.text}", {"type": "x"}])
    assert await said(model("hi")) == ["you", " said", " hi", {"type": "x"}]


async def test_it_can_be_asked_for_the_whole_text_at_once() -> None:
    model = ScriptedModel(["It ", {"type": "x"}, "rains."])
    assert await model.complete([ui("weather?")]) == "It rains."


async def test_it_stands_at_a_pause_until_it_is_told_to_go() -> None:
    pause = Pause()
    model = ScriptedModel()
    model.answer("a", pause, "b")
    task = asyncio.create_task(said(model("x")))
    await pause.reached()
    assert model.asked[0].said == ["a"]
    assert not task.done()
    pause.go()
    assert await task == ["a", "b"]
    assert model.asked[0].ended


async def test_a_pause_that_is_not_reached_says_so() -> None:
    with pytest.raises(ClientError, match=r"waited 0\.01 s, and the model did not"):
        await Pause().reached(0.01)


async def test_a_question_without_an_answer_is_an_error_that_names_it() -> None:
    model = ScriptedModel("one").answer("two", when="two")
    await said(model("x"))
    with pytest.raises(NoAnswer, match=r"no answer to 'three'.*when 'two'"):
        await said(model("three"))


@pytest.mark.parametrize("piece", [1, None, [1], b"x", Pause])
def test_what_is_no_piece_is_refused_when_it_is_given(piece: Any) -> None:
    with pytest.raises(TypeError, match="no piece of an answer"):
        ScriptedModel(piece)


@pytest.mark.parametrize("options", [{"times": 2}, {"when": "x", "times": 0}])
def test_times_goes_with_when(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="goes with when="):
        ScriptedModel().answer("x", **options)


async def test_it_tells_how_many_answers_are_left() -> None:
    model = ScriptedModel("a", "b").answer("c", when="c")
    assert model.left == 2
    await said(model("x"))
    assert model.left == 1
