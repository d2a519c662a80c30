"""`epicrisis mcp`: offer a library to an assistant, over standard input and output."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from epicrisis.cli.command import Flags, command
from epicrisis.cli.options import ANSWER, LibraryPath

if TYPE_CHECKING:
    from epicrisis.core.answers import Notice
    from epicrisis.settings.settings import Settings

Patients = Annotated[
    list[str] | None,
    Option(
        "--patient",
        help="Let the assistant, and the provider of its model, read the record of this patient (id or number; "
        "repeatable). A library of notes needs it.",
    ),
]
LogFolder = Annotated[
    Path | None,
    Option(
        "--folder",
        help="Folder of the server, for its access log. Default: `server` in the data folder (EPICRISIS_HOME).",
    ),
]


@command(
    *ANSWER,
    examples=[
        "epicrisis mcp ~/lib --model http://127.0.0.1:8000/v1#qwen",
        "epicrisis mcp ~/ward --patient 10083814 --strategy evidence",
    ],
)
def mcp(library: LibraryPath, patient: Patients = None, folder: LogFolder = None, *, flags: Flags) -> None:
    """Serve a library to an assistant, through MCP on standard input and output.

    Name this command in the settings of the assistant. The tools are search, ask and evidence. Without --model and
    --strategy, ask gives the sentences of the library alone.
    """
    from epicrisis.server.state import state_folder
    from epicrisis.settings.configuration import check_settings, choose_strategy

    settings, notices = choose_strategy(check_settings(flags.settings()))
    place = settings.home / "server" if folder is None else state_folder(folder)
    asyncio.run(_serve(settings, notices, library, patient or (), place))


async def _serve(
    settings: Settings, notices: Sequence[Notice], library: Path, patients: Sequence[str], folder: Path
) -> None:
    """Serve until standard input ends."""
    from epicrisis.server.mcp_server import create_mcp_server, find_patients
    from epicrisis.server.private_folder import make_private_folder
    from epicrisis.server.questions import Questions
    from epicrisis.server.reading import LibraryReader
    from epicrisis.server.resources import Resources
    from epicrisis.server.state import open_state

    async with await Resources.open(settings, [library], notices) as resources:
        library_to_serve = resources.default
        ids = find_patients(library_to_serve, patients)
        log = None
        if library_to_serve.holds_patients:
            make_private_folder(folder)
            log = open_state(folder).log
        server = create_mcp_server(Questions(resources, log=log), LibraryReader(resources, log), library_to_serve, ids)
        await server.run_stdio_async()
