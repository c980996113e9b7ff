"""``headrace log verify`` and ``dump``: nothing wrong goes unseen, nothing right is complained about."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from pathlib import Path

import pytest

from headrace import _kernel
from headrace.log import LogStore, PartitionLog
from headrace.log.findings import DataReport, Severity
from headrace.log.log_file import DamagedBytes, FoundBatch, read_log
from headrace.log.verify import verify
from tests.cli.command import Cli

BATCHES = 120
RECORDS_PER_BATCH = 5


def append(partition: PartitionLog, number: int) -> None:
    records = [
        (1_700_000_000_000 + number, f"key-{number % 7}".encode(), b"v" * 60, [("h", b"1")])
        for _ in range(RECORDS_PER_BATCH)
    ]
    partition.append(_kernel.build_batch(records, codec=number % 5), acks_all=False)


def filled(data: Path, *, batches: int = BATCHES, **overrides: str) -> LogStore:
    store = LogStore.open(data)
    topic = store.create_topic(
        "orders", 2, {"internal.segment.bytes": "5000", "index.interval.bytes": "500", **overrides}
    )
    for number in range(batches):
        append(topic.partitions[number % 2], number)
    return store


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("data")
    filled(data).close()
    return data


@pytest.fixture
def data(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "data"))


def partition_folder(data: Path, index: int = 0) -> Path:
    return data / "topics" / "orders" / str(index)


def logs(data: Path, index: int = 0) -> list[Path]:
    return sorted(partition_folder(data, index).glob("*.log"))


def change(path: Path, position: int, mask: int = 0x01) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= mask
    path.write_bytes(content)


def damages(report: DataReport) -> list[str]:
    return [f"{f.path.name}: {f.reason}" for f in report.findings if f.severity is Severity.DAMAGE]


def notes(report: DataReport) -> list[str]:
    return [f"{f.path.name}: {f.reason}" for f in report.findings if f.severity is Severity.NOTE]


def batches_of(path: Path) -> list[FoundBatch]:
    return [found for found in read_log(path) if isinstance(found, FoundBatch)]


def test_a_sound_folder_has_no_findings_and_everything_is_counted(data: Path) -> None:
    told: list[int] = []
    report = verify(data, told.append)
    assert list(report.findings) == []
    assert sum(part.batches for part in report.partitions) == BATCHES
    assert sum(part.records for part in report.partitions) == BATCHES * RECORDS_PER_BATCH
    assert sum(part.segments for part in report.partitions) > 4
    assert told == sorted(told)
    assert told[-1] == sum(part.bytes for part in report.partitions)


def test_a_changed_bit_anywhere_in_a_sealed_segment_is_found(data: Path) -> None:
    path = logs(data)[0]
    content = path.read_bytes()
    rng = random.Random(7)
    # Leader epoch is outside a batch's checksum; so is the base offset, but offsets are checked otherwise.
    epochs = {found.header.position + at for found in batches_of(path) for at in range(12, 16)}
    for position in rng.sample(sorted(set(range(len(content))) - epochs), 150):
        changed = bytearray(content)
        changed[position] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        assert damages(verify(partition_folder(data))), f"a changed bit at byte {position} was not found"


def test_damage_is_told_with_its_file_byte_and_the_offsets_that_are_lost(data: Path) -> None:
    path = logs(data)[0]
    bad = batches_of(path)[3].header
    change(path, bad.position + 70)
    report = verify(data)
    [finding] = report.findings
    assert (finding.severity, finding.path) == (Severity.DAMAGE, path)
    assert (finding.position, finding.offset) == (bad.position, bad.base_offset)
    assert f"offsets {bad.base_offset} to {bad.last_offset} cannot be read" in finding.reason


def test_reading_goes_on_after_damage(data: Path) -> None:
    path = logs(data)[0]
    whole = batches_of(path)
    change(path, whole[3].header.position + 70)
    found = list(read_log(path))
    assert [type(item) for item in found[2:5]] == [FoundBatch, DamagedBytes, FoundBatch]
    assert len(found) == len(whole)


def test_after_a_broken_length_reading_goes_on_at_the_next_place_the_index_knows(data: Path) -> None:
    path = logs(data)[0]
    whole = batches_of(path)
    change(path, whole[1].header.position + 8, 0x7F)
    report = verify(partition_folder(data))
    assert len(damages(report)) == 1
    assert report.partitions[0].batches > len(whole) // 2


def test_a_segment_that_is_missing_is_found(data: Path) -> None:
    gone = logs(data)[1]
    first = int(gone.stem)
    gone.unlink()
    gone.with_suffix(".index").unlink()
    [damage] = damages(verify(data))
    assert f"offsets {first} to" in damage
    assert "are missing" in damage


def test_a_sealed_segment_that_lost_its_end_is_found(data: Path) -> None:
    path = logs(data)[0]
    os.truncate(path, batches_of(path)[-2].header.position)
    found = damages(verify(data))
    assert any("bytes are missing: they were on disk once" in damage for damage in found)


def test_the_torn_end_of_a_crash_is_only_a_note(tmp_path: Path) -> None:
    store = filled(tmp_path)
    last = logs(tmp_path)[-1]
    size = last.stat().st_size
    append(store.partition("orders", 0), 1)
    os.truncate(last, last.stat().st_size - 10)
    report = verify(partition_folder(tmp_path))
    assert damages(report) == []
    assert any(f"{last.name}: the last" in note and "torn" in note for note in notes(report))
    assert any(finding.position == size for finding in report.findings)


def test_a_folder_in_use_can_be_verified_and_nothing_is_changed(tmp_path: Path) -> None:
    def state() -> dict[Path, tuple[str, int]]:
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        return {path: (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns) for path in files}

    store = filled(tmp_path)
    before = state()
    report = verify(tmp_path)
    assert damages(report) == []
    assert state() == before
    append(store.partition("orders", 0), 1)
    store.close()


@pytest.mark.parametrize("how", ["entry", "cover", "magic", "empty"])
def test_a_damaged_index_is_a_note_because_it_is_made_again(data: Path, how: str) -> None:
    path = logs(data)[0].with_suffix(".index")
    if how == "empty":
        path.write_bytes(b"")
    else:
        change(path, {"entry": 45, "cover": 14, "magic": 0}[how])
    report = verify(data)
    assert damages(report) == []
    assert notes(report) == [f"{path.name}: the index is damaged; it is made again from the log"]


def test_an_index_that_is_whole_but_wrong_is_found(data: Path) -> None:
    first, second = (path.with_suffix(".index") for path in logs(data)[:2])
    shutil.copy(second, first)
    assert damages(verify(data))


@pytest.mark.parametrize(
    ("name", "severity"),
    [
        ("node", Severity.DAMAGE),
        ("topics/orders/topic", Severity.DAMAGE),
        ("topics/orders/0/checkpoint", Severity.DAMAGE),
        ("topics/orders/0/producers", Severity.NOTE),
    ],
)
def test_a_damaged_small_file_is_found(data: Path, name: str, severity: Severity) -> None:
    path = data / name
    path.with_name(f"{path.name}.previous").unlink(missing_ok=True)
    change(path, -1)
    assert (severity, path) in [(finding.severity, finding.path) for finding in verify(data).findings]


def test_a_partition_folder_that_is_missing_is_found(data: Path) -> None:
    shutil.rmtree(partition_folder(data, 1))
    assert damages(verify(data)) == ["1: the partition's folder is missing"]


def test_compaction_may_leave_gaps(tmp_path: Path) -> None:
    store = filled(tmp_path, **{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
    for _ in range(3):
        for job in store.jobs():
            job.run()
            job.finish()
    kept = verify(tmp_path)
    store.close()
    assert list(kept.findings) == []
    assert list(verify(tmp_path).findings) == []
    assert sum(part.records for part in kept.partitions) < BATCHES * RECORDS_PER_BATCH


def test_the_verify_command_says_all_good_and_exits_with_0(data: Path) -> None:
    ran = Cli()("log", "verify", str(data))
    assert ran.out.startswith(f"All good: {BATCHES * RECORDS_PER_BATCH} records, {BATCHES} batches, ")


def test_the_verify_command_exits_with_1_and_names_every_damage(data: Path) -> None:
    for path in logs(data)[:2]:
        change(path, 100)
    ran = Cli().run("log", "verify", str(data))
    assert ran.code == 1
    assert [line.split(":")[0] for line in ran.lines] == ["damage", "damage", "2 damaged"]
    told = Cli().run("log", "verify", str(data), "-o", "json")
    assert told.code == 1
    assert told.json["ok"] is False
    assert [finding["file"] for finding in told.json["findings"]] == [str(path) for path in logs(data)[:2]]
    assert told.json["findings"][0]["position"] == 0


def test_what_is_no_data_folder_is_refused(tmp_path: Path) -> None:
    assert "no log was found" in Cli().fails("log", "verify", str(tmp_path))
    assert "there is no" in Cli().fails("log", "dump", str(tmp_path / "nowhere"))


def test_dump_prints_batches_and_records_like_kafka_dump_log(data: Path) -> None:
    path = logs(data)[0]
    lines = Cli()("log", "dump", str(path), "--records", "--max", "2").lines
    assert lines[0] == f"Dumping {path}"
    assert lines[1] == "Log starting offset: 0"
    assert lines[2].startswith("baseOffset: 0 lastOffset: 4 count: 5 baseSequence: -1 ")
    assert lines[2].endswith("isvalid: true")
    assert lines[3].startswith("| offset: 0 CreateTime: 1700000000000 keySize: 5 valueSize: 60 ")
    assert "headerKeys: [h] key: key-0 payload: vvv" in lines[3]
    assert len(lines) == 2 + 2 * (1 + RECORDS_PER_BATCH)
    assert "compresscodec: snappy" in lines[2 + 1 + RECORDS_PER_BATCH]


def test_dump_as_json_holds_every_record_of_the_folder(data: Path) -> None:
    found = Cli()("log", "dump", str(data), "--records", "-o", "json").ndjson
    assert sum(item["type"] == "batch" for item in found) == BATCHES
    records = [item for item in found if item["type"] == "record"]
    assert len(records) == BATCHES * RECORDS_PER_BATCH
    assert records[0] == {
        "type": "record",
        "offset": 0,
        "timestamp_ms": 1_700_000_000_000,
        "key": "key-0",
        "value": "v" * 60,
        "headers": [{"name": "h", "value": "1"}],
    }


def test_dump_shows_damage_and_goes_on(data: Path) -> None:
    path = logs(data)[0]
    change(path, 100)
    found = [json.loads(line) for line in Cli()("log", "dump", str(path), "-o", "json").lines]
    assert [item["type"] for item in found[:2]] == ["damage", "batch"]
    assert found[0]["position"] == 0
