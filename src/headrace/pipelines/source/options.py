"""What a reader of the log is told: plain data, which travels to Spark's workers as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.pipelines.time import DeviceClock, skew_ms

__all__ = ["SourceOptions"]

_CLIENT = "client.password"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Which topic is read, by which query, as which columns, and how its event time is kept."""

    bootstrap: str
    topic: str
    query: str
    """Also the consumer group that progress is committed to."""
    schema: str
    """Spark DDL."""
    data: str | None = None
    """The log's data folder, if it is on the driver's machine."""
    machine: str | None = None
    """Which machine that is: readers on others fetch, even if they see a folder of that name."""
    columns: tuple[str, ...] | None = None
    """Decode only these; all if None. The event time is always decoded. A row must fit the schema in the others too."""
    raw: bool = False
    """Also key, value, headers, topic, partition, offset, timestamp; as ``_key`` and so on where they clash."""
    event_time: str | None = None
    lateness_ms: int = 0
    idle_after_ms: int = 30_000
    """A partition without records for so long is no longer waited for."""
    max_future_ms: int = 3_600_000
    """A row with an event time later than now by more is dead: it would run the watermark away."""
    device_clock: DeviceClock | None = None
    start: str = "earliest"
    """``earliest``, ``latest``, or an ISO time."""
    position: str | None = None
    """Where reading begins instead, as the JSON of a position: where a query was that was rescaled."""
    max_records_per_trigger: int | None = None
    client: tuple[tuple[str, str], ...] = ()
    """More settings for the Kafka client."""
    versions: bool = False
    """Of changes: also ``_time``, since when a change holds, and ``_version``, its id."""
    valid_from: str | None = None
    """The column that ``_time`` is taken from where it is not null; otherwise it is the record's timestamp."""
    kind: str = "events"
    """``events``; or ``changes`` of a table, where a record without a value is the deletion of its key (a JSON object
    of the key columns), and a column ``_deleted`` says so."""
    form: str = "plain"
    """``plain`` rows; ``debezium``, the envelopes of a captured table, which are changes; ``outbox``, events that come
    with ``_id``, ``_type``, ``_aggregate`` and ``_key``."""
    history: bool = False
    """Whether the topic keeps every change: then a tombstone says nothing that its deletion has not said."""
    traced: bool = False
    """Of events: also ``_traceparent``, the header of the record."""

    @property
    def delay_ms(self) -> int:
        """The delay of Spark's watermark: the lateness, and how far partitions may be apart."""
        return self.lateness_ms + skew_ms(self.lateness_ms)

    def to_options(self) -> dict[str, str]:
        """As Spark's options. Those with a secret have a name whose value Spark does not show or log."""
        said = dataclasses.asdict(self)
        client = said.pop("client")
        return {"source": json.dumps(said), _CLIENT: json.dumps(client)}

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> SourceOptions:
        """What ``to_options`` made."""
        found, client = json.loads(options["source"]), json.loads(options[_CLIENT])
        clock, columns = found.pop("device_clock"), found.pop("columns")
        return cls(
            **found,
            columns=None if columns is None else tuple(columns),
            client=tuple((name, value) for name, value in client),
            device_clock=None if clock is None else DeviceClock(**clock),
        )
