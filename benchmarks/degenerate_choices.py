"""How often is a choice of numbered sentences called degenerate, of a reader that reads and of one that does not?

    EPICRISIS_DATA=... python benchmarks/degenerate_choices.py SET FOLDER [--questions N] [--words] [--whole]

SET and FOLDER are those of evidence_sentences.py, which builds the library. No chat model is called. For each question
the prompt of 16 passages, or with `--whole` of the complete document of its evidence without ranks, as for a whole
record, offers its numbered sentences. With `--words` no encoder selects them. A reader that reads names all offered
sentences that experts marked as evidence, at most nine: every alarm about it is false. A blind reader names 1 to m
whatever the sentences say: every alarm about it is right. Questions without an offered evidence sentence say nothing of
the first.
"""

from __future__ import annotations

import argparse
import os
import random
from dataclasses import replace
from pathlib import Path
from statistics import mean

from evidence_sentences import SAMPLE_SEED, load, shows

from epicrisis.answering.reply_parsing import MAX_CLAIMS, MAX_NAMED
from epicrisis.answering.sentence_numbers import NumberedSentences, count_candidates
from epicrisis.core.answers import Quotation
from epicrisis.core.types import Scope
from epicrisis.evaluation.analysis.statistics import wilson
from epicrisis.library.core.passage_lookup import read_document_passages
from epicrisis.pipeline.components import open_library_search
from epicrisis.pipeline.evidence_selection import SENTENCE_PASSAGES
from epicrisis.settings.configuration import load_settings

BLIND_CHOICES = (1, 2, 3)


def main() -> None:
    """Print both shares with their intervals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", choices=("scifact", "evidence-inference", "covid-qa"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--questions", type=int)
    parser.add_argument("--words", action="store_true")
    parser.add_argument("--whole", action="store_true")
    arguments = parser.parse_args()
    documents, judged = load(arguments.set, Path(os.environ["EPICRISIS_DATA"]))
    if arguments.questions is not None and arguments.questions < len(judged):
        judged = random.Random(SAMPLE_SEED).sample(judged, arguments.questions)
    names = {document.id for document in documents}
    readers, first, false_alarms = 0, 0, 0
    blind: dict[int, list[bool]] = {m: [] for m in BLIND_CHOICES}
    offered_counts: list[int] = []
    with open_library_search(load_settings({}), arguments.folder) as search:
        ranker = search.retriever.sentence_ranker
        if arguments.words:
            ranker = replace(ranker, encoder=None)
        for question in judged:
            own = question.evidence[0][0]
            hidden = names - {question.within} if question.within else ()
            scope = Scope(hidden=frozenset(hidden))
            if arguments.whole:
                passages = tuple(read_document_passages(search.library, [own], scope)[own])
                ranks: dict[str, int] = {}
            else:
                ranking = search.retriever.rank(question.query, SENTENCE_PASSAGES, "hybrid", scope)
                passages, ranks = ranking.passages, dict(ranking.ranks)
            best = ranker.rank(question.query, passages, count_candidates(passages), ranks).sentences
            offered_counts.append(len(best))
            places = {passage.id: place for place, passage in enumerate(passages)}
            order = sorted(range(len(best)), key=lambda rank: (places[best[rank].passage.id], best[rank].start))
            quotations = tuple(Quotation(best[rank].passage.id, best[rank].text) for rank in order)
            offered = NumberedSentences(quotations, tuple(order))
            evidence: list[int] = []
            for number, rank in enumerate(order, 1):
                if any(shows(best[rank], document, span) for document, span in question.evidence):
                    evidence.append(number)
            named = evidence[: MAX_CLAIMS * MAX_NAMED]
            if named:
                readers += 1
                first += named == list(range(1, len(named) + 1))
                false_alarms += offered.is_degenerate(named)
            for m in BLIND_CHOICES:
                blind[m].append(offered.is_degenerate(range(1, m + 1)))
    print(f"{len(judged)} questions, {mean(offered_counts):.1f} offered sentences each")
    print(f"evidence among the offered sentences: {describe(readers, len(judged))}")
    print(f"reader that reads: names exactly 1 to m in {first}, false alarms {describe(false_alarms, readers)}")
    for m, alarms in blind.items():
        print(f"blind reader that names 1 to {m}: alarms {describe(sum(alarms), len(alarms))}")


def describe(count: int, n: int) -> str:
    """Return a count with its share and interval."""
    interval = wilson(count, n)
    return f"{count} of {n} ({count / n:.3f}, {interval.low:.3f} to {interval.high:.3f})"


if __name__ == "__main__":
    main()
