"""Tails the changelogs of all views into their stores.

One thread does everything, a bounded piece at a time, so a view that is being rebuilt does not hold up the others:
``step`` follows the catalog, brings the builds of every view in line with it, and takes in some records of each.
What is known of each view is published as a new dictionary after every step (``states``), for other threads to look
at.

A view's live build is replaced, by one that is filled beside it, when its catalog entry has changed or when its
changelog is not the one that it was built from: a topic of another id, offsets behind ours, or records missing at
our offset. Errors never end the loop: the view says what is wrong and is tried again
later.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.clock import Clock
from headrace.errors import HeadraceError, UnknownTopic
from headrace.views.catalog import Catalog, CatalogReader, ViewName, ViewSpec
from headrace.views.store import Build, Offsets, Store

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.feed import Feed

__all__ = ["Materialiser", "ViewState"]

CATALOG_EVERY_S = 0.25
STORES_CHECKED_EVERY_S = 1.0
RETRY_AFTER_S = 1.0
BATCH_BYTES = 4 << 20
BATCHES_PER_TURN = 4

_logger = logging.getLogger(__name__)

Bounds = dict[int, tuple[int, int]]


@dataclass(frozen=True)
class ViewState:
    """How a view is doing: up to where its store has come, and where its changelog ends. ``caught_up``: it has come to
    where the changelog ended when this process first looked."""

    spec: ViewSpec
    build: int = 0
    offsets: Offsets = field(default_factory=dict)
    ends: Offsets = field(default_factory=dict)
    caught_up: bool = False
    rebuilding: bool = False
    bad: int = 0
    last_bad: str | None = None
    trouble: str | None = None

    @property
    def behind(self) -> int:
        """Offsets of the changelog that are not taken in yet."""
        return sum(max(0, end - self.offsets.get(partition, 0)) for partition, end in self.ends.items())


class Materialiser:
    """Keeps stores in step with the log. ``open_store`` makes the store of an app; ``changed`` is called after news."""

    def __init__(
        self, feed: Feed, open_store: Callable[[str], Store], clock: Clock, changed: Callable[[], None] = lambda: None
    ) -> None:
        self.states: dict[ViewName, ViewState] = {}
        self.catalog_read = False
        self.trouble: str | None = None
        self._feed = feed
        self._open_store = open_store
        self._clock = clock
        self._changed = changed
        self._reader = CatalogReader(feed)
        self._apps: dict[str, _App] = {}
        self._catalog_due = self._stores_due = 0.0

    @property
    def catalog(self) -> Catalog:
        """What the catalog said last."""
        return self._reader.catalog

    def run(self, stop: threading.Event) -> None:
        """Step until told to stop: at once while there is something to do, else less and less often."""
        pause = 0.0
        while not stop.wait(pause):
            try:
                busy = self.step()
                self.trouble = None
            except HeadraceError as error:
                if self.trouble is None:
                    _logger.warning("the log cannot be read now: %s", error)
                self.trouble, pause = error.message, RETRY_AFTER_S
                continue
            pause = 0.0 if busy else min(max(pause * 1.5, 0.01), 0.1)

    def step(self) -> bool:
        """Take in a bounded amount of news; True if there was any."""
        now = self._clock.monotonic()
        busy = False
        if now >= self._catalog_due:
            self._catalog_due = now + CATALOG_EVERY_S
            busy = self._reader.poll()
        if busy or now >= self._stores_due:
            self._stores_due = now + STORES_CHECKED_EVERY_S
            self._match_apps()
        for app in self._apps.values():
            busy = app.step(now) or busy
        states = {(app, name): state for app, kept in self._apps.items() for name, state in kept.states().items()}
        if busy or states != self.states:
            self.states = states
            self._changed()
        self.catalog_read = True
        return busy

    def close(self) -> None:
        """Close the stores."""
        for app in self._apps.values():
            app.close()
        self._apps.clear()

    def _match_apps(self) -> None:
        wanted: dict[str, dict[str, ViewSpec]] = {}
        for (app, name), spec in self.catalog.views.items():
            wanted.setdefault(app, {})[name] = spec
        for app, specs in wanted.items():
            if app not in self._apps:
                self._apps[app] = _App(app, self._feed, self._open_store)
            self._apps[app].wanted = specs
        for app in self._apps.keys() - wanted.keys():
            self._apps[app].wanted = {}
        for kept in self._apps.values():
            kept.check_store()


class _App:
    """The views of one app and their store."""

    def __init__(self, name: str, feed: Feed, open_store: Callable[[str], Store]) -> None:
        self.name = name
        self.wanted: dict[str, ViewSpec] = {}
        self._feed = feed
        self._open_store = open_store
        self._store: Store | None = None
        self._views: dict[str, _View] = {}
        self._retry_at = 0.0
        self._trouble: str | None = None

    def check_store(self) -> None:
        """Notice that the store's file was taken away; it is made anew and filled from the topics."""
        if self._store is not None and getattr(self._store, "lost", False):
            _logger.warning("the store of app %s was removed: it is rebuilt from the log", self.name)
            self.close()

    def step(self, now: float) -> bool:
        if now < self._retry_at:
            return False
        try:
            busy = self._stepped(now)
            self._trouble = None
            return busy
        except (sqlite3.Error, OSError) as error:
            self._retry_at = now + RETRY_AFTER_S
            if self._trouble != str(error):
                self._trouble = str(error)
                _logger.warning("the store of app %s cannot be used: %s; it is tried again", self.name, error)
            self.close()
            return False

    def _stepped(self, now: float) -> bool:
        if self._store is None:
            if not self.wanted:
                return False
            self._store = self._open_store(self.name)
            self._views = {}
            for build in self._store.builds():
                self._view(build.spec.name).builds.append(build)
        busy = False
        for name in self.wanted.keys() - self._views.keys():
            self._view(name)
        for name in list(self._views):
            view, spec = self._views[name], self.wanted.get(name)
            if spec is None:
                view.drop()
                del self._views[name]
                busy = True
            else:
                busy = view.step(spec, now) or busy
        return busy

    def _view(self, name: str) -> _View:
        assert self._store is not None
        return self._views.setdefault(name, _View(name, self._feed, self._store))

    def states(self) -> dict[str, ViewState]:
        """Of every view of the catalog."""
        return {
            name: self._views[name].state(spec, self._trouble)
            if name in self._views
            else ViewState(spec, trouble=self._trouble)
            for name, spec in self.wanted.items()
        }

    def close(self) -> None:
        store, self._store, self._views = self._store, None, {}
        if store is not None:
            store.close()


class _View:
    """One view: its builds, and what to do next."""

    def __init__(self, name: str, feed: Feed, store: Store) -> None:
        self.name = name
        self.builds: list[Build] = []
        self._feed = feed
        self._store = store
        self._ends: dict[int, Offsets] = {}
        self._goals: dict[int, Offsets] = {}
        self._stale: set[int] = set()
        self._trouble: str | None = None
        self._retry_at = 0.0

    @property
    def live(self) -> Build | None:
        """The build that is read."""
        return next((build for build in self.builds if build.live), None)

    def state(self, spec: ViewSpec, trouble: str | None) -> ViewState:
        """What others may know of it."""
        live = self.live
        trouble = trouble or self._trouble
        if live is None:
            return ViewState(spec, trouble=trouble)
        ends = self._ends.get(live.number, {})
        return ViewState(
            live.spec,
            live.number,
            dict(live.offsets),
            dict(ends),
            caught_up=self._reached(live),
            rebuilding=len(self.builds) > 1,
            bad=live.bad,
            last_bad=live.last_bad,
            trouble=trouble,
        )

    def step(self, spec: ViewSpec, now: float) -> bool:
        """Bring the builds in line with the catalog and take in some records."""
        if now < self._retry_at:
            return False
        try:
            return self._stepped(spec)
        except HeadraceError as error:
            self._say(f"waiting for its changelog: {error.message}")
        except (sqlite3.Error, OSError):
            raise
        except Exception as error:
            if self._trouble is None:
                _logger.exception("view %s cannot be kept up to date", self.name)
            self._say(f"unexpected {type(error).__name__}: {error}")
        self._retry_at = now + RETRY_AFTER_S
        return False

    def drop(self) -> None:
        """The view is gone from the catalog."""
        for build in self.builds:
            self._store.drop(build)
        self.builds = []
        _logger.info("view %s was dropped", self.name)

    def _stepped(self, spec: ViewSpec) -> bool:
        target = self._target(spec)
        if target is None:
            self._feed.partitions(spec.topic)
            target = self._store.begin(spec, self._feed.topic_id(spec.topic))
            self.builds.append(target)
        busy = self._advance(target)
        live = self.live
        if live is not None and live is not target and live.number not in self._stale:
            busy = self._kept_up(live) or busy
        if not target.live and self._reached(target):
            self._swap(target)
            busy = True
        self._say(None)
        return busy

    def _target(self, spec: ViewSpec) -> Build | None:
        """The build to fill: the live one if it is good, else the newest of this spec beside it; None: a new one."""
        live = self.live
        if live is not None and live.spec == spec and not self._is_stale(live):
            self._forget_all_but(live)
            return live
        beside = [build for build in self.builds if not build.live and build.spec == spec]
        good = [build for build in beside[-1:] if not self._is_stale(build)]
        self._forget_all_but(live, *good)
        return good[0] if good else None

    def _forget_all_but(self, *kept: Build | None) -> None:
        for build in [build for build in self.builds if build not in kept]:
            self._store.drop(build)
            self.builds.remove(build)

    def _is_stale(self, build: Build) -> bool:
        """Whether the changelog is not the one that this build was made from."""
        if build.number in self._stale:
            return True
        bounds = self._bounds(build)
        made_anew = self._feed.topic_id(build.spec.topic) != build.topic_id
        why = f"topic {build.spec.topic} was made anew" if made_anew else _gone(build, bounds)
        if why is not None:
            self._stale.add(build.number)
            _logger.warning("view %s is rebuilt: %s", build.spec.full_name, why)
        return why is not None

    def _bounds(self, build: Build) -> Bounds:
        bounds = self._feed.bounds(build.spec.topic)
        self._ends[build.number] = {partition: end for partition, (_, end) in bounds.items()}
        self._goals.setdefault(build.number, self._ends[build.number])
        return bounds

    def _advance(self, build: Build) -> bool:
        """Take in a bounded amount of what is new; True if there was any."""
        if build.number not in self._ends:
            self._bounds(build)
        busy = False
        for partition, end in self._ends[build.number].items():
            position = build.offsets.get(partition, 0)
            if position >= end and partition in build.offsets:
                continue
            busy = True
            self._take(build, partition, position, end)
        return busy

    def _take(self, build: Build, partition: int, position: int, end: int) -> None:
        batches = self._feed.read(build.spec.topic, partition, position, end, max_bytes=BATCH_BYTES)
        for _ in range(BATCHES_PER_TURN):
            batch: pa.RecordBatch | None = next(batches, None)
            if batch is None:
                self._apply(build, partition, None, end)
                return
            last = batch.column("offset")[-1].as_py() if batch.num_rows else position - 1
            self._apply(build, partition, batch, last + 1)
            if last + 1 >= end:
                return

    def _apply(self, build: Build, partition: int, batch: pa.RecordBatch | None, following: int) -> None:
        applied = self._store.apply(build, partition, batch, following)
        for bad in applied.bad[:3]:
            where = f"{build.spec.topic}, partition {partition}, offset {bad.offset}"
            _logger.warning("view %s: a record was left out: %s (%s)", build.spec.full_name, bad.reason, where)
        if len(applied.bad) > 3:
            _logger.warning("view %s: %d more records were left out", build.spec.full_name, len(applied.bad) - 3)

    def _kept_up(self, live: Build) -> bool:
        """While another build is filled beside it, the live one goes on with its own topic as long as that is there."""
        try:
            return not self._is_stale(live) and self._advance(live)
        except UnknownTopic:
            self._stale.add(live.number)
            return False

    def _reached(self, build: Build) -> bool:
        goal = self._goals.get(build.number)
        return goal is not None and all(build.offsets.get(partition, -1) >= end for partition, end in goal.items())

    def _swap(self, build: Build) -> None:
        self._store.swap(build)
        self.builds = [build]
        _logger.info("view %s was rebuilt", build.spec.full_name)

    def _say(self, trouble: str | None) -> None:
        if trouble is not None and trouble != self._trouble:
            _logger.info("view %s: %s", self.name, trouble)
        self._trouble = trouble


def _gone(build: Build, bounds: Bounds) -> str | None:
    """Why the offsets of a build cannot be gone on from, if so."""
    for partition, position in build.offsets.items():
        start, end = bounds.get(partition, (0, 0))
        if position > end:
            return f"topic {build.spec.topic} ends at offset {end} of partition {partition}, and we were at {position}"
        if position < start:
            return f"topic {build.spec.topic} begins at offset {start} of partition {partition}, we were at {position}"
    return None
