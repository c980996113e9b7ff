"""A clock that goes backwards, seen by the real process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contract.batches import NOW, batch, headers_of
from tests.contract.session import LATEST, MAX_TIMESTAMP, Session, Topic
from tests.servers import Headrace

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))


def appended(session: Session, topic: Topic, offset: int) -> int:
    time: int = headers_of(session.fetch(topic, offset, partition_max_bytes=1)["records"])[0]["max_timestamp"]
    return time


@pytest.mark.skipif(not LIBRARIES, reason="libfaketime is not installed: apt-get install faketime")
def test_a_clock_that_goes_backwards_stops_nothing(
    start: Callable[..., Headrace], talk: Callable[[Headrace], Session], tmp_path: Path
) -> None:
    shift = tmp_path / "shift"
    shift.write_text("+0\n")
    faketime = {
        "LD_PRELOAD": str(LIBRARIES[0]),
        "FAKETIME_TIMESTAMP_FILE": str(shift),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    node = start(env=faketime)
    session = talk(node)
    topic = session.topic("appended", message_timestamp_type="LogAppendTime")
    session.fill(topic)
    shift.write_text("-2h\n")
    session.fill(topic, batch(timestamp=NOW), batch(timestamp=NOW))
    times = [appended(session, topic, offset) for offset in range(3)]
    assert times == sorted(times), "append times do not go back with the clock"
    later = session.topic("later", message_timestamp_type="LogAppendTime")
    session.fill(later)
    assert times[0] - appended(session, later, 0) > 3_600_000, "the test did not turn the clock back"
    assert session.list_offset(topic, LATEST)["offset"] == 3
    assert session.list_offset(topic, MAX_TIMESTAMP)["offset"] == 0
    assert session.list_offset(topic, times[0])["offset"] == 0
    pid, epoch = session.producer()
    for number in range(3):
        session.fill(topic, batch(producer_id=pid, producer_epoch=epoch, sequence=number))
    node.kill9()
    node.start()
    session = talk(node)
    assert session.list_offset(topic, LATEST)["offset"] == 6
    assert session.produce(topic, batch(producer_id=pid, producer_epoch=epoch, sequence=2))["base_offset"] == 5
