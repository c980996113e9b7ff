"""Logging in on the page: a token opens a session, which is a cookie that scripts cannot read."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from headrace.errors import InvalidInput
from headrace.serving.access import COOKIE, SESSION_S, Access
from headrace.serving.answers import failure, json_response

__all__ = ["Login"]

FAILED_PAUSE_S = 0.3
FAILURES, FAILURES_S = 20, 60.0


class Login:
    """The handlers of sessions. Wrong tokens are answered slowly, and after twenty in a minute not at all."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._failures: deque[float] = deque(maxlen=FAILURES)

    async def session(self, said: dict[str, Any]) -> Any:
        """Who asks."""
        role = self._access.role_of(_request(said).headers)
        return {"role": role, "needed": self._access.needed}

    async def login(self, said: dict[str, Any]) -> Response:
        """Open a session."""
        if len(self._failures) == FAILURES and time.monotonic() - self._failures[0] < FAILURES_S:
            return failure(InvalidInput("too many wrong tokens", hint="wait a minute"), 429)
        role = self._access.role_with(said["token"])
        if role is None:
            self._failures.append(time.monotonic())
            await asyncio.sleep(FAILED_PAUSE_S)
            return failure(InvalidInput("this is not a token of this node"), 401)
        answer = json_response({"role": role})
        secure = _request(said).url.scheme == "https"
        answer.set_cookie(
            COOKIE, self._access.session(role), max_age=SESSION_S, httponly=True, samesite="strict", secure=secure
        )
        return answer

    async def logout(self, _: dict[str, Any]) -> Response:
        """End the session."""
        answer = json_response({"role": None})
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return answer


def _request(said: dict[str, Any]) -> Request:
    request: Request = said["request"]
    return request
