"""The API is what its OpenAPI document says, whatever is sent to it: schemathesis makes requests up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.serving.stage import Stage, staged

pytestmark = pytest.mark.system

EXAMPLES = 12
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
BODIES = {"topic": "orders", "to": "end", "letters": ["0:0"]}
PLACES = ("@0001-01-01", "@9999-12-31", "0:1,7:1", "-5", "@-1000000w")
NAMES = {"topic": "orders", "group": "billing", "app": "shop", "name": "top", "action": "stop", "key": "x"}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("openapi")) as made:
        yield made


@pytest.fixture(scope="module")
def described(stage: Stage) -> Any:
    document = stage.get("/openapi.json")[1]
    for path in list(document["paths"]):
        for method, told in list(document["paths"][path].items()):
            if "text/event-stream" in told["responses"]["200"]["content"]:  # has no end: tested on its own
                del document["paths"][path][method]
    return schemathesis.openapi.from_dict(document)


def test_no_request_is_too_much(described: Any, stage: Stage) -> None:
    operations = [found.ok() for found in described.get_all_operations()]
    assert len(operations) > 20
    for operation in operations:
        _try_out(operation, stage.node.web)


def test_a_group_is_not_moved_in_a_partition_that_there_is_not(stage: Stage) -> None:
    told = stage.post("/groups/billing", {"to": "end", "topic": "orders", "partition": 7})
    assert told[0] == 404
    assert told[1]["error"] == "no partition 7 in orders."
    assert stage.get("/topics/orders/records?from=@0001-01-01")[0] == 400


def _try_out(operation: Any, url: str) -> None:
    @given(case=operation.as_strategy())
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def tried(case: Any) -> None:
        for name in case.path_parameters or {}:  # every second time something that there is
            if name in NAMES and len(str(case.path_parameters[name])) % 2:
                case.path_parameters[name] = NAMES[name]
        _use_what_there_is(case)
        answer = case.call(base_url=url, timeout=60)
        case.validate_response(answer, checks=CHECKS)

    tried()


def _use_what_there_is(case: Any) -> None:
    """Made-up names reach no further than the first check: so bodies have real ones too, and places that are none."""
    for name in case.body if isinstance(case.body, dict) else ():
        if name in BODIES and len(str(case.body)) % 2:
            case.body[name] = BODIES[name]
    if "from" in (case.query or {}):
        at = len(str(case.query)) % (len(PLACES) + 1)
        case.query["from"] = case.query["from"] if at == len(PLACES) else PLACES[at]
