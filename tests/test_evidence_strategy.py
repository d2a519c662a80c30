"""The strategy `evidence` from the question to the claims, over embedded libraries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from epicrisis.answering.citations import build_citation, settle_study_types
from epicrisis.answering.strategies.evidence import choose_direction
from epicrisis.core.answers import Answer, Notice, Quotation, SentencesSelected
from epicrisis.core.protocols import ChatRequest, Vectors
from epicrisis.core.types import Document, Passage, Question, Scope, Sentence
from epicrisis.corpus.base.chunking import find_sentences
from epicrisis.library.core.patients import Roster
from epicrisis.library.engines.word_index import analyze_words
from epicrisis.pipeline.components import LibrarySearch
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.report.answer_content import build_answer_content
from epicrisis.retrieval.id_rankings import SearchableStore
from epicrisis.retrieval.retriever import Retriever
from epicrisis.settings.settings import ROLES, Settings
from epicrisis.testing.chat import ScriptedModel
from epicrisis.testing.hashing_encoder import HashingEncoder
from tests.support.patient_records import ENCODER, OPTIONS, PATIENTS, library, question, ward, word
from tests.support.replies import fill
from tests.support.strategies import stage_of
from tests.test_complete_record_retry import NOTES

QUESTION = Question("Does aspirin prevent stroke in older patients?")
SENTENCES = (
    "Aspirin prevented stroke in 12 % of older patients.",
    "Aspirin did not prevent stroke in older patients.",
)
DOCUMENTS = (
    Document("yes", f"Strokes are common. {SENTENCES[0]} Funding is listed.", title="Yes", date="2010"),
    Document("no", f"Strokes are frequent. {SENTENCES[1]} Funding was public.", title="No", date="2015"),
    Document("copy", f"Elsewhere it was found: see below.\n{SENTENCES[0]}", title="Copy", date="2018"),
)

ELSEWHERE = Document("asthma", "The rate of attacks was significantly lower with budesonide (p = 0.01).")


def search_of(path: Path, documents: Sequence[Document], **more: Any) -> LibrarySearch:
    store = library(path / "library", documents)
    retriever = Retriever(store, ENCODER, sentences=find_sentences, analyze=analyze_words, **more)
    return LibrarySearch(store, retriever, rosters=(Roster(store),))


def ask(search: LibrarySearch, asked: Question = QUESTION, **settings: Any) -> Answer:
    """Return the answer of a pipeline without a chat model."""
    values = {"strategy": "evidence", **settings}

    async def answer() -> Answer:
        return await Pipeline(Settings.model_validate(values), {}, search).answer(asked)

    return asyncio.run(answer())


def texts_of(answer: Answer) -> list[str]:
    return [claim.text for claim in answer.claims]


def documents_of(answer: Answer) -> set[str]:
    return {citation.document_id for citation in answer.citations}


def test_answer_from_literature_has_each_sentence_with_its_source(tmp_path: Path) -> None:
    with search_of(tmp_path, DOCUMENTS) as search:
        answer = ask(search)
    assert answer.state == "answered"
    assert set(texts_of(answer)[:2]) == set(SENTENCES)
    sources = {document.id: document.text for document in DOCUMENTS}
    (event,) = [event for event in answer.trace if isinstance(event, SentencesSelected)]
    assert len(event.sentences) == len(answer.claims) == len(answer.citations)
    for claim, citation, span in zip(answer.claims, answer.citations, event.sentences, strict=True):
        assert claim.citations == (citation.number,)
        assert sources[citation.document_id][citation.start : citation.end] == claim.text
        assert (span.document_id, span.start, span.end) == (citation.document_id, citation.start, citation.end)
        assert citation.verified
    assert answer.usage.calls == 0


def test_study_type_is_that_of_the_article_s_beginning(tmp_path: Path) -> None:
    """The passage with the result neither names the design nor is near the one that does."""
    middle = " ".join(f"Visit {number} was at the centre, and nothing else was done there." for number in range(800))
    text = f"Women were randomly assigned to clopidogrel or placebo.\n{middle}\n{SENTENCES[0]}"
    with search_of(tmp_path, [Document("trial", text, title="Aspirin"), DOCUMENTS[1]]) as search:
        assert search.store.count()[1] > 82, "the beginning is not read to rank sentences"
        answer = ask(search)
    cited = {citation.document_id: citation for citation in answer.citations if citation.quotation == SENTENCES[0]}
    study = cited["trial"].reference.study
    assert study is not None
    assert study.label == "randomised trial (by its abstract)"


def test_nearest_result_has_the_study_type_of_its_document() -> None:
    beginning = Passage(id="t#0", document_id="t", ordinal=0, start=0, end=24, text="We randomised 12 adults.")
    later = Passage(id="t#1", document_id="t", ordinal=1, start=24, end=36, text="Stroke fell.")
    nearest = build_citation(1, Quotation(later.id, later.text, 24, 36), later)
    answer = Answer(question=QUESTION, strategy="rag", state="answered", nearest=(nearest,))
    (citation,) = settle_study_types(answer, (beginning, later)).nearest
    assert citation.reference.study is not None
    assert citation.reference.study.type == "randomised-trial"


def test_disagreement_counts_a_study_under_the_type_of_its_beginning(tmp_path: Path) -> None:
    middle = " ".join(f"Visit {number} was at the centre, and nothing else was done there." for number in range(800))
    less, equal = (
        f"Clopidogrel {verb} the risk of stroke (p = {p})." for verb, p in (("reduced", 0.004), ("did not change", 0.6))
    )
    first = Document("trial", f"Women were randomly assigned.\n{middle}\n{less}", title="Clopidogrel in women")
    with search_of(tmp_path, [first, Document("other", equal, title="Clopidogrel in men")]) as search:
        answer = ask(search, Question("Does clopidogrel reduce the risk of stroke?"))
    (conflict,) = answer.conflicts
    assert sorted(side.summary for side in conflict.sides) == ["1 randomised trial", "1 source of unknown study type"]


def test_disagreement_of_parts_counts_a_study_that_is_not_cited_under_its_type(tmp_path: Path) -> None:
    middle = " ".join(f"Visit {number} was at the centre, and nothing else was done there." for number in range(800))
    first = Document("trial", f"Women were randomly assigned.\n{middle}\n{SENTENCES[0]}", title="Trial")
    documents = [first, Document("other", SENTENCES[1], title="Other")]

    def reply(request: ChatRequest) -> str:
        prompt = request.messages[-1].content
        chosen = "A" if SENTENCES[0] in prompt and stage_of(request) == "map" else "B"
        values = {"found": True, "sentences": [1], "choice": chosen}
        return json.dumps(fill(request.schema or {}, values, SENTENCES[1]))

    asked = replace(QUESTION, options={"A": "yes", "B": "no"}, form="choice")
    values: dict[str, Any] = {"strategy": "brief-context", "partition": 1, "k": 2, "citing": "numbers", "by": "bm25"}
    settings = Settings.model_validate({**values, "preflight": {"enabled": False}})

    async def answer(search: LibrarySearch) -> Answer:
        return await Pipeline(settings, dict.fromkeys(ROLES, ScriptedModel(reply)), search).answer(asked)

    with search_of(tmp_path, documents) as search:
        (conflict,) = asyncio.run(answer(search)).conflicts
    assert sorted(side.summary for side in conflict.sides) == ["1 randomised trial", "1 source of unknown study type"]


class TowardsOne(HashingEncoder):
    """An encoder to which every question means the text of one document."""

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        return super().encode_queries([ELSEWHERE.text for _ in texts])


def test_document_found_first_by_meaning_is_among_the_first_three(tmp_path: Path) -> None:
    outcome = "The {} of diarrhoea was significantly shorter with zinc than with placebo (p = 0.0{})."
    lines = [outcome.format(name, number) for number, name in enumerate(("duration", "time", "length", "end"), 1)]
    store = library(tmp_path / "library", [Document("zinc", " ".join(lines)), ELSEWHERE])
    retriever = Retriever(store, TowardsOne(32, 24), sentences=find_sentences, analyze=analyze_words)
    asked = Question("What is the effect of zinc compared with placebo on the duration of diarrhoea?")
    with LibrarySearch(store, retriever, rosters=(Roster(store),)) as search:
        answer = ask(search, asked, not_in_library="ask")
    assert [citation.document_id for citation in answer.citations][:3] == ["zinc", "zinc", ELSEWHERE.id]


def test_documents_that_name_the_asked_drug_are_shown_alone(tmp_path: Path) -> None:
    """Another drug's trial has more words of the question. Where none names the drug, the nearest are shown."""
    asked = Question("Does colchicine prevent recurrent pericarditis?")
    other = "Recurrent pericarditis was prevented: it was significantly less frequent with prednisone (p = 0.01)."
    own = "Relapses were significantly less frequent with colchicine than with placebo (p = 0.02)."
    documents = [Document("other", other), Document("own", f"Pericarditis comes back. {own}")]
    with search_of(tmp_path, documents) as search:
        assert documents_of(ask(search, asked, not_in_library="ask")) == {"own"}
    with search_of(tmp_path / "without", documents[:1]) as search:
        assert documents_of(ask(search, asked, not_in_library="ask")) == {"other"}


def test_drug_with_a_common_name_leaves_no_document_out(tmp_path: Path) -> None:
    documents = [
        Document("smoke", "Cancer was significantly more frequent with smoking than without (p = 0.01)."),
        Document("metal", "Lead in water was significantly more frequent in old houses (p = 0.02)."),
    ]
    with search_of(tmp_path, documents) as search:
        answer = ask(search, Question("Does smoking lead to cancer?"), not_in_library="ask")
    assert "smoke" in documents_of(answer)


def test_notes_that_do_not_name_the_asked_drug_are_shown(tmp_path: Path) -> None:
    """A patient's note may tell of a drug as "her tablets"."""
    notes = [
        Document("n1", "Metformin 500 mg was begun for diabetes.", patient="anna", date="2020-01-01"),
        Document("n2", "The tablets were stopped because of nausea.", patient="anna", date="2020-02-01"),
    ]
    with search_of(tmp_path, notes) as search:
        answer = ask(search, Question("Was metformin stopped because of nausea?", patient="anna"))
    assert documents_of(answer) == {"n1", "n2"}


def test_beginning_is_of_the_first_library_with_the_document(tmp_path: Path) -> None:
    other = Document("yes", "Another text of the same name.")
    beside = SearchableStore(library(tmp_path / "other", [other, DOCUMENTS[1]]), ENCODER, "papers")
    with search_of(tmp_path, DOCUMENTS[:1], beside=[beside]) as search:
        beginnings = search.retriever.read_beginnings(["yes", "no", "nowhere"], Scope())
    assert [passage.text for passage in beginnings] == [DOCUMENTS[0].text, DOCUMENTS[1].text]


def test_near_duplicate_is_shown_once_and_contradiction_is_kept(tmp_path: Path) -> None:
    with search_of(tmp_path, DOCUMENTS) as search:
        texts = texts_of(ask(search))
    assert texts.count(SENTENCES[0]) == 1
    assert SENTENCES[1] in texts


def test_setting_sentences_limits_claims(tmp_path: Path) -> None:
    with search_of(tmp_path, DOCUMENTS) as search:
        assert len(texts_of(ask(search, sentences=2, k=1))) == 2


def test_question_with_options_abstains_with_claims(tmp_path: Path) -> None:
    with search_of(tmp_path, DOCUMENTS) as search:
        answer = ask(search, Question(QUESTION.text, options=OPTIONS, form="choice"))
    assert (answer.state, answer.choice, answer.withheld) == ("abstained", None, None)
    assert set(texts_of(answer)[:2]) == set(SENTENCES)


FEWER = "Stroke was significantly lower with aspirin than with placebo (p = 0.003)."
NO_FEWER = "The rates of stroke did not differ significantly between aspirin and placebo (p = 0.71)."
DIRECTIONS = {"A": "Higher", "B": "Lower", "C": "No significant difference", "D": "Insufficient data"}


@pytest.mark.parametrize(
    ("texts", "choice"),
    [
        ([FEWER], "B"),
        ([NO_FEWER], "C"),
        ([FEWER, NO_FEWER], None),
        (["Aspirin and stroke were studied."], None),
        # A sure direction, with a probability below that of a choice.
        (["Stroke was similar with aspirin and placebo."], None),
    ],
)
def test_direction_of_the_sentences_chooses_among_directions(
    tmp_path: Path, texts: Sequence[str], choice: str | None
) -> None:
    documents = [Document(str(number), text, title="Aspirin") for number, text in enumerate(texts)]
    asked = Question("What is the effect of aspirin compared with placebo on stroke?", options=DIRECTIONS)
    with search_of(tmp_path, documents) as search:
        answer = ask(search, asked)
    assert (answer.state, answer.choice) == ("answered" if choice else "abstained", choice)
    assert (answer.decided_by, list(answer.distribution)) == (("direction", [choice]) if choice else ("", []))
    if choice:
        assert answer.confidence is not None
        assert list(answer.confidence.components) == ["probability"], (
            "sentences shown as they are agree with themselves"
        )
        content = build_answer_content(answer)
        assert content.verdict[0].startswith(f"{choice}. ")
        assert "read from the sentences" in content.verdict[0]
        assert not any("next token" in remark for remark in content.remarks)


def sentence_of(document: str, text: str, patient: str | None = None) -> Sentence:
    passage = Passage(
        id=f"{document}#0",
        document_id=document,
        ordinal=0,
        start=0,
        end=len(text),
        text=text,
        title="Aspirin",
        patient=patient,
    )
    return Sentence(passage, 0, len(text))


@pytest.mark.parametrize(
    ("sentences", "choice"),
    [
        ([("a", FEWER), ("a", NO_FEWER), ("b", FEWER)], "B"),
        ([("a", "Aspirin and stroke were studied."), ("b", FEWER)], None),
        ([("a", FEWER), ("b", "Aspirin and stroke were studied.")], "B"),
        ([("a", FEWER), ("b", NO_FEWER)], None),
        ([], None),
    ],
)
def test_first_sentence_of_the_first_document_chooses(sentences: list[tuple[str, str]], choice: str | None) -> None:
    asked = Question("What is the effect of aspirin compared with placebo on stroke?", options=DIRECTIONS)
    assert choose_direction(asked, [sentence_of(*pair) for pair in sentences])[0] == choice
    assert choose_direction(asked, [sentence_of(*pair, patient="anna") for pair in sentences]) == (None, 0.0)


def test_retracted_study_does_not_choose(tmp_path: Path) -> None:
    retracted = Document("1", FEWER, title="Aspirin", metadata={"retracted": True})
    asked = Question("What is the effect of aspirin compared with placebo on stroke?", options=DIRECTIONS)
    with search_of(tmp_path, [retracted]) as search:
        assert ask(search, asked).choice is None


def test_empty_library_abstains_with_reason(tmp_path: Path) -> None:
    with search_of(tmp_path, []) as search:
        answer = ask(search)
    assert (answer.state, answer.claims) == ("abstained", ())
    assert answer.failure is not None
    assert answer.failure.kind == "NothingRetrieved"


def test_one_passage_is_enough(tmp_path: Path) -> None:
    with search_of(tmp_path, [Document("only", SENTENCES[0])]) as search:
        assert texts_of(ask(search)) == [SENTENCES[0]]


def test_date_and_hidden_documents_are_respected(tmp_path: Path) -> None:
    with search_of(tmp_path, DOCUMENTS) as search:
        assert documents_of(ask(search, scope={"as_of": "2012"})) == {"yes"}
        assert "no" not in documents_of(ask(search, scope={"hide": ["no"]}))


@pytest.mark.parametrize("by", ["dense", "bm25", "hybrid"])
def test_retracted_document_is_left_out_unless_included_with_mark(tmp_path: Path, by: str) -> None:
    retracted = Document("bad", SENTENCES[0], metadata={"retracted": True})
    with search_of(tmp_path, [retracted, DOCUMENTS[1]]) as search:
        answer = ask(search, by=by)
        assert documents_of(answer) == {"no"}
        assert any("retracted" in event.message for event in answer.trace if isinstance(event, Notice))
        included = ask(search, by=by, scope={"include": ["retracted"]})
    marks = {citation.document_id: citation.marks for citation in included.citations}
    assert marks == {"bad": ("retracted",), "no": ()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "kinds", [{}, {"fused": True}, {"reranked": True}, {"beside": True}], ids=lambda kinds: next(iter(kinds), "plain")
)
def test_record_gives_sentences_of_this_patient_and_literature_only(tmp_path: Path, kinds: dict[str, bool]) -> None:
    with ward(tmp_path, **kinds) as search:
        for number, patient in enumerate(PATIENTS[:4]):
            answer = ask(search, question(number), sentences=50, timeline=False)
            shown = " ".join(texts_of(answer))
            assert word(number) in shown
            assert answer.patient == patient
            others = [other for other in range(len(PATIENTS)) if other != number and word(other) in shown]
            assert others == []
            for citation in answer.citations:
                assert citation.document_id.startswith(("paper:", "shared:")) or word(number) in citation.title


def test_sentences_of_fused_and_beside_libraries_are_found(tmp_path: Path) -> None:
    other = HashingEncoder(48, max_tokens=12)
    fused = SearchableStore(library(tmp_path / "other", DOCUMENTS[:1], other), other)
    papers = SearchableStore(library(tmp_path / "papers", DOCUMENTS[1:2]), ENCODER, "papers")
    with search_of(tmp_path, DOCUMENTS[:1], also=[fused], beside=[papers]) as search:
        answer = ask(search)
    assert documents_of(answer) == {"yes", "no"}
    sources = {citation.document_id: citation.source for citation in answer.citations}
    assert sources["no"] == "papers"


@pytest.mark.parametrize("options", [{}, {"A": "reflux", "B": "angina"}])
def test_time_expression_restricts_notes(tmp_path: Path, options: dict[str, str]) -> None:
    asked = Question("What was the diagnosis of the second admission?", options=options, patient="p1")
    with search_of(tmp_path, NOTES) as search:
        answer = ask(search, asked)
        whole = ask(search, asked, timeline=False)
    assert documents_of(answer) == {"note:second"}
    assert answer.narrowing == "kept"
    assert documents_of(whole) == {"note:first", "note:second", "note:third"}
