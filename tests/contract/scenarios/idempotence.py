"""Idempotent producers: sequences, epochs and duplicates."""

from tests.contract.batches import batch
from tests.contract.session import LATEST, Session, in_every_version


@in_every_version("init_producer_id")
def a_producer_gets_an_id(s: Session) -> None:
    for _ in range(2):
        s.call(
            "init_producer_id",
            s.version,
            transactional_id=None,
            transaction_timeout=60_000,
            producer_id=-1,
            producer_epoch=-1,
        )


def an_id_is_never_given_twice(s: Session) -> None:
    given = [s.producer()[0] for _ in range(50)]
    s.note("all different", len(set(given)) == 50)


def a_producer_that_names_its_old_id_without_transactions(s: Session) -> None:
    pid, epoch = s.producer()
    for body in ((pid, epoch), (pid, 5), (-1, 0), (7, -1)):
        s.call(
            "init_producer_id",
            4,
            transactional_id=None,
            transaction_timeout=60_000,
            producer_id=body[0],
            producer_epoch=body[1],
        )


def sequences_in_order_are_taken(s: Session) -> None:
    topic = s.topic()
    pid, epoch = s.producer()
    for sequence in (0, 1, 2):
        s.produce(topic, batch(producer_id=pid, producer_epoch=epoch, sequence=sequence))
    s.produce(topic, batch([(b"k", b"v")] * 5, producer_id=pid, producer_epoch=epoch, sequence=3))
    s.produce(topic, batch(producer_id=pid, producer_epoch=epoch, sequence=8))
    s.fetch(topic)


def a_duplicate_gets_the_first_offset_again(s: Session) -> None:
    topic = s.topic()
    pid, epoch = s.producer()
    for sequence in range(5):
        s.produce(topic, batch(producer_id=pid, producer_epoch=epoch, sequence=sequence))
    for sequence in range(5):
        answer = s.produce(topic, batch(producer_id=pid, producer_epoch=epoch, sequence=sequence))
        assert answer["base_offset"] == sequence
    s.list_offset(topic, LATEST)


def a_duplicate_older_than_the_last_five_batches(s: Session) -> None:
    topic = s.topic()
    pid, epoch = s.producer()
    for sequence in range(8):
        s.fill(topic, batch(producer_id=pid, producer_epoch=epoch, sequence=sequence))
    for sequence in range(4):
        s.produce(topic, batch(producer_id=pid, producer_epoch=epoch, sequence=sequence))
    s.list_offset(topic, LATEST)


def a_duplicate_of_another_size(s: Session) -> None:
    topic = s.topic()
    pid, epoch = s.producer()
    s.fill(topic, batch([(b"k", b"v")] * 4, producer_id=pid, producer_epoch=epoch, sequence=0))
    s.produce(topic, batch([(b"k", b"v")] * 2, producer_id=pid, producer_epoch=epoch, sequence=0))
    s.produce(topic, batch([(b"k", b"v")] * 6, producer_id=pid, producer_epoch=epoch, sequence=0))
    s.produce(topic, batch([(b"k", b"v")] * 2, producer_id=pid, producer_epoch=epoch, sequence=2))
    s.list_offset(topic, LATEST)


def a_gap_is_out_of_order(s: Session) -> None:
    topic = s.topic()
    pid, epoch = s.producer()
    s.produce(topic, batch(producer_id=pid, producer_epoch=epoch, sequence=0))
    for sequence in (2, 100, 2**31 - 1):
        s.produce(topic, batch(producer_id=pid, producer_epoch=epoch, sequence=sequence))
    s.produce(topic, batch(producer_id=pid, producer_epoch=epoch, sequence=1))


def a_new_producer_that_does_not_start_at_zero(s: Session) -> None:
    topic = s.topic()
    pid, epoch = s.producer()
    s.produce(topic, batch(producer_id=pid, producer_epoch=epoch, sequence=3))
    s.produce(topic, batch(producer_id=pid, producer_epoch=epoch, sequence=4))
    s.produce(topic, batch(producer_id=pid, producer_epoch=epoch, sequence=0))


def an_older_epoch_is_fenced(s: Session) -> None:
    topic = s.topic()
    pid, _ = s.producer()
    s.produce(topic, batch(producer_id=pid, producer_epoch=3, sequence=0))
    s.produce(topic, batch(producer_id=pid, producer_epoch=2, sequence=1))
    s.produce(topic, batch(producer_id=pid, producer_epoch=4, sequence=1))
    s.produce(topic, batch(producer_id=pid, producer_epoch=4, sequence=0))
    s.produce(topic, batch(producer_id=pid, producer_epoch=3, sequence=1))
    s.fetch(topic)


def sequences_wrap_around(s: Session) -> None:
    topic = s.topic()
    pid, _ = s.producer()
    last = 2**31 - 1
    s.produce(topic, batch(producer_id=pid, producer_epoch=0, sequence=last - 1))
    s.produce(topic, batch([(b"k", b"v")] * 3, producer_id=pid, producer_epoch=0, sequence=last))
    s.produce(topic, batch(producer_id=pid, producer_epoch=0, sequence=2))


def sequences_that_make_no_sense(s: Session) -> None:
    topic = s.topic()
    pid, epoch = s.producer()
    s.produce(topic, batch(producer_id=pid, producer_epoch=epoch, sequence=-1))
    s.produce(topic, batch(producer_id=pid, producer_epoch=-1, sequence=0))
    s.produce(topic, batch(producer_id=-1, producer_epoch=epoch, sequence=0))
    s.produce(topic, batch(producer_id=-5, producer_epoch=0, sequence=0))
    s.produce(topic, batch(producer_id=pid, producer_epoch=epoch, sequence=-7))
    s.list_offset(topic, LATEST)


def an_id_that_nobody_gave_out(s: Session) -> None:
    topic = s.topic()
    s.produce(topic, batch(producer_id=987_654_321_000, producer_epoch=0, sequence=0))
    s.produce(topic, batch(producer_id=987_654_321_001, producer_epoch=0, sequence=5))


def sequences_are_kept_per_partition(s: Session) -> None:
    topic = s.topic(partitions=2)
    pid, epoch = s.producer()
    for index in (0, 1):
        s.produce(topic, batch(producer_id=pid, producer_epoch=epoch, sequence=0), partition=index)
        s.produce(topic, batch(producer_id=pid, producer_epoch=epoch, sequence=2), partition=index)


def deleting_records_keeps_the_sequence(s: Session) -> None:
    topic = s.topic()
    pid, epoch = s.producer()
    s.fill(topic, *(batch(producer_id=pid, producer_epoch=epoch, sequence=n) for n in range(3)))
    s.call(
        "delete_records",
        timeout=5000,
        topics=[{"name": topic.name, "partitions": [{"partition_index": 0, "offset": 3}]}],
    )
    s.produce(topic, batch(producer_id=pid, producer_epoch=epoch, sequence=3))
    s.produce(topic, batch(producer_id=pid, producer_epoch=epoch, sequence=2))
