"""What operators know of the query that is being built."""

from __future__ import annotations

from dataclasses import replace

from headrace.pipelines.building import Building, building, next_operator


def test_operators_are_numbered_over_all_parts_of_a_query_and_anew_in_each_build() -> None:
    query = Building("shop.visits")
    with building(replace(query, event_times=("at",))):
        assert [next_operator(), next_operator()] == [0, 1]
        with building(Building("shop.visits")):
            assert next_operator() == 0, "a look at which columns are needed"
    with building(query):
        assert next_operator() == 2, "what is built after the function"
    assert next_operator() == 0
