"""Jars that are fetched are those of the list, byte for byte, or nothing is installed."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from headrace.capture import jars as fetching
from headrace.capture.jars import Jar, fetcher, install, is_installed
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


@pytest.mark.system
@pytest.mark.timeout(300)
def test_what_pyspark_carries_fetches_jars_where_maven_is_not_and_progress_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wanted = tuple(jar for jar in fetching.jars() if jar.artifact == "jackson-annotations")
    assert len(wanted) == 3, "one jar, in two versions, for three class paths"
    home, told = tmp_path / "capture", list[tuple[int, int]]()
    monkeypatch.setattr(fetching, "jars", lambda: wanted)
    assert install(home, lambda *progress: told.append(progress), using="ivy")
    assert is_installed(home)
    assert sorted(str(path.relative_to(home)) for path in home.rglob("*.jar")) == [
        "binlog/debezium/jackson-annotations-2.19.0.jar",
        "postgres/debezium/jackson-annotations-2.21.jar",
        "worker/jackson-annotations-2.21.jar",
    ]
    assert told[-1] == (3, 3)
    assert len(told) > 1, "told while they are fetched too"
    assert told == sorted(told)


def test_where_maven_is_not_what_pyspark_carries_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching.shutil, "which", lambda program: None if program == "mvn" else f"/bin/{program}")
    assert fetcher() == "ivy"
    monkeypatch.setattr(fetching.shutil, "which", lambda program: None)
    with pytest.raises(HeadraceError, match="nothing here can fetch jars"):
        fetcher()


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
