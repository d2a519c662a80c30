"""Spans and figures for OpenTelemetry: what is measured, and that no text, id, user or path is in it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from epicrisis.core.errors import InputError, SettingsError
from epicrisis.core.types import Document
from epicrisis.models.chat.loading import add_layers, load_chat
from epicrisis.privacy.patient_data_policy import protect_patient_data
from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.base.users import USERS_FILE, UserStore
from epicrisis.settings.settings import ModelSettings, Settings
from epicrisis.system import telemetry
from epicrisis.system.local_only import is_local_only
from epicrisis.system.telemetry import make_trace_headers, record_spans, span
from epicrisis.system.telemetry_export import (
    ENDPOINT,
    check_local_only,
    find_endpoint,
    find_endpoints,
    make_options,
    make_resource,
)
from tests.support.faults import Fault
from tests.support.hostile import HostileServer
from tests.support.patient_records import library
from tests.support.servers import connect, open_library, open_resources

CANARY = "kanary"
"""A part of every text, id, name and path of these tests that may not be sent."""
PATIENT = f"{CANARY}-4711"
NOTES = [
    Document(f"note:{CANARY}:{day}", f"Colchicine was given, says {CANARY}.", date=f"2150-0{day}", patient=PATIENT)
    for day in (1, 2, 3)
]
QUESTION = f"Which drug was given, {CANARY}?"
TRACE = "0af7651916cd43dd8448eb211c80319c"
HEADERS = {
    "traceparent": f"00-{TRACE}-b7ad6b7169203331-01",
    "tracestate": f"vendor={CANARY}",
    "baggage": f"user={CANARY}",
    "user-agent": CANARY,
}


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    """Record the spans of a test in memory, with the SDK."""
    memory = InMemorySpanExporter()
    provider = TracerProvider(resource=make_resource())
    provider.add_span_processor(SimpleSpanProcessor(memory))
    record_spans(provider)
    yield memory
    record_spans(None)


def describe(spans: tuple[ReadableSpan, ...]) -> str:
    """Return everything that an exporter would send of these spans."""
    states = [str(recorded.context.trace_state) for recorded in spans if recorded.context]
    return "\n".join([*(recorded.to_json() for recorded in spans), *states])


def names_of(spans: tuple[ReadableSpan, ...]) -> set[str]:
    return {recorded.name for recorded in spans}


def find(exporter: InMemorySpanExporter, name: str) -> ReadableSpan:
    return next(recorded for recorded in exporter.get_finished_spans() if recorded.name == name)


class Ward:
    """A server of one patient's notes, whose chat model is at an endpoint on loopback."""

    def __init__(self, folder: Path, endpoint: HostileServer) -> None:
        users = UserStore(folder / "server" / USERS_FILE)
        self._key = users.add(f"{CANARY}user", "patient-reader")
        model = ModelSettings(name=f"{endpoint.url}?key={CANARY}#scripted", tries=1, timeout_seconds=5)
        chat = add_layers(load_chat(model, folder), model)
        settings: dict[str, Any] = {"strategy": "brief-context", "check": "model", "partition": 1}
        # No gap is as large, so the passages are read in parts.
        settings["preflight"] = {"signal": "dense-gap", "threshold": 1000}
        ward = open_library(folder / f"{CANARY}-library", chat, NOTES, **settings)
        self.app = create_app(open_resources(ward), ServerOptions(folder=folder / "server"))

    async def send(self, method: str, path: str, body: dict[str, Any] | None = None) -> httpx2.Response:
        async with connect(self.app, headers={**HEADERS, "authorization": f"Bearer {self._key}"}) as client:
            return await client.request(method, path, json=body)

    async def ask(self, **more: Any) -> httpx2.Response:
        return await self.send("POST", "/api/v1/ask", {"question": QUESTION, "patient": PATIENT, **more})


@pytest.mark.slow
def test_spans_of_questions_hold_no_text_id_user_or_path(tmp_path: Path, exporter: InMemorySpanExporter) -> None:
    with HostileServer(keep_bodies=True) as endpoint:
        ward = Ward(tmp_path, endpoint)
        # Those of making the library.
        exporter.clear()

        async def use() -> list[int]:
            search = {"query": QUESTION, "patient": PATIENT}
            responses = [
                await ward.ask(),
                await ward.ask(settings={"strategy": "rag"}),
                await ward.ask(settings={"strategy": "evidence"}),
                await ward.send("POST", "/api/v1/search", search),
                await ward.send("GET", f"/api/v1/libraries/{CANARY}-library/documents/note:{CANARY}:1"),
                await ward.send("GET", f"/{CANARY}?query={CANARY}"),
                await ward.send("GET", "/metrics"),
            ]
            assert CANARY not in responses[-1].text
            assert "http_server_request_duration_seconds_count" in responses[-1].text
            return [response.status_code for response in responses]

        assert asyncio.run(use()) == [200, 200, 200, 200, 404, 404, 200]
        prompts = "".join(str(request.body) for request in endpoint.received)
    assert CANARY in prompts
    spans = exporter.get_finished_spans()
    assert CANARY not in describe(spans).lower()
    expected = {"POST /api/v1/ask", "question", "retrieve", "encode question", "search words", "search vectors"}
    expected |= {"fetch passages", "preflight", "map", "reduce", "verify", "select sentences", "chat scripted"}
    assert names_of(spans) >= expected
    assert "GET other" in names_of(spans)
    assert {recorded.context.trace_id for recorded in spans if recorded.context} == {int(TRACE, 16)}


@pytest.mark.slow
def test_spans_of_failures_hold_classes_of_errors_alone(
    tmp_path: Path, exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = [Fault.SERVER_ERROR, Fault.RESET_AT_ONCE, Fault.MALFORMED_JSON, Fault.FILTERED_PROMPT]
    with HostileServer(script=faults) as endpoint:
        ward = Ward(tmp_path, endpoint)

        async def use() -> list[int]:
            statuses = [(await ward.ask(settings={"strategy": "rag"})).status_code for _ in faults]
            statuses.append((await ward.ask(patient=f"{CANARY}-unknown")).status_code)

            async def fail(*_: Any) -> None:
                raise ZeroDivisionError(f"{CANARY} was divided")

            monkeypatch.setattr(ward.app.state.questions, "prepare", fail)
            return [*statuses, (await ward.ask()).status_code]

        assert asyncio.run(use()) == [503, 502, 502, 502, 422, 500]
    spans = exporter.get_finished_spans()
    assert CANARY not in describe(spans).lower()
    assert all(not recorded.events for recorded in spans)
    assert all(recorded.status.description is None for recorded in spans)
    kinds = {str((recorded.attributes or {}).get("error.type")) for recorded in spans}
    assert kinds >= {"EndpointBusy", "EndpointUnreachable", "ReplyInvalid", "EndpointRejected", "502", "500"}


def test_ingest_batch_is_measured_without_texts(tmp_path: Path, exporter: InMemorySpanExporter) -> None:
    open_library(tmp_path / CANARY, None, NOTES)
    batch = find(exporter, "add batch")
    assert dict(batch.attributes or {}) == {"epicrisis.documents": 3, "epicrisis.passages": 3}
    assert names_of(exporter.get_finished_spans()) == {"add batch", "encode batch", "write batch"}
    assert CANARY not in describe(exporter.get_finished_spans())


@pytest.mark.slow
def test_chat_call_follows_the_conventions_for_generative_ai(tmp_path: Path, exporter: InMemorySpanExporter) -> None:
    with HostileServer(keep_bodies=True) as endpoint:
        ward = Ward(tmp_path, endpoint)
        asyncio.run(ward.ask(settings={"strategy": "rag"}))
        calls = [request for request in endpoint.received if request.path.endswith("/chat/completions")]
    call = find(exporter, "chat scripted")
    attributes = dict(call.attributes or {})
    assert attributes["gen_ai.operation.name"] == "chat"
    assert attributes["gen_ai.provider.name"] == "openai"
    assert attributes["gen_ai.request.model"] == "scripted"
    assert attributes["server.address"] == "127.0.0.1"
    assert attributes["server.port"] == int(endpoint.url.rpartition(":")[2].removesuffix("/v1"))
    assert attributes["gen_ai.response.finish_reasons"] == ("stop",)
    usages = [recorded.attributes or {} for recorded in exporter.get_finished_spans() if "chat" in recorded.name]
    tokens = sum(int(str(usage["gen_ai.usage.input_tokens"])) for usage in usages)
    assert tokens == endpoint.ledger.told_prompt_tokens
    assert call.kind.name == "CLIENT"
    assert call.context is not None
    # An endpoint on this machine continues the trace, and receives nothing else of its caller.
    assert calls[0].headers["traceparent"] == f"00-{TRACE}-{call.context.span_id:016x}-01"
    assert CANARY not in str({name: calls[0].headers.get(name) for name in ("tracestate", "baggage")})


def test_nothing_is_recorded_without_a_provider() -> None:
    with span("question", {"epicrisis.strategy": "rag"}) as step:
        step.set({"epicrisis.state": "answered"})
        step.fail("InputError")
        assert step.span is None
        assert make_trace_headers() == {}


def test_error_of_a_step_is_raised_and_recorded_by_its_class(exporter: InMemorySpanExporter) -> None:
    with pytest.raises(InputError), span("retrieve"):
        raise InputError(CANARY)
    (recorded,) = exporter.get_finished_spans()
    assert dict(recorded.attributes or {}) == {"error.type": "InputError"}
    assert recorded.status.status_code.name == "ERROR"


@pytest.mark.parametrize(
    ("variables", "endpoint"),
    [
        ({}, None),
        ({ENDPOINT: "http://127.0.0.1:4318/"}, "http://127.0.0.1:4318/v1/traces"),
        ({ENDPOINT: "http://a.test", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://b.test/x"}, "http://b.test/x"),
        ({ENDPOINT: "http://127.0.0.1:4318", "OTEL_TRACES_EXPORTER": "none"}, None),
        ({ENDPOINT: "http://127.0.0.1:4318", "OTEL_SDK_DISABLED": "true"}, None),
    ],
)
def test_endpoint_is_read_from_the_variables_of_opentelemetry(
    variables: dict[str, str], endpoint: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert find_endpoint("TRACES") == endpoint


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        (ENDPOINT, "collector:4318", "no address of a collector"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "only http/protobuf is supported"),
    ],
)
def test_endpoint_that_cannot_be_used_is_refused(
    variable: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:4318")
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError, match=message):
        find_endpoints()


def test_collector_on_another_machine_is_refused_under_local_only(monkeypatch: pytest.MonkeyPatch) -> None:
    check_local_only({"TRACES": "http://127.0.0.1:4318/v1/traces"})
    with pytest.raises(SettingsError, match=r"collector\.test is not this machine"):
        check_local_only({"METRICS": "https://collector.test/v1/metrics"})
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://collector.test/v1/traces")
    with pytest.raises(SettingsError, match="OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: local_only"):
        check_local_only(find_endpoints())


def test_library_of_notes_does_not_open_while_spans_go_to_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library(tmp_path / "ward", NOTES).close()
    library(tmp_path / "papers", [Document("paper", "Aspirin was given.")]).close()
    monkeypatch.setattr(telemetry._recording, "endpoints", {"TRACES": "http://collector.test:4318/v1/traces"})
    with pytest.raises(SettingsError, match=r"collector\.test is not this machine"):
        protect_patient_data(Settings(), tmp_path / "ward")
    assert not protect_patient_data(Settings(), tmp_path / "papers").local_only
    assert not is_local_only()


def test_resource_names_no_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPERIMENTAL_RESOURCE_DETECTORS", "process,host,os")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    attributes = make_resource().attributes
    assert set(attributes) == {
        "service.name",
        "service.version",
        "service.instance.id",
        "deployment.environment.name",
    }
    assert make_resource().attributes["service.instance.id"] != attributes["service.instance.id"]


def test_exporter_uses_no_proxy_for_this_machine_and_follows_no_redirect() -> None:
    local = make_options("http://127.0.0.1:4318/v1/traces")["session"]
    assert not local.trust_env
    assert local.max_redirects == 0
    assert make_options("https://collector.test/v1/traces")["session"].trust_env


@pytest.mark.slow
def test_guard_of_the_network_sees_the_connections_of_the_exporter() -> None:
    code = """
        import os
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://203.0.113.7:4318"
        from epicrisis.system.local_only import set_local_only
        from epicrisis.system.telemetry import start, span
        start(local_only=False)
        set_local_only(True)
        with span("question"):
            pass
    """
    lines = [line.strip() for line in code.splitlines()]
    lines[-2:] = [f"    {line}" for line in lines[-2:-1]]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert done.stdout == ""
    assert done.stderr.startswith("telemetry: the collector at 203.0.113.7 did not accept what was sent")
    assert len(done.stderr.splitlines()) == 1
