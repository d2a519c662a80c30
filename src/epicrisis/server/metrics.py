"""Figures of the server for Prometheus: counts and seconds, with no text, user or patient."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from epicrisis.answers import Answer
from epicrisis.server.error_log import ERRORS
from epicrisis.server.users import CurrentCaller

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """The figures of one server."""

    def __init__(self, running: Callable[[], int]) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(ERRORS)
        names = ("method", "route", "status")
        self.requests = Counter("epicrisis_requests", "HTTP requests.", names, registry=self.registry)
        self.seconds = Histogram(
            "epicrisis_question_seconds", "Time of a question.", ["strategy"], buckets=_SECONDS, registry=self.registry
        )
        self.answers = Counter(
            "epicrisis_answers", "Finished questions by state.", ["strategy", "state"], registry=self.registry
        )
        self.tokens = Counter("epicrisis_tokens", "Tokens of chat models.", ["kind"], registry=self.registry)
        gauge = Gauge("epicrisis_running_questions", "Questions being answered.", registry=self.registry)
        gauge.set_function(running)

    def count_answer(self, answer: Answer, seconds: float) -> None:
        """Count a finished question that took these seconds."""
        self.answers.labels(answer.strategy, answer.state).inc()
        self.seconds.labels(answer.strategy).observe(seconds)
        self.tokens.labels("prompt").inc(answer.usage.prompt_tokens)
        self.tokens.labels("completion").inc(answer.usage.completion_tokens)


class CountRequests:
    """Counts requests by the template of their route, so that no id becomes a label."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and count its response."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = "none"

        async def send_counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, send_counted)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in ("GET", "POST", "DELETE", "HEAD", "OPTIONS") else "other"
            self._metrics.requests.labels(method, route, status).inc()


def make_metrics_routes(metrics: Metrics) -> APIRouter:
    """Return the route of the figures. It needs a key where the other routes do."""
    router = APIRouter(tags=["Operation"])

    @router.get("/metrics", summary="Figures for Prometheus", response_class=Response)
    async def read_metrics(_: CurrentCaller) -> Response:
        """Return the figures in the text format of Prometheus."""
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return router
