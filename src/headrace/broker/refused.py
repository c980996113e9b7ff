"""An error that a handler raises by Kafka's code, where the exception tree has no class of its own for it."""

from __future__ import annotations

from headrace.errors import HeadraceError

__all__ = ["Refused", "code_of"]


class Refused(HeadraceError):
    """Something that is not done, with the code that tells the client why."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def code_of(error: HeadraceError) -> int:
    """The code that a client is told."""
    return error.code if isinstance(error, Refused) else error.kafka_code
