"""What is known of transactional ids: the fold of ``__transaction_state``."""

from __future__ import annotations

from headrace.broker.transactions.records import Transaction, TransactionChange

__all__ = ["TransactionState"]


class TransactionState:
    """Transactions by transactional id. ``apply`` is the same live and at replay."""

    __slots__ = ("transactions",)

    def __init__(self) -> None:
        self.transactions: dict[str, Transaction] = {}

    def apply(self, change: TransactionChange) -> None:
        """Take one change in."""
        if change.value is None:
            self.transactions.pop(change.transactional_id, None)
        else:
            self.transactions[change.transactional_id] = change.value

    def copy(self) -> TransactionState:
        """An independent copy."""
        twin = TransactionState()
        twin.transactions = dict(self.transactions)
        return twin

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TransactionState) and self.transactions == other.transactions
