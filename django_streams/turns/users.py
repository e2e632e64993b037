"""Who asked, from the key that a turn keeps."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AnonymousUser


def load(user_key: str) -> Any:
    """The user of ``u:<pk>``; an ``AnonymousUser`` for anybody else."""
    kind, _, pk = user_key.partition(":")
    if kind != "u":
        return AnonymousUser()
    found = get_user_model()._base_manager.filter(pk=pk).first()
    return AnonymousUser() if found is None else found
