"""The libraries and records that a caller may read, and the access log of readings and refusals.

Every interface checks through `AccessControl`, so that none can leave out the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field, StringConstraints

from epicrisis.core.errors import InputError
from epicrisis.core.types import Scope
from epicrisis.library.core.patient_check import resolve_patient
from epicrisis.privacy.access_log import AccessLog, AccessOutcome
from epicrisis.privacy.record_access import find_log
from epicrisis.server.base.http_errors import AccessDenied, NotFound
from epicrisis.server.base.users import Caller
from epicrisis.server.libraries.resources import OpenLibrary

AccessReason = Annotated[
    Annotated[str, StringConstraints(strip_whitespace=True, min_length=10, max_length=500)] | None,
    Field(
        description="Why you read the record of a patient who is not assigned to you (break glass). It is logged.",
    ),
]


class AccessControl:
    """Checks the rights of callers, and writes readings and refusals to the access logs of server and library."""

    def __init__(self, log: AccessLog | None = None) -> None:
        self._log = log

    async def check(
        self,
        caller: Caller,
        action: str,
        library: OpenLibrary,
        patient: str | None,
        reason: str | None = None,
        *,
        library_only: bool = False,
    ) -> None:
        """Raise AccessDenied as `check_access` does, once the refusal is in the access log; and NotFound.

        `library_only`: the role is checked, and not yet whether this patient is assigned. Raises StorageError if the
        refusal cannot be logged.
        """
        try:
            check_access(caller, library, None if library_only else patient, reason)
        except AccessDenied:
            patient_id = await asyncio.to_thread(find_known_patient, library, patient)
            await self.record(caller, action, library, patient_id, (), reason, outcome="refused")
            raise

    async def find_patient(
        self, caller: Caller, action: str, library: OpenLibrary, patient: str | None, reason: str | None = None
    ) -> str | None:
        """Return the id of a patient given by id or record number, whose record the caller may read.

        A caller without a reason learns of assigned patients only: not whether another is there, nor whether a number
        is of several. Raises as `check`, and InputError for an assigned number of several patients.
        """
        readable = caller.patients if reason is None else None
        pipeline = replace(library.pipeline, readable=readable)
        try:
            resolved = (await pipeline.resolve_scope(Scope(patient=patient))).patient
        except InputError:
            await self.record(caller, action, library, None, (), reason, outcome="refused")
            raise
        await self.check(caller, action, library, resolved, reason)
        return resolved

    async def record(
        self,
        caller: Caller,
        action: str,
        library: OpenLibrary,
        patient: str | None,
        documents: Sequence[str],
        reason: str | None,
        *,
        outcome: AccessOutcome = "allowed",
    ) -> None:
        """Write to the access log what was read, or refused, of a library of notes, if it is one."""
        if library.holds_patients and self._log is not None:
            for log in (self._log, _find_library_log(library)):
                if log is not None:
                    await log.record(
                        caller.log_name,
                        action,
                        library.name,
                        patient,
                        documents,
                        reason,
                        user_id=caller.owner,
                        outcome=outcome,
                    )


def _find_library_log(library: OpenLibrary) -> AccessLog | None:
    """Return the log that the library shares with the command line, None for a store of another package."""
    search = library.pipeline.search
    if search is None or search.has_own_store:
        return None
    return find_log(search.library.path, library.pipeline.settings.home)


def check_access(caller: Caller, library: OpenLibrary, patient: str | None, reason: str | None = None) -> None:
    """Raise AccessDenied unless the caller may read this library, and the record of this patient in it.

    A library of notes needs a patient reader, for every request: even its counts tell of patients. A patient who is
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


def find_known_patient(library: OpenLibrary, name: str | None) -> str | None:
    """Return the id of the patient whom a request names, or None if the library has no such patient.

    What a request names may be any text, which does not belong into the access log.
    """
    search = library.pipeline.search
    rosters = library.pipeline.rosters if search is None else search.rosters
    if name is None or not rosters:
        return None
    try:
        patient = resolve_patient(rosters, name)
    except InputError:
        return None
    return patient if patient in rosters[0].patients() else None
