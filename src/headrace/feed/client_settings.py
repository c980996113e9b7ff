"""Settings of the Kafka client that are not the user's to make, where Headrace itself reads and writes.

``acks``, ``enable.idempotence`` and ``transactional.id`` are why what was acknowledged is there, and there once;
``isolation.level`` and ``auto.offset.reset`` why what is read is all that was committed, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.errors import InvalidConfig

__all__ = ["OURS", "ensure_usable"]

_ACKS = "what was acknowledged has to survive the loss of a broker: all copies in sync are waited for"
_PLACES = "offsets are kept with what was made of the records, in checkpoints and stores of views"
_GROUPS = "groups are named after queries, and after the place where views are kept"
_ADDRESS = "the address of the log is an option: --log, or --to of a move"
_SPEAKS = "the nodes that share views have to agree on how they share"

OURS = {
    "bootstrap.servers": _ADDRESS,
    "metadata.broker.list": _ADDRESS,
    "acks": _ACKS,
    "request.required.acks": _ACKS,
    "enable.idempotence": "a record that is sent again must not be there twice",
    "transactional.id": "a run fences the one before it by this id: it is named after the query",
    "isolation.level": "what a transaction has not committed would be counted, and again when it is done again",
    "auto.offset.reset": "records that are gone before they were read must be told, not skipped",
    "enable.auto.commit": _PLACES,
    "auto.commit.enable": _PLACES,
    "enable.auto.offset.store": _PLACES,
    "enable.partition.eof": "the end of a range that ends without a record is known by it",
    "group.id": _GROUPS,
    "group.instance.id": _GROUPS,
    "group.protocol": _SPEAKS,
    "partition.assignment.strategy": _SPEAKS,
}
"""Each with its reason; librdkafka has two names for some."""


def ensure_usable(settings: Mapping[str, str]) -> None:
    """Refuse settings of the client that what Headrace promises rests on."""
    for name in sorted(settings.keys() & OURS.keys()):
        raise InvalidConfig(
            f"{name} of the Kafka client cannot be set here.",
            detail=OURS[name],
            hint="leave it away; it is said by -X, HEADRACE_CLIENT or [client] of the settings file",
        )
