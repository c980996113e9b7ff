"""What a worker that was killed has left undecided is decided before anything is read or mended.

A worker dies with a transaction of the log open, or with its commit still on the way. Until that is decided, readers of
committed records see less than the log may come to say, and wait: a minute, then the broker gives the transaction up.
Taking over the identity that Connect gives the task's producer ends it at once, and shuts out a task that still runs.
"""

from __future__ import annotations

from confluent_kafka import KafkaException, Producer

from headrace.capture.connectors import Connector
from headrace.feed.cluster import Cluster, raised

__all__ = ["fence", "transactional_id"]

PATIENCE_S = 30.0


def transactional_id(connector: Connector) -> str:
    """The identity of a connector's only task towards the log, as Connect composes it."""
    return f"headrace.connect.{connector.app}-{connector.name}-0"


def fence(cluster: Cluster, connector: Connector) -> None:
    """End what the task of a connector has begun. No worker may be meant to run it now."""
    producer = Producer(cluster.config(transactional_id=transactional_id(connector)))
    try:
        producer.init_transactions(PATIENCE_S)
    except KafkaException as error:
        doing = f"the last transaction of connector {connector.name} could not be ended"
        raise raised(error.args[0], doing, cluster.bootstrap) from None
