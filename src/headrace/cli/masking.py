"""Secrets, made unreadable before they are shown."""

from __future__ import annotations

import re

__all__ = ["MASK", "masked"]

MASK = "********"

_SECRET_NAME = re.compile(
    r"(password|passwd|secret|token|jaas\.config|basic\.auth\.user\.info|\.pem|private\.?key|\bkey\.pem)", re.IGNORECASE
)
_IN_URL = re.compile(r"(\w[\w+.-]*://[^/\s:@]*:)[^/\s]*(@)")
_IN_QUERY = re.compile(r"((?:^|[?&\s;])(?:ssl)?(?:password|passwd|secret|token|api_?key)=)[^&\s;]*", re.IGNORECASE)
_PUBLIC = re.compile(
    r"(certificate\.pem|ca\.pem|token\.endpoint\.url|password\.(encoder|file)|(location|path|file)$)", re.I
)


def masked(name: str, value: str) -> str:
    """A setting's value as it may be shown: nothing of a secret, and of an address all but its password."""
    if value and _SECRET_NAME.search(name) and not _PUBLIC.search(name):
        return MASK
    return _IN_QUERY.sub(rf"\g<1>{MASK}", _IN_URL.sub(rf"\g<1>{MASK}\g<2>", value))
