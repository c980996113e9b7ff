"""Classic consumer groups: who reads what, and how far they have come."""

from headrace.broker.groups.coordinator import GroupCoordinator
from headrace.broker.groups.settings import GroupSettings

__all__ = ["GroupCoordinator", "GroupSettings"]
