"""Whose records a user of the operating system may read, by the users of a library or of the server of this machine.

    rights = find_rights(Path("~/ward"), settings.home, "maria")
    rights.check("10083814")

The users are those of the file `users.json` in the library's folder, or without one in the default folder of
the server. `epicrisis users` writes both. Without users, everybody who may read the files may read all records.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from epicrisis.core.errors import InputError
from epicrisis.core.printable import quote_for_shell

Role: TypeAlias = Literal["literature-reader", "patient-reader", "administrator"]
"""What a user may do. A patient reader also reads literature, an administrator also reads patients' records."""
ROLES: tuple[Role, ...] = ("literature-reader", "patient-reader", "administrator")
USERS_FILE = "users.json"
_SERVER = "server"
"""The default folder of the server, among the data of this user."""


class _Rights(BaseModel):
    """What the command line reads of a user in the file."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    role: Role
    patients: tuple[str, ...] | None = None


_USERS = TypeAdapter(dict[str, _Rights])


@dataclass(frozen=True, slots=True)
class UserRights:
    """The role and the assigned patients of a user."""

    user: str
    folder: Path
    """The folder with the file of users."""
    role: Role | None
    """None: the file does not have the user."""
    patients: frozenset[str] | None = None
    """None: all."""

    def check(self, patient: str | None, reason: str | None = None) -> None:
        """Raise InputError unless the user may read this patient's record, or all records if it is None.

        A reason replaces the assignment, and not the role.
        """
        if self.role is None:
            raise InputError(f"{self.user} is no user of this library: an administrator runs {self._command()}")
        if self.role == "literature-reader":
            raise InputError(f"the role of {self.user} is literature-reader: an administrator runs {self._command()}")
        if reason is not None or self.patients is None or patient in self.patients:
            return
        what = "this command reads every patient, and some are not" if patient is None else "this patient is not"
        raise InputError(
            f"{what} assigned to {self.user}: in an emergency repeat the command with --break-glass REASON, which is "
            "logged"
        )

    def require_administrator(self) -> None:
        """Raise InputError unless the user is an administrator."""
        if self.role != "administrator":
            role = self.role or "no user of this library"
            raise InputError(
                f"only an administrator may do this, and {self.user} is {role}: ask one to run the command "
                f"(`epicrisis users list --folder {quote_for_shell(str(self.folder))}` lists them)"
            )

    def _command(self) -> str:
        folder = quote_for_shell(str(self.folder))
        return f"`epicrisis users add {self.user} --role patient-reader --folder {folder}`"


def find_rights(library: Path, home: Path, user: str) -> UserRights | None:
    """Return the rights of a user, or None if neither the library nor the server of this machine has users.

    Raises InputError if the file of users cannot be read.
    """
    for folder in (library, home / _SERVER):
        path = folder / USERS_FILE
        try:
            users = _USERS.validate_json(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (ValidationError, OSError):
            raise InputError(
                f"{path} cannot be read, so nothing was: its owner repairs it, or removes it and adds the users again"
            ) from None
        if users:
            entry = users.get(user)
            if entry is None:
                return UserRights(user, folder, None)
            patients = None if entry.patients is None else frozenset(entry.patients)
            return UserRights(user, folder, entry.role, patients)
    return None
