"""The length of patient records in tokens of the answering model, and the study's bins of length (section 4.2).

The study does not say whether its K is 1,000 or 1,024; here it is 1,000. The length of a record is that of its notes'
texts (Include All), without the rest of a prompt.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping

from epicrisis.corpus.reader_base import ReaderItem
from epicrisis.types import Document

K = 1000
BINS = ("0-8K", "8-16K", "16-32K", "32-128K", "over 128K")
_BEGINS = (0, 8 * K, 16 * K, 32 * K, 128 * K + 1)


def group_notes_by_patient(notes: Iterable[ReaderItem]) -> dict[str, list[str]]:
    """Return the texts of each patient's notes, in order."""
    texts: dict[str, list[str]] = {}
    for item in notes:
        if isinstance(item, Document) and item.patient is not None:
            texts.setdefault(item.patient, []).append(item.text)
    return texts


def count_record_tokens(notes: Mapping[str, Iterable[str]], count: Callable[[str], int]) -> dict[str, int]:
    """Return the tokens of all notes of each patient. `count` returns those of one text."""
    return {patient: sum(map(count, texts)) for patient, texts in notes.items()}


def find_length_bin(tokens: int) -> str:
    """Return the name of the bin. 8,000 tokens are in `8-16K` ("8K and longer"), 128,000 are still in `32-128K`."""
    return BINS[bisect_right(_BEGINS, tokens) - 1]
