"""The joins."""

from __future__ import annotations

from drawing import Picture

__all__ = ["pictures"]


def pictures() -> dict[str, Picture]:
    """By file name."""
    return {"window-join": window_join(), "enrich": enrich(), "join-tables": join_tables()}


def window_join() -> Picture:
    """Two streams, a length of time."""
    picture = Picture(720, 246, "Two streams joined by clicks that come within ten minutes of a search")
    for y, name in ((44, "searches"), (132, "clicks")):
        picture.text(16, y + 5, name)
        picture.arrow((90, y), (700, y), colour="soft")
    for x, label in ((120, "a"), (430, "b")):
        picture.box(x, 62, 220, 50, "a")
        picture.text(x + 110, 82, "within 10 minutes", "soft", anchor="middle", kind="small")
        picture.dot(x, 44, "a", label)
    for x, label, colour in ((190, "1", "c"), (300, "2", "c"), (385, "3", "soft")):
        picture.dot(x, 132, colour, label)
        if colour == "c":
            picture.line((x, 122), (x, 100), (120, 100), (120, 55), colour="c")
    picture.text(90, 184, "out:", kind="strong")
    outs = (
        (132, 166, 82, "a with 1", "c"),
        (222, 166, 82, "a with 2", "c"),
        (132, 202, 300, "b alone, when its time is over (left, full)", "a"),
        (440, 202, 160, "3 alone (right, full)", "soft"),
    )
    for x, y, width, words, colour in outs:
        picture.named(x, y, width, 28, words, colour)
    return picture


def enrich() -> Picture:
    """A stream and a table as of a time."""
    picture = Picture(720, 170, "Orders see the version of the row that was valid at their time")
    picture.text(16, 44, "the row of FI\nin rates", kind="small")
    picture.text(16, 134, "orders\nfrom FI", kind="small")
    spans = ((120, 330, "version 1: 22 %", "b"), (330, 460, "version 2: 24 %", "c"), (560, 690, "version 3: 25 %", "a"))
    for x0, x1, words, colour in spans:
        picture.named(x0, 24, x1 - x0 - 3, 36, words, colour)
    picture.text(510, 46, "deleted", "d", anchor="middle", kind="small")
    picture.arrow((105, 138), (705, 138), colour="soft")
    picture.text(705, 158, "event time", "soft", anchor="end", kind="small")
    seen = ((170, "a", "b"), (260, "b", "b"), (390, "c", "c"), (510, "d", "d"), (620, "e", "a"))
    for x, label, colour in seen:
        picture.dot(x, 138, colour, label)
        picture.arrow((x, 126), (x, 64), colour=colour, dash="4 3")
    return picture


def _table(picture: Picture, x: float, y: float, name: str, rows: tuple[tuple[str, str], ...], width: float) -> None:
    picture.text(x, y - 9, name, kind="strong small")
    for number, (words, colour) in enumerate(rows):
        top = y + 28 * number
        picture.box(x, top, width, 24, colour if colour != "gone" else "d", dash="4 3" if colour == "gone" else "")
        picture.text(x + 9, top + 16.5, words, "d" if colour == "gone" else "ink", kind="mono")
        if colour == "gone":
            picture.line((x + 6, top + 12), (x + width - 6, top + 12), colour="d")


def join_tables() -> Picture:
    """A change on one side takes its results back and gives the new ones."""
    picture = Picture(720, 256, "A row that goes from one table takes its results out of the join")
    _table(picture, 16, 42, "tweets", (("1  ada  hello", "a"), ("2  ada  tea?", "a"), ("3  cy   rain", "a")), 150)
    _table(picture, 16, 166, "follows", (("bo  → ada", "gone"), ("bo  → cy", "b"), ("dee → ada", "b")), 150)
    picture.arrow((176, 84), (300, 118), colour="a")
    picture.arrow((176, 208), (300, 142), colour="b")
    picture.named(302, 106, 90, 48, "hr.join", "c", kind="strong")
    picture.arrow((396, 130), (470, 130), colour="c")
    rows = (
        ("bo   1  hello", "gone"),
        ("bo   2  tea?", "gone"),
        ("bo   3  rain", "c"),
        ("dee  1  hello", "c"),
        ("dee  2  tea?", "c"),
    )
    _table(picture, 474, 56, "home_timeline", rows, 160)
    picture.text(642, 73, "taken back", "d", kind="small")
    picture.text(642, 101, "taken back", "d", kind="small")
    picture.text(474, 222, "Bo unfollows Ada: one change in,\ntwo retractions out.", "soft", kind="small")
    return picture
