"""The module is what its page of stubs says, no less and no more."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import headrace
from headrace import _kernel as kernel

STUB = ast.parse((Path(headrace.__file__).parent / "_kernel.pyi").read_text())
TYPES_ONLY = {"Header", "RecordHeader", "Record"}


def parameters(node: ast.FunctionDef) -> list[tuple[str, bool, bool]]:
    """(name, by keyword only, has a default) of a stub's parameters, without self."""
    positional = [a.arg for a in node.args.args if a.arg != "self"]
    required = len(positional) - len(node.args.defaults)
    found = [(name, False, i >= required) for i, name in enumerate(positional)]
    pairs = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    return found + [(a.arg, True, default is not None) for a, default in pairs]


def actual(function: object) -> list[tuple[str, bool, bool]]:
    signature = inspect.signature(function)  # type: ignore[arg-type]
    return [
        (p.name, p.kind is p.KEYWORD_ONLY, p.default is not p.empty)
        for p in signature.parameters.values()
        if p.name != "self"
    ]


def test_every_name_of_the_page_is_there_and_no_other() -> None:
    named = {n.name for n in STUB.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    named |= {n.target.id for n in STUB.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
    named |= {t.id for n in STUB.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)}
    assert named - TYPES_ONLY == {name for name in dir(kernel) if not name.startswith("_")}


def test_every_function_takes_what_the_page_says() -> None:
    for node in STUB.body:
        if isinstance(node, ast.FunctionDef):
            assert actual(getattr(kernel, node.name)) == parameters(node), node.name
        elif isinstance(node, ast.ClassDef) and node.name != "BadBatch":
            for method in node.body:
                if isinstance(method, ast.FunctionDef):
                    owner = getattr(kernel, node.name)
                    function = owner if method.name == "__init__" else getattr(owner, method.name)
                    assert actual(function) == parameters(method), f"{node.name}.{method.name}"


def test_the_exception_is_a_value_error_of_this_module() -> None:
    assert issubclass(kernel.BadBatch, ValueError)
    assert kernel.BadBatch.__module__ == "headrace._kernel"
    assert kernel.MAX_DECOMPRESSED == 256 << 20
