"""When a task or the worker is started anew."""

from __future__ import annotations

from itertools import pairwise

from headrace.capture.watchdog import Action, Seen, Watchdog


def actions(watchdog: Watchdog, seen: list[Seen], every_s: float = 5.0) -> list[Action]:
    return [watchdog.look(one, number * every_s) for number, one in enumerate(seen)]


def test_while_something_moves_nothing_is_done_whatever_the_state_is_called() -> None:
    seen = [Seen(True, "UNASSIGNED", moved=number, progress=number) for number in range(100)]
    assert set(actions(Watchdog(), seen)) == {Action.NOTHING}


def test_what_stands_still_is_started_anew_and_then_its_worker_is() -> None:
    found = actions(Watchdog(hang_s=60), [Seen(True, "RUNNING", moved=7)] * 30)
    assert [action for action in found if action is not Action.NOTHING][:2] == [
        Action.RESTART_TASK,
        Action.RESTART_WORKER,
    ]
    assert found.index(Action.RESTART_TASK) == 13
    assert found.index(Action.RESTART_WORKER) == 26


def test_what_moves_again_after_its_task_was_started_keeps_its_worker() -> None:
    seen = [Seen(True, "RUNNING", moved=0)] * 15 + [Seen(True, "RUNNING", moved=1)] * 14
    assert Action.RESTART_WORKER not in actions(Watchdog(hang_s=60), seen)


def test_standing_still_is_not_held_against_it_while_the_database_or_the_log_is_away() -> None:
    for state in ("RUNNING", "FAILED"):
        seen = [Seen(True, state, moved=7, judged=False)] * 100
        assert set(actions(Watchdog(), seen)) == {Action.NOTHING}


def test_a_worker_that_does_not_answer_is_started_anew() -> None:
    found = actions(Watchdog(silent_s=45), [Seen(True, moved=1), *[Seen(False)] * 12])
    assert found.index(Action.RESTART_WORKER) == 10


def test_a_failed_task_is_started_anew_after_pauses_that_grow() -> None:
    watchdog = Watchdog()
    found = actions(watchdog, [Seen(True, "FAILED", moved=7)] * 200, every_s=0.5)
    starts = [number for number, action in enumerate(found) if action is Action.RESTART_TASK]
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    assert len(starts) >= 4
    assert gaps == sorted(gaps)
    assert gaps[-1] > gaps[0]
    assert watchdog.restarts == len(starts)


def test_a_heart_that_beats_while_no_change_comes_is_not_enough_and_each_time_the_patience_is_doubled() -> None:
    seen = [Seen(True, "RUNNING", moved=number, progress=7) for number in range(500)]
    found = actions(Watchdog(stall_s=300), seen)
    assert set(found) == {Action.NOTHING, Action.RESTART_WORKER}
    starts = [number * 5 for number, action in enumerate(found) if action is Action.RESTART_WORKER]
    assert starts[:3] == [305, 910, 2115]


def test_where_changes_came_again_the_patience_is_as_at_first() -> None:
    stuck = [Seen(True, "RUNNING", moved=number, progress=7) for number in range(130)]
    moving = [Seen(True, "RUNNING", moved=number, progress=8) for number in range(200, 330)]
    starts = [
        n * 5 for n, action in enumerate(actions(Watchdog(stall_s=300), stuck + moving)) if action.name != "NOTHING"
    ]
    assert starts == [305, 650 + 305]


def test_what_is_stored_and_not_confirmed_to_the_database_is_a_reason_each_time_after_twice_as_long() -> None:
    seen = [Seen(True, "RUNNING", moved=number, progress=number, unconfirmed=7) for number in range(500)]
    found = actions(Watchdog(stall_s=300), seen)
    assert set(found) == {Action.NOTHING, Action.RESTART_TASK}
    assert [number * 5 for number, action in enumerate(found) if action is Action.RESTART_TASK][:3] == [305, 910, 2115]


def test_confirmations_that_come_late_or_are_not_expected_are_no_reason() -> None:
    def all_seen(confirmed: list[int | None], judged: bool = True) -> list[Seen]:
        return [Seen(True, "RUNNING", n, n, unconfirmed, judged) for n, unconfirmed in enumerate(confirmed)]

    behind = all_seen([n // 50 for n in range(500)])
    in_time = all_seen([7 if n % 60 else None for n in range(500)])
    nothing_written = all_seen([None] * 500)
    paused = all_seen([7] * 500, judged=False)
    for seen in (behind, in_time, nothing_written, paused, [*all_seen([7] * 60), *paused, *all_seen([7] * 60)]):
        assert set(actions(Watchdog(stall_s=300), seen)) == {Action.NOTHING}
