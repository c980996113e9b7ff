"""Transaction markers: the control batches that end a producer's transaction in a partition.

::

    key    i16 version 0, i16 type: 0 abort, 1 commit
    value  i16 version 0, i32 coordinator epoch
"""

from __future__ import annotations

import struct
from typing import Final

from headrace import _kernel
from headrace.errors import CorruptMessage

__all__ = ["MAX_EPOCH", "is_commit", "marker"]

MAX_EPOCH: Final = 32_767
"""The last epoch of a producer id. Only markers have it: no client is given an epoch from which it cannot be fenced."""

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")


def marker(producer_id: int, epoch: int, *, commit: bool, coordinator_epoch: int, now_ms: int) -> bytearray:
    """The batch that ends a transaction."""
    record = (now_ms, _KEY.pack(0, commit), _VALUE.pack(0, coordinator_epoch), ())
    return _kernel.build_batch(
        [record], producer_id=producer_id, producer_epoch=epoch, transactional=True, control=True
    )


def is_commit(key: bytes | None) -> bool | None:
    """What the key of a control record says; None if it is of another kind."""
    if key is None or len(key) < _KEY.size:
        raise CorruptMessage("a transaction marker is cut short")
    kind = _KEY.unpack_from(key)[1]
    return None if kind not in (0, 1) else kind == 1
