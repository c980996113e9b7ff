"""Conditions that can never hold, because what they look at only comes later: ``A B`` with ``A: price < B.price``.

What looks at a variable of which nothing can have been taken is null, and so is what is computed from it or compared
with it. Only what is certain is refused: ``B.price is null or ...`` is odd, but it may hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headrace.pipelines.patterns.automaton import Automaton
from headrace.pipelines.patterns.conditions import references
from headrace.pipelines.patterns.declaration import Pattern, located
from headrace.pipelines.patterns.expressions import Binary, Call, Expression, In, Like, Literal, Reference, Unary
from headrace.pipelines.patterns.tokens import Mistake

__all__ = ["ensure_possible"]


def ensure_possible(pattern: Pattern, automaton: Automaton) -> None:
    """InvalidDeclaration if a condition can never hold."""
    names = {name.lower(): name for name in pattern.variables}
    for name, text, tree in pattern.define:
        others = {r.variable.lower() for r in references(tree) if r.variable is not None} - {name.lower()}
        asked = automaton.asks(names[name.lower()])
        later = frozenset(other for other in others if asked and not asked & automaton.after(names[other]))
        reference = _never(tree, later)
        if reference is not None:
            other = names[(reference.variable or "").lower()]
            sentence = f"no {other} can come before {name} in {pattern.text!r}, so this is never true"
            hint = (
                f"look at rows that were taken before; if {other} comes later, say it there: {name}.{reference.column}"
            )
            raise located(f"define {name}", text, Mistake(sentence, reference.at, hint), pattern.place)


def _never(tree: Expression, later: frozenset[str]) -> Reference | None:
    """What makes a condition one that is never true, if anything does."""
    if isinstance(tree, Binary) and tree.operator == "and":
        return _never(tree.left, later) or _never(tree.right, later)
    if isinstance(tree, Binary) and tree.operator == "or":
        return _all((tree.left, tree.right), later, _never)
    return _null(tree, later)


def _null(tree: Expression, later: frozenset[str]) -> Reference | None:
    """What makes a value one that is always null, if anything does."""
    match tree:
        case Reference():
            return tree if tree.variable is not None and tree.variable.lower() in later else None
        case Binary() if tree.operator in ("and", "or"):
            return _all((tree.left, tree.right), later, _null)
        case Binary():
            return _null(tree.left, later) or _null(tree.right, later)
        case Unary():
            return None if tree.operator == "is null" else _null(tree.value, later)
        case In() | Like():
            return _null(tree.value, later)
        case Call():
            return _null_call(tree, later)
        case Literal():
            return None


def _null_call(call: Call, later: frozenset[str]) -> Reference | None:
    if call.name == "coalesce":
        return _all(call.arguments, later, _null)
    if call.name in ("first", "last", "abs", "cast"):
        return _null(call.arguments[0], later)
    if call.name in ("sum", "avg", "min", "max"):
        return next((found for r in references(call) if (found := _null(r, later)) is not None), None)
    return None


def _all(
    parts: Iterable[Expression],
    later: frozenset[str],
    test: Callable[[Expression, frozenset[str]], Reference | None],
) -> Reference | None:
    """What makes the first of these so, if all of them are."""
    found = [test(part, later) for part in parts]
    return found[0] if all(one is not None for one in found) else None
