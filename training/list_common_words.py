"""List the stems of words that are common in research articles. A question's other words name its subject."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from examples import load_covid_qa, load_evidence_inference, load_pubmedqa, load_scifact

MIN_DOCUMENTS = 8


def list_common_words(data: Path) -> list[str]:
    """Return the number of the documents that train, and a line for each stem in MIN_DOCUMENTS of them.

    A line has the stem and the number of documents with it. Stems are in alphabetical order.
    """
    sets = (
        load_evidence_inference(data, "train", 7),
        load_scifact(data, "train"),
        load_covid_qa(data)[0],
        load_pubmedqa(data)[0],
    )
    frequencies = Counter[str]()
    total = sum(len(split.texts) for split in sets)
    for split in sets:
        for text in split.texts.values():
            frequencies.update({word for words in text.read.words for word in words})
    common = sorted(word for word, count in frequencies.items() if count >= MIN_DOCUMENTS)
    return [str(total), *(f"{word} {frequencies[word]}" for word in common)]
