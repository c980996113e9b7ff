"""Events with versions of a table, against a plain search through all versions."""

from __future__ import annotations

import json
import pickle

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.joins.enrich import Enrich
from tests.examples import examples
from tests.state.bucket import Bucket
from tests.state.streams import AT, deliveries, frame, run, us

STREAM = {"_id": pl.Int64(), "who": pl.String(), "then": AT, "at": AT}
TABLE = {"name": pl.String(), "rank": pl.Int64()}
CHANGES = {**TABLE, "_deleted": pl.Boolean(), "_version": pl.String(), "_time": AT}
SCHEMAS = {"stream": STREAM, "table": CHANGES}
KEY = st.sampled_from(["a", "a", "b", None])
EVENTS = st.lists(st.tuples(KEY, st.integers(0, 40)), min_size=3, max_size=12)
VERSIONS = st.lists(st.tuples(KEY, st.booleans(), st.integers(0, 40)), min_size=3, max_size=12)


def enriching(as_of: str | None, missing: str, wait: int = 0, history: int | None = None) -> Enrich:
    names = {"rank": "rank", "_version": "people_version"}
    return Enrich(STREAM, TABLE, {"who": "name"}, names, "at", as_of, missing, us(wait), history)


def given_rows(events, versions):
    """Rows by input: an event's ``then`` is a while before it, or a little after; the number of a version is its place
    in the topic."""
    return {
        "stream": [(n, key, at + 3 - n * 7 % 20, at) for n, (key, at) in enumerate(events)],
        "table": [(key, n, gone, str(n), at) for n, (key, gone, at) in enumerate(versions)],
    }


def in_table_order(batches):
    return [version for part, _, _ in batches for version in part["table"]]


def valid(versions, key, at):
    """The last by time, then by the order of the table, that is not after this time."""
    known = [
        (row[-1], place) for place, row in enumerate(versions) if row[0] == key and key is not None and row[-1] <= at
    ]
    if not known or versions[max(known)[1]][2]:
        return None
    return versions[max(known)[1]]


def ahead(event, as_of):
    """Whether an event looks at a time after its own."""
    _, key, then, at = event
    return as_of == "then" and key is not None and then > at


def buried(bucket):
    """The numbers of the events that are dead, each for looking ahead."""
    letters = [letter for frame in bucket.dead for letter in frame.to_dicts()]
    assert all(letter["reason"] == "as-of-ahead" for letter in letters)
    return sorted(json.loads(letter["row"])["_id"] for letter in letters)


def expected(batches, rows, as_of, missing):
    versions, found = in_table_order(batches), []
    for n, key, then, at in rows["stream"]:
        if ahead((n, key, then, at), as_of):
            continue
        version = valid(versions, key, then if as_of == "then" else at)
        if version is not None:
            found.append((n, key, then, at, version[1], version[3]))
        elif missing == "null":
            found.append((n, key, then, at, None, None))
    return found


@examples(25)
@given(EVENTS, VERSIONS, st.sampled_from(["at", "then"]), st.sampled_from(["null", "drop"]), st.data())
def test_every_event_sees_the_version_that_was_valid_at_its_time(events, versions, as_of, missing, data):
    rows = given_rows(events, versions)
    batches = data.draw(deliveries(rows, tables=("table",)))
    bucket = Bucket(enriching(as_of, missing))
    out = run(bucket, batches, SCHEMAS, "at")
    assert sorted(out) == expected(batches, rows, as_of, missing)
    assert buried(bucket) == [event[0] for event in rows["stream"] if ahead(event, as_of)]
    assert bucket.rows("held").is_empty()


def in_turn(batches, as_of, missing, wait, history):
    """Every event with what it gets, batch by batch, with no more memory than what is promised."""
    asks = 2 if as_of == "then" else 3
    known, ever, open_, found = [], [], [], []
    for part, watermark, _ in batches:
        now = -(10**9) if watermark is None else watermark
        bound = now - history if history is not None else now if as_of == "at" else -(10**9)
        known, ever, left = known + part["table"], ever + part["table"], []
        touched = {row[0] for row in part["table"]}
        for event in open_ + [event for event in part["stream"] if not ahead(event, as_of)]:
            key, at, time = event[1], event[asks], event[3]
            if key is not None and at > now:
                left.append(event)
                continue
            version, waits = valid(known, key, at), missing == "wait" and key is not None
            if at >= bound:
                assert version == valid(ever, key, at), "what no event within the bound can ask for is let go, no more"
            version = version or (first_after(known, key, at) if waits else None)
            if version is not None:
                found.append((*event, version[1], version[3]))
            elif waits and time + wait > now:
                left.append(event)
                continue
            elif missing != "drop":
                found.append((*event, None, None))
            touched.add(key)
        known = [row for n, row in enumerate(known) if row[0] not in touched or asked_for(known, n, bound)]
        open_ = left
    assert not open_
    return sorted(found)


def asked_for(versions, place, bound):
    """Whether an event that asks for a time from the bound on may ask for this version."""
    key, *_, gone, _, at = versions[place]
    until = [(row[-1], n) for n, row in enumerate(versions) if row[0] == key and row[-1] <= bound]
    return at > bound or (max(until) == (at, place) and not gone)


def first_after(versions, key, at):
    """The first by time, then by the order of the table, after this time that is not a deletion."""
    later = [(row[-1], place) for place, row in enumerate(versions) if row[0] == key and row[-1] > at and not row[2]]
    return versions[min(later)[1]] if later else None


@examples(40)
@given(
    st.lists(st.tuples(KEY, st.integers(0, 40)), min_size=8, max_size=16),
    st.lists(st.tuples(KEY, st.booleans(), st.integers(0, 40)), min_size=6, max_size=16),
    st.sampled_from(["at", "then", "then"]),
    st.sampled_from(["null", "drop", "wait", "wait"]),
    st.integers(0, 30),
    st.none() | st.integers(0, 20),
    st.data(),
)
def test_an_event_gets_the_version_of_its_time_or_waits_for_the_first_after_it_up_to_a_bound(
    events, versions, as_of, missing, wait, history, data
):
    rows = given_rows(events, versions)
    batches = data.draw(deliveries(rows, tables=("table",)))
    bucket = Bucket(enriching(as_of, missing, wait=wait, history=None if history is None else us(history)))
    out = run(bucket, batches, SCHEMAS, "" if missing == "wait" else "at")
    assert sorted(out) == in_turn(batches, as_of, missing, wait, history)
    assert bucket.rows("held").is_empty()
    assert bucket.rows("awaiting").is_empty()


def test_what_is_waited_for_is_the_first_version_after_the_event():
    bucket = Bucket(enriching("at", "wait", wait=60))
    nothing = {name: frame([], schema) for name, schema in SCHEMAS.items()}
    event = frame([(1, "a", 5, 5)], STREAM)
    assert bucket.step({**nothing, "stream": event}, us(0)).is_empty()
    assert bucket.wake_us == us(5)
    assert bucket.step(nothing, us(5)).is_empty()
    assert bucket.wake_us == us(65)
    gone = frame([("a", 8, True, "8", 6), ("b", 9, False, "9", 7)], CHANGES)
    assert bucket.step({**nothing, "table": gone}, us(8)).is_empty()
    came = frame([("a", 2, False, "2", 20), ("a", 1, False, "1", 10)], CHANGES)
    assert bucket.step({**nothing, "table": came}, us(9))["rank"].to_list() == [1]


def test_an_event_that_waited_too_long_comes_out_with_nulls():
    bucket = Bucket(enriching("at", "wait", wait=60))
    nothing = {name: frame([], schema) for name, schema in SCHEMAS.items()}
    bucket.step({**nothing, "stream": frame([(1, "a", 5, 5)], STREAM)}, us(0))
    bucket.step(nothing, us(5))
    assert bucket.step(nothing, us(64)).is_empty()
    assert bucket.step(nothing, us(65)).select("_id", "rank", "people_version").rows() == [(1, None, None)]


@examples(20)
@given(EVENTS, VERSIONS, st.sampled_from(["null", "drop", "wait"]), st.data())
def test_without_a_time_an_event_sees_the_latest_version_at_once(events, versions, missing, data):
    rows = given_rows(events, versions)
    batches = data.draw(deliveries(rows, tables=("table",)))
    bucket = Bucket(enriching(None, missing, wait=10**7))
    out = run(bucket, batches, SCHEMAS, "")
    latest, expect, waiting = {}, [], []
    for part, _, _ in batches:
        for version in part["table"]:
            latest[version[0]] = None if version[2] else version
        latest.pop(None, None)
        for n, key, then, at in waiting + part["stream"]:
            row = latest.get(key)
            if row is not None:
                expect.append((n, key, then, at, row[1], row[3]))
            elif missing == "null" or (missing == "wait" and key is None):
                expect.append((n, key, then, at, None, None))
        if missing == "wait":
            waiting = [row for row in waiting + part["stream"] if row[1] is not None and latest.get(row[1]) is None]
    assert sorted(out) == sorted(expect)
    assert sorted(bucket.rows("versions")["name"].to_list()) == sorted(key for key, row in latest.items() if row)


def test_what_an_event_sees_that_looks_ahead_of_its_time_is_not_left_to_chance():
    """At 5 it asks for what holds at 50: as it comes, or read again when all versions are there, it is dead."""
    version = frame([("a", 7, False, "7", 40)], CHANGES)
    event, nothing = frame([(1, "a", 50, 5)], STREAM), {name: frame([], kind) for name, kind in SCHEMAS.items()}
    live, replay = Bucket(enriching("then", "null")), Bucket(enriching("then", "null"))
    assert live.step({**nothing, "stream": event}, us(0)).is_empty()
    assert live.step({**nothing, "table": version}, us(60)).is_empty()
    assert replay.step({"stream": event, "table": version}, None).is_empty()
    assert buried(live) == buried(replay) == [1]


def test_versions_that_no_event_can_ask_for_are_let_go():
    """A rate that changes every second: one version behind the watermark is kept, and those after it."""
    bucket = Bucket(enriching("at", "null"))
    for second in range(0, 300, 10):
        rows = [("a", at, False, str(at), at) for at in range(second, second + 10)]
        event = frame([(second, "a", second, second + 9)], STREAM)
        bucket.step({"stream": event, "table": frame(rows, CHANGES)}, us(second - 1))
    assert len(bucket.rows("versions")) == 11


def test_history_is_kept_for_events_that_ask_for_an_older_time():
    bucket = Bucket(enriching("then", "null", history=us(100)))
    for second in range(0, 300, 10):
        row = frame([("a", second, False, str(second), second)], CHANGES)
        bucket.step({"stream": frame([], STREAM), "table": row}, us(second - 1))
    asked = frame([(1, "a", 250, 295), (2, "a", 195, 295), (3, "a", 50, 295)], STREAM)
    out = bucket.step({"stream": asked, "table": frame([], CHANGES)}, us(290))
    assert sorted(out.select("_id", "rank").rows()) == [(1, 250), (2, 190), (3, None)]
    assert len(bucket.rows("versions")) == 11


def test_a_key_with_half_of_all_events_and_versions_finds_its_versions_as_the_others_do():
    """20,000 events and versions in batches: every version of the key by every event of it would be 100 million."""
    n, size, out = 20_000, 2_000, []
    asked = ["a" if at % 2 else f"k{at % 97}" for at in range(n)]
    events = [(at, asked[at], at, at) for at in range(n)]
    versions = [(asked[-1 - at], at, at % 11 == 0, str(at), at) for at in range(n)]
    bucket, nothing = Bucket(enriching("at", "null")), {name: frame([], kind) for name, kind in SCHEMAS.items()}
    for begin in range(0, n, size):
        delta = {"stream": frame(events[begin : begin + size], STREAM)}
        delta["table"] = frame(versions[begin : begin + size], CHANGES)
        out += bucket.step(delta, us(begin - 1)).select("_id", "rank").rows()
    out += bucket.step(nothing, us(n)).select("_id", "rank").rows()
    latest, expect = {}, []
    for at in range(n):
        key, rank, gone, *_ = versions[at]
        latest[key] = None if gone else rank
        expect.append((at, latest.get(asked[at])))
    assert sorted(out) == expect
    assert len(bucket.rows("versions").filter(pl.col("name") == "a")) <= size + 1


def test_the_operator_travels_to_workers():
    assert pickle.loads(pickle.dumps(enriching("at", "null"))) == enriching("at", "null")
