"""The MCP servers of the libraries over streamable HTTP: `/mcp` for the first, `/mcp/NAME` for each.

Libraries of patients' notes are not offered here: an assistant reads a record only over standard input and output,
where its user started the server for that patient.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from epicrisis.server.api.mcp_server import create_mcp_server
from epicrisis.server.base.http_errors import NotFound
from epicrisis.server.base.users import find_caller
from epicrisis.server.libraries.asked_questions import Questions
from epicrisis.server.libraries.reading import LibraryReader

PATH = "/mcp"


class McpEndpoint:
    """Passes requests to the MCP server of a library. `run` must be active."""

    def __init__(self, questions: Questions, reader: LibraryReader) -> None:
        """Create a server for each library of literature."""
        managers: dict[str, StreamableHTTPSessionManager] = {}
        for name, library in questions.resources.libraries.items():
            if library.holds_patients:
                continue
            server = create_mcp_server(questions, reader, library)
            # Without sessions nothing is kept between requests, and no id could be stolen. The guard of the
            # application has checked host, origin and size.
            security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
            server.streamable_http_app(stateless_http=True, transport_security=security)
            managers[name] = server.session_manager
        self._managers: Mapping[str, StreamableHTTPSessionManager] = managers

    @property
    def routes(self) -> tuple[Route, ...]:
        """The routes to add to the application."""
        # Without sessions a stream opened with GET would carry nothing, and stay open.
        return Route(PATH, self, methods=["POST"]), Route(f"{PATH}/{{library}}", self, methods=["POST"])

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Accept requests during the block, once."""
        async with AsyncExitStack() as stack:
            for manager in self._managers.values():
                await stack.enter_async_context(manager.run())
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. Raises KeyRequired without a caller, and NotFound for an unknown library."""
        find_caller(Request(scope))
        name = scope["path_params"].get("library", next(iter(self._managers), None))
        if name not in self._managers:
            raise NotFound("there is no MCP server of this library: name a library of literature")
        await self._managers[name].handle_request(scope, receive, send)
