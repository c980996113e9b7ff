"""The records of the state topic: what is written is read back, also what Kafka wrote, and damage is told."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.transactions.records import Phase, Transaction, TransactionChange, decode, encode
from headrace.errors import CorruptMessage

I64 = st.integers(-1, 2**63 - 1)
EPOCHS = st.integers(-1, 2**15 - 1)
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)
TRANSACTIONS = st.builds(
    Transaction,
    producer_id=I64,
    epoch=EPOCHS,
    timeout_ms=st.integers(0, 2**31 - 1),
    phase=st.sampled_from(Phase),
    partitions=st.frozensets(st.tuples(NAMES, st.integers(0, 2**31 - 1)), max_size=8),
    updated_ms=I64,
    started_ms=I64,
    previous_producer_id=I64,
    next_producer_id=I64,
    last_epoch=EPOCHS,
    version=st.sampled_from([0, 1, 2]),
)


@given(NAMES, st.none() | TRANSACTIONS)
def test_a_change_is_read_as_it_was_written(name: str, value: Transaction | None) -> None:
    change = TransactionChange(name, value)
    assert decode(*encode(change)) == change


def test_a_record_has_the_bytes_that_kafka_writes() -> None:
    value = Transaction(
        producer_id=9,
        epoch=3,
        timeout_ms=60_000,
        phase=Phase.ONGOING,
        partitions=frozenset({("t", 1), ("t", 0), ("u", 2)}),
        updated_ms=20,
        started_ms=10,
        previous_producer_id=9,
        version=2,
    )
    key, data = encode(TransactionChange("id", value))
    assert key == b"\0\0" + b"\0\2id"
    assert data == b"".join(
        (
            struct.pack(">hqhib", 1, 9, 3, 60_000, 1),
            b"\x03" + b"\x02t\x03" + struct.pack(">ii", 0, 1) + b"\0" + b"\x02u\x02" + struct.pack(">i", 2) + b"\0",
            struct.pack(">qq", 20, 10),
            b"\x02" + b"\0\x08" + struct.pack(">q", 9) + b"\2\2" + struct.pack(">h", 2),
        )
    )


def test_records_of_the_first_version_are_read() -> None:
    data = struct.pack(">hqhib", 0, 9, 3, 60_000, 4) + struct.pack(">i", 1) + b"\0\1t"
    data += struct.pack(">ii", 1, 7) + struct.pack(">qq", 20, 10)
    found = decode(b"\0\0\0\2id", data)
    assert found is not None
    assert found.value == Transaction(9, 3, 60_000, Phase.COMPLETE_COMMIT, frozenset({("t", 7)}), 20, 10)


def test_null_partitions_are_none() -> None:
    data = struct.pack(">hqhib", 1, 9, 3, 60_000, 0) + b"\0" + struct.pack(">qq", 20, -1) + b"\0"
    found = decode(b"\0\0\0\2id", data)
    assert found is not None
    assert found.value is not None
    assert found.value.partitions == frozenset()


def test_keys_of_another_kind_are_left_alone() -> None:
    assert decode(b"\0\5anything", b"") is None


@given(NAMES, TRANSACTIONS, st.data())
def test_a_record_that_is_cut_is_damaged(name: str, value: Transaction, data: st.DataObject) -> None:
    key, whole = encode(TransactionChange(name, value))
    assert whole is not None
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(CorruptMessage):
        decode(key, whole[:cut])


@given(st.binary(max_size=60))
def test_any_bytes_are_a_record_or_damaged(data: bytes) -> None:
    try:
        decode(b"\0\0\0\1x", data)
        decode(data, None)
    except CorruptMessage:
        pass
