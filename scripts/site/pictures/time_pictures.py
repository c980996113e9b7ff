"""Windows and watermarks."""

from __future__ import annotations

from drawing import Picture

__all__ = ["pictures"]

LEFT, MINUTE = 60, 100
EVENTS = (0.3, 0.7, 1.5, 2.12, 2.4, 2.8, 4.6, 5.3)
LABELS = "abcdefgh"


def pictures() -> dict[str, Picture]:
    """By file name."""
    return {
        "tumbling": tumbling(),
        "hopping": hopping(),
        "session": session(),
        "sliding": sliding(),
        "watermark": watermark(),
        "partitions": partitions(),
        "rows-in": rows_in(),
    }


def _at(minute: float) -> float:
    return LEFT + MINUTE * minute


def _events(picture: Picture, y: float, *, marked: str = LABELS) -> None:
    """The same eight events in every picture of windows, over an axis of event time."""
    picture.arrow((LEFT - 15, y), (_at(6) + 40, y), colour="soft")
    picture.text(_at(6) + 40, y + 20, "event time", "soft", anchor="end", kind="small")
    for minute in range(6):
        picture.line((_at(minute), y - 4), (_at(minute), y + 4), colour="soft")
        picture.text(_at(minute), y + 20, f"12:0{minute}", "soft", anchor="middle", kind="small")
    for label, minute in zip(LABELS, EVENTS, strict=True):
        picture.dot(_at(minute), y - 22, "a" if label in marked else "soft", label)


def _held(low: float, high: float) -> int:
    return sum(low <= event < high for event in EVENTS)


def tumbling() -> Picture:
    """Every event is in one window."""
    picture = Picture(720, 152, "Eight events on a line of event time, cut into windows of two minutes side by side")
    _events(picture, 50)
    for number, low in enumerate((0, 2, 4)):
        colour = "bca"[number % 3]
        words = f"12:0{low} to 12:0{low + 2}: {_held(low, low + 2)} events"
        picture.named(_at(low) + 2, 92, 2 * MINUTE - 4, 32, words, colour)
    return picture


def hopping() -> Picture:
    """Every event is in two windows."""
    picture = Picture(720, 232, "The same events; a window of two minutes begins every minute, so that windows overlap")
    _events(picture, 50)
    for number, low in enumerate(range(5)):
        y = 88 + 26 * number
        words = f"12:0{low} to 12:0{low + 2}: {_held(low, low + 2)}"
        picture.named(_at(low) + 2, y, 2 * MINUTE - 4, 22, words, "bca"[number % 3])
    return picture


def session() -> Picture:
    """A quiet minute ends a session."""
    picture = Picture(720, 168, "The same events in two sessions, with a gap of more than one minute between them")
    _events(picture, 50)
    first, last = _at(EVENTS[0]), _at(EVENTS[5])
    picture.named(first - 12, 88, last - first + 24, 32, "one session: a to f", "b")
    picture.named(_at(4.6) - 12, 88, _at(5.3) - _at(4.6) + 24, 32, "g, h", "c")
    picture.span(last + 12, _at(4.6) - 12, 128, "more than 1 minute: nothing came")
    return picture


def sliding() -> Picture:
    """Each event has a window of its own."""
    picture = Picture(720, 178, "The same events; the window of e is the two minutes before it, and so is that of f")
    _events(picture, 50, marked="bcdef")
    for y, label, end in ((88, "e", 2.4), (126, "f", 2.8)):
        low = end - 2
        names = ", ".join(n for n, at in zip(LABELS, EVENTS, strict=True) if low <= at <= end)
        picture.named(_at(low), y, 2 * MINUTE, 28, f"the window of {label}: {names}", "b" if label == "e" else "c")
        picture.line((_at(end), 40), (_at(end), y), colour="soft", dash="3 3")
    return picture


def watermark() -> Picture:
    """Arrival to the right, event time upwards; the watermark is a staircase."""
    picture = Picture(720, 310, "Events by arrival and event time, and the watermark under them")
    x0, y0 = 70, 282
    picture.arrow((x0, y0), (690, y0), colour="soft")
    picture.arrow((x0, y0), (x0, 22), colour="soft")
    picture.text(690, y0 + 20, "arrival", "soft", anchor="end", kind="small")
    picture.text(x0 - 10, 16, "event time", "soft", anchor="middle", kind="small")
    times = (1.0, 1.6, 1.2, 2.6, 2.1, 3.4, 1.3, 3.0, 4.6, 5.0, 4.2, 2.7, 5.8)

    def up(time: float) -> float:
        return y0 - 42 * time

    for minute in range(1, 7):
        picture.text(x0 - 8, up(minute) + 4, f"12:0{minute}", "soft", anchor="end", kind="small")
        picture.line((x0, up(minute)), (x0 + 5, up(minute)), colour="soft")
    bound, stairs = None, []
    for number, time in enumerate(times):
        x = x0 + 36 + 42 * number
        if bound is not None:
            stairs += [(x - 21, up(bound))]
        late = bound is not None and time <= bound
        picture.dot(x, up(time), "d" if late else "a")
        if late:
            picture.text(x, up(time) + 21, "late", "d", anchor="middle", kind="small strong")
        new = max(time - 1.5, bound if bound is not None else -9.0)
        if new > 0:
            stairs += [(x + 21, up(bound)), (x + 21, up(new))] if bound is not None else [(x + 21, up(new))]
            bound = new
    stairs.append((x + 45, up(bound or 0)))
    picture.line(*stairs, colour="b", width=2.5)
    picture.text(x0 + 36 + 42 * 7, up(1.9) + 22, "the watermark", "b", kind="strong")
    top = x0 + 36 + 42 * 8
    picture.line((top + 12, up(4.6)), (top + 12, up(3.1)), colour="soft", dash="3 3")
    picture.text(top - 12, up(3.98), "lateness", "soft", anchor="end", kind="small")
    return picture


def partitions() -> Picture:
    """The slowest partition decides."""
    picture = Picture(720, 186, "The watermark stands behind the slowest partition that is not idle")
    x0 = 150
    rows = (("partition 0", 520, "a"), ("partition 1", 300, "b"), ("partition 2", 90, "soft"))
    for number, (name, reach, colour) in enumerate(rows):
        y = 34 + 46 * number
        picture.text(20, y + 4, name)
        picture.line((x0, y), (x0 + (reach if number else 340), y), colour=colour, width=6)
        if number == 0:
            picture.line((x0 + 340, y - 14), (x0 + 340, y + 14), colour="d", width=2)
            picture.text(x0 + 348, y + 24, "read up to here for now", "d", kind="small")
            picture.line((x0 + 340, y), (x0 + 520, y), colour="soft", width=6, dash="4 4")
        if number == 1:
            picture.span(x0 + 240, x0 + reach, y + 18)
            picture.text(x0 + reach + 10, y + 22, "lateness", "soft", kind="small")
        if number == 2:
            picture.text(x0 + reach + 14, y + 4, "idle: does not count", "soft", kind="small")
    picture.line((x0 + 240, 16), (x0 + 240, 150), colour="b", width=2.5, dash="6 4")
    picture.text(
        x0 + 240,
        172,
        "the watermark: the slowest partition that is not idle, minus the lateness",
        "b",
        anchor="middle",
        kind="small",
    )
    return picture


def rows_in() -> Picture:
    """No row is lost silently."""
    picture = Picture(720, 200, "Every record of a stream is processed, late or dead; the three always add up")
    picture.named(20, 76, 130, 44, "records in", "a", kind="strong")
    ends = (
        (20, "processed", "views, derived streams, alerts", "c"),
        (78, "late", "STREAM.late: time, watermark, which query", "b"),
        (136, "dead", "STREAM.dead: why, and the original bytes", "d"),
    )
    for y, name, where, colour in ends:
        picture.arrow((150, 98), (240, y + 22), colour=colour)
        picture.named(240, y, 120, 44, name, colour, kind="strong")
        picture.text(376, y + 27, where, "soft")
    return picture
