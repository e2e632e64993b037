"""The access policy: what is not granted is denied."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured, PermissionDenied

from django_streams import access
from django_streams.access import AccessPolicy, OwnerPolicy, Subject

ADA = SimpleNamespace(pk=7, is_authenticated=True)
NOBODY = SimpleNamespace(pk=None, is_authenticated=False)
ACTIONS: tuple[access.Action, ...] = ("read", "write", "control")


class PublicPolicy(AccessPolicy):
    """Everybody reads, nobody writes."""

    def can_read(self, subject: Subject, owner_key: str) -> bool:
        return True


class RaisingPolicy(AccessPolicy):
    def can_read(self, subject: Subject, owner_key: str) -> bool:
        raise PermissionDenied


def visitor(name: str) -> dict[str, str]:
    return {access.SESSION_NAME: name}


@pytest.mark.parametrize("action", ACTIONS)
def test_the_owner_may_do_everything(action: access.Action) -> None:
    assert access.allowed(action, Subject(ADA), "u:7")
    assert access.allowed(action, Subject(None, visitor("x")), "a:x")


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("key", ["u:8", "a:7", "a:y", "", None, "u:", "a:", "u:None"])
@pytest.mark.parametrize(
    "subject",
    [
        Subject(),
        Subject(ADA),
        Subject(NOBODY, {}),
        Subject(NOBODY, visitor("")),
        Subject(ADA, visitor("x")),
        Subject(None, {access.SESSION_NAME: 7}),
    ],
)
def test_nobody_else_may_do_anything(
    action: access.Action, key: str | None, subject: Subject
) -> None:
    assert not access.allowed(action, subject, key)


def test_a_visitor_who_logged_in_still_holds_the_visitors_key() -> None:
    subject = Subject(ADA, visitor("x"))
    assert subject.owner_keys() == {"u:7", "a:x"}
    assert access.owner_key(subject) == "u:7"


@pytest.mark.parametrize(
    "source",
    [
        SimpleNamespace(user=ADA, session={}),
        {"type": "websocket", "user": ADA, "session": {}},
        Subject(ADA, {}),
    ],
)
def test_requests_scopes_and_subjects_are_understood(source: Any) -> None:
    assert access.owner_key(source) == "u:7"


def test_asking_makes_no_key_for_a_visitor() -> None:
    session: dict[str, str] = {}
    assert access.owner_key({"session": session}) is None
    assert not access.allowed("read", {"session": session}, "a:x")
    assert session == {}


def test_a_visitor_gets_one_unguessable_key_and_keeps_it() -> None:
    session: dict[str, str] = {}
    key = access.owner_key({"session": session}, create=True)
    assert key is not None
    assert key.startswith("a:")
    assert len(key) >= 24
    assert access.owner_key({"session": session}, create=True) == key
    assert access.allowed("read", {"session": session}, key)
    other = access.owner_key({"session": {}}, create=True)
    assert other != key


def test_the_base_policy_denies_everything() -> None:
    policy = AccessPolicy()
    subject = Subject(ADA)
    assert not policy.can_read(subject, "u:7")
    assert not policy.can_write(subject, "u:7")
    assert not policy.can_control(subject, "u:7")


def test_a_projects_policy_is_asked_and_what_it_does_not_grant_is_denied(
    settings: Any,
) -> None:
    settings.DJANGO_STREAMS = {"ACCESS_POLICY": f"{__name__}.PublicPolicy"}
    assert access.allowed("read", Subject(), "u:7")
    assert not access.allowed("write", Subject(ADA), "u:7")


def test_permission_denied_is_a_denial(settings: Any) -> None:
    settings.DJANGO_STREAMS = {"ACCESS_POLICY": f"{__name__}.RaisingPolicy"}
    assert not access.allowed("read", Subject(ADA), "u:7")


def test_the_default_policy_is_the_owners() -> None:
    assert type(access.get_policy()) is OwnerPolicy


@pytest.mark.parametrize(
    "path", ["nowhere.Policy", "Policy", f"{__name__}.ADA", "builtins.dict", 7, None]
)
def test_a_policy_that_cannot_be_made_is_told_in_words(
    settings: Any, path: object
) -> None:
    settings.DJANGO_STREAMS = {"ACCESS_POLICY": path}
    with pytest.raises(ImproperlyConfigured, match=r"ACCESS_POLICY.*AccessPolicy"):
        access.get_policy()
