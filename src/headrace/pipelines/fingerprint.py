"""What a query is, as a short text: if it changes, what was built is no longer what the file says.

It covers the function (its syntax tree, so comments and layout do not count) or SQL text, functions and constants of
the same file that it uses (of operators, their declaration too), the key, and the topics and schemas of what it reads.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Iterable
from types import CodeType, FunctionType
from typing import Any

from headrace.pipelines.declarations import Query

__all__ = ["fingerprint"]

_CONSTANTS = (str, int, float, bool, bytes, tuple, list, dict, set, frozenset, type(None))


def fingerprint(query: Query, schemas: Iterable[str]) -> str:
    """Equal for equal queries."""
    said = query.sql.split() if query.sql is not None else _of_function(query.function, set())
    parts = [query.kind, query.key, said, list(schemas), repr(query.event_time)]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _of_function(function: Callable[..., Any] | None, seen: set[int]) -> list[str]:
    if function is None or id(function) in seen:
        return []
    seen.add(id(function))
    parts = [_tree(function)]
    for name in sorted(_names(function.__code__)):
        used = function.__globals__.get(name)
        wrapped = getattr(used, "__wrapped__", None)
        if isinstance(wrapped, FunctionType):  # of a udf, or of an operator
            if not inspect.isfunction(used):
                parts.append(repr(used))
            used = wrapped
        if inspect.isfunction(used) and used.__code__.co_filename == function.__code__.co_filename:
            parts += _of_function(used, seen)
        elif isinstance(used, _CONSTANTS) and name in function.__globals__:
            parts.append(f"{name}={used!r}")
    return parts


def _tree(function: Callable[..., Any]) -> str:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, SyntaxError, TypeError):
        return repr((function.__code__.co_code, function.__code__.co_consts))
    if isinstance(tree, ast.FunctionDef):
        tree.decorator_list = []
        if ast.get_docstring(tree) is not None:
            tree.body = tree.body[1:]
    return ast.dump(tree)


def _names(code: CodeType) -> set[str]:
    inner = (const for const in code.co_consts if isinstance(const, CodeType))
    return set(code.co_names).union(*(_names(one) for one in inner))
