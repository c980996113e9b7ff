"""What a handler is told about the request besides its body."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["RequestContext"]


class RequestContext(NamedTuple):
    """Whose request it is, and in which version it came."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    client_host: str
    connection_id: int
