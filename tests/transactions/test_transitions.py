"""The decisions by themselves: every state against every request, as Kafka's table has it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker import error_codes as codes
from headrace.broker.markers import MAX_EPOCH
from headrace.broker.refused import Refused
from headrace.broker.transactions import transitions
from headrace.broker.transactions.records import Phase, Transaction

NOW = 1_000
SAME, BUMPED, FENCED, BUSY, NOT_NOW = "same", "bumped", codes.PRODUCER_FENCED, codes.CONCURRENT_TRANSACTIONS, 48
ENDED = "ended"


def at(phase: Phase, epoch: int = 5, **more: object) -> Transaction:
    places = (
        frozenset({("t", 0)}) if phase in (Phase.ONGOING, Phase.PREPARE_COMMIT, Phase.PREPARE_ABORT) else frozenset()
    )
    return replace(Transaction(1, epoch, 60_000, phase, places, 0, 0), **more)  # type: ignore[arg-type]


def outcome(current: Transaction, call: Callable[[], Transaction]) -> str | int:
    try:
        found = call()
    except Refused as refused:
        return refused.code
    if found is current:
        return SAME
    assert found.phase.is_ending
    return BUMPED if found.epoch == current.epoch + 1 else ENDED


def end(current: Transaction, epoch: int, commit: bool, version: int) -> str | int:
    return outcome(
        current,
        lambda: transitions.end(
            current, 1, epoch, commit=commit, version=version, now_ms=NOW, new_producer_id=lambda: 99
        ),
    )


@pytest.mark.parametrize(
    ("phase", "commit", "abort"),
    [
        (Phase.EMPTY, NOT_NOW, NOT_NOW),
        (Phase.ONGOING, ENDED, ENDED),
        (Phase.PREPARE_COMMIT, BUSY, NOT_NOW),
        (Phase.PREPARE_ABORT, NOT_NOW, BUSY),
        (Phase.COMPLETE_COMMIT, SAME, NOT_NOW),
        (Phase.COMPLETE_ABORT, NOT_NOW, SAME),
    ],
)
def test_ends_of_old_clients(phase: Phase, commit: str | int, abort: str | int) -> None:
    current = at(phase)
    assert end(current, 5, True, 0) == commit
    assert end(current, 5, False, 0) == abort
    assert {end(current, epoch, wanted, 0) for epoch in (4, 6) for wanted in (True, False)} == {FENCED}


@pytest.mark.parametrize(
    ("phase", "commit", "abort", "commit_again", "abort_again"),
    [
        (Phase.EMPTY, NOT_NOW, BUMPED, FENCED, FENCED),
        (Phase.ONGOING, BUMPED, BUMPED, FENCED, FENCED),
        (Phase.PREPARE_COMMIT, FENCED, FENCED, BUSY, NOT_NOW),
        (Phase.PREPARE_ABORT, FENCED, FENCED, NOT_NOW, BUSY),
        (Phase.COMPLETE_COMMIT, NOT_NOW, BUMPED, SAME, NOT_NOW),
        (Phase.COMPLETE_ABORT, NOT_NOW, BUMPED, NOT_NOW, SAME),
    ],
)
def test_ends_of_new_clients(
    phase: Phase, commit: str | int, abort: str | int, commit_again: str | int, abort_again: str | int
) -> None:
    current = at(phase)
    assert (end(current, 5, True, 2), end(current, 5, False, 2)) == (commit, abort)
    assert (end(current, 4, True, 2), end(current, 4, False, 2)) == (commit_again, abort_again)
    assert {end(current, epoch, wanted, 2) for epoch in (3, 6) for wanted in (True, False)} == {FENCED}


@pytest.mark.parametrize("phase", list(Phase))
def test_another_producer_id_is_never_right(phase: Phase) -> None:
    current = at(phase)
    for version, commit in itertools.product((0, 2), (True, False)):
        with pytest.raises(Refused) as refused:
            transitions.end(current, 2, 5, commit=commit, version=version, now_ms=NOW, new_producer_id=lambda: 99)
        assert refused.value.code == codes.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("phase", list(Phase))
def test_partitions_are_added_in_every_state_but_the_ending_ones(phase: Phase) -> None:
    current = at(phase)
    if phase.is_ending:
        with pytest.raises(Refused) as refused:
            transitions.add_partitions(current, 1, 5, [("u", 0)], 0, NOW)
        assert refused.value.code == BUSY
        return
    found = transitions.add_partitions(current, 1, 5, [("u", 0)], 0, NOW)
    assert found.phase is Phase.ONGOING
    assert found.partitions == current.partitions | {("u", 0)}
    assert found.started_ms == (0 if phase is Phase.ONGOING else NOW)
    assert transitions.add_partitions(found, 1, 5, [("u", 0)], 0, NOW + 1) is found


@pytest.mark.parametrize("phase", list(Phase))
def test_taking_an_id_ends_an_open_transaction_first(phase: Phase) -> None:
    current = at(phase)
    if phase.is_ending:
        with pytest.raises(Refused) as refused:
            transitions.initialise(current, 1, None, NOW, lambda: 99)
        assert refused.value.code == BUSY
        return
    found = transitions.initialise(current, 30_000, None, NOW, lambda: 99)
    assert found.epoch == 6
    if phase is Phase.ONGOING:
        assert found.phase is Phase.PREPARE_ABORT
        assert found.partitions == current.partitions
    else:
        assert (found.phase, found.timeout_ms, found.partitions) == (Phase.EMPTY, 30_000, frozenset())


@pytest.mark.parametrize("expected", [None, (1, MAX_EPOCH - 1)])
def test_who_takes_an_id_without_epochs_left_gets_another_producer_id(expected: tuple[int, int] | None) -> None:
    current = at(Phase.COMPLETE_COMMIT, MAX_EPOCH - 1)
    found = transitions.initialise(current, 1, expected, NOW, lambda: 99)
    assert (found.producer_id, found.epoch, found.previous_producer_id) == (99, 0, 1)
    if expected is not None:
        again = transitions.initialise(found, 1, expected, NOW, lambda: 100)
        assert (again.producer_id, again.epoch) == (99, 0)


def test_the_last_epoch_is_never_given_to_a_client() -> None:
    fenced = transitions.complete(transitions.fence(at(Phase.ONGOING, MAX_EPOCH - 1), NOW), NOW)
    assert fenced.epoch == MAX_EPOCH
    assert end(fenced, MAX_EPOCH - 1, False, 2) == FENCED
    assert transitions.initialise(fenced, 1, None, NOW, lambda: 99).producer_id == 99
    ending = transitions.end(
        at(Phase.ONGOING, MAX_EPOCH - 1),
        1,
        MAX_EPOCH - 1,
        commit=True,
        version=2,
        now_ms=NOW,
        new_producer_id=lambda: 99,
    )
    assert (ending.producer_id, ending.epoch) == (1, MAX_EPOCH)
    done = transitions.complete(ending, NOW)
    assert (done.producer_id, done.epoch, done.previous_producer_id) == (99, 0, 1)
    assert end(done, MAX_EPOCH - 1, True, 2) == SAME


STEPS = st.lists(
    st.tuples(st.sampled_from(["init", "add", "commit", "abort", "fence", "complete"]), st.sampled_from([0, 2])),
    max_size=30,
)


@given(STEPS)
def test_an_epoch_is_never_given_twice_to_different_owners(steps: list[tuple[str, int]]) -> None:
    """Along any history the pair of producer id and epoch only grows, and a decision is only followed by its end."""
    ids = itertools.count(1)
    current: Transaction | None = None
    for step, version in steps:
        before = current
        try:
            if step == "init":
                current = transitions.initialise(current, 60_000, None, NOW, lambda: next(ids))
            elif current is None:
                continue
            elif step == "add":
                current = transitions.add_partitions(
                    current, current.producer_id, current.epoch, [("t", 0)], version, NOW
                )
            elif step in ("commit", "abort"):
                current = transitions.end(
                    current,
                    current.producer_id,
                    current.epoch,
                    commit=step == "commit",
                    version=version,
                    now_ms=NOW,
                    new_producer_id=lambda: next(ids),
                )
            elif step == "fence" and current.phase is Phase.ONGOING:
                current = transitions.fence(current, NOW)
            elif step == "complete" and current.phase.is_ending:
                current = transitions.complete(current, NOW)
        except Refused:
            assert current is before
            continue
        if before is not None and current is not None:
            assert (current.producer_id, current.epoch) >= (before.producer_id, before.epoch)
            if step == "init" and current.phase is Phase.EMPTY:
                assert (current.producer_id, current.epoch) > (before.producer_id, before.epoch)
            if before.phase.is_ending and current is not before:
                commit = before.phase is Phase.PREPARE_COMMIT
                assert current.phase is (Phase.COMPLETE_COMMIT if commit else Phase.COMPLETE_ABORT)
