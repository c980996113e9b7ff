"""The groups' state topic is Kafka's: we read Apache Kafka's records and would write the same, and it reads ours."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator

from headrace import _kernel
from headrace.broker.groups.records import decode, encode
from tests.contract.scenarios import consumer_groups, migration, share_groups
from tests.contract.session import Session
from tests.servers import ApacheKafka, Headrace, Server, java

STORIES = (
    consumer_groups.static_members_come_back_as_themselves,
    consumer_groups.regular_expressions,
    consumer_groups.three_members_one_after_the_other,
    migration.a_classic_group_is_upgraded_and_downgraded,
    share_groups.commits_are_not_for_share_groups,
)
OURS = {1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13, 14, 16}
"""The kinds of records that we write."""


def told_to(server: Server, name: str) -> None:
    for number, story in enumerate(STORIES):
        session = Session(server.bootstrap, f"{name}-{number}", 1)
        story(session)
        session.close()


def records_of(server: Server) -> Iterator[tuple[bytes, bytes | None]]:
    session = Session(server.bootstrap, "records")
    topic = session.ask("metadata", topics=[{"name": "__consumer_offsets"}])["topics"][0]
    offset = 0
    while True:
        asked = [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 22, "current_leader_epoch": -1}]
        answer = session.ask(
            "fetch",
            max_wait=0,
            min_bytes=0,
            max_bytes=1 << 22,
            session_id=0,
            session_epoch=-1,
            topics=[{"topic": topic["name"], "topic_id": topic["topic_id"], "partitions": asked}],
            forgotten_topics_data=[],
        )
        found = list(_kernel.records(answer["responses"][0]["partitions"][0]["records"] or b""))
        found = [record for record in found if record[0] >= offset]
        if not found:
            session.close()
            return
        offset = found[-1][0] + 1
        for _, _, key, value, _ in found:
            assert key is not None
            yield key, value


def test_we_would_write_every_record_of_kafkas_as_it_did(kafka: ApacheKafka) -> None:
    told_to(kafka, "theirs")
    kinds: Counter[int] = Counter()
    for key, value in records_of(kafka):
        kind = int.from_bytes(key[:2], "big")
        if kind not in OURS:
            continue
        change = decode(key, value)
        assert change is not None
        again = encode(change)
        assert decode(*again) == change
        assert again[0] == key
        assert (again[1] is None) == (value is None)
        if kind != 2 and value is not None:
            assert sorted(again[1] or b"") == sorted(value), f"kind {kind}: {value!r} would be {again[1]!r}"
        kinds[kind] += 1
    assert kinds.keys() >= OURS - {1}


def test_kafkas_tool_reads_every_record_of_ours(headrace: Headrace) -> None:
    told_to(headrace, "ours")
    [path] = (headrace.data / "topics" / "__consumer_offsets" / "0").glob("*0.log")
    command = java("org.apache.kafka.tools.DumpLogSegments", "--files", str(path), "--offsets-decoder")
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    kinds = Counter(int(found[1]) for line in lines if (found := re.search(r'key: \{"type":"?(\d+)', line)))
    assert kinds.keys() >= OURS - {1}, lines[:20]
    assert not [line for line in lines if "Error" in line or "unknown" in line.lower()]
