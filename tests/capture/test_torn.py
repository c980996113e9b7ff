"""What the end of a topic lacks after a kill between the records of one change."""

from __future__ import annotations

from headrace.capture.torn import LastRecord, Torn, torn_end

ROW = LastRecord(b'{"id":1}', b'{"op":"u","after":{"id":1}}')
DELETION = LastRecord(b'{"id":1}', b'{"op":"d","after":null}')
MOVED = LastRecord(b'{"id":1}', b'{"op":"d","after":null}', '{"id":9}')
TOMBSTONE = LastRecord(b'{"id":1}', None)


def test_whole_changes_lack_nothing() -> None:
    created = LastRecord(b'{"id":9}', b'{"op":"c","after":{"id":9}}')
    for end in ([], [ROW], [ROW, DELETION, TOMBSTONE], [MOVED, TOMBSTONE, created], [TOMBSTONE]):
        assert torn_end(end) == Torn()


def test_a_deletion_lacks_its_tombstone() -> None:
    assert torn_end([ROW, DELETION]) == Torn(b'{"id":1}')


def test_a_changed_key_lacks_the_row_of_the_new_one() -> None:
    assert torn_end([MOVED]) == Torn(b'{"id":1}', {"id": 9})
    assert torn_end([MOVED, TOMBSTONE]) == Torn(None, {"id": 9})
