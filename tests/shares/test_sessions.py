"""Share sessions by themselves."""

from __future__ import annotations

import pytest

from headrace.broker.shares.sessions import SessionRefused, ShareSession, ShareSessions, are_names


def code(action: object) -> int:
    with pytest.raises(SessionRefused) as refused:
        action()  # type: ignore[operator]
    return refused.value.code


def test_there_are_only_so_many_and_a_member_has_one() -> None:
    sessions = ShareSessions(2)
    first, _ = sessions.open("g", "a"), sessions.open("g", "b")
    assert code(lambda: sessions.open("g", "c")) == 133
    again = sessions.open("g", "a")
    assert first.closed
    assert not sessions.drop(first), "the connection of the old one ends later, and that is nothing to the new one"
    assert sessions.drop(again)
    assert len(sessions) == 1
    other = sessions.open("g", "b")
    assert sessions.of_group("g") == [other]


def test_epochs_count_up_and_begin_again_at_one() -> None:
    sessions = ShareSessions(2)
    session = sessions.open("g", "a")
    assert sessions.resume("g", "a", 1) is session
    assert code(lambda: sessions.resume("g", "a", 1)) == 123
    assert code(lambda: sessions.resume("g", "x", 2)) == 122
    session.epoch = 2**31 - 1
    sessions.resume("g", "a", 2**31 - 1)
    assert session.epoch == 1
    assert sessions.close("g", "a").closed
    assert code(lambda: sessions.close("g", "a")) == 122


def test_a_partition_that_gave_comes_last() -> None:
    session = ShareSession("g", "a")
    for index in range(3):
        session.followed.setdefault((b"t", index))
    session.to_the_back((b"t", 0))
    session.to_the_back((b"gone", 7))
    assert list(session.followed) == [(b"t", 1), (b"t", 2), (b"t", 0)]


def test_names_are_there_and_not_too_long() -> None:
    assert are_names("g", "m" * 36)
    assert not any(are_names(*names) for names in ((None, "m"), ("", "m"), ("g", None), ("g", ""), ("g", "m" * 37)))
