"""Changing settings, for AlterConfigs (replace all) and IncrementalAlterConfigs (change some)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.broker import error_codes
from headrace.broker.described_configs import BROKER, GROUP, TOPIC, ensure_broker
from headrace.broker.group_configs import DEFINITIONS as GROUP_DEFINITIONS
from headrace.broker.refused import Refused, code_of
from headrace.definition import Definition
from headrace.errors import HeadraceError, InvalidConfig
from headrace.log.store import ensure_topic_name
from headrace.log.topic_config import DEFINITIONS as TOPIC_DEFINITIONS
from headrace.log.topic_config import TopicConfig
from headrace.settings import DEFINITIONS as BROKER_DEFINITIONS

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

__all__ = ["Change", "alter_each"]

Change = Callable[[Any, Mapping[str, Definition], Mapping[str, str], Mapping[str, str]], dict[str, str]]
"""What is set after a resource of a request is applied: the resource, the definitions, what is set now, and the values
that are in effect where nothing is set."""


def alter_each(broker: Broker, resources: list[Any], change: Change, validate_only: bool) -> dict[str, Any]:
    """Apply each resource on its own; a resource that comes twice is refused."""
    keys = [(resource.resource_type, resource.resource_name) for resource in resources]
    responses = []
    for resource, key in zip(resources, keys, strict=True):
        code, message = error_codes.NONE, None
        try:
            if keys.count(key) > 1:
                raise Refused(error_codes.INVALID_REQUEST, "Each resource must appear at most once.")
            _alter(broker, resource, change, validate_only)
        except HeadraceError as error:
            code, message = code_of(error), str(error)
        responses.append(
            {
                "error_code": code,
                "error_message": message,
                "resource_type": resource.resource_type,
                "resource_name": resource.resource_name,
            }
        )
    return {"responses": responses}


def _alter(broker: Broker, resource: Any, change: Change, validate_only: bool) -> None:
    names = [config.name for config in resource.configs]
    if len(set(names)) != len(names):
        raise Refused(error_codes.INVALID_REQUEST, "a setting is named twice")
    if resource.resource_type == TOPIC:
        _alter_topic(broker, resource, change, validate_only)
    elif resource.resource_type == BROKER:
        _alter_broker(broker, resource, change, validate_only)
    elif resource.resource_type == GROUP:
        _alter_group(broker, resource, change, validate_only)
    else:
        raise Refused(error_codes.INVALID_REQUEST, f"resources of type {resource.resource_type} cannot be changed")


def _alter_topic(broker: Broker, resource: Any, change: Change, validate_only: bool) -> None:
    if not resource.resource_name:
        raise Refused(error_codes.INVALID_REQUEST, "there are no settings of all topics; set the broker's")
    ensure_topic_name(resource.resource_name)
    topic = broker.store.topic(resource.resource_name)
    overrides = change(resource, TOPIC_DEFINITIONS, topic.overrides, broker.store.defaults)
    if validate_only:
        TopicConfig.parse(overrides, broker.store.defaults)
    else:
        broker.store.set_overrides(topic.name, overrides)


def _alter_broker(broker: Broker, resource: Any, change: Change, validate_only: bool) -> None:
    settings = broker.dynamic_settings
    for_all = resource.resource_name == ""
    if not for_all:
        ensure_broker(broker.store.node_id, resource.resource_name)
    fixed = [config.name for config in resource.configs if _is_fixed(config.name)]
    if fixed:
        raise Refused(error_codes.INVALID_REQUEST, f"these settings cannot be changed while the broker runs: {fixed}")
    now = settings.for_all if for_all else settings.for_this
    changed = change(resource, BROKER_DEFINITIONS, now, settings.started_with)
    for name, text in changed.items():
        if name not in BROKER_DEFINITIONS:
            raise InvalidConfig(f"there is no broker setting '{name}'")
        try:
            BROKER_DEFINITIONS[name].parse(text)
        except InvalidConfig as error:
            raise Refused(error_codes.INVALID_REQUEST, error.message) from None
    if not validate_only:
        settings.change(broker.store, **{"for_all" if for_all else "for_this": changed})


def _alter_group(broker: Broker, resource: Any, change: Change, validate_only: bool) -> None:
    group_id = resource.resource_name
    if not group_id:
        raise Refused(error_codes.INVALID_REQUEST, "there are no settings of all groups; set the broker's")
    configs = broker.group_configs
    changed = change(resource, GROUP_DEFINITIONS, configs.overrides(group_id), {})
    configs.ensure_valid(changed)
    if not validate_only:
        configs.change(group_id, changed)


def _is_fixed(name: str) -> bool:
    return name in BROKER_DEFINITIONS and BROKER_DEFINITIONS[name].read_only
