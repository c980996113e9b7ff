"""NEXMark's events, seeded and counter-based: event ``n`` is a pure function of the settings and ``n``.

Every event has twelve random words of its own, Philox keyed by the seed with the event's number as its counter, so any
range can be generated alone and gives the same bytes. Strings are pieces of one random text that follows from the seed.

Of 50 events one is a person, then come three auctions and 46 bids. Ids grow with the events; sellers, bidders and the
auctions that are bid on are hot ones or among the last thousand people and the last hundred auctions. As in the
original, ids are drawn up to ten ahead of what there is, and a bidder's id is ``bidder_lead`` ahead of the person that
it was drawn from. An event is JSON::

    {"event_type":2,"person":null,"auction":null,"bid":{...},"dateTime":"2025-06-01T23:59:00.000"}

with ``dateTime`` (UTC, no zone) twice: in the person, auction or bid, and outside, where it is the same for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import polars as pl

__all__ = ["EVENTS_PER_EPOCH", "Events", "Settings", "Stream", "generate"]

PERSON, AUCTION, BID = 0, 1, 2
EVENTS_PER_EPOCH, PEOPLE, AUCTIONS, BIDS = 50, 1, 3, 46
FIRST_ID = 1000
FIRST_CATEGORY, CATEGORIES = 10, 5
ACTIVE_PEOPLE, PEOPLE_AHEAD = 1000, 10
OPEN_AUCTIONS, AUCTIONS_AHEAD = 100, 10
HOT_EVERY = 100
CHANNELS = 10_000

_WORDS = 12
_TEXT = 1 << 18
_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", np.uint8)
_FIRST = ("Ada", "Ben", "Cleo", "Dov", "Elif", "Femi", "Gita", "Hugo", "Ines", "Jun", "Kofi")
_LAST = ("Abel", "Brandt", "Costa", "Dahl", "Evans", "Farah", "Gruber", "Hansen", "Ito")
_CITIES = ("Bend", "Boise", "Casper", "Eugene", "Fresno", "Laramie", "Oakland", "Phoenix", "Seattle", "Tacoma")
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")

Words = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Settings:
    """What events there are; two generators with the same settings give the same bytes."""

    seed: int = 7
    rate: int = 10_000
    """Events per second of event time."""
    base_ms: int = 1_748_822_340_000
    """The time of event 0: 2025-06-01T23:59:00Z, a minute before midnight, so that there are two days."""
    out_of_order: int = 1
    """Events come in groups of so many that are mixed up; 1 for in order."""
    bidder_lead: int = 1000
    """How far a bidder's id is ahead of the person's it was drawn from. The original adds the first id twice: 1000."""

    def times_ms(self, numbers: Ints) -> Ints:
        """When events happen."""
        return self.base_ms + numbers * 1_000_000 // self.rate // 1000

    def arrivals(self, first: int, last: int) -> Ints:
        """The numbers of the events at these places of the stream."""
        places = np.arange(first, last, dtype=np.int64)
        group = self.out_of_order
        return places if group == 1 else places // group * group + places * 953 % group


@dataclass(frozen=True)
class Events:
    """Typed columns of the events of a range, by number; each has its number ``n`` and the column ``dateTime``."""

    people: pl.DataFrame
    auctions: pl.DataFrame
    bids: pl.DataFrame

    def between(self, first: int, last: int) -> Events:
        """Those of some numbers."""
        frames = (frame.filter(pl.col("n").is_between(first, last - 1)) for frame in self.frames)
        return Events(*frames)

    @property
    def frames(self) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        """People, auctions, bids."""
        return self.people, self.auctions, self.bids


@dataclass(frozen=True)
class Stream:
    """The events in the order of their arrival, as records."""

    settings: Settings = Settings()

    def records(self, first: int, last: int) -> pl.DataFrame:
        """Places ``first`` to before ``last``: n, timestamp (ms), value (JSON)."""
        group = self.settings.out_of_order
        low, high = first // group * group, -(-last // group) * group
        made = _with_json(generate(self.settings, low, high))
        return made[(self.settings.arrivals(first, last) - low).tolist()] if group > 1 else made


def generate(settings: Settings, first: int, last: int) -> Events:
    """The events of these numbers."""
    begin = first // EVENTS_PER_EPOCH
    end = -(-last // EVENTS_PER_EPOCH)
    words = _words(settings, begin * EVENTS_PER_EPOCH, end * EVENTS_PER_EPOCH)
    numbers = np.arange(begin * EVENTS_PER_EPOCH, end * EVENTS_PER_EPOCH, dtype=np.int64)
    place = numbers % EVENTS_PER_EPOCH
    text = _text(settings.seed)
    person, auction, bid = place < PEOPLE, (place >= PEOPLE) & (place < PEOPLE + AUCTIONS), place >= PEOPLE + AUCTIONS
    whole = Events(
        _people(settings, numbers[person], words[person], text),
        _auctions(settings, numbers[auction], words[auction], text),
        _bids(settings, numbers[bid], words[bid], text),
    )
    return whole if first % EVENTS_PER_EPOCH == last % EVENTS_PER_EPOCH == 0 else whole.between(first, last)


def _people(settings: Settings, numbers: Ints, words: Words, text: _Text) -> pl.DataFrame:
    """``id`` is that of the newest person."""
    name = pl.Series([f"{first} {last}" for first in _FIRST for last in _LAST])
    made = pl.DataFrame(
        {
            "n": numbers,
            "id": FIRST_ID + _newest_person(numbers),
            "name": name.gather(_below(words[:, 0], len(name))),
            "emailAddress": text.word(words[:, 1], 7) + "@" + text.word(words[:, 2], 5) + ".com",
            "creditCard": _card(words[:, 3]),
            "city": pl.Series(_CITIES).gather(_below(words[:, 4], len(_CITIES))),
            "state": pl.Series(_STATES).gather(_below(words[:, 5], len(_STATES))),
            "dateTime": _datetime(settings, numbers),
        }
    )
    size = 8 + sum(made[name].str.len_bytes() for name in ("name", "emailAddress", "creditCard", "city", "state"))
    return made.with_columns(text.padding(words[:, 6:8], size.to_numpy(), 200).alias("extra"))


def _auctions(settings: Settings, numbers: Ints, words: Words, text: _Text) -> pl.DataFrame:
    """``expires`` is up to twice as far away as the time until a hundred more auctions are there."""
    initial = _price(words[:, 2])
    hot = FIRST_ID + _newest_person(numbers) // HOT_EVERY * HOT_EVERY
    ahead = settings.times_ms(numbers + OPEN_AUCTIONS * EVENTS_PER_EPOCH // AUCTIONS) - settings.times_ms(numbers)
    length = 1 + _below(words[:, 4], np.maximum(2 * ahead, 1))
    made = pl.DataFrame(
        {
            "n": numbers,
            "id": FIRST_ID + _newest_auction(numbers),
            "itemName": text.word(words[:, 0], 20),
            "description": text.word(words[:, 1], 100),
            "initialBid": initial,
            "reserve": initial + _price(words[:, 3]),
            "dateTime": _datetime(settings, numbers),
            "expires": _datetime(settings, numbers, length),
            "seller": np.where(_below(words[:, 5], 4) > 0, hot, FIRST_ID + _person(numbers, words[:, 6])),
            "category": FIRST_CATEGORY + _below(words[:, 7], CATEGORIES),
        }
    )
    size = 8 + 40 + sum(made[name].str.len_bytes() for name in ("itemName", "description"))
    return made.with_columns(text.padding(words[:, 8:10], size.to_numpy(), 500).alias("extra"))


def _bids(settings: Settings, numbers: Ints, words: Words, text: _Text) -> pl.DataFrame:
    """Half of the bids are for a hot auction, three of four by a hot bidder, half over a hot channel."""
    newest = _newest_auction(numbers)
    oldest = np.maximum(newest - OPEN_AUCTIONS, 0)
    auction = oldest + _below(words[:, 1], newest - oldest + 1 + AUCTIONS_AHEAD)
    hot_bidder = _newest_person(numbers) // HOT_EVERY * HOT_EVERY + 1
    bidder = np.where(_below(words[:, 2], 4) > 0, hot_bidder, _person(numbers, words[:, 3]))
    hot_channel = _below(words[:, 5], len(_HOT_CHANNELS))
    channel = np.where(_below(words[:, 6], 2) > 0, hot_channel, len(_HOT_CHANNELS) + _below(words[:, 7], CHANNELS))
    names, urls = _channels(settings.seed)
    size = np.full(len(numbers), 32, np.int64)
    return pl.DataFrame(
        {
            "n": numbers,
            "auction": FIRST_ID + np.where(_below(words[:, 0], 2) > 0, newest // HOT_EVERY * HOT_EVERY, auction),
            "bidder": FIRST_ID + settings.bidder_lead + bidder,
            "price": _price(words[:, 4]),
            "channel": names.gather(channel),
            "url": urls.gather(channel),
            "dateTime": _datetime(settings, numbers),
            "extra": text.padding(words[:, 8:10], size, 100),
        }
    )


def _newest_person(numbers: Ints) -> Ints:
    """Counted from 0."""
    return numbers // EVENTS_PER_EPOCH * PEOPLE


def _newest_auction(numbers: Ints) -> Ints:
    """Counted from 0: that of the epoch before until the first of this one."""
    epoch, place = np.divmod(numbers, EVENTS_PER_EPOCH)
    return epoch * AUCTIONS + np.clip(place - PEOPLE, -1, AUCTIONS - 1)


def _person(numbers: Ints, word: Words) -> Ints:
    """One of the last thousand people, or of the next ten; counted from 0."""
    people = _newest_person(numbers) + 1
    active = np.minimum(people, ACTIVE_PEOPLE)
    return people - active + _below(word, active + PEOPLE_AHEAD)


def _price(word: Words) -> Ints:
    """Log-uniform from 100 to 100,000,000."""
    return np.round(np.power(10.0, _unit(word) * 6) * 100).astype(np.int64)


def _card(word: Words) -> pl.Series:
    digits = pl.Series([f"{number:04d}" for number in range(10_000)])
    parts = [
        digits.gather(((word >> np.uint64(shift)) & np.uint64(0xFFFF)) * 10_000 >> 16) for shift in (0, 16, 32, 48)
    ]
    return parts[0] + " " + parts[1] + " " + parts[2] + " " + parts[3]


def _datetime(settings: Settings, numbers: Ints, later: Ints | int = 0) -> pl.Series:
    return pl.Series(settings.times_ms(numbers) + later).cast(pl.Datetime("ms"))


def _words(settings: Settings, first: int, last: int) -> Words:
    """Twelve random words (three blocks of Philox) for each event."""
    source = np.random.Philox(key=settings.seed, counter=first * (_WORDS // 4))
    return source.random_raw((last - first) * _WORDS).reshape(-1, _WORDS)


def _below(word: Words, bound: Ints | int) -> Ints:
    """Uniform in 0 to before ``bound``, which is less than 2^32."""
    return ((word >> np.uint64(32)) * np.asarray(bound).astype(np.uint64) >> np.uint64(32)).astype(np.int64)


def _unit(word: Words) -> npt.NDArray[np.float64]:
    """Uniform in [0, 1)."""
    return (word >> np.uint64(11)) * 2.0**-53


class _Text:
    """Random letters, and the same with a space for one letter of thirteen; strings are pieces of them."""

    def __init__(self, seed: int) -> None:
        words = np.random.Philox(key=seed, counter=1 << 200).random_raw(2 * _TEXT).reshape(2, _TEXT)
        self._letters = _LETTERS[_below(words[0], len(_LETTERS))]
        self._spaced = np.where(_below(words[1], 13) == 0, np.uint8(ord(" ")), self._letters)

    def word(self, word: Words, bound: int) -> pl.Series:
        """Three to before ``bound`` characters, trimmed."""
        size = 3 + ((word & np.uint64(0xFFFFFFFF)) * np.uint64(bound - 3) >> np.uint64(32)).astype(np.int64)
        return _pieces(self._spaced, _below(word, _TEXT - bound), size).str.strip_chars()

    def padding(self, words: Words, size: Ints, wanted: int) -> pl.Series:
        """What brings events of these sizes to the wanted one, a fifth more or less."""
        missing = np.maximum(wanted - size, 0)
        delta = np.floor(missing * 0.2 + 0.5).astype(np.int64)
        length = missing - delta + _below(words[:, 0], np.maximum(2 * delta, 1))
        return _pieces(self._letters, _below(words[:, 1], _TEXT - 2 * wanted), length)


@cache
def _text(seed: int) -> _Text:
    return _Text(seed)


def _pieces(text: npt.NDArray[np.uint8], starts: Ints, sizes: Ints) -> pl.Series:
    """``text[start : start + size]`` of each."""
    import pyarrow as pa

    ends = np.cumsum(sizes)
    at = np.repeat((starts - (ends - sizes)).astype(np.int32), sizes)
    at += np.arange(len(at), dtype=np.int32)
    offsets = np.concatenate([[0], ends])
    made = pa.LargeStringArray.from_buffers(len(sizes), pa.py_buffer(offsets), pa.py_buffer(text[at]))
    return pl.Series(made)


@cache
def _channels(seed: int) -> tuple[pl.Series, pl.Series]:
    """Names and urls: the four hot ones, then ten thousand, of which nine of ten have their id in the url."""
    words = np.random.Philox(key=seed, counter=1 << 201).random_raw(4 * (CHANNELS + 4)).reshape(-1, 4)
    text = _text(seed)
    folders = [text.word(words[:, at], 5).str.replace_all(" ", "_", literal=True) for at in range(3)]
    base = "https://www.nexmark.com/" + folders[0] + "/" + folders[1] + "/" + folders[2] + "/item.htm?query=1"
    known = _below(words[:, 3], 10) > 0
    ids = [f"&channel_id={_reversed(number)}" if known[number] else "" for number in range(CHANNELS)]
    names = pl.Series([*_HOT_CHANNELS, *(f"channel-{number}" for number in range(CHANNELS))])
    return names, base + pl.Series([""] * len(_HOT_CHANNELS) + ids)


def _reversed(number: int) -> int:
    """The bits of a 32-bit integer in reverse, without the sign."""
    bits = int(f"{number:032b}"[::-1], 2)
    return abs(bits - (1 << 32) if bits >> 31 else bits)


def _with_json(events: Events) -> pl.DataFrame:
    """n, timestamp (ms) and value of all, by number."""
    made = [_json(kind, frame) for kind, frame in enumerate(events.frames)]
    return pl.concat(made).sort("n")


def _json(kind: int, frame: pl.DataFrame) -> pl.DataFrame:
    """The events of one kind as JSON objects; no string of theirs needs escaping."""
    names = ("person", "auction", "bid")
    before = ",".join(f'"{name}":null' for name in names[:kind])
    after = ",".join(f'"{name}":null' for name in names[kind + 1 :])
    pieces: list[pl.Expr] = []
    lead = f'{{"event_type":{kind},{before}{"," if before else ""}"{names[kind]}":{{'
    for name, type_ in frame.drop("n").schema.items():
        quote = "" if type_.is_integer() else '"'
        pieces += [pl.lit(f'{lead}"{name}":{quote}'), _as_text(pl.col(name), type_)]
        lead = f"{quote},"
    pieces += [pl.lit(f'"}}{"," if after else ""}{after},"dateTime":"'), _as_text(pl.col("dateTime"), pl.Datetime())]
    pieces.append(pl.lit('"}'))
    texts = frame.with_columns(_iso(frame[name]) for name, type_ in frame.schema.items() if type_.is_temporal())
    return texts.select(
        "n", frame["dateTime"].dt.epoch("ms").alias("timestamp"), pl.concat_str(pieces).cast(pl.Binary).alias("value")
    )


def _as_text(column: pl.Expr, type_: pl.DataType) -> pl.Expr:
    return column if type_ == pl.String or type_.is_temporal() else column.cast(pl.String)


def _iso(times: pl.Series) -> pl.Series:
    """Formatted once for each of a run of the same time."""
    runs = times.rle().struct.unnest()
    shown = runs["value"].dt.strftime("%Y-%m-%dT%H:%M:%S%.3f")
    return shown.gather(np.repeat(np.arange(len(runs)), runs["len"].to_numpy())).alias(times.name)
