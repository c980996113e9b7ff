"""The checker finds each kind of fault when it is planted, and nothing in what a correct log writes."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checker import model
from tests.checker.history import Event, Recorder, Type, load
from tests.checker.laws import check


class Story:
    """A small history, told step by step."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._times = itertools.count(1)

    def tell(self, process: str, f: str, type: Type = "ok", op: int | None = None, **data: Any) -> int:
        time = next(self._times)
        self.events.append(Event(time, process, op or time, type, f, data))
        return op or time

    def send(self, value: str, offset: int | None, *, partition: int = 0, end: Type = "ok", **more: Any) -> Story:
        process = more.pop("process", "writer")
        op = self.tell(process, "send", "invoke", topic="t", partition=partition, value=value, **more)
        self.tell(process, "send", end, op, **({} if offset is None else {"offset": offset}))
        return self

    def end(self, txn: str, *, commit: bool = True, end: Type | None = "ok", **more: Any) -> Story:
        op = self.tell("writer", "end", "invoke", txn=txn, commit=commit, **more)
        if end is not None:
            self.tell("writer", "end", end, op)
        return self

    def poll(self, *records: tuple[int, str], process: str = "reader", partition: int = 0, **more: Any) -> Story:
        self.tell(process, "poll", records=[["t", partition, offset, value] for offset, value in records], **more)
        return self

    def drained(self, *ends: int, process: str = "reader") -> Story:
        self.tell(process, "drained", ends={f"t/{index}": end for index, end in enumerate(ends)})
        return self

    def committed(self, offset: int) -> Story:
        self.tell("reader", "committed", group="g", positions={"t/0": offset})
        return self

    def accept(self, offset: int, process: str, end: Type = "ok") -> Story:
        op = self.tell(process, "accept", "invoke", share="s", topic="t", partition=0, offset=offset, value="")
        self.tell(process, "accept", end, op)
        return self

    @property
    def kinds(self) -> set[str]:
        return {finding.kind for finding in check(self.events)}


def test_a_right_story_has_no_findings() -> None:
    story = Story().send("a", 0).send("b", 1, txn="x").send("c", 0, partition=1, txn="x").end("x")
    story.poll((0, "a"), (1, "b")).poll((0, "c"), partition=1).drained(3, 2)
    assert story.kinds == set()


def test_lost_when_an_acknowledged_record_is_passed_by() -> None:
    story = Story().send("a", 0).send("b", 1).poll((1, "b"))
    assert story.kinds == {"lost"}


def test_lost_when_the_end_comes_before_an_acknowledged_record() -> None:
    assert Story().send("a", 0).send("b", 1).poll((0, "a")).drained(1).kinds == {"lost"}


def test_lost_when_somebody_read_it_before_and_it_is_gone() -> None:
    story = Story().send("a", None, end="unknown").send("b", 1).poll((0, "a"), (1, "b"), process="earlier")
    assert story.poll((1, "b")).drained(2).kinds == {"lost"}


def test_lost_when_one_reader_skips_what_another_read() -> None:
    story = Story().send("a", 0).send("b", 1).send("c", 2).poll((0, "a"), (1, "b"), (2, "c"), process="other")
    assert story.poll((0, "a"), (2, "c")).kinds == {"lost"}
    story = Story().send("a", 0).send("b", 1).send("c", 2).poll((0, "a"), (1, "b"), (2, "c"), process="other")
    story.poll((0, "a")).tell("reader", "assign")
    assert story.poll((2, "c")).kinds == set(), "a reader that starts anew may start anywhere"


def test_not_lost_when_nobody_knows_or_nobody_looked() -> None:
    assert Story().send("a", None, end="unknown").send("b", 0).poll((0, "b")).drained(1).kinds == set()
    assert Story().send("a", 0).send("b", 1).poll((0, "a")).kinds == set()


def test_duplicated_when_a_record_is_read_at_two_offsets() -> None:
    assert "duplicated" in Story().send("a", 0).poll((0, "a"), (1, "a")).kinds


def test_inconsistent_when_readers_differ_about_an_offset() -> None:
    story = Story().send("a", None, end="unknown").send("b", None, end="unknown")
    assert "inconsistent" in story.poll((0, "a")).poll((0, "b"), process="other").kinds


def test_inconsistent_when_an_offset_is_acknowledged_twice_or_not_where_it_is_read() -> None:
    assert Story().send("a", 0).send("b", 0, process="other").kinds == {"inconsistent"}
    assert Story().send("a", 0).poll((1, "a")).kinds == {"inconsistent"}


def test_reordered_when_a_producers_records_change_places() -> None:
    assert Story().send("a", 1).send("b", 0).poll((0, "b"), (1, "a")).kinds == {"reordered"}
    story = Story().send("a", 1).send("b", 0, process="other").poll((0, "b"), (1, "a"))
    assert story.kinds == set(), "two producers have no order"


def test_reordered_when_a_reader_goes_back() -> None:
    assert Story().send("a", 0).send("b", 1).poll((1, "b")).poll((0, "a")).kinds == {"reordered"}


def test_phantom_when_nobody_sent_it() -> None:
    assert Story().poll((0, "a")).kinds == {"phantom"}


def test_aborted_read() -> None:
    story = Story().send("a", 0, txn="x").end("x", commit=False).poll((0, "a"))
    assert "aborted-read" in story.kinds
    story = Story().send("a", 0, txn="x").end("x", end="fail").poll((0, "a"))
    assert "aborted-read" in story.kinds
    assert Story().send("a", None, end="fail").poll((0, "a")).kinds == {"aborted-read"}
    story = Story().send("a", 0, txn="x").end("x", commit=False).poll((0, "a"), isolation="read_uncommitted")
    assert story.kinds == set(), "who wants to see everything does"


def test_early_read_when_the_commit_was_not_asked_for_yet() -> None:
    assert Story().send("a", 0, txn="x").poll((0, "a")).end("x").kinds == {"early-read"}


def test_torn_when_one_partition_has_it_and_the_other_does_not() -> None:
    for end in ("ok", None):
        story = Story().send("a", 0, txn="x").send("b", 0, partition=1, txn="x").end("x", end=end)
        assert "torn" in story.poll((0, "a")).drained(2, 2).kinds


def test_a_commit_without_an_answer_is_there_or_not() -> None:
    for records in ([], [(0, "a")]):
        assert Story().send("a", 0, txn="x").end("x", end=None).poll(*records).drained(2).kinds == set()


def test_torn_when_offsets_and_records_disagree() -> None:
    def story(end: Type | None) -> Story:
        told = Story().send("in", 0).send("out", 0, partition=1, txn="x", source="in", process="copier")
        return told.end("x", end=end, group="g", positions={"t/0": 1}).poll((0, "in"))

    assert story("ok").poll((0, "out"), partition=1).drained(1, 2).committed(1).kinds == set()
    assert story("ok").poll((0, "out"), partition=1).drained(1, 2).committed(0).kinds == {"torn"}
    assert story(None).poll((0, "out"), partition=1).drained(1, 2).committed(0).kinds == {"torn"}
    assert "torn" in story(None).drained(1, 2).committed(1).kinds
    assert story(None).drained(1, 2).committed(0).kinds == set()


def test_lost_when_a_committed_offset_is_forgotten() -> None:
    story = Story()
    op = story.tell("reader", "commit", "invoke", group="g", positions={"t/0": 5})
    story.tell("reader", "commit", "ok", op)
    assert story.committed(5).kinds == set()
    assert story.committed(4).kinds == {"lost"}


def test_processed_twice_and_unprocessed() -> None:
    story = Story().send("in", 0)
    for number in range(2):
        story.send(f"out{number}", number * 2, partition=1, txn=f"x{number}", source="in", process="copier")
        story.end(f"x{number}", group="g", positions={"t/0": 1})
    story.poll((0, "in")).poll((0, "out0"), (2, "out1"), partition=1)
    assert story.drained(1, 4).committed(1).kinds == {"processed-twice"}
    story = Story().send("in", 0).send("next", 1).end("x", group="g", positions={"t/0": 2}).poll((0, "in"), (1, "next"))
    assert story.drained(2).committed(2).kinds == {"unprocessed"}


def test_redelivered_when_two_accept_it_or_a_later_consumer_gets_it() -> None:
    story = Story().send("a", 0).poll((0, "a"), process="one", share="s").accept(0, "one")
    assert story.kinds == set()
    story.poll((0, "a"), process="two", share="s")
    assert story.kinds == {"redelivered"}
    story = Story().send("a", 0).poll((0, "a"), process="two", share="s").poll((0, "a"), process="one", share="s")
    assert story.accept(0, "one").accept(0, "two", "fail").kinds == set()
    assert story.accept(0, "two").kinds == {"redelivered"}


def test_undelivered_when_the_queue_is_empty_and_a_record_came_to_nobody() -> None:
    story = Story().send("a", 0).send("b", 1).poll((1, "b"), process="one", share="s").accept(1, "one")
    assert story.kinds <= {"lost"}
    story.tell("last", "queue-empty", share="s", topics=["t"])
    assert "undelivered" in story.kinds


def test_a_workload_that_repeats_itself_is_told() -> None:
    assert "bad-history" in Story().send("a", 0).send("a", 1).kinds


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 80))
def test_what_a_correct_log_writes_has_no_findings(seed: int, steps: int) -> None:
    assert check(model.history(seed, steps)) == []


Plant = Callable[[list[Any], list[list[Any]]], bool]


def lose(record: list[Any], records: list[list[Any]]) -> bool:
    records.remove(record)
    return True


def double(record: list[Any], records: list[list[Any]]) -> bool:
    records.append([*record[:2], records[-1][2] + 1, record[3]])
    return True


def swap(record: list[Any], records: list[list[Any]]) -> bool:
    other = records[-1]
    record[3], other[3] = other[3], record[3]
    return other is not record


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([lose, double, swap]), st.data())
def test_whatever_the_last_reader_gets_wrong_is_found(seed: int, plant: Plant, data: st.DataObject) -> None:
    history = model.history(seed, 60)
    drained = [event for event in history if event.process == "drain" and event.f == "poll"]
    if not drained:
        return
    records = data.draw(st.sampled_from(drained)).data["records"]
    if plant(data.draw(st.sampled_from(records)), records):
        assert check(history)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_an_abort_that_is_called_a_commit_is_found(seed: int) -> None:
    history = model.history(seed, 60)
    ends = {(event.process, event.op): event for event in history if event.f == "end" and event.type == "ok"}
    for index, event in enumerate(history):
        if event.f == "end" and event.type == "invoke" and (event.process, event.op) in ends:
            history[index] = dataclasses.replace(event, data={**event.data, "commit": not event.data["commit"]})
            break
    else:
        return
    assert check(history)


def test_a_recorded_history_is_read_back_and_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    one, two = Recorder(tmp_path, "one"), Recorder(tmp_path, "two")
    op = one.invoke("send", topic="t", partition=0, value="a")
    two.note("poll", records=[["t", 0, 0, "a"]])
    one.end(op, "ok", "send", offset=0)
    one.close()
    two.close()
    with (tmp_path / "two.jsonl").open("a") as file:
        file.write('[1,"two",')
    found = load(tmp_path)
    assert [(event.process, event.type, event.f) for event in found] == [
        ("one", "invoke", "send"),
        ("two", "ok", "poll"),
        ("one", "ok", "send"),
    ]
    assert check(found) == []


@pytest.mark.parametrize("line", ['[1,"p",1,"ok","kill",{}]'])
def test_an_event_is_its_line(line: str) -> None:
    assert Event.of_line(line).line() == line
