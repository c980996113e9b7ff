"""``headrace produce`` and ``headrace consume``, on Headrace and on Apache Kafka."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command import HEADRACE, Cli, on_both

pytestmark = pytest.mark.system


def values(cli: Cli, topic: str, *options: str) -> list[str]:
    return sorted(cli("consume", topic, "--exit-at-end", *options).lines)


def test_lines_go_in_and_come_out(cli: Cli, topic: str) -> None:
    told = cli("produce", topic, "-o", "json", stdin="one\ntwo\n\nfour").json
    assert (told["topic"], told["records"], told["bytes"]) == (topic, 4, 10)
    assert sum(part["last"] - part["first"] + 1 for part in told["partitions"]) == 4
    assert values(cli, topic) == ["", "four", "one", "two"]


@on_both
def test_keys_headers_partition_and_codec_are_kept(cli: Cli, topic: str) -> None:
    cli("produce", topic, "-K", "tab", "-p", "1", "-H", "from=test", "-z", "zstd", stdin="k1\tv1\nk2\t\n")
    first, second = cli("consume", topic, "-e", "-o", "json").ndjson
    assert abs(first.pop("timestamp_ms") / 1000 - time.time()) < 60
    assert first == {
        "topic": topic,
        "partition": 1,
        "offset": 0,
        "key": "k1",
        "value": "v1",
        "headers": [{"name": "from", "value": "test"}],
    }
    assert (second["key"], second["value"], second["offset"]) == ("k2", "", 1)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_comes_through(cli: Cli, topic: str, codec: str) -> None:
    lines = [f"a line that compresses well, number {number}" for number in range(500)]
    cli("produce", topic, "--codec", codec, "-p", "0", stdin="\n".join(lines))
    assert cli("consume", topic, "-e").lines == lines


@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_every_kind_of_acknowledgement_works(cli: Cli, topic: str, acks: str) -> None:
    assert cli("produce", topic, "--acks", acks, "-o", "json", stdin="x\n").json["records"] == 1
    assert cli("consume", topic, "--max", "1").lines == ["x"]


def test_a_null_value_deletes_a_key(cli: Cli, topic: str) -> None:
    cli("produce", topic, "-K", ":", "--empty-as-null", stdin="gone:\n")
    [record] = cli("consume", topic, "-e", "-o", "json").ndjson
    assert record["value"] is None


def test_an_ndjson_file_goes_in_with_keys_from_a_field(cli: Cli, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "orders.ndjson"
    rows = [{"id": number, "customer": {"name": f"c{number % 3}"}} for number in range(2000)]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    out = cli("produce", topic, "--file", str(file), "--key-field", "customer.name").out
    assert out.startswith(f"2000 records to {topic} (")
    records = cli("consume", topic, "-e", "-o", "json").ndjson
    assert sorted(json.loads(record["value"])["id"] for record in records) == list(range(2000))
    assert all(record["key"] == json.loads(record["value"])["customer"]["name"] for record in records)
    places = {(record["key"], record["partition"]) for record in records}
    assert len(places) == 3, "all records of a key are in one partition"


def test_a_bad_line_stops_it_and_says_how_much_was_written(cli: Cli, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.ndjson"
    file.write_text('{"a": 1}\n{"a": 2}\nnot json\n')
    message = cli.fails("produce", topic, "--file", str(file))
    assert f"line 3 of {file} is not JSON" in message
    assert "2 records were written" in message
    assert len(values(cli, topic)) == 2


def test_progress_is_shown_to_those_who_look(cli: Cli, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "many.ndjson"
    file.write_text('{"a": 1}\n' * 50_000)
    terminal, child_side = pty.openpty()
    child = subprocess.Popen(
        [HEADRACE, "produce", topic, "--file", str(file)],
        stdout=subprocess.PIPE,
        stderr=child_side,
        env={**cli.env(), "TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(child_side)
    seen = b""
    while True:
        try:
            seen += os.read(terminal, 65536)
        except OSError:
            break
    os.close(terminal)
    assert child.wait(30) == 0
    assert child.stdout is not None
    assert child.stdout.read().startswith(b"50000 records to ")
    child.stdout.close()
    assert b"Producing to" in seen


def test_a_copy_by_way_of_json_has_the_same_records(cli: Cli, topic: str, new_name: Callable[[str], str]) -> None:
    cli("produce", topic, "-K", ":", "-H", "h=1", stdin=b"k:\xff\xfe\nk2:text\n")
    records = cli("consume", topic, "-e", "-o", "json").out
    copy = new_name("copy")
    cli("topic", "create", copy, "-p", "3")
    cli("produce", copy, "--envelope", stdin=records)

    def essence(name: str) -> list[str]:
        kept = ("timestamp_ms", "key", "value", "value_base64", "headers")
        found = cli("consume", name, "-e", "-o", "json").ndjson
        return sorted(json.dumps({field: record.get(field) for field in kept}) for record in found)

    assert essence(copy) == essence(topic)


@on_both
def test_reading_starts_where_it_is_told_to(cli: Cli, new_name: Callable[[str], str]) -> None:
    topic = new_name("start")
    cli("topic", "create", topic, "-p", "1", "--set", "retention.ms=-1")
    old = "".join(
        json.dumps({"value": str(number), "timestamp_ms": 1_700_000_000_000 + number * 1000}) + "\n"
        for number in range(10)
    )
    cli("produce", topic, "--envelope", stdin=old)
    assert cli("consume", topic, "-e").lines == [str(number) for number in range(10)]
    assert cli("consume", topic, "-e", "--from", "7").lines == ["7", "8", "9"]
    assert cli("consume", topic, "-e", "--from", "-2").lines == ["8", "9"]
    assert cli("consume", topic, "-e", "--from", "end").lines == []
    assert cli("consume", topic, "-e", "--from", "@1700000005").lines == ["5", "6", "7", "8", "9"]
    assert cli("consume", topic, "-e", "--from", "@2023-11-14T22:13:28Z").lines == ["8", "9"]
    assert cli("consume", topic, "-e", "--from", "@-1h").lines == []
    assert cli("consume", topic, "--max", "3", "--from", "2").lines == ["2", "3", "4"]
    assert "offset 11 is beyond the end of the log, which is 10" in cli.fails("consume", topic, "--from", "11")


def test_only_the_chosen_partitions_are_read(cli: Cli, topic: str) -> None:
    for partition in ("0", "1", "2"):
        cli("produce", topic, "-p", partition, stdin=f"in {partition}\n")
    assert values(cli, topic, "-p", "0", "-p", "2") == ["in 0", "in 2"]
    assert "has no partition 3" in cli.fails("consume", topic, "-p", "3")
    assert "UNKNOWN_PARTITION" in cli.fails("produce", topic, "-p", "3", stdin="x\n")


@on_both
def test_following_shows_new_records_until_it_is_stopped(cli: Cli, topic: str) -> None:
    reader = subprocess.Popen([HEADRACE, "consume", topic], stdout=subprocess.PIPE, env=cli.env())
    assert reader.stdout is not None
    cli("produce", topic, stdin="first\n")
    assert reader.stdout.readline() == b"first\n"
    cli("produce", topic, stdin="second\n")
    assert reader.stdout.readline() == b"second\n"
    reader.send_signal(signal.SIGINT)
    assert reader.wait(20) == 0
    reader.stdout.close()


def test_a_reader_that_has_seen_enough_is_no_error(cli: Cli, topic: str) -> None:
    cli("produce", topic, stdin="".join(f"{number}\n" for number in range(50_000)))
    script = f"set -o pipefail; {HEADRACE} consume {topic} | head -n 1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, env=cli.env(), check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")


@on_both
def test_a_group_goes_on_where_it_stopped(cli: Cli, new_name: Callable[[str], str]) -> None:
    topic, group = new_name("grouped"), new_name("group")
    cli("topic", "create", topic, "-p", "1")
    cli("produce", topic, stdin="".join(f"{number}\n" for number in range(10)))
    assert cli("consume", topic, "--group", group, "--max", "3").lines == ["0", "1", "2"]
    assert cli("consume", topic, "--group", group, "--max", "2").lines == ["3", "4"]
    assert cli("consume", topic, "--group", group, "-e").lines == ["5", "6", "7", "8", "9"]
    assert cli("consume", topic, "--group", group, "-e").lines == []


def test_what_cannot_be_is_refused(cli: Cli, topic: str, new_name: Callable[[str], str]) -> None:
    missing = new_name("missing")
    assert f"there is no topic {missing!r}" in cli.fails("consume", missing)
    assert missing not in cli("topic", "list").out, "looking for a topic does not create it"
    assert "exclude each other" in cli.fails("consume", topic, "--group", "g", "--partition", "0")
    assert "group seek g --to 5" in cli.fails("consume", topic, "--group", "g", "--from", "5")
    assert "is not a format" in cli.fails("consume", topic, "--format", "xml")
    assert "only one of" in cli.fails("produce", topic, "--key", "a", "--key-field", "b")
    assert "No such file" in cli.fails("produce", topic, "--file", "/no/such/file")
