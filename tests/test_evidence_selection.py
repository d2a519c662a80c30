"""What one question of a patient finds, through the pipeline, over a library of notes on disk."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from epicrisis.core.answers import Answer, Notice, Retrieved
from epicrisis.core.errors import InputError
from epicrisis.core.prompts import TIME_ORDER_STATEMENT
from epicrisis.core.types import Document, Question, Ranking
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.pipeline.components import LibrarySearch
from epicrisis.pipeline.overrides import NO_OVERRIDES, RunOverrides
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.retrieval.preflight import BY_RANKS, PAPER
from epicrisis.retrieval.rankings import rank_in_order
from epicrisis.retrieval.retriever import Retriever
from epicrisis.settings.settings import ROLES, Settings
from epicrisis.testing.chat import ScriptedModel
from epicrisis.testing.hashing_encoder import HashingEncoder
from tests.support.strategies import NOT_FOUND, items_of

ENCODER = HashingEncoder(64)
FILLER = "The patient slept well and ate well and walked in the ward. " * 20


def note(name: str, date: str | None, text: str, stay: str = "1", patient: str = "p1") -> Document:
    kind = {"note_type": "discharge summary", "encounter": stay}
    return Document(f"note:{name}", text, source="notes", date=date, patient=patient, metadata=kind)


NOTES = [
    note("third", "2152-05-01", f"Chest pain came back. {FILLER} Diagnosis: angina.", "3"),
    note("first", "2150-05-01", f"Chest pain. {FILLER} Diagnosis: heartburn.", "1"),
    note("second", "2151-05-01", f"Chest pain on stairs. {FILLER} Diagnosis: reflux.", "2"),
    note("other", "2150-01-01", "Chest pain of somebody else.", patient="p2"),
]
CHEST = Question("What was found about chest pain?", id="q", patient="p1")


@pytest.fixture(scope="module")
def ward(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LibrarySearch]:
    path = tmp_path_factory.mktemp("ward") / "library"
    with open_or_create(path, ENCODER, "hashing", 0) as made:
        add_documents(made, NOTES, ENCODER)
    with LibraryStore.open(path) as library:
        yield LibrarySearch(library, Retriever(library, ENCODER))


FOUND = json.dumps({"result": {"found": True, "answer": "It was reflux.", "quotes": []}})


def asked(
    ward: LibrarySearch,
    question: Question,
    treatment: RunOverrides = NO_OVERRIDES,
    window: int = 1_000_000,
    reply: str = NOT_FOUND,
    **settings: Any,
) -> tuple[Answer, ScriptedModel]:
    model = ScriptedModel(lambda _: reply, context_tokens=window)

    async def one() -> Answer:
        made = Settings.model_validate(
            {
                "strategy": "rag",
                "preflight": {"enabled": False},
                "unverified": "keep",
                "not_in_library": "ask",
                "citing": "quotes",
                **settings,
            }
        )
        # Not closed with the pipeline: the library is the module's.
        pipeline = Pipeline(made, dict.fromkeys(ROLES, model), ward)
        return await pipeline.answer(question, overrides=treatment)

    return asyncio.run(one()), model


def ranking_of(answer: Answer) -> Ranking:
    (found,) = [event.ranking for event in answer.trace if isinstance(event, Retrieved)]
    return found


def notices(answer: Answer, kind: str) -> list[str]:
    return [event.message for event in answer.trace if isinstance(event, Notice) and event.kind == kind]


def names(ranking: Ranking) -> list[str]:
    return [passage.document_id.removeprefix("note:") for passage in ranking.passages]


@pytest.mark.parametrize("strategy", ["rag", "brief-context"])
def test_patient_passages_are_ordered_by_time_and_others_by_rank(ward: LibrarySearch, strategy: str) -> None:
    answer, _ = asked(ward, CHEST, strategy=strategy, k=5)
    found = ranking_of(answer)
    dates = [passage.date or "" for passage in found.passages]
    assert dates == sorted(dates)
    assert len(set(dates)) == 3
    assert found.retriever == "hybrid+time"
    ranked = ranking_of(asked(ward, CHEST, strategy=strategy, k=5, order="rank")[0])
    assert list(ranked.ids) == found.parameters["ranked"]
    assert ranked.retriever == "hybrid"
    assert ranking_of(asked(ward, Question("chest pain?"), strategy=strategy)[0]).retriever == "hybrid"


def test_whole_notes_are_ordered_by_time(ward: LibrarySearch) -> None:
    answer, model = asked(ward, CHEST, unit="note", k=2)
    found = ranking_of(answer)
    assert len(found.hits) == 2
    texts = {document.id: document.text.strip() for document in NOTES}
    assert [passage.text for passage in found.passages] == [texts[passage.document_id] for passage in found.passages]
    assert [item.splitlines()[-1] for item in items_of(model.requests[0])] == [p.text for p in found.passages]
    assert TIME_ORDER_STATEMENT in model.requests[0].messages[-1].content


def test_notes_over_budget_are_excluded_and_reported(ward: LibrarySearch) -> None:
    best = names(ranking_of(asked(ward, CHEST, unit="note", k=3, order="rank")[0]))
    answer, _ = asked(ward, CHEST, unit="note", k=3, order="rank", note_tokens=700)
    found = ranking_of(answer)
    assert 0 < len(found.hits) < 3
    left = best[len(found.hits) :]
    assert names(found) == best[: len(found.hits)]
    assert found.parameters["left_out"] == [f"note:{name}" for name in left]
    (said,) = notices(answer, "search")
    verb = "does not fit the budget of 700 tokens whole, and is" if len(left) == 1 else "do not fit"
    assert said.startswith(f"{len(left)} of 3 notes {verb}")


def test_best_note_is_kept_with_any_budget(ward: LibrarySearch) -> None:
    assert len(ranking_of(asked(ward, CHEST, unit="note", k=3, note_tokens=1)[0]).hits) == 1


def test_note_budget_defaults_to_model_window(ward: LibrarySearch) -> None:
    whole, model = asked(ward, CHEST, unit="note", k=3, window=100_000)
    assert len(ranking_of(whole).hits) == 3
    tokens = asyncio.run(model.count_tokens(model.requests[0].messages))
    answer, again = asked(ward, CHEST, unit="note", k=3, window=tokens + model.requests[0].max_tokens - 1)
    assert len(ranking_of(answer).hits) == 2
    assert len(again.requests) == 1, "what is kept fits"
    assert "what the model's window leaves" in notices(answer, "search")[0]


def test_full_context_reads_all_notes_by_time(ward: LibrarySearch) -> None:
    answer, model = asked(ward, CHEST, strategy="full-context")
    assert names(ranking_of(answer)) == ["first", "second", "third"]
    assert "the record has 3 notes" in notices(answer, "search")
    assert len(items_of(model.requests[0])) == 3
    with pytest.raises(InputError, match="--patient"):
        asked(ward, Question("chest pain?"), strategy="full-context")


def test_override_replaces_record(ward: LibrarySearch) -> None:
    placed = rank_in_order(ranking_of(asked(ward, CHEST, strategy="full-context")[0]).passages[:1], "placed", {})
    answer, model = asked(ward, CHEST, RunOverrides(options={"strategy": "full-context"}, ranking=placed))
    assert ranking_of(answer) == placed
    assert TIME_ORDER_STATEMENT not in model.requests[0].messages[-1].content, "nobody says in what order they stand"


def test_time_in_question_filters_record(ward: LibrarySearch) -> None:
    question = Question("What was the diagnosis of the second admission?", id="t", patient="p1")
    answer, model = asked(ward, question, reply=FOUND, k=9)
    assert set(names(ranking_of(answer))) == {"second"}
    said, left = notices(answer, "timeline")
    assert said == "the second admission: of 3 stays the 2nd, 2151-05-01 to 2151-05-01"
    assert left == "2 of 3 notes are left out: by their times and types they seem to be about another time"
    assert f"{said}\n{left}" in model.requests[0].messages[-1].content
    assert (answer.state, answer.narrowing) == ("answered", "kept")
    everything, _ = asked(ward, question, k=9, timeline=False)
    assert set(names(ranking_of(everything))) == {"first", "second", "third"}
    assert notices(everything, "timeline") == []
    whole, shown = asked(ward, question, strategy="full-context")
    assert names(ranking_of(whole)) == ["first", "second", "third"], "the whole record, and what is meant said"
    assert notices(whole, "timeline") == [said], "nothing is left out"
    assert said in shown.requests[0].messages[-1].content
    assert "left out" not in shown.requests[0].messages[-1].content


def test_unresolved_time_excludes_no_note(ward: LibrarySearch) -> None:
    answer, _ = asked(ward, Question("What was found in the ninth admission?", patient="p1"), k=9)
    assert set(names(ranking_of(answer))) == {"first", "second", "third"}
    (said,) = notices(answer, "timeline")
    assert said.endswith("no note is left out")


def test_recipe_contains_settings_of_the_evidence() -> None:
    models = dict.fromkeys(ROLES, ScriptedModel(lambda _: NOT_FOUND))
    new = {"unit", "order", "note_tokens", "fusion_times", "timeline", "extract"}
    given = Settings(unit="note", order="rank", note_tokens=9, fusion_times=2, timeline=False, extract="sentence")
    said = Pipeline(given, models).recipe()["settings"]
    assert {key: said[key] for key in new} == {
        "unit": "note",
        "order": "rank",
        "note_tokens": 9,
        "fusion_times": 2,
        "timeline": False,
        "extract": "sentence",
    }


# -- literature: documents are counted ---------------------------------------------------------------------------------

TRIALS = [
    Document(f"pubmed:{i}", f"Trial {i} of chest pain. {FILLER} {FILLER} Chest pain passed in trial {i}.")
    for i in range(6)
]
PAIN = Question("What did trials find about chest pain?", id="l")


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LibrarySearch]:
    path = tmp_path_factory.mktemp("papers") / "library"
    with open_or_create(path, ENCODER, "hashing", 0) as made:
        add_documents(made, TRIALS, ENCODER)
        assert made.count()[1] > 3 * len(TRIALS)
    with LibraryStore.open(path) as library:
        yield LibrarySearch(library, Retriever(library, ENCODER))


@pytest.mark.parametrize("by", ["dense", "bm25", "hybrid"])
def test_k_counts_documents_or_passages_by_setting(papers: LibrarySearch, by: str) -> None:
    answer, model = asked(papers, PAIN, k=4, by=by)
    found = ranking_of(answer)
    documents = [passage.document_id for passage in found.passages]
    assert len(set(documents)) == 4
    assert len(documents) > 4
    assert documents == sorted(documents, key=documents.index), "a document's passages stand together"
    assert len(items_of(model.requests[0])) == len(documents)
    assert len(ranking_of(asked(papers, PAIN, k=4, by=by, count="passages")[0]).hits) == 4


def test_partition_counts_documents(papers: LibrarySearch) -> None:
    answer, _ = asked(papers, PAIN, k=6, strategy="brief-context", partition=4)
    parts = [{passage.rpartition("#")[0] for passage in partial.passages} for partial in answer.partials]
    assert [len(part) for part in parts] == [4, 2]
    assert not parts[0] & parts[1]
    by_passages, _ = asked(papers, PAIN, k=6, strategy="brief-context", partition=4, count="passages")
    assert [len(partial.passages) for partial in by_passages.partials] == [4, 2]


def test_record_counts_passages_by_default(ward: LibrarySearch) -> None:
    assert len(ranking_of(asked(ward, CHEST, k=2)[0]).hits) == 2
    found = ranking_of(asked(ward, CHEST, k=2, count="documents")[0])
    assert len({passage.document_id for passage in found.passages}) == 2
    assert len(found.hits) > 2
    assert [passage.date for passage in found.passages] == sorted(str(passage.date) for passage in found.passages)


def test_whole_notes_count_as_documents(ward: LibrarySearch) -> None:
    for count in ("documents", "passages"):
        assert len(ranking_of(asked(ward, CHEST, unit="note", k=2, count=count)[0]).hits) == 2


def test_recipe_contains_count_unit() -> None:
    models = dict.fromkeys(ROLES, ScriptedModel(lambda _: NOT_FOUND))
    assert [Pipeline(Settings(count=count), models).recipe()["settings"]["count"] for count in (None, "passages")] == [
        None,
        "passages",
    ]


def test_literature_verdict_names_rule(papers: LibrarySearch, ward: LibrarySearch) -> None:
    def verdict(opened: LibrarySearch, question: Question, **check: Any) -> tuple[str | None, str]:
        preflight = asked(opened, question, strategy="brief-context", preflight=check)[0].preflight
        assert preflight is not None
        return preflight.signal, preflight.rule

    assert verdict(papers, PAIN) == (BY_RANKS.signal, BY_RANKS.origin), "none is fitted to this encoder's scores"
    assert verdict(papers, PAIN, rule="paper") == ("overlap", PAPER.origin)
    assert verdict(papers, PAIN, n=5) == ("overlap", "")
    assert verdict(ward, CHEST) == ("overlap", PAPER.origin), "none is fitted to records"
