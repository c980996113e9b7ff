"""Settings as DescribeConfigs and CreateTopics show them: value, where it comes from, and what it would be otherwise.

A topic's value comes from the topic itself, else from the broker's setting of another name (its *synonym*), else it
is the default. A broker's value was set while it ran (for this broker, or for all), else when it was started. A group's
value comes from the group, else from the broker's setting for groups of its kind.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headrace.broker import error_codes
from headrace.broker.group_configs import DEFINITIONS as GROUP_DEFINITIONS
from headrace.broker.refused import Refused
from headrace.definition import ConfigType, Definition
from headrace.log.topic_config import DEFINITIONS as TOPIC_DEFINITIONS
from headrace.settings import DEFINITIONS as BROKER_DEFINITIONS

if TYPE_CHECKING:
    from headrace.broker.dynamic_settings import DynamicSettings
    from headrace.log.store import Topic

__all__ = [
    "BROKER",
    "BROKER_LOGGER",
    "CLIENT_METRICS",
    "GROUP",
    "TOPIC",
    "Source",
    "broker_configs",
    "changed_broker_configs",
    "describe_group",
    "describe_topic",
    "described_drops",
    "described_in_flight",
    "ensure_broker",
    "topic_configs",
]

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32


class Source(IntEnum):
    """Where a value comes from, as the protocol numbers it."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_GROUP = 8


_DROPPED: Final = Definition(
    "headrace.overflow.dropped",
    ConfigType.LONG,
    "0",
    "How many records went because headrace.overflow is 'drop' and the topic was full. It cannot be set.",
    read_only=True,
)

_IN_FLIGHT: Final = Definition(
    "headrace.in.flight",
    ConfigType.LONG,
    "0",
    "How many records consumers of the share group hold at the moment. It cannot be set.",
    read_only=True,
)


class _Origin(NamedTuple):
    name: str
    value: str | None
    source: Source


def topic_configs(settings: DynamicSettings, overrides: Mapping[str, str]) -> list[dict[str, Any]]:
    """All settings of a topic that was just created."""
    return [
        _shown(item, _topic_origins(item, settings, overrides), overrides.get(item.name), False, False)
        for item in TOPIC_DEFINITIONS.values()
        if not item.internal
    ]


def describe_topic(
    settings: DynamicSettings,
    overrides: Mapping[str, str],
    names: Collection[str] | None,
    synonyms: bool,
    documentation: bool,
) -> list[dict[str, Any]]:
    """The settings of a topic, or those of these names."""
    return [
        _shown(item, _topic_origins(item, settings, overrides), None, synonyms, documentation)
        for item in TOPIC_DEFINITIONS.values()
        if _is_wanted(item, names) and (not item.internal or item.name in overrides)
    ]


def described_drops(
    topic: Topic, names: Collection[str] | None, synonyms: bool, documentation: bool
) -> list[dict[str, Any]]:
    """How many records a topic that drops them has dropped, in the form of a setting: so that any client can ask."""
    if topic.config.ring is None or not _is_wanted(_DROPPED, names):
        return []
    total = sum(partition.dropped for partition in topic.partitions)
    return [_shown(_DROPPED, [], str(total), synonyms, documentation)]


def describe_group(
    settings: DynamicSettings,
    overrides: Mapping[str, str],
    names: Collection[str] | None,
    synonyms: bool,
    documentation: bool,
) -> list[dict[str, Any]]:
    """The settings of a group, or those of these names."""
    return [
        _shown(item, _group_origins(item, settings, overrides), None, synonyms, documentation)
        for item in GROUP_DEFINITIONS.values()
        if _is_wanted(item, names)
    ]


def described_in_flight(
    held: int, names: Collection[str] | None, synonyms: bool, documentation: bool
) -> list[dict[str, Any]]:
    """How many records the consumers of a share group hold, in the form of a setting: so that any client can ask."""
    return [_shown(_IN_FLIGHT, [], str(held), synonyms, documentation)] if _is_wanted(_IN_FLIGHT, names) else []


def broker_configs(
    settings: DynamicSettings, names: Collection[str] | None, synonyms: bool, documentation: bool
) -> list[dict[str, Any]]:
    """The settings of the broker, or those of these names."""
    return [
        _shown(item, _broker_origins(item, settings), None, synonyms, documentation)
        for item in BROKER_DEFINITIONS.values()
        if _is_wanted(item, names)
    ]


def changed_broker_configs(
    settings: DynamicSettings, names: Collection[str] | None, synonyms: bool, documentation: bool
) -> list[dict[str, Any]]:
    """What was set for all brokers while they ran."""
    return [
        _shown(
            BROKER_DEFINITIONS[name],
            [_Origin(name, text, Source.DYNAMIC_DEFAULT_BROKER)],
            None,
            synonyms,
            documentation,
        )
        for name, text in settings.for_all.items()
        if _is_wanted(BROKER_DEFINITIONS[name], names)
    ]


def ensure_broker(node_id: int, name: str) -> None:
    """Refuse a broker that is not this one."""
    if not name.lstrip("-").isdecimal():
        raise Refused(error_codes.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if int(name) != node_id:
        raise Refused(
            error_codes.INVALID_REQUEST,
            f"Unexpected broker id, expected {node_id} or empty string, but received {name}",
        )


def _is_wanted(item: Definition, names: Collection[str] | None) -> bool:
    return not names or item.name in names


def _topic_origins(item: Definition, settings: DynamicSettings, overrides: Mapping[str, str]) -> list[_Origin]:
    """Where the value comes from, then what it would be without that, and so on."""
    origins = []
    if item.name in overrides:
        origins.append(_Origin(item.name, overrides[item.name], Source.DYNAMIC_TOPIC))
    for name, _ in item.synonyms:
        origins += [origin for origin in _broker_origins(BROKER_DEFINITIONS[name], settings) if _is_set(origin)]
    if item.synonyms:
        first = BROKER_DEFINITIONS[item.synonyms[0][0]]
        if first.default is not None:
            origins.append(_Origin(first.name, first.default, Source.DEFAULT))
    return origins


def _group_origins(item: Definition, settings: DynamicSettings, overrides: Mapping[str, str]) -> list[_Origin]:
    origins = []
    if item.name in overrides:
        origins.append(_Origin(item.name, overrides[item.name], Source.DYNAMIC_GROUP))
    if not item.synonyms:
        return [*origins, _Origin(item.name, item.default, Source.DEFAULT)]
    return [*origins, *_broker_origins(BROKER_DEFINITIONS[item.synonyms[0][0]], settings)]


def _broker_origins(item: Definition, settings: DynamicSettings) -> list[_Origin]:
    found = [
        (settings.for_this.get(item.name), Source.DYNAMIC_BROKER),
        (settings.for_all.get(item.name), Source.DYNAMIC_DEFAULT_BROKER),
        (settings.started_with.get(item.name), Source.STATIC_BROKER),
        (item.default, Source.DEFAULT),
    ]
    return [_Origin(item.name, value, source) for value, source in found if value is not None]


def _is_set(origin: _Origin) -> bool:
    return origin.source is not Source.DEFAULT


def _shown(
    item: Definition, origins: list[_Origin], raw: str | None, synonyms: bool, documentation: bool
) -> dict[str, Any]:
    source = origins[0].source if origins else Source.DEFAULT
    value = raw if raw is not None else _value(item, origins)
    return {
        "name": item.name,
        "value": value,
        "read_only": item.read_only,
        "is_default": source is Source.DEFAULT,
        "config_source": source,
        "is_sensitive": False,
        "synonyms": [
            {"name": origin.name, "value": _rendered(item, origin), "source": origin.source}
            for origin in (origins if synonyms else ())
        ],
        "config_type": item.type,
        "documentation": item.documentation if documentation else None,
    }


def _value(item: Definition, origins: list[_Origin]) -> str | None:
    if not origins or origins[0].source is Source.DEFAULT:
        return item.default
    first = origins[0]
    factor = dict(item.synonyms).get(first.name, 1)
    text = _rendered(item, first)
    return text if factor == 1 or text is None else str(int(text) * factor)


def _rendered(item: Definition, origin: _Origin) -> str | None:
    """A value in the form in which it is always shown."""
    definition = BROKER_DEFINITIONS.get(origin.name, item) if origin.name != item.name else item
    return None if origin.value is None else definition.render(definition.parse(origin.value))
