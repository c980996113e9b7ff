"""How many copies new topics get."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from headrace.feed.brokers import Brokers, brokers_of, placement

TWO = {"min.insync.replicas": "2"}


@pytest.mark.parametrize(
    ("brokers", "replication", "in_sync", "wanted"),
    [
        (1, None, None, (1, {})),
        (2, None, None, (2, {})),  # of two copies one may be lost only if one is enough
        (3, None, None, (3, TWO)),
        (9, None, None, (3, TWO)),
        (9, 2, None, (-1, {})),  # somebody has chosen
        (9, 3, None, (-1, TWO)),
        (9, None, 1, (3, {})),
        (9, 3, 3, (-1, {})),
    ],
)
def test_three_copies_unless_somebody_has_chosen(
    brokers: int, replication: int | None, in_sync: int | None, wanted: tuple[int, dict[str, str]]
) -> None:
    assert placement(brokers, replication, in_sync) == wanted


@pytest.mark.parametrize(
    ("asked", "wanted"), [(None, (3, TWO)), (-1, (3, TWO)), (1, (1, {})), (2, (2, {})), (3, (3, TWO)), (5, (5, TWO))]
)
def test_fewer_copies_than_three_may_all_but_one_be_lost(asked: int | None, wanted: tuple[int, dict[str, str]]) -> None:
    assert Brokers(False, (), 3, TWO).copies(asked) == wanted


class Secretive:
    """A cluster that does not let us see its settings."""

    def list_topics(self, timeout: float) -> Any:
        known = {number: SimpleNamespace(host=f"kafka{number}", port=9092) for number in range(3)}
        return SimpleNamespace(brokers=known, topics={})

    def describe_configs(self, resources: list[Any], **_: Any) -> dict[Any, Future[Any]]:
        refused: Future[Any] = Future()
        refused.set_exception(KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED)))
        return dict.fromkeys(resources, refused)


def test_topics_have_three_copies_where_the_clusters_settings_may_not_be_seen() -> None:
    found = brokers_of(Secretive())  # type: ignore[arg-type]
    assert (found.embedded, found.copies(None)) == (False, (3, TWO))
