"""The acknowledgements of one request: checked and taken partition by partition, and done when all are on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.broker import error_codes
from headrace.broker.refused import Refused, code_of
from headrace.broker.shares.sessions import Place
from headrace.broker.shares.window import Ack, AckBatch, AckRefused
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.broker.shares.coordinator import ShareCoordinator

__all__ = ["Acknowledging", "Outcome"]

_ALL_TYPES = bytes(Ack)
_WITHOUT_RENEW = bytes(kind for kind in Ack if kind is not Ack.RENEW)


class Outcome(NamedTuple):
    """How it went for one partition."""

    code: int = error_codes.NONE
    message: str | None = None


class Acknowledging:
    """``outcomes`` has every partition that was named; they count when ``pending`` is 0, which ``on_done`` tells."""

    def __init__(self, shares: ShareCoordinator, group: str, member: str, renews: bool) -> None:
        self.outcomes: dict[Place, Outcome] = {}
        self.pending = 0
        self.on_done: Callable[[], None] | None = None
        self._shares = shares
        self._group = group
        self._member = member
        self._known = _ALL_TYPES if renews else _WITHOUT_RENEW

    @property
    def failed(self) -> bool:
        """Whether something was refused."""
        return any(outcome.code for outcome in self.outcomes.values())

    def take(self, place: Place, batches: Sequence[AckBatch]) -> None:
        """Take what a member says of one partition."""
        self.outcomes[place] = Outcome()
        try:
            share = self._shares.find(self._group, *place)
            if not _are_valid(batches, self._known):
                raise Refused(error_codes.INVALID_REQUEST, "acknowledgements that are out of order or of unknown types")
            self.pending += 1
            try:
                self._shares.acknowledge(share, self._member, batches, lambda error: self._stored(place, error))
            except AckRefused as refused:
                self.pending -= 1
                self.outcomes[place] = Outcome(refused.code, str(refused))
        except HeadraceError as error:
            self.outcomes[place] = Outcome(code_of(error), str(error))

    def _stored(self, place: Place, error: HeadraceError | None) -> None:
        if error is not None:
            self.outcomes[place] = Outcome(code_of(error), str(error))
        self.pending -= 1
        if not self.pending and self.on_done is not None:
            self.on_done()


def _are_valid(batches: Sequence[AckBatch], known: bytes) -> bool:
    after = -1
    for first, last, types in batches:
        if first <= after or last < first or len(types) not in (1, last - first + 1) or types.strip(known):
            return False
        after = last
    return True
