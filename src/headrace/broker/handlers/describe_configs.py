"""DescribeConfigs of topics, of groups and of the broker: every setting, its value and where it comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker import error_codes
from headrace.broker.described_configs import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    broker_configs,
    changed_broker_configs,
    describe_group,
    describe_topic,
    described_drops,
    described_in_flight,
    ensure_broker,
)
from headrace.broker.refused import Refused, code_of
from headrace.errors import HeadraceError
from headrace.log.store import ensure_topic_name

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

__all__ = ["API_KEY", "VERSIONS", "handle"]

API_KEY: Final = 32
VERSIONS: Final = (1, 4)


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Each resource on its own."""
    results = []
    for resource in request.resources:
        result = {
            "error_code": error_codes.NONE,
            "error_message": "",
            "resource_type": resource.resource_type,
            "resource_name": resource.resource_name,
            "configs": [],
        }
        try:
            result["configs"] = _describe(broker, resource, request.include_synonyms, request.include_documentation)
        except HeadraceError as error:
            result["error_code"], result["error_message"] = code_of(error), str(error)
        results.append(result)
    return {"results": results}


def _describe(broker: Broker, resource: Any, synonyms: bool, documentation: bool) -> list[dict[str, Any]]:
    kind, name, names = resource.resource_type, resource.resource_name, resource.configuration_keys
    settings = broker.dynamic_settings
    if kind == TOPIC:
        ensure_topic_name(name)
        topic = broker.store.topic(name)
        told = describe_topic(settings, topic.overrides, names, synonyms, documentation)
        return told + described_drops(topic, names, synonyms, documentation)
    if kind == BROKER:
        if name == "":
            return changed_broker_configs(settings, names, synonyms, documentation)
        ensure_broker(broker.store.node_id, name)
        return broker_configs(settings, names, synonyms, documentation)
    if kind == BROKER_LOGGER:
        ensure_broker(broker.store.node_id, name)
        return []
    if kind == GROUP:
        if not name:
            raise Refused(error_codes.INVALID_REQUEST, "a group must have a name")
        told = describe_group(settings, broker.group_configs.overrides(name), names, synonyms, documentation)
        if name not in broker.shares.groups():
            return told
        return told + described_in_flight(broker.shares.in_flight(name), names, synonyms, documentation)
    if kind == CLIENT_METRICS:
        return []
    raise Refused(error_codes.INVALID_REQUEST, f"resources of type {kind} have no settings")
