"""A collector of OpenTelemetry on loopback, which decodes what it is sent by OTLP over HTTP."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.loopback import run_in_thread


@dataclass
class Collector:
    """What a collector received."""

    url: str = ""
    traces: list[ExportTraceServiceRequest] = field(default_factory=list)
    metrics: list[ExportMetricsServiceRequest] = field(default_factory=list)

    @property
    def spans(self) -> list[Span]:
        """The spans in the order of their arrival."""
        spans: list[Span] = []
        for request in self.traces:
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    spans += scope.spans
        return spans

    @property
    def instances(self) -> set[str]:
        """The ids of the processes that sent spans."""
        ids: set[str] = set()
        for request in self.traces:
            for resource in request.resource_spans:
                for attribute in resource.resource.attributes:
                    if attribute.key == "service.instance.id":
                        ids.add(attribute.value.string_value)
        return ids

    @property
    def figures(self) -> set[str]:
        """The names of the figures."""
        names: set[str] = set()
        for request in self.metrics:
            for resource in request.resource_metrics:
                for scope in resource.scope_metrics:
                    names.update(metric.name for metric in scope.metrics)
        return names


class _Handler(BaseHTTPRequestHandler):
    collector: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        if self.path == "/v1/traces":
            self.collector.traces.append(ExportTraceServiceRequest.FromString(body))
        else:
            assert self.path == "/v1/metrics"
            self.collector.metrics.append(ExportMetricsServiceRequest.FromString(body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector during the block."""
    collector = Collector()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"collector": collector}))
    with run_in_thread(server) as collector.url:
        yield collector
