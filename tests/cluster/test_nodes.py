"""Several nodes serve the same views: they share the work and take over; who was replaced is fenced."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from headrace.client import connect
from tests.capture.databases import Postgres
from tests.servers import Headrace, KafkaCluster, ViewsNode
from tests.serving.live import Changelogs, _children, _serves, eventually

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

COLUMNS = {"name": "string", "number": "bigint"}
VIEWS = ("apples", "pears", "plums", "grapes")


@pytest.fixture
def views(new_views: Callable[[], str]) -> str:
    return new_views()


@pytest.fixture(params=["cluster", "headrace"])
def nodes(request: pytest.FixtureRequest, tmp_path: Path, views: str) -> Iterator[Sequence[Headrace]]:
    """Two nodes with the same views: both of Apache Kafka, or one with a log and one without."""
    env = {"HEADRACE_VIEWS": views}
    with ExitStack() as stack:
        if request.param == "cluster":
            log: KafkaCluster = request.getfixturevalue("cluster")
            first: Headrace = ViewsNode(tmp_path / "first", log.bootstrap, env=env)
        else:
            first = Headrace(tmp_path / "first", http="127.0.0.1:0", env=env)
        stack.callback(first.stop)
        second = ViewsNode(tmp_path / "second", first.bootstrap, env=env)
        stack.callback(second.stop)
        yield first, second


def owners(postgres: Postgres, views: str, app: str) -> Counter[str]:
    """How many views of an app each process keeps."""
    found = postgres.execute(f"select owner from {app}.headrace_owners", views.rpartition("/")[2])
    return Counter(owner for (owner,) in found)


def rows(node: Headrace, app: str) -> dict[str, dict[str, Any]]:
    client = connect(node.web)
    return {view: {row["name"]: row["number"] for row in client.view(f"{app}.{view}").rows()} for view in VIEWS}


def test_views_are_shared_taken_over_and_never_written_by_two(
    nodes: Sequence[Headrace], postgres: Postgres, views: str, new_app: Callable[[], str]
) -> None:
    app, (first, second) = new_app(), nodes
    log, model = Changelogs(first.bootstrap), {view: dict[str, int]() for view in VIEWS}

    def write(name: str, number: int) -> None:
        for view in VIEWS:
            log.write(f"{app}.{view}", [({"name": name}, {"name": name, "number": number})])
            model[view][name] = number

    for view in VIEWS:
        log.declare(app, view, ["name"], COLUMNS)
    write("both", 1)
    shared = eventually(lambda: owners(postgres, views, app), lambda found: sorted(found.values()) == [2, 2])
    for node in nodes:
        eventually(lambda node=node: rows(node, app), lambda found: found == model)  # type: ignore[misc]

    [serving] = [pid for pid in _children(second.pid) if _serves(pid)]
    os.kill(serving, signal.SIGSTOP)  # it does not know that time goes on
    try:
        eventually(lambda: owners(postgres, views, app), lambda found: list(found.values()) == [4])
        write("both", 2)
        write("one", 1)
        eventually(lambda: rows(first, app), lambda found: found == model)
    finally:
        os.kill(serving, signal.SIGCONT)
    eventually(lambda: rows(second, app), lambda found: found == model)
    again = eventually(lambda: owners(postgres, views, app), lambda found: sorted(found.values()) == [2, 2])
    assert set(again) == set(shared), "the same processes, none of them started anew"
    write("back", 1)

    second.kill9()
    write("both", 3)
    eventually(lambda: rows(first, app), lambda found: found == model)
    assert len(owners(postgres, views, app)) == 1
    second.start()
    eventually(lambda: owners(postgres, views, app), lambda found: sorted(found.values()) == [2, 2])
    write("both", 4)
    for node in nodes:
        eventually(lambda node=node: rows(node, app), lambda found: found == model)  # type: ignore[misc]
