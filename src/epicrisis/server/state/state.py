"""Where a server keeps its users, sign-ins, access log, answers, jobs and reviews: its folder, or PostgreSQL.

    state = open_state(state_folder("postgresql://server@db.example.org/hospital"))
    state.users.find(key)

A database has a folder on this machine as well, as a library with a URL does. Everything takes this folder; in a
database's case it holds uploads, and what is private to this machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from epicrisis.core.errors import InputError
from epicrisis.privacy.access_log import NAME as ACCESS_LOG
from epicrisis.privacy.access_log import AccessLog
from epicrisis.server.base.item_folder import ItemFolder
from epicrisis.server.base.users import USERS_FILE, UserStore
from epicrisis.system.remote_libraries import find_address, library_folder, parse_parameters

if TYPE_CHECKING:
    from epicrisis.server.state.shared_state.items import ItemTable
    from epicrisis.server.state.shared_state.shared_database import StateDatabase
    from epicrisis.server.state.stored_answers import AnswerStore

DEFAULT_SCHEMA = "epicrisis_server"
REVIEWS_FOLDER = "reviews"
"""Name of the folder of the reviews, in the folder of the server."""
REVIEW_PLAN = "review.json"
"""The part of a review that is written last: without it there is no review."""


@dataclass(frozen=True, slots=True)
class ServerState:
    """The stores of a server. With a database, several processes share them."""

    folder: Path
    users: UserStore
    log: AccessLog
    database: StateDatabase | None = None

    def open_answers(self, keep_days: float) -> AnswerStore:
        """Return the stored answers."""
        # The commands for users and the log do not need answers, whose import takes long.
        from epicrisis.server.state.stored_answers import ANSWERS_FOLDER, AnswerStore

        return AnswerStore(self.folder / ANSWERS_FOLDER, keep_days, database=self.database)

    def open_review_items(self) -> ItemFolder | ItemTable:
        """Return where the blind reviews are kept."""
        if self.database is None:
            return ItemFolder(self.folder / REVIEWS_FOLDER)
        from epicrisis.server.state.shared_state.items import ItemTable

        return ItemTable(self.database, "review")


def state_folder(place: Path | str) -> Path:
    """Return the folder of a server's state, which is named by this folder or by a URL of PostgreSQL.

    Raises InputError for a URL that cannot be read, or of another kind.
    """
    folder = library_folder(place)
    address = find_address(folder)
    if address is None:
        return folder
    if address.scheme == "s3":
        raise InputError("a server keeps its users and jobs in a folder or in PostgreSQL: name one of them")
    query = urlsplit(address.url).query
    if "schema" in dict(parse_parameters(query)):
        return folder
    return library_folder(f"{address.url}{'&' if query else '?'}schema={DEFAULT_SCHEMA}")


def open_state(folder: Path) -> ServerState:
    """Return the stores of the server of this folder. Raises UsersUnreadable, SettingsError and LibraryError."""
    if find_address(folder) is None:
        return ServerState(folder, UserStore(folder / USERS_FILE), AccessLog(folder / ACCESS_LOG))
    from epicrisis.server.state.shared_state.shared_access_log import AccessTable
    from epicrisis.server.state.shared_state.shared_database import open_state_database
    from epicrisis.server.state.shared_state.shared_users import UserTable

    database = open_state_database(folder)
    return ServerState(folder, UserTable(database), AccessTable(database), database)
