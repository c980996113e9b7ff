"""What is believed of what Connect says of a connector."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.capture import databases
from headrace.capture.connectors import Connector
from headrace.capture.declarations import Captured, Postgres
from headrace.capture.health import Health
from headrace.capture.problems import Refusing, Unreachable
from headrace.capture.settings import CaptureSettings
from headrace.capture.snapshots import Snapshots
from headrace.capture.watched import Watched

PORT = 8083


@pytest.fixture
def watched() -> Watched:
    source = Postgres("postgresql://nobody@localhost/none", table="t")
    connector = Connector("app", source.server, (Captured("t", source),))
    unasked: Any = None
    return Watched(
        connector, unasked, unasked, unasked, CaptureSettings("localhost:1", Path("/nowhere"), home=Path("/nowhere")), 1
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


def test_a_transaction_is_unconfirmed_while_the_slot_is_before_its_end_and_no_snapshot_is_under_way(
    watched: Watched,
) -> None:
    assert watched.unconfirmed is None
    watched.health, watched.offset = Health(confirmed=100), {"lsn": 150, "lsn_proc": 150}
    assert watched.unconfirmed is None
    for end, found in ((99, None), (100, None), (101, 100)):
        watched.offset = {"lsn": 150, "lsn_commit": end}
        assert watched.unconfirmed == found
    watched.offset = {"lsn": 150, "lsn_commit": 101, "snapshot": "INITIAL"}
    assert watched.unconfirmed is None
    watched.health, watched.offset = Health(), {"file": "binlog.000001", "pos": 4}
    assert watched.unconfirmed is None


class NothingDue:
    are_due = False
    captured = None

    def refusal(self, health: Health) -> None:
        """The database is the one that was captured."""

    def note(self, health: Health, offset: object) -> None:
        """Nothing is noted."""


def test_what_a_database_does_not_do_is_its_trouble_told_once_until_it_does_it(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    answers: list[Health | Exception] = []

    def health(*_: object) -> Health:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(databases, "health", health)
    monkeypatch.setattr(watched, "beats", NothingDue())
    monkeypatch.setattr(watched, "errands", NothingDue())
    denied, away = Refusing("it does not let us.", hint="GRANT SELECT;"), Unreachable("it is down.")
    states = []
    for answer in (denied, denied, away, denied, Health()):
        answers.append(answer)
        watched.try_to_look({}, told.append)
        watched.describe("RUNNING", Snapshots(), 1, told.append)
        states.append((watched.tables["t"].state, watched.tables["t"].last_error))
    lacking = ("failed", "it does not let us. Hint: GRANT SELECT;")
    assert states == [lacking, lacking, ("waiting", "it is down."), lacking, ("starting", None)]
    assert told == [lacking[1]] * 2
