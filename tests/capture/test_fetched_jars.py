"""Jars that are fetched are those of the list, byte for byte, or nothing is installed."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from headrace.capture import jars as fetching
from headrace.capture.jars import Jar, install, is_installed
from headrace.errors import HeadraceError

RIGHT = Jar("worker", "org.example", "right", "1", hashlib.sha256(b"right").hexdigest())
OTHER = Jar("postgres", "org.example", "other", "2", hashlib.sha256(b"other").hexdigest())


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> dict[Jar, str]:
    """What a registry has for each jar of the list; may be changed."""
    found = {RIGHT: "right", OTHER: "other"}

    def fetch(wanted: tuple[Jar, ...], part: Path) -> list[str]:
        lines = [f"printf {found[jar]} > {part / jar.folder / jar.file}" for jar in wanted if jar in found]
        return ["sh", "-c", "; ".join(lines)]

    monkeypatch.setattr(fetching, "jars", lambda: (RIGHT, OTHER))
    monkeypatch.setattr(fetching, "_maven", fetch)
    return found


def test_jars_with_the_right_checksums_are_installed(fetched: dict[Jar, str], tmp_path: Path) -> None:
    home = tmp_path / "capture"
    assert install(home, using="maven")
    assert is_installed(home)
    assert (home / "postgres" / "debezium" / "other-2.jar").read_text() == "other"
    assert not install(home, using="maven")


def test_a_jar_that_was_changed_or_is_not_there_is_refused_and_what_was_installed_stays(
    fetched: dict[Jar, str], tmp_path: Path
) -> None:
    home = tmp_path / "capture"
    home.mkdir()
    (home / "before").touch()
    fetched[OTHER] = "changed"
    with pytest.raises(HeadraceError, match=r"org\.example:other:2 is not the jar") as refused:
        install(home, using="maven")
    assert OTHER.sha256 in (refused.value.detail or "")
    assert hashlib.sha256(b"changed").hexdigest() in (refused.value.detail or "")
    del fetched[OTHER]
    with pytest.raises(HeadraceError, match="is not the jar") as refused:
        install(home, using="maven")
    assert "nothing" in (refused.value.detail or "")
    assert [path.name for path in tmp_path.iterdir()] == ["capture"]
    assert [path.name for path in home.iterdir()] == ["before"]
    assert not is_installed(home)
