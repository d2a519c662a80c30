"""Check documents, passages, vectors and scopes against the limits of the library's engines."""

from __future__ import annotations

import string
from collections.abc import Sequence

import numpy as np

from epicrisis.dates import last_day
from epicrisis.errors import InputError
from epicrisis.protocols import StoredDocument, Vectors
from epicrisis.types import Document, Passage, Scope

_MAX_ID = 1000


def find_fault(item: Document | Passage) -> str | None:
    """Return why the item cannot be stored, or None. The reason quotes none of the content."""
    name = item.document_id if isinstance(item, Passage) else item.id
    if not name or len(name) > _MAX_ID or "\0" in name:
        return f"its id is empty, longer than {_MAX_ID} characters or holds a NUL"
    if not item.text.strip():
        return "no text"
    try:
        if item.date is not None:
            last_day(item.date)
    except ValueError:
        return "its date is not of the form YYYY, YYYY-MM or YYYY-MM-DD"
    try:
        "".join((item.id, item.text, item.title, item.source, item.patient or "")).encode()
    except UnicodeEncodeError:
        return "its text has half a surrogate pair"
    return None


def find_vector_fault(vector: Vectors, dimensions: int) -> str | None:
    """Return why a precomputed vector cannot be stored, or None."""
    if vector.shape != (dimensions,):
        return f"its vector has {vector.size} numbers, not {dimensions}: create a separate library for these"
    if not (np.abs(vector) <= np.finfo(np.float16).max).all():
        return "its vector is not finite, or too large for float16"
    return None


def check_documents(documents: Sequence[StoredDocument], dimensions: int) -> None:
    """Raise ValueError, with the document's id, unless all documents fit this library."""
    if len({document.id for document in documents}) < len(documents):
        raise ValueError("a batch contains a document twice")
    for document in documents:
        if document.vectors.shape != (len(document.passages), dimensions) or not document.passages:
            raise ValueError(
                f"{document.id!r}: {len(document.passages)} passages of dimension {dimensions} (at least one) need "
                f"vectors of that shape, got {document.vectors.shape}"
            )
        if len(document.content_hash) != 32 or not set(document.content_hash) <= set(string.hexdigits):
            raise ValueError(f"{document.id!r}: its content hash is not 32 hexadecimal digits")
        if not (np.abs(document.vectors) <= np.finfo(np.float16).max).all():
            raise ValueError(f"{document.id!r}: its vectors are not finite, or too large for float16")
        for ordinal, passage in enumerate(document.passages):
            if (passage.id, passage.document_id) != (f"{document.id}#{ordinal}", document.id):
                raise ValueError(f"{document.id!r}: passage {ordinal} has the id {passage.id!r} of another document")
            if reason := find_fault(passage):
                raise ValueError(f"{passage.id!r} cannot be stored: {reason}")


def check_scope(scope: Scope) -> None:
    """Raise InputError if `as_of` or `since` is not a date."""
    for name, date in (("as of", scope.as_of), ("since", scope.since)):
        try:
            if date is not None:
                last_day(date)
        except ValueError as error:
            raise InputError(f"{name}: {error}; write it as 2015, 2015-06 or 2015-06-30") from error
