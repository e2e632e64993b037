"""``{% chat agent room %}``: a conversation with an agent, inside any page."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from django import template
from django.urls import get_script_prefix
from django.utils.translation import gettext, gettext_noop

register = template.Library()

STRINGS = {
    "you": gettext_noop("You"),
    "agent": gettext_noop("Assistant"),
    "reasoning": gettext_noop("Reasoning"),
    "reasoningNow": gettext_noop("Reasoning…"),
    "copy": gettext_noop("Copy"),
    "copied": gettext_noop("Copied"),
    "copyFailed": gettext_noop("Could not be copied"),
    "regenerate": gettext_noop("Regenerate"),
    "unsent": gettext_noop("Will be sent as soon as there is a connection"),
    "toolRuns": gettext_noop("running…"),
    "toolDone": gettext_noop("done"),
    "toolFailed": gettext_noop("failed"),
    "toolDenied": gettext_noop("denied"),
    "toolAsks": gettext_noop("waits for approval"),
    "toolCut": gettext_noop("not finished"),
    "toolInput": gettext_noop("Input"),
    "toolOutput": gettext_noop("Output"),
    "connecting": gettext_noop("Connecting…"),
    "open": gettext_noop("Connected"),
    "reconnecting": gettext_noop("Reconnecting…"),
    "resumed": gettext_noop("Connected again"),
    "closed": gettext_noop("Not connected"),
    "signIn": gettext_noop("Please sign in and reload the page"),
    "forbidden": gettext_noop("This conversation is not open to you"),
    "replying": gettext_noop("The assistant is replying"),
    "replyIs": gettext_noop("The assistant replied:"),
    "replyLong": gettext_noop("The reply is complete"),
    "stopped": gettext_noop("The reply was stopped"),
    "failed": gettext_noop("Something went wrong. Please try again."),
}
"""What the script says, by the names it uses; translated when a page is made."""


def conversation_path(agent: str, room: str) -> str:
    """Path of a conversation's socket below this site's root, percent-encoded."""
    return f"{get_script_prefix()}agents/{agent}/{quote(room, safe='')}"


@register.inclusion_tag("django_streams/_chat.html")
def chat(
    agent: Any,
    room: str,
    *,
    path: str | None = None,
    title: str = "",
    heading: int = 2,
    resume: bool | str | None = None,
    autofocus: bool = False,
) -> dict[str, Any]:
    """The conversation *room* with *agent*, live, with its form.

    *agent* is the agent's name in addresses (``support-agent``) or its class;
    *path* is the address of the conversation where the site's routes are not
    the usual ones. *title* stands above, as a heading of level *heading* (1 to
    6). *resume* false leaves a running reply alone after a reload; by default
    the agent's own setting counts. The page loads ``chat.css`` and ``page.js``
    itself: ``{% include "django_streams/_head.html" %}``.
    """
    name = agent if isinstance(agent, str) else str(agent.agent_name)
    if resume is None or resume == "":  # a variable that the page does not have
        resume = bool(getattr(agent, "resume", True))
    return {
        "path": conversation_path(name, room) if path is None else path,
        "title": title,
        "heading": f"h{min(6, max(1, heading))}",
        "resume": resume,
        "autofocus": autofocus,
        "strings": {name: gettext(text) for name, text in STRINGS.items()},
    }
