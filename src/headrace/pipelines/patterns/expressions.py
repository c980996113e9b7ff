"""Conditions and measures as trees: ``price < last(A.price) and channel in ('web', 'app')``.

::

    or · and · not · = <> < <= > >= · is [not] null · [not] in · [not] between · [not] like · + - · * / % · -x
    columns (``price``, ``A.price``), literals (12, 1.5, 'text', true, null, interval '5' minute, timestamp '...')
    functions: first last prev sum avg min max count abs coalesce cast match_number classifier
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from headrace.pipelines.durations import milliseconds
from headrace.pipelines.patterns.tokens import Mistake, Sort, Tokens

__all__ = [
    "Binary",
    "Call",
    "Expression",
    "In",
    "Like",
    "Literal",
    "Reference",
    "Unary",
    "microseconds",
    "parse",
    "parse_expression",
    "parse_interval",
]

_WORDS = {"and", "or", "not", "is", "in", "between", "like", "as", "null", "true", "false", "interval", "timestamp"}
_COMPARISONS = {"=": "=", "==": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant: its type is ``bool``, ``int``, ``float``, ``text``, ``time``, ``interval`` or ``null``."""

    value: bool | int | float | str | None
    type: str
    at: int


@dataclass(frozen=True, slots=True)
class Reference:
    """A column, of the row at hand or of a variable; ``*`` for whole rows."""

    variable: str | None
    column: str
    at: int


@dataclass(frozen=True, slots=True)
class Call:
    """A function; ``cast`` has the type as a second, textual argument."""

    name: str
    arguments: tuple[Expression, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Unary:
    """``-``, ``not``, ``is null``."""

    operator: str
    value: Expression
    at: int


@dataclass(frozen=True, slots=True)
class Binary:
    """Two values and what is between them."""

    operator: str
    left: Expression
    right: Expression
    at: int


@dataclass(frozen=True, slots=True)
class In:
    """One of some values."""

    value: Expression
    choices: tuple[Expression, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Like:
    """A text that fits SQL's LIKE."""

    value: Expression
    pattern: str
    at: int


Expression = Literal | Reference | Call | Unary | Binary | In | Like


def parse(text: str) -> Expression:
    """The whole text as one expression; Mistake if it is none."""
    tokens = Tokens(text)
    found = parse_expression(tokens)
    tokens.need_end()
    return found


def parse_expression(tokens: Tokens) -> Expression:
    """An expression from here on."""
    left = _conjunction(tokens)
    while tokens.is_word("or"):
        at = tokens.take().at
        left = Binary("or", left, _conjunction(tokens), at)
    return left


def _conjunction(tokens: Tokens) -> Expression:
    left = _negation(tokens)
    while tokens.is_word("and"):
        at = tokens.take().at
        left = Binary("and", left, _negation(tokens), at)
    return left


def _negation(tokens: Tokens) -> Expression:
    if tokens.is_word("not"):
        at = tokens.take().at
        return Unary("not", _negation(tokens), at)
    return _comparison(tokens)


def _comparison(tokens: Tokens) -> Expression:
    left = _sum(tokens)
    while True:
        here = tokens.here
        if here.sort is Sort.SIGN and here.text in _COMPARISONS:
            tokens.take()
            left = Binary(_COMPARISONS[here.text], left, _sum(tokens), here.at)
        elif tokens.skip_word("is"):
            negated = tokens.skip_word("not")
            tokens.need_word("null")
            left = _maybe_not(Unary("is null", left, here.at), negated)
        elif tokens.is_word("not") or tokens.is_word("in") or tokens.is_word("between") or tokens.is_word("like"):
            negated = tokens.skip_word("not")
            left = _maybe_not(_membership(left, tokens), negated)
        else:
            return left


def _membership(left: Expression, tokens: Tokens) -> Expression:
    at = tokens.here.at
    if tokens.skip_word("in"):
        tokens.need_sign("(", "after IN")
        choices = _arguments(tokens)
        if not choices:
            raise Mistake("IN has no values", at, "write at least one value in the parentheses")
        return In(left, choices, at)
    if tokens.skip_word("between"):
        low = _sum(tokens)
        tokens.need_word("and")
        return Binary("and", Binary(">=", left, low, at), Binary("<=", left, _sum(tokens), at), at)
    tokens.need_word("like")
    if tokens.here.sort is not Sort.TEXT:
        raise tokens.wrong(f"LIKE takes a text, not {tokens.here}", "write the pattern in single quotes")
    return Like(left, tokens.take().text, at)


def _maybe_not(found: Expression, negated: bool) -> Expression:
    return Unary("not", found, found.at) if negated else found


def _sum(tokens: Tokens) -> Expression:
    left = _product(tokens)
    while tokens.is_sign("+") or tokens.is_sign("-"):
        sign = tokens.take()
        left = Binary(sign.text, left, _product(tokens), sign.at)
    return left


def _product(tokens: Tokens) -> Expression:
    left = _factor(tokens)
    while tokens.is_sign("*") or tokens.is_sign("/") or tokens.is_sign("%"):
        sign = tokens.take()
        left = Binary(sign.text, left, _factor(tokens), sign.at)
    return left


def _factor(tokens: Tokens) -> Expression:
    if tokens.is_sign("-"):
        at = tokens.take().at
        value = _factor(tokens)
        if isinstance(value, Literal) and value.type in ("int", "float") and not isinstance(value.value, str | None):
            return Literal(-value.value, value.type, at)
        return Unary("-", value, at)
    if tokens.skip_sign("+"):
        return _factor(tokens)
    return _primary(tokens)


def _primary(tokens: Tokens) -> Expression:
    here = tokens.here
    if tokens.skip_sign("("):
        found = parse_expression(tokens)
        tokens.need_sign(")", "to close the parenthesis")
        return found
    if here.sort is Sort.NUMBER:
        tokens.take()
        whole = here.text.isdigit()
        return Literal(int(here.text) if whole else float(here.text), "int" if whole else "float", here.at)
    if here.sort is Sort.TEXT:
        tokens.take()
        return Literal(here.text, "text", here.at)
    if here.sort is Sort.SIGN and here.text == "*":
        tokens.take()
        return Reference(None, "*", here.at)
    if here.sort is Sort.NAME:
        word = _word(tokens)
        if word is not None:
            return word
    if here.sort not in (Sort.NAME, Sort.QUOTED) or (here.sort is Sort.NAME and here.text.lower() in _WORDS):
        raise tokens.wrong(f"a value is missing before {here}", "write a column, a number or a text in single quotes")
    return _named(tokens)


def _word(tokens: Tokens) -> Expression | None:
    """Literals that are words."""
    at, word = tokens.here.at, tokens.here.text.lower()
    if word in ("true", "false"):
        tokens.take()
        return Literal(word == "true", "bool", at)
    if word == "null":
        tokens.take()
        return Literal(None, "null", at)
    if word == "case" and tokens.after.sort not in (Sort.SIGN, Sort.END) and tokens.after.text.lower() not in _WORDS:
        raise Mistake("CASE is not known here", at, "use AND, OR and coalesce, or a column computed before")
    if word == "interval" and tokens.after.sort in (Sort.TEXT, Sort.NUMBER):
        return Literal(parse_interval(tokens) * 1000, "interval", at)
    if word == "timestamp" and tokens.after.sort is Sort.TEXT:
        tokens.take()
        return Literal(microseconds(tokens.here.text, tokens.take().at), "time", at)
    if word in ("final", "running") and tokens.after.sort in (Sort.NAME, Sort.QUOTED):
        tokens.take()  # of one row per match both are the same
        return _primary(tokens)
    return None


def parse_interval(tokens: Tokens) -> int:
    """Milliseconds of ``interval '5' minute``, ``interval '5 minutes'`` or ``interval 5 minutes``."""
    tokens.need_word("interval")
    token = tokens.take()
    text = token.text
    if re.fullmatch(r"\s*[\d.]+\s*", text):
        text = f"{text} {tokens.need_name('a unit of time').text}"
    try:
        return milliseconds(text)
    except ValueError as error:
        raise Mistake(
            f"{text!r} is no length of time: {error}", token.at, "write it like interval '5' minute"
        ) from None


def microseconds(text: str, at: int) -> int:
    """A timestamp as microseconds since 1970, UTC where no zone is named."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise Mistake(f"{text!r} is no timestamp", at, "write it like timestamp '2026-01-31 12:00:00'") from None
    found = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    since = found - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _named(tokens: Tokens) -> Expression:
    """A column, a column of a variable, or a function."""
    name = tokens.take()
    if name.sort is Sort.NAME and tokens.skip_sign("("):
        return _call(name.text.lower(), name.at, tokens)
    if tokens.skip_sign("."):
        if tokens.skip_sign("*"):
            return Reference(name.text, "*", name.at)
        return Reference(name.text, tokens.need_name("a column's name").text, name.at)
    return Reference(None, name.text, name.at)


def _call(name: str, at: int, tokens: Tokens) -> Expression:
    if name != "cast":
        return Call(name, _arguments(tokens), at)
    value = parse_expression(tokens)
    tokens.need_word("as")
    kind = tokens.need_name("a type")
    tokens.need_sign(")", "to close CAST")
    return Call("cast", (value, Literal(kind.text.lower(), "text", kind.at)), at)


def _arguments(tokens: Tokens) -> tuple[Expression, ...]:
    """Up to the closing parenthesis."""
    found: list[Expression] = []
    if tokens.skip_sign(")"):
        return ()
    while True:
        found.append(parse_expression(tokens))
        if not tokens.skip_sign(","):
            break
    tokens.need_sign(")", "to close the parenthesis")
    return tuple(found)
