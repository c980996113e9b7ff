"""Clients at work, a broker that is killed and paused under them, and a check of everything that they were told.

``make faults ROUNDS=100 SEED=7`` runs it for long, the system tests for half a minute. The history stays in the folder
that is printed when something is found; ``python -m tests.faults.campaign --check FOLDER`` checks it again.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import confluent_kafka as ck
from confluent_kafka import admin

from tests.checker.history import Place, Recorder, load, positions
from tests.checker.laws import Finding, check
from tests.contract.raw import Connection
from tests.faults.clients import INPUT, OUTPUT, PARTITIONS, QUICK, Worker
from tests.servers import ROOT, Headrace, die_with_parent, free_port

OPTIONS = (
    "group.initial.rebalance.delay.ms=0",
    "group.min.session.timeout.ms=1000",
    "group.consumer.min.session.timeout.ms=1000",
    "group.consumer.session.timeout.ms=3000",
    "group.consumer.min.heartbeat.interval.ms=100",
    "group.consumer.heartbeat.interval.ms=500",
    "group.share.min.record.lock.duration.ms=1000",
    "group.share.record.lock.duration.ms=4000",
    "group.share.delivery.count.limit=10",
)
SESSION = {"session.timeout.ms": "3000", "heartbeat.interval.ms": "500"}
PATIENCE = 120.0
QUIET_POLLS = 5
T = TypeVar("T")


class Stuck(AssertionError):
    """Something that must happen did not."""


@dataclass(frozen=True, eq=False)
class Role:
    """A client that is to be there, and how it is set up."""

    kind: str
    name: str
    settings: Mapping[str, str] = field(default_factory=dict)


QUEUE = "workers"
MODERN = {"group.protocol": "consumer"}
CLASSIC = {**SESSION, "partition.assignment.strategy": "cooperative-sticky"}
ROLES = (
    Role("writer", "writer-0"),
    Role("banker", "banker-0"),
    Role("reader", "reader-0"),
    Role("follower", "follower-0", {"group.id": "followers", **SESSION}),
    *(Role("copier", f"copier-{n}", {"group.id": "copiers", "output": OUTPUT, **CLASSIC}) for n in range(3)),
    *(Role("copier", f"modern-{n}", {"group.id": "modern", "output": "modern", **MODERN}) for n in range(2)),
    *(Role("worker", f"worker-{n}", {"share": QUEUE}) for n in range(2)),
)
TOPICS = (INPUT, OUTPUT, "modern")


@dataclass
class Crew:
    """Client processes: started, killed, started again, ended."""

    bootstrap: str
    history: Path
    dice: random.Random
    running: dict[Role, subprocess.Popen[bytes]] = field(default_factory=dict)
    _lives: Counter[Role] = field(default_factory=Counter)

    def start(self, role: Role) -> None:
        self._lives[role] += 1
        name = f"{role.name}~{self._lives[role]}"
        command = [sys.executable, "-m", "tests.faults.clients", role.kind, "--bootstrap", self.bootstrap]
        command += ["--history", str(self.history), "--name", name, "--seed", str(self.dice.randrange(2**32))]
        command += [word for pair in role.settings.items() for word in ("--set", "=".join(pair))]
        output = (self.history / f"{name}.out").open("wb")
        self.running[role] = subprocess.Popen(
            command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, preexec_fn=die_with_parent
        )
        output.close()

    def kill(self, role: Role) -> None:
        process = self.running.pop(role)
        process.kill()
        process.wait()

    def end(self, *kinds: str) -> None:
        """Ask all of these kinds to end, and wait until they have done what they had begun."""
        ending = {role: self.running.pop(role) for role in list(self.running) if role.kind in kinds}
        for process in ending.values():
            process.send_signal(signal.SIGTERM)
        for role, process in ending.items():
            try:
                code = process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise Stuck(f"{role.name} did not end in {PATIENCE:.0f} s") from None
            if code not in (0, -signal.SIGTERM):  # the latter had not begun
                raise Stuck(f"{role.name} ended with {code}:\n{self._said(role)}")

    def _said(self, role: Role) -> str:
        return (self.history / f"{role.name}~{self._lives[role]}.out").read_text(errors="replace")[-2000:]

    def kill_all(self) -> None:
        """All that are left; each first writes into its output where it was."""
        for process in self.running.values():
            process.send_signal(signal.SIGUSR1)
        for role in list(self.running):
            self.kill(role)


class Drain:
    """The last reader: everything from the beginning to the end, and what the groups have committed."""

    def __init__(self, bootstrap: str, history: Path) -> None:
        self.recorder = Recorder(history, "drain")
        self._settings = {"bootstrap.servers": bootstrap, **QUICK}
        self._history = history
        self.visible: dict[Place, int] = {}
        self.values: dict[tuple[Place, int], str] = {}

    def read(self, topic: str) -> None:
        """All of a topic, once no transaction is open in it."""
        source = ck.Consumer({**self._settings, "group.id": "drain", "enable.partition.eof": True})
        places = [(topic, index) for index in range(PARTITIONS)]
        ends = {place: self._end(place) for place in places}
        source.assign([ck.TopicPartition(*place, 0) for place in places])
        left, deadline = set(places), time.monotonic() + PATIENCE
        while left:
            if time.monotonic() > deadline:
                raise Stuck(f"{left} could not be read to the end")
            records = []
            for message in source.consume(1000, 0.5):
                if message.error() is None:
                    records.append([*_place(message), message.offset(), message.value().decode()])
                    self.visible[_place(message)] = message.offset() + 1
                    self.values[_place(message), message.offset()] = message.value().decode()
                elif message.error().code() == ck.KafkaError._PARTITION_EOF:
                    left.discard(_place(message))
            if records:
                self.recorder.note("poll", records=records)
        source.close()
        self.recorder.note("drained", ends=positions(ends))

    def _end(self, place: Place) -> int:
        """The end of a partition, when all transactions in it are over."""
        client = admin.AdminClient(self._settings)
        where = ck.TopicPartition(*place)

        def end(isolation: ck.IsolationLevel) -> int:
            asked = client.list_offsets({where: admin.OffsetSpec.latest()}, isolation_level=isolation)
            offset: int = asked[where].result(5).offset
            return offset

        def stable() -> int | None:
            last = end(ck.IsolationLevel.READ_UNCOMMITTED)
            return last if end(ck.IsolationLevel.READ_COMMITTED) == last else None

        return patiently(stable, f"a transaction stays open in {place}")

    def committed(self, group: str, topic: str) -> dict[Place, int]:
        source = ck.Consumer({**self._settings, "group.id": group})
        asked = [ck.TopicPartition(topic, index) for index in range(PARTITIONS)]
        found = patiently(lambda: source.committed(asked, 5), f"the offsets of {group} cannot be had")
        source.close()
        return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}

    def group(self, group: str, topic: str) -> None:
        """Wait until the group has read all of the topic."""

        def done() -> bool:
            found = self.committed(group, topic)
            return all(found.get(place, 0) >= end for place, end in self.visible.items() if place[0] == topic)

        patiently(done, f"{group} does not come to the end of {topic}")

    def queue(self, share: str, topic: str) -> None:
        """A worker that comes last is given what nobody accepted, and nothing else."""
        missing = {where for where in self.values if where[0][0] == topic} - self._delivered(share)
        last = Recorder(self._history, "last-worker")
        last.note("start")
        worker = Worker(str(self._settings["bootstrap.servers"]), last, share)
        quiet, deadline = 0, time.monotonic() + PATIENCE
        while (missing or quiet < QUIET_POLLS) and time.monotonic() < deadline:
            found = worker.take()
            missing -= {(_place(one), one.offset()) for one in found}
            quiet = 0 if found else quiet + 1
        worker.close()
        last.note("queue-empty", share=share, topics=[topic])

    def _delivered(self, share: str) -> set[tuple[Place, int]]:
        polls = [event for event in load(self._history) if event.f == "poll" and event.data.get("share") == share]
        return {((topic, index), offset) for event in polls for topic, index, offset, _ in event.data["records"]}

    def note_group(self, group: str, topic: str) -> None:
        self.recorder.note("committed", group=group, positions=positions(self.committed(group, topic)))


def _place(message: ck.Message) -> Place:
    return message.topic(), message.partition()


def patiently(attempt: Callable[[], T | None], what: str) -> T:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            value = attempt()
        except ck.KafkaException:
            value = None
        if value is not None and value is not False:
            return value
        if time.monotonic() > deadline:
            raise Stuck(f"{what}, after {PATIENCE:.0f} s")
        time.sleep(0.1)


def set_group(bootstrap: str, group: str, settings: Mapping[str, str]) -> None:
    configs = [{"name": name, "config_operation": 0, "value": value} for name, value in settings.items()]
    resource = {"resource_type": 32, "resource_name": group, "configs": configs}
    with Connection(bootstrap) as connection:
        answer = connection.call("incremental_alter_configs", 1, resources=[resource], validate_only=False)
    if answer["responses"][0]["error_code"] != "none":
        raise Stuck(f"the settings of {group} were refused: {answer}")


class Nemesis:
    """Does bad things to the broker and to clients, one after the other."""

    def __init__(self, broker: Headrace, crew: Crew, dice: random.Random, recorder: Recorder) -> None:
        self.broker = broker
        self.crew = crew
        self.dice = dice
        self.recorder = recorder
        self.done: Counter[str] = Counter()

    def strike(self) -> None:
        deeds = [self.kill_broker, self.pause_broker, self.kill_client, self.stop_broker]
        (deed,) = self.dice.choices(deeds, [4, 3, 3, 1])
        self.recorder.note(deed.__name__.replace("_", "-"))
        self.done[deed.__name__] += 1
        deed()

    def kill_broker(self) -> None:
        self.broker.kill9()
        time.sleep(self.dice.random() * 0.5)
        self.broker.start()

    def stop_broker(self) -> None:
        self.broker.stop()
        self.broker.start()

    def pause_broker(self) -> None:
        os.kill(self.broker.pid, signal.SIGSTOP)
        time.sleep(self.dice.choice((0.1, 0.5, 1.5)))
        os.kill(self.broker.pid, signal.SIGCONT)

    def kill_client(self) -> None:
        role = self.dice.choice(list(self.crew.running))
        self.recorder.note("killed", client=role.name)
        self.crew.kill(role)
        self.crew.start(role)


@dataclass
class Outcome:
    """What a campaign found, and how much it looked at."""

    findings: list[Finding]
    counts: Counter[str]
    done: Counter[str]

    def __str__(self) -> str:
        events = ", ".join(f"{count:,} {what}" for what, count in sorted(self.counts.items()))
        deeds = ", ".join(f"{count} x {what.replace('_', ' ')}" for what, count in sorted(self.done.items()))
        return f"{events}; {deeds or 'nothing bad was done'}"


@dataclass
class Campaign:
    """One run: a broker, clients, a nemesis, and the check. The folder holds all of it."""

    folder: Path
    seed: int
    roles: tuple[Role, ...] = ROLES
    topics: tuple[str, ...] = TOPICS

    def __post_init__(self) -> None:
        self.history = self.folder / "history"
        self.history.mkdir(parents=True)
        self.dice = random.Random(self.seed)

    def run(self, seconds: float) -> Outcome:
        """With a real process and a nemesis."""
        options = list(itertools.chain(*(("--set", option) for option in OPTIONS)))
        broker = Headrace(self.folder / "node", port=free_port(), options=options)
        try:
            crew = self.begin(broker.bootstrap)
            nemesis = Nemesis(broker, crew, self.dice, Recorder(self.history, "nemesis"))
            try:
                until = time.monotonic() + seconds
                while time.monotonic() < until:
                    time.sleep(self.dice.uniform(0.2, 3.0))
                    nemesis.strike()
                self.finish(crew)
            finally:
                crew.kill_all()
        finally:
            if broker.running:
                broker.kill9()
        return self.outcome(nemesis.done)

    def begin(self, bootstrap: str) -> Crew:
        client = admin.AdminClient({"bootstrap.servers": bootstrap})
        for made in client.create_topics([admin.NewTopic(topic, PARTITIONS, 1) for topic in self.topics]).values():
            made.result(20)
        for share in {role.settings["share"] for role in self.roles if "share" in role.settings}:
            wanted = {"share.auto.offset.reset": "earliest", "share.isolation.level": "read_committed"}
            set_group(bootstrap, share, wanted)
        crew = Crew(bootstrap, self.history, self.dice)
        for role in self.roles:
            crew.start(role)
        return crew

    def finish(self, crew: Crew) -> None:
        """Writers end, groups come to the end of what was written, then everything is read once more."""
        crew.end("writer", "banker")
        drain = Drain(crew.bootstrap, self.history)
        drain.read(INPUT)
        groups = sorted({role.settings["group.id"] for role in self.roles if "group.id" in role.settings})
        for group in groups:
            drain.group(group, INPUT)
        crew.end("copier", "follower", "reader", "worker")
        for share in sorted({role.settings["share"] for role in self.roles if "share" in role.settings}):
            drain.queue(share, INPUT)
        for topic in self.topics:
            if topic != INPUT:
                drain.read(topic)
        for group in groups:
            drain.note_group(group, INPUT)

    def outcome(self, done: Counter[str]) -> Outcome:
        history = load(self.history)
        counts = Counter(f"{event.f}s {event.type}" for event in history if event.f in ("send", "end", "accept"))
        counts["records read"] = sum(len(event.data["records"]) for event in history if event.f == "poll")
        return Outcome(check(history), counts, done)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1, help="how many runs, each on a new node")
    parser.add_argument("--seconds", type=float, default=40.0, help="how long bad things are done in a run")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--check", type=Path, metavar="FOLDER", help="only check a history that was kept")
    chosen = parser.parse_args()
    if chosen.check is not None:
        return _told(check(load(chosen.check)), chosen.check)
    for number in range(chosen.rounds):
        seed = chosen.seed + number
        folder = Path(tempfile.mkdtemp(prefix="headrace-campaign-"))
        try:
            outcome = Campaign(folder, seed).run(chosen.seconds)
        except Stuck as problem:
            print(f"FAILED (seed {seed}): {problem}\nthe history is in {folder / 'history'}", file=sys.stderr)
            return 1
        print(f"run {number + 1} of {chosen.rounds}, seed {seed}: {outcome}", flush=True)
        if _told(outcome.findings, folder / "history"):
            return 1
        shutil.rmtree(folder)
    return 0


def _told(findings: list[Finding], where: Path) -> int:
    for finding in findings[:50]:
        print(finding, file=sys.stderr)
    if findings:
        print(f"FAILED: {len(findings)} findings; the history is in {where}", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
