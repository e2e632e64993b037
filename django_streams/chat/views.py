"""The HTTP doors of a chat: its messages, and the page."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import get_script_prefix
from django.utils.cache import patch_vary_headers
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.cache import never_cache

from .. import access, conf, ids
from ..access import Subject
from ..turns import door, patrol, transcript
from .agent import Agent
from .doors import FORBIDDEN, NO_LOGIN, Refused, admit

_STATUS = {NO_LOGIN: 401, FORBIDDEN: 403}


_PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, HEAD, OPTIONS",
    "Access-Control-Max-Age": "86400",
}


@transaction.non_atomic_requests
async def get_messages(
    request: HttpRequest, name: str, agent: type[Agent]
) -> HttpResponse:
    """``GET .../get-messages``: the stored messages as a JSON array.

    A visitor whom the agent allows gets an id in the session here, because the
    socket that is opened next cannot set a cookie. Nothing else is made.
    Pages of the origins in ``CHAT_CORS_ORIGINS`` may read the answer.
    """
    cors = _cors(request)
    if request.method == "OPTIONS" and cors:
        wanted = request.headers.get("Access-Control-Request-Headers")
        headers = {"Access-Control-Allow-Headers": wanted} if wanted else {}
        return HttpResponse(headers=cors | _PREFLIGHT | headers)
    response = await _messages(request, name, agent)
    for header, value in cors.items():
        response[header] = value
    if conf.get().CHAT_CORS_ORIGINS:
        # Also what a page of another origin was refused is not for this one.
        patch_vary_headers(response, ["Origin"])
    return response


def _cors(request: HttpRequest) -> dict[str, str]:
    """What lets the page that asks read the answer; empty if it may not."""
    origin = request.headers.get("Origin", "")
    allowed = conf.get().CHAT_CORS_ORIGINS
    if origin and origin in allowed:
        return {
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Allow-Credentials": "true",
        }
    return {"Access-Control-Allow-Origin": "*"} if "*" in allowed else {}


async def _messages(
    request: HttpRequest, name: str, agent: type[Agent]
) -> HttpResponse:
    if request.method not in ("GET", "HEAD"):
        return HttpResponse(status=405, headers={"Allow": "GET, HEAD"})
    subject = Subject(await request.auser(), getattr(request, "session", None))
    try:
        admission = await admit(agent(), subject, name, create=True)
    except Refused as refused:
        status = _STATUS[refused.code]
        return HttpResponse("[]", content_type="application/json", status=status)
    patrol.start()
    texts = await door.run(transcript.texts, admission.ref)
    response = HttpResponse(f"[{','.join(texts)}]", content_type="application/json")
    response["Cache-Control"] = "no-store"
    return response


@method_decorator(never_cache, name="dispatch")
class ChatView(View):
    """The shipped page for one agent.

    The conversation is the URL's ``room``, else ``?room=``, else :attr:`room`.
    Context of the template: ``agent``, ``room``, ``title`` and ``chat``, a dict
    for ``json_script`` with ``agent``, ``name``, ``resume`` and the paths
    ``socket`` and ``messages``.
    """

    http_method_names = ["get", "head", "options"]  # noqa: RUF012
    agent: type[Agent] | None = None
    template_name = "django_streams/chat.html"
    room = "default"

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        agent = self.agent
        if agent is None:
            raise ImproperlyConfigured("ChatView.as_view(agent=...) needs an agent")
        if not request.user.is_authenticated:
            if not agent.allow_anonymous:
                return redirect_to_login(request.get_full_path())
            # The socket needs the visitor's id and cannot set its cookie.
            access.owner_key(request, create=True)
        room = kwargs.get("room") or request.GET.get("room") or self.room
        try:
            ids.check_id(room, "conversation name")
        except ValueError:
            raise PermissionDenied from None
        return render(request, self.template_name, self.get_context(agent, room))

    def get_context(self, agent: type[Agent], room: str) -> dict[str, Any]:
        """The template's context; extend it in a subclass."""
        path = f"{get_script_prefix()}agents/{agent.agent_name}/{quote(room, safe='')}"
        return {
            "agent": agent.agent_name,
            "room": room,
            "title": agent.title,
            "chat": {
                "agent": agent.agent_name,
                "name": room,
                "resume": agent.resume,
                "socket": path,
                "messages": f"{path}/get-messages",
            },
        }
