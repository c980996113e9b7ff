"""What a history says, gathered once: sends and transactions with their outcome, what readers saw, final offsets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.checker.history import Event, Place, place_of


@dataclass(slots=True)
class Send:
    """One record that a client tried to write. ``outcome`` is unknown until the history says more."""

    value: str
    process: str
    place: Place
    order: int
    txn: str | None
    source: str | None
    outcome: str = "unknown"
    offset: int | None = None


@dataclass(slots=True)
class Transaction:
    """``outcome``: committed, aborted or unknown. ``commit_at``: when the client first asked for the commit."""

    id: str
    outcome: str = "unknown"
    commit_at: int | None = None
    group: str | None = None
    positions: dict[Place, int] = field(default_factory=dict)
    sends: list[Send] = field(default_factory=list)


class Seen(NamedTuple):
    """One record in one reader's hands."""

    process: str
    place: Place
    offset: int
    value: str
    time: int
    committed_only: bool


class Accept(NamedTuple):
    """One record of a share group that a consumer said it was done with."""

    share: str
    place: Place
    offset: int
    process: str
    outcome: str
    time: int


@dataclass
class Facts:
    """All of it."""

    sends: dict[str, Send] = field(default_factory=dict)
    twice_sent: list[str] = field(default_factory=list)
    transactions: dict[str, Transaction] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    runs: list[list[Seen]] = field(default_factory=list)
    drains: list[tuple[str, dict[Place, int]]] = field(default_factory=list)
    commits: list[tuple[str, Place, int, bool]] = field(default_factory=list)
    final: dict[str, dict[Place, int]] = field(default_factory=dict)
    accepts: list[Accept] = field(default_factory=list)
    delivered: list[tuple[str, Seen]] = field(default_factory=list)
    began: dict[str, int] = field(default_factory=dict)
    emptied: dict[str, tuple[str, int, list[str]]] = field(default_factory=dict)

    @staticmethod
    def of(history: Iterable[Event]) -> Facts:
        return _Gathering().run(history)

    def visible(self) -> dict[str, Send]:
        """Sends that must be there for every reader: promised, or seen by a reader of committed records."""
        seen = {one.value for one in self.seen if one.committed_only}
        return {value: send for value, send in self.sends.items() if value in seen or self.promised(send)}

    def promised(self, send: Send) -> bool:
        if send.txn is None:
            return send.outcome == "ok"
        return self.transactions[send.txn].outcome == "committed"

    def taken_back(self, send: Send) -> bool:
        """Whether the client was told that it is not there."""
        if send.txn is None:
            return send.outcome == "fail"
        return self.transactions[send.txn].outcome == "aborted"

    def offsets(self) -> dict[str, int]:
        """Where each value lies, by acknowledgement or by a reader."""
        found = {value: send.offset for value, send in self.sends.items() if send.offset is not None}
        return found | {one.value: one.offset for one in self.seen}


class _Gathering:
    def __init__(self) -> None:
        self.facts = Facts()
        self._open: dict[tuple[str, int], Event] = {}
        self._runs: dict[str, dict[Place, list[Seen]]] = defaultdict(dict)

    def run(self, history: Iterable[Event]) -> Facts:
        for event in history:
            self.facts.began.setdefault(event.process, event.time)
            if event.type == "invoke":
                self._open[event.process, event.op] = event
            step = getattr(self, "_" + event.f.replace("-", "_"), None)
            if step is not None:
                step(event)
        for places in self._runs.values():
            self.facts.runs += places.values()
        return self.facts

    def _begun(self, event: Event) -> Event:
        return self._open[event.process, event.op]

    def _transaction(self, name: str) -> Transaction:
        return self.facts.transactions.setdefault(name, Transaction(name))

    def _send(self, event: Event) -> None:
        if event.type == "invoke":
            data = event.data
            if data["value"] in self.facts.sends:
                self.facts.twice_sent.append(data["value"])
                return
            place = (data["topic"], data["partition"])
            send = Send(data["value"], event.process, place, event.time, data.get("txn"), data.get("source"))
            self.facts.sends[send.value] = send
            if send.txn is not None:
                self._transaction(send.txn).sends.append(send)
            return
        send = self.facts.sends[self._begun(event).data["value"]]
        send.outcome = event.type
        offset = event.data.get("offset")
        send.offset = offset if offset is not None and offset >= 0 else None

    def _end(self, event: Event) -> None:
        data = self._begun(event).data
        transaction = self._transaction(data["txn"])
        if event.type == "invoke":
            if data["commit"]:
                transaction.commit_at = event.time
            transaction.group = data.get("group")
            transaction.positions = {place_of(name): offset for name, offset in data.get("positions", {}).items()}
        elif event.type == "ok":
            transaction.outcome = "committed" if data["commit"] else "aborted"
        elif event.type == "fail" and data["commit"] and transaction.outcome == "unknown":
            transaction.outcome = "aborted"

    def _poll(self, event: Event) -> None:
        if event.type != "ok":
            return
        committed_only = event.data.get("isolation", "read_committed") == "read_committed"
        share = event.data.get("share")
        for topic, partition, offset, value in event.data["records"]:
            seen = Seen(event.process, (topic, partition), offset, value, event.time, committed_only)
            self.facts.seen.append(seen)
            if share is not None:
                self.facts.delivered.append((share, seen))
            else:
                self._runs[event.process].setdefault(seen.place, []).append(seen)

    def _assign(self, event: Event) -> None:
        self.facts.runs += self._runs.pop(event.process, {}).values()

    def _drained(self, event: Event) -> None:
        self.facts.drains.append((event.process, _places(event.data["ends"])))

    def _commit(self, event: Event) -> None:
        begun, certain = self._begun(event).data, event.type == "ok"
        self.facts.commits += [(begun["group"], *each, certain) for each in _places(begun["positions"]).items()]

    def _committed(self, event: Event) -> None:
        self.facts.final.setdefault(event.data["group"], {}).update(_places(event.data["positions"]))

    def _accept(self, event: Event) -> None:
        if event.type != "invoke":
            data = self._begun(event).data
            place = (data["topic"], data["partition"])
            self.facts.accepts.append(
                Accept(data["share"], place, data["offset"], event.process, event.type, event.time)
            )

    def _queue_empty(self, event: Event) -> None:
        self.facts.emptied[event.data["share"]] = (event.process, event.time, event.data["topics"])


def _places(named: dict[str, int]) -> dict[Place, int]:
    return {place_of(name): offset for name, offset in named.items()}
