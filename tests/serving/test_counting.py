"""Numbers that the page shows are counted, and what is not known is not said to be nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.operations.cluster import PartitionOffsets
from headrace.operations.groups import Lag
from headrace.serving.feeds import Feeds
from headrace.serving.hub import Hub
from headrace.serving.overviewing import behind_of
from headrace.serving.row_counts import RowCounts
from headrace.serving.sampler import Look, Sampler, worst
from headrace.views.keeping import ViewState
from headrace.views.places import stores_at
from tests.views.memory_feed import MemoryFeed


def test_late_and_dead_rows_are_counted_without_the_markers_of_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = MemoryFeed(rows_at_once=2)
    counts, look = RowCounts(Feeds(lambda: feed)), Look(0.0)
    for at in range(1, 4):
        feed.append("shop.dead", b"k", b"{}")
        feed.skip("shop.dead")
        look.offsets["shop.dead", 0] = PartitionOffsets(0, 2 * at)
        assert counts.of("shop.dead", look) == counts.of("shop.dead", look) == (at, True)
    look.offsets["shop.dead", 0] = PartitionOffsets(2, 6)
    assert counts.of("shop.dead", look) == (2, True), "the oldest was deleted"
    feed.topics["shop.dead"][0].records.clear()
    look.offsets["shop.dead", 0] = PartitionOffsets(0, 0)
    assert counts.of("shop.dead", look) == (0, True), "the topic was made anew"
    look.offsets["gone", 0] = PartitionOffsets(0, 9)
    assert counts.of("nowhere", look) == (0, True)
    monkeypatch.setattr("headrace.serving.row_counts.COUNTED_AT_ONCE", 3)
    look.offsets["shop.dead", 0] = PartitionOffsets(0, 4)
    assert counts.of("shop.dead", look) == (4, False)


def test_what_is_not_known_of_groups_and_views_is_not_said_to_be_nothing() -> None:
    def group(lag: int | None, seconds: float | None) -> dict[str, Any]:
        return {"lag": lag, "lag_seconds": seconds}

    def told(*groups: dict[str, Any]) -> list[Any]:
        found = behind_of(groups)
        return [found[name] for name in ("lag", "lag_seconds", "groups_unmeasured", "groups_without_age")]

    assert told() == [0, 0.0, 0, 0]
    assert told(group(0, 0.0), group(0, None)) == [0, 0.0, 0, 0]
    assert told(group(5, 7.5), group(1, 2.0)) == [6, 7.5, 0, 0]
    assert told(group(5, None), group(0, 0.0)) == [5, None, 0, 1], "behind, and nobody knows how long"
    assert told(group(None, None), group(3, 4.0)) == [3, 4.0, 1, 1]
    assert told(group(None, None)) == [0, None, 1, 1]
    assert behind_of(None)["lag_seconds"] is None, "nobody has looked yet"
    assert (worst([]), worst([0.0, 3.0]), worst([0.0, None]), worst([None, 3.0])) == (0.0, 3.0, None, 3.0)


def test_the_freshness_of_a_view_is_unknown_until_this_process_has_seen_a_record_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.serving.hub.time.time", lambda: 1000.0)
    stores = stores_at(None, tmp_path / "views")
    hub = Hub(stores, lambda: MemoryFeed())
    spec: Any = None
    assert hub.freshness(ViewState(spec)) is None, "it is not built"
    assert hub.freshness(ViewState(spec, 1, {0: 5}, {0: 5})) == 0.0
    assert hub.freshness(ViewState(spec, 1, {0: 5}, {0: 6})) is None
    assert hub.freshness(ViewState(spec, 1, {0: 5}, {0: 6}, latest_ms=940_000)) == 60.0
    stores.close()


def test_a_group_with_a_partition_of_unknown_age_is_not_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    lags = [Lag("g", "t", part, 1, 1 + lag, lag, age) for part, (lag, age) in enumerate([(0, 0.0), (5, None)])]
    monkeypatch.setattr("headrace.serving.sampler.lags_of", lambda *_: lags)
    cluster: Any = None
    found = Sampler(lambda: cluster)._behind(cluster, {"group": "g", "type": "consumer"}, Look(0.0))
    assert (found["lag"], found["lag_seconds"]) == (5, None)
