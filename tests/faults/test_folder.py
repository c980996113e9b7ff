"""The data folder on a bad day: shared, too new, unwritable."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable

import crc32c
import pytest

from tests.contract.session import LATEST, Session
from tests.servers import Headrace, ServerFailed

Start = Callable[..., Headrace]
Talk = Callable[[Headrace], Session]


def test_a_second_process_on_the_same_folder_is_refused_and_the_first_goes_on(start: Start, talk: Talk) -> None:
    first = start()
    session = talk(first)
    topic = session.topic()
    with pytest.raises(ServerFailed) as raised:
        start()
    assert str(first.data) in str(raised.value)
    assert "Traceback" not in str(raised.value)
    assert session.produce(topic)["error_code"] == "none"


def test_the_lock_goes_with_its_process(start: Start) -> None:
    start().kill9()
    start().stop()


def test_a_folder_of_a_newer_format_is_refused_and_not_touched(start: Start, talk: Talk) -> None:
    node = start()
    talk(node).topic()
    node.stop()
    path = node.data / "node"
    content = json.loads(path.read_bytes()[8:])
    payload = json.dumps({**content, "format": content["format"] + 1}).encode()
    for name in ("node", "node.previous"):
        (node.data / name).write_bytes(struct.pack(">4sI", b"HRF1", crc32c.crc32c(payload)) + payload)
    before = {one: one.stat().st_mtime_ns for one in node.data.rglob("*") if one.is_file() and one.name != "lock"}
    with pytest.raises(ServerFailed) as raised:
        node.start()
    assert "format" in str(raised.value)
    assert "Traceback" not in str(raised.value)
    assert before == {
        one: one.stat().st_mtime_ns for one in node.data.rglob("*") if one.is_file() and one.name != "lock"
    }


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_refused(start: Start) -> None:
    node = start(start=False)
    node.data.mkdir()
    node.data.chmod(0o500)
    with pytest.raises(ServerFailed) as raised:
        node.start()
    assert "Traceback" not in str(raised.value)


def test_a_clean_stop_and_a_kill_keep_ids_settings_and_records(start: Start, talk: Talk) -> None:
    node = start()
    session = talk(node)
    topic = session.topic("kept", partitions=3, retention_ms="98765")
    session.fill(topic, partition=1)
    ids = [session.producer()[0]]
    for stop in (node.stop, node.kill9, node.stop):
        stop()
        node.start()
        session = talk(node)
        (found,) = session.ask("metadata", topics=[{"name": topic.name}], allow_auto_topic_creation=False)["topics"]
        assert (found["topic_id"], len(found["partitions"])) == (topic.id, 3)
        assert session.list_offset(topic, LATEST, partition=1)["offset"] == 1
        resource = {"resource_type": 2, "resource_name": topic.name, "configuration_keys": ["retention.ms"]}
        (told,) = session.ask("describe_configs", resources=[resource])["results"][0]["configs"]
        assert told["value"] == "98765"
        ids.append(session.producer()[0])
    assert len(set(ids)) == 4
