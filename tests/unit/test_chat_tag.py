"""The template tag, the words of the page and its static files."""

from __future__ import annotations

import gettext
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from django.contrib.staticfiles.finders import AppDirectoriesFinder
from django.contrib.staticfiles.storage import ManifestStaticFilesStorage
from django.core.files.storage import FileSystemStorage
from django.template import Context, Template
from django.template.loader import render_to_string
from django.urls import set_script_prefix
from django.utils import translation

import django_streams
from django_streams.templatetags.django_streams import STRINGS

PACKAGE = Path(django_streams.__file__).parent
SCRIPTS = PACKAGE / "static" / "django_streams"
LANGUAGES = ("ar", "de")


class Elements(HTMLParser):
    """Every element of a page, with its attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def chats(self) -> list[dict[str, str | None]]:
        return [
            attributes for _, attributes in self.found if "data-ds-chat" in attributes
        ]


def tag(arguments: str, **context: Any) -> Elements:
    template = Template("{% load django_streams %}{% chat " + arguments + " %}")
    return Elements(template.render(Context(context)))


def page(**context: Any) -> str:
    return render_to_string(
        "django_streams/chat.html", {"agent": "support-agent", "room": "a", **context}
    )


def test_the_tag_says_where_the_conversation_is() -> None:
    (chat,) = tag("'support-agent' room", room="a room/é?#").chats()
    assert chat["data-path"] == "/agents/support-agent/a%20room%2F%C3%A9%3F%23"


def test_a_site_below_a_prefix_is_addressed_there() -> None:
    set_script_prefix("/below/")
    try:
        (chat,) = tag("'support-agent' 'a'").chats()
    finally:
        set_script_prefix("/")
    assert chat["data-path"] == "/below/agents/support-agent/a"


def test_an_agent_class_says_its_name_and_whether_it_resumes() -> None:
    class Agent:
        agent_name = "support-agent"
        resume = False

    (chat,) = tag("agent 'a'", agent=Agent).chats()
    assert chat["data-path"] == "/agents/support-agent/a"
    assert chat["data-resume"] == "false"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [("", "true"), ("resume=False", "false"), ("resume=missing", "true")],
)
def test_a_running_reply_is_resumed_unless_it_is_said_otherwise(
    arguments: str, expected: str
) -> None:
    (chat,) = tag(f"'support-agent' 'a' {arguments}").chats()
    assert chat["data-resume"] == expected


def test_a_path_of_ones_own_is_taken_as_it_is() -> None:
    (chat,) = tag("'support-agent' 'a' path='/elsewhere/a'").chats()
    assert chat["data-path"] == "/elsewhere/a"


def test_what_a_page_is_given_is_text() -> None:
    hostile = '"><script>alert(1)</script>'
    elements = tag("agent hostile title=hostile", agent=hostile, hostile=hostile)
    scripts = [attributes for name, attributes in elements.found if name == "script"]
    assert scripts == [{"type": "application/json"}]
    assert hostile in elements.texts


def test_the_page_needs_no_inline_script_and_no_inline_style() -> None:
    for name, attributes in Elements(page()).found:
        assert name != "style"
        assert not [key for key in attributes if key.startswith("on") or key == "style"]
        if name == "script" and attributes.get("type") != "application/json":
            assert attributes["src"]


def test_two_conversations_on_one_page_share_no_id() -> None:
    html = Template(
        "{% load django_streams %}{% chat 'demo' 'a' %}{% chat 'demo' 'b' %}"
    ).render(Context())
    ids = [
        attributes["id"] for _, attributes in Elements(html).found if "id" in attributes
    ]
    assert len(ids) == 4
    assert len(set(ids)) == 4


@pytest.mark.parametrize(("language", "direction"), [("de", "ltr"), ("ar", "rtl")])
def test_the_page_speaks_the_readers_language(language: str, direction: str) -> None:
    with translation.override(language):
        elements = Elements(page())
    ((_, html),) = [item for item in elements.found if item[0] == "html"]
    assert (html["lang"], html["dir"]) == (language, direction)
    said = json.loads(next(text for text in elements.texts if '"copyFailed"' in text))
    assert said.keys() == STRINGS.keys()
    assert said["copy"] == catalogue(language)["Copy"] != "Copy"


def test_every_word_that_the_scripts_use_is_handed_over() -> None:
    scripts = "\n".join(path.read_text() for path in SCRIPTS.glob("*.js"))
    asked = set(re.findall(r"strings\.(\w+)", scripts))
    for names in re.findall(r"const \{([^}]*)\} =\s*this\.#strings", scripts):
        asked |= set(re.findall(r"\w+", names))
    states = {"closed", "connecting", "open", "reconnecting"}
    assert asked | states == set(STRINGS)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_word_is_translated_and_the_compiled_catalogue_is_the_written_one(
    language: str,
) -> None:
    words = set(STRINGS.values())
    for path in (PACKAGE / "templates" / "django_streams").glob("*.html"):
        words |= set(re.findall(r'{% translate "([^"]*)" %}', path.read_text()))
    assert catalogue(language).keys() == words
    path = folder(language) / "django.mo"
    with path.open("rb") as file:
        compiled = gettext.GNUTranslations(file)
    assert {word: compiled.gettext(word) for word in words} == catalogue(language)


def folder(language: str) -> Path:
    return PACKAGE / "locale" / language / "LC_MESSAGES"


def catalogue(language: str) -> dict[str, str]:
    """The entries of the written catalogue; each is one line and has no quote."""
    text = (folder(language) / "django.po").read_text()
    return dict(re.findall(r'^msgid "(.+)"\nmsgstr "(.+)"$', text, re.MULTILINE))


class Hashed(ManifestStaticFilesStorage):
    support_js_module_import_aggregation = True


def test_hashed_names_reach_the_imports_of_the_scripts(tmp_path: Path) -> None:
    finder = AppDirectoriesFinder(["django_streams"])
    storage = Hashed(location=str(tmp_path))
    paths: dict[str, tuple[FileSystemStorage, str]] = {}
    for name, source in finder.list([]):
        with source.open(name) as file:
            storage.save(name, file)
        paths[name] = (storage, name)
    for _, _, processed in storage.post_process(paths):
        assert not isinstance(processed, Exception), processed
    for name in paths:
        if not name.endswith(".js"):
            continue
        text = (tmp_path / storage.hashed_files[name]).read_text()
        for imported in re.findall(
            r'^(?:import|export) .*?"\./(.*?)";', text, re.M | re.S
        ):
            assert (tmp_path / "django_streams" / imported).exists()
            assert re.fullmatch(r"[\w-]+\.[0-9a-f]{12}\.js", imported), (name, imported)
