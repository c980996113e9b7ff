"""What a broker answered, written down so that two brokers' answers can be compared.

Values that may differ between two correct brokers (ids they made up, their address, their clock, the wording of
messages) are replaced by names or left out. All else must be equal. Intended differences are in differences.toml.
"""

from __future__ import annotations

import tomllib
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tests.contract import batches

MADE_UP = {"topic_id", "member_id", "leader", "producer_id", "session_id", "cluster_id", "member_id_or_epoch"}
"""Fields whose values a broker makes up: compared by which of them are equal."""

OWN = {"host", "port", "log_dir", "total_bytes", "usable_bytes", "finalized_features_epoch"}
"""Fields about the broker's own place: not compared."""

WORDS = {"error_message", "batch_index_error_message"}
"""Messages for people: not compared."""

SORTED_BY = (
    "name",
    "topic",
    "topic_name",
    "group_id",
    "partition",
    "partition_index",
    "index",
    "resource_name",
    "resource_type",
    "member_id",
    "api_key",
)


@dataclass
class Names:
    """Readable names for values that the broker made up, given in the order they are first seen."""

    known: dict[Any, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def of(self, kind: str, value: Any) -> Any:
        if value in (None, "", -1, uuid.UUID(int=0)) or (kind == "session_id" and value == 0):
            return value
        if value not in self.known:
            self.counts[kind] += 1
            self.known[value] = f"<{kind} {self.counts[kind]}>"
        return self.known[value]

    def learn(self, value: Any, name: str) -> None:
        self.known[value] = name


@dataclass
class Transcript:
    """The labelled answers of one broker to one scenario."""

    names: Names = field(default_factory=Names)
    entries: list[tuple[str, Any]] = field(default_factory=list)

    def add(self, label: str, tree: Any) -> None:
        self.entries.append((label, normalised(tree, self.names)))


def normalised(value: Any, names: Names, name: str = "") -> Any:
    match value:
        case dict():
            return {key: normalised(item, names, key) for key, item in value.items() if key not in OWN | WORDS}
        case list():
            return sorted((normalised(item, names, name) for item in value), key=_order)
        case bytes() if name == "records":
            return [normalised(_without_checksum(head), names) for head in batches.headers_of(value)]
        case _ if name in MADE_UP:
            return names.of(name, value)
        case _:
            return value


def _without_checksum(head: dict[str, Any]) -> dict[str, Any]:
    """The checksum covers the producer id, which differs."""
    return {key: value for key, value in head.items() if key != "crc" or head["producer_id"] == -1}


def _order(item: Any) -> str:
    if isinstance(item, dict):
        return "|".join(
            f"{item[key]:>12}" if isinstance(item[key], int) else str(item[key]) for key in SORTED_BY if key in item
        )
    return ""


@dataclass(frozen=True)
class Difference:
    """One value that is not the same in both transcripts."""

    path: str
    kafka: Any
    headrace: Any

    def __str__(self) -> str:
        return f"{self.path}: kafka {self.kafka!r}, headrace {self.headrace!r}"


def differences(kafka: Transcript, headrace: Transcript) -> list[Difference]:
    found = []
    for index in range(max(len(kafka.entries), len(headrace.entries))):
        one = kafka.entries[index] if index < len(kafka.entries) else ("nothing more", None)
        two = headrace.entries[index] if index < len(headrace.entries) else ("nothing more", None)
        if one[0] != two[0]:
            found.append(Difference(f"{index}", one[0], two[0]))
            break
        found += _compare(one[0], one[1], two[1])
    return found


def _compare(path: str, kafka: Any, headrace: Any) -> Iterator[Difference]:
    if isinstance(kafka, dict) and isinstance(headrace, dict):
        for key in [*kafka, *(key for key in headrace if key not in kafka)]:
            yield from _compare(f"{path}.{key}", kafka.get(key, "absent"), headrace.get(key, "absent"))
    elif isinstance(kafka, list) and isinstance(headrace, list):
        one, two = _by_name(kafka), _by_name(headrace)
        for key in [*one, *(key for key in two if key not in one)]:
            yield from _compare(f"{path}[{key}]", one.get(key, "absent"), two.get(key, "absent"))
    elif type(kafka) is not type(headrace) or kafka != headrace:
        yield Difference(path, kafka, headrace)


def _by_name(items: list[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for index, item in enumerate(items):
        key = (
            next((str(item[name]) for name in SORTED_BY if name in item), str(index))
            if isinstance(item, dict)
            else str(index)
        )
        found[key if key not in found else f"{key}#{index}"] = item
    return found


@dataclass(frozen=True)
class Intended:
    """An entry of differences.toml: in these scenarios, at these paths, Kafka says this and Headrace that."""

    scenario: str
    path: str
    reason: str
    kafka: Any = None
    headrace: Any = None

    def covers(self, scenario: str, one: Difference) -> bool:
        if not (_matches(scenario, self.scenario) and _matches(one.path, self.path)):
            return False
        return self.kafka in (None, _plain(one.kafka)) and self.headrace in (None, _plain(one.headrace))


def _matches(text: str, pattern: str) -> bool:
    """Only a star means something in a pattern."""
    return fnmatchcase(text, pattern.replace("[", "[[]"))


def _plain(value: Any) -> Any:
    return value if isinstance(value, (int, str, bool)) else str(value)


def intended() -> list[Intended]:
    entries = tomllib.loads(Path(__file__).with_name("differences.toml").read_text())
    return [Intended(**entry) for entry in entries["difference"]]
