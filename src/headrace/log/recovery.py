"""Opening a partition's folder, whatever the last process left there.

1. Finish or undo what compaction was doing: ``.cleaned`` and ``.new`` files are dropped, a ``.swap`` file replaces the
   segments that it covers, ``.deleted`` files are removed.
2. For every segment, trust what its index file covers (it was on disk first), and scan the rest batch by batch.
   The first bad batch in the rest is the torn end of a write that was never acknowledged: it is cut off there, and kept
   beside it as ``.cut`` with whatever followed. A bad batch in a covered part is damage: nothing is cut.
3. Fold producers and epochs over the headers since the last snapshot.
"""

from __future__ import annotations

import logging

from headrace import _kernel
from headrace.log.batch import NO_PRODUCER_ID, BatchHeader
from headrace.log.checkpoint import Checkpoint, read_checkpoint
from headrace.log.partition import PartitionLog, PartitionPlace, note_control
from headrace.log.producer_state import ProducerState, read_snapshot
from headrace.log.reading import batches
from headrace.log.segment import CHUNK_BYTES, Segment, segment_name
from headrace.log.segment_index import Cover, read_cover, read_index
from headrace.log.swap import finish_swaps
from headrace.log.topic_config import TopicConfig

__all__ = ["open_partition"]

_logger = logging.getLogger(__name__)


def open_partition(place: PartitionPlace, config: TopicConfig, leader_epoch: int) -> PartitionLog:
    """The partition in this folder, recovered; a new one if the folder is empty."""
    place.files.make_folder(place.folder)
    finish_swaps(place.files, place.folder)
    checkpoint = read_checkpoint(place.files, place.folder / "checkpoint")
    segments = _open_segments(place, config, checkpoint.log_start if checkpoint else 0)
    if checkpoint is None:
        checkpoint = Checkpoint(log_start=segments[0].base_offset if segments else 0)
    _ensure_active(place, segments, checkpoint)
    checkpoint.log_start = max(checkpoint.log_start, segments[0].base_offset)
    producers = _recover_producers(place, segments, checkpoint)
    partition = PartitionLog(place, config, segments, checkpoint, producers, leader_epoch)
    partition.maybe_drop_oldest()
    return partition


def _open_segments(place: PartitionPlace, config: TopicConfig, log_start: int) -> list[Segment]:
    names = [n for n in place.files.names(place.folder) if n.endswith(".log")]
    bases = [int(n[:-4]) for n in names]
    segments: list[Segment] = []
    for i, base in enumerate(bases):
        segment = Segment(place.files, place.open_files, place.folder, base, place.clock.now_ms())
        later = bases[i + 1 :]
        whole = _open_segment(place, config, segment, later)
        segments.append(segment)
        lacks_its_end = not whole and bool(later) and segment.end_offset < later[0]  # else a refused write's remains
        if lacks_its_end or _is_gap(segment, later, log_start):
            _set_aside(place, names[i + 1 :])
            break
    return segments


def _is_gap(segment: Segment, later: list[int], log_start: int) -> bool:
    """Whether the segment lost its end, and so the next one's start was never promised either."""
    return bool(later) and segment.end_offset < later[0] and later[0] > log_start


def _open_segment(place: PartitionPlace, config: TopicConfig, segment: Segment, later: list[int]) -> bool:
    """Read or scan one segment; False if its end was torn, so that nothing after it can have been promised."""
    file_size = place.files.size(segment.path)
    promised = _promised(place, segment, later, file_size)
    if promised is not None and promised.covered_bytes >= file_size:
        if promised.covered_bytes > file_size:
            _logger.error(
                "%s has %d bytes, but %d were on disk: the rest is lost; nothing is cut away",
                segment.path,
                file_size,
                promised.covered_bytes,
            )
        if read_cover(place.files, segment.index_path) == promised:
            segment.take_cover(None, promised)
            return True
    found = read_index(place.files, segment.index_path, segment.base_offset)
    if found is not None:
        segment.take_cover(*found)
    else:
        segment.start_index()
    return _scan(place, config, segment, file_size, promised)


def _promised(place: PartitionPlace, segment: Segment, later: list[int], file_size: int) -> Cover | None:
    """The part that is known to have been on disk: by its own index, or because a later segment has one."""
    cover = read_cover(place.files, segment.index_path)
    if cover is not None and cover.covered_bytes >= file_size:
        return cover
    if any(read_cover(place.files, place.folder / f"{segment_name(base)}.index") for base in later):
        return Cover(file_size, later[0], cover.max_timestamp if cover else -1, 0)
    return cover


def _scan(place: PartitionPlace, config: TopicConfig, segment: Segment, file_size: int, promised: Cover | None) -> bool:
    position, chunk = segment.size, CHUNK_BYTES
    while position < file_size:
        data = segment.file.read(position, chunk)
        used, reason = _note_batches(segment, data, config)
        position += used
        if reason is None:
            chunk = CHUNK_BYTES
            continue
        missing = _missing_bytes(data, used)
        if missing and position + len(data) - used + missing <= file_size:
            chunk = len(data) - used + missing
        elif promised is not None and position < promised.covered_bytes:
            _logger.error(
                "%s is damaged at byte %d (offset %d): %s; nothing is cut away",
                segment.path,
                position,
                segment.end_offset,
                reason,
            )
            position = min(promised.covered_bytes, file_size)
            segment.size, segment.end_offset = position, promised.end_offset
            segment.max_timestamp = max(segment.max_timestamp, promised.max_timestamp)
        else:
            _cut(place, segment, file_size, reason)
            return False
    if promised is not None and segment.end_offset < promised.end_offset:
        _logger.error("%s ends before offset %d: the rest is lost", segment.path, promised.end_offset)
        segment.end_offset = promised.end_offset
    return True


def _note_batches(segment: Segment, data: bytes, config: TopicConfig) -> tuple[int, str | None]:
    """Take in the whole batches of ``data``; how many bytes they fill, and why it stopped before the end."""
    headers, used, bad = _kernel.scan(data)
    for header in map(BatchHeader._make, headers):
        if header.base_offset < segment.end_offset:
            return header.position, f"offset {header.base_offset} comes after {segment.end_offset - 1}"
        segment.note(header, header.base_offset, config.index_interval_bytes)
    return used, None if bad is None else str(bad)


def _missing_bytes(data: bytes, start: int) -> int:
    """How many bytes a batch that is cut by the end of ``data`` lacks; 0 if that is not what is wrong with it."""
    left = len(data) - start
    if left < 12:
        return 12 - left
    size = int.from_bytes(data[start + 8 : start + 12], "big", signed=True) + 12
    return max(size - left, 0)


def _cut(place: PartitionPlace, segment: Segment, file_size: int, reason: str) -> None:
    _logger.warning(
        "%s: cut at byte %d (offset %d), %d bytes that were never acknowledged follow: %s",
        segment.path,
        segment.size,
        segment.end_offset,
        file_size - segment.size,
        reason,
    )
    aside = place.files.open(segment.path.with_suffix(f".{segment.size}.cut"), create=True)
    try:
        position = segment.size
        while position < file_size:
            data = segment.file.read(position, CHUNK_BYTES)
            aside.write(position - segment.size, data)
            position += len(data)
        aside.sync()
    finally:
        aside.close()
    place.files.sync_folder(place.folder)
    segment.file.truncate(segment.size)
    segment.file.sync()


def _set_aside(place: PartitionPlace, names: list[str]) -> None:
    for name in names:
        path = place.folder / name
        _logger.warning("%s follows a torn segment and was never acknowledged: set aside as .cut", path)
        place.files.rename(path, path.with_suffix(".cut"))
        place.files.remove(path.with_suffix(".index"))
    if names:
        place.files.sync_folder(place.folder)


def _ensure_active(place: PartitionPlace, segments: list[Segment], checkpoint: Checkpoint) -> None:
    """The last segment becomes the active one, unless bytes are missing from it: then a new one starts."""
    end = max(segments[-1].end_offset, checkpoint.log_start) if segments else checkpoint.log_start
    if segments and segments[-1].end_offset == end and place.files.size(segments[-1].path) >= segments[-1].size:
        segments[-1].active = True
    else:
        segments.append(Segment.create(place.files, place.open_files, place.folder, end, place.clock.now_ms()))


def _recover_producers(place: PartitionPlace, segments: list[Segment], checkpoint: Checkpoint) -> ProducerState:
    end = segments[-1].end_offset
    found = read_snapshot(place.files, place.folder / "producers")
    state, start = found if found is not None and found[1] <= end else (ProducerState(), segments[0].base_offset)
    for segment in segments:
        if segment.end_offset <= start:
            continue
        for header, batch in batches(segment, segment.index.position_of_offset(start)):
            if header.base_offset < start:
                continue
            if header.leader_epoch >= 0 and (not checkpoint.epochs or checkpoint.epochs[-1][0] < header.leader_epoch):
                checkpoint.epochs.append((header.leader_epoch, header.base_offset))
            if header.producer_id == NO_PRODUCER_ID:
                continue
            if header.is_control and header.record_count:
                aborted = note_control(state, batch, header, header.base_offset)
                known = segment.index.aborted
                if aborted is not None and aborted not in known:
                    known.append(aborted)
                    segment.aborted_count = len(known)
            elif not header.is_control and header.base_sequence >= 0:
                state.apply(header, header.base_offset)
    return state
