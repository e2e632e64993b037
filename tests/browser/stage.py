"""A server that says what the test tells it to, with the shipped page in front.

::

    with Stage() as stage:
        page = tabs.open(stage.url)
        socket = stage.socket()              # the page's connection
        socket.hear("cf_agent_stream_resume_request")
        socket.say({"type": "cf_agent_chat_messages", "messages": []})
        socket.drop()

Pages come from the real templates and static files, under the content security
policy of the demo. Everything waits at most :data:`PATIENCE` seconds.
"""

from __future__ import annotations

import json
import mimetypes
import queue
import threading
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

from django.contrib.staticfiles import finders
from django.template.loader import render_to_string
from django.utils import translation
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

from demo_project.csp import POLICY

PATIENCE = 10.0

Frame = dict[str, Any]


class StageSocket:
    """The server's end of one WebSocket of the page."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._heard: queue.Queue[Frame] = queue.Queue()

    def listen(self) -> None:
        """Take in what the page says until the connection ends."""
        try:
            for text in self._connection:
                self._heard.put(json.loads(text))
        except ConnectionClosed:
            pass

    def say(self, *frames: Frame) -> None:
        for frame in frames:
            self._connection.send(json.dumps(frame))

    def hear(self, kind: str) -> Frame:
        """The next frame of this type; those before it are forgotten."""
        while True:
            frame = self._heard.get(timeout=PATIENCE)
            if frame["type"] == kind:
                return frame

    def greet(self, messages: list[Frame] | None = None) -> None:
        """What a server says to a page when nothing runs."""
        probe = self.hear("cf_agent_stream_resume_request")
        self.say(
            transcript(messages or [], connect=True),
            {
                "type": "cf_agent_stream_resume_none",
                "reason": "idle",
                "probeId": probe["probeId"],
            },
        )

    def submitted(self) -> tuple[str, Frame]:
        """The next submission: its request id and its body."""
        frame = self.hear("cf_agent_use_chat_request")
        return frame["id"], json.loads(frame["init"]["body"])

    def nothing_more(self) -> bool:
        """Whether the page said nothing that has not been heard."""
        return self._heard.empty()

    def close(self, code: int = 1000) -> None:
        self._connection.close(code)

    def drop(self) -> None:
        """End the connection as a dead network does."""
        self._connection.close_socket()


class Stage:
    """See the module's docstring. *history* is what get-messages answers."""

    def __init__(self, *, history: list[Frame] | None = None) -> None:
        self.history = history or []
        self.refusing = False
        """While true new WebSockets are refused, as by a server that starts."""
        self._sockets: queue.Queue[StageSocket] = queue.Queue()
        self._server = serve(
            self._connected,
            "127.0.0.1",
            0,
            process_request=self._request,
            compression=None,
            close_timeout=0.2,
        )
        port = self._server.socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/"
        self._thread = threading.Thread(target=self._server.serve_forever)

    def socket(self) -> StageSocket:
        """The next connection that a page makes."""
        return self._sockets.get(timeout=PATIENCE)

    def _connected(self, connection: ServerConnection) -> None:
        socket = StageSocket(connection)
        self._sockets.put(socket)
        socket.listen()

    def _request(self, _: ServerConnection, request: Request) -> Response | None:
        parts = urlsplit(request.path)
        if request.headers.get("Upgrade"):
            return _response(503, "text/plain", b"") if self.refusing else None
        if parts.path.endswith("/get-messages"):
            return _response(200, "application/json", json.dumps(self.history).encode())
        if parts.path.startswith("/static/"):
            return _static(unquote(parts.path.removeprefix("/static/")))
        if parts.path == "/":
            options = {key: values[-1] for key, values in parse_qs(parts.query).items()}
            return _page(options)
        return _response(404, "text/plain", b"")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()


def _page(options: dict[str, str]) -> Response:
    with translation.override(options.get("language", "en")):
        html = render_to_string(
            "django_streams/chat.html",
            {"agent": "demo-agent", "room": "room1", "title": "Demo agent"},
        )
    return _response(200, "text/html; charset=utf-8", html.encode())


def _static(name: str) -> Response:
    path = finders.find(name)
    if path is None:
        return _response(404, "text/plain", b"")
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return _response(200, kind, Path(path).read_bytes())


def _response(status: int, kind: str, body: bytes) -> Response:
    headers = Headers(
        [
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Content-Security-Policy", POLICY),
            ("Connection", "close"),
        ]
    )
    return Response(status, HTTPStatus(status).phrase, headers, body)


def transcript(messages: list[Frame], **extra: Any) -> Frame:
    return {"type": "cf_agent_chat_messages", "messages": messages, **extra}


def message(message_id: str, role: str, *parts: Frame) -> Frame:
    return {"id": message_id, "role": role, "parts": list(parts)}


def text(content: str) -> Frame:
    return {"type": "text", "text": content}


def frame(request_id: str, **extra: Any) -> Frame:
    """A frame about a turn."""
    return {
        "type": "cf_agent_use_chat_response",
        "id": request_id,
        "body": "",
        "done": False,
        **extra,
    }


def frames(
    request_id: str, chunks: list[Frame], *, start: int = 0, **extra: Any
) -> list[Frame]:
    """One frame for each chunk, numbered from *start*."""
    return [
        frame(request_id, body=json.dumps(chunk), seq=start + index, **extra)
        for index, chunk in enumerate(chunks)
    ]


def reply(content: str, message_id: str = "a1") -> list[Frame]:
    """The chunks of a text reply, a delta for each word."""
    words = [word + " " for word in content.split(" ")]
    words[-1] = words[-1][:-1]
    return [
        {"type": "start", "messageId": message_id},
        {"type": "start-step"},
        {"type": "text-start", "id": "t"},
        *({"type": "text-delta", "id": "t", "delta": word} for word in words),
        {"type": "text-end", "id": "t"},
        {"type": "finish-step"},
        {"type": "finish"},
    ]
