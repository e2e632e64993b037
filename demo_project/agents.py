"""The demo's agent: a scripted model that needs no key, or a real one by env.

``OPENAI_API_KEY`` or ``OPENAI_BASE_URL`` (any server that speaks like OpenAI)
bring a real model, named by ``OPENAI_MODEL``. ``DEMO_DELAY`` is how many seconds
the script takes for a word.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

from django_streams.chat import AIChatConsumer
from django_streams.providers import openai
from django_streams.providers.scripted import scripted
from django_streams.turns.turn import Turn

SYSTEM = "You are a helpful assistant. Answer in Markdown."


class DemoAgent(AIChatConsumer):
    """Answers everybody; what a visitor says belongs to their session."""

    title = "Demo"
    allow_anonymous = True
    # Neither the script nor a chat completion goes on in the middle of a sentence.
    on_interrupted = "restart"

    async def on_chat_message(self, turn: Turn) -> AsyncIterator[str]:
        if has_model():
            return await real(turn)
        pause = float(os.environ.get("DEMO_DELAY", "0.03"))
        return scripted(script(turn.text), pause=pause)


def has_model() -> bool:
    return bool(os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL"))


async def real(turn: Turn) -> AsyncIterator[str]:
    """The stream of a chat completion; the library knows how to read it."""
    # A server of one's own may want no key, but the package asks for one.
    client = openai.client(api_key=os.environ.get("OPENAI_API_KEY", "none"))
    stream: AsyncIterator[str] = await client.chat.completions.create(
        model=os.environ.get("OPENAI_MODEL", "gpt-4o-mini"),
        messages=openai.to_messages(turn.messages, system=SYSTEM),
        stream=True,
    )
    return stream


def script(question: str) -> str:
    """A long answer in Markdown that takes up *question*."""
    asked = " ".join(question.split())
    topic = asked if len(asked) <= 120 else asked[:117] + "…"
    return ANSWER.format(
        topic=topic.replace("`", "'") or "nothing at all",
        words=len(asked.split()),
        letters=len(asked),
    )


ANSWER = """\
## You asked: {topic}

That is **{words} words** and *{letters} characters*. I am a script and know
nothing about it, but I can show you what happens to this reply while it is being
written.

### Try this now

1. Reload the page in the middle of this sentence. The words that were written so
   far come back at once, and the rest follows.
2. Open the same address in a second tab. Both show the same reply.
3. Cut the network, wait a while, and bring it back.
4. Close every tab. The reply goes on without you, and is here when you return.

### What happens behind it

Every word you see is a *chunk*. It is stored first and shown afterwards, so a
reader never sees what could be lost:

```python
async def on_chat_message(self, turn):
    async for token in my_model(turn.messages):
        yield token
```

| step | who does it |
|:-----|:------------|
| store the chunk | the turn, which belongs to no socket |
| wake the readers | a hint that may be lost |
| read the log | every connection, at its own pace |

> A wake that gets lost costs a moment, never a word: each reader also looks for
> itself.

### And then

- When the reply ends, the message, the end of its log and the end of the turn are
  written in **one transaction**.
- Whoever was away gets the whole text, *exactly once*.
- Ask something else about "{topic}" and it will be stored the same way.

Set `OPENAI_API_KEY` and start the demo again to talk to a model that has
something to say. Until then: thank you for {words} words.
"""
