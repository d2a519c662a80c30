"""What filters look at in the metadata of a document, as names that compare fast. Knows no document and no filter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RETRACTED = "retracted"


def facets(metadata: Mapping[str, Any]) -> frozenset[str]:
    """`type:review` for each of `publication_types`, `journal:the lancet`, and `retracted` where that is true.

    In small letters; what is not of the form that `Document.metadata` says is passed over.
    """
    types, journal = metadata.get("publication_types"), metadata.get("journal")
    found = {f"type:{name.casefold()}" for name in types if isinstance(name, str)} if isinstance(types, list) else set()
    if isinstance(journal, str):
        found.add(f"journal:{journal.casefold()}")
    if metadata.get("retracted") is True:
        found.add(RETRACTED)
    return frozenset(found)
