"""`epicrisis serve`: the server of the API and the page."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from epicrisis.cli.command import Flags, command, fail
from epicrisis.cli.options import ANSWER
from epicrisis.cli.terminal import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from epicrisis.answers import Notice
    from epicrisis.settings import Settings

LOOPBACK = ("127.0.0.1", "::1", "localhost")
Libraries = Annotated[list[Path], Argument(metavar="LIBRARY...", help="Folders of the libraries.")]
Host = Annotated[str, Option("--host", help="Address to listen on.")]
Port = Annotated[int, Option("--port", min=1, max=65535, help="Port to listen on.")]


@command(
    *ANSWER,
    examples=["epicrisis serve ~/lib --model http://127.0.0.1:8000/v1#qwen", "epicrisis serve ~/lib --port 8090"],
)
def serve(libraries: Libraries, host: Host = "127.0.0.1", port: Port = 8080, *, flags: Flags) -> None:
    """Serve the API for these libraries, until Ctrl-C.

    Without --model and --strategy, answers are the sentences of the library that bear on the question.
    """
    from epicrisis.api import check_settings, choose_strategy

    if host not in LOOPBACK:
        fail(f"--host {host}: the server has no users and no encryption, so it listens on 127.0.0.1 only")
    settings, notices = choose_strategy(check_settings(flags.settings()))
    for notice in notices:
        say(f"note: {notice.message}", err=True)
    asyncio.run(_serve(settings, notices, libraries, host, port))


async def _serve(
    settings: Settings, notices: Sequence[Notice], libraries: Sequence[Path], host: str, port: int
) -> None:
    """Serve until the process is told to stop. Running questions finish before it ends."""
    import uvicorn

    from epicrisis.server.app import ServerOptions, create_app
    from epicrisis.server.resources import Resources

    async with await Resources.open(settings, libraries, notices) as resources:
        options = ServerOptions()
        config = uvicorn.Config(
            create_app(resources, options),
            host=host,
            port=port,
            access_log=False,
            log_level="warning",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=int(options.stop_seconds),
        )
        say(f"epicrisis serves {', '.join(resources.libraries)} on http://{host}:{port}. Ctrl-C stops it.")
        await uvicorn.Server(config).serve()
