"""Transactions: records in many partitions, and offsets of groups, that become visible together or not at all."""

from headrace.broker.transactions.coordinator import TransactionCoordinator
from headrace.broker.transactions.settings import TransactionSettings

__all__ = ["TransactionCoordinator", "TransactionSettings"]
