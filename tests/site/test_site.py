"""The site builds without a warning, is whole in itself, and its reference leaves nothing out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from typer.main import get_command

import headrace
import headrace.client
import headrace.testing
from headrace.cli.app import app
from tests.documents import ROOT

pytestmark = pytest.mark.system

LOADING = {
    ("audio", "src"),
    ("embed", "src"),
    ("form", "action"),
    ("iframe", "src"),
    ("image", "href"),
    ("img", "src"),
    ("img", "srcset"),
    ("link", "href"),
    ("object", "data"),
    ("script", "src"),
    ("source", "src"),
    ("use", "href"),
    ("video", "src"),
}
"""Attributes that make a browser fetch something."""
FETCHED_BY_STYLE = re.compile(r"""url\(\s*["']?([^"')]+)|@import\s+["']([^"']+)""")
SPOKEN_OF = {"F", "__version__"}
"""Names whose reference is elsewhere: Spark's functions, and the version."""


@dataclass
class Read(HTMLParser):
    """What a page has to be followed up."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    styles: list[str] = field(default_factory=list)
    unlabelled: int = 0

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        self.styles += [values["style"]] if "style" in values else []
        self.loaded += [value for name, value in values.items() if (tag, name.removeprefix("xlink:")) in LOADING]
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag == "svg" and values.get("class") == "hp" and len(values.get("aria-label", "")) < 40:
            self.unlabelled += 1


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [
        str(Path(sys.executable).with_name("mkdocs")),
        "build",
        "--strict",
        "--site-dir",
        str(folder),
    ]  # not --quiet: that is not strict
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Read]:
    found = {}
    for path in site.rglob("*.html"):
        found[path] = Read()
        found[path].feed(path.read_text())
    return found


def test_no_page_loads_anything_from_another_host(site: Path, pages: dict[Path, Read]) -> None:
    for path, page in pages.items():
        text = path.read_text()
        inline = re.findall(r"<style[^>]*>(.*?)</style>", text, flags=re.DOTALL)
        styled = [one or other for one, other in FETCHED_BY_STYLE.findall("\n".join([*inline, *page.styles]))]
        assert [url for url in [*page.loaded, *styled] if urlsplit(url).netloc] == [], path.name
    for path in site.rglob("*.css"):
        fetched = [one or other for one, other in FETCHED_BY_STYLE.findall(path.read_text())]
        assert [url for url in fetched if urlsplit(url).netloc] == [], path.name


def test_every_link_and_anchor_inside_the_site_leads_somewhere(site: Path, pages: dict[Path, Read]) -> None:
    followed = 0
    for path, page in pages.items():
        if path.name == "404.html":
            continue
        for link in [*page.links, *page.loaded]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            assert target.exists(), f"{path.relative_to(site)} links to {link}"
            assert not parts.fragment or unquote(parts.fragment) in pages[target].ids, f"{path.name}: {link}"
            followed += 1
    assert followed > 500


def test_every_picture_says_what_it_shows(pages: dict[Path, Read]) -> None:
    assert [path.name for path, page in pages.items() if page.unlabelled] == []
    assert sum('class="hp"' in path.read_text() for path in pages) >= 7


def test_the_pictures_are_as_they_are_drawn(tmp_path: Path) -> None:
    drawing = ROOT / "scripts" / "site" / "pictures" / "draw.py"
    subprocess.run([sys.executable, "-B", str(drawing), str(tmp_path)], check=True, cwd=ROOT, timeout=60)
    drawn = {path.name: path.read_text() for path in tmp_path.iterdir()}
    kept = {path.name: path.read_text() for path in (ROOT / "docs" / "pictures").iterdir()}
    assert drawn == kept, "draw them again: .venv/bin/python scripts/site/pictures/draw.py"


def test_every_public_name_is_in_the_reference(site: Path, pages: dict[Path, Read]) -> None:
    ids = set().union(*(page.ids for path, page in pages.items() if path.parent.name == "reference"))
    wanted = {f"headrace.{name}" for name in headrace.__all__ if name not in SPOKEN_OF}
    wanted |= {f"headrace.testing.{name}" for name in headrace.testing.__all__}
    wanted |= {f"headrace.client.{name}" for name in headrace.client.__all__ if name != "connect"}
    assert wanted - ids == set()
    text = (site / "reference" / "app.html").read_text()
    assert all(name in text for name in SPOKEN_OF)


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    context = command.make_context(name, [], resilient_parsing=True)
    for below in command.list_commands(context):
        found = command.get_command(context, below)
        yield f"{name} {below}", found
        if hasattr(found, "list_commands"):
            yield from commands(found, f"{name} {below}")


def test_every_command_and_every_option_is_in_the_reference(site: Path, pages: dict[Path, Read]) -> None:
    path = site / "reference" / "commands.html"
    parts = re.split(r'<h[23] id="(headrace[\w-]*)"', path.read_text())
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    found = dict(commands(get_command(app), "headrace"))
    assert len(found) > 40
    assert {name.replace(" ", "-") for name in found} - pages[path].ids == set()
    for name, command in found.items():
        if not hasattr(command, "list_commands"):
            shown = set(re.findall(r"<code>(-[-\w]*)", sections[name.replace(" ", "-")]))
            options = {option for one in command.params if one.param_type_name == "option" for option in one.opts}
            assert options - shown == set(), name


def test_every_document_is_in_the_navigation() -> None:
    said = (ROOT / "mkdocs.yml").read_text()
    listed = set(re.findall(r"^ +- ([\w/-]+\.md)$", said, flags=re.MULTILINE))
    there = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert there - listed == set(), "list it in mkdocs.yml, under nav"
    made = {name for name in listed if name.startswith("reference/")}
    assert listed - there - made == set(), "it is in the navigation and not there"
