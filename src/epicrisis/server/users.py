"""Who sends a request, and what each role may do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from fastapi import Depends, Request

from epicrisis.server.errors import AccessDenied, KeyRequired

Role: TypeAlias = Literal["literature-reader", "patient-reader", "administrator"]
"""What a user may do. A patient reader also reads literature, an administrator also reads patients' records."""
ROLES: tuple[Role, ...] = ("literature-reader", "patient-reader", "administrator")


@dataclass(frozen=True, slots=True)
class Caller:
    """The user behind a request."""

    name: str
    role: Role

    def require(self, role: Role) -> None:
        """Raise AccessDenied unless the caller has this role or a higher one."""
        if ROLES.index(self.role) < ROLES.index(role):
            raise AccessDenied(f"this needs the role {role}, and {self.name} has {self.role}")


LOCAL = Caller("local", "literature-reader")
"""Everybody on this machine, if the server has no users. It reads literature only."""


def find_caller(request: Request) -> Caller:
    """Return the caller that the guard found. Raises KeyRequired without one."""
    caller = request.scope.get("epicrisis.caller")
    if not isinstance(caller, Caller):
        raise KeyRequired("the request has no key")
    return caller


CurrentCaller = Annotated[Caller, Depends(find_caller)]
"""The caller, as a parameter of a route."""
