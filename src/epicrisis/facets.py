"""What filters and readers look at in the metadata of a document: names that compare fast, and the marks of an article
that was retracted, doubted or corrected. Knows no document and no filter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

ArticleMark: TypeAlias = Literal["retracted", "retraction-notice", "expression-of-concern", "corrected"]
"""What a reader must know of an article before relying on it. The first two are no evidence."""

RETRACTED = "retracted"
RETRACTION_NOTICE = "retraction-notice"
MARKED_BY_OTHERS = "marked"
"""The facet of a document that others than its own record have marked."""

_NOTICE_TYPES = frozenset({"retraction of publication", "retraction notice", "retraction"})
RETRACTION_FACETS = frozenset({RETRACTED, RETRACTION_NOTICE, *(f"type:{name}" for name in _NOTICE_TYPES)})
"""Facets of which a document that is no evidence has at least one."""

_CORRECTIONS: Mapping[str, ArticleMark] = {
    "ExpressionOfConcernIn": "expression-of-concern",
    "ErratumIn": "corrected",
    "CorrectedandRepublishedIn": "corrected",
}
"""What PubMed's record of an article says of it, by `RefType`; of retractions the reader says `retracted`."""


def list_facets(metadata: Mapping[str, Any]) -> frozenset[str]:
    """Return `type:review` for each of `publication_types`, `journal:the lancet`, and what marks a retraction.

    `retracted` and `retraction-notice` stand there where the document is one, `marked` where a notice or a list has
    marked it. All is in small letters; what is not of the form that `Document.metadata` says is passed over.
    """
    types, journal = metadata.get("publication_types"), metadata.get("journal")
    found = {f"type:{name.casefold()}" for name in types if isinstance(name, str)} if isinstance(types, list) else set()
    if isinstance(journal, str):
        found.add(f"journal:{journal.casefold()}")
    stated = set(_stated(metadata))
    if metadata.get("retracted") is True or RETRACTED in stated:
        found.add(RETRACTED)
    if metadata.get("retraction_notice") is True:
        found.add(RETRACTION_NOTICE)
    if stated:
        found.add(MARKED_BY_OTHERS)
    return frozenset(found)


def is_retracted(metadata: Mapping[str, Any]) -> bool:
    """Return whether the document is retracted, or is itself the notice of a retraction."""
    return bool(RETRACTION_FACETS & list_facets(metadata))


def list_article_marks(metadata: Mapping[str, Any]) -> tuple[ArticleMark, ...]:
    """Return the marks of a document, the gravest first: those of its own record and those that were added to it."""
    has = list_facets(metadata)
    marks: set[str] = {*_stated(metadata)}
    if RETRACTED in has:
        marks.add(RETRACTED)
    elif RETRACTION_FACETS & has:
        marks.add(RETRACTION_NOTICE)
    corrections = metadata.get("corrections")
    for entry in corrections if isinstance(corrections, list) else ():
        if isinstance(entry, Mapping) and isinstance(entry.get("type"), str):
            marks.add(_CORRECTIONS.get(entry["type"], ""))
    order: tuple[ArticleMark, ...] = ("retracted", "retraction-notice", "expression-of-concern", "corrected")
    return tuple(mark for mark in order if mark in marks)


def _stated(metadata: Mapping[str, Any]) -> Iterator[str]:
    """Yield the marks that a notice or a list has added (`library.marks` writes them)."""
    stated = metadata.get("marks")
    for entry in stated if isinstance(stated, list) else ():
        if isinstance(entry, Mapping) and isinstance(entry.get("mark"), str):
            yield entry["mark"]
