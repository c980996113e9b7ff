"""How many rows a query has read, and how many of them were late or dead; asked from anywhere."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from headrace.errors import UnknownTopic
from headrace.feed import Feed, open_feed
from headrace.pipelines.source.planning import Counts
from headrace.pipelines.source.reports import TIMES, Reports

__all__ = ["counts"]

_lock = threading.Lock()
_readers: dict[str, _Reader] = {}


class _Reader:
    """The topic of reports, read on from where it was."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._read = 0
        self._reports: dict[tuple[str, str], Reports] = {}

    def counts(self, query: str) -> Counts:
        self._read_on()
        total = Counts()
        for (name, _), reports in self._reports.items():
            if name == query:
                total = total.plus(reports.counts())
        return total

    def _read_on(self) -> None:
        try:
            end = self._feed.bounds(TIMES)[0][1]
        except UnknownTopic:
            return
        for batch in self._feed.read(TIMES, 0, self._read, end):
            keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
            for key, value in zip(keys, values, strict=True):
                query, _, rest = (key or b"").decode(errors="replace").partition("/")
                topic = rest.partition("/")[0]
                if (query, topic) not in self._reports:
                    self._reports[query, topic] = Reports(query, topic)
                self._reports[query, topic].add([(key, value)])
        self._read = max(self._read, end)


def counts(bootstrap: str, query: str, settings: Mapping[str, str] | None = None) -> Counts:
    """Rows of a query since its beginning; a batch that was done twice counts once."""
    with _lock:
        if bootstrap not in _readers:
            _readers[bootstrap] = _Reader(open_feed(bootstrap, None, settings))
        return _readers[bootstrap].counts(query)
