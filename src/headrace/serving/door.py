"""At the door: what a request may do, and an end to guessing.

A wrong token, shown as a bearer or to open a session, is answered slowly; after twenty in a minute from one address no
token from there is looked at until the minute is over, a right one neither: else it could be found by trying. Other
addresses are not held up, nor are sessions that are open. Behind a proxy the address is what it forwards: uvicorn
believes it on this machine, and where FORWARDED_ALLOW_IPS says.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections import OrderedDict, deque

from starlette.requests import Request

from headrace.errors import InvalidInput
from headrace.serving.access import Access, Role

__all__ = ["Door", "TooManyGuesses"]

FAILED_PAUSE_S = 0.3
FAILURES, FAILURES_S = 20, 60.0
ADDRESSES = 10_000
"""So many are remembered; then the one goes that has not guessed for longest."""

_logger = logging.getLogger(__name__)


class TooManyGuesses(InvalidInput):
    """Somebody tries tokens."""


class Door:
    """Who comes in with which role."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    async def role_of(self, request: Request) -> Role | None:
        """What the sender of a request may do; None: nothing."""
        given = self.access.bearer_of(request.headers)
        if given is None or not self.access.needed:
            return self.access.role_of(request.headers)
        return await self.role_with(request, given)

    async def role_with(self, request: Request, given: str) -> Role | None:
        """The role that a token gives; TooManyGuesses if nobody from there is listened to for now."""
        address = _address(request)
        if self._is_over(address):
            raise TooManyGuesses("too many wrong tokens", hint="wait a minute")
        role = self.access.role_with(given)
        if role is None:
            self._note(address)
            await asyncio.sleep(FAILED_PAUSE_S)
        return role

    def _is_over(self, address: str) -> bool:
        failures = self._failures.get(address)
        if not failures:
            return False
        return len(failures) >= FAILURES and time.monotonic() - failures[0] < FAILURES_S

    def _note(self, address: str) -> None:
        failures = self._failures.setdefault(address, deque(maxlen=FAILURES))
        failures.append(time.monotonic())
        self._failures.move_to_end(address)
        if len(self._failures) > ADDRESSES:
            self._failures.popitem(last=False)
        if self._is_over(address):
            _logger.warning("%d wrong tokens from %s: none is looked at for a while", FAILURES, address)


def _address(request: Request) -> str:
    """Where a request comes from: of IPv6 the network, as a machine has many addresses in it."""
    host = request.client.host if request.client else ""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if address.version == 4 or address.ipv4_mapped:
        return str(getattr(address, "ipv4_mapped", None) or address)
    return str(ipaddress.ip_network((address, 64), strict=False))
