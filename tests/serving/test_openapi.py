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
        answer = case.call(base_url=url, timeout=60)
        case.validate_response(answer, checks=CHECKS)

    tried()
