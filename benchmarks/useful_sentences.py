"""Which share of the first three sentences is worth a reader's time? Questions in other words than their document's.

    EPICRISIS_DATA=... PYTHONPATH=.:training python benchmarks/useful_sentences.py FOLDER

130 questions of benchmarks/own_words over the mixed library of `not_in_library.py`, in FOLDER. `useful.jsonl` there has
what readers said of sentences, by the first 12 digits of the SHA-256 of their text: `useful` (the answer, a part of it,
or a result that bears on the question) or `not`. The readers did not know which rules had chosen a sentence. One that
nobody read is counted apart. The half "choose" chose the gap of further sentences; "report" chose nothing.
Intervals: 95 %, bootstrap over questions.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from pathlib import Path

from evidence_sentences import format_mean
from not_in_library import load_mixed, open_in

from epicrisis.core.types import Scope
from epicrisis.pipeline.components import open_library_search
from epicrisis.pipeline.evidence_selection import EvidenceSearch
from epicrisis.settings.configuration import load_settings

LABELS = Path(__file__).parent / "own_words" / "useful.jsonl"
SHOWN, DIGITS = 3, 12


def main() -> None:
    """Ask the questions and print the shares of each half."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    open_in(folder, load_mixed(Path(os.environ["EPICRISIS_DATA"])))
    settings = load_settings({})
    rows = [json.loads(line) for line in LABELS.open("r", encoding="utf-8")]
    with open_library_search(settings, folder) as search:
        evidence = EvidenceSearch(settings, search.retriever)
        for half in ("choose", "report"):
            marks: list[float] = []
            clusters: list[str] = []
            first: list[float] = []
            some: list[float] = []
            unread = 0
            questions = [row for row in rows if row["half"] == half]
            for row in questions:
                ranking = evidence.rank_passages(row["question"], Scope())
                listed = evidence.list_evidence(row["question"], ranking, SHOWN, Scope())
                digests = [hashlib.sha256(one.text.encode()).hexdigest()[:DIGITS] for one in listed.sentences]
                known = [float(one in row["useful"]) for one in digests if one in (*row["useful"], *row["not"])]
                unread += len(digests) - len(known)
                marks += known
                clusters += [row["question"]] * len(known)
                first.append(known[0] if known else 0.0)
                some.append(max(known, default=0.0))
            ids = [row["question"] for row in questions]
            print(f"{half}: {len(questions)} questions, {len(marks)} sentences, {unread} that nobody read")
            print(f"  useful among the first three {format_mean(marks, clusters)}")
            print(f"  the first is useful          {format_mean(first, ids)}")
            print(f"  one of the three is useful   {format_mean(some, ids)}", flush=True)


if __name__ == "__main__":
    main()
