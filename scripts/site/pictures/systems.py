"""The whole, and what it promises."""

from __future__ import annotations

from drawing import Picture

__all__ = ["pictures"]


def pictures() -> dict[str, Picture]:
    """By file name."""
    return {
        "mark": mark(),
        "whole": whole(),
        "once": once(),
        "fencing": fencing(),
        "log-and-queue": log_and_queue(),
        "dual-writes": dual_writes(),
        "capture": capture(),
    }


def mark() -> Picture:
    """A channel and a wheel."""
    picture = Picture(24, 24, "Headrace")
    picture.parts = [
        '<g fill="none" stroke="#fff" stroke-width="2" stroke-linecap="round">'
        '<path d="M1.5 4.5h8c3 0 4.5 1.500 4.500 4"/><circle cx="14" cy="15" r="6.500"/>'
        '<path d="M14 8.500v13M7.500 15h13" stroke-width="1.300"/></g>'
    ]
    return picture


def whole() -> Picture:
    """From left to right."""
    picture = Picture(760, 262, "From producers and databases through the log and pipelines to views and their readers")
    for y, words in ((40, "any Kafka producer"), (100, "headrace produce"), (160, "databases:\nchange capture")):
        picture.named(14, y, 142, 42, words, "soft")
        picture.arrow((156, y + 21), (214, 61 + (y - 40) * 0.6 + 30), colour="soft")
    picture.named(216, 50, 140, 160, "", "a")
    picture.text(220, 42, "the log", "a", kind="strong")
    for row, words in enumerate(("orders", "customers", "shop.revenue", "orders.late")):
        y = 64 + 35 * row
        picture.text(226, y + 10, words, kind="mono")
        for cell in range(9):
            picture.box(226 + 13.5 * cell, y + 15, 12, 9, "ac"[row // 2], washed=cell < 8 - row % 3)
    picture.named(432, 50, 134, 66, "your app.py\non Spark", "b", kind="strong")
    picture.arrow((358, 76), (430, 76), colour="b")
    picture.text(394, 68, "events", "soft", anchor="middle", kind="small")
    picture.arrow((499, 118), (499, 144), (358, 144), colour="b")
    picture.text(430, 138, "changes, once", "soft", anchor="middle", kind="small")
    picture.named(432, 168, 134, 42, "views", "c", kind="strong")
    picture.arrow((358, 190), (430, 190), colour="c")
    picture.text(394, 208, "changes", "soft", anchor="middle", kind="small")
    picture.text(499, 228, "SQLite or PostgreSQL", "soft", anchor="middle", kind="small")
    for y, words in (
        (40, "any Kafka consumer"),
        (100, "webhook, mail"),
        (160, "HTTP, SQL, events"),
        (212, "page, pandas, Polars"),
    ):
        picture.named(606, y, 148, 38, words, "soft")
    picture.arrow((316, 48), (316, 20), (584, 20), (584, 59), (604, 59), colour="a")
    picture.arrow((568, 96), (604, 116), colour="b")
    picture.arrow((568, 184), (604, 180), colour="c")
    picture.arrow((568, 196), (604, 226), colour="c")
    return picture


def _cells(picture: Picture, x: float, y: float, words: tuple[tuple[str, str], ...], width: float) -> None:
    for number, (word, colour) in enumerate(words):
        picture.named(x + (width + 4) * number, y, width, 28, word, colour)


def once() -> Picture:
    """A batch, its mark, a crash, the batch again."""
    picture = Picture(720, 226, "A batch and its mark are one transaction; done again, it finds its mark")
    picture.text(16, 28, "Spark's batches", kind="strong small")
    steps = ((16, "batch 6", "c"), (156, "batch 7", "c"), (370, "batch 7 again", "b"), (560, "batch 8", "c"))
    for x, words, colour in steps:
        picture.named(x, 42, 130, 34, words, colour)
    picture.cross(326, 59)
    picture.text(326, 88, "killed", "d", anchor="middle", kind="small strong")
    picture.text(16, 212, "in the log", kind="strong small")
    _cells(picture, 16, 160, (("row", "a"), ("row", "a"), ("mark 6", "c")), 58)
    picture.box(206, 152, 242, 44, "c", dash="5 3", washed=False)
    _cells(picture, 212, 160, (("row", "a"), ("row", "a"), ("row", "a"), ("mark 7", "c")), 54)
    _cells(picture, 556, 160, (("row", "a"), ("mark 8", "c")), 66)
    picture.arrow((81, 78), (100, 156), colour="c")
    picture.arrow((221, 78), (310, 149), colour="c")
    picture.text(327, 214, "one transaction: all of it or nothing", "c", anchor="middle", kind="small")
    picture.arrow((435, 78), (435, 156), colour="b", dash="4 3")
    picture.text(446, 118, "finds its mark,\nwrites nothing", "b", kind="small")
    picture.arrow((625, 78), (625, 156), colour="c")
    return picture


def fencing() -> Picture:
    """A second run fences the first."""
    picture = Picture(720, 186, "A run of epoch 4 hangs, epoch 5 takes over, the write of the first is refused")
    for y, words in ((40, "run, epoch 4"), (96, "run, epoch 5")):
        picture.text(16, y + 5, words, kind="small strong")
        picture.line((120, y), (700, y), colour="soft", width=1)
    picture.line((120, 40), (250, 40), colour="a", width=7)
    picture.line((250, 40), (520, 40), colour="soft", width=3, dash="4 5")
    picture.text(385, 30, "hangs: a pause, a lost network", "soft", anchor="middle", kind="small")
    picture.line((320, 96), (690, 96), colour="c", width=7)
    picture.line((520, 40), (580, 40), colour="d", width=7)
    picture.cross(596, 40)
    picture.text(612, 33, "refused", "d", kind="small strong")
    picture.text(120, 160, "the log", kind="strong small", anchor="end")
    for x, colour in ((150, "a"), (200, "a"), (350, "c"), (420, "c"), (490, "c"), (560, "c"), (630, "c")):
        picture.named(x, 146, 40, 24, "4" if colour == "a" else "5", colour)
        picture.arrow((x + 20, 46 if colour == "a" else 102), (x + 20, 144), colour=colour, width=1)
    return picture


def log_and_queue() -> Picture:
    """One topic, read in both ways at once."""
    picture = Picture(720, 300, "One topic, read as a log by consumer groups and as a queue by a share group")
    x0, cell = 110, 52
    picture.text(16, 150, "topic", kind="strong")
    for number in range(11):
        picture.named(x0 + cell * number, 130, cell - 6, 32, str(number), "a")
    picture.text(16, 42, "as a log", kind="strong")
    for place, words, colour in ((9, "group billing: next is 9", "c"), (4, "group report: next is 4", "b")):
        x = x0 + cell * place + 23
        picture.arrow((x, 72), (x, 126), colour=colour, width=2)
        picture.text(x, 62, words, colour, anchor="middle", kind="small strong")
    picture.arrow((x0 + cell * 4 + 10, 98), (x0 + 30, 98), colour="b", dash="4 3")
    picture.text(x0 + 30, 88, "seek back and read again", "b", kind="small")
    picture.text(16, 246, "as a queue", kind="strong")
    marks = (
        ("accepted", "c"),
        ("accepted", "c"),
        ("dead", "d"),
        ("accepted", "c"),
        ("worker 1", "b"),
        ("accepted", "c"),
        ("worker 2", "b"),
        ("again: 2nd", "soft"),
    )
    for number, (words, colour) in enumerate(marks):
        x = x0 + cell * number + 23
        picture.line((x, 164), (x, 188 + 22 * (number % 2)), colour=colour)
        picture.text(x, 202 + 22 * (number % 2), words, colour, anchor="middle", kind="small strong")
    picture.arrow((x0 + cell * 2 + 23, 206), (x0 + cell * 2 + 23, 256), colour="d")
    picture.named(x0 + cell * 2 - 40, 258, 126, 30, "dead-letter topic", "d")
    picture.arrow((x0 + cell * 2 + 88, 273), (x0 + cell * 6, 273), colour="soft", dash="4 3")
    picture.text(x0 + cell * 6 + 10, 278, "headrace dlq redrive", "soft", kind="mono")
    return picture


def dual_writes() -> Picture:
    """Two clients write to two places each; the places disagree."""
    picture = Picture(720, 206, "Writes to a database and to a log cross, and a crash leaves one out")
    for y, name in ((40, "writer 1"), (80, "writer 2"), (130, "database"), (180, "log")):
        picture.text(16, y + 5, name, kind="small strong")
        picture.line((100, y), (700, y), colour="soft", width=1)
    for x, y, end, words, colour in (
        (150, 40, 130, "1", "a"),
        (230, 80, 130, "2", "b"),
        (290, 80, 180, "2", "b"),
        (370, 40, 180, "1", "a"),
    ):
        picture.arrow((x, y), (x, end - 13), colour=colour)
        picture.dot(x, end, colour, words)
    picture.text(410, 122, "ends with 2", "b", kind="small strong")
    picture.text(410, 172, "ends with 1", "a", kind="small strong")
    picture.arrow((560, 40), (560, 117), colour="a")
    picture.dot(560, 130, "a", "3")
    picture.cross(600, 40)
    picture.text(614, 33, "crash", "d", kind="small strong")
    picture.dot(640, 180, "d", "?", hollow=True)
    return picture


def capture() -> Picture:
    """The database is written to; its own log is followed."""
    picture = Picture(720, 130, "Writers write to the database; its own log of changes is followed")
    for y, name, colour in ((26, "writer 1", "a"), (86, "writer 2", "b")):
        picture.named(14, y, 90, 34, name, colour)
        picture.arrow((104, y + 17), (166, 66 if y < 50 else 82), colour=colour)
    picture.named(168, 44, 150, 62, "database\nand its own log", "soft")
    for x, words, colour in ((402, "1", "a"), (436, "2", "b"), (470, "3", "a")):
        picture.dot(x, 75, colour, words)
    picture.box(384, 54, 106, 42, "c")
    picture.text(437, 44, "the log", "c", anchor="middle", kind="strong small")
    picture.arrow((318, 75), (382, 75), colour="c")
    picture.text(350, 65, "follows", "soft", anchor="middle", kind="small")
    picture.arrow((490, 75), (560, 75), colour="c")
    picture.named(562, 54, 140, 42, "views, streams,\nother systems", "c")
    return picture
