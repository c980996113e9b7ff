"""A record as JSON: text where it is text, base64 where it is not."""

from __future__ import annotations

import base64
from typing import Any

__all__ = ["bytes_fields", "message_json", "record_json"]


def message_json(message: Any) -> dict[str, Any]:
    """A message of the Kafka client as a JSON object."""
    return record_json(
        message.topic(),
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        message.headers() or [],
    )


def record_json(
    topic: str,
    partition: int,
    offset: int,
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
) -> dict[str, Any]:
    """A record as a JSON object; bytes that are not UTF-8 appear as ``key_base64``, ``value_base64``."""
    return {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp_ms": timestamp_ms,
        **bytes_fields("key", key),
        **bytes_fields("value", value),
        "headers": [{"name": name, **bytes_fields("value", data)} for name, data in headers],
    }


def bytes_fields(name: str, data: bytes | None) -> dict[str, str | None]:
    """Text under its name, or base64 under ``<name>_base64``."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
