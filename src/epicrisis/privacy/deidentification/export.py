"""Documents with surrogates in place of identifiers, for an export."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import date, timedelta

from epicrisis.core.types import Document
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.privacy.deidentification.deidentifier import Deidentifier
from epicrisis.privacy.deidentification.opened_deidentifier import open_for_export

_CLINICAL_KEYS = ("note_type", "publication_types", "journal")
"""Metadata without identifiers. All other metadata of notes are left out."""
_WHOLE_DATE = 10
"""Characters of `2019-03-04`."""


def deidentify_documents(library: LibraryStore, documents: Iterable[Document], least: float) -> Iterator[Document]:
    """Yield the documents with surrogates, other ids and moved dates. Literature is unchanged.

    Raise SettingsError if the measured recall is lower than `least`, and ModelMissing without the extra `deidentify`.
    """
    deidentification = open_for_export(library, least)
    numbers: dict[str, int] = {}
    for document in documents:
        if document.patient is None:
            yield document
            continue
        deidentifier = deidentification.for_patient(document.patient)()
        title, text = deidentifier.replace([document.title, document.text]).texts
        patient = deidentifier.pseudonym
        number = numbers[patient] = numbers.get(patient, 0) + 1
        metadata = {key: value for key, value in document.metadata.items() if key in _CLINICAL_KEYS}
        yield replace(
            document,
            id=f"note:{patient}:{number}",
            text=text,
            title=title,
            date=_move_date(document.date, deidentifier),
            patient=patient,
            metadata=metadata,
            revision=None,
        )


def _move_date(day: str | None, deidentifier: Deidentifier) -> str | None:
    """Return the date of a note, moved like those in its text: the day without its time, else the year alone."""
    if day is None:
        return None
    if len(day) < _WHOLE_DATE:
        return day[:4]
    moved = date.fromisoformat(day[:_WHOLE_DATE]) + timedelta(days=deidentifier.days)
    return moved.isoformat()
