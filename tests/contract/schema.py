"""Encodes and decodes any Kafka message of any version as plain trees of dicts, lists, numbers and strings.

The field tables are kio's; the bytes are written and read here, so the broker's own codec is checked by a second one.
Error codes are read as their names. Fields that a version lacks are dropped when writing: one tree serves all versions.
"""

from __future__ import annotations

import io
import struct
import types
import typing
import uuid
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from functools import cache
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map

Tree = dict[str, Any]

KEYS = {name: key for key, name in api_key_map.items()}

_NUMBERS = {
    "int8": ">b",
    "int16": ">h",
    "int32": ">i",
    "int64": ">q",
    "uint16": ">H",
    "float64": ">d",
    "timedelta_i32": ">i",
    "timedelta_i64": ">q",
    "datetime_i64": ">q",
}
_NAMES = {int(code): code.name for code in ErrorCode}
_ZERO: dict[str, Any] = {
    "string": "",
    "bytes": b"",
    "records": None,
    "bool": False,
    "uuid": uuid.UUID(int=0),
    "error_code": 0,
}


@dataclass(frozen=True)
class FieldShape:
    """One field of a message in one version."""

    name: str
    kind: str
    array: bool
    nullable: bool
    tag: int | None
    default: Any
    struct: Shape | None


@dataclass(frozen=True)
class Shape:
    """One message, or a structure inside one, in one version."""

    fields: tuple[FieldShape, ...]
    flexible: bool


@dataclass(frozen=True)
class Message:
    """A request or response type in one version."""

    key: int
    version: int
    shape: Shape
    header_version: int


@cache
def request(api: str, version: int) -> Message:
    return _message(load_request_schema(KEYS[api], version), KEYS[api], version)


@cache
def response(api: str, version: int) -> Message:
    return _message(load_response_schema(KEYS[api], version), KEYS[api], version)


def encode(message: Message, tree: Tree) -> bytes:
    out = io.BytesIO()
    _write_struct(out, message.shape, tree)
    return out.getvalue()


def decode(message: Message, data: bytes) -> Tree:
    """Reads the whole of data; bytes left over are an error."""
    source = Source(data)
    tree = _read_struct(source, message.shape)
    source.finish()
    return tree


@cache
def known_names(api: str) -> frozenset[str]:
    """Every field name a request of this API has in any version, at any depth."""
    return frozenset(name for version in schema_name_map[api] for name in _names(request(api, int(version)).shape))


def check_names(api: str, tree: Tree) -> None:
    """A name that no version knows is a mistake in the test."""
    for name, value in tree.items():
        assert name in known_names(api), f"{api} has no field '{name}' in any version"
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                check_names(api, item)


class Source:
    """A cursor over bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        assert 0 <= size <= len(self.data) - self.at, f"{size} bytes wanted, {len(self.data) - self.at} left"
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def finish(self) -> None:
        assert self.at == len(self.data), f"{len(self.data) - self.at} bytes left over"


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _message(entity: Any, key: int, version: int) -> Message:
    header = entity.__header_schema__
    return Message(key, version, _shape(entity), int(header.__version__))


@cache
def _shape(entity: Any) -> Shape:
    return Shape(tuple(_field(item) for item in fields(entity)), bool(entity.__flexible__))


def _field(item: Any) -> FieldShape:
    kind, nullable, array = item.type, False, False
    if isinstance(kind, types.UnionType):
        nullable, kind = True, next(one for one in typing.get_args(kind) if one is not types.NoneType)
    if typing.get_origin(kind) is tuple:
        array, kind = True, typing.get_args(kind)[0]
        if isinstance(kind, types.UnionType):
            kind = next(one for one in typing.get_args(kind) if one is not types.NoneType)
    inner = _shape(kind) if is_dataclass(kind) else None
    name = "struct" if inner else item.metadata["kafka_type"]
    tag = item.metadata.get("tag")
    default = _default(item, name, array, nullable)
    return FieldShape(item.name, name, array, nullable, tag, default, inner)


def _default(item: Any, kind: str, array: bool, nullable: bool) -> Any:
    if item.default is not MISSING:
        value = item.default
        if isinstance(value, tuple):
            return list(value)
        if is_dataclass(value):
            return asdict(value)
        return round(value.total_seconds() * 1000) if hasattr(value, "total_seconds") else value
    if array:
        return []
    if nullable and kind != "uuid":
        return None
    return _ZERO.get(kind, 0)


def _names(shape: Shape) -> set[str]:
    return {item.name for item in shape.fields}.union(*(_names(item.struct) for item in shape.fields if item.struct))


def _write_struct(out: io.BytesIO, shape: Shape, tree: Tree) -> None:
    tagged = []
    for item in shape.fields:
        value = tree.get(item.name, item.default)
        if item.tag is None:
            _write_field(out, item, value, shape.flexible)
        elif value != item.default:
            tagged.append((item, value))
    if not shape.flexible:
        return
    out.write(uvarint(len(tagged)))
    for item, value in sorted(tagged, key=lambda pair: pair[0].tag):
        body = io.BytesIO()
        _write_field(body, item, value, True)
        out.write(uvarint(item.tag or 0) + uvarint(len(body.getvalue())) + body.getvalue())


def _write_field(out: io.BytesIO, item: FieldShape, value: Any, flexible: bool) -> None:
    if not item.array:
        _write_one(out, item, value, flexible)
        return
    if value is None:
        out.write(b"\0" if flexible else b"\xff\xff\xff\xff")
        return
    out.write(uvarint(len(value) + 1) if flexible else struct.pack(">i", len(value)))
    for one in value:
        _write_one(out, item, one, flexible)


def _write_one(out: io.BytesIO, item: FieldShape, value: Any, flexible: bool) -> None:
    if item.struct is not None:
        if item.nullable and not item.array:
            out.write(b"\xff" if value is None else b"\x01")
        if value is not None:
            _write_struct(out, item.struct, value)
    elif item.kind in _NUMBERS:
        out.write(struct.pack(_NUMBERS[item.kind], value))
    elif item.kind == "error_code":
        out.write(struct.pack(">h", value))
    elif item.kind == "bool":
        out.write(b"\x01" if value else b"\0")
    elif item.kind == "uuid":
        out.write((value or uuid.UUID(int=0)).bytes)
    else:
        _write_bytes(out, item, value.encode() if isinstance(value, str) else value, flexible)


def _write_bytes(out: io.BytesIO, item: FieldShape, value: bytes | None, flexible: bool) -> None:
    short = item.kind == "string"
    if value is None:
        out.write(b"\0" if flexible else b"\xff\xff" if short else b"\xff\xff\xff\xff")
        return
    out.write(uvarint(len(value) + 1) if flexible else struct.pack(">h" if short else ">i", len(value)))
    out.write(value)


def _read_struct(source: Source, shape: Shape) -> Tree:
    tree: Tree = {}
    for item in shape.fields:
        tree[item.name] = item.default if item.tag is not None else _read_field(source, item, shape.flexible)
    if shape.flexible:
        tags = {item.tag: item for item in shape.fields if item.tag is not None}
        for _ in range(source.uvarint()):
            tag, size = source.uvarint(), source.uvarint()
            body = Source(source.take(size))
            if tag in tags:
                tree[tags[tag].name] = _read_field(body, tags[tag], True)
                body.finish()
            else:
                tree[f"unknown tag {tag}"] = body.data
    return tree


def _read_field(source: Source, item: FieldShape, flexible: bool) -> Any:
    if not item.array:
        return _read_one(source, item, flexible)
    count = source.uvarint() - 1 if flexible else source.number(">i")
    if count < 0:
        assert item.nullable, f"null in {item.name}, which cannot be null"
        return None
    return [_read_one(source, item, flexible) for _ in range(count)]


def _read_one(source: Source, item: FieldShape, flexible: bool) -> Any:
    if item.struct is not None:
        if item.nullable and not item.array and source.number(">b") < 0:
            return None
        return _read_struct(source, item.struct)
    if item.kind in _NUMBERS:
        return source.number(_NUMBERS[item.kind])
    if item.kind == "error_code":
        code = source.number(">h")
        return _NAMES.get(code, code)
    if item.kind == "bool":
        return source.take(1) != b"\0"
    if item.kind == "uuid":
        return uuid.UUID(bytes=source.take(16))
    return _read_bytes(source, item, flexible)


def _read_bytes(source: Source, item: FieldShape, flexible: bool) -> Any:
    size = source.uvarint() - 1 if flexible else source.number(">h" if item.kind == "string" else ">i")
    if size < 0:
        assert item.nullable, f"null in {item.name}, which cannot be null"
        return None
    data = source.take(size)
    return data.decode() if item.kind == "string" else data
