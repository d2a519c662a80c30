"""List the stems of words that are common in research articles. A question's other words name its subject."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from examples import Set

from epicrisis.library.word_index import analyze_words

MIN_DOCUMENTS = 8


def list_common_words(data: Path, *sets: Set) -> list[str]:
    """Return the stems that are in MIN_DOCUMENTS documents of these sets and of PubMedQA, in alphabetical order."""
    frequencies = Counter[str]()
    for split in sets:
        for text in split.texts.values():
            frequencies.update({word for words in text.read.words for word in words})
    entries = json.loads((data / "pubmedqa" / "ori_pqal.json").read_text("utf-8")).values()
    for entry in entries:
        frequencies.update(set(analyze_words(" ".join((entry["QUESTION"], *entry["CONTEXTS"], entry["LONG_ANSWER"])))))
    return sorted(word for word, count in frequencies.items() if count >= MIN_DOCUMENTS and word.isalpha())
