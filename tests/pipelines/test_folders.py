"""Checkpoints elsewhere than in a folder of this machine: the same laws for both kinds of folder, and an app whose
checkpoints are at a URL that only Spark's file systems know.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace as hr
from headrace.cli.state import checkpoint_of
from headrace.errors import InvalidConfig
from headrace.pipelines.folders import Folder, HadoopFolder, LocalFolder, local_path, open_folder
from headrace.pipelines.generations import CheckpointLost
from headrace.pipelines.rescale import rescale
from headrace.pipelines.state.inspect import read_state
from headrace.testing import AppUnderTest, Crash
from headrace.testing.app import shared_spark

pytestmark = pytest.mark.system


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A place of Hadoop's: a table of its own says which folder it stands for."""
    name, place = f"far{uuid.uuid4().hex[:8]}", tmp_path / "far"
    place.mkdir()
    link = f"fs.viewfs.mounttable.{name}.link./shared"
    settings = shared_spark().sparkContext._jsc.hadoopConfiguration()
    settings.set(link, place.as_uri())
    yield f"viewfs://{name}/shared"
    settings.unset(link)


@pytest.fixture(params=["local", "elsewhere"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    if request.param == "local":
        return LocalFolder(tmp_path / "far" / "one")
    return HadoopFolder(shared_spark(), f"{request.getfixturevalue('url')}/one")


def test_a_folder_holds_files_by_name(folder: Folder) -> None:
    assert (folder.name, folder.exists("a"), folder.names(), list(folder.files("a"))) == ("one", False, [], [])
    for name, data in (
        ("a", b"\x00\xff"),
        ("commits/7", b"7"),
        ("commits/10", b""),
        ("state/0/1/2.changelog", b"x" * 100_000),
    ):
        folder.write(name, data)
        assert folder.read(name) == data
    folder.write("a", b"again")
    folder.sync(["a", "commits/7", "not there"])
    assert (folder.read("a"), folder.exists("commits"), folder.exists("commits/8")) == (b"again", True, False)
    names = [name for name in folder.names() if not name.endswith(".crc")]
    assert names == ["a", "commits", "state"]
    assert [name for name in folder.names("commits") if name.isdigit()] == ["10", "7"]
    assert [file for file in folder.files("state") if not file.endswith(".crc")] == ["state/0/1/2.changelog"]
    with pytest.raises(FileNotFoundError):
        folder.read("b")


def test_a_folder_is_renamed_and_removed(folder: Folder) -> None:
    folder.write("below/file", b"1")
    folder.remove("below/file")
    folder.remove("below/file")
    folder.write("file", b"2")
    assert folder.changed_ms() > 0
    other = folder.beside("two")
    folder.rename(other)
    assert (folder.exists(""), other.read("file"), other.name) == (False, b"2", "two")
    assert folder.beside("two").below("below").names() == []
    other.delete()
    other.delete()
    assert not other.exists("file")


def test_a_place_is_a_path_a_file_url_or_a_url() -> None:
    assert local_path("/a b/c") == Path("/a b/c") == local_path("file:///a%20b/c") == local_path("file:/a b/c")
    assert local_path("a/b") == Path("a/b")
    assert local_path("s3a://bucket/a") is None
    assert local_path("hdfs:///a") is None


def test_a_file_system_that_spark_does_not_know_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"checkpoints cannot be at nowhere://a/b: .*spark\.jars\.packages"):
        open_folder(shared_spark, "nowhere://a/b")


def test_an_app_with_checkpoints_elsewhere_goes_on_is_looked_at_and_rescaled(tmp_path: Path, url: str) -> None:
    app = hr.App("far")
    app.stream("orders", "id string, who string, amount long")

    @app.view(key=["who", "rank"])
    def best(orders):
        return hr.top(orders, 2, by="who", order="-amount, id")

    def order(number: int) -> dict[str, object]:
        return {"id": str(number), "who": "ab"[number % 2], "amount": number}

    def found() -> set[tuple[str, int, int]]:
        return {(row["who"], row["rank"], row["amount"]) for row in under.view("best")}

    with AppUnderTest(app, tmp_path, checkpoints=url) as under:
        under.send("orders", *map(order, range(4)), Crash("before-commit"), *map(order, range(4, 8)), Crash())
        assert found() == {("a", 1, 6), ("a", 2, 4), ("b", 1, 7), ("b", 2, 5)}
        assert not list((tmp_path / "checkpoints").rglob("offsets")), "nothing of it is here"
        where = checkpoint_of(url, "far.best", shared_spark)
        assert where.where.startswith(url)
        (table,) = read_state(shared_spark(), where.where)
        assert len(table.rows) == 4

        under.stop()
        assert rescale(shared_spark, under.cluster, where.where, 5) == 2
        under.start()
        under.send("orders", order(9), order(1))
        assert found() == {("a", 1, 6), ("a", 2, 4), ("b", 1, 9), ("b", 2, 7)}

        under.stop()
        where.delete()
        with pytest.raises(CheckpointLost, match=url):
            under.start()
