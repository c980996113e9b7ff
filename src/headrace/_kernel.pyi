"""All that the native kernel can do: pure functions from buffers to buffers, with the interpreter lock released.

A *header* is a plain tuple in the order of ``headrace.log.batch.BatchHeader``. ``data`` is any contiguous buffer
(bytes, bytearray, memoryview). Codecs: 0 none, 1 gzip, 2 snappy (xerial framing), 3 lz4 (frame), 4 zstd.
No function trusts a length or a count that it reads. ``max_bytes`` bounds the decompressed bytes of each batch;
beyond it is ``too_big``. Every batch that is looked into has its checksum checked first. A cut last batch is where
reading functions (``records``, ``find_timestamp``, ``max_timestamp``, ``records_to_arrow``, ``slice_batches``) stop,
and an error (``truncated``) for ``walk`` and for those that rewrite (``compact``, ``drop_keys``, ``recompress``) or
stand for everything (``LatestOffsets.add``): cut the data at ``scan``'s end for these.
"""

from collections.abc import Iterable, Sequence
from typing import Final, final

from typing_extensions import Buffer

# These three names are for type checkers only: import them under TYPE_CHECKING.
Header = tuple[int, int, int, int, int, int, int, int, int, int, int, int]
"""position, size, base_offset, leader_epoch, attributes, last_offset_delta, base_timestamp, max_timestamp, producer_id,
producer_epoch, base_sequence, record_count"""
RecordHeader = tuple[str, bytes | None]
Record = tuple[int, int, bytes | None, bytes | None, list[RecordHeader]]
"""offset, timestamp (ms), key, value, headers"""

MAX_DECOMPRESSED: Final[int]
"""Default bound of decompressed bytes per batch (256 MiB)."""

class BadBatch(ValueError):
    """A batch that cannot be accepted. ``args[0]`` is a sentence, ``kind`` one of: ``truncated`` (fewer bytes than it
    says), ``length`` (smaller than a batch can be), ``magic``, ``crc``, ``several`` (bytes after the one batch),
    ``count`` (the header's record count is not what is there), ``codec`` (unknown), ``decompress`` (broken compressed
    data), ``too_big``, ``record`` (malformed), ``null_key``."""

    kind: str

def crc32c(data: Buffer, value: int = 0) -> int:
    """CRC-32C (Castagnoli), going on from ``value``."""

def alloc(size: int) -> bytearray:
    """A bytearray of this size whose bytes are not set: to be read into."""

def check_batch(data: Buffer, *, keys: bool = False, max_bytes: int = ...) -> Header:
    """Check a payload that must be exactly one whole batch of magic 2, and return its header (position 0).

    Checks length, magic, checksum, codec, count > 0, ``last_offset_delta == count - 1``, and, for uncompressed
    batches, that the records are well formed, have offset deltas 0..count-1 and fill the batch exactly.
    With ``keys`` compressed batches are walked too, and a record without a key is an error (``null_key``);
    control batches are not asked for keys."""

def scan(data: Buffer, *, crc: bool = True) -> tuple[list[Header], int, BadBatch | None]:
    """Headers of the whole, valid batches from the start of ``data``; the bytes they fill; and why it stopped there
    (None at the end of the data; kind ``truncated`` for a cut last batch)."""

def slice_batches(data: Buffer, start_offset: int, end_offset: int) -> tuple[int, int, int, BadBatch | None]:
    """The run of whole batches to serve a fetch: from the first batch with ``last_offset >= start_offset``, to before
    the first with ``base_offset >= end_offset``. Checks every checksum that it passes from the start of the run.
    Returns (start position, end position, offset after the last batch or start_offset if none, error that stopped it
    or None). A cut last batch is not an error."""

def walk(data: Buffer, *, max_bytes: int = ...) -> None:
    """Decompress and walk every record of every batch; raise BadBatch at the first that is malformed."""

def set_append_time(batch: bytearray | memoryview, timestamp: int) -> None:
    """Mark a batch as log-append-time: attribute bit 3, max timestamp, new checksum; in place."""

def find_timestamp(
    data: Buffer, timestamp: int, start_offset: int = 0, *, max_bytes: int = ...
) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record at or after ``start_offset`` whose timestamp is >= ``timestamp``. Batches
    whose header says that all of theirs are smaller are skipped unread."""

def max_timestamp(data: Buffer, *, max_bytes: int = ...) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record with the largest timestamp, in the first batch whose header has the
    largest."""

def records(data: Buffer, *, max_bytes: int = ...) -> list[Record]:
    """Every record of every whole batch (control batches too) as Python objects: for state topics and tools, not for
    hot paths. Header names that are not UTF-8 get replacement characters."""

@final
class ArrowBatch:
    """Columns of records, for any Arrow library: ``pyarrow.record_batch(this)`` takes it without a copy."""

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...
    def __len__(self) -> int: ...

def records_to_arrow(data: Buffer, start_offset: int = 0, end_offset: int = ..., *, max_bytes: int = ...) -> ArrowBatch:
    """Data records (no control batches) with start_offset <= offset < end_offset as one Arrow record batch: offset
    int64, timestamp timestamp[ms, UTC], key binary, value binary, headers list<struct<key: string, value: binary>>. key
    and value use large offsets only when they must."""

def json_to_arrow(
    values: object, schema: object, columns: Sequence[str] | None = None, *, captured: bool = False
) -> tuple[ArrowBatch, list[tuple[int, str, str]]]:
    """JSON objects, a column of binary of any Arrow library, as the typed columns of a schema of any: the good rows in
    order, and (row, reason, detail) of the bad.

    With ``columns``, only the columns of these names are made, in the order of the schema. The others are checked all
    the same: which rows are good follows from the schema alone.

    Strict JSON (RFC 8259), nested at most 128 deep. A field that is not in the schema is passed over, one that is not
    in the value is null, of two with one name the last counts. Types: boolean, integers (also written as 1.0 or 1e3),
    floats (also "NaN", "Infinity", "-Infinity"), decimal (numbers and strings, rounded half up), string, binary
    (base64), date (YYYY-MM-DD), timestamp in microseconds (ISO 8601, UTC where no zone is named; or an epoch number in
    seconds, milliseconds, microseconds or nanoseconds, as its size says), lists, maps with string keys, structs.
    Reasons: ``no-value``, ``not-json``, ``wrong-type``, ``out-of-range``, ``missing`` (null for NOT NULL),
    ``too-deep``.

    With ``captured``, the values are those of a database, and what a type has no room for does not make the row bad: of
    a decimal what is no number is null, times beyond the years 1 to 9999 are the first or last of them, dates may end
    with Z, 0 and 1 are booleans, and in a column of strings a value that is no string is its JSON.
    ValueError if the schema has other types or lacks one of the columns, or the values are more than 2 GiB."""

def arrow_to_json(rows: object, columns: Sequence[str] | None = None) -> ArrowBatch:
    """Each row of a record batch as a compact JSON object of these columns (all), in a column ``json`` of binary.

    Nulls are written. Timestamps are ISO 8601 with microseconds and Z (none without a zone), decimals strings, binary
    base64, what is no JSON number "NaN", "Infinity", "-Infinity", maps objects: ``json_to_arrow`` reads it back."""

def build_batch(
    records: Iterable[tuple[int, bytes | None, bytes | None, Sequence[RecordHeader]]],
    *,
    codec: int = 0,
    level: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> bytearray:
    """One batch of (timestamp, key, value, headers), offsets counted from ``base_offset``; at least one record. Levels:
    gzip 1 to 9, zstd as zstd has them, lz4 1 to 17 (taken for Kafka's sake, without effect), snappy none."""

def recompress(batch: Buffer, codec: int, level: int | None = None, *, max_bytes: int = ...) -> bytearray:
    """The same batch (header fields kept) with its records, which must be well formed, in another codec."""

class LatestOffsets:
    """The latest offset of every key, by a keyed 128-bit hash: what compaction builds in its first pass."""

    def __init__(self, max_keys: int) -> None: ...
    def add(
        self,
        data: Buffer,
        end_offset: int,
        *,
        aborted: Iterable[tuple[int, int, int]] = (),
        max_bytes: int = ...,
    ) -> int:
        """Take in the data records of batches below ``end_offset``, in order, except those of ``aborted`` transactions
        (as for ``compact``: their records must not replace committed ones). Stops before a batch that reaches
        ``end_offset``, or whose new keys would exceed ``max_keys``. Returns the offset up to which (exclusive)
        everything is in: the first batch's own base offset if that was not taken, ``end_offset`` if there is no
        batch."""

    def __len__(self) -> int: ...

def compact(
    data: Buffer,
    latest: LatestOffsets,
    *,
    now_ms: int,
    delete_retention_ms: int,
    keep_empty: Iterable[int] = (),
    aborted: Iterable[tuple[int, int, int]] = (),
    max_bytes: int = ...,
) -> tuple[bytearray, int, int]:
    """Rewrite batches without the records that a later one of the same key replaces.

    A record stays if its key is absent from ``latest`` or its offset is >= the latest offset there; records without a
    key are dropped. A tombstone (null value) stays until its batch's delete horizon: a batch with tombstones and no
    horizon yet gets ``now_ms + delete_retention_ms`` (attribute bit 6, base timestamp = horizon, deltas adjusted).
    Control batches stay (until their own horizon, when they carry one). Batches of ``aborted`` transactions (producer
    id, first offset, last offset) are dropped. A batch left empty is dropped, unless its last offset is in
    ``keep_empty``: then its header stays with count 0. Untouched batches are copied byte for byte; others are
    recompressed with their own codec, and keep base offset, last offset delta, producer fields.
    Returns (bytes, records kept, records dropped)."""

def drop_keys(data: Buffer, keys: Iterable[bytes], *, max_bytes: int = ...) -> tuple[bytearray, int]:
    """Remove for good the records of these keys; emptied batches stay with count 0. Returns (bytes, dropped)."""

def key_hashes(data: Buffer, start_offset: int, end_offset: int, *, max_bytes: int = ...) -> bytearray:
    """For every offset from ``start_offset`` to before ``end_offset`` eight bytes: a hash of its record's key, the same
    for the same key in this process; zeros where there is no record, or it has no key."""

def first_of_keys(
    hashes: Buffer, base_offset: int, unsettled: Sequence[tuple[int, int, bool]], limit: int
) -> list[tuple[int, int]]:
    """Which offsets of a share group may be handed out so that every key keeps its order: of ``unsettled`` (first,
    last, free to hand out; in order) the first ``limit`` free ones that have no unsettled offset of the same key before
    them, as runs (first, last). ``hashes`` are those of the offsets from ``base_offset`` on; records without a key wait
    for nobody."""

def copy_records(
    data: Buffer,
    picks: Sequence[tuple[int, int, Sequence[tuple[bytes, bytes]]]],
    *,
    now_ms: int,
    offset_header: bytes,
    timestamp_header: bytes,
    max_bytes: int = ...,
) -> tuple[bytearray, int]:
    """One batch with the data records of some ranges (first, last, headers to add): key, value and headers byte for
    byte, then the added headers and two that say (in digits) the original's offset and timestamp. And how many they
    are; without any the batch is empty."""

class TooManyMatches(ValueError):
    """A key has more partial matches than the pattern's limit; ``row`` is where one of its rows is."""

    row: int

def match_rows(
    program: Buffer, rows: object, keys: object, watermark: int
) -> tuple[ArrowBatch, ArrowBatch, ArrowBatch, ArrowBatch, ArrowBatch, ArrowBatch]:
    """Find a compiled pattern (``headrace.pipelines.patterns.program``) in the rows of some keys, up to the watermark.

    ``rows``: a record batch of time (int64, microseconds), kind (uint8: 0 new, 1 kept, 2 only the key's progress),
    progress (large binary), and the program's columns (bool, int64, double, large string). ``keys``: for each key a
    large list of uint32, where its rows are, in the order of arrival. Returns outcomes (told: 0 match, 1 time-out, 2
    partial; key_row; start, end; taken, taken_for: rows and variables; m0, m1, ...), kept (for each row whether it is
    needed further), progress (row: one of the key; progress; due: the watermark to look again at), dead (row, reason:
    a condition failed on it, told once), late (row) and unmeasured (outcome: which of them, measure, reason: why it is
    null; not of partials). ValueError for a program or state that cannot be read, TooManyMatches over its limit."""
