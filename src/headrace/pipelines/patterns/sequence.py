"""Patterns as trees: ``small{3,} big``, ``A (B | C)+? D``, ``PERMUTE(A, B)``, ``order !payment``, ``A ->> B``.

::

    A B         B is the next row after A          A?  A*  A+  A{2}  A{2,}  A{2,4}     how often; as often as can be
    A ->> B     B is the next B after A            A??  A*?  A+?  A{2,}?               as seldom as can be
    A | B       A, or else B                       ( )                                 a group
    A !N B      B is the next B after A,           PERMUTE(A, B, C)                    in any order
                with no N between them
    A !N        A, and no N before the time (``within``) runs out; only at the end
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.pipelines.patterns.tokens import Mistake, Sort, Tokens

__all__ = ["Choice", "Gap", "Permutation", "Repeat", "Sequence", "Shape", "Take", "parse_sequence", "variables"]

MOST_REPEATS = 10_000
MOST_PERMUTED = 8


@dataclass(frozen=True, slots=True)
class Take:
    """A row of a variable."""

    variable: str
    at: int


@dataclass(frozen=True, slots=True)
class Gap:
    """Rows may be passed over here, but none of these variables."""

    forbidden: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sequence:
    """Parts one after the other, each perhaps after a gap; and what must not come after the last."""

    parts: tuple[tuple[Gap | None, Shape], ...]
    absent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """The first of these that fits."""

    options: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A part several times: at least ``low``, at most ``high`` (None: any number)."""

    part: Shape
    low: int
    high: int | None
    greedy: bool


@dataclass(frozen=True, slots=True)
class Permutation:
    """All of these, in any order; the order in which they are written is preferred."""

    parts: tuple[Shape, ...]


Shape = Take | Sequence | Choice | Repeat | Permutation


def parse_sequence(tokens: Tokens, *, outermost: bool = True) -> Shape:
    """A pattern up to the end, or to what closes it."""
    options = [_one_after_another(tokens, outermost)]
    while tokens.skip_sign("|"):
        options.append(_one_after_another(tokens, outermost))
    return options[0] if len(options) == 1 else Choice(tuple(options))


def _one_after_another(tokens: Tokens, outermost: bool) -> Shape:
    parts: list[tuple[Gap | None, Shape]] = []
    while True:
        at = tokens.here.at
        gap = _gap(tokens)
        if gap is not None and not parts:
            raise Mistake("there is nothing before this", at, "begin with a variable: A !B, A ->> B")
        if _is_over(tokens):
            break
        parts.append((gap, _repeated(tokens)))
    if not parts:
        raise tokens.wrong(f"a variable is missing before {tokens.here}", "write the name of a variable there")
    if gap is None:
        return parts[0][1] if len(parts) == 1 else Sequence(tuple(parts))
    if not gap.forbidden:
        raise tokens.wrong("'->>' has nothing after it", "write what follows")
    if not outermost:
        hint = "write what follows it, or put it at the end of the whole pattern"
        raise Mistake("an absence (!) in a group has nothing after it", at, hint)
    return Sequence(tuple(parts), gap.forbidden)


def _is_over(tokens: Tokens) -> bool:
    here = tokens.here
    return here.sort is Sort.END or (here.sort is Sort.SIGN and here.text in ("|", ")", ","))


def _gap(tokens: Tokens) -> Gap | None:
    gap: Gap | None = None
    while True:
        if tokens.skip_sign("->>"):
            gap = gap or Gap()
        elif tokens.skip_sign("!"):
            name = tokens.need_name("the name of a variable")
            gap = Gap((*(gap.forbidden if gap else ()), name.text))
        else:
            return gap


def _repeated(tokens: Tokens) -> Shape:
    part = _part(tokens)
    here = tokens.here
    if here.sort is not Sort.SIGN or here.text not in ("?", "*", "+", "{"):
        return part
    tokens.take()
    bounds: dict[str, tuple[int, int | None]] = {"?": (0, 1), "*": (0, None), "+": (1, None)}
    low, high = _bounds(tokens) if here.text == "{" else bounds[here.text]
    if high is not None and (high < low or high == 0):
        raise Mistake(f"{{{low},{high}}} fits nothing", here.at, "write the smaller number first, and at least 1")
    if max(low, high or 0) > MOST_REPEATS:
        raise Mistake(f"more than {MOST_REPEATS} times is too often", here.at, "use + or {n,} and an aggregate")
    return Repeat(part, low, high, greedy=not tokens.skip_sign("?"))


def _bounds(tokens: Tokens) -> tuple[int, int | None]:
    if tokens.is_sign("-"):
        raise tokens.wrong("{- -} is not supported", "leave the rows out of what you read from the match")
    low = _whole(tokens) if not tokens.is_sign(",") else 0
    high: int | None = low
    if tokens.skip_sign(","):
        high = None if tokens.is_sign("}") else _whole(tokens)
    tokens.need_sign("}", "to close the quantifier")
    return low, high


def _whole(tokens: Tokens) -> int:
    if tokens.here.sort is not Sort.NUMBER or not tokens.here.text.isdigit():
        raise tokens.wrong(f"a whole number is missing before {tokens.here}", "write {2}, {2,} or {2,4}")
    return int(tokens.take().text)


def _part(tokens: Tokens) -> Shape:
    if tokens.is_word("permute") and tokens.after.text == "(":
        return _permutation(tokens)
    if tokens.skip_sign("("):
        found = parse_sequence(tokens, outermost=False)
        tokens.need_sign(")", "to close the group")
        return found
    if tokens.is_sign("^") or tokens.is_sign("$"):
        raise tokens.wrong("a stream has no first and no last row", f"remove {tokens.here}")
    name = tokens.need_name("the name of a variable")
    return Take(name.text, name.at)


def _permutation(tokens: Tokens) -> Shape:
    at = tokens.take().at
    tokens.need_sign("(", "after PERMUTE")
    parts = [parse_sequence(tokens, outermost=False)]
    while tokens.skip_sign(","):
        parts.append(parse_sequence(tokens, outermost=False))
    tokens.need_sign(")", "to close PERMUTE")
    if len(parts) > MOST_PERMUTED:
        hint = f"permute at most {MOST_PERMUTED}, or count the variables with an aggregate"
        raise Mistake(f"PERMUTE of {len(parts)} is too much", at, hint)
    return Permutation(tuple(parts))


def variables(shape: Shape) -> tuple[str, ...]:
    """The variables of a pattern, each once, in the order in which they are first met."""
    return tuple(dict.fromkeys(_variables(shape)))


def _variables(shape: Shape) -> list[str]:
    match shape:
        case Take():
            return [shape.variable]
        case Sequence():
            found: list[str] = []
            for gap, part in shape.parts:
                found += [*(gap.forbidden if gap else ()), *_variables(part)]
            return found + list(shape.absent)
        case Choice():
            return [name for option in shape.options for name in _variables(option)]
        case Repeat():
            return _variables(shape.part)
        case Permutation():
            return [name for part in shape.parts for name in _variables(part)]
