"""Logging in on the page: a token opens a session, which is a cookie that scripts cannot read."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from headrace.errors import InvalidInput
from headrace.serving.access import COOKIE, SESSION_S
from headrace.serving.answers import failure, json_response
from headrace.serving.door import Door

__all__ = ["Login"]


class Login:
    """The handlers of sessions."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def session(self, said: dict[str, Any]) -> Any:
        """Who asks."""
        role = await self._door.role_of(_request(said))
        return {"role": role, "needed": self._door.access.needed}

    async def login(self, said: dict[str, Any]) -> Response:
        """Open a session."""
        role = await self._door.role_with(_request(said), said["token"])
        if role is None:
            return failure(InvalidInput("this is not a token of this node"), 401)
        answer = json_response({"role": role})
        secure = _request(said).url.scheme == "https"
        answer.set_cookie(
            COOKIE, self._door.access.session(role), max_age=SESSION_S, httponly=True, samesite="strict", secure=secure
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
