"""Checks of every request before it reaches a route."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from epicrisis.server.users import LOCAL


class IdentifyCaller:
    """Names the caller of every request. Without users that is everybody on this machine."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its caller."""
        if scope["type"] == "http":
            scope["epicrisis.caller"] = LOCAL
        await self._app(scope, receive, send)
