"""Whatever clients were told while the broker was killed and paused is true, and the check would have found a lie."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace import _kernel
from headrace.broker.shares.window import Ack, Window
from headrace.broker.transactions.coordinator import TransactionCoordinator
from headrace.log import reading
from headrace.log.batch import BatchHeader
from headrace.log.partition import AppendInfo, Origin, PartitionLog
from headrace.testing.broker import EmbeddedBroker
from tests.faults.campaign import OPTIONS, QUEUE, Campaign, Outcome, Role, patiently
from tests.faults.clients import INPUT, OUTPUT

Append = Callable[..., AppendInfo]


@pytest.mark.timeout(900)
def test_what_clients_were_told_is_true_though_the_node_is_killed_and_paused(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    outcome = Campaign(tmp_path, seed).run(18)
    assert outcome.findings == []
    assert outcome.counts["sends ok"] > 1000
    assert outcome.counts["ends ok"] > 20


# --- the same clients and the same check, with a broker that lies ---

ROLES = (
    Role("writer", "writer-0"),
    Role("banker", "banker-0"),
    Role("copier", "copier-0", {"group.id": "copiers", "output": OUTPUT}),
)


def lying(folder: Path, done: Callable[[], bool], roles: tuple[Role, ...] = ROLES) -> Outcome:
    """A run without a nemesis, until the planted lie was told."""
    properties = dict(option.split("=") for option in OPTIONS)
    campaign = Campaign(folder, 1, roles)
    with EmbeddedBroker(folder / "data", properties) as broker:
        crew = campaign.begin(broker.bootstrap)
        try:
            patiently(lambda: done() or None, "the lie was not told")
            campaign.finish(crew)
        finally:
            crew.kill_all()
    return campaign.outcome(Counter())


def kinds(outcome: Outcome) -> set[str]:
    return {finding.kind for finding in outcome.findings}


class Nth:
    """Something to do at one of many chances."""

    def __init__(self, n: int) -> None:
        self.left = n

    def now(self) -> bool:
        self.left -= 1
        return self.left == 0

    def done(self) -> bool:
        return self.left < -5


def is_mine(partition: PartitionLog, origin: Origin, topic: str) -> bool:
    return partition.topic == topic and origin is Origin.CLIENT


def test_an_acknowledged_batch_that_is_not_written_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append, chance = PartitionLog.append, Nth(20)

    def forgetful(self: PartitionLog, batch: Any, *, acks_all: bool, origin: Origin = Origin.CLIENT) -> AppendInfo:
        if is_mine(self, origin, INPUT) and chance.now():
            header = BatchHeader._make(_kernel.check_batch(batch))
            batch = _kernel.build_batch(
                [(header.base_timestamp, None, b"nonsense", [])] * (header.last_offset_delta + 1),
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
            )
        return append(self, batch, acks_all=acks_all, origin=origin)

    monkeypatch.setattr(PartitionLog, "append", forgetful)
    assert kinds(lying(tmp_path, chance.done, ROLES[:1])) >= {"lost", "phantom"}


def test_a_batch_that_is_written_twice_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append, chance = PartitionLog.append, Nth(20)

    def stammering(self: PartitionLog, batch: Any, *, acks_all: bool, origin: Origin = Origin.CLIENT) -> AppendInfo:
        copy = bytearray(batch)
        info = append(self, batch, acks_all=acks_all, origin=origin)
        if is_mine(self, origin, INPUT) and chance.now():
            append(self, memoryview(copy), acks_all=acks_all, origin=Origin.COORDINATOR)
        return info

    monkeypatch.setattr(PartitionLog, "append", stammering)
    assert "duplicated" in kinds(lying(tmp_path, chance.done, ROLES[:1]))


def test_an_aborted_transaction_that_can_be_read_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    aborted, chance = reading._aborted, Nth(1)

    def forgiving(partition: PartitionLog, first: int, end: int) -> list[tuple[int, int]]:
        if aborted(partition, first, end):
            chance.now()
        return []

    monkeypatch.setattr(reading, "_aborted", forgiving)
    assert "aborted-read" in kinds(lying(tmp_path, chance.done))


def test_an_open_transaction_that_can_be_read_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = Nth(1)

    def impatient(self: PartitionLog) -> int:
        if self.producer_state.first_unstable_offset is not None:
            chance.now()
        return self.high_watermark

    monkeypatch.setattr(PartitionLog, "last_stable_offset", property(impatient))
    roles = (*ROLES[:2], Role("reader", "reader-0"))
    assert "early-read" in kinds(lying(tmp_path, lambda: chance.left < -1000, roles))


def test_a_transaction_that_one_partition_forgets_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_marker, chance = TransactionCoordinator._write_marker, Nth(10)

    def wavering(
        self: TransactionCoordinator, place: Any, producer_id: int, epoch: int, commit: bool, done: Any
    ) -> None:
        if commit and place[0] == OUTPUT and chance.now():
            commit = False
        write_marker(self, place, producer_id, epoch, commit, done)

    monkeypatch.setattr(TransactionCoordinator, "_write_marker", wavering)
    assert kinds(lying(tmp_path, chance.done)) >= {"torn", "unprocessed"}


def test_a_queue_that_forgets_that_a_record_was_accepted_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle, chance = Window._settle, Nth(20)

    def forgetful(self: Window, first: int, last: int, kind: Ack, *more: Any) -> Any:
        if kind is Ack.ACCEPT and chance.now():
            kind = Ack.RELEASE
        return settle(self, first, last, kind, *more)

    monkeypatch.setattr(Window, "_settle", forgetful)
    roles = (ROLES[0], Role("worker", "worker-0", {"share": QUEUE}))
    assert "redelivered" in kinds(lying(tmp_path, chance.done, roles))
