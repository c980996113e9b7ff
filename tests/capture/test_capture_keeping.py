"""Topics that are there already keep what a captured table needs, or it is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

import headrace as hr
from headrace.capture.declarations import Captured, Outbox, Postgres, SQLite
from headrace.capture.keeping import ensure_table_topic
from headrace.errors import HeadraceError
from headrace.feed.cluster import Cluster
from headrace.feed.topics import COMPACTED, ensure_topic, settings_of_topic
from headrace.pipelines import captured
from headrace.pipelines.captured import ensure_input_topic
from tests.servers import Headrace


def policy(cluster: Cluster, topic: str) -> tuple[str, str]:
    found = settings_of_topic(cluster, topic)
    return found["cleanup.policy"], found["retention.ms"]


def table(name: str, *, history: bool) -> Captured:
    return Captured(name, SQLite("shop.sqlite", table="t"), history=history)


def test_a_new_topic_is_as_declared_and_nothing_is_told(log: Headrace) -> None:
    cluster, told = Cluster(log.bootstrap, {}), list[str]()
    for name, history in (("kept-latest", False), ("kept-all", True)):
        for _ in range(2):
            ensure_table_topic(cluster, table(name, history=history), told.append)
    assert policy(cluster, "kept-latest")[0] == "compact"
    assert policy(cluster, "kept-all") == ("delete", "-1")
    assert told == []


def test_a_topic_with_history_stays_so_without_it_and_the_command_that_changes_it_is_told(log: Headrace) -> None:
    cluster, told = Cluster(log.bootstrap, {}), list[str]()
    ensure_table_topic(cluster, table("had-history", history=True), told.append)
    ensure_table_topic(cluster, table("had-history", history=False), told.append)
    assert policy(cluster, "had-history") == ("delete", "-1")
    (sentence,) = told
    assert "`headrace topic alter had-history --set cleanup.policy=compact`" in sentence


@pytest.mark.parametrize("settings", [{}, {"cleanup.policy": "compact,delete", "retention.ms": "1000"}])
def test_a_topic_that_lets_rows_go_is_refused_and_with_history_it_is_changed(
    log: Headrace, settings: dict[str, str]
) -> None:
    cluster, told, name = Cluster(log.bootstrap, {}), list[str](), f"lets-go-{len(settings)}"
    ensure_topic(cluster, name, 1, settings)
    with pytest.raises(HeadraceError, match="would vanish") as refused:
        ensure_table_topic(cluster, table(name, history=False), told.append)
    assert f"headrace topic alter {name} --set cleanup.policy=compact" in str(refused.value.hint)
    ensure_table_topic(cluster, table(name, history=True), told.append)
    assert policy(cluster, name) == ("delete", "-1")
    assert len(told) == 1


def test_a_topic_of_several_partitions_is_refused_for_a_table_of_a_server(log: Headrace) -> None:
    cluster = Cluster(log.bootstrap, {})
    ensure_topic(cluster, "apart", 3, COMPACTED)
    lines = Captured("apart", Postgres("postgresql://localhost/shop", table="lines"))
    with pytest.raises(HeadraceError, match="has 3 partitions, not 1") as refused:
        ensure_table_topic(cluster, lines, print)
    assert "headrace topic delete apart" in str(refused.value.hint)
    ensure_table_topic(cluster, replace(lines, outbox=Outbox(lines.source)), print)
    ensure_table_topic(cluster, table("apart", history=False), print)


def test_the_topic_of_a_captured_table_is_made_with_one_partition_whatever_the_log_makes_by_default(
    log: Headrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: dict[str, int] = {}
    monkeypatch.setattr(captured, "ensure_topic", lambda _, topic, partitions, __: made.update({topic: partitions}))
    monkeypatch.setattr(captured, "settings_of_topic", lambda _, __: {"cleanup.policy": "compact"})
    app = hr.App("shop")
    app.table("customers", "id long", key="id", capture=Postgres("postgresql://localhost/shop", table="c"))
    app.table("plain", "id long", key="id")
    for one in app:
        ensure_input_topic(Cluster(log.bootstrap, {}), one, print)  # type: ignore[arg-type]
    assert made == {"customers": 1, "plain": -1}


def test_the_topic_of_a_table_that_is_not_captured_is_left_alone_and_told_of(log: Headrace) -> None:
    cluster, told, app = Cluster(log.bootstrap, {}), list[str](), hr.App("shop")
    ensure_topic(cluster, "somebodys", 1, COMPACTED)
    ensure_topic(cluster, "going", 1, {})
    ensure_topic(cluster, "staying", 1, {"retention.ms": "-1"})
    app.table("somebodys", "id long", key="id", history=True)
    app.table("ours", "id long", key="id", history=True)
    for name in ("going", "staying", "latest"):
        app.table(name, "id long", key="id")
    app.stream("events", "id long")
    for one in app:
        ensure_input_topic(cluster, one, told.append)  # type: ignore[arg-type]
    assert policy(cluster, "somebodys")[0] == "compact"
    assert policy(cluster, "ours") == ("delete", "-1")
    assert policy(cluster, "going") == ("delete", "604800000")
    assert policy(cluster, "latest")[0] == "compact"
    assert policy(cluster, "events") == ("delete", "604800000")
    versions, rows = told
    assert "headrace topic alter somebodys --set cleanup.policy=delete" in versions
    assert "table going: its topic lets records go after a while" in rows
    assert "headrace topic alter going --set retention.ms=-1 --set retention.bytes=-1`" in rows
