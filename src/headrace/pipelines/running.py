"""One query while it runs: started, watched, started again when it fails, and stopped.

A failure is followed by a pause that doubles. A query that fails ``ATTEMPTS`` times without getting a batch done is
stopped and says why; at once, if trying again can change nothing. While the broker is away nothing counts as a failure:
the query waits. Each query has a thread.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from headrace.errors import HeadraceError, InvalidDeclaration, ServerAway
from headrace.feed.catalog import iso_now
from headrace.feed.presence import began, this_machine
from headrace.pipelines.progress import plan_of, told_by
from headrace.pipelines.sink import Superseded

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["ATTEMPTS", "Job", "RunningQuery", "Status", "is_reachable", "reason"]

ATTEMPTS = 5
FIRST_PAUSE_S, LONGEST_PAUSE_S, LONGEST_WAIT_S = 0.5, 30.0, 4.0
WATCH_EVERY_S, TELL_EVERY_S = 0.1, 1.0

_AWAY = re.compile(
    r"ServerAway|Connection refused|TRANSPORT|ALL_BROKERS_DOWN|TIMED_OUT|LEADER_EPOCH|No leaders found|NOT_AVAILABLE"
)
_COMES_BACK = {
    "No space left on device": "room on the disk",
    "failed to connect back": "a Python worker that did not start in time",
    "reading the port number from": "a Python worker that did not start in time",
}
_FOR_GOOD = frozenset(
    {"AnalysisException", "DamagedChunk", "DamagedState", "TooManyPartialMatches", "WrongResult", "WrongSeed"}
)
"""Errors that come again however often the same is tried; also those that workers raise, of which only text is left."""
_OURS = re.compile(r"^headrace\.(?:\w+\.)+((\w+): .*)$", re.MULTILINE)
_RAISED = re.compile(
    r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Interrupt|Exit|Away|Lost|Input|Range|Full)\b.*)$", re.MULTILINE
)


class Job(Protocol):
    """How a query is started."""

    @property
    def app(self) -> str:
        """The app's name."""
        ...

    @property
    def name(self) -> str:
        """The query's name in the app."""
        ...

    @property
    def kind(self) -> str:
        """What it makes: a view, a derived stream, an alert."""
        ...

    @property
    def bootstrap(self) -> str:
        """Where the broker is."""
        ...

    def start(self) -> StreamingQuery:
        """Start it where it was."""
        ...

    def failure(self) -> BaseException | None:
        """What we raised ourselves, if that is why it ended."""
        ...

    def counts(self) -> dict[str, Any]:
        """Rows in, late and dead since the beginning; how long batches took since the start."""
        ...

    def about(self) -> dict[str, Any]:
        """What it reads and writes (topics), and where it is declared."""
        ...

    def done(self) -> None:
        """Let go of what the query held; it may be started again."""
        ...


@dataclass
class Status:
    """How a query is doing, as the catalog has it. What the last batch told is in ``progress`` (see ``told_by``)."""

    app: str
    name: str
    kind: str
    state: str = "starting"
    since: str = ""
    batch: int = -1
    rows_in: int = 0
    late: int = 0
    dead: int = 0
    batch_seconds: dict[str, Any] | None = None
    """How long batches took since the start, as a histogram."""
    watermark: str | None = None
    last_error: str | None = None
    restarts: int = 0
    pid: int = 0
    began: int | None = None
    machine: str = ""
    reads: list[str] = field(default_factory=list)
    topic: str = ""
    place: str = ""
    progress: dict[str, Any] = field(default_factory=dict)


class RunningQuery:
    """A query in the care of a thread."""

    def __init__(
        self,
        job: Job,
        pid: int,
        told: Callable[[str], None],
        publish: Callable[[dict[str, Any]], None],
        publish_plan: Callable[[str], None] = lambda plan: None,
    ) -> None:
        self.job = job
        self.status = Status(
            job.app,
            job.name,
            str(job.kind),
            since=iso_now(),
            pid=pid,
            began=began(pid),
            machine=this_machine(),
            **job.about(),
        )
        self.spark_query: StreamingQuery | None = None
        self._told = told
        self._publish, self._publish_plan = publish, publish_plan
        self._plan_told = False
        self._stopping = threading.Event()
        self._failures = self._waits = 0
        self._published = 0.0
        self._thread = threading.Thread(target=self._run, name=f"query {job.name}", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._publish(asdict(self.status))
        self._thread.start()

    def ask_to_stop(self) -> None:
        """Stop soon; returns at once."""
        self._stopping.set()

    def join(self, seconds: float) -> bool:
        """Wait for the end; whether it has come."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def is_over(self) -> bool:
        """Whether it has ended for good."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._run_once()
            except Superseded as error:
                return self._become("stopped", str(error), "is stopped: another run of it has taken over")
            except Exception as error:
                if not self._may_go_on(error):
                    return None
            finally:
                self._end_query()
        return self._become("stopped", self.status.last_error, "is stopped")

    def _run_once(self) -> None:
        self.spark_query = self.job.start()
        self._become("running", self.status.last_error, "is running")
        while not self._stopping.wait(WATCH_EVERY_S):
            if not self.spark_query.isActive:
                raise self._why(self.spark_query)
            self._look(self.spark_query)
        self._published = 0.0
        self._look(self.spark_query)

    def _why(self, query: StreamingQuery) -> BaseException:
        ours = self.job.failure()
        if ours is not None:
            return ours
        return query.exception() or HeadraceError("it ended without a reason")

    def _look(self, query: StreamingQuery) -> None:
        """Once a second: how far it is."""
        if time.monotonic() - self._published < TELL_EVERY_S:
            return
        self._published = time.monotonic()
        progress: Any = query.lastProgress
        if progress is None or (progress["batchId"] == self.status.batch and not progress["numInputRows"]):
            return
        if progress["batchId"] != self.status.batch:
            self._failures = self._waits = 0
            self.status.last_error = None
        self.status.batch = progress["batchId"]
        self.status.watermark = _watermark(progress["eventTime"] or {})
        self.status.progress = told_by(progress, self.status.progress)
        with contextlib.suppress(HeadraceError):  # the counts can wait for the broker; the query does by itself
            for name, count in self.job.counts().items():
                setattr(self.status, name, count)
        self._publish(asdict(self.status))
        if not self._plan_told and (plan := plan_of(query)):
            self._plan_told = True
            self._publish_plan(plan)

    def _may_go_on(self, error: BaseException) -> bool:
        why = reason(error)
        if _is_for_good(error):
            self._become("failed", why, f"cannot run: {why}")
            return False
        self.status.restarts += 1
        if waits_for := self._waits_for(error):
            self._become("waiting", why, f"waits for {waits_for}")
            self._waits += 1
            self._stopping.wait(min(FIRST_PAUSE_S * 2 ** (self._waits - 1), LONGEST_WAIT_S))
            while not is_reachable(self.job.bootstrap) and not self._stopping.wait(0.5):
                pass
            return True
        self._failures += 1
        if self._failures >= ATTEMPTS:
            self._become("failed", why, f"has failed {ATTEMPTS} times and is stopped: {why}")
            return False
        pause = min(FIRST_PAUSE_S * 2 ** (self._failures - 1), LONGEST_PAUSE_S)
        self._become("waiting", why, f"failed and starts again in {pause:g} s: {why}")
        self._stopping.wait(pause)
        return True

    def _waits_for(self, error: BaseException) -> str | None:
        """What is to blame and will come back; None if it is the query's own fault."""
        text = str(error)
        if isinstance(error, ServerAway) or _AWAY.search(text) or not is_reachable(self.job.bootstrap):
            return f"the broker at {self.job.bootstrap}"
        return next((what for sign, what in _COMES_BACK.items() if sign in text), None)

    def _become(self, state: str, error: str | None, sentence: str) -> None:
        was, self.status.state = self.status.state, state
        self.status.last_error = error
        if was != state:
            self.status.since = iso_now()
            self._told(f"{self.job.kind} {self.job.name} {sentence}")
        self._publish(asdict(self.status))

    def _end_query(self) -> None:
        query, self.spark_query = self.spark_query, None
        for end in (query.stop if query is not None and query.isActive else None, self.job.done):
            try:
                if end is not None:
                    end()
            except Exception as error:
                self._told(f"{self.job.kind} {self.job.name} did not stop cleanly: {reason(error)}")


def _watermark(times: dict[str, str]) -> str | None:
    found = times.get("watermark")
    return None if found is None or found.startswith("1970-01-01T00:00:00") else found


def is_reachable(bootstrap: str, seconds: float = 1.0) -> bool:
    """Whether somebody listens at one of the addresses."""
    for address in bootstrap.split(","):
        host, _, port = address.strip().rpartition(":")
        try:
            socket.create_connection((host.strip("[]") or address, int(port or 9092)), seconds).close()
            return True
        except (OSError, ValueError):
            continue
    return False


def _is_for_good(error: BaseException) -> bool:
    names = {type(error).__name__, *(name for _, name in _OURS.findall(str(error)))}
    return isinstance(error, InvalidDeclaration) or not names.isdisjoint(_FOR_GOOD)


def reason(error: BaseException) -> str:
    """The error in one line. Of an error that Spark passed on from Python, what Python raised."""
    if isinstance(error, HeadraceError):
        return str(error)
    text = str(error)
    raised: list[str] = [line for line, _ in _OURS.findall(text)] or [
        line for line in _RAISED.findall(text) if not line.startswith(("Py4J", "PySpark"))
    ]
    if "Traceback (most recent call last)" in text and raised:
        return raised[-1].strip()
    lines = (text.strip() or type(error).__name__).splitlines()
    first = lines[1].lstrip(": ") if lines[0].startswith("An error occurred while calling") and lines[1:] else lines[0]
    return first.split(" SQLSTATE:")[0]
