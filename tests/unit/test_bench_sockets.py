"""The WebSocket client of the benchmark, against a real server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest
from websockets.sync.server import ServerConnection, serve

from benchmarks.sockets import ClientSocket, ask
from django_streams.chat import protocol


@pytest.fixture
def echo() -> Iterator[int]:
    """A server that sends back what it gets, after a greeting."""

    def answer(connection: ServerConnection) -> None:
        connection.send("hello")
        for text in connection:
            connection.send(text)

    with serve(answer, "127.0.0.1", 0, compression=None) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.socket.getsockname()[1]
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("size", [1, 123, 124, 65_533, 65_534, 200_000])
def test_a_server_understands_frames_of_any_length(echo: int, size: int) -> None:
    with ClientSocket(echo, "/") as client:
        client.until(b"hello")
        client.send("x" * size)
        assert client.until(b'x"').count(b"x") == size


def test_what_follows_the_awaited_is_kept(echo: int) -> None:
    with ClientSocket(echo, "/") as client:
        client.send("one two")
        assert client.until(b"one").endswith(b"one")
        assert client.until(b"two") == b" two"


def test_a_server_that_closes_is_said_with_what_came(echo: int) -> None:
    with ClientSocket(echo, "/") as client:
        client.until(b"hello")
        client._socket.sendall(b"\x88\x80\0\0\0\0")
        with pytest.raises(RuntimeError, match="never"):
            client.until(b"never")


def test_what_is_asked_is_a_chat_request() -> None:
    frame = protocol.parse(json.dumps(ask("q1", events=3)))
    assert isinstance(frame, protocol.ChatRequest)
    assert frame.request_id == "q1"
    assert frame.body == {"events": 3}
    assert [message["role"] for message in frame.messages] == ["user"]
