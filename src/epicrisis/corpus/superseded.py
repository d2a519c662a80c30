"""Tell which documents of a patient later ones replace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

DocumentKey = tuple[str, str]
"""Patient and id of a document."""


def find_replaced(successors: Mapping[DocumentKey, Iterable[DocumentKey]]) -> set[DocumentKey]:
    """Return the replaced documents. The map has the replacements of each document.

    A document is not replaced by one that it replaces itself, directly or through others.
    """
    replaced: set[DocumentKey] = set()
    for document, later in successors.items():
        if any(document not in _later_documents(successor, successors) for successor in later):
            replaced.add(document)
    return replaced


def _later_documents(
    document: DocumentKey, successors: Mapping[DocumentKey, Iterable[DocumentKey]]
) -> set[DocumentKey]:
    """Return the document and all that replace it, directly or through others."""
    reached = {document}
    queue = [document]
    while queue:
        for successor in successors.get(queue.pop(), ()):
            if successor not in reached:
                reached.add(successor)
                queue.append(successor)
    return reached
