"""Regular expressions over topic names, in the syntax of RE2 that Kafka's brokers take, matched in linear time.

Python's ``re`` would accept other things (look-ahead, back-references) and can be made to run for ever by whoever
writes the expression. Here a pattern becomes a small automaton that looks at each character once. Topic names have 65
different characters, so a character class is a set of those.

Stricter than RE2 in one point: an expression that needs more than ``MAX_STEPS`` steps (``((a{100}){100}){100}``) is
refused.
"""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

__all__ = ["MAX_STEPS", "BadPattern", "TopicPattern"]

MAX_STEPS: Final = 1000
_MAX_DEPTH: Final = 100
_MAX_REPEAT: Final = 1000

_NAME_CHARACTERS: Final = frozenset(string.ascii_letters + string.digits + "._-")
_WORD: Final = frozenset(string.ascii_letters + string.digits + "_")
_PERL: Final = {"d": frozenset(string.digits), "w": _WORD, "s": frozenset("\t\n\f\r ")}
_POSIX: Final = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "ascii": _NAME_CHARACTERS,
    "blank": frozenset("\t "),
    "cntrl": frozenset(),
    "digit": frozenset(string.digits),
    "graph": _NAME_CHARACTERS,
    "lower": frozenset(string.ascii_lowercase),
    "print": _NAME_CHARACTERS,
    "punct": frozenset("._-"),
    "space": frozenset("\t\n\v\f\r "),
    "upper": frozenset(string.ascii_uppercase),
    "word": _WORD,
    "xdigit": frozenset(string.hexdigits),
}
_ESCAPES: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_LOOKS: Final = {"A": "begin", "z": "end", "b": "boundary", "B": "inside"}


class BadPattern(ValueError):
    """The expression is not valid; says why."""


@dataclass(frozen=True, slots=True)
class _Set:
    characters: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Look:
    kind: str


@dataclass(frozen=True, slots=True)
class _Sequence:
    parts: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Choice:
    options: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Repeat:
    part: _Node
    low: int
    high: int | None


_Node = _Set | _Look | _Sequence | _Choice | _Repeat
_EMPTY: Final = _Sequence(())


class TopicPattern:
    """A compiled expression. BadPattern if it is none."""

    def __init__(self, text: str) -> None:
        self._steps: list[tuple[frozenset[str] | str | None, tuple[int, ...]]] = [("match", ())]
        self._reachable: dict[tuple[int, str], tuple[int, ...]] = {}
        self._start = self._compile(_Parser(text).parse(), 0)

    def matches(self, name: str) -> bool:
        """Whether the expression stands for all of this name."""
        states: set[int] = {self._start}
        for at, character in enumerate(name):
            around = _around(name, at)
            states = {
                follower
                for state in states
                for step in self._closure(state, around)
                if self._takes(step, character)
                for follower in self._steps[step][1]
            }
            if not states:
                return False
        around = _around(name, len(name))
        return any(self._steps[step][0] == "match" for state in states for step in self._closure(state, around))

    def _takes(self, step: int, character: str) -> bool:
        characters = self._steps[step][0]
        return isinstance(characters, frozenset) and character in characters

    def _closure(self, state: int, around: str) -> tuple[int, ...]:
        """The steps that take a character (or the end), reachable without taking one."""
        key = (state, around)
        found = self._reachable.get(key)
        if found is None:
            seen, todo, ends = {state}, [state], []
            while todo:
                step = todo.pop()
                what, followers = self._steps[step]
                if isinstance(what, frozenset) or what == "match":
                    ends.append(step)
                elif what is None or _holds(what, around):
                    todo.extend(new for new in followers if new not in seen)
                    seen.update(followers)
            found = self._reachable[key] = tuple(ends)
        return found

    def _compile(self, node: _Node, then: int) -> int:
        match node:
            case _Set(characters):
                return self._add(characters, then)
            case _Look(kind):
                return self._add(kind, then)
            case _Sequence(parts):
                for part in reversed(parts):
                    then = self._compile(part, then)
                return then
            case _Choice(options):
                return self._add(None, *(self._compile(option, then) for option in options))
            case _Repeat(part, low, high):
                return self._compile_repeat(part, low, high, then)

    def _compile_repeat(self, part: _Node, low: int, high: int | None, then: int) -> int:
        if high is None:
            loop = self._add(None)
            self._steps[loop] = (None, (self._compile(part, loop), then))
            entry = loop
        else:
            entry = then
            for _ in range(high - low):
                entry = self._add(None, self._compile(part, entry), then)
        for _ in range(low):
            entry = self._compile(part, entry)
        return entry

    def _add(self, what: frozenset[str] | str | None, *followers: int) -> int:
        if len(self._steps) >= MAX_STEPS:
            raise BadPattern(f"it needs more than {MAX_STEPS} steps")
        self._steps.append((what, followers))
        return len(self._steps) - 1


def _around(name: str, at: int) -> str:
    """What can be seen from a place between two characters."""
    before, after = name[at - 1 : at], name[at : at + 1]
    left = "^" if not before else "w" if before in _WORD else "-"
    return left + ("$" if not after else "w" if after in _WORD else "-")


def _holds(kind: str, around: str) -> bool:
    if kind == "begin":
        return around[0] == "^"
    if kind == "end":
        return around[1] == "$"
    at_boundary = (around[0] == "w") != (around[1] == "w")
    return at_boundary if kind == "boundary" else not at_boundary


class _Parser:
    """Reads an expression from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._ignore_case = False
        self._names: set[str] = set()

    def parse(self) -> _Node:
        node = self._choice()
        if self._at < len(self._text):
            raise BadPattern("there is a ) without a (")
        return node

    def _choice(self) -> _Node:
        options = [self._sequence()]
        while self._take("|"):
            options.append(self._sequence())
        return options[0] if len(options) == 1 else _Choice(tuple(options))

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            if self._take("\\Q"):
                end = self._text.find("\\E", self._at)
                quoted = self._text[self._at : end if end >= 0 else None]
                self._at = end + 2 if end >= 0 else len(self._text)
                parts += [self._literal(character) for character in quoted]
            elif (bounds := self._repetition()) is not None:
                if not parts:
                    raise BadPattern("there is nothing to repeat")
                parts[-1] = _Repeat(parts[-1], *bounds)
                self._take("?")
                if self._repetition() is not None:
                    raise BadPattern("a repetition cannot be repeated; use brackets")
            else:
                parts.append(self._atom())
        return parts[0] if len(parts) == 1 else _Sequence(tuple(parts))

    def _repetition(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return bounds
        end = self._text.find("}", self._at)
        if not self._text.startswith("{", self._at) or end < 0:
            return None
        low, comma, high = self._text[self._at + 1 : end].partition(",")
        if not _is_number(low) or (high and not _is_number(high)):
            return None
        least, most = int(low), (int(high) if high else None) if comma else int(low)
        if least > _MAX_REPEAT or (most is not None and not least <= most <= _MAX_REPEAT):
            raise BadPattern(f"{self._text[self._at : end + 1]} is not a repetition")
        self._at = end + 1
        return least, most

    def _atom(self) -> _Node:
        character = self._text[self._at]
        self._at += 1
        if character == "(":
            return self._group()
        if character == "[":
            return self._class()
        if character == ".":
            return _Set(_NAME_CHARACTERS)
        if character in "^$":
            return _Look("begin" if character == "^" else "end")
        if character == "\\":
            return self._escape()
        return self._literal(character)

    def _literal(self, character: str) -> _Node:
        return _Set(self._cased(frozenset(character)) & _NAME_CHARACTERS)

    def _cased(self, characters: frozenset[str]) -> frozenset[str]:
        if not self._ignore_case:
            return characters
        return characters | {each.lower() for each in characters} | {each.upper() for each in characters}

    # --- groups ---

    def _group(self) -> _Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise BadPattern("brackets are nested too deeply")
        outside = self._ignore_case
        if self._take("?P<") or self._take("?<"):
            self._group_name()
        elif self._take("?") and self._flags():
            self._depth -= 1
            return _EMPTY
        node = self._choice()
        if not self._take(")"):
            raise BadPattern("there is a ( without a )")
        self._ignore_case = outside
        self._depth -= 1
        return node

    def _group_name(self) -> None:
        end = self._text.find(">", self._at)
        name = self._text[self._at : end]
        if end < 0 or not name or not set(name) <= _WORD or name in self._names:
            raise BadPattern("a group has a name that cannot be, or that another has")
        self._names.add(name)
        self._at = end + 1

    def _flags(self) -> bool:
        """Read flags behind ``(?``; True if they stand alone and so hold for the rest of the group around them."""
        on, seen = True, False
        while self._at < len(self._text):
            character = self._text[self._at]
            self._at += 1
            if character in "imsU":
                seen = True
                if character == "i":
                    self._ignore_case = on
            elif character == "-" and on:
                on, seen = False, False
            elif character in ":)" and (on or seen):
                return character == ")"
            else:
                break
        raise BadPattern("there is an unknown or unfinished (?")

    # --- classes and escapes ---

    def _escape(self) -> _Node:
        if self._at == len(self._text):
            raise BadPattern("it ends with a backslash")
        letter = self._text[self._at]
        if letter in _LOOKS:
            self._at += 1
            return _Look(_LOOKS[letter])
        known = self._escaped_class()
        return _Set(known) if known is not None else self._literal(self._escaped_character())

    def _escaped_class(self) -> frozenset[str] | None:
        """``\\d`` and its like, ``\\pL`` and its like; the backslash was read."""
        letter = self._text[self._at : self._at + 1]
        if letter.lower() in _PERL and letter:
            self._at += 1
            known = _PERL[letter.lower()] & _NAME_CHARACTERS
            return known if letter.islower() else _NAME_CHARACTERS - known
        if letter not in ("p", "P"):
            return None
        self._at += 1
        if self._take("{"):
            end = self._text.find("}", self._at)
            if end < 0:
                raise BadPattern("there is a \\p{ without a }")
            name, self._at = self._text[self._at : end], end + 1
        else:
            name, self._at = self._text[self._at : self._at + 1], self._at + 1
        negated = (letter == "P") != name.startswith("^")
        known = self._cased(_unicode_class(name.removeprefix("^")))
        return _NAME_CHARACTERS - known if negated else known

    def _escaped_character(self) -> str:
        if self._at == len(self._text):
            raise BadPattern("it ends with a backslash")
        letter = self._text[self._at]
        self._at += 1
        if letter in _ESCAPES:
            return _ESCAPES[letter]
        if letter == "x":
            return self._hexadecimal()
        if letter in "01234567":
            digits = letter
            while len(digits) < 3 and self._text[self._at : self._at + 1] in tuple("01234567"):
                digits += self._text[self._at]
                self._at += 1
            if letter != "0" and len(digits) == 1:
                raise BadPattern("back-references are not supported")
            return chr(int(digits, 8))
        if not letter.isascii() or letter.isalnum():
            raise BadPattern(f"there is no \\{letter}")
        return letter

    def _hexadecimal(self) -> str:
        if self._take("{"):
            end = self._text.find("}", self._at)
            digits, after = self._text[self._at : end], end + 1
        else:
            digits, after = self._text[self._at : self._at + 2], self._at + 2
        if not 1 <= len(digits) <= 8 or not set(digits) <= set(string.hexdigits) or int(digits, 16) > 0x10FFFF:
            raise BadPattern("there is a \\x that is no character")
        self._at = after
        return chr(int(digits, 16))

    def _class(self) -> _Node:
        negated = self._take("^")
        characters: set[str] = set()
        first = True
        while first or not self._take("]"):
            first = False
            if self._at >= len(self._text):
                raise BadPattern("there is a [ without a ]")
            characters.update(self._class_item())
        found = self._cased(frozenset(characters)) & _NAME_CHARACTERS
        return _Set(_NAME_CHARACTERS - found if negated else found)

    def _class_item(self) -> Iterable[str]:
        if self._text.startswith("[:", self._at) and (end := self._text.find(":]", self._at)) > 0:
            name = self._text[self._at + 2 : end]
            known = _POSIX.get(name.removeprefix("^"))
            if known is None:
                raise BadPattern(f"there is no class [:{name}:]")
            self._at = end + 2
            return _NAME_CHARACTERS - known if name.startswith("^") else known
        if self._take("\\"):
            known = self._escaped_class()
            if known is not None:
                return known
            low = self._escaped_character()
        else:
            low = self._next()
        after = self._text[self._at + 1 : self._at + 2]
        if not self._text.startswith("-", self._at) or after in ("]", ""):
            return low
        self._at += 1
        high = self._escaped_character() if self._take("\\") else self._next()
        if high < low:
            raise BadPattern(f"{low}-{high} is not a range")
        return {each for each in _NAME_CHARACTERS | _cases_between(low, high) if low <= each <= high}

    # --- characters ---

    def _next(self) -> str:
        character = self._text[self._at]
        self._at += 1
        return character

    def _take(self, expected: str) -> bool:
        if not self._text.startswith(expected, self._at):
            return False
        self._at += len(expected)
        return True


def _is_number(text: str) -> bool:
    return 1 <= len(text) <= 9 and text.isascii() and text.isdigit() and (text == "0" or not text.startswith("0"))


def _cases_between(low: str, high: str) -> set[str]:
    """A short range as it is, because its other case may be what counts."""
    return {chr(code) for code in range(ord(low), min(ord(high), ord(low) + 256) + 1)}


def _unicode_class(name: str) -> frozenset[str]:
    """The name characters of a general category or a script."""
    if name in ("Any", "Latin", "Common"):
        letters = frozenset(string.ascii_letters)
        return {"Any": _NAME_CHARACTERS, "Latin": letters, "Common": _NAME_CHARACTERS - letters}[name]
    if not name or not name.isascii() or not name.replace("_", "").isalpha() or not name[0].isupper():
        raise BadPattern(f"there is no class of characters \\p{{{name}}}")
    if len(name) <= 2 and name[0] not in "CLMNPSZ":
        raise BadPattern(f"there is no class of characters \\p{{{name}}}")
    return frozenset(each for each in _NAME_CHARACTERS if unicodedata.category(each).startswith(name))
