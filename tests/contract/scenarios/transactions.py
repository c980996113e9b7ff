"""Transactions: for old clients, for clients with an epoch per transaction, and for zombies of both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.contract.batches import batch, headers_of
from tests.contract.schema import Tree
from tests.contract.session import LATEST, Session, Topic, in_every_version

TRANSACTIONAL = 0x10
OLD, NEW = {"produce": 11, "end_txn": 4, "txn_offset_commit": 4}, {"produce": 13, "end_txn": 5, "txn_offset_commit": 5}


@dataclass
class Producer:
    """One transactional producer; ``v`` says in which versions it speaks."""

    s: Session
    name: str
    v: dict[str, int]
    id: int = -1
    epoch: int = -1

    def init(self, version: int = 5, **more: Any) -> Tree:
        """Records the answer; asks again, unrecorded, while an earlier transaction is ended."""
        body = {
            "transactional_id": self.name,
            "transaction_timeout": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
        } | more
        answer = self.s.until(lambda: self._unless_busy(self.s.ask("init_producer_id", version, **body)), "producer id")
        self.s.note(f"{len(self.s.transcript.entries)} init_producer_id", answer)
        if answer["error_code"] == "none":
            self.id, self.epoch = answer["producer_id"], answer["producer_epoch"]
        return answer

    def add(self, *topics: Topic, version: int = 3, **more: Any) -> Tree:
        body = {
            "v3_and_below_transactional_id": self.name,
            "v3_and_below_producer_id": self.id,
            "v3_and_below_producer_epoch": self.epoch,
            "v3_and_below_topics": [{"name": topic.name, "partitions": [0]} for topic in topics],
        } | more

        def ask() -> Tree | None:
            answer = self.s.ask("add_partitions_to_txn", version, **body)
            return None if "concurrent_transactions" in str(answer) else answer

        answer: Tree = self.s.until(ask, "partitions")
        self.s.note(f"{len(self.s.transcript.entries)} add_partitions_to_txn", answer)
        return answer

    def send(self, topic: Topic, sequence: int = 0, *, value: bytes = b"v", note: bool = True, **more: Any) -> Tree:
        fields = {"producer_id": self.id, "producer_epoch": self.epoch, "attributes": TRANSACTIONAL} | more
        records = batch([(b"k", value)], sequence=sequence, **fields)
        body = self.s.produce_body(topic, records) | {"transactional_id": self.name}

        def ask() -> Tree | None:
            answer = self.s.ask("produce", self.v["produce"], **body)
            code = answer["responses"][0]["partition_responses"][0]["error_code"]
            return None if code in ("concurrent_transactions", "not_enough_replicas") else answer

        answer: Tree = self.s.until(ask, "produce")
        if note:
            self.s.note(f"{len(self.s.transcript.entries)} produce", answer)
        return answer

    def end(self, commit: bool, *, version: int | None = None, **more: Any) -> Tree:
        body = {
            "transactional_id": self.name,
            "producer_id": self.id,
            "producer_epoch": self.epoch,
            "committed": commit,
        } | more
        asked = self.v["end_txn"] if version is None else version
        answer: Tree = self.s.until(lambda: self._unless_busy(self.s.ask("end_txn", asked, **body)), "end")
        self.s.note(f"{len(self.s.transcript.entries)} end_txn", answer)
        if answer["error_code"] == "none":
            self.settle()
            if asked >= 5:
                self.id, self.epoch = answer["producer_id"], answer["producer_epoch"]
        return answer

    def add_offsets(self, group: str, version: int = 4) -> Tree:
        return self.s.call(
            "add_offsets_to_txn",
            version,
            transactional_id=self.name,
            producer_id=self.id,
            producer_epoch=self.epoch,
            group_id=group,
        )

    def commit_offset(self, group: str, topic: Topic, offset: int, **more: Any) -> Tree:
        body = {
            "transactional_id": self.name,
            "group_id": group,
            "producer_id": self.id,
            "producer_epoch": self.epoch,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        {
                            "partition_index": 0,
                            "committed_offset": offset,
                            "committed_leader_epoch": -1,
                            "committed_metadata": "m",
                        }
                    ],
                }
            ],
        }
        version = more.pop("version", self.v["txn_offset_commit"])
        return self.s.call("txn_offset_commit", version, **(body | more))

    def describe(self) -> Tree:
        (state,) = self.s.ask("describe_transactions", transactional_ids=[self.name])["transaction_states"]
        return {key: value for key, value in state.items() if not key.startswith("transaction_start")}

    def settle(self) -> None:
        """Kafka answers before the markers are written."""
        self.s.until(lambda: self.describe()["transaction_state"] in ("CompleteCommit", "CompleteAbort", "Empty"))

    @staticmethod
    def _unless_busy(answer: Tree) -> Tree | None:
        busy = answer["error_code"] in ("concurrent_transactions", "coordinator_load_in_progress", "not_coordinator")
        return None if busy else answer


def _new(s: Session, suffix: str = "x", v: dict[str, int] = OLD, *, group: bool = False) -> Producer:
    """A producer that has its id, once the broker is ready for it."""
    producer = Producer(s, s.name(suffix), v)
    for key_type, key in ((1, producer.name), (0, s.name("group"))):
        if key_type == 1 or group:
            s.until(lambda at=key_type, name=key: _ready(s, at, name), "coordinator")
    producer.init()
    return producer


def _ready(s: Session, key_type: int, key: str) -> bool:
    answer = s.ask("find_coordinator", 4, key_type=key_type, coordinator_keys=[key])
    if answer["coordinators"][0]["error_code"] != "none":
        return False
    if key_type == 1:
        probe = s.ask("describe_transactions", transactional_ids=[key])["transaction_states"][0]["error_code"]
        return probe not in ("coordinator_load_in_progress", "not_coordinator", "coordinator_not_available")
    return s.ask("describe_groups", 0, groups=[key])["groups"][0]["error_code"] in ("none", "group_id_not_found")


def _offset(s: Session, group: str, topic: Topic, *, stable: bool) -> None:
    s.call(
        "offset_fetch",
        9,
        require_stable=stable,
        groups=[{"group_id": group, "topics": [{"name": topic.name, "partition_indexes": [0]}]}],
    )


def _look(s: Session, topic: Topic) -> None:
    """What readers of committed records see."""
    answer = s.ask("fetch", **s.fetch_body({topic: {0: 0}}, isolation=1))
    part = answer["responses"][0]["partitions"][0]
    found = [(head["base_offset"], head["attributes"], head["producer_epoch"]) for head in _heads(part["records"])]
    aborted = [(one["producer_id"] != -1, one["first_offset"]) for one in part["aborted_transactions"] or ()]
    s.note(f"{len(s.transcript.entries)} read", {"batches": str(found), "aborted": str(aborted)})
    s.note(f"{len(s.transcript.entries)} ends", [part["high_watermark"], part["last_stable_offset"]])
    s.list_offset(topic, LATEST, isolation=1)


def _heads(records: bytes | None) -> list[Tree]:
    return headers_of(records or b"")


@in_every_version("init_producer_id")
def a_transactional_id_gets_a_new_epoch_each_time(s: Session) -> None:
    producer = _new(s)
    for _ in range(3):
        producer.init(s.version)


def an_id_is_asked_for_with_a_timeout_that_cannot_be(s: Session) -> None:
    producer = _new(s)
    for timeout in (0, -1, 900_000, 900_001, 2**31 - 1):
        producer.init(transaction_timeout=timeout)
    s.call("init_producer_id", 5, transactional_id="", transaction_timeout=1, producer_id=-1, producer_epoch=-1)


def a_producer_goes_on_with_the_epoch_it_had(s: Session) -> None:
    producer = _new(s)
    first = producer.id, producer.epoch
    producer.init(producer_id=first[0], producer_epoch=first[1])
    producer.init(producer_id=first[0], producer_epoch=first[1])
    producer.init(producer_id=first[0], producer_epoch=first[1] + 5)
    producer.init(producer_id=first[0] + 1000, producer_epoch=first[1])
    producer.init()
    producer.init(producer_id=first[0], producer_epoch=first[1], version=3)
    producer.init(producer_id=first[0], producer_epoch=first[1], version=4)


def a_commit_of_an_old_client(s: Session) -> None:
    topic, other = s.topic(), s.topic("u")
    producer = _new(s)
    producer.add(topic)
    producer.add(topic, other)
    s.note("open", producer.describe())
    producer.send(topic, 0)
    producer.send(topic, 1)
    producer.send(topic, 1)
    _look(s, topic)
    producer.end(True)
    s.note("complete", producer.describe())
    _look(s, topic)
    _look(s, other)
    producer.end(True)
    producer.end(False)
    producer.add(topic)
    producer.send(topic, 2)
    producer.end(False)
    _look(s, topic)
    producer.end(False)
    producer.end(True)


def a_commit_of_a_new_client(s: Session) -> None:
    topic, other = s.topic(), s.topic("u")
    producer = _new(s, v=NEW)
    producer.send(topic, 0)
    producer.send(other, 0)
    producer.send(topic, 1)
    s.note("open", producer.describe())
    _look(s, topic)
    producer.end(True)
    s.note("complete", producer.describe())
    _look(s, topic)
    producer.send(topic, 0)
    producer.end(False)
    _look(s, topic)
    _look(s, other)


def an_end_of_a_new_client_that_comes_again(s: Session) -> None:
    topic = s.topic()
    producer = _new(s, v=NEW)
    before = {"producer_id": producer.id, "producer_epoch": producer.epoch}
    producer.send(topic, 0)
    producer.end(True)
    producer.end(True, **before)
    producer.end(False, **before)
    producer.end(True)
    producer.send(topic, 0)
    producer.end(True, **before)
    producer.end(False, **before)
    s.note("open", producer.describe())
    before = {"producer_id": producer.id, "producer_epoch": producer.epoch}
    producer.end(False)
    producer.end(False, **before)
    producer.end(True, **before)
    producer.end(False)
    producer.end(False, producer_epoch=producer.epoch + 3)
    _look(s, topic)


def an_end_without_a_beginning(s: Session) -> None:
    for suffix, v in (("old", OLD), ("new", NEW)):
        for commit in (True, False):
            _new(s, f"{suffix}-{commit}", v).end(commit)
    Producer(s, s.name("unknown"), OLD, 5, 0).end(True)
    Producer(s, s.name("unknown"), NEW, 5, 0).end(True)
    Producer(s, "", OLD, 5, 0).end(True)


@in_every_version("end_txn")
def zombies_may_not_end_a_transaction(s: Session) -> None:
    topic = s.topic()
    zombie = _new(s)
    _new(s)
    zombie.end(True, version=s.version)
    zombie.end(True, version=s.version, producer_id=zombie.id + 1000)
    zombie.end(True, version=s.version, producer_epoch=zombie.epoch + 9)
    _look(s, topic)


@in_every_version("add_offsets_to_txn")
def zombies_may_not_add_offsets(s: Session) -> None:
    zombie = _new(s, group=True)
    _new(s)
    zombie.add_offsets(s.name("group"), s.version)
    zombie.id += 1000
    zombie.add_offsets(s.name("group"), s.version)


def zombies_may_not_add_partitions(s: Session) -> None:
    topic = s.topic()
    zombie = _new(s)
    successor = _new(s)
    for version in (0, 1, 2, 3):
        zombie.add(topic, version=version)
        zombie.add(topic, version=version, v3_and_below_producer_id=zombie.id + 1000)
        successor.add(topic, version=version)
    Producer(s, s.name("unknown"), OLD, 5, 0).add(topic)
    Producer(s, "", OLD, 5, 0).add(topic)


def partitions_that_do_not_exist_are_not_added(s: Session) -> None:
    topic = s.topic()
    producer = _new(s)
    nowhere = Topic(s.name("nowhere"), topic.id)
    producer.add(nowhere)
    producer.add(topic, nowhere)
    s.note("state", producer.describe())


def brokers_ask_whether_partitions_were_added(s: Session) -> None:
    topic, other = s.topic(), s.topic("u")
    producer = _new(s)
    producer.add(topic)
    for version in (4, 5):
        for epoch in (0, 7):
            s.call(
                "add_partitions_to_txn",
                version,
                transactions=[
                    {
                        "transactional_id": producer.name,
                        "producer_id": producer.id,
                        "producer_epoch": producer.epoch + epoch,
                        "verify_only": True,
                        "topics": [{"name": name, "partitions": [0]} for name in (topic.name, other.name)],
                    }
                ],
            )


@in_every_version("produce")
def batches_that_are_not_part_of_a_transaction(s: Session) -> None:
    topic, added = s.topic(), s.topic("added")
    producer = _new(s, v={**OLD, "produce": s.version})
    if s.version < 12:
        producer.add(added)
        producer.send(topic)
    producer.send(added)
    producer.send(added, 1, producer_epoch=producer.epoch + 1)
    producer.send(added, 1, producer_id=producer.id + 1000)
    producer.send(added, 1, attributes=0)
    Producer(s, s.name("unknown"), producer.v, 5, 0).send(topic)
    _new(s)
    producer.send(added, 1)
    producer.send(topic, 0)
    _look(s, topic)


def an_old_batch_after_the_end(s: Session) -> None:
    topic = s.topic()
    for suffix, v in (("old", OLD), ("new", NEW)):
        producer = _new(s, suffix, v)
        if v is OLD:
            producer.add(topic)
        producer.send(topic, 0)
        epoch = producer.epoch
        producer.end(True)
        producer.send(topic, 1, producer_epoch=epoch)
        producer.send(topic, 0, producer_epoch=epoch)
        if v is NEW:
            producer.send(topic, 5)
    _look(s, topic)


def taking_an_id_aborts_its_open_transaction(s: Session) -> None:
    topic = s.topic()
    for suffix, v in (("old", OLD), ("new", NEW)):
        zombie = _new(s, suffix, v)
        if v is OLD:
            zombie.add(topic)
        zombie.send(topic, 0)
        successor = Producer(s, zombie.name, v)
        busy = s.ask(
            "init_producer_id",
            transactional_id=zombie.name,
            transaction_timeout=60_000,
            producer_id=-1,
            producer_epoch=-1,
        )
        s.note("first answer", busy)
        successor.init()
        zombie.send(topic, 1)
        zombie.end(True)
        zombie.end(False)
        _look(s, topic)
        s.note("state", successor.describe())


def offsets_of_an_old_client(s: Session) -> None:
    topic, group = s.topic(), s.name("group")
    producer = _new(s, group=True)
    producer.commit_offset(group, topic, 3)
    producer.add_offsets(group)
    producer.commit_offset(group, topic, 5)
    _offset(s, group, topic, stable=False)
    _offset(s, group, topic, stable=True)
    s.note("open", producer.describe())
    producer.end(True)
    s.until(lambda: _is_stable(s, group, topic))
    _offset(s, group, topic, stable=True)
    producer.add_offsets(group)
    producer.commit_offset(group, topic, 9)
    producer.end(False)
    s.until(lambda: _is_stable(s, group, topic))
    _offset(s, group, topic, stable=True)
    producer.commit_offset(group, topic, 11)
    _offset(s, group, topic, stable=True)


def offsets_of_a_new_client(s: Session) -> None:
    topic, group = s.topic(), s.name("group")
    producer = _new(s, v=NEW, group=True)
    producer.commit_offset(group, topic, 5)
    _offset(s, group, topic, stable=False)
    _offset(s, group, topic, stable=True)
    before = producer.epoch
    producer.end(True)
    s.until(lambda: _is_stable(s, group, topic))
    _offset(s, group, topic, stable=True)
    producer.commit_offset(group, topic, 7, producer_epoch=before)
    _offset(s, group, topic, stable=True)


def _is_stable(s: Session, group: str, topic: Topic) -> bool:
    answer = s.ask(
        "offset_fetch",
        9,
        require_stable=True,
        groups=[{"group_id": group, "topics": [{"name": topic.name, "partition_indexes": [0]}]}],
    )
    code: str = answer["groups"][0]["topics"][0]["partitions"][0]["error_code"]
    return code == "none"


@in_every_version("txn_offset_commit")
def offsets_that_may_not_be_committed(s: Session) -> None:
    topic, group = s.topic(), s.name("group")
    producer = _new(s, group=True)
    if s.version < 5:
        producer.add_offsets(group)
    nowhere = Topic(s.name("nowhere"), topic.id)
    producer.commit_offset(group, nowhere, 1, version=s.version)
    producer.commit_offset(group, topic, 1, version=s.version, producer_epoch=producer.epoch + 1)
    producer.commit_offset(group, topic, 1, version=s.version, producer_id=producer.id + 1000)
    if s.version >= 3:
        producer.commit_offset(group, topic, 1, version=s.version, generation_id=3, member_id="nobody")
        producer.commit_offset(group, topic, 1, version=s.version, generation_id=-1, member_id="nobody")
    producer.commit_offset(group, topic, 4, version=s.version)
    _new(s)
    producer.commit_offset(group, topic, 2, version=s.version)
    s.until(lambda: _is_stable(s, group, topic))
    _offset(s, group, topic, stable=True)


def producers_of_a_partition(s: Session) -> None:
    topic = s.topic()
    producer = _new(s, v=NEW)

    def producers() -> None:
        answer = s.ask("describe_producers", topics=[{"name": topic.name, "partition_indexes": [0, 7]}])
        for part in answer["topics"][0]["partitions"]:
            for one in part["active_producers"]:
                del one["last_timestamp"]
        s.note(f"{len(s.transcript.entries)} producers", answer)

    producers()
    producer.send(topic, 0)
    producers()
    producer.end(True)
    producers()


def transactions_are_described(s: Session) -> None:
    topic, other = s.topic(), s.topic("u")
    producer = _new(s)
    s.note("new", producer.describe())
    producer.add(topic, other)
    s.note("open", producer.describe())
    s.call("describe_transactions", transactional_ids=["", s.name("nobody")])


@in_every_version("list_transactions")
def transactions_are_listed(s: Session) -> None:
    topic = s.topic()
    empty, ongoing, done = (_new(s, name) for name in ("empty", "ongoing", "done"))
    ongoing.add(topic)
    done.add(topic)
    done.end(True)
    mine = {empty.name, ongoing.name, done.name}

    def listed(label: str, **filters: Any) -> None:
        body = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1} | filters
        answer = s.ask("list_transactions", s.version, **body)
        found = [one for one in answer["transaction_states"] if one["transactional_id"] in mine]
        found.sort(key=lambda one: str(one["transactional_id"]))
        states = [[one["transactional_id"], one["transaction_state"]] for one in found]
        s.note(
            label, {"states": str(states), "error": answer["error_code"], "unknown": answer["unknown_state_filters"]}
        )

    listed("all")
    for state in ("Empty", "Ongoing", "CompleteCommit", "Dead", "PrepareEpochFence", "Nonsense"):
        listed(state, state_filters=[state])
    listed("two", state_filters=["Empty", "Ongoing", "Odd"])
    listed("producer", producer_id_filters=[done.id])
    if s.version >= 1:
        listed("long", duration_filter=3_600_000)
        listed("short", duration_filter=0)
    if s.version >= 2:
        listed("pattern", transactional_id_pattern=f".*{s.name('')}(empty|done)")
        listed("part", transactional_id_pattern="empty")
        listed("no pattern", transactional_id_pattern="(")
        listed("empty pattern", transactional_id_pattern="")
