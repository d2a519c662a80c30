"""Who sends a request, what each role may do, and the file of users with the hashes of their keys."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias

from fastapi import Depends, Request
from filelock import FileLock
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from epicrisis.core.errors import InputError, StorageError
from epicrisis.privacy.user_rights import ROLES as ROLES
from epicrisis.privacy.user_rights import USERS_FILE as USERS_FILE
from epicrisis.privacy.user_rights import Role as Role
from epicrisis.server.base.http_errors import AccessDenied, KeyRequired, UsersUnreadable
from epicrisis.server.base.private_folder import make_private_folder
from epicrisis.system.local_only import replace_file

KEY_PREFIX = "epicrisis-"
_KEY_BYTES = 32
_KEY_ISSUER = "epicrisis"
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The user behind a request."""

    name: str
    role: Role
    patients: frozenset[str] | None = None
    """The patients assigned to the user. None: all."""
    requests_per_minute: int = 6_000
    running: int = 1_000
    """Questions at the same time."""
    id: str = ""
    """What stored answers and jobs of the caller carry, from `make_owner_id`. Empty: the name."""

    account: str = ""
    """Issuer and subject of a user of an identity provider, as `ISSUER#SUBJECT`."""
    key_sha256: str = ""
    """Of a session that began with a key: its hash. The rights are those that the key has now."""

    @property
    def owner(self) -> str:
        """The id under which work of the caller is stored and counted. No later user of the same name has it."""
        return self.id or self.name

    @property
    def log_name(self) -> str:
        """The user in the access log: the name, behind the account if there is one."""
        return f"{self.account} {self.name}" if self.account else self.name

    def has(self, role: Role) -> bool:
        """Return whether the caller has this role or a higher one."""
        return ROLES.index(self.role) >= ROLES.index(role)

    def require(self, role: Role) -> None:
        """Raise AccessDenied unless the caller has this role or a higher one."""
        if not self.has(role):
            raise AccessDenied(f"this needs the role {role}, and the role of {self.name} is {self.role}")

    def list_readable(self, patient: str | None) -> frozenset[str] | None:
        """Return the patients that the caller may learn of while reading this one's record. None: all."""
        return None if self.patients is None else self.patients | ({patient} if patient is not None else set())

    def is_assigned(self, patient: str) -> bool:
        """Return whether the patient is assigned to the caller."""
        return self.patients is None or patient in self.patients


LOCAL = Caller(name="local", role="literature-reader")
"""Everybody on this machine, if the server has no users. It reads literature only."""


class User(BaseModel):
    """A user in the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: Role
    key_sha256: str = Field(pattern="^[0-9a-f]{64}$")
    """Keys are random with 256 bits, so a fast hash without salt cannot be reversed."""
    patients: tuple[str, ...] | None = None
    requests_per_minute: int = Field(120, ge=1)
    running: int = Field(8, ge=1)
    id: str | None = Field(None, pattern="^[0-9a-f]{32}$")
    """Random, and kept with a new key. None: a user of an older version, whose stored work carries the name."""

    def as_caller(self, name: str) -> Caller:
        """Return the caller with the limits of this user."""
        patients = None if self.patients is None else frozenset(self.patients)
        owner = "" if self.id is None else make_owner_id(_KEY_ISSUER, self.id)
        return Caller(
            name=name,
            role=self.role,
            patients=patients,
            requests_per_minute=self.requests_per_minute,
            running=self.running,
            id=owner,
        )


_USERS = TypeAdapter(dict[Annotated[str, Field(pattern=_NAME)], User])
UserChange: TypeAlias = Callable[[Mapping[str, User]], Mapping[str, User]]


class UserStore:
    """The users of a server. A change of the file is in force with the next request."""

    is_shared = False
    """Whether other processes, on other machines, have the same users."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._state: tuple[int, int] | None = None
        self._users: Mapping[str, User] = {}
        self.users()

    def users(self) -> Mapping[str, User]:
        """Return the users by name. Raises UsersUnreadable for a damaged file."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            self._state, self._users = None, {}
            return self._users
        state = status.st_mtime_ns, status.st_ino
        if state != self._state:
            try:
                self._users = _USERS.validate_json(self.path.read_bytes())
            except (ValidationError, OSError):
                raise UsersUnreadable(
                    f"{self.path.name} in the server's folder is no file of users: repair it, or remove it and add the "
                    "users again"
                ) from None
            self._state = state
        return self._users

    def has_users(self) -> bool:
        """Return whether there is a user."""
        return bool(self.users())

    async def identify(self, key: str) -> Caller | None:
        """Return what `find` returns, without holding up other requests."""
        return await self._look_up(hash_key(key))

    def find(self, key: str) -> Caller | None:
        """Return the caller with this key, or None."""
        return self.find_hash(hash_key(key))

    async def renew(self, caller: Caller) -> Caller | None:
        """Return the user of a session with the rights of now, or None if the key of the session is replaced."""
        return await self._look_up(caller.key_sha256)

    async def _look_up(self, digest: str) -> Caller | None:
        return self.find_hash(digest)

    def find_hash(self, digest: str) -> Caller | None:
        """Return the caller with the key of this hash, or None. Compares with every user, in constant time each."""
        caller = None
        for name, user in self.users().items():
            if hmac.compare_digest(user.key_sha256, digest):
                caller = user.as_caller(name)
        return caller

    def find_owner(self, owner: str) -> Caller | None:
        """Return the user with this owner id, with the rights of now, or None if there is none any more."""
        for name, user in self.users().items():
            caller = user.as_caller(name)
            if caller.owner == owner:
                return caller
        return None

    def add(self, name: str, role: Role, patients: tuple[str, ...] | None = None) -> str:
        """Add a user, or give an existing one this role, these patients and a new key. Return the key.

        The key is stored nowhere else. The id and the limits of an existing user stay. Raises InputError for a wrong
        name, and StorageError.
        """
        key = KEY_PREFIX + secrets.token_urlsafe(_KEY_BYTES)
        user = User(role=role, key_sha256=hash_key(key), patients=patients)

        def change(users: Mapping[str, User]) -> Mapping[str, User]:
            changes: dict[str, object] = {"id": secrets.token_hex(16)}
            if (existing := users.get(name)) is not None:
                changes = existing.model_dump(include={"id", "requests_per_minute", "running"})
            return {**users, name: user.model_copy(update=changes)}

        self._change(change)
        return key

    def remove(self, name: str) -> None:
        """Remove a user. Raises InputError if there is none of this name."""
        if name not in self.users():
            raise InputError(f"no user is called {name!a}: `epicrisis users list` lists them")
        self._change(lambda users: {other: user for other, user in users.items() if other != name})

    def forget_patients(self, patients: Collection[str]) -> None:
        """Take these patients from the lists of assigned patients. Raises StorageError."""

        def change(users: Mapping[str, User]) -> Mapping[str, User]:
            changed: dict[str, User] = {}
            for name, user in users.items():
                if user.patients is not None:
                    remaining = tuple(patient for patient in user.patients if patient not in patients)
                    user = user.model_copy(update={"patients": remaining})
                changed[name] = user
            return changed

        if any(set(patients).intersection(user.patients or ()) for user in self.users().values()):
            self._change(change)

    def _change(self, change: UserChange) -> None:
        try:
            make_private_folder(self.path.parent)
            with FileLock(f"{self.path}.lock", mode=0o600):
                content = _USERS.dump_json(check_users(change(self.users())), indent=2)
                replace_file(self.path, self.path.with_suffix(".new"), [content, b"\n"])
        except OSError as error:
            raise StorageError(f"{self.path} cannot be written: {error.strerror}") from None


def check_users(users: Mapping[str, User]) -> dict[str, User]:
    """Return the users. Raises InputError for a wrong name."""
    try:
        return _USERS.validate_python(dict(users))
    except ValidationError:
        raise InputError("a user's name has letters, digits and . _ @ -, and up to 64 of them") from None


def make_owner_id(issuer: str, subject: str) -> str:
    """Return the id of the owner of stored work: the same for the same issuer and subject, and for no others.

    `subject` is an id that the issuer never gives to another person. The colon keeps it apart from names.
    """
    return "owner:" + hashlib.sha256(json.dumps([issuer, subject]).encode()).hexdigest()[:32]


def hash_key(key: str) -> str:
    """Return the hash under which a key is stored."""
    return hashlib.sha256(key.encode(errors="replace")).hexdigest()


def find_caller(request: Request) -> Caller:
    """Return the caller that the guard found. Raises KeyRequired without one."""
    caller = request.scope.get("epicrisis.caller")
    if not isinstance(caller, Caller):
        raise KeyRequired("the request has no key, or an unknown one")
    return caller


CurrentCaller = Annotated[Caller, Depends(find_caller)]
"""The caller, as a parameter of a route."""
