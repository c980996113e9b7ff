"""What must hold of every history of a log with transactions, groups and queues; each law returns what breaks it.

In the spirit of Jepsen's checker for Kafka. Nothing here is a guess: a finding is a contradiction between what the
broker told two clients, or one client twice. What nobody was told (a send without an answer, a commit that ended with
the connection) may have happened or not, but only as a whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from tests.checker.facts import Accept, Facts, Seen, Send, Transaction
from tests.checker.history import Event, Place


@dataclass(frozen=True, slots=True)
class Finding:
    """One contradiction: its kind and a sentence."""

    kind: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


def check(history: Iterable[Event]) -> list[Finding]:
    """All that is wrong with a history; nothing when it is right."""
    facts = Facts.of(history)
    return [finding for law in LAWS for finding in law(facts)]


def _at(place: Place, offset: int | None = None) -> str:
    return f"{place[0]}/{place[1]}" + ("" if offset is None else f" offset {offset}")


def values_are_unique(facts: Facts) -> Iterator[Finding]:
    """Not of the broker but of the workload: without it nothing below means anything."""
    for value in facts.twice_sent:
        yield Finding("bad-history", f"{value} was sent twice by the workload itself")


def an_offset_has_one_record(facts: Facts) -> Iterator[Finding]:
    """Readers, and the acknowledgement, agree on what lies at an offset."""
    claims: dict[tuple[Place, int], dict[str, str]] = defaultdict(dict)
    for send in facts.sends.values():
        if send.offset is not None:
            claims[send.place, send.offset].setdefault(send.value, f"acknowledged to {send.process}")
    for one in facts.seen:
        claims[one.place, one.offset].setdefault(one.value, f"read by {one.process}")
    for (place, offset), found in claims.items():
        if len(found) > 1:
            told = ", ".join(f"{value} ({who})" for value, who in found.items())
            yield Finding("inconsistent", f"{_at(place, offset)} holds {told}")


def a_record_has_one_offset(facts: Facts) -> Iterator[Finding]:
    read: dict[str, set[tuple[Place, int]]] = defaultdict(set)
    for one in facts.seen:
        read[one.value].add((one.place, one.offset))
    for value, found in read.items():
        if len(found) > 1:
            yield Finding("duplicated", f"{value} was read at {', '.join(_at(*where) for where in sorted(found))}")
        send = facts.sends.get(value)
        if send is not None and send.offset is not None and (send.place, send.offset) not in found:
            where = ", ".join(_at(*each) for each in sorted(found))
            yield Finding(
                "inconsistent", f"{value} was acknowledged at {_at(send.place, send.offset)}, read at {where}"
            )


def nothing_is_read_that_was_not_sent(facts: Facts) -> Iterator[Finding]:
    for value in {one.value for one in facts.seen} - facts.sends.keys():
        yield Finding("phantom", f"{value} was read and nobody sent it")


def what_was_promised_is_read(facts: Facts) -> Iterator[Finding]:
    """What was acknowledged is read by somebody once the partition is read beyond it; by all who read to the end."""
    seen = {one.value for one in facts.seen if one.committed_only}
    farthest: dict[Place, int] = {}
    for one in facts.seen:
        farthest[one.place] = max(one.offset, farthest.get(one.place, -1))
    for send in facts.sends.values():
        passed = send.offset is not None and send.offset < farthest.get(send.place, -1)
        if passed and facts.promised(send) and send.value not in seen:
            yield Finding("lost", f"{send.value} was acknowledged at {_at(send.place, send.offset)}, read by nobody")
    visible, offsets = facts.visible(), facts.offsets()
    for process, ends in facts.drains:
        mine = {one.value for one in facts.seen if one.process == process}
        for value in visible.keys() - mine:
            place = visible[value].place
            if place in ends:
                where = _at(place, offsets.get(value))
                yield Finding(
                    "lost", f"{value} belongs at {where}; {process} read to the end ({ends[place]}) without it"
                )


def a_reader_skips_nothing(facts: Facts) -> Iterator[Finding]:
    """Between two records that one reader got one after the other there is none that it should have got."""
    by_place: dict[Place, list[tuple[int, str]]] = defaultdict(list)
    offsets = facts.offsets()
    for value, send in facts.visible().items():
        if value in offsets:
            by_place[send.place].append((offsets[value], value))
    for run in facts.runs:
        yield from _skipped(run, by_place[run[0].place])


def _skipped(run: list[Seen], there: list[tuple[int, str]]) -> Iterator[Finding]:
    mine = {one.offset for one in run}
    for offset, value in there:
        if run[0].offset < offset < run[-1].offset and offset not in mine:
            yield Finding("lost", f"{run[0].process} read {_at(run[0].place)} around offset {offset} without {value}")


def a_reader_goes_forward(facts: Facts) -> Iterator[Finding]:
    for run in facts.runs:
        for before, after in pairwise(run):
            if after.offset <= before.offset:
                where = _at(before.place, before.offset)
                yield Finding("reordered", f"{before.process} read {where}, then offset {after.offset}")


def a_partition_keeps_a_producers_order(facts: Facts) -> Iterator[Finding]:
    offsets = facts.offsets()
    sent: dict[tuple[str, Place], list[Send]] = defaultdict(list)
    for send in facts.sends.values():
        if send.value in offsets:
            sent[send.process, send.place].append(send)
    for (process, place), sends in sent.items():
        sends.sort(key=lambda send: send.order)
        for before, after in pairwise(sends):
            if offsets[after.value] <= offsets[before.value]:
                order = f"{before.value} at {offsets[before.value]}, then {after.value} at {offsets[after.value]}"
                yield Finding("reordered", f"{process} sent to {_at(place)} {order}")


def what_was_taken_back_is_never_read(facts: Facts) -> Iterator[Finding]:
    """Jepsen's G1a: a reader of committed records gets none of an aborted transaction, nor one that was refused."""
    for one in facts.seen:
        send = facts.sends.get(one.value)
        if send is not None and one.committed_only and facts.taken_back(send):
            why = f"transaction {send.txn} was aborted" if send.txn else "it was refused"
            yield Finding("aborted-read", f"{one.process} read {one.value} at {_at(one.place, one.offset)}; {why}")


def nothing_is_read_before_its_commit(facts: Facts) -> Iterator[Finding]:
    for one in facts.seen:
        send = facts.sends.get(one.value)
        if send is None or send.txn is None or not one.committed_only:
            continue
        asked = facts.transactions[send.txn].commit_at
        if asked is None or one.time < asked:
            what = f"{one.value} at {_at(one.place, one.offset)} before {send.txn} was to be committed"
            yield Finding("early-read", f"{one.process} read {what}")


def a_transaction_is_seen_whole(facts: Facts) -> Iterator[Finding]:
    """If one of its records is there, all are, wherever somebody read to the end."""
    seen = {one.value for one in facts.seen if one.committed_only}
    drained = {place for _, ends in facts.drains for place in ends}
    for transaction in facts.transactions.values():
        there = [send for send in transaction.sends if send.value in seen]
        missing = [send for send in transaction.sends if send.value not in seen and send.place in drained]
        if there and missing:
            what = f"{there[0].value} was read, {missing[0].value} of the same transaction was not"
            yield Finding("torn", f"{transaction.id}: {what}")


def offsets_and_records_agree(facts: Facts) -> Iterator[Finding]:
    """A transaction's offsets count exactly when its records do; a commit that was acknowledged is not forgotten."""
    told = _Offsets(facts)
    for group, places in facts.final.items():
        for place, offset in places.items():
            where = (group, place)
            least = max(told.by_transaction[where], told.plain[where])
            if offset < least:
                kind = "torn" if told.by_transaction[where] > offset else "lost"
                yield Finding(kind, f"{group} committed {least} of {_at(place)} and it is {offset} now")
            if offset > least and not told.may_be(where, offset):
                what = f"{group} stands at {offset} of {_at(place)}"
                yield Finding("torn", f"{what}; the records that are there explain {least}")


class _Offsets:
    """The highest offset that each group committed for certain, and those that it may have."""

    def __init__(self, facts: Facts) -> None:
        seen = {one.value for one in facts.seen if one.committed_only}
        drained = {place for _, ends in facts.drains for place in ends}
        self.by_transaction: dict[tuple[str, Place], int] = defaultdict(int)
        self.plain: dict[tuple[str, Place], int] = defaultdict(int)
        self._possible: set[tuple[str, Place, int]] = set()
        for transaction in facts.transactions.values():
            if transaction.group is not None:
                self._add(transaction.group, transaction, seen, drained)
        for group, place, offset, certain in facts.commits:
            self._possible.add((group, place, offset))
            if certain:
                self.plain[group, place] = max(offset, self.plain[group, place])

    def may_be(self, where: tuple[str, Place], offset: int) -> bool:
        return (*where, offset) in self._possible

    def _add(self, group: str, transaction: Transaction, seen: set[str], drained: set[Place]) -> None:
        happened = transaction.outcome == "committed" or any(send.value in seen for send in transaction.sends)
        nobody_looked = not transaction.sends or any(send.place not in drained for send in transaction.sends)
        for place, offset in transaction.positions.items():
            if happened:
                self.by_transaction[group, place] = max(offset, self.by_transaction[group, place])
            elif transaction.outcome == "unknown" and nobody_looked:
                self._possible.add((group, place, offset))


def each_input_has_one_output(facts: Facts) -> Iterator[Finding]:
    """Consume, transform, produce: below a group's final offset every record has one output, above it none."""
    seen = {one.value for one in facts.seen if one.committed_only}
    outputs: dict[tuple[str, str], list[str]] = defaultdict(list)
    for transaction in facts.transactions.values():
        if transaction.group is not None:
            for send in transaction.sends:
                if send.source is not None and send.value in seen:
                    outputs[transaction.group, send.source].append(send.value)
    inputs = {(one.place, one.offset, one.value) for one in facts.seen if one.committed_only}
    groups = {transaction.group for transaction in facts.transactions.values()}
    for group in facts.final.keys() & groups:
        for place, offset, value in inputs:
            if group is not None and place in facts.final[group]:
                found = outputs[group, value]
                yield from _one_output(group, place, offset, value, found, offset < facts.final[group][place])


def _one_output(
    group: str, place: Place, offset: int, value: str, found: list[str], consumed: bool
) -> Iterator[Finding]:
    where = f"{value} at {_at(place, offset)}"
    if len(found) > 1:
        yield Finding("processed-twice", f"{group} made {', '.join(found)} of {where}")
    elif consumed and not found:
        yield Finding("unprocessed", f"{group} passed {where} and made nothing of it")
    elif found and not consumed:
        yield Finding("torn", f"{group} made {found[0]} of {where}, which it has not passed")


def an_accepted_record_is_done(facts: Facts) -> Iterator[Finding]:
    """Of a share group: accepted once, by one consumer, and not offered again to one that came later.

    A consumer that was there before may still hold a copy that it was given before the broker was killed.
    """
    accepted: dict[tuple[str, Place, int], Accept] = {}
    for one in facts.accepts:
        if one.outcome == "ok":
            known = accepted.setdefault((one.share, one.place, one.offset), one)
            if known is not one:
                who = f"{known.process} and {one.process}"
                yield Finding("redelivered", f"{one.share}: {_at(one.place, one.offset)} was accepted by {who}")
    for share, one in facts.delivered:
        done = accepted.get((share, one.place, one.offset))
        if done is not None and done.time < facts.began[one.process]:
            what = f"{_at(one.place, one.offset)} came to {one.process}, which began after {done.process} accepted it"
            yield Finding("redelivered", f"{share}: {what}")


def every_record_is_delivered(facts: Facts) -> Iterator[Finding]:
    """Of a share group that was emptied: each record was somebody's."""
    offsets, visible = facts.offsets(), facts.visible()
    for share, (process, _, topics) in facts.emptied.items():
        delivered = {(one.place, one.offset) for name, one in facts.delivered if name == share}
        for value, send in visible.items():
            if send.place[0] in topics and value in offsets and (send.place, offsets[value]) not in delivered:
                where = _at(send.place, offsets[value])
                yield Finding(
                    "undelivered", f"{share}: {value} at {where} came to nobody, {process} found the queue empty"
                )


LAWS = (
    values_are_unique,
    an_offset_has_one_record,
    a_record_has_one_offset,
    nothing_is_read_that_was_not_sent,
    what_was_promised_is_read,
    a_reader_skips_nothing,
    a_reader_goes_forward,
    a_partition_keeps_a_producers_order,
    what_was_taken_back_is_never_read,
    nothing_is_read_before_its_commit,
    a_transaction_is_seen_whole,
    offsets_and_records_agree,
    each_input_has_one_output,
    an_accepted_record_is_done,
    every_record_is_delivered,
)
