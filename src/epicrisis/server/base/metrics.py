"""Figures of the server: counts and seconds, with no text, user or patient.

They are measured once, with OpenTelemetry's API. Prometheus reads them at `/metrics`; if the environment names a
collector, they are sent there too. Names and buckets of requests and of chat models follow OpenTelemetry's conventions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from fastapi import APIRouter
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from epicrisis.core import errors
from epicrisis.core.answers import Answer, ModelCalled
from epicrisis.server.base.error_log import ERRORS
from epicrisis.server.base.users import CurrentCaller
from epicrisis.system.logs import safe_name
from epicrisis.system.telemetry import NO_STEP, SpanAttributes, Step, make_metric_readers, span
from epicrisis.system.telemetry_export import make_resource

_REQUEST_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
_QUESTION_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_CALL_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKENS = (1, 4, 16, 64, 256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216, 67_108_864)
_METHODS = frozenset({"GET", "POST", "DELETE", "HEAD", "OPTIONS"})
_UNTRACED = frozenset({"/healthz", "/readyz", "/metrics"})
"""Paths that other programs ask every few seconds."""


class Metrics:
    """The figures of one server."""

    def __init__(self, running: Callable[[], int]) -> None:
        self.registry = CollectorRegistry()
        prometheus = PrometheusMetricReader(disable_target_info=True, scope_info_enabled=False, registry=self.registry)
        provider = MeterProvider([prometheus, *make_metric_readers()], make_resource())
        meter = provider.get_meter("epicrisis")

        def count_running(_: CallbackOptions) -> Iterable[Observation]:
            return [Observation(running())]

        def count_errors(_: CallbackOptions) -> Iterable[Observation]:
            return [Observation(count, {"kind": kind}) for kind, count in list(ERRORS.items())]

        self._requests = meter.create_histogram(
            "http.server.request.duration",
            "s",
            "Time of a request until the end of its reply.",
            explicit_bucket_boundaries_advisory=_REQUEST_SECONDS,
        )
        self._seconds = meter.create_histogram(
            "epicrisis.question", "s", "Time of a question.", explicit_bucket_boundaries_advisory=_QUESTION_SECONDS
        )
        self._answers = meter.create_counter("epicrisis.answers", "", "Finished questions by state.")
        self._calls = meter.create_histogram(
            "gen_ai.client.operation.duration",
            "s",
            "Time of a call of a chat model, with its retries.",
            explicit_bucket_boundaries_advisory=_CALL_SECONDS,
        )
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Tokens of a call of a chat model.",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )
        meter.create_observable_gauge("epicrisis.running.questions", [count_running], "", "Questions being answered.")
        meter.create_observable_counter("epicrisis.errors", [count_errors], "", "Errors of the server by class.")

    def count_request(self, attributes: SpanAttributes, seconds: float) -> None:
        """Count a request with these attributes that took these seconds."""
        self._requests.record(seconds, attributes)

    def count_answer(self, answer: Answer, seconds: float) -> None:
        """Count a finished question that took these seconds."""
        self._answers.add(1, {"strategy": answer.strategy, "state": answer.state})
        self._seconds.record(seconds, {"strategy": answer.strategy})

    def count_call(self, call: ModelCalled) -> None:
        """Count a call of a chat model. One that the cache answered is none."""
        usage = call.usage
        if usage.replayed_calls:
            return
        model = call.model.partition(" at ")[0]
        attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": safe_name(model)}
        if isinstance(getattr(errors, call.finish_reason, None), type):
            attributes["error.type"] = call.finish_reason
        self._calls.record(usage.seconds, attributes)
        self._tokens.record(usage.prompt_tokens, {**attributes, "gen_ai.token.type": "input"})
        self._tokens.record(usage.completion_tokens, {**attributes, "gen_ai.token.type": "output"})


class MeasureRequests:
    """Measures requests by the template of their route, so that no id becomes an attribute."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and measure it until the end of its reply."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["path"] in _UNTRACED:
            await self._measure(scope, receive, send, NO_STEP)
        else:
            traceparent = Headers(scope=scope).get("traceparent")
            with span("HTTP", kind="SERVER", traceparent=traceparent) as step:
                await self._measure(scope, receive, send, step)

    async def _measure(self, scope: Scope, receive: Receive, send: Send, step: Step) -> None:
        status, start = 0, time.monotonic()

        async def send_measured(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_measured)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in _METHODS else "_OTHER"
            step.rename(f"{method} {route}")
            attributes = {"http.request.method": method, "http.route": route, "http.response.status_code": status}
            step.set(attributes)
            if status >= 500:
                step.fail(str(status))
            self._metrics.count_request(attributes, time.monotonic() - start)


def make_metrics_routes(metrics: Metrics) -> APIRouter:
    """Return the route of the figures. It needs a key where the other routes do."""
    router = APIRouter(tags=["Operation"])

    @router.get("/metrics", summary="Figures for Prometheus", response_class=Response)
    async def read_metrics(_: CurrentCaller) -> Response:
        """Return the figures in the text format of Prometheus."""
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return router
