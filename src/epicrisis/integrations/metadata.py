"""Describe passages for other frameworks."""

from __future__ import annotations

from typing import Any

from epicrisis.core.references import build_reference
from epicrisis.core.types import Hit


def describe_hit(hit: Hit) -> dict[str, Any]:
    """Return where a passage is from: ids, offsets, reference, links and warnings. All values are plain JSON data."""
    passage = hit.passage
    reference = build_reference(passage)
    metadata: dict[str, Any] = {
        "document_id": passage.document_id,
        "title": passage.title,
        "source": passage.source,
        "date": passage.date,
        "start": passage.start,
        "end": passage.end,
        "reference": reference.describe(passage.title, passage.source, passage.date),
        "links": [link.url for link in reference.links],
        "marks": list(passage.marks),
        "rank": hit.rank,
        "score": float(hit.score),
    }
    if passage.patient is not None:
        metadata["patient"] = passage.patient
    return metadata
