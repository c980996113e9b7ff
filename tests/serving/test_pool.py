"""Threads for one kind of work: turns are held until threads end, whoever has stopped waiting."""

from __future__ import annotations

import asyncio
import threading

import pytest

from headrace.errors import ServerAway
from headrace.serving.pool import Pool


def test_a_turn_is_held_until_its_thread_ends() -> None:
    began, release = threading.Event(), threading.Event()
    ran: list[str] = []

    def slow() -> None:
        began.set()
        release.wait()
        ran.append("slow")

    async def asked() -> None:
        pool = Pool("test", 1)
        first = asyncio.create_task(pool.run(slow))
        await asyncio.to_thread(began.wait)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        second = asyncio.create_task(pool.run(ran.append, "next"))
        await asyncio.sleep(0)
        assert ran == []
        release.set()
        await second
        pool.close()

    asyncio.run(asked())
    assert ran == ["slow", "next"]


def test_who_waits_too_long_is_told_and_what_had_no_turn_is_not_begun() -> None:
    release = threading.Event()
    ran: list[str] = []

    async def asked() -> None:
        pool = Pool("test", 1, patience_s=0.0)
        for work in (release.wait, lambda: ran.append("late")):
            with pytest.raises(ServerAway, match="no answer within"):
                await pool.run(work)
        release.set()
        pool.close()

    asyncio.run(asked())
    assert ran == []
