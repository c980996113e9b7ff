"""How far a batch goes, without Spark and without a broker."""

from __future__ import annotations

import bisect
import json
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.pipelines.source import SourceOptions
from headrace.pipelines.source.planning import Counts, Position, Range, ceiling_ms, fit_to_limit, tasks
from headrace.pipelines.source.reports import Report, Reports, report_key, total_value
from headrace.pipelines.time import DeviceClock, late_bound


def test_a_position_goes_to_json_and_back() -> None:
    position = Position("t", {0: 1}, {0: 5, 10: 3}, 7, 8, Counts(4, 1, 2))
    assert Position.from_dict(json.loads(json.dumps(position.to_dict()))) == position
    assert position.ranges == [Range(0, 1, 5), Range(10, 0, 3)]


def test_options_go_to_spark_and_back_and_secrets_apart() -> None:
    options = SourceOptions(
        "b", "t", "q", "a int", columns=("a",), client=(("x", "y"),), device_clock=DeviceClock("o", "s")
    )
    told = options.to_options()
    assert SourceOptions.from_options(told) == options
    assert [name for name, value in told.items() if '"y"' in value] == ["client.password"]  # which Spark redacts


def test_the_slowest_partition_that_is_not_idle_holds_the_others_back() -> None:
    newest = {0: 1_000, 1: 50_000, 2: 60_000, 3: -1}
    assert ceiling_ms(newest, now_ms=61_000, idle_after_ms=30_000, skew_ms=1_000) == 51_000
    assert ceiling_ms(newest, now_ms=61_000, idle_after_ms=100_000, skew_ms=1_000) == 2_000


def test_nothing_is_held_back_when_partitions_are_close_or_all_idle() -> None:
    assert ceiling_ms({0: 59_500, 1: 60_000}, 61_000, 30_000, 1_000) is None
    assert ceiling_ms({0: 1_000, 1: 60_000}, 1_000_000, 30_000, 1_000) is None
    assert ceiling_ms({0: -1, 1: -1}, 1_000, 30_000, 1_000) is None


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_a_limited_batch_is_cut_at_one_time_in_all_partitions(data: st.DataObject) -> None:
    logs = {
        index: sorted(data.draw(st.lists(st.integers(0, 5_000), max_size=40)))
        for index in range(data.draw(st.integers(1, 4)))
    }
    limit = data.draw(st.integers(1, 60))
    position = dict.fromkeys(logs, 0)
    ends = {index: len(log) for index, log in logs.items()}
    for _ in range(200):
        if position == ends:
            break
        found = fit_to_limit(
            position,
            ends,
            limit,
            (0, 5_001),
            lambda at: {index: bisect.bisect_left(log, at) for index, log in logs.items()},
        )
        rows = sum(found[index] - position[index] for index in logs)
        assert 0 < rows <= limit
        assert all(position[index] <= found[index] <= ends[index] for index in logs)
        position = found
    assert position == ends


def test_of_records_that_came_evenly_a_batch_that_fits_is_found_at_once() -> None:
    log = range(1_790_000_000_000, 1_790_000_300_000, 3)
    asked = []

    def offset_at(at: int) -> dict[int, int]:
        asked.append(at)
        return {index: bisect.bisect_left(log, at) for index in range(4)}

    ends = dict.fromkeys(range(4), len(log))
    found = fit_to_limit(dict.fromkeys(range(4), 0), ends, 40_000, (log[0], log[-1] + 1), offset_at)
    assert 32_000 <= sum(found.values()) <= 40_000
    assert len(set(found.values())) == len(asked) == 1


def test_tasks_depend_on_the_ranges_alone_and_are_few_while_rows_are_few() -> None:
    small = [Range(index, 0, 10) for index in range(8)]
    assert len(tasks(small)) == 1
    big = [Range(0, 0, 90_000), Range(1, 0, 10_000), Range(2, 5, 10_005)]
    groups = tasks(big)
    assert sorted(one for group in groups for one in group) == big
    assert len(groups) == 3
    assert tasks(list(reversed(big))) == groups


def test_reports_are_folded_into_the_next_position_and_forgotten() -> None:
    rng = random.Random(1)
    reports, position, total, largest = Reports("q", "t"), Position("t", {0: 0, 1: 0}, {0: 0, 1: 0}), Counts(), 0
    for _ in range(20):
        ends = {index: end + rng.randrange(3) for index, end in position.offsets.items()}
        batch = Position("t", position.offsets, ends, largest or None, 0, total)
        for read in batch.ranges:
            time = rng.randrange(10_000)
            report = Report(Counts(read.end - read.start, rng.randrange(2), 0), time)
            for _ in range(rng.randrange(1, 3)):  # a range that is read again reports the same
                reports.add([(report_key("q", "t", read).encode(), report.to_json())])
            total, largest = total.plus(report.counts), max(largest, time)
        assert reports.folded(batch) == (largest or None, total)
        assert reports.counts() == total
        reports.add([(b"q/t", total_value(batch.offsets, largest, total))])
        reports.add([(report_key("q", "t", read).encode(), None) for read in reports.covered(batch.start)])
        assert reports.counts() == total
        assert len(reports.ranges) <= 4
        position = batch


def test_reports_of_others_are_none_of_ours() -> None:
    reports = Reports("q", "t")
    value = Report(Counts(1, 1, 1), 5).to_json()
    reports.add([(b"q/tt/0/0-1", value), (b"qq/t/0/0-1", value), (None, b"x"), (b"q", b"x")])
    assert (reports.counts(), reports.ranges) == (Counts(), {})


def test_the_bound_is_sparks_own_in_whole_milliseconds() -> None:
    assert late_bound(None, 5) is None
    assert late_bound(10_999, 4) == 6_000
