"""Measure steps as spans of OpenTelemetry: names, counts and durations. Never a text, an id, a user or a path.

    with span("search words", {"epicrisis.k": 8}) as step:
        hits = ...
        step.set({"epicrisis.hits": len(hits)})

Nothing is recorded, and OpenTelemetry is not imported, until `start` finds a collector in the environment, or a program
passes a provider of its own to `record_spans`. Exceptions are recorded by their class, as messages may quote a text.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeAlias, TypeVar

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.trace import Span, Tracer, TracerProvider

    from epicrisis.system.telemetry_export import TelemetrySignal

P = ParamSpec("P")
T = TypeVar("T")
SpanAttributes: TypeAlias = Mapping[str, str | int | float | bool | Sequence[str]]
SpanKindName: TypeAlias = Literal["INTERNAL", "SERVER", "CLIENT"]
NO_ATTRIBUTES: SpanAttributes = {}
_SCOPE = "epicrisis"


@dataclass(frozen=True, slots=True)
class Step:
    """A span that is being recorded, or none."""

    span: Span | None = None

    def set(self, attributes: SpanAttributes) -> None:
        """Add attributes."""
        if self.span is not None:
            self.span.set_attributes(attributes)

    def rename(self, name: str) -> None:
        """Give the span another name."""
        if self.span is not None:
            self.span.update_name(name)

    def fail(self, kind: str) -> None:
        """Mark the span as failed by an error of this class."""
        if self.span is not None:
            from opentelemetry.trace import StatusCode

            self.span.set_attribute("error.type", kind)
            self.span.set_status(StatusCode.ERROR)


NO_STEP = Step()


@dataclass(slots=True)
class _Recording:
    tracer: Tracer | None = None
    endpoints: Mapping[TelemetrySignal, str] = field(default_factory=dict)
    """Where spans and figures are sent."""


_recording = _Recording()


def start(*, local_only: bool) -> None:
    """Send spans, and the figures of a server, from here on if the environment names a collector.

    A second call does nothing. Raises SettingsError for an unusable collector, another machine under `local_only`, or
    a missing extra `telemetry`.
    """
    # Otherwise nothing more is imported.
    if _recording.endpoints or not any(name.startswith("OTEL_EXPORTER_OTLP_") for name in os.environ):
        return
    from epicrisis.system import telemetry_export

    endpoints = telemetry_export.find_endpoints()
    if not endpoints:
        return
    if local_only:
        telemetry_export.check_local_only(endpoints)
    telemetry_export.check_installed()
    _recording.endpoints = endpoints
    if "TRACES" in endpoints:
        record_spans(telemetry_export.make_tracer_provider(endpoints["TRACES"]))


def check_local_only() -> None:
    """Raise SettingsError if spans or figures are sent to another machine, which `local_only` does not permit."""
    if _recording.endpoints:
        from epicrisis.system import telemetry_export

        telemetry_export.check_local_only(_recording.endpoints)


def record_spans(provider: TracerProvider | None) -> None:
    """Record spans with this provider from here on; with None, record nothing."""
    _recording.tracer = None if provider is None else provider.get_tracer(_SCOPE)


def is_recording() -> bool:
    """Return whether spans are recorded."""
    return _recording.tracer is not None


def make_metric_readers() -> list[MetricReader]:
    """Return the readers that send figures to the collector of the environment: one, or none without a collector."""
    endpoint = _recording.endpoints.get("METRICS")
    if endpoint is None:
        return []
    from epicrisis.system import telemetry_export

    return [telemetry_export.make_metric_reader(endpoint)]


@contextmanager
def span(
    name: str,
    attributes: SpanAttributes = NO_ATTRIBUTES,
    *,
    kind: SpanKindName = "INTERNAL",
    traceparent: str | None = None,
) -> Iterator[Step]:
    """Measure the block as a span. `traceparent` is the W3C header of the caller on another machine, if any.

    Nothing else that a caller sends is taken over: `tracestate` and `baggage` may hold any text.
    """
    tracer = _recording.tracer
    if tracer is None:
        yield NO_STEP
        return
    from opentelemetry.trace import SpanKind
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    parent = None if traceparent is None else TraceContextTextMapPropagator().extract({"traceparent": traceparent})
    with tracer.start_as_current_span(
        name,
        parent,
        SpanKind[kind],
        dict(attributes),
        record_exception=False,
        set_status_on_exception=False,
    ) as current:
        step = Step(current)
        try:
            yield step
        except BaseException as error:
            step.fail(type(error).__name__)
            raise


def annotate(attributes: SpanAttributes) -> None:
    """Add attributes to the span that is being recorded, if any."""
    if _recording.tracer is not None:
        from opentelemetry.trace import get_current_span

        get_current_span().set_attributes(attributes)


def traced(name: str) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Coroutine[Any, Any, T]]]:
    """Return a decorator that measures each call of a coroutine function as a span."""

    def decorate(function: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        @wraps(function)
        async def call(*args: P.args, **kwargs: P.kwargs) -> T:
            with span(name):
                return await function(*args, **kwargs)

        return call

    return decorate


def make_trace_headers() -> dict[str, str]:
    """Return the header `traceparent` of the current span: two random numbers. Empty if none is recorded."""
    if _recording.tracer is None:
        return {}
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers)
    return headers
