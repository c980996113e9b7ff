"""The catalog: which views and queries there are, as the topic ``headrace.catalog`` says.

A compacted topic of one partition. Keys: ``view/<app>/<name>`` (what a view is: topic, key, columns, fingerprint),
``query/<app>/<name>`` and ``capture/<app>/<name>`` (how a query or a captured table is doing), ``plan/<app>/<name>``
(how Spark runs a query); a null value takes the entry away. Other keys are for others. State is a fold of the records;
an entry that cannot be read is reported and changes nothing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.errors import InvalidRecord, UnknownTopic
from headrace.views.columns import Column

if TYPE_CHECKING:
    from headrace.feed import Feed

__all__ = ["CATALOG_TOPIC", "Catalog", "CatalogReader", "ViewName", "ViewSpec"]

CATALOG_TOPIC = "headrace.catalog"

_logger = logging.getLogger(__name__)

ViewName = tuple[str, str]
"""App and view."""


@dataclass(frozen=True)
class ViewSpec:
    """What a view is: where its changelog lies and what its rows look like."""

    app: str
    name: str
    topic: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    fingerprint: str = ""

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        wrong = None
        if not self.app or not self.name or "/" in self.app + self.name or self.app.startswith("."):
            wrong = "its name cannot be used"
        elif len({name.lower() for name in names}) != len(names):
            wrong = "two columns have the same name"
        elif not self.key:
            wrong = "it has no key"
        elif missing := [name for name in self.key if name not in names]:
            wrong = f"key column {missing[0]!r} is not among its columns"
        if wrong:
            raise InvalidRecord(f"view {self.full_name!r} cannot be kept: {wrong}")

    @property
    def full_name(self) -> str:
        """``app.view``."""
        return f"{self.app}.{self.name}"

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """The columns of the key, in the key's order."""
        by_name = {column.name: column for column in self.columns}
        return tuple(by_name[name] for name in self.key)

    def column(self, name: str) -> Column | None:
        """The column of this name."""
        return next((column for column in self.columns if column.name == name), None)

    def to_json(self) -> dict[str, Any]:
        """As the catalog has it."""
        return {
            "app": self.app,
            "name": self.name,
            "topic": self.topic,
            "key": list(self.key),
            "columns": [{"name": column.name, "type": column.type} for column in self.columns],
            "fingerprint": self.fingerprint,
        }

    @classmethod
    def from_json(cls, value: Any) -> ViewSpec:
        """From what the catalog has; InvalidRecord if it makes no sense."""
        try:
            columns = tuple(Column(str(item["name"]), str(item["type"])) for item in value["columns"])
            key = tuple(str(name) for name in value["key"])
            fingerprint = str(value.get("fingerprint") or "")
            return cls(str(value["app"]), str(value["name"]), str(value["topic"]), key, columns, fingerprint)
        except (KeyError, TypeError, AttributeError) as error:
            raise InvalidRecord(f"a catalog entry is not what it should be: {error!r}") from error


@dataclass
class Catalog:
    """The entries, folded from the topic's records."""

    views: dict[ViewName, ViewSpec] = field(default_factory=dict)
    queries: dict[ViewName, dict[str, Any]] = field(default_factory=dict)
    plans: dict[ViewName, dict[str, Any]] = field(default_factory=dict)
    captures: dict[ViewName, dict[str, Any]] = field(default_factory=dict)

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Take in one record; InvalidRecord if it cannot be read."""
        kind, _, rest = (key or b"").decode(errors="replace").partition("/")
        app, _, name = rest.partition("/")
        known: dict[str, dict[ViewName, Any]] = {
            "view": self.views,
            "query": self.queries,
            "plan": self.plans,
            "capture": self.captures,
        }
        if (entries := known.get(kind)) is None:
            return
        if value is None:
            entries.pop((app, name), None)
            return
        try:
            said = json.loads(value)
        except ValueError as error:
            raise InvalidRecord(f"the catalog entry {kind}/{app}/{name} is not JSON") from error
        if not isinstance(said, dict):
            raise InvalidRecord(f"the catalog entry {kind}/{app}/{name} is not a JSON object")
        entries[app, name] = ViewSpec.from_json(said) if kind == "view" else {**said, "app": app, "name": name}


class CatalogReader:
    """Follows the catalog's topic."""

    def __init__(self, feed: Feed) -> None:
        self.catalog = Catalog()
        self._feed = feed
        self._next = 0

    def poll(self) -> bool:
        """Read what is new; True if there was something. No topic is an empty catalog."""
        try:
            bounds = self._feed.bounds(CATALOG_TOPIC)
        except UnknownTopic:
            bounds = {}
        start, end = bounds.get(0, (0, 0))
        changed = False
        if end < self._next:
            self.catalog, self._next, changed = Catalog(), 0, True
        if end > self._next:
            for batch in self._feed.read(CATALOG_TOPIC, 0, max(start, self._next), end):
                self._take(zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True))
            self._next, changed = end, True
        return changed

    def _take(self, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        for key, value in records:
            try:
                self.catalog.apply(key, value)
            except InvalidRecord as error:
                _logger.warning("%s", error)
