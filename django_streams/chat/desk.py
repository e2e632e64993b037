"""What is done about a client's frames, one after the other."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final

from ..turns import (
    answering,
    awaited,
    clearing,
    door,
    ends,
    hooks,
    queue,
    state,
    status,
)
from ..turns.runner import get_runner
from . import protocol
from .rpc import Call, Calls

if TYPE_CHECKING:
    from .connection import Connection

logger = logging.getLogger("django_streams.chat")

NOT_ALLOWED: Final = "Not allowed."


class Desk:
    """Handles the frames of one connection; never waits for a turn or a call."""

    def __init__(self, connection: Connection, calls: Calls) -> None:
        self._of = connection
        self._calls = calls

    async def handle(self, frame: protocol.Frame) -> None:
        """Do what *frame* asks for. What this raises is for :meth:`failed`."""
        of = self._of
        match frame:
            case protocol.ChatRequest():
                await self._submit(frame)
            case protocol.ResumeRequest(probe_id):
                seen = await of.snapshot()
                await of.do(of.handshake.probed(probe_id, seen))
            case protocol.ResumeAck(request_id):
                seen = await of.snapshot()
                turn = None
                if seen.active is None:
                    turn = await door.run(status.find_turn, of.ref, request_id)
                await of.do(of.handshake.acked(request_id, seen, turn))
            case protocol.Cancel(request_id):
                if of.admission.may_control:
                    await door.run(ends.cancel, of.ref, request_id)
            case protocol.Clear():
                if of.admission.may_control:
                    await door.run(clearing.clear, of.ref, of.id)
                    if of.told_any:
                        # It would bring them back if it crossed the clear.
                        await of.tell_again()
                    await self._tell_cleared()
            case protocol.SyncMessages(messages):
                if of.admission.may_write and messages:
                    await self._sync(messages)
            case protocol.ToolResult():
                given = awaited.Answer(
                    call_id=frame.call_id,
                    output=frame.output,
                    failed=frame.failed,
                    error_text=frame.error_text,
                )
                await self._answer(given, frame.continues, frame.client_tools)
            case protocol.ToolApproval(call_id, approved, continues):
                given = awaited.Answer(call_id=call_id, approved=approved)
                await self._answer(given, continues)
            case protocol.SetState(value):
                await self._set_state(value)
            case protocol.Rpc():
                if not of.gone:
                    await self._call(frame)
            case protocol.Malformed(request_id, problem):
                await of.send(protocol.Response(request_id).error(problem))
            case protocol.MalformedCall(call_id, problem):
                await of.send(protocol.rpc_error(call_id, problem))
            case protocol.Ignored(why):
                logger.debug("a frame was ignored: %s", why)

    async def failed(self, frame: protocol.Frame, reason: str) -> None:
        """Tell the client that a frame could not be handled, where it waits."""
        match frame:
            case protocol.ChatRequest(request_id):
                await self._of.send(protocol.Response(request_id).error(reason))
            case protocol.Rpc(call_id):
                await self._of.send(protocol.rpc_error(call_id, reason))
            case protocol.SetState():
                await self._of.send(protocol.state_error(protocol.REJECTED))

    async def _submit(self, frame: protocol.ChatRequest) -> None:
        of = self._of
        if not of.admission.may_write:
            await of.send(protocol.Response(frame.request_id).error(NOT_ALLOWED))
            return
        submission = queue.Submission(
            request_id=frame.request_id,
            messages=await hooks.sanitised(of.agent, frame.messages),
            origin_ids=protocol.origin_ids(frame.messages),
            trigger=frame.trigger,
            body=frame.body,
            client_tools=frame.client_tools,
            user_key=of.admission.user_key,
            connection=of.id,
            concurrency=of.agent.message_concurrency,
            keep_messages=of.agent.max_persisted_messages,
        )
        submitted = await door.run(queue.submit, of.ref, submission)
        if submitted.turn.status.over:
            await of.do(of.handshake.asked_again(submitted.turn))
        else:
            of.handshake.submitted(frame.request_id)
            await of.tell_again()
            get_runner().kick(of.ref)

    async def _tell_cleared(self) -> None:
        try:
            await hooks.call(self._of.agent.on_clear, self._of.ref)
        except Exception:
            logger.exception("on_clear of %s failed", self._of.ref.agent)

    async def _answer(
        self,
        given: awaited.Answer,
        continues: bool,
        client_tools: list[Any] | None = None,
    ) -> None:
        of = self._of
        if not of.admission.may_write:
            return
        request_id = None
        while True:
            proposal = await answering.propose(of.agent, of.ref, given.change)
            with contextlib.suppress(answering.Outdated):
                request_id = await door.run(
                    answering.answer,
                    of.ref,
                    given,
                    proposal,
                    continues=continues,
                    client_tools=client_tools,
                    user_key=of.admission.user_key,
                    owner=of.id,
                )
                break
        if request_id is not None:
            of.handshake.enrolled(request_id)
        get_runner().kick(of.ref)

    async def _sync(self, messages: list[protocol.UIMessage]) -> None:
        of = self._of
        await door.run(
            queue.sync_messages,
            of.ref,
            await hooks.sanitised(of.agent, messages),
            of.id,
            of.agent.max_persisted_messages,
        )
        await of.tell_again()

    async def _set_state(self, value: object) -> None:
        of = self._of
        if not of.admission.may_write:
            await of.send(protocol.state_error(protocol.READ_ONLY))
            return
        await hooks.call(of.agent.validate_state, value, of.admission.user)
        await door.run(state.store, of.ref, value, of.id)

    async def _call(self, frame: protocol.Rpc) -> None:
        of = self._of
        if not of.admission.may_write:
            await of.send(protocol.rpc_error(frame.call_id, NOT_ALLOWED))
            return
        await self._calls.start(frame, Call(of.ref, of.admission.user))
