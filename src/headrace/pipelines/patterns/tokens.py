"""Words and signs of patterns, conditions and MATCH_RECOGNIZE, each with its place in the text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

__all__ = ["Mistake", "Sort", "Token", "Tokens"]

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)
      | (?P<quoted>`(?:[^`]|``)+`|"(?:[^"]|"")+")
      | (?P<text>'(?:[^']|'')*')
      | (?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)
      | (?P<name>[^\W\d]\w*)
      | (?P<sign>->>|<=|>=|<>|!=|==|[-+*/%(){}\[\],.<>=|?!^$])""",
    re.VERBOSE | re.DOTALL,
)


class Mistake(ValueError):
    """What is wrong with a text, where in it, and what to do."""

    def __init__(self, sentence: str, at: int, hint: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.at = at
        self.hint = hint


class Sort(Enum):
    """What a token is."""

    NAME = "a name"
    QUOTED = "a quoted name"
    TEXT = "a text"
    NUMBER = "a number"
    SIGN = "a sign"
    END = "the end"


@dataclass(frozen=True, slots=True)
class Token:
    """A word or sign. ``text`` is without quotes."""

    sort: Sort
    text: str
    at: int

    def __str__(self) -> str:
        return "the end" if self.sort is Sort.END else f"{self.text!r}"


class Tokens:
    """The tokens of a text, taken one by one."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._tokens = _split(text)
        self._next = 0

    @property
    def here(self) -> Token:
        """The next token; the end again and again."""
        return self._tokens[self._next]

    @property
    def after(self) -> Token:
        """The token after the next."""
        return self._tokens[min(self._next + 1, len(self._tokens) - 1)]

    def take(self) -> Token:
        """The next token, and go past it."""
        token = self.here
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token

    def is_word(self, *words: str) -> bool:
        """Do these words (not quoted, in any case) come next?"""
        tokens = self._tokens[self._next : self._next + len(words)]
        return len(tokens) == len(words) and all(
            token.sort is Sort.NAME and token.text.lower() == word for token, word in zip(tokens, words, strict=True)
        )

    def is_sign(self, sign: str) -> bool:
        """Does this sign come next?"""
        return self.here.sort is Sort.SIGN and self.here.text == sign

    def skip_word(self, *words: str) -> bool:
        """Go past these words if they come next."""
        found = self.is_word(*words)
        for _ in words if found else ():
            self.take()
        return found

    def skip_sign(self, sign: str) -> bool:
        """Go past this sign if it comes next."""
        found = self.is_sign(sign)
        if found:
            self.take()
        return found

    def need_sign(self, sign: str, where: str) -> Token:
        """This sign, or a mistake."""
        if not self.is_sign(sign):
            raise self.wrong(f"{sign!r} is missing {where}, before {self.here}", f"write {sign!r} there")
        return self.take()

    def need_word(self, *words: str) -> None:
        """These words, or a mistake."""
        if not self.skip_word(*words):
            wanted = " ".join(words).upper()
            raise self.wrong(f"{wanted} is missing before {self.here}", f"write {wanted} there")

    def need_name(self, what: str) -> Token:
        """A name, or a mistake."""
        if self.here.sort not in (Sort.NAME, Sort.QUOTED):
            raise self.wrong(f"{what} is missing before {self.here}", f"write {what} there")
        return self.take()

    def need_end(self) -> None:
        """Nothing more, or a mistake."""
        if self.here.sort is not Sort.END:
            raise self.wrong(f"{self.here} is not expected", "remove it, or say how it belongs to what is before it")

    def wrong(self, sentence: str, hint: str) -> Mistake:
        """A mistake at the next token."""
        return Mistake(sentence, self.here.at, hint)


def _split(text: str) -> list[Token]:
    found: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            sign = text[at]
            raise Mistake(f"{sign!r} is not expected", at, "close the quotes" if sign in "'\"`" else "remove it")
        kind, raw = match.lastgroup, match[0]
        if kind == "quoted":
            found.append(Token(Sort.QUOTED, raw[1:-1].replace(raw[0] * 2, raw[0]), at))
        elif kind == "text":
            found.append(Token(Sort.TEXT, raw[1:-1].replace("''", "'"), at))
        elif kind != "space":
            found.append(Token(Sort[str(kind).upper()], raw, at))
        at = match.end()
    return [*found, Token(Sort.END, "", len(text))]
