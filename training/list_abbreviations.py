"""List the abbreviations that many abstracts explain: `EPICRISIS_DATA=... python training/list_abbreviations.py`.

It reads the open abstracts (without those of PubMedQA, which measure), the passages of BioASQ and the trial reports
that train the reader, and writes `retrieval/names/abbreviations.txt`: an abbreviation with a long form in each line,
the more usual one first.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from examples import load_evidence_inference

from epicrisis.reading.spellings import spell_american
from epicrisis.reading.support import find_abbreviations

OUTPUT = Path(__file__).parents[1] / "src" / "epicrisis" / "retrieval" / "names" / "abbreviations.txt"
MIN_DOCUMENTS = 2
LONG_FORMS = 2
"""An abbreviation with more usual long forms has these."""
MIN_SHARE = 0.25
_LETTERS = re.compile(r"[a-z]+")


def main() -> None:
    """Write the list."""
    data = Path(os.environ["EPICRISIS_DATA"])
    OUTPUT.write_text("\n".join(list_abbreviations(read_texts(data))) + "\n", "utf-8")


def read_texts(data: Path) -> Iterator[str]:
    """Yield the abstracts and the articles, each once."""
    measured = json.loads((data / "pubmedqa" / "ori_pqal.json").read_text("utf-8")).keys()
    seen: set[str] = set()
    for path in (data / "abstracts" / "abstracts.jsonl.gz", data / "bioasq" / "passages.jsonl.gz"):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for row in map(json.loads, file):
                if row.get("pmid") not in measured and row["text"] not in seen:
                    seen.add(row["text"])
                    yield row["text"]
    for text in load_evidence_inference(data, "train", 7).texts.values():
        yield " ".join(text.read.sentences)


def list_abbreviations(texts: Iterable[str]) -> Iterator[str]:
    """Yield the lines."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for text in texts:
        for short, long in find_abbreviations(text).items():
            counts[short][_LETTERS.sub(lambda match: spell_american(match[0]), long.lower())] += 1
    for short in sorted(counts):
        total = counts[short].total()
        for long, count in counts[short].most_common(LONG_FORMS):
            if count >= MIN_DOCUMENTS and count >= MIN_SHARE * total:
                yield f"{short}: {long}"


if __name__ == "__main__":
    main()
