"""Seconds of `--strategy evidence` over 100,000 passages: the search, and the ranking of sentences.

    EPICRISIS_THREADS=2 python benchmarks/evidence_speed.py LARGE SCIFACT

LARGE is a library of `large_library.py 100000 LARGE` (steps `add` and `optimize`), searched with real questions and
words of its own. SCIFACT is the library of `evidence_sentences.py scifact SCIFACT`: the sentences to rank are those
of its best passages. Median and 95th percentile of 40 questions after 5 that warm up, and the ratio of the medians to
the search in the same run, because other work may share the machine.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np
from evidence_sentences import load_scifact

from epicrisis.core.types import Scope
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.pipeline.components import open_library_search
from epicrisis.retrieval.retriever import Retriever
from epicrisis.settings.configuration import load_settings

PASSAGES = (8, 16, 24)
QUESTIONS, WARM_UP = 45, 5
SENTENCES = 8


def main() -> None:
    """Print the seconds of each step."""
    large, scifact = map(Path, sys.argv[1:3])
    _, judged = load_scifact(Path(os.environ["EPICRISIS_DATA"]))
    dice = np.random.default_rng(3)
    seconds: dict[str, list[float]] = {}
    counts: dict[int, list[int]] = {k: [] for k in PASSAGES}
    with open_library_search(load_settings(), scifact) as search, LibraryStore.open(large) as library:
        encoder = search.retriever.encoder
        assert encoder is not None
        everything = Retriever(library, encoder)
        print(f"{library.count()[1]:,} passages, EPICRISIS_THREADS={os.environ.get('EPICRISIS_THREADS')}")
        for question in judged[:QUESTIONS]:
            words = np.exp(dice.uniform(0, np.log(300_000), 6)).astype(np.int64)
            text = f"{question.query} {' '.join(f'w{word}' for word in words)}"
            start = time.perf_counter()
            everything.rank(text, max(PASSAGES), "hybrid", Scope())
            seconds.setdefault("hybrid search", []).append(time.perf_counter() - start)
            ranking = search.retriever.rank(question.query, max(PASSAGES), "hybrid", Scope())
            for k in PASSAGES:
                start = time.perf_counter()
                ranked = search.retriever.sentence_ranker.rank(question.query, ranking.passages[:k], SENTENCES)
                seconds.setdefault(f"sentences of {k} passages", []).append(time.perf_counter() - start)
                counts[k].append(int(str(ranked.parameters["sentences"])))
    search_median = float(np.median(seconds["hybrid search"][WARM_UP:]))
    for step, values in seconds.items():
        median, high = np.percentile(values[WARM_UP:], [50, 95])
        print(f"{step:24} {median:.3f} / {high:.3f} s, {median / search_median:.2f} searches")
    for k, numbers in counts.items():
        print(f"{k} passages have {np.median(numbers):.0f} sentences (median)")


if __name__ == "__main__":
    main()
