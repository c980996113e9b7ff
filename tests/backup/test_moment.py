"""A snapshot is the log at one moment, whatever happens to the log while it is made and copied."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headrace import _kernel
from headrace.backup.manifest import read_manifest
from headrace.backup.restoring import check, restore
from headrace.backup.saving import save
from headrace.broker.broker import Broker
from headrace.broker.markers import marker
from headrace.errors import AlreadyExists, CorruptRange, InvalidInput, NotFound, StorageError
from headrace.log import LogStore
from headrace.log.checked_file import read_checked
from headrace.log.files import DiskFiles
from headrace.log.partition import Origin
from headrace.log.snapshot import take_cut, write_snapshot
from headrace.testing.broker import EmbeddedBroker

SMALL = {"internal.segment.bytes": "400"}
TOPICS: dict[str, dict[str, str]] = {
    "plain": SMALL,
    "compacted": SMALL | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
    "short": SMALL | {"retention.bytes": "900", "file.delete.delay.ms": "0"},
    "ring": SMALL | {"headrace.overflow": "drop", "headrace.overflow.max.records": "20"},
}


@contextlib.contextmanager
def step(what: str, size: int) -> Iterator[Callable[[int], None]]:
    yield lambda done: None


def told(store: LogStore) -> dict[str, Any]:
    """All that readers, producers and clients can see of a store."""
    found: dict[str, Any] = {}
    for name, topic in sorted(store.topics.items()):
        for log in topic.partitions:
            offset, rows, aborted = log.log_start, [], set()
            while (result := log.read(offset, 1 << 20, committed=True)).data:
                rows += [row[:4] for row in _kernel.records(bytes(result.data)) if row[0] >= log.log_start]
                aborted |= set(result.aborted)
                offset = result.next_offset
            producers = {entry.producer_id: repr(entry) for entry in log.producers()}
            where = (log.log_start, log.last_stable_offset, log.end_offset, log.epochs[:1], log.dropped)
            found[f"{name}-{log.index}"] = (str(topic.id), topic.overrides, where, rows, sorted(aborted), producers)
    return found


class Life:
    """A store that clients and maintenance work on, by chance."""

    def __init__(self, data: Path, seed: int) -> None:
        self.dice = random.Random(seed)
        self.store = LogStore.open(data)
        self.sequences: dict[tuple[int, str, int], int] = {}
        for name, overrides in TOPICS.items():
            self.store.create_topic(name, 2, overrides)

    def go_on(self, steps: int) -> None:
        for _ in range(steps):
            (deed,) = self.dice.choices(
                [self.append, self.transact, self.maintain, self.forget, self.replace], [30, 6, 3, 2, 1]
            )
            deed()

    def append(self, producer_id: int = -1, transactional: bool = False) -> None:
        topic, index = self.dice.choice(list(self.store.topics)), self.dice.randrange(2)
        log, now = self.store.partition(topic, index), self.store.clock.now_ms()
        key, value = b"k%d" % self.dice.randrange(5), self.dice.randbytes(20)
        more: dict[str, Any] = {}
        if producer_id >= 0:
            at = (producer_id, str(log.topic_id), index)
            sequence = self.sequences.get(at, 0)
            more = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
            more["transactional"] = transactional
            self.sequences[at] = sequence + 1
        log.append(_kernel.build_batch([(now, key, value, [])], **more), acks_all=False)

    def transact(self) -> None:
        producer_id = self.dice.randrange(3)
        for _ in range(self.dice.randrange(1, 4)):
            self.append(producer_id, transactional=True)
        if self.dice.random() < 0.8:
            commit = self.dice.random() < 0.5
            for topic in self.store.topics.values():
                for log in topic.partitions:
                    if (producer_id, 0) in log.producer_state.open_transactions():
                        end = marker(
                            producer_id, 0, commit=commit, coordinator_epoch=0, now_ms=self.store.clock.now_ms()
                        )
                        log.append(end, acks_all=False, origin=Origin.COORDINATOR)

    def maintain(self) -> None:
        for job in self.store.jobs():
            job.run()
            job.finish()
        self.store.remove_deleted()

    def forget(self) -> None:
        log = self.store.partition("plain", 0)
        log.delete_records(self.dice.randint(log.log_start, log.high_watermark))

    def replace(self) -> None:
        self.store.delete_topic("plain")
        self.store.create_topic("plain", 2, SMALL)


@pytest.mark.parametrize("seed", range(3))
def test_a_restored_log_is_what_it_was_at_the_moment(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Life(tmp_path / "data", seed)
    life.go_on(200)
    folder, moments = tmp_path / "data" / "~snapshots" / "one", []

    @contextlib.contextmanager
    def snapshot(data: Path) -> Iterator[Path]:
        moments.append(told(life.store))
        cut = take_cut(life.store)
        for _ in range(3):  # appends go on while it is linked, and topics are deleted and made
            life.append()
            life.forget()
        if life.dice.random() < 0.5:
            life.replace()
        write_snapshot(cut, folder)
        life.go_on(80)  # everything goes on while it is copied
        life.maintain()
        yield folder
        shutil.rmtree(folder)

    monkeypatch.setattr("headrace.backup.saving.snapshot", snapshot)
    older = None
    for number in range(2):
        backup = tmp_path / f"backup-{number}"
        save(tmp_path / "data", backup, step, since=older)
        restore(backup, tmp_path / f"restored-{number}", step)
        older = backup
    life.store.close()
    for number, before in enumerate(moments):
        restored = LogStore.open(tmp_path / f"restored-{number}")
        assert told(restored) == before
        restored.close()


def stopped(data: Path, records: int = 200) -> Path:
    life = Life(data, 7)
    life.go_on(records)
    life.store.new_producer_id()
    life.store.close()
    return data


def node_of(data: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(read_checked(DiskFiles(), data / "node") or b"{}")
    return found


def test_a_stopped_node_can_be_saved_and_what_it_gives_out_is_never_given_out_again(tmp_path: Path) -> None:
    data = stopped(tmp_path / "data")
    save(data, tmp_path / "backup", step)
    assert not list((data / "~snapshots").iterdir())
    ids, epochs = set(), []
    for name in ("one", "two"):
        restore(tmp_path / "backup", tmp_path / name, step)
        store = LogStore.open(tmp_path / name)
        ids.add(store.new_producer_id())
        epochs.append(store.leader_epoch)
        store.close()
    original = LogStore.open(data)
    ids |= {original.new_producer_id() for _ in range(5000)}
    assert len(ids) == 5002
    assert min(epochs) > original.leader_epoch + 1_000_000
    original.close()
    restore(tmp_path / "backup", tmp_path / "moved", step, same_cluster=True)
    clusters = [node_of(tmp_path / name)["cluster_id"] for name in ("one", "two", "moved")]
    assert clusters[2] == original.cluster_id
    assert len({*clusters}) == 3


def checked_in(data: Path) -> dict[str, bytes]:
    """All checked files that lie in a folder itself, as they are now."""
    found = {path.name: read_checked(DiskFiles(), path) for path in data.iterdir() if _is_checked(path)}
    return {name: payload for name, payload in found.items() if payload is not None}


def _is_checked(path: Path) -> bool:
    return path.is_file() and path.suffix != ".previous" and path.read_bytes()[:4] == b"HRF1"


def set_everything(broker: Broker, rate: float) -> None:
    broker.dynamic_settings.change(broker.store, for_all={"num.partitions": "2"})
    broker.group_configs.change("till", {"share.record.lock.duration.ms": "20000"})
    broker.quotas.change("nightly", {"consumer_byte_rate": rate})
    broker.store.new_producer_id()


def test_all_that_a_broker_remembers_of_its_own_is_in_a_backup(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with EmbeddedBroker(data) as embedded:
        for rate in (1.0, 2.0):  # so that there are previous versions too
            embedded.look(partial(set_everything, rate=rate))
    before = checked_in(data)
    assert len(before) == 5
    save(data, tmp_path / "backup", step)
    restore(tmp_path / "backup", tmp_path / "restored", step, same_cluster=True)
    after = checked_in(tmp_path / "restored")
    assert after.keys() == before.keys()
    told_anew = {"node", "producer-ids"}  # of which nothing is given out twice
    assert {name: after[name] for name in after.keys() - told_anew} == {
        name: before[name] for name in before.keys() - told_anew
    }


def test_files_that_did_not_change_are_shared_with_the_older_backup(tmp_path: Path) -> None:
    data = stopped(tmp_path / "data")
    first = save(data, tmp_path / "one", step)
    second = save(data, tmp_path / "two", step, since=tmp_path / "one")
    assert first.linked == 0
    assert second.linked > 0.5 * sum(file.size for name, file in second.manifest.files.items() if name[-4:] == ".log")
    shutil.rmtree(tmp_path / "one")
    restore(tmp_path / "two", tmp_path / "restored", step)


def test_a_changed_byte_anywhere_in_a_backup_is_found_and_nothing_starts_on_the_rest(tmp_path: Path) -> None:
    data = stopped(tmp_path / "data", 60)
    save(data, tmp_path / "backup", step)
    dice = random.Random(3)
    for name in dice.sample(sorted(read_manifest(tmp_path / "backup").files), 12):
        path = tmp_path / "backup" / "data" / name
        whole = path.read_bytes()
        if not whole:
            continue
        at = dice.randrange(len(whole))
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(StorageError):
            check(tmp_path / "backup", step)
        with pytest.raises(StorageError):
            restore(tmp_path / "backup", tmp_path / "restored", step)
        if (tmp_path / "restored").exists():
            with pytest.raises(StorageError):
                LogStore.open(tmp_path / "restored")
        path.write_bytes(whole)
    restore(tmp_path / "backup", tmp_path / "restored", step)
    LogStore.open(tmp_path / "restored").close()


def test_a_restore_that_was_killed_is_begun_again(tmp_path: Path) -> None:
    save(stopped(tmp_path / "data"), tmp_path / "backup", step)

    class Killed(BaseException):
        pass

    @contextlib.contextmanager
    def killing(what: str, size: int) -> Iterator[Callable[[int], None]]:
        def tell(done: int) -> None:
            if done > size / 2:
                raise Killed

        yield tell

    with pytest.raises(Killed):
        restore(tmp_path / "backup", tmp_path / "restored", killing)
    with pytest.raises(StorageError, match="not whole"):
        LogStore.open(tmp_path / "restored")
    restore(tmp_path / "backup", tmp_path / "restored", step)
    LogStore.open(tmp_path / "restored").close()


def test_what_would_be_overwritten_is_refused(tmp_path: Path) -> None:
    data = stopped(tmp_path / "data")
    save(data, tmp_path / "backup", step)
    with pytest.raises(AlreadyExists):
        save(data, tmp_path / "backup", step)
    with pytest.raises(AlreadyExists):
        restore(tmp_path / "backup", data, step)
    with pytest.raises(InvalidInput):
        save(data, data / "backup", step)
    with pytest.raises(NotFound):
        save(tmp_path / "nothing", tmp_path / "other", step)
    assert not (tmp_path / "other").exists()
    with pytest.raises(NotFound):
        restore(data, tmp_path / "restored", step)


def test_a_damaged_log_gives_no_backup_that_looks_whole(tmp_path: Path) -> None:
    data = stopped(tmp_path / "data")
    log = next(path for path in sorted((data / "topics" / "plain").rglob("*.log")) if path.stat().st_size)
    with log.open("r+b") as file:
        file.seek(log.stat().st_size // 2)
        file.write(b"\xff\xff")
    with pytest.raises(CorruptRange, match="damaged"):
        save(data, tmp_path / "backup", step)
    assert not (tmp_path / "backup" / "manifest").exists()
    assert os.listdir(tmp_path / "backup") != []
