"""The OpenAPI description against the running server: requests made from it find no fault and no other response."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Err
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from epicrisis.server.api.guards import GuardOptions
from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.work.upload_reception import UploadLimits
from tests.support.servers import open_library, open_resources, running

MAX_EXAMPLES = 12
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server of four papers, with jobs and uploads, and without runs."""
    folder = tmp_path_factory.mktemp("schema")
    addresses: list[str] = []
    started, finished = threading.Event(), threading.Event()

    async def serve() -> None:
        limits = UploadLimits(file_bytes=100_000, upload_bytes=1_000_000, free_bytes=0)
        guard = GuardOptions(body_seconds=60)
        options = ServerOptions(folder=folder / "server", runs=folder, uploads=limits, guard=guard)
        app = create_app(open_resources(open_library(folder / "lib")), options)
        async with running(app) as url:
            addresses.append(url)
            started.set()
            await asyncio.to_thread(finished.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(30)
    yield addresses[0]
    finished.set()
    thread.join(30)


@pytest.mark.long
def test_every_operation_of_api_conforms_to_its_description(address: str) -> None:
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json").include(
        path_regex=r"^/api/v1|^/v1|^/healthz$|^/readyz$|^/metrics$"
    )
    operations: list[Any] = []
    for result in schema.get_all_operations():
        assert not isinstance(result, Err), result
        operations.append(result.ok())
    assert len(operations) >= 21
    for operation, mode in itertools.product(operations, GenerationMode):
        if mode is GenerationMode.NEGATIVE and not (operation.body or operation.path_parameters):
            continue

        @hypothesis.settings(
            max_examples=MAX_EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
        def check(case: Any) -> None:
            case.call_and_validate(checks=CHECKS)

        check()


@pytest.mark.long
def test_description_has_example_of_every_body(address: str) -> None:
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json").raw_schema
    bodies = [name for name in schema["components"]["schemas"] if name.endswith("Body") and "form" not in name.lower()]
    assert {"AskBody", "SearchBody", "ReadBody", "JobBody"} <= set(bodies)
    for name in ("AskBody", "SearchBody", "ReadBody", "PatientBody", "JobBody"):
        assert schema["components"]["schemas"][name]["examples"], name
