"""A record that cannot be decoded: its group is not served, the operator is told, the record stays, all others work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from headrace import _kernel
from headrace.broker.groups.codes import Code
from headrace.broker.groups.journal import OFFSETS_TOPIC
from headrace.broker.groups.messages import Leaver
from headrace.broker.groups.modern_messages import HeartbeatRequest
from headrace.broker.groups.modern_records import EpochChange, GroupEpoch, GroupType
from headrace.broker.groups.records import CommittedOffset, GroupChange, OffsetChange, encode
from headrace.broker.state_check import check_state
from headrace.log.findings import PartitionReport
from headrace.log.partition import Origin
from headrace.log.store import LogStore
from tests.groups.bench import Bench

NONSENSE = b"\x7f\xff nonsense"
KEYS = {
    "a classic group": encode(GroupChange("g", None))[0],
    "a consumer group": encode(EpochChange(GroupType.CONSUMER, "g", GroupEpoch(1, 0)))[0],
    "a share group": encode(EpochChange(GroupType.SHARE, "g", GroupEpoch(1, 0)))[0],
    "an offset": encode(OffsetChange("g", "t", 0, CommittedOffset(1, -1, "", 0)))[0],
}


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(**arguments: Any) -> None:
        asyncio.run(test(**arguments))

    return run


def plant(bench: Bench, key: bytes, value: bytes = NONSENSE) -> None:
    """Write a record that makes no sense, and start again."""
    partition = bench.groups.journal.partition()
    batch = _kernel.build_batch([(bench.clock.now_ms(), key, value, ())])
    partition.append(batch, acks_all=True, origin=Origin.COORDINATOR)
    bench.store.close()
    bench.open()


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
@in_loop
async def test_every_request_of_its_group_is_refused_and_other_groups_work(key: bytes) -> None:
    bench = Bench()
    await bench.ask(bench.commit(5, group="other"))
    plant(bench, key)
    groups = bench.groups
    refused = Code.UNKNOWN_SERVER_ERROR
    beat = HeartbeatRequest("m", 0, "c", "/h", None, None, 1000, ("t",), None, None, {})
    assert (await bench.ask(bench.join())).code is refused
    assert (await bench.ask(bench.sync_group("m", 1, {}))).code is refused
    assert groups.heartbeat("g", "m", None, 1) is refused
    assert await bench.ask(groups.leave("g", [Leaver("m", None)])) == (refused, [])
    assert (await bench.ask(groups.consumer_heartbeat("g", beat))).code is refused
    assert (await bench.ask(groups.share_heartbeat("g", beat))).code is refused
    assert await bench.ask(bench.commit(6)) is refused
    assert await bench.ask(groups.commit_in_transaction("g", "", None, -1, [], (1, 0))) is refused
    assert groups.check_fetch("g", None, -1) is refused
    assert await bench.ask(groups.delete_offsets("g", [("t", 0)])) == (refused, {})
    assert await bench.ask(groups.delete_groups(["g"])) == {"g": refused}
    listed = groups.listed("g")
    assert listed is not None
    assert listed.state == "Damaged"
    assert sorted(groups.group_ids()) == ["g", "other"]
    assert await bench.ask(bench.commit(6, group="other")) is Code.NONE


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
@in_loop
async def test_the_record_is_still_there_after_expiry_compaction_and_a_deleted_topic(key: bytes) -> None:
    bench = Bench()
    overrides = {"cleanup.policy": "compact", "internal.segment.bytes": "300", "min.cleanable.dirty.ratio": "0.01"}
    bench.store.create_topic(OFFSETS_TOPIC, 1, overrides, internal=True)
    await bench.ask(bench.commit(3, partition=1))
    plant(bench, key)
    for number in range(30):
        await bench.ask(bench.commit(number, group="other"))
    bench.clock.jump(30 * 86_400_000)
    bench.groups.expire()
    await bench.sync()
    bench.store.delete_topic("t")
    bench.groups.on_topic_deleted("t")
    await bench.sync()
    for job in bench.store.jobs():
        job.run()
        job.finish()
    found = [(key, value) for _, _, key, value, _ in bench.groups.journal.partition().replay()]
    assert (key, NONSENSE) in found
    bench.crash(0)
    assert bench.groups.is_damaged("g")


@in_loop
async def test_a_key_that_makes_no_sense_is_told_and_harms_nobody() -> None:
    bench = Bench()
    await bench.ask(bench.commit(5))
    plant(bench, b"\x00\x03\x00\x40")
    assert not bench.groups.journal.damaged
    assert await bench.ask(bench.commit(6)) is Code.NONE


def test_the_operator_is_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def tell() -> None:
        bench = Bench()
        bench.groups.ensure_log()
        plant(bench, KEYS["a consumer group"])

    asyncio.run(tell())
    assert "group 'g' is not served: the record at offset 0 of __consumer_offsets cannot be read" in caplog.text


@pytest.mark.parametrize("topic", [OFFSETS_TOPIC, "__transaction_state", "ordinary"])
def test_log_verify_tells_of_it_unless_a_later_record_replaced_it(tmp_path: Path, topic: str) -> None:
    store = LogStore.open(tmp_path)
    partition = store.create_topic(topic, 1, internal=True).partitions[0]
    replaced = b"\x00\x00\x00\x01x" if topic == "__transaction_state" else KEYS["an offset"]
    kept = b"\x00\x00\x00\x01y" if topic == "__transaction_state" else KEYS["a classic group"]
    records: list[tuple[bytes, bytes | None]] = [(replaced, NONSENSE), (kept, NONSENSE), (replaced, None)]
    for key, value in records:
        partition.append(_kernel.build_batch([(1, key, value, ())]), acks_all=False, origin=Origin.COORDINATOR)
    store.close()
    report = PartitionReport(tmp_path / "topics" / topic / "0")
    check_state(report)
    if topic == "ordinary":
        assert not report.findings
    else:
        [finding] = report.findings
        assert finding.offset == 1
        assert "is not served" in finding.reason
