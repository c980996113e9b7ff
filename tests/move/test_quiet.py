"""Whatever happens on the log while it is moved is noticed before anybody is told that it was moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.errors import HeadraceError
from headrace.move.copying import Address
from headrace.move.moving import Move
from headrace.testing.broker import EmbeddedBroker
from tests.move import logs

COMPARING, GROUPS_SET = "comparing", "groups are where they were"


@dataclass
class Meanwhile:
    """Does something once, as a step begins or as one is told to be done."""

    step: str
    work: Callable[[], object]
    done: bool = False

    def say(self, sentence: str) -> None:
        self._reached(sentence)

    @contextmanager
    def progress(self, label: str, total: int) -> Iterator[Callable[[int], None]]:
        self._reached(label)
        yield lambda more: None

    def _reached(self, told: str) -> None:
        if not self.done and self.step in told:
            self.done = True
            self.work()


@pytest.fixture
def here(tmp_path: Path) -> Iterator[str]:
    with EmbeddedBroker(tmp_path / "here") as broker:
        logs.make_topic(broker.bootstrap, "orders", 1)
        logs.write_records(broker.bootstrap, "orders", 50)
        logs.commit(broker.bootstrap, "readers", {("orders", 0): 10})
        yield broker.bootstrap


@pytest.fixture
def there(tmp_path: Path) -> Iterator[str]:
    with EmbeddedBroker(tmp_path / "there") as broker:
        yield broker.bootstrap


@pytest.mark.parametrize("step", [COMPARING, GROUPS_SET])
def test_what_happens_meanwhile_is_found_out_and_a_second_attempt_takes_it_along(
    here: str, there: str, step: str
) -> None:
    def happen() -> None:
        logs.write_records(here, "orders", 7)
        logs.commit(here, "readers", {("orders", 0): 30})
        logs.commit(here, "others", {("orders", 0): 5})
        logs.make_topic(here, "returns", 1)

    moving = Move(Address(here, {}), Address(there, {}), [])
    with pytest.raises(HeadraceError, match="it is to be quiet") as told:
        moving.run(moving.plan(), Meanwhile(step, happen))
    assert told.value.detail == (
        "topic returns was made; records came to orders; group others came to be; group readers committed offsets"
    )
    assert "start the move again" in (told.value.hint or "")

    again = moving.run(moving.plan(), Meanwhile("", lambda: None))
    assert (again.topics, again.groups, again.was_done) == (2, 2, False)
    assert logs.seen(here, "orders") == logs.seen(there, "orders")
    assert committed(there, "readers") == 30
    assert committed(there, "others") == 5


def test_who_uses_the_log_as_the_move_ends_is_named(here: str, there: str) -> None:
    producer = logs.producer(here, transactional_id="late")
    producer.init_transactions(30)

    def begin() -> None:
        producer.begin_transaction()
        producer.produce("orders", b"late")
        producer.flush(30)

    moving = Move(Address(here, {}), Address(there, {}), [])
    with pytest.raises(HeadraceError) as told:
        moving.run(moving.plan(), Meanwhile(COMPARING, begin))
    assert "transaction late is open" in (told.value.detail or "")
    producer.abort_transaction(30)


@pytest.mark.parametrize("step", [COMPARING, GROUPS_SET])
def test_a_batch_that_comes_late_to_the_target_is_no_record_of_the_log(here: str, there: str, step: str) -> None:
    moving = Move(Address(here, {}), Address(there, {}), [])
    with pytest.raises(HeadraceError, match=r"orders\[0\] ends at 53 on the target, and at 50 here"):
        moving.run(moving.plan(), Meanwhile(step, lambda: logs.write_records(there, "orders", 3)))


def committed(bootstrap: str, group: str) -> int:
    from confluent_kafka import ConsumerGroupTopicPartitions

    asked = [ConsumerGroupTopicPartitions(group)]
    [found] = logs.client(bootstrap).list_consumer_group_offsets(asked)[group].result(30).topic_partitions
    return found.offset
