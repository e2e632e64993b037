"""What a client is told of a turn whose process is gone. Pure."""

from __future__ import annotations

from . import protocol


class Recovering:
    """Tells of a turn that nobody runs, once it was met twice, and of its end.

    Mostly another process takes it up at once, and the reply goes on as if
    nothing had happened; a word for that would only flicker.
    """

    def __init__(self) -> None:
        self._met = ""
        self._told = ""

    def looked(self, lost: str) -> str | None:
        """The frame to send after a look; *lost* is the request id of the running
        turn that lost its runner, empty where there is none."""
        if self._told and lost != self._told:
            return self.over(self._told)
        if lost and lost == self._met and not self._told:
            self._told = lost
            return protocol.recovering(lost, on=True)
        self._met = lost
        return None

    def over(self, request_id: str) -> str | None:
        """The frame to send when the turn is run again, or has ended."""
        if request_id == self._met:
            self._met = ""
        if request_id != self._told:
            return None
        self._told = ""
        return protocol.recovering(request_id, on=False)
