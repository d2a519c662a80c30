"""`epicrisis users`: who may use the server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from epicrisis.cli.command import command
from epicrisis.cli.options import Json
from epicrisis.cli.terminal import say, show_json
from epicrisis.core.errors import InputError

ServerFolder = Annotated[
    Path | None,
    Option(
        "--folder",
        help="Folder of the server's users, access log and jobs, or postgresql://... to share them among several "
        "servers. Default: `server` in the data folder (EPICRISIS_HOME).",
    ),
]
_Name = Annotated[str, Argument(help="Name of the user.")]


def server_folder(folder: Path | None) -> Path:
    """Return the folder of the server: the given one, that of a URL, or the default with the models."""
    from epicrisis.server.state import state_folder
    from epicrisis.settings.configuration import load_settings

    return state_folder(folder) if folder is not None else load_settings().home / "server"


@command(examples=["epicrisis users add maria --role patient-reader --patient 10083814"])
def add(
    name: _Name,
    role: Annotated[
        str, Option("--role", help="literature-reader, patient-reader or administrator.")
    ] = "literature-reader",
    patient: Annotated[
        list[str] | None, Option("--patient", help="Id of an assigned patient (repeatable). Default: all patients.")
    ] = None,
    folder: ServerFolder = None,
    json: Json = False,
) -> None:
    """Add a user of the server and print the key, which is stored nowhere. An existing user gets a new key."""
    from epicrisis.server.state import open_state
    from epicrisis.server.users import ROLES

    matches = [candidate for candidate in ROLES if candidate == role]
    if not matches:
        raise InputError(f"no role is called {role}: choose one of {', '.join(ROLES)}")
    store = open_state(server_folder(folder)).users
    key = store.add(name, matches[0], tuple(patient) if patient else None)
    if json:
        show_json({"name": name, "key": key})
        return
    say(f"note: the key of {name} is shown once; send it as Authorization: Bearer KEY", err=True)
    say(key)


@command(examples=["epicrisis users list"])
def list_users(folder: ServerFolder = None, json: Json = False) -> None:
    """List the users of the server with their roles."""
    from epicrisis.server.state import open_state

    users = open_state(server_folder(folder)).users.users()
    if json:
        rows = {name: user.model_dump(exclude={"key_sha256"}) for name, user in users.items()}
        show_json(rows)
        return
    for name, user in users.items():
        patients = "" if user.patients is None else f", {len(user.patients)} assigned patients"
        say(f"{name}: {user.role}{patients}, {user.requests_per_minute} requests per minute, {user.running} questions")
    if not users:
        say("no users; without them the server answers everybody on this machine, from literature only")


@command(examples=["epicrisis users remove maria"])
def remove(name: _Name, folder: ServerFolder = None, json: Json = False) -> None:
    """Remove a user of the server. The key is refused from the next request on."""
    from epicrisis.server.state import open_state

    open_state(server_folder(folder)).users.remove(name)
    if json:
        show_json({"removed": name})
    else:
        say(f"{name} was removed")
