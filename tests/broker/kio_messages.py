"""Random messages of every API and version, made and encoded with kio: what our codecs are compared with."""

from __future__ import annotations

import dataclasses
import datetime
import io
import random
import types
import typing
import uuid
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_writer
from kio.static.constants import EntityType

from headrace.broker import wire

_RANGES = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
_ERRORS = list(ErrorCode)


def api_versions(api_key: int) -> list[int]:
    return sorted(schema_name_map[api_key_map[api_key]])


def entity(api_key: int, version: int, kind: EntityType) -> Any:
    return wire._entity(api_key, version, kind.name)


def encode(message: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(message))(out, message)
    return out.getvalue()


def random_message(cls: Any, rng: random.Random) -> Any:
    hints = typing.get_type_hints(cls)
    return cls(**{field.name: _random_field(field, hints[field.name], rng) for field in dataclasses.fields(cls)})


def _random_field(field: Any, hint: Any, rng: random.Random) -> Any:
    if field.default is not dataclasses.MISSING and rng.random() < 0.2:
        return field.default
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        if rng.random() < 0.3 and "tag" not in field.metadata:
            return None
        hint = next(arg for arg in typing.get_args(hint) if arg is not types.NoneType)
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)[0]
        return tuple(_random_value(field, inner, rng) for _ in range(rng.choice((0, 1, 2, 3))))
    return _random_value(field, hint, rng)


def _random_value(field: Any, hint: Any, rng: random.Random) -> Any:
    if dataclasses.is_dataclass(hint):
        return random_message(hint, rng)
    kind = field.metadata["kafka_type"]
    if kind in _RANGES:
        bits = rng.randrange(1, _RANGES[kind] + 1)
        return rng.choice((-1, 1)) * rng.getrandbits(bits)
    match kind:
        case "string":
            return "".join(rng.choice("abcé漢-._") for _ in range(rng.choice((0, 1, 5, 130))))
        case "bytes" | "records":
            return rng.randbytes(rng.choice((0, 1, 100, 20000)))
        case "uuid":
            return uuid.UUID(int=rng.getrandbits(128))
        case "bool":
            return rng.random() < 0.5
        case "error_code":
            return rng.choice(_ERRORS)
        case "float64":
            return rng.random()
        case "uint16":
            return rng.getrandbits(16)
        case "uint32":
            return rng.getrandbits(32)
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=rng.randrange(0, 2**31 - 1))
        case "datetime_i64":
            return datetime.datetime.fromtimestamp(rng.randrange(1, 2**32), tz=datetime.UTC)
    raise AssertionError(kind)
