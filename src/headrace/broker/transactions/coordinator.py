"""The transaction coordinator: all transactional ids of the node, their log, their markers and their clocks.

Handlers call it. The decisions are ``transitions``; here they are carried out. A transaction ends in two steps: the
decision (a Prepare record) is durable first, then markers are written to every partition of the transaction, and when
these are durable a Complete record follows. A crash in between is made good at the start: what is prepared is
completed. The client is answered at the end of it, so that it finds its transaction complete and its records readable.

A transaction that a partition has open and the state does not know (its record was lost with the power, before
anything was acknowledged) is aborted at the start, and its producer fenced.

Everything runs on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from headrace.broker import error_codes
from headrace.broker.groups.alarms import Timer, Timers
from headrace.broker.groups.coordinator import GroupCoordinator
from headrace.broker.groups.journal import OFFSETS_TOPIC
from headrace.broker.markers import MAX_EPOCH, marker
from headrace.broker.refused import Refused
from headrace.broker.transactions import transitions
from headrace.broker.transactions.journal import STATE_TOPIC, TransactionJournal
from headrace.broker.transactions.records import Phase, Place, Transaction, TransactionChange
from headrace.broker.transactions.settings import TransactionSettings
from headrace.clock import Clock
from headrace.errors import HeadraceError, UnknownTopic
from headrace.log.group_commit import GroupCommit
from headrace.log.partition import Origin, PartitionLog
from headrace.log.store import LogStore

__all__ = ["OFFSETS_PLACE", "Producer", "TransactionCoordinator"]

log = logging.getLogger(__name__)

OFFSETS_PLACE: Final[Place] = (OFFSETS_TOPIC, 0)
"""Where the offsets of groups are."""

_RETRY_SECONDS: Final = 1.0
_RETRY_MAX_SECONDS: Final = 60.0
_STALL_SECONDS: Final = 1.0
_TICK_SECONDS: Final = 0.001
_SETTLE_SECONDS: Final = 0.01
_MAX_ID: Final = 0x7FFF

Done = Callable[[HeadraceError | None], None]


class Producer(NamedTuple):
    """Who asks: a transactional id with the producer id and epoch that the client believes in."""

    transactional_id: str
    producer_id: int
    epoch: int


class TransactionCoordinator:
    """All that the transaction requests need; ``load`` it after the groups."""

    def __init__(
        self,
        store: LogStore,
        commit: GroupCommit,
        groups: GroupCoordinator,
        clock: Clock,
        timers: Timers,
        settings: TransactionSettings | None = None,
    ) -> None:
        self.settings = settings or TransactionSettings()
        self.journal = TransactionJournal(store, commit, self.settings)
        self._store = store
        self._commit = commit
        self._groups = groups
        self._clock = clock
        self._timers = timers
        self._written: dict[str, int] = {}
        """For each id, the end of its newest record in the log."""
        self._deadlines: dict[str, float] = {}
        self._begun_by: dict[str, int] = {}
        self._endings: dict[str, _Ending] = {}
        self._waker: tuple[float, Timer] | None = None
        self._expiry: Timer | None = None
        self._settling: Timer | None = None
        self._closed = False
        self.ended: Counter[str] = Counter()
        """How many transactions have ended, by outcome."""
        self.timed_out = 0

    # --- life ---

    def load(self) -> None:
        """Take up where the log says we were: end what was decided, abort what nobody knows, watch what is open."""
        self.journal.load()
        now_ms = self._clock.now_ms()
        transactions = dict(self.journal.latest.transactions)
        self._end_unknown(transactions)
        for transactional_id, transaction in transactions.items():
            if self.journal.latest.transactions[transactional_id] is not transaction:
                continue
            if transaction.phase.is_ending:
                self._write_markers(transactional_id, transaction, _ignore)
            elif transaction.phase is Phase.ONGOING:
                left_ms = transaction.started_ms + transaction.timeout_ms - now_ms
                self._watch(transactional_id, min(max(left_ms, 0), transaction.timeout_ms))
        self._schedule_expiry()

    def ensure_log(self) -> None:
        """Make ``__transaction_state`` if there is none."""
        self.journal.partition()

    def close(self) -> None:
        """Stop the clocks."""
        self._closed = True
        for timer in (self._expiry, self._settling, self._waker[1] if self._waker else None):
            if timer is not None:
                timer.cancel()
        for ending in list(self._endings.values()):
            ending.stop()

    # --- what clients ask ---

    async def initialise(
        self, transactional_id: str, timeout_ms: int, expected: tuple[int, int] | None
    ) -> tuple[int, int]:
        """InitProducerId: the producer id and epoch. Raises CONCURRENT_TRANSACTIONS while an earlier one is ended."""
        if not 0 < timeout_ms <= self.settings.max_timeout_ms:
            raise Refused(
                error_codes.INVALID_TRANSACTION_TIMEOUT,
                f"a transaction timeout of {timeout_ms} ms; transaction.max.timeout.ms is "
                f"{self.settings.max_timeout_ms}",
            )
        current = self._find(transactional_id)
        next_ = transitions.initialise(current, timeout_ms, expected, self._clock.now_ms(), self._store.new_producer_id)
        if next_.phase.is_ending:
            await self._end(transactional_id, next_)
            raise Refused(error_codes.CONCURRENT_TRANSACTIONS, "the transaction of the producer before was aborted")
        await self._store_change(transactional_id, next_)
        return next_.producer_id, next_.epoch

    async def add_partitions(
        self, producer: Producer, places: Iterable[Place], *, version: int, connection_id: int
    ) -> None:
        """AddPartitionsToTxn and AddOffsetsToTxn: durable when it returns."""
        self._add(producer, places, version, connection_id)
        await self.until_durable(producer.transactional_id)

    def verify_partition(self, producer: Producer, place: Place) -> bool:
        """Whether a partition is part of the producer's transaction. Raises if it has none or is not the producer."""
        current = self._find(producer.transactional_id)
        return place in transitions.ensure_current(current, producer.producer_id, producer.epoch).partitions

    def admit(self, producer: Producer, place: Place, *, implicit: bool) -> int:
        """A batch of a transaction is about to be appended: is it part of it? With ``implicit`` it becomes so.

        Returns the offset of the state topic that must be durable before the batch is acknowledged, or 0. Called for
        every transactional batch, so the usual case is two look-ups.
        """
        transactional_id, producer_id, epoch = producer
        current = self.journal.latest.transactions.get(transactional_id)
        if (
            current is None
            or current.phase is not Phase.ONGOING
            or place not in current.partitions
            or current.epoch != epoch
            or current.producer_id != producer_id
            or self.journal.partition().failed is not None
        ):
            self._ensure_trusted()
            if implicit:
                self._add(producer, (place,), transitions.VERSION_2, -1)
            elif not self.verify_partition(producer, place):
                raise Refused(error_codes.TRANSACTION_ABORTABLE, "the partition was not added to the transaction")
        return self._written.get(transactional_id, 0)

    def state_partition(self) -> PartitionLog:
        """Where the state is written."""
        return self.journal.partition()

    async def end(self, producer: Producer, *, commit: bool, version: int, connection_id: int) -> tuple[int, int]:
        """EndTxn: the producer id and epoch for the next transaction, once this one has ended everywhere.

        A client without an epoch per transaction that lost a connection with this request in it, and then ended the
        transaction and began another over a new connection, does not mean the new one: it is refused.
        """
        transactional_id = producer.transactional_id
        current = self._find(transactional_id)
        next_ = transitions.end(
            current,
            producer.producer_id,
            producer.epoch,
            commit=commit,
            version=version,
            now_ms=self._clock.now_ms(),
            new_producer_id=self._store.new_producer_id,
        )
        if next_ is current:
            return next_.producer_id, next_.epoch
        if version < transitions.VERSION_2 and connection_id < self._begun_by.get(transactional_id, -1):
            raise Refused(error_codes.INVALID_TXN_STATE, "a later connection has begun this transaction")
        await self._end(transactional_id, next_)
        ended = transitions.complete(next_, 0)
        return ended.producer_id, ended.epoch

    async def until_durable(self, transactional_id: str) -> None:
        """Return when all that was written of this id is on disk. Raises if it is not."""
        if self._written.get(transactional_id, 0) > self.journal.partition().synced_offset:
            await self.journal.settle()

    # --- what operators ask ---

    def describe(self, transactional_id: str) -> Transaction | None:
        """A transaction, as it is on disk."""
        self._ensure_readable(transactional_id)
        return self.journal.durable.transactions.get(transactional_id)

    def transactions(self) -> dict[str, Transaction]:
        """All of them, as they are on disk; only to look at."""
        return self.journal.durable.transactions

    def age_ms(self, transaction: Transaction) -> int:
        """How long ago it was begun; as Kafka has it, very long ago if there was none yet."""
        return self._clock.now_ms() - transaction.started_ms

    # --- what happens by itself ---

    def on_topic_deleted(self, name: str) -> None:
        """If the state is gone, nobody knows the open transactions any more: they are aborted."""
        if name == STATE_TOPIC:
            for ending in list(self._endings.values()):
                ending.stop()
            for volatile in (self._endings, self._written, self._deadlines, self._begun_by):
                volatile.clear()
            self.journal.reset()
            self.journal.damaged.clear()
            self.journal.lost_ids = False
            self._end_unknown({})

    def expire(self) -> None:
        """Forget ids that nobody has used for long."""
        now_ms = self._clock.now_ms()
        old = [
            transactional_id
            for transactional_id, transaction in self.journal.latest.transactions.items()
            if transitions.is_expired(transaction, now_ms, self.settings.id_expiration_ms)
        ]
        try:
            self.journal.write([TransactionChange(transactional_id, None) for transactional_id in old], _log_failure)
        except HeadraceError as error:
            _log_failure(error)
            return
        for transactional_id in old:
            self._forget(transactional_id)
            self._written.pop(transactional_id, None)

    def tick(self) -> None:
        """Abort what has been open for too long."""
        now = self._clock.monotonic()
        for transactional_id in [name for name, deadline in self._deadlines.items() if deadline <= now + _TICK_SECONDS]:
            current = self.journal.latest.transactions.get(transactional_id)
            del self._deadlines[transactional_id]
            if current is None or current.phase is not Phase.ONGOING:
                continue
            log.info("transaction of %r was open for more than %d ms: aborted", transactional_id, current.timeout_ms)
            try:
                self._begin_end(transactional_id, transitions.fence(current, self._clock.now_ms()), _log_failure)
                self.timed_out += 1
            except HeadraceError as error:
                _log_failure(error)
                self._deadlines[transactional_id] = now + _RETRY_MAX_SECONDS
        self._wake_in_time()

    # --- inside: writing ---

    def _find(self, transactional_id: str) -> Transaction | None:
        self._ensure_readable(transactional_id)
        return self.journal.latest.transactions.get(transactional_id)

    def _ensure_readable(self, transactional_id: str) -> None:
        if not transactional_id or len(transactional_id.encode()) > _MAX_ID:
            raise Refused(error_codes.INVALID_REQUEST, "a transactional id that is empty or too long")
        if transactional_id in self.journal.damaged:
            raise Refused(error_codes.UNKNOWN_SERVER_ERROR, "the state of this transactional id is damaged")

    def _ensure_trusted(self) -> None:
        """After a failed sync nobody knows which decisions are on disk, so nothing is added to a transaction."""
        failure = self.journal.partition().failure()
        if failure is not None:
            raise failure

    def _write(self, transactional_id: str, value: Transaction, done: Done, *, can_wait: bool = False) -> None:
        self.journal.write([TransactionChange(transactional_id, value)], done, can_wait=can_wait)
        self._written[transactional_id] = self.journal.partition().end_offset

    async def _store_change(self, transactional_id: str, value: Transaction) -> None:
        future = _Outcome()
        self._write(transactional_id, value, future.done)
        await future.future

    def _add(self, producer: Producer, places: Iterable[Place], version: int, connection_id: int) -> None:
        transactional_id, producer_id, epoch = producer
        current = self._find(transactional_id)
        next_ = transitions.add_partitions(current, producer_id, epoch, places, version, self._clock.now_ms())
        if next_ is current:
            return
        begins = current is not None and current.phase is not Phase.ONGOING
        self._write(transactional_id, next_, _ignore)
        if begins:
            self._begun_by[transactional_id] = connection_id
            self._watch(transactional_id, next_.timeout_ms)

    # --- inside: ending ---

    async def _end(self, transactional_id: str, prepared: Transaction) -> None:
        outcome = _Outcome()
        self._begin_end(transactional_id, prepared, outcome.done)
        await outcome.future

    def _begin_end(self, transactional_id: str, prepared: Transaction, done: Done) -> None:
        """Write the decision, and when it is durable the markers. Raises if the decision cannot be written."""

        def decided(error: HeadraceError | None) -> None:
            if error is None:
                self._write_markers(transactional_id, prepared, done)
            else:
                done(error)

        self._write(transactional_id, prepared, decided)
        self._forget(transactional_id)

    def _write_markers(self, transactional_id: str, prepared: Transaction, done: Done) -> None:
        """Carry out what is decided; ``done`` is called when that is complete, or is going to take longer."""
        ending = _Ending(self, transactional_id, prepared, done)
        self._endings[transactional_id] = ending
        ending.write()

    def write_marker(self, place: Place, prepared: Transaction, done: Done) -> None:
        """End a transaction in one partition; ``done`` when it is durable. A partition that is gone has ended, too."""
        commit = prepared.phase is Phase.PREPARE_COMMIT
        self._write_marker(place, prepared.producer_id, prepared.epoch, commit, done)

    def _write_marker(self, place: Place, producer_id: int, epoch: int, commit: bool, done: Done) -> None:
        try:
            if place == OFFSETS_PLACE:
                self._groups.end_transaction(producer_id, epoch, commit, done)
                return
            partition = self._store.partition(*place)
            batch = marker(
                producer_id,
                epoch,
                commit=commit,
                coordinator_epoch=self.journal.partition().leader_epoch,
                now_ms=self._clock.now_ms(),
            )
            info = partition.append(batch, acks_all=True, origin=Origin.COORDINATOR)
            self._commit.when_durable(partition, info.last_offset + 1, done)
        except HeadraceError as error:
            done(error)

    def finish(self, transactional_id: str, prepared: Transaction) -> None:
        """All markers are durable. Raises if that cannot be written.

        Nothing is lost with the Complete record (the markers would be written once more), so it gets durable with the
        next transaction's first record, or a little later by itself.
        """
        complete = transitions.complete(prepared, self._clock.now_ms())
        self._write(transactional_id, complete, _log_failure, can_wait=True)
        if self._settling is None:
            self._settling = self.call_later(_SETTLE_SECONDS, self._settle)
        del self._endings[transactional_id]
        self.ended["commit" if prepared.phase is Phase.PREPARE_COMMIT else "abort"] += 1

    def _settle(self) -> None:
        self._settling = None
        self._commit.request(self.journal.partition())

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer | None:
        """Call back, unless the node is going down."""
        return None if self._closed else self._timers.call_later(seconds, callback)

    def _forget(self, transactional_id: str) -> None:
        self._deadlines.pop(transactional_id, None)
        self._begun_by.pop(transactional_id, None)

    def _end_unknown(self, transactions: dict[str, Transaction]) -> None:
        """Abort what partitions have open and the state does not know."""
        by_producer = {transaction.producer_id: name for name, transaction in transactions.items()}
        if self.journal.damaged or self.journal.lost_ids:
            log.error("transactions that nobody knows are left open, because %s is damaged", STATE_TOPIC)
            return
        fenced: dict[str, set[Place]] = {}
        for topic in list(self._store.topics.values()):
            for partition in topic.partitions:
                place = (topic.name, partition.index)
                for producer_id, epoch in partition.producer_state.open_transactions():
                    name = by_producer.get(producer_id)
                    known = transactions[name] if name is not None else None
                    if known is not None and place in known.partitions:
                        continue
                    log.warning("%s has a transaction of producer %d that nobody knows: aborted", place, producer_id)
                    if name is None or known is None or known.phase.is_ending or epoch > known.epoch:
                        self._write_marker(place, producer_id, min(epoch + 1, MAX_EPOCH), False, _log_failure)
                    else:
                        fenced.setdefault(name, set()).add(place)
        for name, places in fenced.items():
            try:
                fence = transitions.fence(transactions[name], self._clock.now_ms(), places)
                self._begin_end(name, fence, _log_failure)
            except HeadraceError as error:
                _log_failure(error)

    # --- inside: time ---

    def _watch(self, transactional_id: str, timeout_ms: int) -> None:
        self._deadlines[transactional_id] = self._clock.monotonic() + timeout_ms / 1000
        self._wake_in_time()

    def _wake_in_time(self) -> None:
        """Have a timer at or before the first deadline."""
        if not self._deadlines or self._closed:
            return
        if self._waker is not None:
            newest = next(reversed(self._deadlines.values()))
            if self._waker[0] <= newest:
                return
            self._waker[1].cancel()
        due = min(self._deadlines.values())
        delay = max(due - self._clock.monotonic(), 0.0)
        self._waker = (due, self._timers.call_later(delay, self._wake))

    def _wake(self) -> None:
        late = self._waker is not None and self._clock.monotonic() - self._waker[0] > _STALL_SECONDS
        self._waker = None
        if late:
            # We were held up ourselves: what lies in the sockets is read before a transaction is called too slow.
            self._waker = (self._clock.monotonic(), self._timers.call_later(_STALL_SECONDS / 2, self._wake))
        else:
            self.tick()

    def _schedule_expiry(self) -> None:
        def expire() -> None:
            self.expire()
            self._schedule_expiry()

        if not self._closed:
            self._expiry = self._timers.call_later(self.settings.expiry_check_interval_ms / 1000, expire)


class _Ending:
    """One transaction on its way from Prepare to Complete: its markers, tried again until all are durable."""

    def __init__(
        self, coordinator: TransactionCoordinator, transactional_id: str, prepared: Transaction, done: Done
    ) -> None:
        self._coordinator = coordinator
        self._transactional_id = transactional_id
        self._prepared = prepared
        self._done = done
        self._missing = set(prepared.partitions)
        self._running = 0
        self._pause = _RETRY_SECONDS
        self._retry: Timer | None = None
        self._stopped = False

    def write(self) -> None:
        """Write the markers that are missing."""
        self._retry = None
        self._running = len(self._missing)
        if not self._running:
            self._finish()
            return
        for place in sorted(self._missing):
            self._coordinator.write_marker(place, self._prepared, lambda error, at=place: self._written(at, error))  # type: ignore[misc]

    def stop(self) -> None:
        """Do nothing more."""
        self._stopped = True
        if self._retry is not None:
            self._retry.cancel()

    def _written(self, place: Place, error: HeadraceError | None) -> None:
        self._running -= 1
        if error is None or isinstance(error, UnknownTopic):
            self._missing.discard(place)
        else:
            log.warning("transaction of %r: no marker in %s-%d yet: %s", self._transactional_id, *place, error)
        if self._running == 0 and not self._stopped:
            if self._missing:
                self._later()
            else:
                self._finish()

    def _finish(self) -> None:
        try:
            self._coordinator.finish(self._transactional_id, self._prepared)
        except HeadraceError as error:
            log.warning("transaction of %r cannot be completed yet: %s", self._transactional_id, error)
            self._later()
        else:
            self._answer()

    def _later(self) -> None:
        """The outcome is decided, so the client need not wait for it."""
        self._answer()
        self._retry = self._coordinator.call_later(self._pause, self.write)
        self._pause = min(self._pause * 2, _RETRY_MAX_SECONDS)

    def _answer(self) -> None:
        done, self._done = self._done, _ignore
        done(None)


class _Outcome:
    """A future for a callback. Who waits for it may have gone."""

    def __init__(self) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(self, error: HeadraceError | None) -> None:
        if not self.future.done():
            if error is None:
                self.future.set_result(None)
            else:
                self.future.set_exception(error)


def _ignore(error: HeadraceError | None) -> None:
    """Someone else is told."""


def _log_failure(error: HeadraceError | None) -> None:
    if error is not None:
        log.warning("the state of a transaction could not be written: %s", error)
