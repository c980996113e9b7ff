"""The transactions' log: every change of a transactional id is a record of ``__transaction_state`` first."""

from __future__ import annotations

import logging

from headrace.broker.journal import Journal
from headrace.broker.transactions.records import TransactionChange, decode, decode_id, encode
from headrace.broker.transactions.settings import TransactionSettings
from headrace.broker.transactions.state import TransactionState
from headrace.errors import CorruptMessage
from headrace.log.batch import BatchHeader
from headrace.log.group_commit import GroupCommit
from headrace.log.store import LogStore

__all__ = ["STATE_TOPIC", "TransactionJournal"]

STATE_TOPIC = "__transaction_state"

log = logging.getLogger(__name__)


class TransactionJournal(Journal[TransactionChange, TransactionState]):
    """Writes changes of transactional ids and folds them.

    ``damaged`` has the ids whose newest record cannot be read: nobody may use them, because nobody knows what they
    have open. With ``lost_ids`` not even the id could be read.
    """

    topic = STATE_TOPIC

    def __init__(self, store: LogStore, commit: GroupCommit, settings: TransactionSettings) -> None:
        super().__init__(store, commit)
        self._settings = settings
        self.damaged: set[str] = set()
        self.lost_ids = False

    def new_state(self) -> TransactionState:
        """No ids."""
        return TransactionState()

    def segment_bytes(self) -> int:
        """As the operator has it."""
        return self._settings.state_topic_segment_bytes

    def encode(self, change: TransactionChange) -> tuple[bytes, bytes | None]:
        """The record of a change."""
        return encode(change)

    def decode(self, header: BatchHeader | None, key: bytes | None, value: bytes | None) -> TransactionChange | None:
        """The change of a record."""
        change = None if header is not None and header.is_control else decode(key, value)
        if change is not None:
            self.damaged.discard(change.transactional_id)
        return change

    def found_damaged(self, offset: int, key: bytes | None, error: CorruptMessage) -> None:
        """Remember whom it is about, and tell the operator; the record stays in the log."""
        try:
            transactional_id = decode_id(key)
        except CorruptMessage:
            transactional_id = None
        if transactional_id is None:
            self.lost_ids = True
        else:
            self.damaged.add(transactional_id)
        log.error("%s at offset %d is damaged, and its id is not served: %s", STATE_TOPIC, offset, error)
