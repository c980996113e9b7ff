"""The events of the demo's shop: visits of customers, out of order, some late, some broken. A seed gives the same.

Time in the shop runs faster than ours, so that minutes go by while one watches. An event reaches the shop some time
after it happened: seconds mostly, sometimes so long after that its minute is closed. A few records are no events.
"""

from __future__ import annotations

import heapq
import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

__all__ = ["Sent", "ShopEvents", "closing_event"]

PRODUCTS = (
    "tea",
    "coffee",
    "honey",
    "bread",
    "cheese",
    "apples",
    "olives",
    "rice",
    "soap",
    "candles",
    "books",
    "flowers",
)
LATE, BROKEN = 0.004, 0.004
CLOSER = 0
"""The customer whose events only let time pass."""

Sent = tuple[bytes, bytes]
"""Key and value of a record."""


@dataclass(order=True)
class _Arrival:
    at: float
    number: int
    record: Sent


class ShopEvents:
    """Events from ``start`` (seconds since 1970, the shop's time) on."""

    def __init__(self, seed: int, start: float, customers: int = 1200) -> None:
        self._chance = random.Random(seed)
        self._numbers = itertools.count(1)
        self._arrivals: list[_Arrival] = []
        self._visits: list[tuple[float, int, int]] = []
        """When a customer does something next, who, and how many steps are left of the visit."""
        for customer in range(1, customers + 1):
            heapq.heappush(self._visits, (start + self._chance.uniform(0, 600), customer, self._steps()))

    def until(self, now: float) -> Iterator[Sent]:
        """What arrives up to this time of the shop."""
        while self._visits[0][0] <= now:
            self._step(*heapq.heappop(self._visits))
        while self._arrivals and self._arrivals[0].at <= now:
            yield heapq.heappop(self._arrivals).record

    def rest(self) -> Iterator[Sent]:
        """What is still on its way when the shop closes."""
        while self._arrivals:
            yield heapq.heappop(self._arrivals).record

    def _steps(self) -> int:
        return self._chance.randrange(2, 12)

    def _step(self, at: float, customer: int, steps: int) -> None:
        chance = self._chance
        number = next(self._numbers)
        order = chance.random() < 0.4
        product = PRODUCTS[min(int(chance.expovariate(0.35)), len(PRODUCTS) - 1)]
        event = {
            "event_id": f"e{number}",
            "customer_id": customer,
            "kind": "order" if order else "look",
            "product": product,
            "amount": round(chance.uniform(1, 80), 2) if order else None,
            "at": _iso(at),
        }
        delay = chance.uniform(600, 1200) if chance.random() < LATE else min(chance.expovariate(1 / 8), 60)
        value = self._broken(event) if chance.random() < BROKEN else json.dumps(event).encode()
        heapq.heappush(self._arrivals, _Arrival(at + delay, number, (str(customer).encode(), value)))
        pause = chance.uniform(15, 60) if steps > 1 else chance.uniform(500, 1500)
        heapq.heappush(self._visits, (at + pause, customer, steps - 1 if steps > 1 else self._steps()))

    def _broken(self, event: dict[str, object]) -> bytes:
        text = json.dumps(event)
        return self._chance.choice(
            [
                text[: len(text) // 2].encode(),
                b"\x00\xff not even text",
                json.dumps(event | {"amount": "a lot"}).encode(),
                json.dumps(event | {"at": "2999-01-01T00:00:00.000000Z"}).encode(),
                json.dumps({name: value for name, value in event.items() if name != "at"}).encode(),
            ]
        )


def closing_event(at: float) -> Sent:
    """An event that counts nowhere and shows that the shop's time has come this far."""
    event = {
        "event_id": "closing",
        "customer_id": CLOSER,
        "kind": "look",
        "product": None,
        "amount": None,
        "at": _iso(at),
    }
    return str(CLOSER).encode(), json.dumps(event).encode()


def _iso(at: float) -> str:
    return datetime.fromtimestamp(round(at, 3), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
