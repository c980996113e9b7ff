"""Who may look and who may change: two tokens, as a bearer token or in a session that the page opens with one.

Without any token everybody who reaches the node may do everything, which is why a node without one listens on the
loopback interface only. A session is a cookie that says role and end, signed with a key made from the role's token: so
it survives a restart, and a new token ends all sessions of the old one.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from dataclasses import dataclass, field
from enum import StrEnum

from starlette.datastructures import Headers
from starlette.requests import cookie_parser

__all__ = ["COOKIE", "SESSION_S", "Access", "Role"]

COOKIE = "headrace_session"
SESSION_S = 12 * 3600


class Role(StrEnum):
    """What somebody may do."""

    LOOK = "look"
    CHANGE = "change"


@dataclass(frozen=True, slots=True)
class Access:
    """The tokens of a node: who has ``token`` may change things, who has ``read_token`` may look."""

    token: str | None = field(default=None, repr=False)
    read_token: str | None = field(default=None, repr=False)

    @property
    def needed(self) -> bool:
        """Whether a token has to be shown."""
        return bool(self.token or self.read_token)

    def role_of(self, headers: Headers) -> Role | None:
        """What the sender of a request may do; None: nothing."""
        if not self.needed:
            return Role.CHANGE
        given = self.bearer_of(headers)
        if given is not None:
            return self.role_with(given)
        return self._of_session(cookie_parser(headers.get("cookie", "")).get(COOKIE, ""))

    @staticmethod
    def bearer_of(headers: Headers) -> str | None:
        """The token that a request shows; None: it shows none."""
        kind, _, given = headers.get("authorization", "").partition(" ")
        return given.strip() if kind.lower() == "bearer" else None

    def role_with(self, given: str) -> Role | None:
        """The role that a token gives."""
        found = None
        for role, token in ((Role.LOOK, self.read_token), (Role.CHANGE, self.token)):
            if token and hmac.compare_digest(given.encode(), token.encode()):
                found = role
        return found

    def session(self, role: Role, now: float | None = None) -> str:
        """The value of a cookie that gives this role for a while."""
        said = f"{role}.{int((time.time() if now is None else now) + SESSION_S)}"
        return f"{said}.{self._signed(role, said)}"

    def _of_session(self, cookie: str) -> Role | None:
        name, _, rest = cookie.partition(".")
        until, _, signature = rest.partition(".")
        if name not in (Role.LOOK, Role.CHANGE) or not until.isdecimal() or not until.isascii():
            return None
        role = Role(name)
        right = self._signed(role, f"{name}.{until}")
        if not hmac.compare_digest(right.encode(), signature.encode()) or int(until[:15]) < time.time():
            return None
        return role if self._token(role) else None

    def _token(self, role: Role) -> str | None:
        return self.token if role is Role.CHANGE else self.read_token

    def _signed(self, role: Role, text: str) -> str:
        key = hashlib.sha256(b"headrace session\0" + (self._token(role) or "").encode()).digest()
        return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
