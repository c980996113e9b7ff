"""Fetch: positions, limits, waiting, sessions and isolation."""

import time

from tests.contract.batches import NOW, batch
from tests.contract.session import Session, Topic, in_every_version


def _filled(s: Session, suffix: str = "t", *, batches: int = 4, each: int = 5, partitions: int = 1) -> Topic:
    topic = s.topic(suffix, partitions)
    for index in range(partitions):
        s.fill(
            topic,
            *(batch([(b"k%d" % n, b"v" * 50)] * each, timestamp=NOW + n * 1000) for n in range(batches)),
            partition=index,
        )
    return topic


@in_every_version("fetch")
def records_come_back(s: Session) -> None:
    topic = _filled(s)
    for offset in (0, 5, 7, 19, 20):
        s.fetch(topic, offset, version=s.version)


@in_every_version("fetch")
def positions_outside_the_log_are_out_of_range(s: Session) -> None:
    topic = _filled(s)
    for offset in (21, 10**12, -1, -2):
        s.fetch(topic, offset, version=s.version)


@in_every_version("fetch")
def partitions_that_are_not_there_are_unknown(s: Session) -> None:
    topic = _filled(s)
    s.fetch(topic, partition=5, version=s.version)
    import uuid

    ghost = Topic(s.name("ghost"), uuid.uuid5(uuid.NAMESPACE_OID, "ghost"))
    s.fetch(ghost, version=s.version)


@in_every_version("fetch")
def committed_reads_see_all_when_nothing_is_open(s: Session) -> None:
    topic = _filled(s)
    s.fetch(topic, 3, isolation=1, version=s.version)


def an_offset_inside_a_batch_gives_the_whole_batch(s: Session) -> None:
    topic = _filled(s)
    for offset in range(20):
        s.fetch(topic, offset, partition_max_bytes=1)


def limits_on_bytes_give_whole_batches_or_cut_them(s: Session) -> None:
    topic = _filled(s)
    whole = len(batch([(b"k0", b"v" * 50)] * 5))
    for limit in (0, 1, whole - 1, whole, whole + 1, 2 * whole, 2 * whole + 30, 10 * whole):
        s.fetch(topic, 0, partition_max_bytes=limit)
        s.fetch(topic, 0, max_bytes=limit)
        s.fetch(topic, 6, partition_max_bytes=limit)


def the_limit_of_a_request_is_shared_by_its_partitions(s: Session) -> None:
    topic = _filled(s, partitions=3)
    whole = len(batch([(b"k0", b"v" * 50)] * 5))
    for limit in (1, whole, 3 * whole, 6 * whole):
        s.call("fetch", 12, **s.fetch_body({topic: {0: 0, 1: 0, 2: 0}}, max_bytes=limit))
        s.call("fetch", 12, **s.fetch_body({topic: {2: 0, 0: 0}}, max_bytes=limit))


def the_order_of_partitions_in_a_request_decides_who_is_served(s: Session) -> None:
    topic = _filled(s, partitions=2)
    answer = s.call("fetch", 12, **s.fetch_body({topic: {1: 20, 0: 0}}, max_bytes=1))
    s.note("order", [part["partition_index"] for part in answer["responses"][0]["partitions"]])


def nothing_new_is_answered_after_the_wait(s: Session) -> None:
    topic = _filled(s)
    for wait in (0, 300):
        start = time.monotonic()
        s.fetch(topic, 20, max_wait=wait)
        took = (time.monotonic() - start) * 1000
        s.note(f"waited {wait}", wait <= took < wait + 1500)


def enough_bytes_are_answered_at_once(s: Session) -> None:
    topic = _filled(s)
    for minimum in (0, 1, 100):
        start = time.monotonic()
        s.fetch(topic, 0, max_wait=10_000, min_bytes=minimum)
        s.note("at once", time.monotonic() - start < 5)
    s.fetch(topic, 20, max_wait=10_000, min_bytes=0)


def too_few_bytes_wait(s: Session) -> None:
    topic = _filled(s)
    start = time.monotonic()
    s.fetch(topic, 0, max_wait=300, min_bytes=10_000_000)
    s.note("waited", time.monotonic() - start > 0.25)


def a_waiting_fetch_is_woken_by_new_records(s: Session) -> None:
    topic = _filled(s)
    waiting = s.connect()
    waiting.send("fetch", 12, **s.fetch_body({topic: {0: 20}}, max_wait=20_000))
    s.fill(topic, batch())
    start = time.monotonic()
    _, tree = waiting.receive()
    s.note("woken", tree)
    s.note("soon", time.monotonic() - start < 5)


def a_position_out_of_range_is_answered_at_once(s: Session) -> None:
    topic = _filled(s)
    start = time.monotonic()
    s.call("fetch", 12, **s.fetch_body({topic: {0: 99}}, max_wait=5_000))
    s.note("at once", time.monotonic() - start < 3)


def an_unknown_partition_beside_an_empty_one_waits(s: Session) -> None:
    topic = _filled(s)
    start = time.monotonic()
    s.call("fetch", 12, **s.fetch_body({topic: {0: 20, 7: 0}}, max_wait=500))
    s.note("waited", time.monotonic() - start > 0.4)


def leader_epochs_are_checked(s: Session) -> None:
    topic = _filled(s)
    for epoch in (-1, 0, 1, 99):
        s.fetch(topic, 0, leader_epoch=epoch, version=12)


def a_follower_is_not_served(s: Session) -> None:
    topic = _filled(s)
    body = s.fetch_body({topic: {0: 0}})
    for replica in (5, 1, -2):
        s.call("fetch", 11, **body, replica_id=replica)


def after_deleting_records_the_start_moves(s: Session) -> None:
    topic = _filled(s)
    s.call(
        "delete_records",
        timeout=5000,
        topics=[{"name": topic.name, "partitions": [{"partition_index": 0, "offset": 7}]}],
    )
    for offset in (0, 6, 7, 8):
        s.fetch(topic, offset)


def a_session_sends_only_what_changed(s: Session) -> None:
    topic = _filled(s, partitions=3)
    answer = s.call("fetch", 12, **s.fetch_body({topic: {0: 0, 1: 20, 2: 20}}, session=(0, 0)))
    identity = answer["session_id"]
    s.call("fetch", 12, **s.fetch_body({topic: {0: 20}}, session=(identity, 1)))
    s.call("fetch", 12, **s.fetch_body({}, session=(identity, 2)))
    s.fill(topic, batch(), partition=1)
    s.call("fetch", 12, **s.fetch_body({}, session=(identity, 3)))
    s.call("fetch", 12, **s.fetch_body({topic: {1: 21}}, session=(identity, 4)))
    s.call("fetch", 12, **s.fetch_body({}, session=(identity, 5), forget={topic: [2]}))
    s.fill(topic, batch(), partition=2)
    s.call("fetch", 12, **s.fetch_body({}, session=(identity, 6)))
    s.call("fetch", 12, **s.fetch_body({topic: {2: 20}}, session=(identity, 7)))


def a_session_by_topic_id(s: Session) -> None:
    topic, second = _filled(s, "a", partitions=2), _filled(s, "b")
    answer = s.call("fetch", 16, **s.fetch_body({topic: {0: 0, 1: 20}, second: {0: 0}}, session=(0, 0)))
    identity = answer["session_id"]
    s.call("fetch", 16, **s.fetch_body({topic: {0: 20}, second: {0: 20}}, session=(identity, 1)))
    s.call("fetch", 16, **s.fetch_body({}, session=(identity, 2)))
    s.fill(second, batch())
    s.call("fetch", 16, **s.fetch_body({}, session=(identity, 3), forget={topic: [0]}))


def a_session_with_a_wrong_epoch_or_id(s: Session) -> None:
    topic = _filled(s)
    answer = s.call("fetch", 12, **s.fetch_body({topic: {0: 0}}, session=(0, 0)))
    identity = answer["session_id"]
    for session in ((identity, 5), (identity, 1), (identity, 1), (123, 1), (0, 3)):
        s.call("fetch", 12, **s.fetch_body({topic: {0: 20}}, session=session))


def a_session_can_be_closed(s: Session) -> None:
    topic = _filled(s)
    answer = s.call("fetch", 12, **s.fetch_body({topic: {0: 0}}, session=(0, 0)))
    identity = answer["session_id"]
    s.call("fetch", 12, **s.fetch_body({topic: {0: 0}}, session=(identity, -1)))
    s.call("fetch", 12, **s.fetch_body({}, session=(identity, 1)))


def a_session_can_be_started_again(s: Session) -> None:
    topic = _filled(s)
    first = s.call("fetch", 12, **s.fetch_body({topic: {0: 0}}, session=(0, 0)))["session_id"]
    second = s.call("fetch", 12, **s.fetch_body({topic: {0: 0}}, session=(first, 0)))["session_id"]
    s.note("another session", first != second)
    s.call("fetch", 12, **s.fetch_body({}, session=(first, 1)))
    s.call("fetch", 12, **s.fetch_body({}, session=(second, 1)))


def a_session_keeps_telling_errors(s: Session) -> None:
    topic = _filled(s)
    answer = s.call("fetch", 12, **s.fetch_body({topic: {0: 99, 5: 0}}, session=(0, 0)))
    identity = answer["session_id"]
    s.call("fetch", 12, **s.fetch_body({}, session=(identity, 1)))
    s.call("fetch", 12, **s.fetch_body({topic: {0: 0}}, session=(identity, 2)))


def an_empty_full_fetch(s: Session) -> None:
    for version in (4, 7, 12, 16):
        s.call("fetch", version, **s.fetch_body({}))
        if version >= 7:
            s.call("fetch", version, **s.fetch_body({}, session=(0, 0)))


def a_topic_made_again_has_a_new_id(s: Session) -> None:
    topic = _filled(s)
    s.ask("delete_topics", 6, topics=[{"name": topic.name, "topic_id": None}], timeout=10_000)
    s.until(lambda: not s.ready(topic.name, 1))
    again = s.topic()
    s.note("another id", again.id != topic.id)
    s.fetch(topic, version=16)
    s.fetch(again, version=16)


def one_byte_at_a_time_reads_everything(s: Session) -> None:
    topic = _filled(s, batches=6, each=3)
    offset = 0
    while offset < 18:
        part = s.fetch(topic, offset, partition_max_bytes=1, max_bytes=1)
        offset += 3
        assert part["error_code"] == "none"
