"""A log with transactions, a group and a queue that is right by construction, driven by dice; it writes histories.

Answers get lost (``unknown``), clients die in the middle of a transaction, brokers are killed: the history shows it and
the state is as a correct broker's would be.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from tests.checker.history import Event, Place, Type, positions

INPUT, OUTPUT = "in", "out"
PARTITIONS = 2
GROUP, SHARE = "copiers", "workers"


@dataclass
class Slot:
    """What lies at an offset: a record, or a marker, which nobody is shown."""

    value: str | None
    txn: str | None = None


@dataclass
class Model:
    """``act`` does one random thing; ``finish`` reads everything to the end."""

    dice: random.Random
    logs: dict[Place, list[Slot]] = field(default_factory=dict)
    decided: dict[str, bool] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.logs = {(topic, index): [] for topic in (INPUT, OUTPUT) for index in range(PARTITIONS)}
        self.committed: dict[Place, int] = {}
        self.positions: dict[Place, int] = {}
        self.accepted: set[tuple[Place, int]] = set()
        self._number = 0

    # --- writing the history ---

    def next(self) -> int:
        self._number += 1
        return self._number

    def tell(self, process: str, op: int, type: Type, f: str, **data: Any) -> None:
        self.events.append(Event(self.next(), process, op, type, f, data))

    # --- the log ---

    def send(self, process: str, place: Place, txn: str | None = None, source: str | None = None) -> None:
        op, value = self.next(), f"{process}:{self._number}"
        more = {key: text for key, text in (("txn", txn), ("source", source)) if text is not None}
        self.tell(process, op, "invoke", "send", topic=place[0], partition=place[1], value=value, **more)
        how = self.dice.choices(["ok", "fail", "swallowed", "vanished"], [12, 1, 1, 1])[0] if txn is None else "ok"
        if how in ("ok", "swallowed"):
            self.logs[place].append(Slot(value, txn))
        if how == "ok":
            self.tell(process, op, "ok", "send", offset=len(self.logs[place]) - 1)
        elif how == "fail":
            self.tell(process, op, "fail", "send")
        elif self.dice.random() < 0.5:
            self.tell(process, op, "unknown", "send")

    def end(self, process: str, txn: str, consumed: dict[Place, int] | None = None) -> None:
        commit = self.dice.random() < 0.7
        op = self.next()
        more = {} if consumed is None else {"group": GROUP, "positions": positions(consumed)}
        self.tell(process, op, "invoke", "end", txn=txn, commit=commit, **more)
        known = self.dice.random() < 0.7
        self.decided[txn] = commit and (known or self.dice.random() < 0.5)
        if self.decided[txn] and consumed is not None:
            self.committed |= consumed
        for log in self.logs.values():
            if any(slot.txn == txn for slot in log):
                log.append(Slot(None))
        if known:
            self.tell(process, op, "ok", "end")

    def die(self, txn: str) -> None:
        """The client is gone and its transaction is aborted in time."""
        self.decided[txn] = False

    def shown(self, place: Place) -> list[tuple[int, str]]:
        """What a reader of committed records may see now: nothing from the first undecided record on."""
        found = []
        for offset, slot in enumerate(self.logs[place]):
            if slot.txn is not None and slot.txn not in self.decided:
                break
            if slot.value is not None and self.decided.get(slot.txn or "", True):
                found.append((offset, slot.value))
        return found

    def read(self, process: str, place: Place, start: int, count: int, **more: str) -> list[tuple[int, str]]:
        found = [each for each in self.shown(place) if each[0] >= start][:count]
        if found:
            records = [[*place, offset, value] for offset, value in found]
            self.tell(process, self.next(), "ok", "poll", records=records, isolation="read_committed", **more)
        return found

    # --- what clients do ---

    def act(self) -> None:
        self.dice.choice([self.write, self.pair, self.look, self.copy, self.work, self.kill])()

    def write(self) -> None:
        for _ in range(self.dice.randrange(1, 4)):
            self.send("writer", (INPUT, self.dice.randrange(PARTITIONS)))

    def pair(self) -> None:
        """A transaction over both partitions."""
        txn = f"pair-{self.next()}"
        for index in range(PARTITIONS):
            self.send("banker", (INPUT, index), txn)
        if self.dice.random() < 0.2:
            self.die(txn)
        else:
            self.end("banker", txn)

    def look(self) -> None:
        place = self.dice.choice(list(self.logs))
        if self.dice.random() < 0.1:
            self.tell("reader", self.next(), "ok", "assign")
            self.positions.clear()
        found = self.read("reader", place, self.positions.get(place, 0), 3)
        if found:
            self.positions[place] = found[-1][0] + 1

    def copy(self) -> None:
        place = (INPUT, self.dice.randrange(PARTITIONS))
        process = f"copier-{self.dice.randrange(2)}"
        self.tell(process, self.next(), "ok", "assign")
        found = self.read(process, place, self.committed.get(place, 0), 3)
        if not found:
            return
        txn = f"copy-{self.next()}"
        for _, value in found:
            self.send(process, (OUTPUT, self.dice.randrange(PARTITIONS)), txn, value)
        if self.dice.random() < 0.2:
            self.die(txn)
        else:
            self.end(process, txn, {place: found[-1][0] + 1})

    def work(self, process: str = "worker", everything: bool = False) -> None:
        """A consumer of the queue takes one record and settles it, or dies with it."""
        for place in self.logs:
            left = [each for each in self.shown(place) if (place, each[0]) not in self.accepted]
            for offset, value in left if everything else left[:1]:
                self.read(process, place, offset, 1, share=SHARE)
                self.accept(process, place, offset, value, certain=everything)

    def accept(self, process: str, place: Place, offset: int, value: str, certain: bool) -> None:
        op = self.next()
        told = {"share": SHARE, "topic": place[0], "partition": place[1], "offset": offset, "value": value}
        self.tell(process, op, "invoke", "accept", **told)
        how = "ok" if certain else self.dice.choice(["ok", "ok", "unknown", "fail"])
        if how == "ok" or (how == "unknown" and self.dice.random() < 0.5):
            self.accepted.add((place, offset))
        if how == "ok":
            self.tell(process, op, "ok", "accept")
        elif how == "fail":
            self.tell(process, op, "fail", "accept")

    def kill(self) -> None:
        self.tell("nemesis", self.next(), "ok", "kill")

    def finish(self) -> list[Event]:
        for place, log in self.logs.items():
            self.read("drain", place, 0, len(log))
        ends = positions({place: len(log) for place, log in self.logs.items()})
        self.tell("drain", self.next(), "ok", "drained", ends=ends)
        self.tell("drain", self.next(), "ok", "committed", group=GROUP, positions=positions(self.committed))
        self.work("last", everything=True)
        self.tell("last", self.next(), "ok", "queue-empty", share=SHARE, topics=[INPUT, OUTPUT])
        return self.events


def history(seed: int, steps: int) -> list[Event]:
    model = Model(random.Random(seed))
    for _ in range(steps):
        model.act()
    return model.finish()
