"""Where alerts go: ``hr.Webhook``, ``hr.Email``, ``hr.LogLine``. Delivery is at least once: see ``delivery``."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from headrace.pipelines.places import caller, wrong

__all__ = ["Channel", "Email", "LogLine", "Webhook"]


@dataclass(frozen=True, slots=True)
class Channel:
    """A place that alerts are sent to."""


@dataclass(frozen=True, slots=True)
class Webhook(Channel):
    """A POST of the row as JSON.

    ``Idempotency-Key`` is the same for every attempt at one alert, and no other alert has it: a receiver that remembers
    the keys it has seen acts once. With a ``secret``, ``Headrace-Signature`` is ``sha256=`` and the hex HMAC-SHA256 of
    ``Headrace-Timestamp``, a dot and the body. Answers of 408, 425, 429 and 5xx, and no answer, are tried again,
    with growing pauses, ``attempts`` times in all; other answers but 2xx, and the last failure, are dead letters.
    """

    url: str
    secret: str | None = field(default=None, repr=False)
    timeout_s: float = 10.0
    attempts: int = 8

    def __post_init__(self) -> None:
        if urlsplit(self.url).scheme not in ("http", "https") or not urlsplit(self.url).hostname:
            raise wrong(f"{self.url!r} is not the address of a webhook.", caller(), "write it like https://host/path")


@dataclass(frozen=True, slots=True)
class Email(Channel):
    """A mail per row, by SMTP. Its Message-ID is the same for every attempt at one alert."""

    to: str
    sender: str
    server: str = "localhost:25"
    subject: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    timeout_s: float = 10.0
    attempts: int = 8

    def __post_init__(self) -> None:
        for address in (self.to, self.sender):
            if "@" not in address or any(c in address for c in "\r\n"):
                raise wrong(f"{address!r} is not a mail address.", caller(), "write it like ops@example.org")


@dataclass(frozen=True, slots=True)
class LogLine(Channel):
    """A line in the output of ``headrace run``."""
