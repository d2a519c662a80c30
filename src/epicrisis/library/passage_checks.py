"""What a store takes and what it refuses. Knows the limits of the engines below, does not touch them."""

from __future__ import annotations

import string
from collections.abc import Sequence

import numpy as np

from epicrisis.dates import last_day
from epicrisis.errors import InputError
from epicrisis.protocols import StoredDocument, Vectors
from epicrisis.types import Document, Passage, Scope

_LONGEST_ID = 1000


def find_fault(item: Document | Passage) -> str | None:
    """Why this can not be kept, or `None`. Holds nothing of the content."""
    name = item.document_id if isinstance(item, Passage) else item.id
    if not name or len(name) > _LONGEST_ID or "\0" in name:
        return f"its id is empty, longer than {_LONGEST_ID} characters or holds a NUL"
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
        return "it holds half a surrogate pair, which is no text"
    return None


def find_vector_fault(vector: Vectors, dimensions: int) -> str | None:
    """Why a vector that came along can not be kept, or `None`."""
    if vector.shape != (dimensions,):
        return f"its vector has {vector.size} numbers, not {dimensions}: make a library of its own for these"
    if not (np.abs(vector) <= np.finfo(np.float16).max).all():
        return "its vector is not finite, or too large for float16"
    return None


def check_documents(documents: Sequence[StoredDocument], dimensions: int) -> None:
    """Raises ValueError for what is not a StoredDocument of this library, naming the document."""
    if len({document.id for document in documents}) < len(documents):
        raise ValueError("a document is twice in one batch")
    for document in documents:
        if document.vectors.shape != (len(document.passages), dimensions) or not document.passages:
            raise ValueError(
                f"{document.id!r}: {len(document.passages)} passages of dimension {dimensions} (and at least one) need "
                f"vectors of that shape, got {document.vectors.shape}"
            )
        if len(document.content_hash) != 32 or not set(document.content_hash) <= set(string.hexdigits):
            raise ValueError(f"{document.id!r}: its content hash is not 32 hexadecimal digits")
        if not (np.abs(document.vectors) <= np.finfo(np.float16).max).all():
            raise ValueError(f"{document.id!r}: its vectors are not finite, or too large for float16")
        for ordinal, passage in enumerate(document.passages):
            if (passage.id, passage.document_id) != (f"{document.id}#{ordinal}", document.id):
                raise ValueError(f"{document.id!r}: passage {ordinal} is called {passage.id!r} of another document")
            if reason := find_fault(passage):
                raise ValueError(f"{passage.id!r} cannot be kept: {reason}")


def check_scope(scope: Scope) -> None:
    """Raises InputError for an `as_of` or a `since` that is no date."""
    for name, date in (("as of", scope.as_of), ("since", scope.since)):
        try:
            if date is not None:
                last_day(date)
        except ValueError as error:
            raise InputError(f"{name}: {error}; write it as 2015, 2015-06 or 2015-06-30") from error
