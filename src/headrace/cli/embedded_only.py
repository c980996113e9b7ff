"""What only the embedded log can do is refused on Apache Kafka, with what to do instead, before anything is changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.cli.failures import CommandFailed

if TYPE_CHECKING:
    from headrace.operations.cluster import Cluster

__all__ = ["ensure_known"]

_INSTEAD = {
    "headrace.overflow": "there records stay until retention takes them: set retention.ms or retention.bytes",
    "headrace.archive": "there Kafka's tiered storage is for that: remote.storage.enable, if the cluster has it",
    "headrace.key.ordered": "read the topic in a consumer group, which keeps the order of keys",
    "headrace.dead.letter": "there records are given up after share.delivery.count.limit attempts, and are not copied",
    "headrace.backoff": "there records that were released are handed out again at once",
}


def ensure_known(cluster: Cluster, settings: Iterable[str]) -> None:
    """Raise if one of these settings is Headrace's own and the cluster is not."""
    own = [name for name in settings if name.startswith("headrace.")]
    if not own or cluster.asked().brokers.embedded:
        return
    hint = next((text for stem, text in _INSTEAD.items() if own[0].startswith(stem)), None)
    raise CommandFailed(
        f"{', '.join(own)}: only Headrace's own log can do this, and {cluster.server} is Apache Kafka.",
        hint=hint or "leave it away",
    )
