"""The files that ship are those of the model card, and rank what they should."""

from __future__ import annotations

import hashlib
import json
import re
from importlib.resources import files
from pathlib import Path

from epicrisis.core.types import Passage
from epicrisis.corpus.base.chunking import find_sentences
from epicrisis.library.engines.word_index import analyze_words
from epicrisis.reading.ranker import FEATURES, load_ranker
from epicrisis.reading.relevance import load_relevance
from epicrisis.retrieval.sentence_ranking import SentenceRanker

WEIGHTS = files("epicrisis.reading") / "weights"
ABSTRACT = (
    "BACKGROUND: Zinc may shorten diarrhoea in children. We aimed to compare zinc with placebo for the duration of "
    "diarrhoea. METHODS: 120 children with diarrhoea were randomised to zinc or placebo. Duration of diarrhoea was "
    "recorded by their parents. RESULTS: Diarrhoea lasted 3.1 days with zinc and 4.2 days with placebo (p = 0.01). "
    "Vomiting was more frequent with zinc. CONCLUSIONS: Zinc shortens diarrhoea in children."
)


def test_shipped_files_are_those_of_the_card() -> None:
    card = (WEIGHTS / "MODEL_CARD.md").read_text("utf-8")
    stated = dict(re.findall(r"\| `([\w.]+)` \| [\d,]+ \| `(\w{64})` \|", card))
    shipped = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in WEIGHTS.iterdir()
        if file.name.endswith((".npz", ".txt"))
    }
    assert stated == shipped
    assert sum(len(file.read_bytes()) for file in WEIGHTS.iterdir()) < 1_500_000


def test_shipped_ranker_was_trained_with_the_features_of_this_version() -> None:
    assert load_ranker().forest.features == FEATURES


def test_no_document_is_so_sure_that_its_odds_overflow() -> None:
    """The trees end in at most these sums, and 16 bits of a float32 are left beside 1."""
    values = load_relevance().value
    assert -15 < values.min(axis=1).sum() < values.max(axis=1).sum() < 15


def test_result_comes_before_aim_and_method() -> None:
    passage = Passage(
        id="z#0", document_id="z", ordinal=0, start=0, end=len(ABSTRACT), text=ABSTRACT, title="Zinc for diarrhoea"
    )
    ranker = SentenceRanker(None, find_sentences, analyze_words)
    ranking = ranker.rank("What is the effect of zinc on the duration of diarrhoea?", [passage], 8)
    texts = [hit.sentence.text for hit in ranking.hits]
    assert texts[0].startswith("RESULTS: Diarrhoea lasted")


def test_sentence_on_the_opposite_of_what_is_asked_comes_later() -> None:
    lines = (Path(__file__).parents[2] / "demo" / "documents.jsonl").read_text("utf-8").splitlines()
    (trial,) = (
        document for document in map(json.loads, lines) if document["id"] == "demo:aspirin-preterm-preeclampsia"
    )
    passage = Passage(
        id="t#0", document_id="t", ordinal=0, start=0, end=len(trial["text"]), text=trial["text"], title=trial["title"]
    )
    ranker = SentenceRanker(None, find_sentences, analyze_words)
    ranking = ranker.rank("Does aspirin lower the risk of preterm pre-eclampsia?", [passage], 9)
    texts = [hit.sentence.text for hit in ranking.hits]
    at_term, before = (
        [text.startswith(f"Pre-eclampsia {words}") for text in texts] for words in ("at term", "leading")
    )
    assert before.index(True) < at_term.index(True)
