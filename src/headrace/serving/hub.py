"""Where the materialiser's thread and the event loop meet.

The thread opens the log and keeps the stores in step with it; requests look at what it publishes, read the stores
in worker threads, and wait here for news. Names of views are resolved here: ``view``, or ``app.view`` where several
apps have one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.clock import SystemClock
from headrace.errors import HeadraceError, InvalidQuery, ServerAway, StoreAway, UnknownView
from headrace.feed.presence import now
from headrace.views.catalog import ViewName
from headrace.views.materialiser import Materialiser, ViewState
from headrace.views.sharing import Sharing
from headrace.views.store import Offsets, Stores

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.feed import Feed

__all__ = ["Hub", "word_of"]

RETRY_AFTER_S = 0.5
COUNT_EVERY_S = 1.0
COUNT_PART = 10

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Count:
    """How many rows a view had, of which build and up to which offsets, and when it may be counted again."""

    rows: int | None = None
    shape: tuple[int, Offsets] | None = None
    next_at: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def is_due(self, state: ViewState) -> bool:
        """Whether it is to be counted anew."""
        return self.shape != (state.build, state.offsets) and time.monotonic() >= self.next_at


class Hub:
    """The views of a node. ``open_feed`` opens the log; it is called in threads, and again until it works. ``failed``
    is called if the materialiser ends by itself, which it never should. ``sharing``: where other nodes keep views in
    the same stores, which of them are kept here."""

    def __init__(
        self,
        stores: Stores,
        open_feed: Callable[[], Feed],
        failed: Callable[[], None] = lambda: None,
        sharing: Sharing | None = None,
    ) -> None:
        self.reader = stores.reader(lambda: sorted({app for app, _ in self.states}))
        self.stopping = False
        self.log_id: str | None = None
        """Which cluster's views these are, once that is known."""
        self._stores = stores
        self._open_feed = open_feed
        self._failed = failed
        self._sharing = sharing
        self._materialiser: Materialiser | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="materialiser", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()
        self._changes_feed: Feed | None = None
        self._changes_lock = threading.Lock()
        self._counts: dict[ViewName, _Count] = {}
        self._trouble: str | None = "the log is not open yet"

    def start(self) -> None:
        """Begin; from the event loop that requests run on."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        """End the thread: what it has begun is finished."""
        self._stop.set()
        self._thread.join()
        if self._changes_feed is not None:
            self._changes_feed.close()
        self._stores.close()

    @property
    def states(self) -> dict[ViewName, ViewState]:
        """All views, as they are now."""
        return self._materialiser.states if self._materialiser else {}

    @property
    def queries(self) -> list[dict[str, Any]]:
        """The state of all queries, as their runner last said; gone, if that is no more."""
        known = self._materialiser.catalog.queries if self._materialiser else {}
        return [now(status) for _, status in sorted(known.items())]

    @property
    def captures(self) -> list[dict[str, Any]]:
        """The state of all captured tables, as their run last said."""
        known = self._materialiser.catalog.captures if self._materialiser else {}
        return [status for _, status in sorted(known.items())]

    def plan(self, app: str, name: str) -> str | None:
        """How Spark runs a query, if it has said so."""
        known = self._materialiser.catalog.plans if self._materialiser else {}
        return known.get((app, name), {}).get("plan")

    def end_streams(self) -> None:
        """Let those who wait for news go, because the process is about to end."""
        self.stopping = True
        self._tell()

    @property
    def is_known(self) -> bool:
        """Whether the catalog was read, so that what it does not have is not there."""
        return self._materialiser is not None and self._materialiser.catalog_read

    def ensure_known(self) -> None:
        """ServerAway until the catalog was read."""
        if not self.is_known:
            raise ServerAway(f"the views and queries are not known yet: {self.trouble()}")

    def trouble(self) -> str | None:
        """Why this node's views are not all there yet; None if they are."""
        if self._materialiser is None or not self.is_known:
            return self._trouble or "the catalog is not read yet"
        if self._materialiser.trouble or self._materialiser.shared_trouble:
            return self._materialiser.trouble or self._materialiser.shared_trouble
        for (app, name), state in self.states.items():
            if state.trouble:
                return f"view {app}.{name}: {state.trouble}"
            if not state.caught_up:
                return f"view {app}.{name} is {state.behind} offsets behind"
        return None

    def freshness(self, state: ViewState) -> float | None:
        """How old what a view shows is at most, in seconds: 0 if all is in it. What is not was written after the last
        that was; None if this process has seen no such record."""
        if state.build and not state.behind:
            return 0.0
        return None if state.latest_ms is None else max(0.0, time.time() - state.latest_ms / 1000)

    def find(self, name: str) -> tuple[ViewName, ViewState]:
        """The view of this name; UnknownView if there is none, InvalidQuery if it is not clear which."""
        states = self.states
        app, _, view = name.rpartition(".")
        found = [(key, state) for key, state in states.items() if key == (app, view) or (not app and key[1] == name)]
        if len(found) > 1:
            among = ", ".join(f"{app}.{view}" for (app, view), _ in found)
            raise InvalidQuery(f"several apps have a view {name!r}", hint=f"say which: {among}")
        if not found:
            self.ensure_known()
        if found and not found[0][1].build:
            raise ServerAway(f"view {name!r} is not there yet", detail=found[0][1].trouble)
        if not found:
            known = ", ".join(sorted(f"{app}.{view}" for app, view in states)) or "none yet"
            raise UnknownView(f"there is no view {name!r}", hint=f"views: {known}")
        return found[0]

    def count(self, view: ViewName, state: ViewState) -> int | None:
        """The number of rows, counted only after changes, and for a tenth of the time at most; None if nobody could.

        While somebody counts, others are told what was known."""
        known = self._counts.setdefault(view, _Count())
        if not known.is_due(state) or not known.lock.acquire(blocking=known.rows is None):
            return known.rows
        try:
            if known.is_due(state):
                self._count(view, state, known)
        finally:
            known.lock.release()
        return known.rows

    def _count(self, view: ViewName, state: ViewState, known: _Count) -> None:
        began, shape = time.monotonic(), (state.build, state.offsets)
        try:
            known.rows = self.reader.count(view)
            known.shape = shape
        except (UnknownView, StoreAway):
            return
        except InvalidQuery as error:
            _logger.warning("the rows of view %s.%s are not counted: %s", *view, error.message)
        ended = time.monotonic()
        known.next_at = ended + max(COUNT_EVERY_S, (ended - began) * COUNT_PART)

    async def news(self, timeout: float) -> None:
        """Return when something has changed, or after the timeout."""
        waiting = self._news
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(waiting.wait(), timeout)

    async def reached(self, view: ViewName, wanted: Offsets, timeout: float) -> bool:
        """Wait until a view reflects at least these offsets; False if it did not within the timeout."""
        deadline = time.monotonic() + timeout
        while True:
            waiting, state = self._news, self.states.get(view)
            if state is not None and all(state.offsets.get(part, 0) >= at for part, at in wanted.items()):
                return True
            if (left := deadline - time.monotonic()) <= 0:
                return False
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(waiting.wait(), left)

    def log_start(self, topic: str) -> Offsets:
        """Where each partition of a topic begins."""
        with self._feed_of_changes() as feed:
            return {partition: start for partition, (start, _) in feed.bounds(topic).items()}

    def records(self, topic: str, partition: int, start: int, end: int, max_bytes: int) -> pa.RecordBatch | None:
        """The next records of a topic's partition, some of them."""
        with self._feed_of_changes() as feed:
            return next(iter(feed.read(topic, partition, start, end, max_bytes=max_bytes)), None)

    @contextlib.contextmanager
    def _feed_of_changes(self) -> Iterator[Feed]:
        with self._changes_lock:
            if self._changes_feed is None:
                self._changes_feed = self._open_feed()
            yield self._changes_feed

    def _work(self) -> None:
        feed = self._opened()
        if feed is None:
            return
        with contextlib.suppress(HeadraceError):
            self.log_id = feed.cluster_id()
        self._materialiser = Materialiser(feed, self._stores, SystemClock(), self._tell, self._sharing)
        try:
            self._materialiser.run(self._stop)
        except Exception:
            _logger.exception("the materialiser failed")
            self._failed()
        finally:
            self._materialiser.close()
            feed.close()

    def _opened(self) -> Feed | None:
        while not self._stop.is_set():
            try:
                return self._open_feed()
            except HeadraceError as error:
                self._trouble = error.message
                self._stop.wait(RETRY_AFTER_S)
        return None

    def _tell(self) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


def word_of(state: ViewState) -> str:
    """How a view is doing, in a word or two."""
    word = "waiting" if state.trouble or not state.build else "rebuilding" if state.rebuilding else "live"
    return "catching up" if word == "live" and not state.caught_up else word
