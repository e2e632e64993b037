"""One WebSocket to a consumer in this process, and waiting for what it sends."""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

# Not Channels' own communicator: importing that needs Daphne.
from asgiref.testing import ApplicationCommunicator

from .errors import ClientError, closed, report

Frame = dict[str, Any]
T = TypeVar("T")


class Socket:
    """Runs *application* as a server would. Use it on one event loop.

    A task of its own reads: to wait in vain leaves the application alone, which
    the communicator's own ``receive_output`` cancels. *take* gets each frame.
    """

    def __init__(
        self,
        application: Any,
        path: str,
        query: str,
        *,
        headers: Sequence[tuple[bytes, bytes]] = (),
        scope: dict[str, Any],
        take: Callable[[Frame], None],
        timeout: float,
    ) -> None:
        self._communicator: Any = ApplicationCommunicator(  # type: ignore[no-untyped-call]
            application,
            {
                "type": "websocket",
                "path": path,
                "query_string": query.encode(),
                "headers": list(headers),
                "subprotocols": [],
                **scope,
            },
        )
        self._take = take
        self._timeout = timeout
        self._news = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None
        self._app: asyncio.Future[Any] | None = None
        self.frames: list[Frame] = []
        """Those of this socket, in order."""
        self.accepted = False
        self.code: int | None = None
        """The server's close code, once it has closed."""

    @property
    def open(self) -> bool:
        """Whether frames can be sent: neither side has closed."""
        return self._reader is not None and self.code is None and self._failure is None

    @property
    def _failure(self) -> BaseException | None:
        app = self._app
        if app is None or not app.done() or app.cancelled():
            return None
        return app.exception()

    async def connect(self) -> None:
        """Ask to be let in; does not wait for an answer."""
        await self._communicator.send_input({"type": "websocket.connect"})
        # As on a server, nothing of the test's context reaches the application.
        self._app = self._communicator.future
        self._app.add_done_callback(lambda _: self._news.set())
        self._reader = asyncio.get_running_loop().create_task(
            self._read(), context=contextvars.Context()
        )

    async def send(self, text: str) -> None:
        """Send one frame; :class:`ClientError` on a closed socket."""
        if not self.open:
            raise ClientError(self._closed_while("sending a frame"))
        await self._communicator.send_input({"type": "websocket.receive", "text": text})

    def post(self, text: str) -> None:
        """As :meth:`send`, at once; lost where the socket has closed."""
        if self.open:
            message = {"type": "websocket.receive", "text": text}
            self._communicator.input_queue.put_nowait(message)

    async def wait(
        self, what: str, look: Callable[[], T | None], timeout: float | None = None
    ) -> T:
        """What *look* returns once that is not None; asked at every frame.

        Fails after *timeout* seconds, or when the socket has closed and nothing
        more can come; the message names *what* and the frames that came.
        """
        seconds = self._timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(seconds):
                while True:
                    self._news.clear()
                    if (result := look()) is not None:
                        return result
                    self._still_open(what)
                    await self._news.wait()
        except TimeoutError:
            text = report(f"waited {seconds:g} s for {what}", self.frames)
            raise ClientError(text) from None

    async def close(self, code: int = 1001) -> None:
        """Close from this side; returns when the application has let go.

        Raises what the application raised. One that does not end within the
        time limit is cancelled, and :class:`ClientError` says so.
        """
        app, reader = self._app, self._reader
        if app is None or reader is None:
            return
        self._reader = None
        try:
            if not app.done():
                message = {"type": "websocket.disconnect", "code": code}
                await self._communicator.send_input(message)
            await asyncio.wait({app}, timeout=self._timeout)
            if not app.done():
                app.cancel()
                await asyncio.wait({app}, timeout=self._timeout)
                raise ClientError(
                    f"the consumer was still busy {self._timeout:g} s after the "
                    "socket closed, and was cancelled"
                )
        finally:
            reader.cancel()
            with suppress(asyncio.CancelledError):
                await reader
        if not app.cancelled():
            app.result()

    async def _read(self) -> None:
        while True:
            message = await self._communicator.output_queue.get()
            match message["type"]:
                case "websocket.accept":
                    self.accepted = True
                case "websocket.close":
                    self.code = int(message.get("code") or 1000)
                case "websocket.send" if isinstance(message.get("text"), str):
                    frame = json.loads(message["text"])
                    self.frames.append(frame)
                    self._take(frame)
            self._news.set()

    def _still_open(self, what: str) -> None:
        if (failure := self._failure) is not None:
            raise ClientError(
                report(f"the consumer failed while waiting for {what}", self.frames)
            ) from failure
        if not self.open and self._communicator.output_queue.empty():
            raise ClientError(self._closed_while(f"waiting for {what}"))

    def _closed_while(self, what: str) -> str:
        if self.code is not None:
            how = f"the server closed the socket with {closed(self.code)}"
        elif self._reader is None:
            how = "the socket is not open; connect() or reconnect() first"
        else:
            how = "the consumer has ended"
        return report(f"{how} ({what})", self.frames)
