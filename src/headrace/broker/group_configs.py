"""Settings of groups: every one that Apache Kafka 4.3 has, with its name, default and bounds, and our own.

What a group does not set comes from the broker's setting for groups of its kind (``share.session.timeout.ms`` from
``group.share.session.timeout.ms``), which also bound what a group may set (``group.share.min.session.timeout.ms``,
``group.share.max...``). A group need not exist to have settings. They are kept in the data folder (``group-settings``,
a checked file: JSON of group, name, text) and take effect at once.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from headrace.definition import ConfigType, Definition, Value, at_least, between, one_of
from headrace.errors import InvalidConfig, StorageError
from headrace.log.checked_file import DamagedFile, read_checked, write_checked
from headrace.settings import DEFINITIONS as BROKER_DEFINITIONS

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.log.files import Files
    from headrace.settings import BrokerSettings

__all__ = ["DEFINITIONS", "GroupConfigs", "duration_ms"]

_logger = logging.getLogger(__name__)

_FILE: Final = "group-settings"
_INT, _LONG, _BOOL, _STRING = ConfigType.INT, ConfigType.LONG, ConfigType.BOOLEAN, ConfigType.STRING
_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{0,249}")
_DURATION: Final = re.compile(
    r"(?i:P(?:(?P<days>\d{1,9})D)?(?:T(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?"
    r"(?:(?P<seconds>\d{1,12})(?:[.,](?P<fraction>\d{0,9}))?S)?)?)"
)
_BY_DURATION: Final = "by_duration:"


def duration_ms(text: str) -> int | None:
    """The milliseconds of a duration like ``P1DT2H3M4.5S``; None if it is no such thing."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groupdict().values()) or text[-1] in "Tt":
        return None
    days, hours, minutes, seconds = (int(found[name] or 0) for name in ("days", "hours", "minutes", "seconds"))
    fraction = int((found["fraction"] or "").ljust(3, "0")[:3])
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + fraction


def _is_reset(value: Value) -> str | None:
    text = str(value)
    if text in ("earliest", "latest"):
        return None
    if text.startswith(_BY_DURATION) and duration_ms(text.removeprefix(_BY_DURATION)) is not None:
        return None
    return "it must be earliest, latest or by_duration:PnDTnHnMn.nS"


def _is_topic_or_empty(value: Value) -> str | None:
    text = str(value)
    return None if _TOPIC_NAME.fullmatch(text) and text not in (".", "..") else "it must be the name of a topic"


def _of_broker(name: str, text: str, check: Any) -> Definition:
    """A setting whose default is the broker's setting ``group.NAME``."""
    synonym = f"group.{name}"
    return Definition(name, _INT, BROKER_DEFINITIONS[synonym].default, text, check, ((synonym, 1),))


_TABLE: Final = (
    *(
        _of_broker(f"{kind}.{name}", text, check)
        for kind in ("consumer", "share", "streams")
        for name, text, check in (
            ("assignment.interval.ms", "The pause between two assignments of the group.", at_least(0)),
            ("heartbeat.interval.ms", "How often its members are told to heartbeat.", at_least(1)),
            ("session.timeout.ms", "A member that is silent for so long is out.", at_least(1)),
        )
    ),
    Definition(
        "headrace.backoff.max.ms",
        _LONG,
        "60000",
        "The longest back-off, however often a record was tried.",
        between(0, 86_400_000),
    ),
    Definition(
        "headrace.backoff.ms",
        _LONG,
        "0",
        "How long a share group's record waits until it is offered again, after it was released or its lock timed out; "
        "twice as long after each further attempt. 0 offers it again at once.",
        between(0, 86_400_000),
    ),
    Definition(
        "headrace.dead.letter.topic",
        _STRING,
        "",
        "The topic that a share group's records go to when they are rejected or were tried too often; empty for none.",
        _is_topic_or_empty,
    ),
    Definition(
        "headrace.key.ordered",
        _BOOL,
        "false",
        "Whether a record of a share group waits until the one before it with the same key is settled.",
    ),
    Definition(
        "share.auto.offset.reset",
        _STRING,
        "latest",
        "Where a share group begins: earliest, latest, or by_duration:PnDTnHnMn.nS ago.",
        _is_reset,
    ),
    _of_broker("share.delivery.count.limit", "How often a record is tried.", at_least(2)),
    Definition(
        "share.isolation.level",
        _STRING,
        "read_uncommitted",
        "Whether records of transactions that are not committed, or never will be, are delivered.",
        one_of("read_committed", "read_uncommitted"),
    ),
    _of_broker("share.partition.max.record.locks", "The most records of a partition in flight.", at_least(100)),
    _of_broker("share.record.lock.duration.ms", "How long a member has a record before others get it.", at_least(1000)),
    Definition("share.renew.acknowledge.enable", _BOOL, "true", "Whether members may renew their locks."),
    _of_broker("streams.initial.rebalance.delay.ms", "For streams groups; of no effect.", at_least(0)),
    _of_broker("streams.num.standby.replicas", "For streams groups; of no effect.", at_least(0)),
)

DEFINITIONS: Final[dict[str, Definition]] = {item.name: item for item in sorted(_TABLE, key=lambda item: item.name)}
"""Every setting of a group, by name, in alphabetical order."""


class GroupConfigs:
    """What was set on which group, and what it comes to."""

    def __init__(self, settings: BrokerSettings, files: Files, folder: Path) -> None:
        self.listeners: list[Callable[[str], None]] = []
        """Called with the group's name after its settings changed."""
        self._settings = settings
        self._files = files
        self._path = folder / _FILE
        self._overrides: dict[str, dict[str, str]] = {}
        self._values: dict[tuple[str, str], Any] = {}

    def load(self) -> None:
        """Read what was set before."""
        try:
            payload = read_checked(self._files, self._path)
        except DamagedFile as damaged:
            _logger.error("%s; all groups have the broker's settings", damaged)
            return
        if payload is not None:
            self._overrides = json.loads(payload)

    def groups(self) -> list[str]:
        """The groups that have settings of their own."""
        return list(self._overrides)

    def overrides(self, group_id: str) -> Mapping[str, str]:
        """What was set on a group."""
        return self._overrides.get(group_id, {})

    def value(self, group_id: str, name: str) -> Any:
        """The typed value of a group's setting: what was set on the group, else on the broker, else the default."""
        key = (group_id if group_id in self._overrides else "", name)
        if key not in self._values:
            self._values[key] = self._value(self.overrides(group_id), DEFINITIONS[name])
        return self._values[key]

    def ensure_valid(self, overrides: Mapping[str, str]) -> None:
        """Refuse settings that do not exist, have a wrong value, or are out of the broker's bounds."""
        for name, text in overrides.items():
            if name not in DEFINITIONS:
                raise InvalidConfig(f"there is no group setting '{name}'")
            value = DEFINITIONS[name].parse(text)
            kind, _, rest = name.partition(".")
            low, high = f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest.removeprefix('num.')}"
            if low in BROKER_DEFINITIONS and value < self._settings.value(low):
                raise InvalidConfig(f"{name} must be at least what {low} says, {self._settings.value(low)}")
            if high in BROKER_DEFINITIONS and value > self._settings.value(high):
                raise InvalidConfig(f"{name} must be at most what {high} says, {self._settings.value(high)}")

    def change(self, group_id: str, overrides: dict[str, str]) -> None:
        """Replace what is set on a group; kept on disk, then in effect."""
        changed = {name: texts for name, texts in self._overrides.items() if name != group_id}
        if overrides:
            changed[group_id] = overrides
        try:
            write_checked(self._files, self._path, json.dumps(changed).encode(), keep_previous=True)
        except OSError as error:
            raise StorageError(f"the settings could not be written: {error.strerror or error}") from error
        self._overrides = changed
        self._values.clear()
        for listener in self.listeners:
            listener(group_id)

    def _value(self, overrides: Mapping[str, str], item: Definition) -> Any:
        if item.name in overrides:
            return item.parse(overrides[item.name])
        return self._settings.value(item.synonyms[0][0]) if item.synonyms else item.parse(item.default)
