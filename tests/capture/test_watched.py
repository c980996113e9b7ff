"""What is believed of what Connect says of a connector."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.capture.connectors import Connector
from headrace.capture.declarations import Captured, Postgres
from headrace.capture.settings import CaptureSettings
from headrace.capture.watched import Watched

PORT = 8083


@pytest.fixture
def watched() -> Watched:
    source = Postgres("postgresql://nobody@localhost/none", table="t")
    connector = Connector("app", source.server, (Captured("t", source),))
    unasked: Any = None
    return Watched(
        connector, unasked, unasked, CaptureSettings("localhost:1", Path("/nowhere"), home=Path("/nowhere")), 1
    )


def status(connector: str, *tasks: str, port: int = PORT, trace: str = "") -> dict[str, Any]:
    where = {"worker_id": f"127.0.0.1:{port}"}
    found = [{"id": 0, "state": task, "trace": trace, **where} for task in tasks]
    return {"connector": {"state": connector, **where}, "tasks": found}


def test_what_the_task_is_counts_unless_the_connector_itself_stands(watched: Watched) -> None:
    assert watched.seen(status("RUNNING", "RUNNING"), PORT).state == "RUNNING"
    assert watched.seen(status("RUNNING", "FAILED"), PORT).state == "FAILED"
    assert watched.seen(status("STOPPED"), PORT).state == "STOPPED"
    assert watched.seen(status("STOPPED", "RUNNING"), PORT).state == "STOPPED"


def test_what_was_said_of_a_worker_that_is_gone_does_not_count(watched: Watched) -> None:
    for state in ("RUNNING", "FAILED"):
        assert watched.seen(status("RUNNING", state, port=9999), PORT).state == "UNASSIGNED"
    assert watched.seen(status("STOPPED", port=9999), PORT).state == "UNASSIGNED"


def test_it_is_to_run_unless_it_is_paused_or_refused(watched: Watched) -> None:
    assert watched.is_to_run
    watched.is_paused = True
    assert not watched.is_to_run
    watched.is_paused = False
    watched.seen(status("RUNNING", "FAILED", trace="x\nCaused by: the replication slot is ahead of it"), PORT)
    assert not watched.is_to_run
