"""What a partition is after the process or the machine died."""

from __future__ import annotations

import logging

import pytest

from headrace import _kernel
from headrace.errors import CorruptRange, FolderInUse, FolderTooNew
from headrace.log import LogStore
from headrace.log.checked_file import DamagedFile, read_checked, write_checked
from headrace.testing.files import LossyFiles, PowerLoss
from tests.log.conftest import FOLDER, Bench

SEGMENT = "00000000000000000000.log"


@pytest.mark.system
def test_a_segment_cut_at_any_byte_keeps_exactly_its_whole_batches() -> None:
    whole = Bench({"internal.segment.bytes": "100000"})
    ends = [0]
    for i in range(6):
        whole.append(b"v" * i * 7, b"w", producer_id=1, producer_epoch=0, base_sequence=2 * i)
        ends.append(whole.log.active.size)
    whole.sync()
    data = whole.files.read(whole.folder / SEGMENT)
    for size in range(len(data) + 1):
        bench = Bench(files=whole.files.crash(0))
        bench.store.close()
        bench.files.remove(bench.folder / "00000000000000000000.index")
        file = bench.files.open(bench.folder / SEGMENT, create=True)
        file.write(0, data[:size])
        bench.kill()
        batches = sum(end <= size for end in ends) - 1
        assert bench.log.end_offset == 2 * batches == len(bench.read_all())
        aside = [n for n in bench.files.names(bench.folder) if n.endswith(".cut")]
        assert bool(aside) == (size not in ends)
        assert bench.append(b"next") == 2 * batches
        assert len(bench.read_all()) == 2 * batches + 1


def test_any_bit_that_flips_in_a_sealed_segment_cuts_nothing_and_harms_no_other_batch() -> None:
    bench = Bench({"internal.segment.bytes": "300"})
    for i in range(9):
        bench.append_durably(b"value %d" % i)
    bench.maintain()
    segment = bench.log.segments[1]
    size, first = segment.size, segment.base_offset
    batches = [h[1] for h in _kernel.scan(segment.read(0, size))[0]]
    expected = bench.read_all()
    for position in range(size):
        damaged = Bench(files=bench.files.crash(0))
        damaged.files.flip_bit(segment.path, position, position % 8)
        damaged.lose_power()
        assert damaged.log.end_offset == 9
        assert damaged.files.size(segment.path) == size
        bad = _batch_at(batches, position)
        got = dict[int, bytes | None]()
        for offset in range(9):
            try:
                records = _kernel.records(damaged.log.read(offset, 1).data)
            except CorruptRange:
                continue
            got.update({r[0]: r[3] for r in records})
        in_records = position >= sum(batches[:bad]) + 61
        lost = {first + bad} if in_records else set(range(first, first + len(batches)))
        assert set(range(9)) - set(got) <= lost
        assert all(got[o] == v for o, _, v in expected if o in got and o not in lost)


def _batch_at(sizes: list[int], position: int) -> int:
    at = 0
    while position >= sizes[at]:
        position -= sizes[at]
        at += 1
    return at


def test_the_operator_is_told_of_damage_once(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.append_durably(b"one")
    bench.append_durably(b"two")
    bench.files.flip_bit(bench.folder / SEGMENT, 70)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            with pytest.raises(CorruptRange):
                bench.log.read(0, 1000)
    assert len([r for r in caplog.records if "damaged" in r.message]) == 1
    assert bench.log.read(1, 10).data


def test_a_lost_index_is_made_again(bench: Bench) -> None:
    for i in range(40):
        bench.append_durably(b"v%d" % i)
    bench.reopen()
    for name in bench.files.names(bench.folder):
        if name.endswith(".index"):
            bench.files.remove(bench.folder / name)
    expected = bench.values()
    bench.kill()
    assert bench.values() == expected


def test_a_damaged_index_is_made_again(bench: Bench) -> None:
    for i in range(40):
        bench.append_durably(b"v%d" % i)
    expected = bench.read_all()
    bench.store.close()
    for name in bench.files.names(bench.folder):
        if name.endswith(".index"):
            for position in (2, 9, 20, 41):
                if position < bench.files.size(bench.folder / name):
                    bench.files.flip_bit(bench.folder / name, position)
    bench.kill()
    assert bench.read_all() == expected
    assert bench.read_all(23) == expected[23:]


def test_damage_in_a_sealed_segment_without_its_index_keeps_the_later_segments() -> None:
    bench = Bench({"internal.segment.bytes": "300"})
    for i in range(12):
        bench.append_durably(b"v%d" % i)
    bench.store.close()
    bench.files.remove(bench.folder / "00000000000000000000.index")
    bench.files.flip_bit(bench.folder / SEGMENT, 80)
    bench.kill()
    assert bench.log.end_offset == 12
    assert [o for o, _, _ in bench.read_all(bench.log.segments[1].base_offset)][-1] == 11


def test_a_sealed_segment_that_lost_its_end_keeps_its_offsets() -> None:
    bench = Bench({"internal.segment.bytes": "300"})
    for i in range(12):
        bench.append_durably(b"v%d" % i)
    bench.store.close()
    bench.files.cut(bench.folder / SEGMENT, 100)
    bench.kill()
    assert bench.log.end_offset == 12
    with pytest.raises(CorruptRange):
        bench.log.read(2, 100)
    assert bench.read_all(bench.log.segments[1].base_offset)


def test_an_active_segment_that_lost_promised_bytes_never_gives_an_offset_twice(bench: Bench) -> None:
    for i in range(5):
        bench.append_durably(b"v%d" % i)
    bench.store.close()
    bench.files.cut(bench.folder / SEGMENT, 100)
    bench.kill()
    assert bench.append(b"next") == 5
    assert bench.read_all(5) == [(5, b"k", b"next")]


def test_a_clean_stop_leaves_nothing_to_scan_and_keeps_the_leader_epoch(bench: Bench) -> None:
    bench.append(b"v")
    bench.reopen()
    assert bench.store.leader_epoch == 0
    assert bench.log.active.size == bench.log.active.indexed_size


def test_an_unclean_stop_begins_a_new_leader_epoch(bench: Bench) -> None:
    bench.append(b"a", b"b")
    bench.kill()
    bench.append(b"c")
    bench.kill()
    assert bench.log.epochs == [(0, 0), (1, 2), (2, 3)]
    assert [bench.log.epoch_end(e) for e in (-1, 0, 1, 2, 3)] == [(-1, -1), (0, 2), (1, 3), (2, 3), (-1, -1)]


@pytest.mark.system
def test_power_loss_at_every_change_of_a_compaction_loses_no_key() -> None:
    changes = 0
    while True:
        bench = Bench(
            {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "internal.segment.bytes": "300"}
        )
        for i in range(30):
            bench.append_durably(b"%d" % i, key=b"k%d" % (i % 5))
        bench.log.roll()
        start = bench.files.ticks
        bench.files.crash_after(changes)
        try:
            bench.maintain()
        except PowerLoss:
            done = False
        else:
            done = True
            assert "CompactionJob" in bench.maintain() or len(bench.read_all()) < 30
        assert bench.files.ticks > start
        for seed in range(4):
            after = Bench(files=bench.files.crash(seed))
            latest = {key: value for _, key, value in after.read_all()}
            assert latest == {b"k%d" % (i % 5): b"%d" % i for i in range(25, 30)}
            assert after.log.end_offset == 30
        changes += 1
        if done:
            break
    assert changes > 20


def test_power_loss_while_a_topic_is_made_leaves_all_of_it_or_nothing() -> None:
    for changes in range(40):
        files = LossyFiles()
        store = LogStore.open(FOLDER, files=files)
        files.crash_after(changes)
        try:
            made = store.create_topic("t", 2, {"retention.ms": "7"}).id
        except PowerLoss:
            made = None
        for seed in range(6):
            again = LogStore.open(FOLDER, files=files.crash(seed))
            if made is not None:
                assert again.topic("t").id == made
            if "t" in again.topics:
                assert (len(again.topic("t").partitions), again.topic("t").config.retention_ms) == (2, 7)
                assert again.partition("t", 1).append_records([(1, None, b"v", [])], acks_all=True).base_offset == 0
            else:
                again.create_topic("t", 1)


def test_topic_ids_survive_and_are_new_after_deletion(bench: Bench) -> None:
    first = bench.store.topic("t").id
    bench.kill()
    assert bench.store.topic("t").id == first
    bench.store.delete_topic("t")
    assert bench.store.create_topic("t", 1).id != first


def test_a_deleted_topic_stays_deleted_after_power_loss(bench: Bench) -> None:
    bench.append_durably(b"v")
    bench.store.delete_topic("t")
    bench.files = bench.files.crash(3)
    assert LogStore.open(FOLDER, files=bench.files).topics == {}


def test_lost_topic_settings_never_delete_data(bench: Bench) -> None:
    bench.append_durably(b"v")
    for name in ("topic", "topic.previous"):
        bench.files.remove(FOLDER / "topics" / "t" / name)
    files = bench.files.crash(0)
    store = LogStore.open(FOLDER, files=files)
    assert "t" not in store.topics
    assert files.size(bench.folder / SEGMENT) > 0


def test_producer_ids_are_never_given_twice(bench: Bench) -> None:
    given = {bench.store.new_producer_id() for _ in range(1500)}
    bench.lose_power(1)
    given |= {bench.store.new_producer_id() for _ in range(1500)}
    assert len(given) == 3000


def test_a_second_owner_is_refused(bench: Bench) -> None:
    with pytest.raises(FolderInUse):
        LogStore.open(FOLDER, files=bench.files)


def test_a_folder_of_a_newer_format_is_refused_and_left_alone(bench: Bench) -> None:
    bench.store.close()
    payload = read_checked(bench.files, FOLDER / "node")
    assert payload is not None
    write_checked(bench.files, FOLDER / "node", payload.replace(b'"format": 1', b'"format": 2'))
    before = bench.files.read(FOLDER / "node")
    with pytest.raises(FolderTooNew, match="format 2"):
        LogStore.open(FOLDER, files=bench.files)
    assert bench.files.read(FOLDER / "node") == before


def test_a_damaged_node_file_is_an_error_and_not_a_new_cluster(bench: Bench) -> None:
    bench.store.close()
    for name in ("node", "node.previous"):
        bench.files.flip_bit(FOLDER / name, 12)
    with pytest.raises(DamagedFile):
        LogStore.open(FOLDER, files=bench.files)
