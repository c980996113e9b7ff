"""What a connector is still to be told is not forgotten while its database is away."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from headrace.capture.connectors import Connector
from headrace.capture.declarations import Captured
from headrace.capture.declarations import Postgres as Source
from headrace.capture.errands import Errands
from headrace.capture.problems import Unreachable
from headrace.feed.catalog import Catalog
from headrace.feed.cluster import Cluster
from tests.servers import Headrace


def test_what_a_database_did_not_take_is_told_by_the_next_run(log: Headrace) -> None:
    sources = [Source("postgresql://nobody@localhost/none", table=name) for name in ("a", "b")]
    a, b = (Captured(source.table, source) for source in sources)
    cluster = Cluster(log.bootstrap, {})
    catalog = Catalog(cluster)
    connector = Connector("errands", sources[0].server, (a, b))
    told: list[Any] = []

    def read_row(table: Captured, key: Mapping[str, Any]) -> None:
        if key == {"id": 2} and len(told) == 1:
            raise Unreachable("it went away.")
        told.append((table.name, dict(key)))

    first = Errands(cluster, catalog, connector)
    first.read()
    assert not first.are_due
    for key in (1, 2, 2):
        first.note_row(a, {"id": key})
    first.note_table(b)
    with pytest.raises(Unreachable):
        first.tell_of_rows(read_row)
    assert told == [("a", {"id": 1})]
    catalog.flush()

    told.append("the database is back")
    second = Errands(cluster, catalog, connector)
    second.read()
    assert second.are_due
    second.tell_of_rows(read_row)
    second.tell_of_tables(lambda table: told.append(table.name))
    assert told[2:] == [("a", {"id": 2}), "b"]
    assert not second.are_due
    catalog.flush()

    third = Errands(cluster, catalog, connector)
    third.read()
    assert not third.are_due
