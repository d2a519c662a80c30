"""Questions whose subject no document has: they end before any model is called."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from epicrisis import Document, Library
from epicrisis.core.answers import Answer, Notice
from epicrisis.core.protocols import Encoder
from epicrisis.core.types import Question
from epicrisis.corpus.base.chunking import find_sentences
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.engines.word_index import analyze_words
from epicrisis.pipeline.components import LibrarySearch
from epicrisis.pipeline.overrides import RunOverrides
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.retrieval.retriever import Retriever
from epicrisis.settings.configuration import load_settings
from epicrisis.settings.settings import ROLES
from epicrisis.testing.chat import ScriptedModel
from epicrisis.testing.hashing_encoder import HashingEncoder

OBESITY = Document(
    "pubmed:1", "Dapagliflozin reduced cardiovascular events in people with obesity.", title="Dapagliflozin"
)
OEDEMA = Document("pubmed:2", "Bumetanide lowered oedema of the legs, and haematochezia was rare.", title="Bumetanide")
NOTE = Document("note:1", "Colchicine was started for gout.", patient="anna", date="2150-01")


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel(lambda _: '{"sentences": [], "claims": []}')


@pytest.fixture
def library(tmp_path: Path, model: ScriptedModel) -> Iterator[Library]:
    with Library.create(tmp_path / "library", encoder=HashingEncoder(64)) as made:
        made.add(OBESITY, OEDEMA)
    cache = {"mode": "off"}
    with Library.open(tmp_path / "library", encoder=HashingEncoder(64), model=model, cache=cache) as opened:
        yield opened


@pytest.mark.parametrize("strategy", ["rag", "focused", "brief-context", "evidence"])
def test_missing_subject_is_named_without_call(library: Library, model: ScriptedModel, strategy: str) -> None:
    answer = library.ask("Does semaglutide reduce cardiovascular events in obesity?", strategy=strategy)
    assert (answer.state, answer.citations, model.requests) == ("abstained", (), [])
    assert answer.failure is not None
    assert (answer.failure.kind, answer.failure.message) == (
        "NotInLibrary",
        "nothing on “semaglutide” in 2 documents",
    )


@pytest.mark.parametrize("strategy", ["rag", "evidence"])
@pytest.mark.parametrize(
    ("drug", "is_asked"),
    [("Dapagliflozin", True), ("Forxiga", True), ("Metformin", False), ("Dapagliflozin or metformin", True)],
)
def test_drug_that_only_other_documents_name_is_not_answered_for(
    library: Library, model: ScriptedModel, strategy: str, drug: str, is_asked: bool
) -> None:
    library.add(Document("pubmed:3", "Metformin caused diarrhoea in one of ten adults.", title="Metformin"))
    answer = library.ask(f"Does {drug} reduce cardiovascular events in people with obesity?", strategy=strategy)
    if is_asked:
        assert answer.failure is None or answer.failure.kind != "NotInLibrary"
    else:
        assert (answer.state, answer.citations, model.requests) == ("abstained", (), [])
        assert answer.failure is not None
        assert answer.failure.message == "no document found on the rest of the question names “Metformin”"


@pytest.mark.parametrize("strategy", ["rag", "evidence"])
@pytest.mark.parametrize("drug", ["prednisone", "Singulair", "clopidogrel", "gabapentin"])
def test_common_drug_of_no_document_is_named_without_call(
    library: Library, model: ScriptedModel, strategy: str, drug: str
) -> None:
    """Their names end like no other drug's."""
    answer = library.ask(f"Does {drug} reduce cardiovascular events in people with obesity?", strategy=strategy)
    assert (answer.state, answer.citations, model.requests) == ("abstained", (), [])
    assert answer.failure is not None
    assert answer.failure.message == f"nothing on “{drug}” in 2 documents"


@pytest.mark.parametrize(
    ("question", "is_asked"),
    [
        ("Does vitamin C prevent falls in older women?", False),
        ("Does vitamin B12 prevent falls in older women?", False),
        ("Do vitamins D and K prevent falls in older women?", True),
        ("Does vitamin D3 prevent falls in older women?", True),
        ("Does cholecalciferol prevent falls in older women?", True),
    ],
)
def test_vitamin_is_not_answered_for_by_another(library: Library, question: str, is_asked: bool) -> None:
    library.add(
        Document("pubmed:3", "Vitamin D did not prevent falls in 409 older women.", title="Vitamin D and falls")
    )
    answer = library.ask(question, strategy="evidence")
    assert (answer.state == "answered") is is_asked
    if not is_asked:
        assert answer.failure is not None
        assert answer.failure.message.startswith("no document found on the rest of the question names “vitamin ")


def test_common_word_of_no_document_is_named_beside_an_abstention(library: Library) -> None:
    answer = library.ask("What is the effect of early mobilisation on pain after hip surgery?", strategy="evidence")
    notices = [event.message for event in answer.trace if isinstance(event, Notice)]
    assert answer.state == "abstained"
    assert any(notice.startswith("nothing on “mobilisation”") for notice in notices)


@pytest.mark.parametrize("strategy", ["rag", "focused", "brief-context", "evidence"])
@pytest.mark.parametrize(
    "question",
    [
        "Does it ameliorate mortality in older adults with hypertension?",
        "What is the effect of early mobilisation on pain after hip surgery?",
    ],
)
def test_question_that_no_document_answers_is_not_asked(
    library: Library, model: ScriptedModel, strategy: str, question: str
) -> None:
    answer = library.ask(question, strategy=strategy)
    assert (answer.state, answer.citations, model.requests) == ("abstained", (), [])
    assert answer.failure is not None
    assert answer.failure.message == (
        "nothing that answers it in 2 documents: ask in their words, or add documents on it"
    )


@pytest.mark.parametrize("strategy", ["rag", "evidence"])
def test_setting_asks_all_the_same(library: Library, strategy: str) -> None:
    question = "What is the effect of early mobilisation on pain after hip surgery?"
    failure = library.ask(question, strategy=strategy, not_in_library="ask").failure
    assert failure is None or failure.kind != "NotInLibrary"


def test_search_shows_the_nearest_sentences_and_says_that_nothing_answers(library: Library) -> None:
    found = library.evidence("What is the effect of early mobilisation on pain after hip surgery?")
    assert found.hits
    assert found.notes[0].startswith("nothing that answers it in 2 documents")
    assert found.notes[0].endswith("the nearest sentences are shown")
    found = library.evidence("Does dapagliflozin reduce cardiovascular events in obesity?")
    assert not any("nothing" in note for note in found.notes)


def test_sentences_of_a_document_on_something_else_are_not_listed(library: Library) -> None:
    found = library.evidence("Does dapagliflozin reduce cardiovascular events in obesity?")
    assert {hit.sentence.passage.document_id for hit in found.hits} == {OBESITY.id}


@pytest.mark.parametrize(
    "question",
    ["Does dapagliflozin reduce cardiovascular events in obesity?", "Does bumetanide cause hematochezia?"],
)
def test_subject_in_the_library_is_asked(library: Library, question: str) -> None:
    answer = library.ask(question, strategy="evidence")
    assert answer.failure is None or answer.failure.kind != "NotInLibrary"


def test_brand_of_no_document_is_missing_however_near_the_rest(library: Library) -> None:
    answer = library.ask("Does Gleevec reduce cardiovascular events in people with obesity?", strategy="evidence")
    assert answer.failure is not None
    assert answer.failure.message == "nothing on “Gleevec” in 2 documents"


@pytest.mark.parametrize(("word", "is_answered"), [("QXZV", True), ("maracas", False)])
def test_unknown_abbreviation_counts_less_than_a_word(library: Library, word: str, is_answered: bool) -> None:
    """Documents often write an abbreviation out."""
    answer = library.ask(f"How many people with {word} have rare events?", strategy="evidence")
    assert (answer.state == "answered") is is_answered


@pytest.mark.parametrize("strategy", ["rag", "focused", "brief-context", "evidence"])
def test_word_of_no_document_is_named_where_a_document_may_answer(
    library: Library, model: ScriptedModel, strategy: str
) -> None:
    answer = library.ask("Does dapagliflozin reduce cardiovascular events in obese Lebanese people?", strategy=strategy)
    assert answer.failure is None or answer.failure.kind != "NotInLibrary"
    notices = [event.message for event in answer.trace if isinstance(event, Notice)]
    assert notices.count("nothing on “Lebanese” in 2 documents") == 1


def test_common_word_of_no_document_is_named_and_stops_nothing(library: Library) -> None:
    answer = library.ask("Does dapagliflozin reduce cardiovascular events after amputation?", strategy="evidence")
    notices = [event.message for event in answer.trace if isinstance(event, Notice)]
    assert (answer.state, notices.count("nothing on “amputation” in 2 documents")) == ("answered", 1)


def test_name_with_digits_is_found_in_another_form(tmp_path: Path) -> None:
    text = "KMT5 inhibitors reduced cardiovascular events in people with obesity."
    with Library.create(tmp_path / "library", encoder=HashingEncoder(64)) as made:
        made.add(Document("pubmed:5", text, title="KMT5"))
        found = made.evidence("Does KMT-5 inhibition reduce cardiovascular events in obesity?")
    assert [hit.sentence.text for hit in found] == [text]
    assert not any("nothing on" in note for note in found.notes)


def test_question_on_other_implants_is_stopped_by_meaning(encoder: Encoder, tmp_path: Path) -> None:
    """By words alone, the document on implants would seem to answer both."""
    with Library.create(tmp_path / "library", encoder=encoder) as made:
        made.add(OBESITY, OEDEMA)
        made.add(Document("pubmed:4", "Deaf infants who got cochlear implants early spoke as well as peers who hear."))
        asked = "Do early cochlear prostheses give children with hearing loss normal speech?"
        absent = "Do dental implants fail early in smokers?"
        assert made.ask(asked, strategy="evidence").state == "answered"
        assert made.ask(absent, strategy="evidence").state == "abstained"


@pytest.mark.parametrize("strategy", ["rag", "evidence"])
def test_question_with_options_is_asked(library: Library, strategy: str) -> None:
    failure = library.ask("Does semaglutide help?", ["yes", "no"], strategy=strategy).failure
    assert failure is None or failure.kind != "NotInLibrary"


def test_case_at_length_is_asked(library: Library) -> None:
    """A case report has many words that no answer needs."""
    case = "A seamstress with sarcoidosis and a xylophone presents after early mobilisation following hip surgery. "
    answer = library.ask(5 * case + "Which treatment is best?", strategy="evidence")
    assert answer.state == "answered"


def test_preferred_study_is_listed_however_far_below_the_best(tmp_path: Path) -> None:
    text = "Colours of curtains differ. Nobody measured the walls of the ward."
    trial = Document("t", text, metadata={"publication_types": ["Randomized Controlled Trial"]})
    with Library.create(tmp_path / "library", encoder=HashingEncoder(64)) as made:
        made.add(OBESITY, trial)
        question = "Does dapagliflozin reduce cardiovascular events in obesity?"
        documents = {hit.sentence.passage.document_id for hit in made.evidence(question)}
        preferred = made.evidence(question, prefer=["randomised-trial"], prefer_mode="only")
    assert documents == {OBESITY.id}
    assert [hit.sentence.passage.document_id for hit in preferred] == ["t", "t"]


def test_question_about_a_patient_is_asked(tmp_path: Path) -> None:
    with Library.create(tmp_path / "notes", encoder=HashingEncoder(64)) as made:
        made.add(NOTE)
        failure = made.ask("Was semaglutide started?", patient="anna", strategy="evidence").failure
    assert failure is None or failure.kind != "NotInLibrary"


@pytest.mark.parametrize("strategy", ["rag", "focused", "evidence"])
def test_given_evidence_is_read_whatever_the_library_has(
    library: Library, tmp_path: Path, model: ScriptedModel, strategy: str
) -> None:
    """Experiments give their own rankings, count every question, and read no other passage."""
    ranking = library.search("Does dapagliflozin reduce cardiovascular events?", k=1)
    assert ranking.document_ids == (OBESITY.id,)
    settings = load_settings({"strategy": strategy})
    asked = Question("Does semaglutide help?")

    async def ask() -> Answer:
        with LibraryStore.open(tmp_path / "library") as store:
            retriever = Retriever(store, HashingEncoder(64), sentences=find_sentences, analyze=analyze_words)
            async with Pipeline(settings, dict.fromkeys(ROLES, model), LibrarySearch(store, retriever)) as pipeline:
                return await pipeline.answer(asked, overrides=RunOverrides(ranking=ranking))

    failure = asyncio.run(ask()).failure
    assert failure is None or failure.kind != "NotInLibrary"
    assert bool(model.requests) is (strategy != "evidence")


def test_given_passage_is_not_completed(tmp_path: Path, model: ScriptedModel) -> None:
    text = "Zinc is studied here. " * 60 + "Zinc shortened diarrhoea significantly (p = 0.01)."
    encoder = HashingEncoder(64, max_tokens=60)
    with Library.create(tmp_path / "library", encoder=encoder) as made:
        made.add(Document("long", text, title="Zinc"))
        ranking = made.search("zinc", k=1)
    assert not any("shortened" in passage.text for passage in ranking.passages)

    settings = load_settings({"strategy": "focused", "k": 1})

    async def ask(overrides: RunOverrides) -> str:
        with LibraryStore.open(tmp_path / "library") as store:
            retriever = Retriever(store, encoder, sentences=find_sentences, analyze=analyze_words)
            search = LibrarySearch(store, retriever)
            async with Pipeline(settings, dict.fromkeys(ROLES, model), search) as pipeline:
                await pipeline.answer(Question("Does zinc shorten diarrhoea?"), overrides=overrides)
        return model.requests[-1].messages[-1].content

    assert "shortened diarrhoea" not in asyncio.run(ask(RunOverrides(ranking=ranking)))
    assert "shortened diarrhoea" in asyncio.run(ask(RunOverrides()))
