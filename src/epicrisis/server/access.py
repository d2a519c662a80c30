"""Which library and which patient's record a caller may read."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from epicrisis.server.errors import AccessDenied, NotFound
from epicrisis.server.resources import OpenLibrary
from epicrisis.server.users import Caller

AccessReason = Annotated[
    Annotated[str, StringConstraints(strip_whitespace=True, min_length=10, max_length=500)] | None,
    Field(
        description="Why you read the record of a patient who is not assigned to you (break glass). It is logged.",
    ),
]


def check_access(caller: Caller, library: OpenLibrary, patient: str | None, reason: str | None = None) -> None:
    """Raise AccessDenied unless the caller may read this library, and the record of this patient in it.

    A library of notes needs a patient reader, whatever is asked: even its counts tell of patients. A patient who is
    not assigned to the caller needs a reason. Raises NotFound for a patient of a library of literature.
    """
    if not library.holds_patients:
        if patient is not None:
            raise NotFound(f"the library {library.name} holds no patients: leave out the patient")
        return
    caller.require("patient-reader")
    if patient is not None and reason is None and not caller.is_assigned(patient):
        raise AccessDenied(
            "this patient is not assigned to you: in an emergency send the reason as break_glass; it is logged"
        )
