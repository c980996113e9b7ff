"""The example of home timelines against a recomputation from who follows whom and what was posted."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from headrace.pipelines.load import load_app
from headrace.testing import AppUnderTest, Crash, Deleted

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "home_timeline.py"
PEOPLE = ["ada", "bob", "cyd", "dan"]


class Plain:
    """Everything that was done, and what timelines are then."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.tweets: dict[int, dict[str, Any]] = {}
        self.follows: set[tuple[str, str]] = set()

    def tweet(self, number: int) -> dict[str, Any] | Deleted:
        """Post, post anew under another name, or delete."""
        if number in self.tweets and self.chance.random() < 0.5:
            del self.tweets[number]
            return Deleted({"id": number})
        author, at = self.chance.choice(PEOPLE), f"2026-01-01T00:00:{number:02}.000000Z"
        self.tweets[number] = {"id": number, "author": author, "text": f"by {author}", "posted_at": at}
        return self.tweets[number]

    def follow(self) -> dict[str, Any] | Deleted:
        """Follow, or stop to."""
        follower, followee = pair = self.chance.choice(PEOPLE), self.chance.choice(PEOPLE)
        row = {"follower": follower, "followee": followee}
        if pair in self.follows:
            self.follows.remove(pair)
            return Deleted(row)
        self.follows.add(pair)
        return row

    def timeline(self) -> list[dict[str, Any]]:
        return [
            {**tweet, "follower": follower, "followee": followee}
            for follower, followee in sorted(self.follows)
            for tweet in self.tweets.values()
            if tweet["author"] == followee
        ]

    def followers(self) -> list[dict[str, Any]]:
        found = {name: sum(followee == name for _, followee in self.follows) for name in PEOPLE}
        return [{"followee": name, "followers": count} for name, count in found.items() if count]


def test_timelines_follow_posts_deletions_follows_and_unfollows_over_crashes(tmp_path: Path) -> None:
    plain = Plain(7)
    with AppUnderTest(load_app(str(EXAMPLE)), tmp_path) as run:
        for crash in ([], [Crash()]):
            run.send("follows", *(plain.follow() for _ in range(12)), *crash)
            run.send("tweets", *(plain.tweet(plain.chance.randrange(12)) for _ in range(12)))
            key = ("follower", "id")
            found = sorted(run.view("home_timeline"), key=lambda row: [row[name] for name in key])
            assert found == sorted(plain.timeline(), key=lambda row: [row[name] for name in key])
            assert run.view("followers") == plain.followers()
        assert found, "somebody follows somebody"
