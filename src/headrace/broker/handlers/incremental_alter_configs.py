"""IncrementalAlterConfigs: set, unset, or add to and take from lists; what is not named stays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from headrace.broker import error_codes
from headrace.broker.altered_configs import alter_each
from headrace.broker.refused import Refused
from headrace.definition import ConfigType, Definition
from headrace.errors import InvalidConfig

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

__all__ = ["API_KEY", "VERSIONS", "handle"]

API_KEY: Final = 44
VERSIONS: Final = (0, 1)

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Each resource on its own."""
    return alter_each(broker, request.resources, _changed, request.validate_only)


def _changed(
    resource: Any, definitions: Mapping[str, Definition], now: Mapping[str, str], defaults: Mapping[str, str]
) -> dict[str, str]:
    changed = dict(now)
    for config in resource.configs:
        name, operation = config.name, config.config_operation
        if operation not in (_SET, _DELETE, _APPEND, _SUBTRACT):
            raise Refused(error_codes.INVALID_REQUEST, f"operation {operation} on setting '{name}'")
        if config.value is None and operation != _DELETE:
            raise Refused(error_codes.INVALID_REQUEST, f"setting '{name}' has no value")
        if operation == _DELETE:
            changed.pop(name, None)
        elif operation == _SET:
            changed[name] = config.value
        else:
            definition = definitions.get(name)
            if definition is None or definition.type is not ConfigType.LIST:
                raise InvalidConfig(f"setting '{name}' is not a list, so nothing can be added or taken away")
            items = _items(changed.get(name, defaults.get(name, definition.default)))
            given = _items(config.value)
            if operation == _APPEND:
                items += [item for item in given if item not in items]
            else:
                items = [item for item in items if item not in given]
            changed[name] = ",".join(items)
    return changed


def _items(text: str | None) -> list[str]:
    return [item.strip() for item in text.split(",")] if text else []
