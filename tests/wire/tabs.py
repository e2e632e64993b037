"""Tabs in which the official React hooks run: real packages, an emulated DOM.

A :class:`Tab` is a Node.js process that is told what its user does and reports
every state the hooks show. Waiting is for what is shown, never for time.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.services import NODE_PACKAGES, program

TIMEOUT = 15.0
"""Seconds within which a tab must show what is waited for."""

View = dict[str, Any]
"""What the hooks show: ``messages``, ``status``, ``error`` and their flags."""


class Tab:
    """One page at a time; :meth:`open` begins a new one with nothing kept."""

    def __init__(self) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  (closed by end)
        self._process = subprocess.Popen(
            [program("node") or "node", "tab.mjs"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            cwd=NODE_PACKAGES,
            bufsize=0,
        )
        self._unread = b""
        self.reports: list[dict[str, Any]] = []
        """Everything the page reported since it was opened."""
        self._hear(lambda report: "ready" in report)

    # What the user does

    def open(
        self,
        url: str,
        cookie: str,
        *,
        agent: str = "scripted",
        room: str = "room",
        answers: dict[str, Any] | None = None,
        wait: bool = True,
        socket: dict[str, Any] | None = None,
        **chat: Any,
    ) -> None:
        """Load the page and wait until it knows where things stand.

        *socket* and *chat* are options of the two hooks, *answers* is what the
        page answers to calls of its tools.
        """
        # The hook's own pause of 3 s before it connects again is worth one test.
        hook = {"agent": agent, "name": room, "minReconnectionDelay": 100}
        self.do(
            "open",
            url=url,
            cookies=[cookie],
            agent=hook | (socket or {}),
            chat=chat,
            answers=answers,
        )
        self._keep_new()
        if not wait:
            return
        self.until(lambda view: view["identified"])
        if chat.get("resume", True):
            # The answer to the hook's probe sets the status, so not later.
            self.until_report("frame", answers_probe)

    def do(self, command: str, **arguments: Any) -> None:
        """Have a command carried out; returns when the hooks have got it."""
        assert self._process.stdin is not None
        line = json.dumps({"do": command} | arguments).encode() + b"\n"
        self._process.stdin.write(line)
        answer = self._hear(lambda r: r.get("did", r.get("failed")) == command)
        assert "did" in answer, answer

    def send(self, text: str, **body: Any) -> None:
        """Type *text* and press enter."""
        self.do("send", message={"text": text}, options={"body": body} if body else {})

    def call(
        self, call: str, method: str, *args: Any, streaming: bool = False
    ) -> list[dict[str, Any]]:
        """Call a method of the agent; the reports of this call, the last one
        tells the result or why not."""
        self.do("call", call=call, method=method, args=args, streaming=streaming)
        self.until_any(
            lambda r: r.get("call") == call and ("result" in r or "rejected" in r)
        )
        return [r for r in self.reports if r.get("call") == call]

    def reload(self, **changes: Any) -> None:
        """Load the page again; what it showed before is forgotten."""
        self.until(lambda view: True)
        self.do("reload", **changes)
        self._keep_new()

    def close(self) -> bool:
        """Close the page; whether the tab can have another one.

        The hooks keep the request for the first messages beyond the page, if
        that is closed before they have come.
        """
        self.do("close")
        return bool(self.views)

    def _keep_new(self) -> None:
        # Before the answer to the command it was still the old page that spoke.
        del self.reports[:-1]

    # What the page shows

    @property
    def views(self) -> list[View]:
        return [report["view"] for report in self.reports if "view" in report]

    @property
    def view(self) -> View:
        return self.views[-1]

    def until(self, holds: Callable[[View], object]) -> View:
        """Wait until the page shows a state for which *holds*; that state."""
        if self.views and holds(self.view):
            return self.view
        return dict(self._hear(lambda r: "view" in r and holds(r["view"]))["view"])

    def until_any(self, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """The first report, past or to come, for which *holds*."""
        known = next((report for report in self.reports if holds(report)), None)
        return known or self._hear(holds)

    def until_report(
        self, kind: str, holds: Callable[[Any], object] = lambda _: True
    ) -> Any:
        """The first report of that kind, past or to come, for which *holds*."""

        def fits(report: dict[str, Any]) -> bool:
            return kind in report and bool(holds(report[kind]))

        return self.until_any(fits)[kind]

    def until_said(self, *texts: str, status: str | None = "ready") -> View:
        """Wait for exactly these messages, by role and text."""
        return self.until(
            lambda view: said(view) == list(texts) and status in (None, view["status"])
        )

    def complaints(self) -> list[dict[str, Any]]:
        """What the page wrote to its console, and whether it crashed."""
        loud = ("error", "warn")
        return [r for r in self.reports if r.get("console") in loud or "crashed" in r]

    # The process

    def _hear(self, fits: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        assert self._process.stdout is not None
        deadline = time.monotonic() + TIMEOUT
        while True:
            line, found, rest = self._unread.partition(b"\n")
            if found:
                self._unread = rest
                report = json.loads(line)
                self.reports.append(report)
                if fits(report):
                    return dict(report)
                continue
            left = max(0.0, deadline - time.monotonic())
            ready = select.select([self._process.stdout], [], [], left)[0]
            data = os.read(self._process.stdout.fileno(), 1 << 20) if ready else b""
            if not data:
                raise AssertionError(
                    f"the tab {'ended' if ready else 'did not get there'}; "
                    f"its last reports:\n{_lines(self.reports[-8:])}\n{self.stderr()}"
                )
            self._unread += data

    def stderr(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace")

    def end(self) -> None:
        """End the process; a page that is open goes without a word."""
        self._process.kill()
        self._process.wait(TIMEOUT)
        for pipe in (self._process.stdin, self._process.stdout, self._stderr):
            if pipe is not None:
                pipe.close()


def answers_probe(frame: dict[str, Any]) -> bool:
    return "probeId" in frame


def text_of(message: dict[str, Any]) -> str:
    return "".join(p["text"] for p in message["parts"] if p["type"] == "text")


def said(view: View) -> list[str]:
    """The messages as ``role: text``."""
    return [f"{m['role']}: {text_of(m)}" for m in view["messages"]]


def _lines(reports: list[dict[str, Any]]) -> str:
    return "\n".join(json.dumps(report)[:2000] for report in reports)


class Script:
    """The test's end of a script of :mod:`tests.wire.site`."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self._file = folder / name

    def say(self, *items: Any) -> None:
        """Have the turn say these next."""
        with self._file.open("a") as file:
            file.write("".join(json.dumps(item) + "\n" for item in items))

    def end(self) -> None:
        self.say(None)

    @property
    def pid(self) -> int:
        """The process that ran its last turn."""
        return int(self._file.with_suffix(".pid").read_text())


def shows(tab: Tab, script: Script, text: str, *, status: str = "streaming") -> None:
    """Wait until the reply to the script is *text*, no more and no less."""
    tab.until_said(f"user: {script.name}", f"assistant: {text}", status=status)


def idle(view: View) -> bool:
    """Whether nothing is being written, as far as the page shows."""
    return view["status"] == "ready" and not view["isServerStreaming"]
