"""A pattern's tree as the states of an automaton, each with its ways on in the order of preference.

A state is where a match stands after a row. Its ways on (items) are: take a row for a variable and go to another
state; wait, passing over rows that none of some takes fits; accept; or be complete when time runs out without a
variable (absent).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.pipelines.patterns.sequence import Choice, Permutation, Repeat, Sequence, Shape, Take
from headrace.pipelines.patterns.tokens import Mistake

__all__ = ["Absent", "Accept", "Automaton", "Item", "Taking", "Waiting", "build"]

MOST_STEPS = 20_000


@dataclass(frozen=True, slots=True)
class Taking:
    """A row for a variable, then a state."""

    variable: str
    state: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """Rows are passed over until one of these fits; one of a forbidden variable ends it."""

    takes: tuple[Taking, ...]
    forbidden: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Accept:
    """The match is complete."""


@dataclass(frozen=True, slots=True)
class Absent:
    """The match is complete when time runs out without any of these."""

    variables: tuple[str, ...]


Item = Taking | Waiting | Accept | Absent


@dataclass(frozen=True, slots=True)
class Automaton:
    """The states; the first is where a match begins."""

    states: tuple[tuple[Item, ...], ...]

    @property
    def needs_time(self) -> bool:
        """Does some match end only when its time runs out?"""
        return any(
            isinstance(item, Absent) or (isinstance(item, Waiting) and Accept() in items)
            for items in self.states
            for item in items
        )

    def after(self, variable: str) -> frozenset[int]:
        """The states that a match may be at once it has taken a row for a variable."""
        left = [take.state for items in self.states for take in _takes(items) if take.variable == variable]
        found = set(left)
        while left:
            new = {take.state for take in _takes(self.states[left.pop()])} - found
            found |= new
            left += new
        return frozenset(found)

    def asks(self, variable: str) -> frozenset[int]:
        """The states at which a row is looked at for a variable."""
        return frozenset(state for state, items in enumerate(self.states) if variable in _asked(items))


def _takes(items: tuple[Item, ...]) -> list[Taking]:
    found: list[Taking] = []
    for item in items:
        found += [item] if isinstance(item, Taking) else item.takes if isinstance(item, Waiting) else ()
    return found


def _asked(items: tuple[Item, ...]) -> set[str]:
    """The variables that a row is looked at for."""
    found = {take.variable for take in _takes(items)}
    for item in items:
        found |= set(item.forbidden if isinstance(item, Waiting) else ())
        found |= set(item.variables if isinstance(item, Absent) else ())
    return found


@dataclass(slots=True)
class _Step:
    """One step: take a row, try several in order, wait, accept, or be absent."""

    kind: str
    variables: tuple[str, ...] = ()
    next: list[int] = field(default_factory=list)


def build(shape: Shape, *, relaxed: bool) -> Automaton:
    """The automaton of a pattern. Relaxed: rows may be passed over everywhere."""
    steps = _Steps(relaxed)
    begin = steps.of(shape, steps.add("accept"))
    states: dict[int, int] = {begin: 0}
    made: list[tuple[Item, ...]] = []
    order = [begin]
    for step in order:
        items, _ = _Ways(steps.steps, states, order).items(step, set(), frozenset())
        made.append(tuple(items))
    if Accept() in made[0]:
        raise Mistake("the pattern fits no rows at all", 0, "make at least one variable necessary: A+ in place of A*")
    return Automaton(tuple(made))


class _Steps:
    def __init__(self, relaxed: bool) -> None:
        self.steps: list[_Step] = []
        self._relaxed = relaxed

    def add(self, kind: str, variables: tuple[str, ...] = (), following: list[int] | None = None) -> int:
        if len(self.steps) >= MOST_STEPS:
            hint = "use smaller numbers of repetitions, or an aggregate: count(A.*) < 1000"
            raise Mistake(f"the pattern has more than {MOST_STEPS} steps", 0, hint)
        self.steps.append(_Step(kind, variables, following or []))
        return len(self.steps) - 1

    def of(self, shape: Shape, following: int) -> int:
        """The first step of a part, after whose last comes ``following``."""
        match shape:
            case Take():
                after = self.add("wait", (), [following]) if self._relaxed else following
                return self.add("take", (shape.variable,), [after])
            case Sequence():
                return self._sequence(shape, following)
            case Choice():
                return self.add("try", (), [self.of(option, following) for option in shape.options])
            case Repeat():
                return self._repeat(shape, following)
            case Permutation():
                return self._permutation(shape.parts, frozenset(range(len(shape.parts))), following, {})

    def _sequence(self, shape: Sequence, following: int) -> int:
        step = self.add("absent", shape.absent) if shape.absent else following
        for gap, part in reversed(shape.parts):
            step = self.of(part, step)
            if gap is not None:
                step = self.add("wait", gap.forbidden, [step])
        return step

    def _repeat(self, shape: Repeat, following: int) -> int:
        step = following
        low = shape.low
        if shape.high is None:
            again = self.add("try")
            body = self.of(shape.part, again)
            self.steps[again].next = [body, following] if shape.greedy else [following, body]
            step = body if low > 0 else again
            low = max(low - 1, 0)
        else:
            for _ in range(shape.high - shape.low):
                more = self.of(shape.part, step)
                step = self.add("try", (), [more, following] if shape.greedy else [following, more])
        for _ in range(low):
            step = self.of(shape.part, step)
        return step

    def _permutation(
        self, parts: tuple[Shape, ...], left: frozenset[int], following: int, known: dict[frozenset[int], int]
    ) -> int:
        if not left:
            return following
        if left not in known:
            known[left] = self.add(
                "try",
                (),
                [self.of(parts[i], self._permutation(parts, left - {i}, following, known)) for i in sorted(left)],
            )
        return known[left]


class _Ways:
    """Finds the items that can be reached from a step without a row."""

    def __init__(self, steps: list[_Step], states: dict[int, int], order: list[int]) -> None:
        self._steps = steps
        self._states = states
        self._order = order

    def items(self, at: int, seen: set[int], waits: frozenset[int]) -> tuple[list[Item], bool]:
        """The items in order; and whether they end with acceptance. ``waits``: those that this is inside of."""
        if at in seen or at in waits:
            return [], False
        seen.add(at)
        step = self._steps[at]
        if step.kind == "accept":
            return [Accept()], True
        if step.kind == "absent":
            return [Absent(step.variables)], False
        if step.kind == "take":
            return [Taking(step.variables[0], self._state(step.next[0]))], False
        if step.kind == "wait":
            items, accepted = self.items(step.next[0], set(), waits | {at})
            return _waiting(items, step.variables), accepted
        found: list[Item] = []
        for following in step.next:
            items, accepted = self.items(following, seen, waits)
            found += items
            if accepted:
                return found, True
        return found, False

    def _state(self, step: int) -> int:
        if step not in self._states:
            self._states[step] = len(self._states)
            self._order.append(step)
        return self._states[step]


def _waiting(items: list[Item], forbidden: tuple[str, ...]) -> list[Item]:
    """One wait for all that can be taken."""
    takes: list[Taking] = []
    others: list[Item] = []
    for item in items:
        if isinstance(item, Taking):
            takes.append(item)
        elif isinstance(item, Waiting):
            takes += item.takes
            forbidden += tuple(name for name in item.forbidden if name not in forbidden)
        else:
            others.append(item)
    waits: list[Item] = [Waiting(tuple(dict.fromkeys(takes)), forbidden)] if takes else []
    return waits + others
