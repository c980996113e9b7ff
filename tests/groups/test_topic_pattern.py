"""Regular expressions over topic names: Kafka's syntax, and no expression that takes for ever."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.broker.groups.topic_pattern import BadPattern, TopicPattern
from tests.contract.scenarios.consumer_groups import PATTERNS

atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "\\d", "\\w", "\\W", "-", "\\.", "\\b", "\\B", "^", "(?i:A)"])
expressions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "*?", "{1,}"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=8,
)
names = st.text("abA1.-_", min_size=1, max_size=8)


@settings(max_examples=30)
@given(expressions, names)
def test_it_matches_what_python_matches_where_both_know_the_syntax(expression: str, name: str) -> None:
    assert TopicPattern(expression).matches(name) == (re.fullmatch(expression, name) is not None)


@pytest.mark.parametrize(("text", "is_valid"), PATTERNS)
def test_it_takes_what_kafka_takes(text: str, is_valid: bool) -> None:
    if is_valid:
        TopicPattern(text)
    else:
        with pytest.raises(BadPattern):
            TopicPattern(text)


@settings(max_examples=30)
@given(st.text("ab()[]{}*+?|\\^$.-:<>P12,piQE", max_size=20))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    with contextlib.suppress(BadPattern):
        TopicPattern(text).matches("a-b.1")


def test_expressions_that_explode_elsewhere_do_not_here() -> None:
    name = "a" * 248 + "-"
    for text in ("(a+)+", "(a|a)*", "(a|aa)+", "(a*)*b", "(.*)(.*)(.*)(.*)x"):
        assert not TopicPattern(text).matches(name)
    for text in ("((a{100}){100}){100}", "(" * 500 + "a" + ")" * 500):
        with pytest.raises(BadPattern):
            TopicPattern(text)


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("orders.*", "orders-eu", True),
        ("orders.*", "my-orders", False),
        ("(?i)ORDERS", "orders", True),
        ("[[:alpha:]]+", "orders", True),
        ("[[:^alpha:]]+", "1.2-3", True),
        ("\\pL+", "orders", True),
        ("\\PL+", "1-2", True),
        ("\\p{Greek}*", "", True),
        ("\\Qa.b\\E", "a.b", True),
        ("\\Qa.b\\E", "a-b", False),
        ("[\\w-]{3}", "a-b", True),
        ("^a$", "a", True),
        ("a|", "", True),
        ("\\x61\\142", "ab", True),
        ("x{0}y", "y", True),
    ],
)
def test_what_expressions_mean(text: str, name: str, expected: bool) -> None:
    assert TopicPattern(text).matches(name) is expected
