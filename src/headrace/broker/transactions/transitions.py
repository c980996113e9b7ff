"""What becomes of a transactional id: pure decisions, with the time passed in.

::

                 add partitions             end (commit)                   markers written
    Empty ────────────────────►  Ongoing  ──────────────►  PrepareCommit ─────────────────►  CompleteCommit
      ▲    ▲                        │ end (abort), too slow, another producer took the id         │
      │    └─ a new producer        └────────────────────►  PrepareAbort  ────────────────►  CompleteAbort
      └────────────────────────────────── a new producer ──────────────────────────────────────── │
                                                   add partitions: Ongoing again  ◄───────────────┘

A function returns the new state, or the very object that it was given if nothing changes, or raises ``Refused``. Once a
Prepare state is durable the outcome is decided, and nothing but completing it can follow.

*Version 2* clients (KIP-890) take a new epoch at each end. A request that comes late, or again, then has an epoch of
its own transaction, and cannot touch a later one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from headrace.broker import error_codes
from headrace.broker.markers import MAX_EPOCH
from headrace.broker.refused import Refused
from headrace.broker.transactions.records import NO_EPOCH, NO_PRODUCER, Phase, Place, Transaction

__all__ = ["VERSION_2", "add_partitions", "complete", "end", "ensure_current", "fence", "initialise", "is_expired"]

VERSION_2: Final = 2
"""The transaction version in which every end bumps the epoch."""

NewProducerId = Callable[[], int]


def initialise(
    current: Transaction | None,
    timeout_ms: int,
    expected: tuple[int, int] | None,
    now_ms: int,
    new_producer_id: NewProducerId,
) -> Transaction:
    """A producer takes the id: the epoch after all earlier ones. An open transaction is to be aborted first.

    ``expected`` is the producer id and epoch that the client had until now: it goes on if nobody else took over.
    """
    if current is None:
        return Transaction(new_producer_id(), 0, timeout_ms, Phase.EMPTY, frozenset(), now_ms)
    if expected is not None and not _may_go_on(current, *expected):
        raise _fenced(current, expected[1])
    if current.phase.is_ending:
        raise _busy(current)
    if current.phase is Phase.ONGOING:
        if expected is not None and expected[1] != current.epoch:
            raise _fenced(current, expected[1])
        return fence(current, now_ms)
    fresh = replace(
        current,
        phase=Phase.EMPTY,
        timeout_ms=timeout_ms,
        updated_ms=now_ms,
        started_ms=-1,
        previous_producer_id=current.producer_id,
        last_epoch=NO_EPOCH if expected is None else current.epoch,
    )
    if expected is not None and expected[1] != current.epoch:
        return replace(fresh, last_epoch=current.last_epoch, previous_producer_id=current.previous_producer_id)
    if _is_exhausted(current.epoch):
        return replace(fresh, producer_id=new_producer_id(), epoch=0)
    return replace(fresh, epoch=current.epoch + 1)


def _may_go_on(current: Transaction, producer_id: int, epoch: int) -> bool:
    """Whether a client with this id and epoch is the present producer, or one whose last answer got lost."""
    if producer_id == current.producer_id:
        return epoch in (current.epoch, current.last_epoch) and epoch != NO_EPOCH
    return producer_id == current.previous_producer_id and _is_exhausted(epoch) and epoch == current.last_epoch


def ensure_current(current: Transaction | None, producer_id: int, epoch: int) -> Transaction:
    """Raise unless this is the id's present producer, and its transaction is not just ending."""
    if current is None or current.producer_id != producer_id:
        raise Refused(error_codes.INVALID_PRODUCER_ID_MAPPING, "the transactional id has another producer id")
    if current.epoch != epoch:
        raise _fenced(current, epoch)
    if current.phase.is_ending:
        raise _busy(current)
    return current


def add_partitions(
    current: Transaction | None, producer_id: int, epoch: int, places: Iterable[Place], version: int, now_ms: int
) -> Transaction:
    """Partitions become part of the transaction; the first ones begin it."""
    current = ensure_current(current, producer_id, epoch)
    added = frozenset(places)
    if current.phase is Phase.ONGOING:
        if added <= current.partitions:
            return current
        return replace(current, partitions=current.partitions | added, updated_ms=now_ms, version=version)
    return replace(
        current,
        phase=Phase.ONGOING,
        partitions=added,
        updated_ms=now_ms,
        started_ms=now_ms,
        previous_producer_id=current.producer_id,
        version=version,
    )


def end(
    current: Transaction | None,
    producer_id: int,
    epoch: int,
    *,
    commit: bool,
    version: int,
    now_ms: int,
    new_producer_id: NewProducerId,
) -> Transaction:
    """A client ends its transaction. The same object if that has been done and this is the same request again."""
    if current is None:
        raise Refused(error_codes.INVALID_PRODUCER_ID_MAPPING, "no producer has this transactional id")
    if version >= VERSION_2:
        return _end_2(current, producer_id, epoch, commit, now_ms, new_producer_id)
    if current.producer_id != producer_id:
        raise Refused(error_codes.INVALID_PRODUCER_ID_MAPPING, "the transactional id has another producer id")
    if current.epoch != epoch:
        raise _fenced(current, epoch)
    if current.phase is Phase.ONGOING:
        return _ending(current, commit, now_ms)
    if current.phase is (Phase.PREPARE_COMMIT if commit else Phase.PREPARE_ABORT):
        raise _busy(current)
    if current.phase is (Phase.COMPLETE_COMMIT if commit else Phase.COMPLETE_ABORT):
        return current
    raise _not_now(current, commit)


def _end_2(
    current: Transaction, producer_id: int, epoch: int, commit: bool, now_ms: int, new_producer_id: NewProducerId
) -> Transaction:
    overflown = producer_id == current.previous_producer_id and current.epoch == 0 and epoch == MAX_EPOCH - 1
    again = overflown or current.epoch == epoch + 1
    if current.producer_id != producer_id and not overflown:
        raise Refused(error_codes.INVALID_PRODUCER_ID_MAPPING, "the transactional id has another producer id")
    known = again if current.phase.is_ending else current.epoch == epoch
    if current.phase in (Phase.COMPLETE_COMMIT, Phase.COMPLETE_ABORT):
        known = known or again
    if not known or current.epoch == MAX_EPOCH:
        raise _fenced(current, epoch)
    if current.phase.is_ending:
        if commit == (current.phase is Phase.PREPARE_COMMIT):
            raise _busy(current)
        raise _not_now(current, commit)
    if again and current.epoch != epoch:
        if current.phase is (Phase.COMPLETE_COMMIT if commit else Phase.COMPLETE_ABORT):
            return current
        raise _not_now(current, commit)
    if current.phase is not Phase.ONGOING:
        if commit:
            raise _not_now(current, commit)
        current = replace(current, started_ms=now_ms)
    next_producer_id = new_producer_id() if _is_exhausted(current.epoch) else NO_PRODUCER
    return replace(
        _ending(current, commit, now_ms),
        epoch=current.epoch + 1,
        last_epoch=current.epoch,
        next_producer_id=next_producer_id,
        version=VERSION_2,
    )


def fence(current: Transaction, now_ms: int, places: Iterable[Place] = ()) -> Transaction:
    """The transaction is to be aborted, and its producer may do nothing more with its epoch."""
    started_ms = current.started_ms if current.phase is Phase.ONGOING else now_ms
    return replace(
        current,
        phase=Phase.PREPARE_ABORT,
        epoch=min(current.epoch + 1, MAX_EPOCH),
        last_epoch=NO_EPOCH,
        partitions=current.partitions | frozenset(places),
        updated_ms=now_ms,
        started_ms=started_ms,
        previous_producer_id=current.producer_id,
    )


def complete(current: Transaction, now_ms: int) -> Transaction:
    """All markers are written: the transaction has ended."""
    commit = current.phase is Phase.PREPARE_COMMIT
    rotated = current.next_producer_id != NO_PRODUCER
    return replace(
        current,
        phase=Phase.COMPLETE_COMMIT if commit else Phase.COMPLETE_ABORT,
        producer_id=current.next_producer_id if rotated else current.producer_id,
        epoch=0 if rotated else current.epoch,
        previous_producer_id=current.producer_id,
        next_producer_id=NO_PRODUCER,
        partitions=frozenset(),
        updated_ms=now_ms,
    )


def is_expired(current: Transaction, now_ms: int, expiration_ms: int) -> bool:
    """Whether nobody has used the id for so long that it may be forgotten."""
    if current.phase is Phase.ONGOING or current.phase.is_ending:
        return False
    return current.updated_ms <= now_ms - expiration_ms


def _ending(current: Transaction, commit: bool, now_ms: int) -> Transaction:
    return replace(
        current,
        phase=Phase.PREPARE_COMMIT if commit else Phase.PREPARE_ABORT,
        updated_ms=now_ms,
        previous_producer_id=current.producer_id,
        version=0,
    )


def _is_exhausted(epoch: int) -> bool:
    return epoch >= MAX_EPOCH - 1


def _fenced(current: Transaction, epoch: int) -> Refused:
    return Refused(error_codes.PRODUCER_FENCED, f"the producer's epoch is {epoch}, the present one is {current.epoch}")


def _busy(current: Transaction) -> Refused:
    return Refused(error_codes.CONCURRENT_TRANSACTIONS, "the transaction before is still being completed")


def _not_now(current: Transaction, commit: bool) -> Refused:
    wanted = "commit" if commit else "abort"
    return Refused(error_codes.INVALID_TXN_STATE, f"cannot {wanted} a transaction that is {current.phase.label}")
