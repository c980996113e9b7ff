"""CRC-32C."""

from __future__ import annotations

import crc32c as reference
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import _kernel as kernel


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"a", 0xC1D04330),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(reversed(range(32))), 0x113FDB5C),
    ],
)
def test_known_vectors(data: bytes, expected: int) -> None:
    assert kernel.crc32c(data) == expected


@given(st.binary(max_size=5000), st.integers(0, 5000))
def test_it_agrees_with_another_implementation_and_goes_on_from_a_value(data: bytes, cut: int) -> None:
    assert kernel.crc32c(data) == reference.crc32c(data)
    assert kernel.crc32c(data[cut:], kernel.crc32c(data[:cut])) == kernel.crc32c(data)


def test_any_contiguous_buffer_will_do() -> None:
    data = bytes(range(256)) * 300
    expected = kernel.crc32c(data)
    assert kernel.crc32c(bytearray(data)) == expected
    assert kernel.crc32c(memoryview(b"xx" + data + b"x")[2:-1]) == expected
    with pytest.raises(BufferError):
        kernel.crc32c(memoryview(data)[::2])
    with pytest.raises(TypeError):
        kernel.crc32c("text")  # type: ignore[arg-type]
