"""Alerts reach real receivers: at least once, with one key per alert, and what cannot be delivered is kept."""

from __future__ import annotations

import email
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

import headrace as hr
from headrace.feed.cluster import Cluster
from headrace.feed.topics import ensure_topic
from headrace.pipelines.alerts import Channel
from headrace.pipelines.declarations import Kind, Query
from headrace.pipelines.delivery import Deliverer, idempotency_key, signature
from headrace.pipelines.places import Place
from headrace.testing.broker import EmbeddedBroker
from tests.pipelines.receivers import Received, http_server, smtp_server

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with EmbeddedBroker(tmp_path_factory.mktemp("alerts")) as broker:
        yield Cluster(broker.bootstrap, {})


@pytest.fixture
def http() -> Iterator[Received]:
    with http_server() as received:
        yield received


@pytest.fixture
def smtp() -> Iterator[Received]:
    with smtp_server() as received:
        yield received


def until(condition: Callable[[], bool], patience: float = 60.0) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.01)


class Alert:
    """An alert with rows on its topic, and its deliverer."""

    def __init__(self, cluster: Cluster, name: str, to: Channel) -> None:
        self.query = Query("shop", name, Kind.ALERT, ("orders",), Place(__file__, 1), to=to)
        self.cluster, self.told = cluster, list[str]()
        ensure_topic(cluster, self.query.topic, 1, {})
        ensure_topic(cluster, f"{self.query.id}.dead", 1, {})

    def rows(self, *values: bytes) -> None:
        producer = Producer(self.cluster.config())
        for value in values:
            producer.produce(self.query.topic, value=value)
        producer.flush(30)

    def deliver(self, sent: int, dead: int = 0) -> None:
        """Run the deliverer until it has done so much."""
        deliverer = Deliverer(self.cluster, self.query, self.query.topic, self.told.append, first_pause_s=0.01)
        deliverer.start()
        until(lambda: (deliverer.sent, deliverer.dead) == (sent, dead))
        deliverer.ask_to_stop()
        deliverer.join(30)

    def buried(self) -> list[tuple[bytes | str | None, dict[str, bytes]]]:
        consumer: Consumer = self.cluster.consumer()
        from confluent_kafka import TopicPartition

        consumer.assign([TopicPartition(f"{self.query.id}.dead", 0, 0)])
        found = []
        while (message := consumer.poll(10)) is not None and message.error() is None:
            found.append((message.value(), dict(message.headers() or [])))
        consumer.close()
        return found  # type: ignore[return-value]


def test_a_webhook_gets_each_row_signed_and_with_a_key_of_its_own(cluster: Cluster, http: Received) -> None:
    alert = Alert(cluster, "signed", hr.Webhook(http.address, secret="hush"))
    alert.rows(b'{"n":1}', b'{"n":2}')
    alert.deliver(2)
    assert [body for _, body in http.requests] == [b'{"n":1}', b'{"n":2}']
    for offset, (headers, body) in enumerate(http.requests):
        assert headers["Idempotency-Key"] == idempotency_key("shop.signed", 0, offset)
        assert headers["Headrace-Signature"] == signature("hush", headers["Headrace-Timestamp"], body)
        assert headers["Headrace-Alert"] == "signed"
    alert.rows(b'{"n":3}')
    alert.deliver(1)
    assert len(http.requests) == 3, "what was delivered is not delivered again"


def test_a_webhook_that_fails_is_tried_again_with_the_same_key(cluster: Cluster, http: Received) -> None:
    http.codes = [500, 429]
    alert = Alert(cluster, "again", hr.Webhook(http.address))
    alert.rows(b'{"n":1}')
    alert.deliver(1)
    assert len({headers["Idempotency-Key"] for headers, _ in http.requests}) == 1
    assert len(http.requests) == 3
    assert "Headrace-Signature" not in http.requests[0][0]


def test_what_cannot_be_delivered_is_a_dead_letter_and_the_next_is_tried(cluster: Cluster, http: Received) -> None:
    http.codes = [404, 500, 500]
    alert = Alert(cluster, "lost", hr.Webhook(http.address, attempts=2))
    alert.rows(b'{"n":1}', b'{"n":2}', b'{"n":3}')
    alert.deliver(1, dead=2)
    found = alert.buried()
    assert [value for value, _ in found] == [b'{"n":1}', b'{"n":2}']
    assert b"404" in found[0][1]["headrace.detail"]
    assert found[1][1]["headrace.offset"] == b"1"
    assert any("shop.lost.dead" in line for line in alert.told)


def test_a_mail_says_what_the_row_says(cluster: Cluster, smtp: Received) -> None:
    smtp.codes = [451]
    to = hr.Email("ops@example.org", sender="shop@example.org", server=smtp.address)
    alert = Alert(cluster, "mailed", to)
    alert.rows('{"order_id":"7","note":"größer"}'.encode())
    alert.deliver(1)
    ((_, body),) = smtp.requests
    mail = email.message_from_bytes(body)
    assert mail["Message-ID"] == f"<{idempotency_key('shop.mailed', 0, 0)}@headrace>"
    assert (mail["To"], mail["Subject"]) == ("ops@example.org", "Alert: mailed")
    text = mail.get_payload(decode=True)
    assert isinstance(text, bytes)
    assert text.decode().splitlines() == ["order_id: 7", "note: größer"]


def test_a_mailbox_that_does_not_exist_is_not_tried_again(cluster: Cluster, smtp: Received) -> None:
    smtp.codes = [550]
    alert = Alert(cluster, "nobody", hr.Email("x@example.org", sender="shop@example.org", server=smtp.address))
    alert.rows(b'{"n":1}')
    alert.deliver(0, dead=1)
    assert smtp.requests == []


def test_a_log_line_is_a_line(cluster: Cluster, tmp_path: Path) -> None:
    alert = Alert(cluster, "lined", hr.LogLine())
    alert.rows(b'{"n":1}')
    alert.deliver(1)
    assert alert.told == ['alert lined: {"n":1}']
