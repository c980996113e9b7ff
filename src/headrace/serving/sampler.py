"""A look at the whole cluster every few seconds: what topics hold and how fast they grow, how far groups are behind.

The rates and the graphs of the page need two looks and more, so somebody has to keep them: here, in memory, for
the last minutes. A look never takes more than a tenth of the time, however large the cluster: the pauses grow with it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import HeadraceError, ServerAway
from headrace.operations.cluster import Cluster, Partition, PartitionOffsets
from headrace.operations.groups import all_groups, lags_of
from headrace.operations.share_groups import share_offsets
from headrace.operations.topics import Disk, disk_of, is_internal

__all__ = ["Look", "Sampler", "Series", "worst"]

EVERY_S, QUIET_EVERY_S, WATCHED_S = 2.0, 10.0, 30.0
BUSY_PART = 10
POINTS = 300
MEASURED_AT_MOST = 200
"""Of so many groups it is asked how far they are behind; of the others only that they are there."""
_UNKNOWN: dict[str, Any] = {"lag": None, "lag_seconds": None, "topics": []}

Series = deque[tuple[float, float]]
"""Points of a graph: Unix time in seconds, and a number."""


@dataclass
class Look:
    """What was seen at one moment."""

    at: float
    topics: dict[str, dict[str, Any]] = field(default_factory=dict)
    offsets: dict[Partition, PartitionOffsets] = field(default_factory=dict)
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    committed: dict[str, dict[Partition, int]] = field(default_factory=dict)
    """Where each group stands."""
    disk: Disk = field(default_factory=Disk)
    brokers: int = 0


def worst(seconds: Iterable[float | None]) -> float | None:
    """The largest of them; None if that may be one that is not known."""
    found = list(seconds)
    known = max((one for one in found if one is not None), default=0.0)
    return known if known or None not in found else None


class Sampler:
    """Looks in a thread of its own; ``connect`` opens a connection to the cluster, and is called again if it fails."""

    def __init__(self, connect: Callable[[], Cluster], looked: Callable[[], None] = lambda: None) -> None:
        self.look: Look | None = None
        self.trouble: str | None = "the cluster was not asked yet"
        self.rate: Series = deque(maxlen=POINTS)
        self.topic_rates: dict[str, Series] = {}
        self.group_lags: dict[str, deque[tuple[float, int, float | None]]] = {}
        self._connect, self._looked = connect, looked
        self._cluster: Cluster | None = None
        self._asked = time.monotonic()
        self._wake, self._stop = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="sampler", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; a look that has begun is not waited for."""
        self._stop.set()
        self._wake.set()

    def watched(self) -> None:
        """Somebody looks at the page: look more often for a while."""
        idle = time.monotonic() - self._asked > WATCHED_S
        self._asked = time.monotonic()
        if idle:
            self._wake.set()

    def cluster(self) -> Cluster:
        """The connection; ServerAway if there is none."""
        with self._lock:
            if self._cluster is None:
                self._cluster = self._connect()
            return self._cluster

    def forget(self) -> None:
        """Open the connection anew when it is next needed."""
        with self._lock:
            self._cluster = None

    def _work(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                self._take(self._seen())
                self.trouble = None
            except ServerAway as error:
                self.trouble = error.message
                self.forget()
            except HeadraceError as error:
                self.trouble = error.message
            took = time.monotonic() - began
            self._looked()
            quiet = time.monotonic() - self._asked > WATCHED_S
            self._wake.wait(max(QUIET_EVERY_S if quiet else EVERY_S, took * BUSY_PART))
            self._wake.clear()

    def _seen(self) -> Look:
        cluster = self.cluster()
        described = cluster.describe(cluster.topic_names())
        look = Look(time.time())
        look.offsets = cluster.offsets([(one.name, part.id) for one in described for part in one.partitions])
        look.disk = disk_of(cluster)
        look.brokers = len({part.leader.id for one in described for part in one.partitions if part.leader})
        for one in described:
            places = [(one.name, part.id) for part in one.partitions]
            sizes = [look.disk.sizes[place] for place in places if place in look.disk.sizes]
            look.topics[one.name] = {
                "name": one.name,
                "partitions": len(places),
                "records": sum(look.offsets[place].end - look.offsets[place].start for place in places),
                "written": sum(look.offsets[place].end for place in places),
                "bytes": sum(sizes) if sizes else None,
                "internal": is_internal(one),
            }
        for at, group in enumerate(all_groups(cluster)):
            behind = self._behind(cluster, group, look) if at < MEASURED_AT_MOST else _UNKNOWN
            look.groups[group["group"]] = group | behind
        return look

    def _behind(self, cluster: Cluster, group: dict[str, Any], look: Look) -> dict[str, Any]:
        name = group["group"]
        try:
            offsets = share_offsets(cluster, name) if group["type"] == "share" else None
            lags = lags_of(cluster, name, None, offsets)
        except ServerAway:
            raise
        except HeadraceError:
            return _UNKNOWN
        look.committed[name] = {(one.topic, one.partition): one.committed for one in lags}
        return {
            "lag": sum(one.lag for one in lags),
            "lag_seconds": worst(one.lag_seconds for one in lags),
            "topics": sorted({one.topic for one in lags}),
        }

    def _take(self, look: Look) -> None:
        before, self.look = self.look, look
        total = 0.0
        for name, topic in look.topics.items():
            known = before.topics.get(name) if before else None
            rate = 0.0
            if before is not None and known is not None and look.at > before.at:
                rate = max(0.0, (topic["written"] - known["written"]) / (look.at - before.at))
            topic["rate"] = round(rate, 1)
            self.topic_rates.setdefault(name, deque(maxlen=POINTS)).append((look.at, topic["rate"]))
            total += 0.0 if topic["internal"] else rate
        if before is not None:
            self.rate.append((look.at, round(total, 1)))
        for name, group in look.groups.items():
            if group["lag"] is not None:
                series = self.group_lags.setdefault(name, deque(maxlen=POINTS))
                series.append((look.at, group["lag"], group["lag_seconds"]))
        for kept, names in ((self.topic_rates, look.topics), (self.group_lags, look.groups)):
            for gone in set(kept) - set(names):
                del kept[gone]
