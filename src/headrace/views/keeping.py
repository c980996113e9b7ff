"""One view kept in step with its changelog: which builds it has, which one is filled, and what others may know of it.

A view's live build is replaced, by one that is filled beside it, when its catalog entry has changed or when its
changelog is not the one that it was built from: a topic of another id, offsets behind ours, or records missing at
our offset. Errors end nothing: the view says what is wrong and is tried again later.

A view that another process keeps is followed: its builds are looked at, so that what is known of it here is as true as
there. Where processes share views (``shared``), one that was fenced although the view is its own takes it again after a
while: whoever took it last may have gone. Otherwise it stays fenced until it is started anew.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace import tracing
from headrace.errors import Fenced, HeadraceError, StoreAway, UnknownTopic, ViewNotKept
from headrace.feed.traceparents import sampled
from headrace.views.catalog import ViewSpec
from headrace.views.store import Build, Offsets, Store

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.feed import Feed

__all__ = ["RETRY_AFTER_S", "ViewKeeper", "ViewState"]

RETRY_AFTER_S = 1.0
RETAKE_AFTER_S = 3.0
BOUNDS_EVERY_S = 1.0
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
    latest_ms: int | None = None
    """The time of the last record that this process has taken in."""

    @property
    def behind(self) -> int:
        """Offsets of the changelog that are not taken in yet."""
        return sum(max(0, end - self.offsets.get(partition, 0)) for partition, end in self.ends.items())


class ViewKeeper:
    """Keeps one view in a store: its builds, and what to do next."""

    def __init__(self, name: str, feed: Feed, store: Store, *, shared: bool = False) -> None:
        self.name = name
        self._shared = shared
        self.builds: list[Build] = []
        self._feed = feed
        self._store = store
        self._taken = False
        self._ends: dict[int, Offsets] = {}
        self._goals: dict[int, Offsets] = {}
        self._stale: set[int] = set()
        self.trouble: str | None = None
        self._latest_ms: int | None = None
        self._retry_at = self._bounds_at = 0.0
        self._fenced_at: float | None = None

    @property
    def live(self) -> Build | None:
        """The build that is read."""
        return next((build for build in self.builds if build.live), None)

    @property
    def is_known(self) -> bool:
        """Whether its builds are known, if it has any."""
        return self._taken or bool(self.builds)

    def state(self, spec: ViewSpec, trouble: str | None) -> ViewState:
        """What others may know of it."""
        live = self.live
        trouble = trouble or self.trouble
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
            latest_ms=self._latest_ms,
        )

    def step(self, spec: ViewSpec, now: float) -> bool:
        """Bring the builds in line with the catalog and take in some records."""
        if self._shared and self._fenced_at is not None and now >= self._fenced_at + RETAKE_AFTER_S:
            self._let_go()
        return self._tried(lambda: self._stepped(spec), now)

    def follow(self, found: list[Build], now: float) -> None:
        """Another process keeps the view, and this is what it has in the store."""
        self._let_go()
        self.builds = found
        live = self.live
        if live is not None and now >= self._bounds_at:
            self._bounds_at = now + BOUNDS_EVERY_S
            with contextlib.suppress(HeadraceError):
                self._bounds(live)
        self._say(None)

    def dropped(self, now: float) -> bool:
        """The view is gone from the catalog: whether it is gone from the store as well."""
        return self._tried(self._drop, now)

    def _tried(self, work: Callable[[], bool], now: float) -> bool:
        """Do some work; if it fails, say why and leave it for a while."""
        if now < self._retry_at:
            return False
        try:
            return work()
        except (StoreAway, OSError):
            raise
        except Fenced as error:
            self._say(error.message)
            self._fenced_at = now if self._fenced_at is None else self._fenced_at
            self._look()
        except ViewNotKept as error:
            self._say(str(error))
        except HeadraceError as error:
            self._say(f"waiting for its changelog: {error.message}")
        except Exception as error:
            if self.trouble is None:
                _logger.exception("view %s cannot be kept up to date", self.name)
            self._say(f"unexpected {type(error).__name__}: {error}")
        self._retry_at = now + RETRY_AFTER_S
        return False

    def _take_over(self) -> None:
        """Own the view, and go on from what its store has."""
        if not self._taken:
            self.builds = self._store.take(self.name)
            self._taken = True

    def _let_go(self) -> None:
        """What was ours of the view is forgotten: to keep it again is to take it again."""
        if self._taken or self._fenced_at is not None:
            self._store.let_go(self.name)
        self._taken, self._fenced_at, self._retry_at = False, None, 0.0

    def _look(self) -> None:
        """Another process keeps this view: see how far it has come."""
        self.builds = [build for build in self._store.builds() if build.spec.name == self.name]
        self._taken = False
        if (live := self.live) is not None:
            with contextlib.suppress(HeadraceError):
                self._bounds(live)

    def _drop(self) -> bool:
        self._take_over()
        for build in self.builds:
            self._store.drop(build)
        self.builds = []
        _logger.info("view %s was dropped", self.name)
        return True

    def _stepped(self, spec: ViewSpec) -> bool:
        self._take_over()
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
        batches = self._feed.read(build.spec.topic, partition, position, end, max_bytes=BATCH_BYTES, whole=True)
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
        if batch is None or not tracing.is_on():
            applied = self._store.apply(build, partition, batch, following)
        else:
            view = build.spec.full_name
            said = {"headrace.view": view, "headrace.partition": partition, "headrace.records": batch.num_rows}
            with tracing.span(f"apply {view}", "consumer", sampled(batch), said):
                applied = self._store.apply(build, partition, batch, following)
        if batch is not None and batch.num_rows and build.live:
            self._latest_ms = batch.column("timestamp")[-1].value
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
        if trouble is not None and trouble != self.trouble:
            _logger.info("view %s: %s", self.name, trouble)
        self.trouble = trouble


def _gone(build: Build, bounds: Bounds) -> str | None:
    """Why the offsets of a build cannot be gone on from, if so."""
    for partition, position in build.offsets.items():
        start, end = bounds.get(partition, (0, 0))
        if position > end:
            return f"topic {build.spec.topic} ends at offset {end} of partition {partition}, and we were at {position}"
        if position < start:
            return f"topic {build.spec.topic} begins at offset {start} of partition {partition}, we were at {position}"
    return None
