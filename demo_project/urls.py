"""The chat at ``/``, its HTTP doors beside it, and the streams' events."""

from __future__ import annotations

from django.contrib.staticfiles.urls import staticfiles_urlpatterns
from django.urls import include, path

from django_streams.chat import ChatView, agent_urls

from .agents import DemoAgent

urlpatterns = [
    path("", ChatView.as_view(agent=DemoAgent), name="chat"),
    path("", include(agent_urls(DemoAgent))),
    path("", include("django_streams.http.urls")),
    # Static files under the daphne command too; only while DEBUG is on.
    *staticfiles_urlpatterns(),
]
