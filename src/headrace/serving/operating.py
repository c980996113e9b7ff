"""What operators look at and do, over HTTP: topics, groups, queues, dead letters. Everything is asked of the
cluster over the Kafka protocol, so a node and Apache Kafka are looked at in the same way."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from starlette.responses import Response

from headrace.errors import InvalidQuery
from headrace.operations.cluster import Cluster
from headrace.operations.dead_letters import (
    LetterCounts,
    Redrive,
    dead_letter_topics,
    letter_json,
    letters_in,
    place_of,
)
from headrace.operations.filters import Wanted
from headrace.operations.groups import about_group, existing_group, lags_of, members_of, move_group
from headrace.operations.positions import parse_position
from headrace.operations.producing import send_record
from headrace.operations.queues import group_settings, in_flight, next_records, parts_of, queue_parts, queues_of
from headrace.operations.share_groups import ShareGroup, share_offsets
from headrace.operations.topics import described_topic, settings_of
from headrace.serving.asking import Asking, group_of, topic_of
from headrace.serving.endpoints import Said
from headrace.serving.pacing import Follower, paced
from headrace.serving.reading import SHOWN_CHARACTERS, WHOLE_CHARACTERS, Found, from_place, newest
from headrace.views.store import offsets_of

__all__ = ["Operating"]


class Operating:
    """The handlers. Each gets what the request says and answers with a value for JSON, or with a response."""

    def __init__(self, on: Asking) -> None:
        self._on, self._letters = on, LetterCounts()

    async def topics(self, _: Said) -> Any:
        """All topics."""
        self._on.sampler.watched()
        look = self._on.look()
        return [{name: value for name, value in one.items() if name != "written"} for one in look.topics.values()]

    async def topic(self, said: Said) -> Any:
        """One topic: partitions, settings, how fast it grows, who reads it."""
        name = topic_of(said)

        def found(cluster: Cluster) -> dict[str, Any]:
            about, partitions = described_topic(cluster, name)
            look = self._on.sampler.look
            sizes = look.disk.sizes if look else {}
            for one in partitions:
                one["bytes"] = sizes.get((name, one["partition"]))
            rates = [list(point) for point in self._on.sampler.topic_rates.get(name, ())]
            groups = [one["group"] for one in (look.groups.values() if look else ()) if name in one.get("topics", ())]
            return {**about, "partitions": partitions, "settings": settings_of(cluster, name)} | {
                "rates": rates,
                "groups": groups,
            }

        return await self._on.ask(found)

    async def records(self, said: Said) -> Any:
        """Records from a place on, or the newest."""
        name, limit = topic_of(said), said.get("limit", 50)
        wanted = Wanted(said.get("key", ""), said.get("value", ""), said.get("header", ""))
        characters = WHOLE_CHARACTERS if said.get("whole") else SHOWN_CHARACTERS
        place = said.get("from", "newest")
        partition = said.get("partition")

        def found() -> Found:
            with self._on.feeds.one() as feed:
                if place == "newest":
                    return newest(feed, name, limit, wanted, partition, characters)
                if ":" in place and not place.startswith("@"):
                    return from_place(feed, name, offsets_of(place), limit, wanted, partition, characters)
                position = parse_position(place, time.time_ns() // 1_000_000)
                return from_place(feed, name, position, limit, wanted, partition, characters)

        return {"topic": name, **(await self._on.threaded(found)).to_json()}

    async def tail(self, said: Said) -> Response:
        """Records as they come."""
        name, since = topic_of(said), said.get("last_event_id") or said.get("from")
        wanted = Wanted(said.get("key", ""), said.get("value", ""), said.get("header", ""))
        follower = Follower(self._on.feeds, name, {}, wanted, said.get("partition"))
        place = offsets_of(since) if since else {}
        await self._on.threaded(lambda: follower.begin(place))

        async def known() -> dict[int, int]:
            return await self._on.streaming.run(follower.ends)

        return self._on.stream(paced(follower, known, lambda: self._on.hub.stopping, self._on.streaming))

    async def produce(self, said: Said) -> Any:
        """Write a record."""
        name, request = topic_of(said), said["request"]
        key, value, headers = said.get("key"), said.get("value"), said.get("headers") or {}
        index, above = said.get("partition"), request.headers.get("traceparent")
        return await self._on.ask(lambda cluster: send_record(cluster, name, key, value, headers, index, above))

    async def groups(self, _: Said) -> Any:
        """All groups."""
        self._on.sampler.watched()
        return list(self._on.look().groups.values())

    async def group(self, said: Said) -> Any:
        """One group: members, offsets, and its lag over time."""
        name = group_of(said)

        def found(cluster: Cluster) -> dict[str, Any]:
            group = existing_group(cluster, name)
            offsets = share_offsets(cluster, name) if isinstance(group, ShareGroup) else None
            lags = [asdict(one) for one in lags_of(cluster, name, None, offsets)]
            points = [list(point) for point in self._on.sampler.group_lags.get(name, ())]
            return {**about_group(group), "members": members_of(group), "offsets": lags, "lags": points}

        return await self._on.ask(found)

    async def move(self, said: Said) -> Any:
        """Move a group."""
        position = parse_position(said["to"], time.time_ns() // 1_000_000)
        topic, index = said.get("topic"), said.get("partition")
        topics, partitions = [topic_of(said)] if topic else None, None if index is None else [index]
        name, dry = group_of(said), bool(said.get("dry_run"))
        rows = await self._on.ask(lambda cluster: move_group(cluster, name, position, topics, partitions, dry_run=dry))
        return {"group": name, "moved": not dry, "offsets": rows}

    async def queues(self, _: Said) -> Any:
        """All queues."""
        return await self._on.ask(queues_of)

    async def queue(self, said: Said) -> Any:
        """One queue, and its next records."""
        name = group_of(said)

        def found(cluster: Cluster) -> dict[str, Any]:
            parts = parts_of(cluster, name)
            group = existing_group(cluster, name)
            return {
                **about_group(group),
                "members": members_of(group),
                "settings": group_settings(cluster, name),
                "in_flight": in_flight(cluster, name),
                "partitions": queue_parts(parts),
                "records": next_records(cluster, parts, said.get("limit", 50)),
            }

        return await self._on.ask(found)

    async def dead_letters(self, _: Said) -> Any:
        """The topics of dead letters."""
        return await self._on.ask(lambda cluster: dead_letter_topics(cluster, self._letters))

    async def letters(self, said: Said) -> Any:
        """Dead letters of a topic."""
        name, limit = topic_of(said), said.get("limit", 100)

        def found(cluster: Cluster) -> dict[str, Any]:
            letters = letters_in(cluster, name)
            return {
                "topic": name,
                "letters": [letter_json(name, one) for one in letters[-limit:]] if limit else [],
                "count": len(letters),
            }

        return await self._on.ask(found)

    async def redrive(self, said: Said) -> Any:
        """Send dead letters back."""
        name, chosen = topic_of(said), said.get("letters") or []
        if bool(chosen) == bool(said.get("all")):
            raise InvalidQuery("say which dead letters to redrive", hint='{"letters": ["0:17"]} or {"all": true}')
        places = {place_of(text) for text in chosen}
        done, homeless = await self._on.ask(lambda cluster: Redrive(cluster, name).run(places))
        return {"topic": name, "redriven": done, "without_topic": homeless}
