"""A query in the care of its thread: what is tried again, what is waited for, what is given up and said."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace.errors import HeadraceError, InvalidDeclaration, ServerAway
from headrace.pipelines import running
from headrace.pipelines.running import ATTEMPTS, RunningQuery
from headrace.pipelines.sink import Superseded


class Query:
    """Stands for Spark's: ends when it is told to, or at once with an error."""

    def __init__(self, error: BaseException | None = None, batch: int = 0) -> None:
        self.isActive = error is None
        self.lastProgress: dict[str, Any] = {"batchId": batch, "numInputRows": 1, "eventTime": {}}
        self._error = error

    def exception(self) -> BaseException | None:
        return self._error

    def stop(self) -> None:
        self.isActive = False


class Job:
    """Gives one query after the other."""

    app, name, kind = "shop", "revenue", "view"

    def __init__(self, bootstrap: str, *queries: Query | Exception) -> None:
        self.bootstrap, self._queries = bootstrap, list(queries)
        self.started = 0

    def start(self) -> Any:
        self.started += 1
        one = self._queries.pop(0) if len(self._queries) > 1 else self._queries[0]
        if isinstance(one, Exception):
            raise one
        return one

    def failure(self) -> BaseException | None:
        return None

    def counts(self) -> dict[str, int]:
        return {"rows_in": 7, "late": 2, "dead": 1}

    def about(self) -> dict[str, Any]:
        return {"reads": ["orders"], "topic": "shop.revenue", "place": "shop.py, line 1"}

    def done(self) -> None:
        return


@pytest.fixture
def broker() -> Iterator[str]:
    """Somebody listens there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_PAUSE_S", "WATCH_EVERY_S", "TELL_EVERY_S"):
        monkeypatch.setattr(running, name, 0.001)


class Watched:
    """A running query, and everything it said."""

    def __init__(self, job: Job) -> None:
        self.told, self.states = list[str](), list[str]()
        self._changed = threading.Condition()
        self.query = RunningQuery(job, 1, self.told.append, self._publish)
        self.query.start()

    def _publish(self, status: dict[str, Any]) -> None:
        with self._changed:
            self.states.append(status["state"])
            self.last = status
            self._changed.notify_all()

    def until(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, 60)

    def stop(self) -> None:
        self.query.ask_to_stop()
        assert self.query.join(60)


def test_a_query_that_keeps_failing_is_stopped_and_says_why(broker: str) -> None:
    job = Job(broker, Query(HeadraceError("no such coin")))
    watched = Watched(job)
    assert watched.query.join(60)
    assert job.started == ATTEMPTS
    assert (watched.last["state"], watched.last["last_error"]) == ("failed", "no such coin")
    assert "failed 5 times and is stopped: no such coin" in watched.told[-1]


def test_what_a_worker_raised_for_good_is_not_tried_again(broker: str) -> None:
    text = "Traceback (most recent call last):\n  in step\nheadrace.errors.TooManyPartialMatches: too many.\n\tat a.b"
    job = Job(broker, Query(RuntimeError(text)))
    watched = Watched(job)
    assert watched.query.join(60)
    assert (job.started, watched.last["state"]) == (1, "failed")
    assert watched.last["last_error"] == "TooManyPartialMatches: too many."


def test_a_query_that_got_a_batch_done_has_not_failed_in_a_row(broker: str) -> None:
    fails = [Query(HeadraceError("now and then")) for _ in range(ATTEMPTS - 1)]
    works = Query(batch=1)
    watched = Watched(Job(broker, *fails, works, *fails[1:], Query(batch=2)))
    watched.until(lambda: watched.last["batch"] == 1)
    works.stop()
    watched.until(lambda: watched.last["batch"] == 2)
    assert watched.last["state"] == "running"
    assert watched.last["restarts"] == 2 * (ATTEMPTS - 1)
    assert (watched.last["rows_in"], watched.last["late"], watched.last["dead"]) == (7, 2, 1)
    watched.stop()
    assert watched.last["state"] == "stopped"


def test_a_query_waits_for_a_broker_that_is_away_as_long_as_it_takes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    away = [ServerAway("nobody answers") for _ in range(2 * ATTEMPTS)]
    watched = Watched(Job(f"127.0.0.1:{port}", *away, Query()))
    watched.until(lambda: watched.states[-1] == "waiting")
    with socket.create_server(("127.0.0.1", port)):
        watched.until(lambda: watched.states[-1] == "running")
        watched.stop()
    assert "failed" not in watched.states


@pytest.mark.parametrize(
    ("error", "state"), [(Superseded("another run has taken over"), "stopped"), (InvalidDeclaration("bad"), "failed")]
)
def test_what_cannot_get_better_is_not_tried_again(broker: str, error: Exception, state: str) -> None:
    job = Job(broker, error)
    watched = Watched(job)
    assert watched.query.join(60)
    assert (job.started, watched.last["state"]) == (1, state)
