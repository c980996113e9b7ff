"""Delivery of alerts: at least once.

An alert's rows lie on its topic, each once. A deliverer reads them as consumer group ``QUERY.delivery`` and commits an
offset after its row was sent or given up, so a crash in between sends a row again: with the same idempotency key, made
of the row's place in the log. What cannot be delivered goes to ``QUERY.dead`` with the reason; the next row is tried.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import smtplib
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from email.message import EmailMessage
from email.utils import formatdate

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Message, Producer

from headrace.feed.cluster import REQUEST_TIMEOUT_S, Cluster, raised
from headrace.feed.protocol import ProtocolFeed
from headrace.pipelines.alerts import Channel, Email, LogLine, Webhook
from headrace.pipelines.declarations import Query

__all__ = ["Deliverer", "Undeliverable", "idempotency_key", "send", "signature"]

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 60.0
_AGAIN = frozenset({408, 425, 429})


class Undeliverable(Exception):
    """The receiver refused for good."""


class _TryAgain(Exception):
    """It did not work now."""


def idempotency_key(topic: str, partition: int, offset: int) -> str:
    """The same for every attempt at one alert, and for no other."""
    return hashlib.sha256(f"{topic}/{partition}/{offset}".encode()).hexdigest()[:32]


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """What ``Headrace-Signature`` says."""
    return "sha256=" + hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def send(channel: Channel, name: str, body: bytes, key: str, told: Callable[[str], None]) -> None:
    """One attempt. Undeliverable or another exception if it did not work; only the latter is worth another."""
    match channel:
        case Webhook():
            _post(channel, name, body, key)
        case Email():
            _mail(channel, name, body, key)
        case LogLine():
            told(f"alert {name}: {body.decode(errors='replace')}")
        case _:
            raise Undeliverable(f"no way to send to {channel!r}")


def _post(channel: Webhook, name: str, body: bytes, key: str) -> None:
    stamp = str(int(time.time()))
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "headrace",
        "Idempotency-Key": key,
        "Headrace-Alert": name,
        "Headrace-Timestamp": stamp,
    }
    if channel.secret is not None:
        headers["Headrace-Signature"] = signature(channel.secret, stamp, body)
    request = urllib.request.Request(channel.url, data=body, headers=headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=channel.timeout_s) as answer:
            answer.read(1 << 16)
    except urllib.error.HTTPError as error:
        with error:
            sentence = f"{channel.url} answered {error.code}"
        if error.code in _AGAIN or error.code >= 500:
            raise _TryAgain(sentence) from None
        raise Undeliverable(sentence) from None


def _mail(channel: Email, name: str, body: bytes, key: str) -> None:
    message = EmailMessage()
    message["From"], message["To"] = channel.sender, channel.to
    message["Subject"] = channel.subject or f"Alert: {name}"
    message["Date"] = formatdate()
    message["Message-ID"] = f"<{key}@headrace>"
    fields = json.loads(body)
    message.set_content("\n".join(f"{field}: {value}" for field, value in fields.items()) + "\n")
    host, _, port = channel.server.rpartition(":")
    try:
        with smtplib.SMTP(host or channel.server, int(port or 25), timeout=channel.timeout_s) as server:
            if channel.tls:
                server.starttls()
            if channel.user is not None:
                server.login(channel.user, channel.password or "")
            server.send_message(message)
    except smtplib.SMTPRecipientsRefused as error:
        codes = [code for code, _ in error.recipients.values()]
        kind = Undeliverable if all(code >= 500 for code in codes) else _TryAgain
        raise kind(f"{channel.server} refused {channel.to}: {codes}") from None
    except smtplib.SMTPResponseException as error:
        kind = Undeliverable if error.smtp_code >= 500 else _TryAgain
        raise kind(f"{channel.server} answered {error.smtp_code}") from None


class Deliverer:
    """Sends the rows of one alert, in order, in a thread."""

    def __init__(
        self,
        cluster: Cluster,
        query: Query,
        topic: str,
        told: Callable[[str], None],
        *,
        first_pause_s: float = FIRST_PAUSE_S,
    ) -> None:
        if query.to is None:
            raise ValueError(f"{query} is no alert")
        self.query, self.topic = query, topic
        self.sent = self.dead = 0
        self._channel: Channel = query.to
        self._group = f"{query.id}.delivery"
        self._cluster, self._told, self._first_pause_s = cluster, told, first_pause_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"alert {query.name}", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def ask_to_stop(self) -> None:
        """Stop soon; returns at once."""
        self._stopping.set()

    def join(self, seconds: float) -> None:
        """Wait for the end."""
        self._thread.join(seconds)

    def has_sent_all(self) -> bool:
        """Whether every row that is there now was sent or given up."""
        asked = self._cluster.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(self._group)])
        try:
            found = asked[self._group].result(REQUEST_TIMEOUT_S).topic_partitions or []
        except KafkaException as error:
            raise raised(error.args[0], f"group {self._group!r} could not be asked", self._cluster.bootstrap) from None
        reached = {one.partition: one.offset for one in found}
        with contextlib.closing(ProtocolFeed(self._cluster)) as feed:
            return not any(
                batch.num_rows
                for partition, (start, end) in feed.bounds(self.topic).items()
                for batch in feed.read(self.topic, partition, max(start, reached.get(partition, 0)), end)
            )

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._deliver_all()
            except Exception as error:
                self._told(f"alert {self.query.name}: delivery failed and begins again: {error}")
                self._stopping.wait(1.0)

    def _deliver_all(self) -> None:
        consumer = Consumer(
            self._cluster.config(
                group_id=self._group,
                isolation_level="read_committed",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                session_timeout_ms=10_000,
            )
        )
        dead = Producer(self._cluster.config(enable_idempotence=True))
        try:
            consumer.subscribe([self.topic])
            while not self._stopping.is_set():
                message = consumer.poll(0.2)
                if message is not None and message.error() is None and self._deliver(message, dead):
                    _commit(consumer, message)
        finally:
            consumer.close()
            dead.flush(2.0)

    def _deliver(self, message: Message, dead: Producer) -> bool:
        """Send a row or bury it; False if it was neither, because we are told to stop."""
        body, failed = _bytes(message.value()), ""
        key = idempotency_key(message.topic() or "", message.partition() or 0, message.offset() or 0)
        attempts = getattr(self._channel, "attempts", 1)
        for attempt in range(attempts):
            try:
                send(self._channel, self.query.name, body, key, self._told)
                self.sent += 1
                return True
            except Undeliverable as error:
                failed = str(error)
                break
            except Exception as error:
                failed = str(error) or type(error).__name__
            pause = min(self._first_pause_s * 2**attempt, LONGEST_PAUSE_S)
            if attempt + 1 < attempts and self._stopping.wait(pause):
                return False
        self._bury(message, body, failed, dead)
        return True

    def _bury(self, message: Message, body: bytes, failed: str, dead: Producer) -> None:
        headers: list[tuple[str, str | bytes | None]] = [
            ("headrace.reason", b"undeliverable"),
            ("headrace.detail", failed.encode()),
            ("headrace.topic", (message.topic() or "").encode()),
            ("headrace.partition", str(message.partition()).encode()),
            ("headrace.offset", str(message.offset()).encode()),
            ("headrace.query", self.query.id.encode()),
        ]
        place = f"{message.topic()}/{message.partition()}/{message.offset()}"
        dead.produce(f"{self.query.id}.dead", key=place, value=body, headers=headers)
        if dead.flush(30.0):
            raise KafkaException("the dead letter could not be written")
        self.dead += 1
        self._told(f"alert {self.query.name} could not be delivered and is in {self.query.id}.dead: {failed}")


def _bytes(value: bytes | str | None) -> bytes:
    return value if isinstance(value, bytes) else (value or "").encode()


def _commit(consumer: Consumer, message: Message) -> None:
    try:
        consumer.commit(message=message, asynchronous=False)
    except KafkaException as error:
        if not error.args[0].retriable() and error.args[0].fatal():
            raise
