"""What commands print."""

from __future__ import annotations

import pytest

from headrace.cli.output import age, print_table, size


def test_a_table_is_as_wide_as_it_must_be_and_numbers_are_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["name", "n"], [["a", 5], ["a-long-name", 1234], ["b", None]])
    assert capsys.readouterr().out == "NAME            N\na               5\na-long-name  1234\nb               -\n"


def test_an_empty_table_is_its_header(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["name", "n"], [])
    assert capsys.readouterr().out == "NAME  N\n"


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB")])
def test_sizes_are_for_people(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, None), (0.25, "0.2s"), (59.9, "59.9s"), (61, "1m 1s"), (7325, "2h 2m"), (90_000, "1d 1h")],
)
def test_ages_have_two_units_at_most(seconds: float | None, text: str | None) -> None:
    assert age(seconds) == text
