"""What the handlers of transactions share: which code an error becomes."""

from __future__ import annotations

from headrace.broker import error_codes
from headrace.broker.refused import code_of
from headrace.errors import HeadraceError, StorageError

__all__ = ["failure_code"]


def failure_code(error: HeadraceError, *, knows_fenced: bool) -> int:
    """The code for a client; one that does not know PRODUCER_FENCED is told of an invalid epoch.

    When it is the disk, the code makes the client look for the coordinator again and retry.
    """
    if isinstance(error, StorageError):
        return error_codes.COORDINATOR_NOT_AVAILABLE
    code = code_of(error)
    if code == error_codes.PRODUCER_FENCED and not knows_fenced:
        return error_codes.INVALID_PRODUCER_EPOCH
    return code
