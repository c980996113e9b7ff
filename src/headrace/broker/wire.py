"""The Kafka protocol's messages, for every API and version; the only module that knows kio.

kio's generated classes are used as the schema: from each a reader (requests) or writer (responses) is put together,
when the first message of its API and version comes, because loading them all takes a second.

Names are Kafka's own in snake case (``throttle_time_ms``), times are whole milliseconds, ids are ``uuid.UUID``.

- A request is decoded to an object with the fields of its version *and* of the newest version: those that its version
  lacks have their default, so a handler need not ask for the version.
- A response is a tree of dicts (or of objects with attributes), with any names of any version: fields that the version
  asked for lacks are left out, and fields that the tree lacks get their default.

Produce and Fetch have codecs of their own (``codecs/``); these here are what tests compare them with.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import struct
import sys
import types
import typing
from typing import Any, Final

from headrace.broker.primitives import NO_UUID, READERS, WRITERS, Cursor, Reader, Writer, unsigned_varint
from headrace.errors import InvalidRequest

__all__ = [
    "RequestCodec",
    "ResponseCodec",
    "Struct",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
    "has_error_code",
    "newest_version",
    "read_client_id",
    "request_codec",
    "response_codec",
]

_EMPTY: Final = {"string": "", "bytes": b"", "records": None, "uuid": NO_UUID, "bool": False, "float64": 0.0}


class _Field(typing.NamedTuple):
    name: str
    kio_name: str
    kafka_type: str
    nested: type | None
    array: bool
    optional: bool
    tag: int | None
    default: Any


class Struct:
    """What a message or a part of it is decoded to. Equal if all fields are."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.__dict__ = fields

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"this message has no field '{name}'; it has {', '.join(self.__dict__)}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Struct) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Struct({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"


@dataclasses.dataclass(frozen=True, slots=True)
class RequestCodec:
    """How to read and write one version of a request."""

    flexible: bool
    read: Reader
    write: Writer


@dataclasses.dataclass(frozen=True, slots=True)
class ResponseCodec:
    """How to read and write one version of a response; ``header_tags`` if its header ends with a tag section."""

    header_tags: bool
    has_error_code: bool
    read: Reader
    write: Writer


_requests: dict[tuple[int, int], RequestCodec] = {}
_responses: dict[tuple[int, int], ResponseCodec] = {}


def request_codec(api_key: int, version: int) -> RequestCodec:
    """The codec of a request that exists in Kafka 4.3."""
    codec = _requests.get((api_key, version))
    if codec is None:
        entity, newest = _entity(api_key, version, "request"), _entity(api_key, newest_version(api_key), "request")
        codec = RequestCodec(entity.__flexible__, _struct_reader(entity, newest), _struct_writer(entity))
        _requests[api_key, version] = codec
    return codec


def response_codec(api_key: int, version: int) -> ResponseCodec:
    """The codec of a response that exists in Kafka 4.3."""
    codec = _responses.get((api_key, version))
    if codec is None:
        entity = _entity(api_key, version, "response")
        header_tags = entity.__header_schema__.__version__ == 1
        has_error_code = any(field.name == "error_code" for field in dataclasses.fields(entity))
        codec = ResponseCodec(header_tags, has_error_code, _struct_reader(entity, entity), _struct_writer(entity))
        _responses[api_key, version] = codec
    return codec


def decode_request(api_key: int, version: int, body: memoryview | bytes, pos: int = 0) -> Any:
    """The request whose body (what follows the header) begins at ``pos``; InvalidRequest if it is malformed."""
    return request_codec(api_key, version).read(Cursor(memoryview(body), pos))


def decode_response(api_key: int, version: int, body: memoryview | bytes, pos: int = 0) -> Any:
    """The response whose body begins at ``pos``: for tests and tools."""
    cursor = Cursor(memoryview(body), pos)
    message = response_codec(api_key, version).read(cursor)
    if cursor.pos != cursor.end:
        raise InvalidRequest(f"{cursor.end - cursor.pos} bytes after the end of the message")
    return message


def encode_request(api_key: int, version: int, request: Any) -> bytearray:
    """The body of a request: for tests and tools."""
    out = bytearray()
    request_codec(api_key, version).write(out, request)
    return out


def encode_response(api_key: int, version: int, correlation_id: int, response: Any) -> bytearray:
    """A whole response frame: length, header, body."""
    codec = response_codec(api_key, version)
    out = bytearray(8)
    if codec.header_tags:
        out.append(0)
    codec.write(out, response)
    struct.pack_into(">ii", out, 0, len(out) - 4, correlation_id)
    return out


def read_client_id(cursor: Cursor) -> str | None:
    """The client's name in a request header, which has the old form of a string in every version."""
    return typing.cast("str | None", READERS["string", False, True](cursor))


def has_error_code(api_key: int, version: int) -> bool:
    """Whether a response can say that the request failed as a whole."""
    return response_codec(api_key, version).has_error_code


def newest_version(api_key: int) -> int:
    """The newest version of an API that kio has."""
    from kio.schema.index import api_key_map, schema_name_map

    return max(schema_name_map[api_key_map[api_key]])


@functools.cache
def _load_kio_types() -> None:
    """Import kio's basic types without hypothesis, which they import where it is installed: it takes 0.2 s."""
    if "hypothesis" in sys.modules:
        return
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        importlib.import_module("kio.static.primitive")
    finally:
        del sys.modules["hypothesis"]


def _entity(api_key: int, version: int, kind: str) -> Any:
    _load_kio_types()
    from kio.schema.index import api_key_map

    name = api_key_map[api_key]
    module = importlib.import_module(f"kio.schema.{name}.v{version}.{kind}")
    return getattr(module, "".join(part.capitalize() for part in name.split("_")) + kind.capitalize())


def _fields(entity: Any) -> list[_Field]:
    hints = typing.get_type_hints(entity)
    return [_field(field, hints[field.name]) for field in dataclasses.fields(entity)]


def _field(field: dataclasses.Field[Any], hint: Any) -> _Field:
    optional = False
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        optional = True
        hint = next(arg for arg in typing.get_args(hint) if arg is not types.NoneType)
    array = typing.get_origin(hint) is tuple
    if array:
        hint = typing.get_args(hint)[0]
    nested = hint if dataclasses.is_dataclass(hint) else None
    kafka_type = "" if nested else field.metadata["kafka_type"]
    name = field.name + "_ms" if kafka_type.startswith(("timedelta", "datetime")) else field.name
    tag = field.metadata.get("tag")
    return _Field(
        name,
        field.name,
        kafka_type,
        typing.cast("type | None", nested),
        array,
        optional,
        tag,
        _default(field, kafka_type, nested, array),
    )


def _default(field: dataclasses.Field[Any], kafka_type: str, nested: Any, array: bool) -> Any:
    given = field.default
    if given is not dataclasses.MISSING and given is not None:
        if kafka_type.startswith("timedelta"):
            return round(given.total_seconds() * 1000)
        if kafka_type.startswith("datetime"):
            return round(given.timestamp() * 1000)
        if nested and not array:
            return Struct({inner.name: getattr(given, inner.kio_name) for inner in _fields(nested)})
        if kafka_type in ("string", "bytes", "uuid", "bool", "float64") or array:
            return given
        return int(given)
    if given is None:
        return -1 if kafka_type.startswith("datetime") else NO_UUID if kafka_type == "uuid" else None
    if array:
        return ()
    if nested:
        return Struct({inner.name: inner.default for inner in _fields(nested)})
    return _EMPTY.get(kafka_type, 0)


def _struct_reader(entity: Any, newest: Any) -> Reader:
    """Reads ``entity`` and adds what only ``newest`` has."""
    fields = _fields(entity)
    newest_fields = {field.name: field for field in _fields(newest)}
    template = {field.name: field.default for field in newest_fields.values()}
    template.update({field.name: field.default for field in fields})
    plain: list[tuple[str, Reader]] = []
    tagged: dict[int, tuple[str, Reader]] = {}
    for field in fields:
        counterpart = newest_fields.get(field.name, field).nested
        read = _field_reader(field, entity.__flexible__, counterpart or field.nested)
        if field.tag is None:
            plain.append((field.name, read))
        else:
            tagged[field.tag] = (field.name, read)
    flexible = entity.__flexible__

    def read_struct(cursor: Cursor) -> Struct:
        values = template.copy()
        for name, read in plain:
            values[name] = read(cursor)
        if flexible:
            _read_tags(cursor, tagged, values)
        return Struct(values)

    return read_struct


def _read_tags(cursor: Cursor, tagged: dict[int, tuple[str, Reader]], values: dict[str, Any]) -> None:
    count = cursor.varint()
    cursor.charge(count)
    for _ in range(count):
        tag = cursor.varint()
        size = cursor.varint()
        start = cursor.take(size)
        known = tagged.get(tag)
        if known is None:
            continue
        cursor.pos = start
        values[known[0]] = known[1](cursor)
        if cursor.pos != start + size:
            raise InvalidRequest(f"tagged field {tag} is not of the {size} bytes that it says")


def _field_reader(field: _Field, flexible: bool, newest_nested: Any) -> Reader:
    if field.nested is not None:
        read = _struct_reader(field.nested, newest_nested)
        if field.optional and not field.array and field.tag is None:
            read = _nullable_struct_reader(read)
    else:
        optional = field.optional and not field.array and field.tag is None
        read = READERS[field.kafka_type, flexible, optional]
    return _array_reader(read, flexible, field.optional) if field.array else read


def _nullable_struct_reader(read: Reader) -> Reader:
    def read_nullable(cursor: Cursor) -> Any:
        present = cursor.view[cursor.take(1)]
        return None if present == 0xFF else read(cursor)

    return read_nullable


def _array_reader(read: Reader, flexible: bool, optional: bool) -> Reader:
    read_i32 = READERS["int32", False, False]

    def read_array(cursor: Cursor) -> list[Any] | None:
        count = cursor.varint() - 1 if flexible else read_i32(cursor)
        if count < 0:
            if count == -1 and optional:
                return None
            raise InvalidRequest(f"an array of {count} elements")
        cursor.charge(count)
        return [read(cursor) for _ in range(count)]

    return read_array


def _struct_writer(entity: Any) -> Writer:
    plain: list[tuple[str, Any, Writer]] = []
    tagged: list[tuple[int, str, Any, Writer]] = []
    for field in _fields(entity):
        write = _field_writer(field, entity.__flexible__)
        if field.tag is None:
            plain.append((field.name, field.default, write))
        else:
            tagged.append((field.tag, field.name, field.default, write))
    tagged.sort(key=lambda item: item[0])
    flexible = entity.__flexible__

    def write_struct(out: bytearray, value: Any) -> None:
        values = value if type(value) is dict else _attributes(value)
        for name, default, write in plain:
            write(out, values.get(name, default))
        if flexible:
            if tagged:
                _write_tags(out, tagged, values)
            else:
                out.append(0)

    return write_struct


def _write_tags(out: bytearray, tagged: list[tuple[int, str, Any, Writer]], values: dict[str, Any]) -> None:
    given = [(tag, write, values[name]) for tag, name, default, write in tagged if _differs(values, name, default)]
    out += unsigned_varint(len(given))
    for tag, write, value in given:
        part = bytearray()
        write(part, value)
        out += unsigned_varint(tag)
        out += unsigned_varint(len(part))
        out += part


def _differs(values: dict[str, Any], name: str, default: Any) -> bool:
    if name not in values:
        return False
    value = values[name]
    return bool(value) if default == () else value != default


def _attributes(value: Any) -> dict[str, Any]:
    if isinstance(value, Struct):
        return value.__dict__
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return typing.cast("dict[str, Any]", value._asdict())


def _field_writer(field: _Field, flexible: bool) -> Writer:
    if field.nested is not None:
        write = _struct_writer(field.nested)
        if field.optional and not field.array and field.tag is None:
            write = _nullable_struct_writer(write)
    else:
        optional = field.optional and not field.array and field.tag is None
        write = WRITERS[field.kafka_type, flexible, optional]
    return _array_writer(write, flexible) if field.array else write


def _nullable_struct_writer(write: Writer) -> Writer:
    def write_nullable(out: bytearray, value: Any) -> None:
        if value is None:
            out.append(0xFF)
        else:
            out.append(1)
            write(out, value)

    return write_nullable


def _array_writer(write: Writer, flexible: bool) -> Writer:
    write_i32 = WRITERS["int32", False, False]

    def write_array(out: bytearray, value: Any) -> None:
        count = -1 if value is None else len(value)
        if flexible:
            out += unsigned_varint(count + 1)
        else:
            write_i32(out, count)
        for item in value or ():
            write(out, item)

    return write_array
