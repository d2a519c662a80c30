"""`epicrisis users` and `audit`: who may read the records of patients, and who has read them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from epicrisis.cli.command import command, fail
from epicrisis.cli.options import Json, parse_library
from epicrisis.cli.terminal import say, show_json, show_report
from epicrisis.core.errors import InputError
from epicrisis.core.printable import count_noun

if TYPE_CHECKING:
    from epicrisis.privacy.access_log import AccessLog

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
    from epicrisis.server.state.state import state_folder
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
    from epicrisis.server.base.users import ROLES
    from epicrisis.server.state.state import open_state

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
    from epicrisis.server.state.state import open_state

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
    from epicrisis.server.state.state import open_state

    open_state(server_folder(folder)).users.remove(name)
    show_report({"removed": name}, [f"{name} was removed"], json=json)


_Library = Annotated[
    Path | None,
    Argument(
        metavar="[LIBRARY]",
        parser=parse_library,
        help="The library whose access log it is: folder or URL. Without it: the log of the server.",
    ),
]


@command(
    examples=[
        "epicrisis audit verify ~/ward",
        "epicrisis audit verify --folder /srv/epicrisis --head 3f79...",
    ]
)
def verify(
    library: _Library = None,
    folder: ServerFolder = None,
    head: Annotated[
        str | None, Option("--head", help="Hash of an entry that was noted before: detects that the end was cut off.")
    ] = None,
    json: Json = False,
) -> None:
    """Verify that no entry of the access log was changed, removed or moved. Note the printed hash elsewhere."""
    log = _open_log(library, folder)
    result = log.verify(head)
    if json:
        show_json(result)
    if result.fault is not None:
        fail(f"{log.name}: {result.fault}")
    if json:
        return
    if result.incomplete:
        say("the last line is incomplete: its process was killed, and nobody relied on it; the next entry removes it")
    if result.removed:
        say(f"entries that name nobody, because their patients were forgotten: {result.removed}")
    entries = "1 entry" if result.entries == 1 else f"{result.entries:,} entries"
    say(f"{entries}, complete; the last has the hash {result.head}")


@command(examples=["epicrisis audit show ~/ward --patient 10083814", "epicrisis audit show ~/ward --json"])
def show(
    library: _Library = None,
    patient: Annotated[
        str | None, Option("--patient", help="Show entries about this patient only, also about a forgotten one (id).")
    ] = None,
    folder: ServerFolder = None,
    json: Json = False,
) -> None:
    """Show who read which patient's record, when, why, and which documents, the oldest entry first."""
    log = _open_log(library, folder)
    subject = None if patient is None else log.pseudonym(patient)
    entries = []
    for entry in log.entries():
        if patient is None or entry.get("patient") == patient or entry.get("subject") == subject:
            entries.append(entry)
    fault = log.verify().fault
    if json:
        show_json({"entries": entries, "fault": fault})
    else:
        for entry in entries:
            say(_describe(entry))
        say(f"{len(entries):,} shown")
    if fault is not None:
        fail(f"{log.name}: {fault}; do not rely on these entries")


def _open_log(library: Path | None, folder: Path | None) -> AccessLog:
    from epicrisis.privacy.record_access import find_log
    from epicrisis.server.state.state import open_state
    from epicrisis.settings.configuration import load_settings

    if library is None:
        return open_state(server_folder(folder)).log
    if folder is not None:
        raise InputError("a library and --folder are different logs: give one of them")
    return find_log(library.expanduser().absolute(), load_settings().home)


def _describe(entry: Mapping[str, Any]) -> str:
    """Return an entry on one line."""
    if not entry:
        return "(a line that is no entry)"
    about = entry["patient"] or (f"forgotten patient {entry['subject']}" if entry.get("subject") else "no patient")
    user = f"{entry['user']} ({entry['user_id']})" if entry.get("user_id") else entry["user"]
    outcome = " REFUSED" if entry.get("outcome") == "refused" else ""
    documents = f", {count_noun(len(entry['documents']), 'document')}: {', '.join(entry['documents'])}"
    reason = f"; reason: {entry['reason']}" if entry["reason"] else ""
    return (
        f"{entry['at']}  {user}  {entry['action']}{outcome}  {about}{documents if entry['documents'] else ''}{reason}"
    )
