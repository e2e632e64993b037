"""What a test case of Django's gets for testing streams and agents."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from .. import conf
from .isolation import DEFAULTS, nothing_left
from .tab import close_all

if TYPE_CHECKING:
    import unittest

    from ..chat import AIChatConsumer
    from ..streams import Streams
    from .client import AgentClient
    from .http import SSEClient
    from .model import ScriptedModel

    _Case = unittest.TestCase
else:
    _Case = object


class StreamsTestMixin(_Case):
    """Mix it into ``TestCase`` or ``TransactionTestCase``, before Django's class::

        class SupportTests(StreamsTestMixin, TestCase):
            async def test_a_greeting(self):
                async with self.agent_client(SupportAgent, user=self.user) as chat:
                    reply = await chat.send("hello")
                self.assertEqual(reply.outcome, "completed")

    Everything uses the test's own connection and is part of its transaction.
    Clients that a test leaves open are closed at its end, and turns that still
    run are stopped.
    """

    @classmethod
    def setUpClass(cls) -> None:
        cls.enterClassContext(conf.defaults(**DEFAULTS))
        super().setUpClass()

    def __call__(self, result: unittest.TestResult | None = None) -> None:
        method = getattr(self, self._testMethodName)
        if inspect.iscoroutinefunction(method):
            # On the same event loop, which ends with the method.
            setattr(self, self._testMethodName, _closing(method))
        self.enterContext(nothing_left())
        super().__call__(result)

    def agent_client(
        self, agent: type[AIChatConsumer], name: str = "default", **options: Any
    ) -> AgentClient:
        """An :class:`AgentClient`; use it with ``async with``."""
        from .client import AgentClient

        return AgentClient(agent, name, **options)

    @functools.cached_property
    def scripted_model(self) -> ScriptedModel:
        """A :class:`ScriptedModel` of this test."""
        from .model import ScriptedModel

        return ScriptedModel()

    @functools.cached_property
    def streams(self) -> Streams:
        """The project's streams."""
        from ..streams import Streams

        return Streams(using=conf.get().DATABASE)

    @functools.cached_property
    def sse_client(self) -> SSEClient:
        """An :class:`SSEClient` around the test's ``async_client``."""
        from .http import SSEClient

        return SSEClient(self.async_client)  # type: ignore[attr-defined]


def _closing(method: Any) -> Any:
    @functools.wraps(method)
    async def run() -> Any:
        try:
            return await method()
        finally:
            await close_all()

    return run
