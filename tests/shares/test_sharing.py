"""ShareFetch and ShareAcknowledge as a client sees them."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.testing.broker import EmbeddedBroker
from tests.shares.member import ACCEPT, REJECT, RELEASE, RENEW, Bench, acquired, until, values

TEN = [b"%d" % n for n in range(10)]


def test_members_of_a_group_share_and_groups_each_get_all(bench: Bench) -> None:
    bench.fill(*TEN)
    bench.fill(*TEN)
    one, two = bench.member("one"), bench.member("two")
    assert one.opened(records=10) == [(0, 9, 1)]
    assert two.got(records=10) == [(10, 19, 1)]
    assert one.got() == two.got() == []
    bench.set("another", share_auto_offset_reset="earliest")
    assert bench.member("one", "another").opened() == [(0, 19, 1)]


def test_whole_batches_are_sent_and_ranges_say_what_is_whose(bench: Bench) -> None:
    bench.fill(*TEN)
    one, two = bench.member("one"), bench.member("two")
    answer = one.fetch(wait=5000, records=3, share_acquire_mode=1)
    assert acquired(answer) == [(0, 2, 1)]
    assert values(answer) == TEN[:3]
    answer = two.fetch(records=3)
    assert acquired(answer) == [(3, 9, 1)]
    assert values(answer) == TEN[3:]


def test_each_way_to_settle_a_record(bench: Bench) -> None:
    bench.fill(*TEN)
    one = bench.member("one")
    one.opened()
    assert one.settle((0, 3, ACCEPT, RELEASE, REJECT, 0), (4, 5, RELEASE)) == 0
    assert one.got() == [(1, 1, 2), (4, 5, 2)]
    assert one.got((1, 1, ACCEPT), (4, 9, ACCEPT)) == []
    assert one.settle((5, 5, ACCEPT)) == 0, "what is settled for good is not looked at again"


def test_acknowledgements_that_cannot_be(bench: Bench) -> None:
    bench.fill(*TEN)
    one, two = bench.member("one"), bench.member("two")
    one.opened(records=5, share_acquire_mode=1)
    two.got(records=2, share_acquire_mode=1)
    for acks, code in (
        (((0, 1, 9),), 42),
        (((0, 1, ACCEPT, ACCEPT, ACCEPT),), 42),
        (((2, 3, ACCEPT), (0, 1, ACCEPT)), 42),
        (((3, 2, ACCEPT),), 42),
        (((0, 1, RENEW),), 42),
        (((7, 7, ACCEPT),), 42),
        (((0, 5, ACCEPT),), 121),
        (((5, 6, ACCEPT),), 121),
    ):
        assert one.settle(*acks) == code, acks
    assert one.settle((0, 4, ACCEPT)) == 0


def test_sessions_keep_count(bench: Bench) -> None:
    bench.fill(*TEN)
    one = bench.member("one")
    one.opened()
    for epoch, code in ((7, 123), (2, 123)):
        assert one.fetch(epoch=epoch).error_code == code
    assert one.fetch((0, 1, ACCEPT), epoch=0).error_code == 42, "a new session has nothing to acknowledge"
    assert bench.member("nobody").fetch(epoch=1).error_code == 122
    assert bench.member("nobody").fetch(epoch=-1).error_code == 122
    assert bench.member("x" * 37).fetch().error_code == 42
    stranger = bench.member("stranger")
    assert stranger.acknowledge((0, 1, ACCEPT)).error_code == 123
    stranger.epoch = 4
    assert stranger.acknowledge((0, 1, ACCEPT)).error_code == 122


def test_a_session_that_ends_gives_its_records_back(bench: Bench) -> None:
    bench.fill(*TEN)
    one, two = bench.member("one"), bench.member("two")
    one.opened()
    two.fetch()
    assert one.fetch((0, 4, ACCEPT), epoch=-1).error_code == 0
    assert two.got() == [(5, 9, 2)]
    two.client.close()
    again = bench.member("two")
    until(lambda: again.got(epoch=0) == [(5, 9, 3)])


def test_a_fetch_waits_for_records_and_for_what_others_release(bench: Bench) -> None:
    one, two = bench.member("one"), bench.member("two")
    one.fetch(wait=100)
    request = one.client.send(
        78,
        2,
        {
            "group_id": bench.group,
            "member_id": "one",
            "share_session_epoch": 1,
            "max_wait_ms": 20_000,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 10,
            "batch_size": 10,
            "topics": [],
            "forgotten_topics_data": [],
        },
    )
    bench.fill(*TEN)
    assert acquired(one.client.receive(78, 2, request)) == [(0, 9, 1)]
    one.epoch = 2
    two.fetch()
    waiting = two.client.send(
        78,
        2,
        {
            "group_id": bench.group,
            "member_id": "two",
            "share_session_epoch": 1,
            "max_wait_ms": 20_000,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 10,
            "batch_size": 10,
            "topics": [],
            "forgotten_topics_data": [],
        },
    )
    one.settle((2, 4, RELEASE))
    assert acquired(two.client.receive(78, 2, waiting)) == [(2, 4, 2)]


def test_topics_and_partitions_that_are_not_there(bench: Bench) -> None:
    one = bench.member("one")
    answer = one.fetch(partitions=[5])
    assert answer.responses[0].partitions[0].error_code == 3
    bench.topic_id = type(bench.topic_id)(int=7)
    answer = bench.member("two").fetch(partitions=[0])
    assert answer.responses[0].partitions[0].error_code == 100


def test_locks_end_and_are_renewed(folder: Path) -> None:
    settings = {"group.share.record.lock.duration.ms": "250", "group.share.min.record.lock.duration.ms": "1"}
    with EmbeddedBroker(folder, settings) as broker:
        bench = Bench(broker)
        bench.fill(*TEN)
        one, two = bench.member("one"), bench.member("two")
        assert one.opened() == [(0, 9, 1)]
        assert two.got(wait=10_000) == [(0, 9, 2)], "the lock ended, without anyone asking"
        assert one.settle((0, 9, ACCEPT)) == 121
        assert two.settle((0, 9, RENEW), is_renew_ack=True) in (0, 121)
        bench.set(share_renew_acknowledge_enable="false")
        until(lambda: two.got(wait=100))
        assert two.settle((0, 0, RENEW), is_renew_ack=True) == 121
        bench.close()


def test_a_record_is_tried_so_often_and_no_more(bench: Bench) -> None:
    bench.set(share_delivery_count_limit="2")
    bench.fill(*TEN[:2])
    one = bench.member("one")
    assert one.opened() == [(0, 1, 1)]
    assert one.got((0, 1, RELEASE)) == [(0, 1, 2)]
    assert one.got((0, 1, RELEASE)) == []
    bench.fill(b"next")
    assert one.got(wait=5000) == [(2, 2, 1)]


def test_the_window_is_bounded_and_moves_on(bench: Bench) -> None:
    bench.set(share_partition_max_record_locks="100")
    for _ in range(25):
        bench.fill(*TEN)
    one = bench.member("one")
    assert one.opened(records=1000) == [(0, 99, 1)]
    assert one.got(records=1000) == []
    assert one.got((0, 19, ACCEPT), records=1000) == [(100, 119, 1)]


def test_records_of_aborted_transactions_and_markers_are_passed_over(bench: Bench) -> None:
    bench.set(share_isolation_level="read_committed")
    bench.fill(b"before")
    producer = bench.client.call(
        22,
        5,
        {
            "transactional_id": "headrace-test",
            "transaction_timeout_ms": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
        },
    )
    how = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch, "transactional": True}
    bench.fill(b"aborted", b"aborted too", base_sequence=0, **how)
    one = bench.member("one")
    assert one.opened() == [(0, 0, 1)], "not beyond the last stable offset"
    ended = bench.client.call(
        26,
        5,
        {
            "transactional_id": "headrace-test",
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "committed": False,
        },
    )
    assert ended.error_code == 0
    bench.fill(b"after")
    answer = one.fetch((0, 0, ACCEPT), wait=5000)
    assert values(answer) == [b"after"]
    assert acquired(answer) == [(4, 4, 1)]
    one.settle((4, 4, ACCEPT))
    assert _window(bench) == (5, 0)


def _window(bench: Bench) -> tuple[int, int]:
    def look(broker: object) -> tuple[int, int]:
        from headrace.broker.shares.records import ShareKey

        share = broker.shares.look(ShareKey(bench.group, bench.topic_id.bytes, 0))  # type: ignore[attr-defined]
        return share.window.start, share.lag

    return bench.broker.look(look)


@pytest.mark.parametrize(("reset", "first"), [("earliest", 0), ("latest", 10), ("by_duration:PT1H", 10)])
def test_a_group_begins_where_its_settings_say(bench: Bench, reset: str, first: int) -> None:
    bench.fill(*TEN)
    bench.set(share_auto_offset_reset=reset)
    one = bench.member("one")
    one.fetch(wait=200, epoch=0)
    assert until(lambda: _window(bench))[0] == first


def test_the_log_start_takes_the_window_along(bench: Bench) -> None:
    bench.fill(*TEN)
    one = bench.member("one")
    one.opened()
    deleted = bench.client.call(
        21,
        2,
        {"topics": [{"name": bench.topic, "partitions": [{"partition_index": 0, "offset": 6}]}], "timeout_ms": 5000},
    )
    assert deleted.topics[0].partitions[0].error_code == 0
    assert one.settle((4, 6, ACCEPT)) == 0
    assert _window(bench) == (7, 3)


def test_what_was_settled_is_settled_after_a_restart(folder: Path) -> None:
    with EmbeddedBroker(folder) as broker:
        bench = Bench(broker)
        bench.fill(*TEN)
        one = bench.member("one")
        one.opened()
        one.settle((0, 1, ACCEPT), (3, 3, REJECT), (5, 5, RELEASE))
        bench.close()
    with EmbeddedBroker(folder) as broker:
        bench.broker, one = broker, None  # type: ignore[assignment]
        again = bench.member("again")
        assert again.opened() == [(2, 2, 2), (4, 9, 2)], "what it held was given back when the node stopped"
        bench.close()


def test_offsets_are_told_moved_and_forgotten(bench: Bench) -> None:
    bench.fill(*TEN)
    one = bench.member("one")
    one.opened()
    one.settle((0, 1, ACCEPT), (5, 5, ACCEPT))

    def told() -> list[tuple[int, int]]:
        answer = bench.client.call(90, 1, {"groups": [{"group_id": bench.group, "topics": None}]})
        return [(part.start_offset, part.lag) for topic in answer.groups[0].topics for part in topic.partitions]

    def altered() -> tuple[int, list[int]]:
        topics = [{"topic_name": bench.topic, "partitions": [{"partition_index": 0, "start_offset": 4}]}]
        answer = bench.client.call(91, 0, {"group_id": bench.group, "topics": topics})
        return answer.error_code, [part.error_code for topic in answer.responses for part in topic.partitions]

    assert told() == [(2, 7)]
    assert altered() == (68, []), "not while somebody reads"
    assert bench.client.call(42, 2, {"groups_names": [bench.group]}).results[0].error_code == 68
    one.fetch(epoch=-1)
    assert altered() == (0, [0])
    assert told() == [(4, 6)]
    assert one.opened(epoch=0) == [(4, 9, 1)]
    one.fetch(epoch=-1)
    forgotten = bench.client.call(92, 0, {"group_id": bench.group, "topics": [{"topic_name": bench.topic}]})
    assert forgotten.responses[0].error_code == 0
    assert told() == []
    assert one.opened(epoch=0) == [(0, 9, 1)]
    one.fetch(epoch=-1)
    assert bench.client.call(42, 2, {"groups_names": [bench.group]}).results[0].error_code == 0
    assert told() == []
