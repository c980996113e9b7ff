"""AlterConfigs: replace all that is set on a resource by what is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from headrace.broker import error_codes
from headrace.broker.altered_configs import alter_each
from headrace.broker.refused import Refused
from headrace.definition import Definition

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

__all__ = ["API_KEY", "VERSIONS", "handle"]

API_KEY: Final = 33
VERSIONS: Final = (0, 2)


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Each resource on its own."""
    return alter_each(broker, request.resources, _replaced, request.validate_only)


def _replaced(
    resource: Any, definitions: Mapping[str, Definition], now: Mapping[str, str], defaults: Mapping[str, str]
) -> dict[str, str]:
    without = [config.name for config in resource.configs if config.value is None]
    if without:
        raise Refused(error_codes.INVALID_REQUEST, f"settings without a value: {without}")
    return {config.name: config.value for config in resource.configs}
