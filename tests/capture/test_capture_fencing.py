"""What a killed worker leaves open in the log is ended at once, and what it tore is found behind it."""

from __future__ import annotations

import uuid

from confluent_kafka import Producer

from headrace.capture.connectors import Connector
from headrace.capture.declarations import Captured, Postgres
from headrace.capture.fencing import fence, transactional_id
from headrace.capture.torn import NEW_KEY, mend
from headrace.feed.cluster import Cluster
from headrace.feed.topics import ensure_topic
from tests.capture.topics import Reader
from tests.servers import Headrace

DELETION = b'{"before":{"id":1},"after":null,"source":{},"op":"d"}'


def connector(topic: str) -> Connector:
    source = Postgres("postgresql://nobody@localhost/none", table="t")
    return Connector(topic, source.server, (Captured(topic, source),))


def killed_in_a_transaction(log: Headrace, one: Connector, topic: str) -> Producer:
    """A deletion of a changed key, committed; then a transaction that stays open, far larger than what is looked at."""
    producer = Producer({"bootstrap.servers": log.bootstrap, "transactional.id": transactional_id(one)})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, key=b'{"id":1}', value=DELETION, headers=[(NEW_KEY, b'{"id":2}')])
    producer.commit_transaction(30)
    producer.begin_transaction()
    for number in range(2000):
        producer.produce(topic, key=b'{"id":%d}' % number, value=b'{"op":"c","after":{},"source":{}}')
        producer.poll(0)
    producer.flush(30)
    return producer


def test_an_open_transaction_is_ended_and_the_change_that_was_torn_before_it_is_mended(log: Headrace) -> None:
    topic = f"fenced-{uuid.uuid4().hex[:8]}"
    cluster, one = Cluster(log.bootstrap, {}), connector(topic)
    ensure_topic(cluster, topic)
    killed = killed_in_a_transaction(log, one, topic)
    _, held = cluster.bounds(topic)[0]
    fence(cluster, one)
    _, end = cluster.bounds(topic)[0]
    assert end >= held + 2000
    assert mend(cluster, topic) == {"id": 2}
    reader = Reader(log.bootstrap, topic)
    reader.until(lambda: len(reader.changes) == 2)
    assert [change.op for change in reader.changes] == ["d", "tombstone"]
    reader.close()
    del killed
