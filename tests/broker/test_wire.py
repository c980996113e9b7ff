import random

import pytest
from kio.static.constants import EntityType

from headrace.broker import wire
from headrace.broker.primitives import MAX_ELEMENTS, Cursor, unsigned_varint
from headrace.errors import InvalidRequest
from tests.broker.kio_messages import api_versions, encode, entity, random_message

# Every API that Apache Kafka 4.3 offers on a broker's listener and that Headrace has or will have.
API_KEYS = [
    *range(4),
    *range(8, 38),
    42,
    43,
    44,
    45,
    46,
    47,
    50,
    51,
    60,
    61,
    65,
    66,
    68,
    69,
    *range(74, 80),
    90,
    91,
    92,
]
EVERY = [(key, version) for key in API_KEYS for version in api_versions(key)]


@pytest.mark.parametrize(("api_key", "version"), EVERY)
def test_requests_are_read_and_written_as_kio_does(api_key: int, version: int) -> None:
    rng = random.Random(api_key * 100 + version)
    for _ in range(10):
        expected = encode(random_message(entity(api_key, version, EntityType.request), rng))
        decoded = wire.decode_request(api_key, version, expected)
        assert wire.encode_request(api_key, version, decoded) == expected


@pytest.mark.parametrize(("api_key", "version"), EVERY)
def test_responses_are_read_and_written_as_kio_does(api_key: int, version: int) -> None:
    rng = random.Random(api_key * 100 + version)
    for _ in range(10):
        body = encode(random_message(entity(api_key, version, EntityType.response), rng))
        decoded = wire.decode_response(api_key, version, body)
        frame = wire.encode_response(api_key, version, 77, decoded)
        header_size = 9 if wire.response_codec(api_key, version).header_tags else 8
        assert frame[header_size:] == body
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        assert int.from_bytes(frame[4:8], "big") == 77


@pytest.mark.parametrize(("api_key", "version"), EVERY)
def test_a_request_cut_anywhere_is_refused(api_key: int, version: int) -> None:
    whole = encode(random_message(entity(api_key, version, EntityType.request), random.Random(version)))
    for size in range(0, len(whole), max(1, len(whole) // 50)):
        with pytest.raises(InvalidRequest):
            wire.decode_request(api_key, version, whole[:size])


def test_fields_that_a_version_lacks_have_their_default() -> None:
    body = wire.encode_request(11, 0, {"group_id": "g", "session_timeout_ms": 7, "protocol_type": "consumer"})
    request = wire.decode_request(11, 0, body)
    assert (request.group_id, request.session_timeout_ms) == ("g", 7)
    assert (request.group_instance_id, request.reason, request.rebalance_timeout_ms) == (None, None, -1)


def test_names_of_other_versions_are_left_out_of_a_response() -> None:
    response = {"error_code": 3, "no_such_field": 1, "coordinators": [], "node_id": 5, "host": "h", "port": 1}
    frame = wire.encode_response(10, 0, 1, response)
    assert wire.decode_response(10, 0, frame[8:]).node_id == 5


@pytest.mark.parametrize("count", [-2, 5, 2**31 - 1])
def test_a_count_larger_than_the_bytes_that_follow_is_refused(count: int) -> None:
    with pytest.raises(InvalidRequest):
        wire.decode_request(3, 1, (count & 0xFFFFFFFF).to_bytes(4, "big") + b"\0\0")


@pytest.mark.parametrize("size", [6, 127, 2**31, 2**32 - 1])
def test_a_string_longer_than_the_bytes_that_follow_is_refused(size: int) -> None:
    with pytest.raises(InvalidRequest):
        wire.decode_request(18, 3, unsigned_varint(size) + b"abc")


def test_a_tagged_field_bomb_is_refused() -> None:
    count = 20_000_000
    with pytest.raises(InvalidRequest, match="left"):
        wire.decode_request(18, 3, b"\x01\x01" + unsigned_varint(count) + b"\x05\x00" * 10)
    with pytest.raises(InvalidRequest, match="more than"):
        wire.decode_request(18, 3, b"\x01\x01" + unsigned_varint(MAX_ELEMENTS + 1) + b"\x05\x00" * (MAX_ELEMENTS + 1))


def test_an_array_of_many_small_elements_is_refused() -> None:
    body = (1_000_000).to_bytes(4, "big") + bytes(2_000_000)
    with pytest.raises(InvalidRequest, match="more than"):
        wire.decode_request(3, 1, body)


def test_an_endless_varint_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="varint"):
        Cursor(memoryview(b"\xff" * 10)).varint()


def test_a_string_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="UTF-8"):
        wire.decode_request(18, 3, b"\x02\xff\x01\x00")
