"""Send spans and figures to an OpenTelemetry collector, by OTLP over HTTP.

The environment names the collector, in OpenTelemetry's own variables. gRPC is not used: its connections are made by
native code, which the network guard of `--local-only` does not see.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from epicrisis.core.errors import EpicrisisError, SettingsError
from epicrisis.system.local_only import is_local, parse_host, silence_dependency_logs

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

TelemetrySignal: TypeAlias = Literal["TRACES", "METRICS"]
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_LOGGER = logging.getLogger("epicrisis.system.telemetry")
_PROTOCOL = "http/protobuf"
_TIMEOUTS = ("OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT")
_TIMEOUT_SECONDS = 3.0
"""How long a request to the collector may take with its retries, unless the environment says so. The end of a command
waits as long for one that does not answer."""


def find_endpoint(signal: TelemetrySignal) -> str | None:
    """Return the URL that the environment names for spans or for figures, or None if they are not to be sent.

    Raises SettingsError for a URL or a protocol that is not supported.
    """
    variable = _find_variable(signal)
    url = os.environ.get(variable, "").strip()
    is_disabled = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if not url or is_disabled or os.environ.get(f"OTEL_{signal}_EXPORTER", "").strip() == "none":
        return None
    if not url.startswith(("http://", "https://")) or not parse_host(url):
        raise SettingsError(
            f"{variable}: this is no address of a collector: give one such as http://127.0.0.1:4318, or unset it"
        )
    for name in (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if os.environ.get(name, _PROTOCOL) != _PROTOCOL:
            raise SettingsError(
                f"{name}: only {_PROTOCOL} is supported: set it to {_PROTOCOL}, with the collector's port for HTTP "
                "(usually 4318)"
            )
    return f"{url.rstrip('/')}/v1/{signal.lower()}" if variable == ENDPOINT else url


def _find_variable(signal: TelemetrySignal) -> str:
    """Return the variable that names the collector of this signal: its own, or that of all signals."""
    own = f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"
    return own if os.environ.get(own) else ENDPOINT


def find_endpoints() -> dict[TelemetrySignal, str]:
    """Return the URLs that the environment names, by signal. Raises SettingsError as `find_endpoint` does."""
    signals: tuple[TelemetrySignal, ...] = ("TRACES", "METRICS")
    endpoints: dict[TelemetrySignal, str] = {}
    for signal in signals:
        endpoint = find_endpoint(signal)
        if endpoint is not None:
            endpoints[signal] = endpoint
    return endpoints


def check_local_only(endpoints: Mapping[TelemetrySignal, str]) -> None:
    """Raise SettingsError if one of these URLs is of another machine."""
    for signal, endpoint in endpoints.items():
        host = parse_host(endpoint)
        if not is_local(host):
            raise SettingsError(
                f"{_find_variable(signal)}: local_only (--local-only) is on and {host} is not this machine: name a "
                "collector on this machine, or unset the variable"
            )


def check_installed() -> None:
    """Raise SettingsError if the extra `telemetry` is missing."""
    try:
        import opentelemetry.exporter.otlp.proto.http  # noqa: F401
        import requests  # noqa: F401
    except ImportError:
        raise SettingsError(
            f"{ENDPOINT} is set, and sending needs another package: pip install 'epicrisis[telemetry]', or unset the "
            "variable"
        ) from None


def make_tracer_provider(endpoint: str) -> TracerProvider:
    """Return a provider whose spans are sent to this URL, in the background and at the end of the program."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

    _prepare_logs()

    class ReportingExporter(OTLPSpanExporter):
        """Reports once a collector that refuses data."""

        def export(self, spans: Sequence[Any]) -> SpanExportResult:
            try:
                result = super().export(spans)
            except EpicrisisError:
                result = SpanExportResult.FAILURE
            _report(endpoint, is_lost=result is not SpanExportResult.SUCCESS)
            return result

    provider = TracerProvider(resource=make_resource())
    provider.add_span_processor(BatchSpanProcessor(ReportingExporter(**make_options(endpoint))))
    return provider


def make_metric_reader(endpoint: str) -> MetricReader:
    """Return a reader that sends the figures of its provider to this URL, every minute and at the end."""
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import MetricExportResult, PeriodicExportingMetricReader

    _prepare_logs()

    class ReportingExporter(OTLPMetricExporter):
        """Reports once a collector that refuses data."""

        def export(self, *arguments: Any, **options: Any) -> MetricExportResult:
            try:
                result = super().export(*arguments, **options)
            except EpicrisisError:
                result = MetricExportResult.FAILURE
            _report(endpoint, is_lost=result is not MetricExportResult.SUCCESS)
            return result

    return PeriodicExportingMetricReader(ReportingExporter(**make_options(endpoint)))


def make_resource() -> Resource:
    """Return what is sent about this process: name, version, a random id, and what `OTEL_RESOURCE_ATTRIBUTES` adds.

    The detectors of the SDK are left out: they would send the command line, which may hold a question.
    """
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    own = {
        "service.name": "epicrisis",
        "service.version": version("epicrisis"),
        "service.instance.id": str(uuid.uuid4()),
    }
    return Resource(own).merge(OTELResourceDetector().detect())


def make_options(endpoint: str) -> dict[str, Any]:
    """Return the options of an exporter. It follows no redirects, and uses no proxy to reach this machine."""
    import requests

    session = requests.Session()
    session.max_redirects = 0
    session.trust_env = not is_local(parse_host(endpoint))
    timeout = None if any(map(os.environ.get, _TIMEOUTS)) else _TIMEOUT_SECONDS
    return {"endpoint": endpoint, "session": session, "timeout": timeout}


def _prepare_logs() -> None:
    """Silence the SDK, and let our one line reach standard error."""
    silence_dependency_logs()
    if not _LOGGER.handlers:
        _LOGGER.addHandler(logging.StreamHandler())


_lost: set[str] = set()


def _report(endpoint: str, *, is_lost: bool) -> None:
    """Write one line when a collector begins to refuse what it is sent."""
    if not is_lost:
        _lost.discard(endpoint)
    elif endpoint not in _lost:
        _lost.add(endpoint)
        _LOGGER.warning(
            "telemetry: the collector at %s did not accept what was sent, so it is lost: check %s",
            parse_host(endpoint),
            ENDPOINT,
        )
