"""A real Daphne or uvicorn in its own process, on a free port of 127.0.0.1.

::

    with LiveServer("tests.asgi:application", server="uvicorn") as server:
        httpx.get(server.url + "/streams/a/events")
        websockets.connect(server.ws_url + "/agents/demo/room")
        server.stop()            # SIGTERM, as a deploy does; kill() is kill -9
        print(server.log())

The listening socket is made here and inherited, so no other process can take
the port, and the first request waits until the server answers it.
"""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT = 20.0
"""Seconds for the start and for an orderly stop."""

Server = Literal["daphne", "uvicorn"]
SERVERS: tuple[Server, ...] = ("daphne", "uvicorn")


class LiveServer:
    """Runs the ASGI application *app* (``module:name``) until the block ends.

    *env* is added to this process's environment, which carries the settings
    module and the run's databases; *options* are appended to Daphne's command
    line, or are ``key=value`` fields of ``uvicorn.Config``. *port* serves on a
    port that an earlier server had, for restarts.
    """

    def __init__(
        self,
        app: str = "demo_project.asgi:application",
        *,
        server: Server = "uvicorn",
        env: dict[str, str] | None = None,
        options: tuple[str, ...] = (),
        port: int = 0,
    ) -> None:
        self.server = server
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (closed by _close)
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            listener.listen(512)
            self.port: int = listener.getsockname()[1]
            self._process = subprocess.Popen(
                _command(server, app, listener.fileno(), options),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                pass_fds=[listener.fileno()],
                cwd=ROOT,
                env=os.environ | {"PYTHONUNBUFFERED": "1"} | (env or {}),
            )
        self.pid = self._process.pid
        self.url = f"http://127.0.0.1:{self.port}"
        self.ws_url = f"ws://127.0.0.1:{self.port}"

    def wait_until_ready(self) -> None:
        """Return when the server has answered a request, whatever it said."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, TIMEOUT)
        try:
            connection.request("HEAD", "/")
            connection.getresponse().read()
        except (OSError, http.client.HTTPException) as error:
            raise AssertionError(
                f"{self.server} did not start: {error!r}\n{self.log()}"
            ) from error
        finally:
            connection.close()

    def stop(self) -> int:
        """SIGTERM and wait; the exit code."""
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"{self.server} ignored SIGTERM for {TIMEOUT} s\n{self.log()}"
            ) from None

    def kill(self) -> None:
        """``kill -9``; returns when the process is gone."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(TIMEOUT)

    def log(self) -> str:
        """Everything the server printed so far."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def __enter__(self) -> Self:
        try:
            self.wait_until_ready()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close()

    def _close(self) -> None:
        if self._process.poll() is None:
            self.kill()
        self._log.close()


def _command(
    server: Server, app: str, listener: int, options: tuple[str, ...]
) -> list[str]:
    if server == "daphne":
        own = ["-m", "daphne", "--fd", str(listener), *options, app]
    else:
        own = ["-m", "tests.liveserver", str(listener), app, *options]
    return [sys.executable, *own]


def _uvicorn(listener: int, app: str, options: list[str]) -> None:
    # uvicorn's own --fd treats the socket as a Unix one, and asyncio then
    # leaves Nagle's algorithm on, which delays small frames by 40 ms.
    import uvicorn

    fields: dict[str, object] = {"lifespan": "off", "log_level": "info"}
    for option in options:
        name, _, value = option.partition("=")
        fields[name] = int(value) if value.isdigit() else value
    config = uvicorn.Config(app, **fields)  # type: ignore[arg-type]
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=listener)])


if __name__ == "__main__":
    _uvicorn(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
