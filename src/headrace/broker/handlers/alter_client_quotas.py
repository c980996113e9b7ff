"""AlterClientQuotas: sets how many bytes a second clients may send and receive, by client id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from headrace.broker import error_codes
from headrace.broker.handlers.describe_client_quotas import CLIENT_ID, IP, USER
from headrace.broker.quotas import CONSUMER, PRODUCER
from headrace.broker.refused import Refused, code_of
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.context import RequestContext

__all__ = ["API_KEY", "VERSIONS", "handle"]

API_KEY: Final = 49
VERSIONS: Final = (0, 1)

_OF_KAFKA: Final = ("request_percentage", "controller_mutation_rate")
_WHOLE: Final = 1e-6
_LARGEST: Final = 2**63 - 1


async def handle(broker: Broker, request: Any, context: RequestContext) -> dict[str, Any]:
    """Each entry for itself."""
    return {"entries": [_altered(broker, one, validate_only=request.validate_only) for one in request.entries]}


def _altered(broker: Broker, entry: Any, *, validate_only: bool) -> dict[str, Any]:
    told = [{"entity_type": one.entity_type, "entity_name": one.entity_name} for one in entry.entity]
    try:
        client_id = _client_id(entry.entity)
        rates = _rates(entry.ops)
        if not validate_only:
            broker.quotas.change(client_id, rates)
    except HeadraceError as error:
        return {"error_code": code_of(error), "error_message": error.message, "entity": told}
    return {"error_message": None, "entity": told}


def _client_id(entity: Sequence[Any]) -> str | None:
    """The client id that a quota is for; None for all that have none of their own."""
    if not entity:
        raise Refused(error_codes.INVALID_REQUEST, "Invalid empty client quota entity")
    for one in entity:
        if one.entity_type not in (CLIENT_ID, USER, IP):
            raise Refused(error_codes.INVALID_REQUEST, f"Unhandled client quota entity type: {one.entity_type}")
        if one.entity_name == "":
            raise Refused(error_codes.INVALID_REQUEST, f"Empty {one.entity_type} not supported")
    if len(entity) > 1 or entity[0].entity_type != CLIENT_ID:
        raise Refused(
            error_codes.INVALID_REQUEST,
            "quotas are for client ids: there is no authentication, so there are no users, and addresses have none",
        )
    name: str | None = entity[0].entity_name
    return name


def _rates(ops: Sequence[Any]) -> Mapping[str, float | None]:
    found: dict[str, float | None] = {}
    for op in ops:
        if op.key in _OF_KAFKA:
            raise Refused(error_codes.INVALID_REQUEST, f"{op.key} is not limited here, only bytes a second are")
        if op.key not in (PRODUCER, CONSUMER):
            raise Refused(error_codes.INVALID_REQUEST, f"Invalid configuration key {op.key}")
        if not op.remove:
            _ensure_rate(op.key, op.value)
        found[op.key] = None if op.remove else op.value
    return found


def _ensure_rate(key: str, value: float) -> None:
    if not value > 0:
        raise Refused(error_codes.INVALID_REQUEST, f"Quota {key} must be greater than 0")
    if value > _LARGEST:
        raise Refused(error_codes.INVALID_REQUEST, f"Proposed value for {key} is too large for a LONG.")
    if abs(value - round(value)) > _WHOLE:
        raise Refused(error_codes.INVALID_REQUEST, f"{key} cannot be a fractional value.")
