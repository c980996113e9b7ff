"""Conditions and measures as stack programs for the kernel, with their types checked.

Types are ``bool``, ``int``, ``float``, ``decimal`` (computed with as a float, so never a result), ``text``, ``time``,
``date`` and ``interval`` (microseconds all three), and ``null``. What a program looks at outside its row are slots: the
first or last row of a variable, or an aggregate over its rows, kept up to date by the kernel. Operations and slots are
numbered as in ``native/core/src/patterns/program.rs``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headrace.pipelines.patterns.expressions import (
    Binary,
    Call,
    Expression,
    In,
    Like,
    Literal,
    Reference,
    Unary,
    microseconds,
)
from headrace.pipelines.patterns.tokens import Mistake

__all__ = ["Coder", "Tables", "conjuncts", "is_local", "joined", "may_fail", "references"]

Code = list[tuple[int, ...]]

_LITERALS = {"bool": 1, "int": 2, "time": 2, "interval": 2, "float": 3, "text": 4}
_PLAIN = (*_LITERALS, "decimal", "date", "null")
_COLUMN, _PREV, _FIRST, _LAST, _AGGREGATE, _MATCH_NUMBER, _CLASSIFIER = 5, 6, 7, 8, 9, 10, 11
_ARITHMETIC = {"+": 12, "-": 13, "*": 14, "/": 15, "%": 16}
_NEG, _ABS = 17, 18
_COMPARISON = {"=": 19, "<>": 20, "<": 21, "<=": 22, ">": 23, ">=": 24}
_AND, _OR, _NOT, _IS_NULL, _IN, _LIKE, _TO_INT, _TO_FLOAT = 25, 26, 27, 28, 29, 30, 31, 32
_IF_FALSE, _IF_TRUE, _IF_NOT_NULL, _ROW = 33, 34, 35, 36
_SLOT_FIRST, _SLOT_LAST, _COUNT, _SUM_INT, _SUM_FLOAT, _AVERAGE, _MIN, _MAX = range(8)

_AGGREGATES = ("sum", "avg", "min", "max", "count")
_NUMBERS = ("int", "float", "decimal", "null")
_TIMES = ("time", "date")
_CASTS = {
    "int": "int",
    "integer": "int",
    "bigint": "int",
    "long": "int",
    "double": "float",
    "float": "float",
}
_OF_ROWS = {"first": _SLOT_FIRST, "last": _SLOT_LAST, "min": _MIN, "max": _MAX}
_FUNCTIONS = "first, last, prev, sum, avg, min, max, count, abs, coalesce, cast, match_number, classifier"


@dataclass(slots=True)
class Tables:
    """What all programs of a pattern share: texts, columns, slots, codes."""

    types: Mapping[str, str]
    """The columns that there are, and their types."""
    variables: tuple[str, ...]
    texts: dict[str, int] = field(default_factory=dict)
    columns: dict[str, int] = field(default_factory=dict)
    slots: dict[tuple[int, int, int], int] = field(default_factory=dict)
    codes: list[Code] = field(default_factory=list)
    rows_before: int = 0

    def text(self, text: str) -> int:
        """Its number."""
        return self.texts.setdefault(text, len(self.texts))

    def slot(self, kind: int, variable: int, code: int) -> int:
        """Its number."""
        return self.slots.setdefault((kind, variable, code), len(self.slots))

    def code(self, code: Code) -> int:
        """Its number."""
        if code not in self.codes:
            self.codes.append(code)
        return self.codes.index(code)

    def find_variable(self, name: str, at: int) -> str:
        """The variable of this name, in any case if there is none with just this one."""
        found = _find(name, self.variables)
        if found is None:
            hint = f"the pattern's variables are {', '.join(self.variables)}"
            raise Mistake(f"there is no variable {name!r} in the pattern", at, hint)
        return found

    def column(self, name: str, at: int) -> str:
        """The column of this name, of any type."""
        found = _find(name, tuple(self.types))
        if found is None:
            raise Mistake(f"there is no column {name!r}", at, f"the columns are {', '.join(self.types)}")
        return found

    def find_column(self, name: str, at: int) -> tuple[int, str]:
        """Number and type of a column."""
        found = self.column(name, at)
        if self.types[found] not in _PLAIN:
            hint = "make a column of a plain type from it before: a number, text, time or boolean"
            raise Mistake(f"column {found!r} is of type {self.types[found]}, which cannot be used here", at, hint)
        return self.columns.setdefault(found, len(self.columns)), self.types[found]


def _find(name: str, known: tuple[str, ...]) -> str | None:
    if name in known:
        return name
    alike = [other for other in known if other.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


@dataclass(frozen=True, slots=True)
class Coder:
    """Writes programs. ``variable``: whose condition it is, None for measures. ``alone``: inside an aggregate."""

    tables: Tables
    variable: str | None
    alone: bool = False

    def write(self, expression: Expression, code: Code) -> str:
        """Append the program of an expression; its type."""
        match expression:
            case Literal():
                return self._literal(expression, code)
            case Reference():
                return self._reference(expression, code)
            case Unary():
                return self._unary(expression, code)
            case Binary():
                return self._binary(expression, code)
            case In():
                return self._in(expression, code)
            case Like():
                self._expect("text", expression.value, code)
                code.append((_LIKE, self.tables.text(expression.pattern)))
                return "bool"
            case Call():
                return self._call(expression, code)

    def row(self, expression: Expression, code: Code) -> str | None:
        """If a measure is a column of some row as it is: append the program that says which row; the column."""
        reference, kind, back = expression, _SLOT_LAST, 0
        if isinstance(expression, Call) and expression.name in _OF_ROWS and expression.arguments:
            reference, kind = expression.arguments[0], _OF_ROWS[expression.name]
            if kind in (_SLOT_FIRST, _SLOT_LAST):
                reference, back = self._column_and_steps(expression, 0)
                self._not_back_from_first(expression, back)
            elif len(expression.arguments) > 1:
                return None
        if not isinstance(reference, Reference) or reference.column == "*":
            return None
        column, variable, inner = self.tables.column(reference.column, reference.at), reference.variable, -1
        if variable is not None:
            variable = self.tables.find_variable(variable, reference.at)
        if kind in (_MIN, _MAX):
            inner = self.tables.code([(_COLUMN, self.tables.find_column(reference.column, reference.at)[0])])
        code.append((_ROW, self.tables.slot(kind, self._index(variable), inner), back))
        return column

    def condition(self, expression: Expression) -> Code:
        """The program of something that is true or not."""
        code: Code = []
        self._expect("bool", expression, code)
        return code

    def _expect(self, wanted: str, expression: Expression, code: Code) -> None:
        found = self.write(expression, code)
        if found not in (wanted, "null"):
            hint = "write a condition, like price > 10" if wanted == "bool" else f"write something of type {wanted}"
            raise Mistake(f"this is of type {found}, and not {wanted}", expression.at, hint)

    def _literal(self, literal: Literal, code: Code) -> str:
        value = literal.value
        if literal.type == "null":
            code.append((0,))
        elif literal.type == "text":
            code.append((_LITERALS["text"], self.tables.text(str(value))))
        elif literal.type == "float":
            code.append((_LITERALS["float"], *struct.unpack("<q", struct.pack("<d", value))))
        else:
            number = int(value or 0)
            if not -(2**63) <= number < 2**63:
                raise Mistake(f"{number} is too large for a whole number", literal.at, "write it with a decimal point")
            code.append((_LITERALS[literal.type], number))
        return literal.type

    def _reference(self, reference: Reference, code: Code) -> str:
        if reference.column == "*":
            raise Mistake("* is only for count(*)", reference.at, "name a column")
        column, kind = self.tables.find_column(reference.column, reference.at)
        variable = reference.variable
        if variable is not None:
            variable = self.tables.find_variable(variable, reference.at)
        if self.alone or (self.variable is not None and variable in (None, self.variable)):
            code.append((_COLUMN, column))
        else:
            code.append((_LAST, column, self.tables.slot(_SLOT_LAST, self._index(variable), -1), 0))
        return kind

    def _index(self, variable: str | None) -> int:
        return -1 if variable is None else self.tables.variables.index(variable)

    def _unary(self, unary: Unary, code: Code) -> str:
        if unary.operator == "not":
            self._expect("bool", unary.value, code)
            code.append((_NOT,))
            return "bool"
        kind = self.write(unary.value, code)
        if unary.operator == "is null":
            code.append((_IS_NULL,))
            return "bool"
        if kind not in (*_NUMBERS, "interval"):
            raise Mistake(f"- needs a number, not {kind}", unary.at, "remove it")
        code.append((_NEG,))
        return kind

    def _binary(self, binary: Binary, code: Code) -> str:
        operator = binary.operator
        if operator in ("and", "or"):
            self._expect("bool", binary.left, code)
            jump = len(code)
            code.append(())
            self._expect("bool", binary.right, code)
            code.append((_AND if operator == "and" else _OR,))
            code[jump] = (_IF_FALSE if operator == "and" else _IF_TRUE, len(code))
            return "bool"
        if operator in _COMPARISON:
            return self._comparison(binary, code)
        left, right = self.write(binary.left, code), self.write(binary.right, code)
        code.append((_ARITHMETIC[operator],))
        return _arithmetic_type(binary, left, right)

    def _comparison(self, binary: Binary, code: Code) -> str:
        left, right = self._alike(binary.left, binary.right)
        kinds = self.write(left, code), self.write(right, code)
        if not _comparable(*kinds):
            hint = "compare values of one type; cast(x as double) makes a number of a text"
            raise Mistake(f"{kinds[0]} and {kinds[1]} cannot be compared", binary.at, hint)
        code.append((_COMPARISON[binary.operator],))
        return "bool"

    def _alike(self, left: Expression, right: Expression) -> tuple[Expression, Expression]:
        """Both, a text that is compared with a time as a time."""
        if isinstance(right, Literal) and right.type == "text" and self._type(left) in _TIMES:
            return left, Literal(microseconds(str(right.value), right.at), "time", right.at)
        if isinstance(left, Literal) and left.type == "text" and self._type(right) in _TIMES:
            return Literal(microseconds(str(left.value), left.at), "time", left.at), right
        return left, right

    def _type(self, expression: Expression) -> str:
        return self.write(expression, [])

    def _in(self, found: In, code: Code) -> str:
        kind = self.write(found.value, code)
        for choice in found.choices:
            choice = self._alike(found.value, choice)[1]
            other = self.write(choice, code)
            if not _comparable(kind, other):
                raise Mistake(f"{kind} is never {other}", choice.at, f"write values of type {kind}")
        code.append((_IN, len(found.choices)))
        return "bool"

    def _call(self, call: Call, code: Code) -> str:
        if call.name in _AGGREGATES:
            return self._aggregate(call, code)
        writers: dict[str, Callable[[Call, Code], str]] = {
            "first": self._navigate,
            "last": self._navigate,
            "prev": self._prev,
            "abs": self._abs,
            "coalesce": self._coalesce,
            "cast": self._cast,
            "match_number": self._of_match,
            "classifier": self._of_match,
        }
        if call.name not in writers:
            raise Mistake(
                f"there is no function {call.name!r}",
                call.at,
                f"the functions are {_FUNCTIONS}; anything else is a column computed before",
            )
        return writers[call.name](call, code)

    def _navigate(self, call: Call, code: Code) -> str:
        reference, back = self._column_and_steps(call, 0)
        column, kind = self.tables.find_column(reference.column, reference.at)
        variable = reference.variable
        if variable is not None:
            variable = self.tables.find_variable(variable, reference.at)
        if call.name == "first":
            self._not_back_from_first(call, back)
            code.append((_FIRST, column, self.tables.slot(_SLOT_FIRST, self._index(variable), -1)))
        elif self.variable is not None and back == 0 and variable in (None, self.variable):
            code.append((_COLUMN, column))
        else:
            code.append((_LAST, column, self.tables.slot(_SLOT_LAST, self._index(variable), -1), back))
        return kind

    def _not_back_from_first(self, call: Call, back: int) -> None:
        if call.name == "first" and back:
            raise Mistake("first takes no number of rows", call.at, "give that row a variable of its own")

    def _prev(self, call: Call, code: Code) -> str:
        reference, back = self._column_and_steps(call, 1)
        if self.variable is None:
            raise Mistake("prev is for conditions, not for measures", call.at, "give that row a variable of its own")
        variable = reference.variable
        if variable is not None and self.tables.find_variable(variable, reference.at) != self.variable:
            hint = f"write prev({reference.column}), or last({variable}.{reference.column})"
            raise Mistake("prev looks back from the row at hand", reference.at, hint)
        column, kind = self.tables.find_column(reference.column, reference.at)
        self.tables.rows_before = max(self.tables.rows_before, back)
        code.append((_PREV, column, back))
        return kind

    def _column_and_steps(self, call: Call, steps: int) -> tuple[Reference, int]:
        self._not_alone(call)
        example = f"{call.name}(price), {call.name}(A.price) or {call.name}(price, 1)"
        if not 1 <= len(call.arguments) <= 2:
            raise Mistake(f"{call.name} takes a column, and how many rows back", call.at, f"write {example}")
        reference = call.arguments[0]
        if not isinstance(reference, Reference) or reference.column == "*":
            raise Mistake(f"{call.name} takes a column", call.at, f"write {example}")
        if len(call.arguments) == 1:
            return reference, steps
        number = call.arguments[1]
        if not isinstance(number, Literal) or number.type != "int" or not 0 <= int(number.value or 0) <= 1000:
            raise Mistake("the number of rows must be one from 0 to 1000", number.at, f"write {example}")
        return reference, int(number.value or 0)

    def _not_alone(self, call: Call) -> None:
        if self.alone:
            raise Mistake(f"{call.name} cannot be inside an aggregate", call.at, "take it out of the aggregate")

    def _aggregate(self, call: Call, code: Code) -> str:
        self._not_alone(call)
        if len(call.arguments) != 1:
            raise Mistake(f"{call.name} takes one value", call.at, f"write {call.name}(A.price)")
        value = call.arguments[0]
        variable = self._aggregated(value)
        if isinstance(value, Reference) and value.column == "*":
            if call.name != "count":
                raise Mistake(f"{call.name} takes a column, not *", call.at, f"write {call.name}(A.price)")
            code.append((_AGGREGATE, self.tables.slot(_COUNT, variable, -1)))
            return "int"
        inner: Code = []
        kind = Coder(self.tables, None, alone=True).write(value, inner)
        slot, result = _aggregate_slot(call, kind)
        code.append((_AGGREGATE, self.tables.slot(slot, variable, self.tables.code(inner))))
        return result

    def _aggregated(self, value: Expression) -> int:
        """The variable whose rows are aggregated; -1 for all."""
        names = {None if r.variable is None else self.tables.find_variable(r.variable, r.at) for r in references(value)}
        if len(names) > 1:
            raise Mistake("an aggregate is over the rows of one variable", value.at, "write one aggregate for each")
        return self._index(names.pop()) if names else -1

    def _abs(self, call: Call, code: Code) -> str:
        if len(call.arguments) != 1:
            raise Mistake("abs takes one value", call.at, "write abs(price)")
        kind = self.write(call.arguments[0], code)
        if kind not in (*_NUMBERS, "interval"):
            raise Mistake(f"abs needs a number, not {kind}", call.at, "remove it")
        code.append((_ABS,))
        return kind

    def _coalesce(self, call: Call, code: Code) -> str:
        if not call.arguments:
            raise Mistake("coalesce takes some values", call.at, "write coalesce(price, 0)")
        kind = "null"
        jumps: list[int] = []
        for index, argument in enumerate(call.arguments):
            other = self.write(argument, code)
            if not _comparable(kind, other):
                raise Mistake(f"{kind} and {other} do not go together", argument.at, "use values of one type")
            kind = _either(kind, other)
            if index < len(call.arguments) - 1:
                jumps.append(len(code))
                code.append(())
        for jump in jumps:
            code[jump] = (_IF_NOT_NULL, len(code))
        return kind

    def _cast(self, call: Call, code: Code) -> str:
        value, wanted = call.arguments
        name = str(wanted.value) if isinstance(wanted, Literal) else ""
        if name not in _CASTS:
            raise Mistake(f"cast to {name!r} is not supported", wanted.at, f"cast to {', '.join(_CASTS)}")
        kind = self.write(value, code)
        if kind in (*_TIMES, "interval"):
            raise Mistake(
                f"{kind} cannot be cast to {name}", call.at, "subtract times, or compare with interval '1' hour"
            )
        code.append((_TO_INT if _CASTS[name] == "int" else _TO_FLOAT,))
        return _CASTS[name]

    def _of_match(self, call: Call, code: Code) -> str:
        if self.variable is not None or self.alone:
            raise Mistake(f"{call.name}() is for measures", call.at, "remove it from the condition")
        if call.arguments:
            raise Mistake(f"{call.name}() takes nothing", call.at, f"write {call.name}()")
        code.append((_MATCH_NUMBER if call.name == "match_number" else _CLASSIFIER,))
        return "int" if call.name == "match_number" else "text"


def _arithmetic_type(binary: Binary, left: str, right: str) -> str:
    left, right = ("time" if kind == "date" else kind for kind in (left, right))
    operator, kinds = binary.operator, {left, right}
    if kinds <= set(_NUMBERS):
        if operator == "/" and "decimal" not in kinds:
            return "float"
        return next((kind for kind in ("decimal", "float", "int") if kind in kinds), "null")
    if operator == "-" and left == right == "time":
        return "interval"
    if operator in "+-" and kinds <= {"time", "interval", "null"} and (right != "time" or operator == "+"):
        if "time" not in kinds:
            return "interval"
        if left != right:
            return "time"
    if operator == "*" and kinds <= {"interval", "int"} and left != right:
        return "interval"
    raise Mistake(f"{left} {operator} {right} has no meaning", binary.at, "use numbers, or times and intervals")


def _comparable(left: str, right: str) -> bool:
    return left == right or "null" in (left, right) or any({left, right} <= set(alike) for alike in (_NUMBERS, _TIMES))


def _either(left: str, right: str) -> str:
    """The type of what is of one of two types that can be compared."""
    wider = ("decimal", "float", "int", "time", "date")
    return next((kind for kind in wider if kind in (left, right)), left if right == "null" else right)


def _aggregate_slot(call: Call, kind: str) -> tuple[int, str]:
    name = call.name
    if name == "count":
        return _COUNT, "int"
    if name in ("min", "max"):
        return (_MIN if name == "min" else _MAX), kind
    if kind not in (*_NUMBERS, "interval"):
        raise Mistake(f"{name} needs numbers, not {kind}", call.at, "use count, min or max")
    if name == "avg":
        if kind == "interval":
            raise Mistake("avg of intervals is not supported", call.at, "divide their sum")
        return _AVERAGE, "decimal" if kind == "decimal" else "float"
    return (_SUM_FLOAT if kind in ("float", "decimal") else _SUM_INT), kind


def references(expression: Expression) -> list[Reference]:
    """All columns that it looks at."""
    match expression:
        case Reference():
            return [expression]
        case Unary() | Like():
            return references(expression.value)
        case Binary():
            return references(expression.left) + references(expression.right)
        case In():
            return [r for part in (expression.value, *expression.choices) for r in references(part)]
        case Call():
            return [r for part in expression.arguments for r in references(part)]
        case Literal():
            return []


def conjuncts(expression: Expression) -> list[Expression]:
    """The parts that must all be true."""
    if isinstance(expression, Binary) and expression.operator == "and":
        return conjuncts(expression.left) + conjuncts(expression.right)
    return [expression]


def joined(parts: list[Expression]) -> Expression | None:
    """All of these, in their order."""
    found: Expression | None = None
    for part in parts:
        found = part if found is None else Binary("and", found, part, part.at)
    return found


def may_fail(code: Code) -> bool:
    """Are there rows that this cannot be said of? Sums that are too large to be whole numbers apart."""
    return any(op[0] in (_ARITHMETIC["/"], _ARITHMETIC["%"], _TO_INT, _TO_FLOAT) for op in code)


def is_local(code: Code) -> bool:
    """Does a program look at nothing but its row?"""
    return not any(op[0] in (_PREV, _FIRST, _LAST, _AGGREGATE) for op in code)
