"""The shipped view: one stream as server-sent events, behind the policy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from django.db import connections, transaction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.cache import patch_vary_headers
from django.views.decorators.http import require_safe

from .. import access, conf
from ..sse.response import not_found, respond
from ..sse.terms import Guard
from ..streams import Streams

View = TypeVar("View", bound=Callable[..., Awaitable[HttpResponseBase]])


def never_atomic(view: View) -> View:
    """*view*, taken out of ``ATOMIC_REQUESTS`` on every database.

    Django refuses async views under it, and a transaction that stays open as
    long as a response would hold its connection and its snapshot.
    """
    for alias in connections:
        view = transaction.non_atomic_requests(using=alias)(view)
    return view


@require_safe
async def stream_events(request: HttpRequest, stream_id: str) -> HttpResponseBase:
    """Replay and follow *stream_id*; 404 for whom the policy does not let read.

    Forbidden and unknown take the same path and the same time: the policy is
    asked either way. ``Vary`` is set here because a policy that reads the
    session for some owners only would otherwise show which ids exist.
    """
    settings = conf.get()
    streams = Streams(using=settings.DATABASE)
    owner = await streams.aowner_of(stream_id)
    if not await access.aallowed("read", request, owner) or owner is None:
        denial = not_found(stream_id)
        patch_vary_headers(denial, ["Cookie"])
        return denial

    async def still_allowed() -> bool:
        owner = await streams.aowner_of(stream_id)
        # Deleted is the reader's to tell; the policy has nothing to say on it.
        return owner is None or await access.aallowed_still("read", request, owner)

    return await respond(
        streams,
        stream_id,
        request=request,
        max_age=settings.SSE_MAX_AGE,
        guard=Guard(still_allowed, settings.ACCESS_RECHECK),
    )
