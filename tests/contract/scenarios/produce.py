"""Produce: what is taken, what is refused and how."""

from tests.contract import batches
from tests.contract.batches import NOW, batch
from tests.contract.raw import Disconnected
from tests.contract.session import LATEST, Session, in_every_version


@in_every_version("produce")
def records_are_taken(s: Session) -> None:
    topic = s.topic(partitions=2)
    first = s.produce(topic, batch([(b"a", b"1"), (b"b", b"2")]), version=s.version)
    assert (first["error_code"], first["base_offset"]) == ("none", 0)
    assert s.produce(topic, version=s.version)["base_offset"] == 2
    assert s.produce(topic, partition=1, version=s.version)["base_offset"] == 0
    s.fetch(topic)


@in_every_version("produce")
def a_topic_that_is_not_there_is_unknown(s: Session) -> None:
    s.produce(s.name("nowhere"), version=s.version)


@in_every_version("produce")
def a_partition_out_of_range_is_unknown(s: Session) -> None:
    topic = s.topic(partitions=2)
    for index in (2, -1, 2**31 - 1):
        s.produce(topic, partition=index, version=s.version)


@in_every_version("produce")
def a_wrong_checksum_is_refused(s: Session) -> None:
    topic = s.topic()
    s.produce(topic, batch(crc=12345), version=s.version)
    s.list_offset(topic, LATEST)


def acks_that_do_not_exist_are_refused(s: Session) -> None:
    topic = s.topic()
    for acks in (2, -2, 100):
        s.produce(topic, acks=acks)


def acks_of_the_leader_are_enough(s: Session) -> None:
    topic = s.topic()
    assert s.produce(topic, acks=1)["error_code"] == "none"
    s.fetch(topic)


def without_acks_nothing_is_answered(s: Session) -> None:
    topic = s.topic()
    s.connection.send("produce", 9, **s.produce_body(topic, batch(), acks=0))
    s.call("find_coordinator", 0, key="next")
    s.fetch(topic, max_wait=5_000)


def an_old_magic_is_refused(s: Session) -> None:
    topic = s.topic()
    for magic in (0, 1, 3, -1):
        s.produce(topic, batch(magic=magic))
    s.list_offset(topic, LATEST)


def several_batches_in_one_payload_are_refused(s: Session) -> None:
    topic = s.topic()
    s.produce(topic, batch() + batch())
    s.list_offset(topic, LATEST)


def an_empty_payload_is_refused(s: Session) -> None:
    topic = s.topic()
    s.produce(topic, b"")


def bytes_that_are_no_batch_are_refused(s: Session) -> None:
    topic = s.topic()
    s.produce(topic, b"\x01" * 40)
    s.produce(topic, batch()[:-3])
    s.list_offset(topic, LATEST)


def bytes_after_the_batch_are_looked_at(s: Session) -> None:
    topic = s.topic()
    s.produce(topic, batch() + b"\0" * 5)
    s.list_offset(topic, LATEST)


def a_batch_without_records_is_refused(s: Session) -> None:
    topic = s.topic()
    s.produce(topic, batch([], count=0, last_offset_delta=-1))
    s.produce(topic, batch([], count=0, last_offset_delta=0))
    s.produce(topic, batch(count=2))
    s.produce(topic, batch(last_offset_delta=7))
    s.produce(topic, batch(count=0))
    s.list_offset(topic, LATEST)


def a_batch_larger_than_the_topic_allows_is_refused(s: Session) -> None:
    topic = s.topic(max_message_bytes="1000")
    for size in (800, 900, 930, 960, 1000, 5000):
        s.produce(topic, batch([(None, b"x" * size)]))
    s.list_offset(topic, LATEST)


def the_limit_is_on_the_bytes_of_the_batch(s: Session) -> None:
    topic = s.topic(max_message_bytes="1000")
    room = 1000 - len(batch([(None, b"x" * 500)])) + 500
    for size in (room, room + 1):
        s.produce(topic, batch([(None, b"x" * size)]))
    s.produce(topic, batch([(None, b"x" * 100_000)], codec="gzip"))


def a_control_batch_from_a_client_is_refused(s: Session) -> None:
    topic = s.topic()
    s.produce(topic, batch(attributes=0x20))
    s.list_offset(topic, LATEST)


def a_transactional_batch_without_a_producer_is_refused(s: Session) -> None:
    topic = s.topic()
    s.produce(topic, batch(attributes=0x10))
    s.list_offset(topic, LATEST)


def attributes_that_are_not_used_are_kept(s: Session) -> None:
    topic = s.topic()
    s.produce(topic, batch(attributes=0x80))
    s.fetch(topic)


def a_codec_that_does_not_exist_is_refused(s: Session) -> None:
    topic = s.topic()
    for codec in (5, 6, 7):
        s.produce(topic, batch(attributes=codec))
    s.list_offset(topic, LATEST)


def records_that_do_not_fit_their_batch_are_refused(s: Session) -> None:
    topic = s.topic()
    good = batches.record(0, b"k", b"v")
    s.produce(topic, batch(body=good + b"\x00"))
    s.produce(topic, batch(body=good[:-2]))
    s.produce(topic, batch(body=b"\xff\xff\xff\xff\x0f" + good))
    s.produce(topic, batch(body=batches.record(3, b"k", b"v")))
    s.list_offset(topic, LATEST)


def compressed_records_that_are_garbage(s: Session) -> None:
    topic = s.topic()
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        s.produce(topic, batch(codec=codec, body=b"this is not compressed at all"))
    s.list_offset(topic, LATEST)


def every_codec_is_kept_byte_for_byte(s: Session) -> None:
    topic = s.topic()
    for codec in batches.CODECS:
        s.produce(topic, batch([(b"key", b"value" * 100)] * 20, codec=codec, headers=[("h", b"1"), ("n", None)]))
    s.fetch(topic)


def zstd_needs_produce_seven(s: Session) -> None:
    topic = s.topic()
    for version in (3, 6, 7):
        s.produce(topic, batch(codec="zstd"), version=version)
    s.fetch(topic, version=9)
    s.fetch(topic, version=10)


def the_offset_and_epoch_that_a_client_sends_are_replaced(s: Session) -> None:
    topic = s.topic()
    s.produce(topic, batch(base_offset=77, leader_epoch=5))
    s.produce(topic, batch(base_offset=-3, leader_epoch=-1))
    s.fetch(topic)


def a_null_key_on_a_compacted_topic_is_refused(s: Session) -> None:
    topic = s.topic(cleanup_policy="compact")
    s.produce(topic, batch([(None, b"v")]))
    s.produce(topic, batch([(b"k", b"v"), (None, b"v"), (b"k", None), (None, None)]))
    s.produce(topic, batch([(b"k", b"v")]))
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        s.produce(topic, batch([(b"k", b"v"), (None, b"v")], codec=codec))
        s.produce(topic, batch([(b"k", b"v"), (b"l", b"v")], codec=codec))
    s.list_offset(topic, LATEST)


def a_null_key_is_fine_when_old_records_are_also_deleted(s: Session) -> None:
    topic = s.topic(cleanup_policy="compact,delete")
    s.produce(topic, batch([(None, b"v")]))


def a_timestamp_too_far_ahead_is_refused(s: Session) -> None:
    topic = s.topic()
    s.produce(topic, batch(timestamp=32_503_680_000_000))
    s.produce(topic, batch([(b"k", b"1"), (b"k", b"2")], timestamp=NOW, timestamp_step=10**14))
    s.list_offset(topic, LATEST)


def a_timestamp_too_old_is_refused_where_the_topic_says_so(s: Session) -> None:
    topic = s.topic(message_timestamp_before_max_ms="3600000")
    s.produce(topic, batch(timestamp=NOW - 10**10))
    s.produce(topic, batch(timestamp=-1))
    s.list_offset(topic, LATEST)


def a_record_without_a_timestamp_is_taken(s: Session) -> None:
    topic = s.topic()
    s.produce(topic, batch(timestamp=-1))
    s.produce(topic, batch(timestamp=0))
    s.fetch(topic)


def a_max_timestamp_that_lies_is_not_corrected(s: Session) -> None:
    topic = s.topic()
    s.produce(topic, batch(max_timestamp=NOW + 5000))
    s.fetch(topic)


def append_time_topics_say_when(s: Session) -> None:
    topic = s.topic(message_timestamp_type="LogAppendTime")
    answer = s.ask("produce", 9, **s.produce_body(topic, batch([(b"k", b"v")] * 3, timestamp_step=5)))
    part = answer["responses"][0]["partition_responses"][0]
    found = s.ask("fetch", 12, **s.fetch_body({topic: {0: 0}}))["responses"][0]["partitions"][0]
    (head,) = batches.headers_of(found["records"])
    s.note("says the time it was appended", part["log_append_time"] == head["max_timestamp"] > NOW)
    s.note("batch", {key: head[key] for key in ("attributes", "base_timestamp", "count", "last_offset_delta", "body")})


def append_time_takes_any_timestamp(s: Session) -> None:
    topic = s.topic(message_timestamp_type="LogAppendTime")
    for timestamp in (-1, 0, 32_503_680_000_000):
        answer = s.ask("produce", 9, **s.produce_body(topic, batch(timestamp=timestamp)))
        s.note("error", answer["responses"][0]["partition_responses"][0]["error_code"])


def some_partitions_of_a_request_may_fail(s: Session) -> None:
    topic, other = s.topic("a", partitions=2), s.topic("b", max_message_bytes="500")
    s.call(
        "produce",
        9,
        acks=-1,
        timeout=1000,
        topic_data=[
            {
                "name": topic.name,
                "partition_data": [
                    {"index": 0, "records": batch()},
                    {"index": 1, "records": batch(crc=1)},
                    {"index": 9, "records": batch()},
                ],
            },
            {"name": other.name, "partition_data": [{"index": 0, "records": batch([(b"k", b"v" * 1000)])}]},
            {"name": s.name("nowhere"), "partition_data": [{"index": 0, "records": batch()}]},
        ],
    )


def names_that_cannot_be_topics(s: Session) -> None:
    for name in ("", ".", "..", "a/b", "a b", "é", "x" * 250):
        s.produce(name, version=9)


def a_request_without_topics_is_answered(s: Session) -> None:
    for acks in (-1, 1):
        s.call("produce", 9, acks=acks, timeout=1000, topic_data=[])


def internal_topics_take_no_records_from_clients(s: Session) -> None:
    s.until(lambda: s.ask("find_coordinator", 4, key_type=0, coordinator_keys=["g"])["coordinators"][0]["node_id"] == 1)
    s.until(lambda: s.ready("__consumer_offsets", 1))
    s.produce("__consumer_offsets", version=9)


def a_client_that_goes_away_without_acks_disturbs_nobody(s: Session) -> None:
    topic = s.topic()
    connection = s.connect()
    connection.send("produce", 9, **s.produce_body(topic, batch(crc=1), acks=0))
    try:
        connection.receive_frame()
    except Disconnected:
        s.note("connection", "closed")
    s.list_offset(topic, LATEST)
