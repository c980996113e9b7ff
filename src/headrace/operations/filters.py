"""Which records somebody wants to see: by text in the key, the value or a header. Nothing of it is ever run as code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Wanted"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Records whose key and value hold these texts (upper and lower case are the same), and that have this header:
    ``NAME``, or ``NAME=TEXT`` where its value holds the text. What is empty is not asked for."""

    key: str = ""
    value: str = ""
    header: str = ""

    @property
    def everything(self) -> bool:
        """Whether no record is left out."""
        return not (self.key or self.value or self.header)

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The records of a batch that are wanted."""
        import pyarrow as pa
        import pyarrow.compute as pc

        for name in ("key", "value"):
            text = getattr(self, name)
            if text:
                mask = pc.match_substring(batch.column(name), text, ignore_case=True)
                batch = batch.filter(mask, null_selection_behavior="drop")
        if self.header and batch.num_rows:
            rows = batch.column("headers").to_pylist()
            batch = batch.filter(pa.array([self._has_header(row or []) for row in rows]))
        return batch

    def _has_header(self, headers: Sequence[Any]) -> bool:
        name, equals, text = self.header.partition("=")
        wanted = text.encode().lower()
        for one in headers:
            key, value = (one["key"], one["value"]) if isinstance(one, dict) else one
            if key == name and (not equals or wanted in (value or b"").lower()):
                return True
        return False
