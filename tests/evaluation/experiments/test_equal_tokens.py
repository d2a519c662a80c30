"""The comparison at equal tokens: a real library, a reader whose blind spot is known, and tables to the digit."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from epicrisis.answering.prompt_budget import DOCUMENT_ORDER
from epicrisis.core.answers import ModelCalled, Retrieved
from epicrisis.core.errors import InputError
from epicrisis.core.protocols import ChatRequest
from epicrisis.core.types import Document, EvidenceSpan, Passage, Question
from epicrisis.corpus.base.chunking import find_sentences
from epicrisis.evaluation.analysis.grouping import P_COLUMN, SHARE_COLUMN
from epicrisis.evaluation.analysis.statistics import Difference, holm
from epicrisis.evaluation.analysis.table import Table
from epicrisis.evaluation.experiments import equal_tokens
from epicrisis.evaluation.experiments.arms import Study
from epicrisis.evaluation.experiments.definition import CaseInputs, Grid
from epicrisis.evaluation.experiments.equal_tokens import (
    ARMS,
    EXPERIMENT,
    FRONTIER,
    LIMIT,
    OVER,
    SPENT,
    TOKENS,
    find_evidence_place,
)
from epicrisis.evaluation.experiments.passage_source import RememberingEncoder, library_source
from epicrisis.evaluation.experiments.study_protocols import PROTOCOLS
from epicrisis.evaluation.runs.recorded_run import open_runs
from epicrisis.evaluation.runs.run_folder import RECORDS, Run
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.engines.word_index import analyze_words
from epicrisis.library.write.ingest import add_documents
from epicrisis.pipeline.components import LibrarySearch
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.pipeline.recording.answer_record import RunRecord, read_records
from epicrisis.pipeline.recording.case import Case
from epicrisis.pipeline.recording.runner import answer_cases
from epicrisis.retrieval.retriever import Retriever
from epicrisis.settings.settings import ROLES, Settings
from epicrisis.testing.chat import ScriptedModel
from epicrisis.testing.hashing_encoder import HashingEncoder
from tests.support.experiments import plan, rows
from tests.support.position_biased_reader import KeyPassage, position_biased_reader, u_curve
from tests.support.strategies import finding, said, stage_of

N, SENTENCES = 8, 40
LIMITS = (700, 1400)
OPTIONS = {"A": "increased", "B": "decreased", "C": "no difference"}
ANSWERED_AT = (2, 20, 37, 5, 18, 36, 1, 22)
"""The sentence with the answer in each article."""


DRUGS = "amlodipine budesonide colchicine digoxin enalapril fluoxetine gabapentin heparin".split()  # noqa: SIM905
OUTCOMES = "oedema asthma gout flutter hypertension depression neuralgia thrombosis".split()  # noqa: SIM905


def key_of(i: int) -> str:
    return f"In trial {i} drug {DRUGS[i]} changed outcome {OUTCOMES[i]} as the analysis of all patients says."


def article(i: int) -> str:
    """An article of sentences of ten words; one of them has the answer."""
    sentences = [f"Sentence {j} of report {i} speaks of towns and people." for j in range(SENTENCES)]
    sentences[ANSWERED_AT[i]] = key_of(i)
    return " ".join(sentences)


def question(i: int, *, within: bool = True) -> Question:
    start = article(i).index(key_of(i))
    evidence = (EvidenceSpan(f"a:{i}", start, start + len(key_of(i))),) if within else ()
    text = f"What does drug {DRUGS[i]} change in outcome {OUTCOMES[i]}?"
    return Question(
        text,
        options=OPTIONS,
        form="choice",
        id=str(i),
        gold="ABC"[i % 3],
        gold_documents=(f"a:{i}",),
        evidence=evidence,
    )


@pytest.fixture(scope="module")
def library_search(tmp_path_factory: pytest.TempPathFactory) -> LibrarySearch:
    encoder, path = HashingEncoder(64, 48), tmp_path_factory.mktemp("articles") / "library"
    with LibraryStore.create(
        path, encoder_fingerprint=encoder.fingerprint, encoder_name="hashing", dimensions=64, max_tokens=48, overlap=0
    ) as library:
        add_documents(library, [Document(f"a:{i}", article(i)) for i in range(N)], encoder)
    library = LibraryStore.open(path)
    return LibrarySearch(library, Retriever(library, encoder, sentences=find_sentences, analyze=analyze_words))


def make_cases(
    library_search: LibrarySearch,
    questions: Mapping[str, Sequence[Question]],
    *,
    arms: Sequence[str] = tuple(ARMS),
    limits: Sequence[int] = LIMITS,
    settings: Settings | None = None,
) -> tuple[Case, ...]:
    settings = settings or Settings(strategy="rag", unverified="keep")
    study = Study(library_source(library_search, settings, "dense"), PROTOCOLS["corrected"])
    grid = Grid(arms=tuple(arms), ks=(48,), votes=(3,), prompt_tokens=tuple(limits))
    return EXPERIMENT.cases(CaseInputs(questions, study, grid, settings))


def answer(cases: Sequence[Case], model: ScriptedModel, folder: Path) -> list[RunRecord]:
    async def run() -> None:
        settings = Settings(strategy="rag", unverified="keep")
        async with Pipeline(settings, dict.fromkeys(ROLES, model)) as pipeline:
            with Run.open(folder, plan(pipeline, name="focused"), cases) as opened:
                async for _ in answer_cases(pipeline, cases, opened.records, 4):
                    pass
                opened.close()

    asyncio.run(run())
    return list(read_records(folder / RECORDS))


def biased_reader() -> ScriptedModel:
    keys = {question(i).text: KeyPassage(key_of(i), "ABC"[i % 3]) for i in range(N)}
    return position_biased_reader(keys, u_curve())


@pytest.fixture(scope="module")
def finished(
    library_search: LibrarySearch, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[RunRecord], tuple[Table, ...]]:
    """Return the folder of a run of two sets, its records and its tables."""
    folder = tmp_path_factory.mktemp("run") / "run"
    sets = {
        "articles": [question(i) for i in range(N)],
        "all": [replace(question(i, within=False), id=f"all-{i}") for i in range(N)],
    }
    records = answer(make_cases(library_search, sets), biased_reader(), folder)
    return folder, records, EXPERIMENT.tables(open_runs([folder]), ("A remark.",))


def spent_by(record: RunRecord) -> int:
    return sum(event.usage.prompt_tokens for event in record.answer.trace if isinstance(event, ModelCalled))


def read_by(record: RunRecord) -> tuple[str, ...]:
    (ranking,) = [event.ranking for event in record.answer.trace if isinstance(event, Retrieved)]
    return ranking.ids


def with_arm(records: Sequence[RunRecord], arm: str, **condition: Any) -> list[RunRecord]:
    wanted = {"arm": arm, **condition}
    return [record for record in records if wanted.items() <= record.condition.items()]


# -- the limit --------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("arm", [arm for arm in ARMS if arm != "closed-book"])
@pytest.mark.parametrize("limit", LIMITS)
def test_no_arm_spends_more_than_the_limit(arm: str, limit: int, finished: tuple[Path, list[RunRecord], Any]) -> None:
    records = with_arm(finished[1], arm, prompt_tokens=limit)
    assert len(records) == 2 * N
    for record in records:
        assert 0 < spent_by(record) <= limit
        assert record.answer.state in ("answered", "abstained")


@pytest.mark.long
@pytest.mark.parametrize("arm", ["rag", "in-order", "brief-context", "focused", "rotations"])
def test_arms_without_a_second_way_spend_nearly_all_of_the_limit(
    arm: str, finished: tuple[Path, list[RunRecord], Any]
) -> None:
    # Of all documents, which are longer than the limit. BriefContext stops where findings of full length still fit.
    for record in with_arm(finished[1], arm, prompt_tokens=LIMITS[0], dataset="all"):
        stages = [event.stage for event in record.answer.trace if isinstance(event, ModelCalled)]
        reads_all = arm != "brief-context" or "reduce" in stages
        assert not reads_all or spent_by(record) > 0.6 * LIMITS[0], (arm, spent_by(record))


@pytest.mark.slow
def test_one_more_passage_would_exceed_the_limit(library_search: LibrarySearch, tmp_path: Path) -> None:
    (case,) = make_cases(library_search, {"all": [question(1, within=False)]}, arms=["rag"], limits=[700])
    (record,) = answer([case], biased_reader(), tmp_path / "limited")
    everything = case.treatment.ranking
    assert everything is not None
    n = len(read_by(record))
    assert read_by(record) == everything.ids[:n]
    longer = replace(everything, hits=everything.hits[: n + 1])
    free = replace(case, treatment=replace(case.treatment, ranking=longer, prompt_tokens=None))
    (unlimited,) = answer([free], biased_reader(), tmp_path / "free")
    assert spent_by(record) <= 700 < spent_by(unlimited)


def test_rotations_read_a_third_of_the_limit_each(finished: tuple[Path, list[RunRecord], Any]) -> None:
    for record in with_arm(finished[1], "rotations", prompt_tokens=LIMITS[1]):
        calls = [event.usage.prompt_tokens for event in record.answer.trace if isinstance(event, ModelCalled)]
        assert len(calls) == 3
        assert max(calls) - min(calls) <= 2
        assert sum(calls) <= LIMITS[1]


@pytest.mark.long
def test_brief_context_reserves_tokens_for_the_longest_findings(library_search: LibrarySearch, tmp_path: Path) -> None:
    def reply(request: ChatRequest) -> str:
        if stage_of(request) == "map":
            return finding(text=" ".join(["long"] * 36))
        return said(sources=[1], answer="It does.", choice="A")

    sets = {"all": [question(i, within=False) for i in range(4)]}
    cases = make_cases(library_search, sets, arms=["brief-context", "rag+route", "focused+route"])
    for record in answer(cases, ScriptedModel(reply), tmp_path / "run"):
        assert spent_by(record) <= int(record.condition["prompt_tokens"])


def test_limit_below_one_passage_is_counted_as_exceeded(library_search: LibrarySearch, tmp_path: Path) -> None:
    cases = make_cases(library_search, {"all": [question(0, within=False)]}, arms=["rag", "brief-context"], limits=[50])
    answer(cases, biased_reader(), tmp_path / "run")
    table, _ = EXPERIMENT.tables(open_runs([tmp_path / "run"]), ())
    assert table.column(OVER) == (1, 1)
    assert table.column(SPENT)[0].value > 50  # type: ignore[union-attr]


# -- what the arms read -----------------------------------------------------------------------------------------------


def test_question_with_marked_evidence_reads_its_article_alone(finished: tuple[Path, list[RunRecord], Any]) -> None:
    for record in with_arm(finished[1], "rag", dataset="articles"):
        name = record.answer.question.gold_documents[0]
        assert {id_.partition("#")[0] for id_ in read_by(record)} == {name}
    others = with_arm(finished[1], "rag", dataset="all", prompt_tokens=LIMITS[1])
    assert any(len({id_.partition("#")[0] for id_ in read_by(record)}) > 1 for record in others)


def test_in_order_reads_the_passages_of_rag_in_the_order_of_the_text(
    finished: tuple[Path, list[RunRecord], Any],
) -> None:
    in_order = {
        record.question_key: read_by(record) for record in with_arm(finished[1], "in-order", dataset="articles")
    }
    ranked = {record.question_key: read_by(record) for record in with_arm(finished[1], "rag", dataset="articles")}
    assert in_order.keys() == ranked.keys()
    for key, ids in in_order.items():
        assert sorted(ids) == sorted(ranked[key])
        ordinals = [int(id_.rpartition("#")[2]) for id_ in ids]
        assert ordinals == sorted(ordinals)


def test_every_arm_of_a_question_starts_from_one_ranking(library_search: LibrarySearch) -> None:
    cases = make_cases(library_search, {"articles": [question(3)]})
    rankings = {case.condition["arm"]: case.treatment.ranking for case in cases if case.treatment.ranking}
    first = rankings["rag"]
    assert first is not None
    assert {str(name) for name, ranking in rankings.items() if ranking is first} == {
        "rag", "rotations", "brief-context", "brief-context+confidence", "focused", "focused-3", "focused-4",
        "focused-8", "rag+route", "focused+route", "focused-4+route", "focused-8+route",
    }  # fmt: skip
    sentences = {case.condition["arm"]: case.treatment.sentences for case in cases if case.treatment.sentences}
    everything = sentences["focused"]
    assert everything is not None
    assert len(everything.hits) > 4
    for arm, n in (("focused-3", 3), ("focused-4", 4), ("focused-8", 8), ("focused-4+route", 4)):
        assert sentences[arm] == replace(everything, hits=everything.hits[:n])
    assert rankings["in-order"] == replace(first, parameters={**first.parameters, DOCUMENT_ORDER: True})
    adaptive = rankings["adaptive-k"]
    assert adaptive is not None
    assert adaptive.ids == first.ids[: len(adaptive.ids)]


def test_focused_reads_the_marked_sentence_where_rag_reads_whole_passages(
    library_search: LibrarySearch, tmp_path: Path
) -> None:
    model = biased_reader()
    answer(
        make_cases(library_search, {"articles": [question(4)]}, arms=["focused"], limits=[300]), model, tmp_path / "f"
    )
    (request,) = model.requests
    assert key_of(4) in request.messages[-1].content
    assert len(request.messages[-1].content.split()) <= 300


# -- the place of the evidence ----------------------------------------------------------------------------------------


def test_place_of_evidence_is_the_third_of_the_article(library_search: LibrarySearch) -> None:
    cases = make_cases(library_search, {"articles": [question(i) for i in range(N)]}, arms=["rag"], limits=[700])
    places = {int(case.question.id): case.condition["evidence"] for case in cases}
    expected = ["beginning", "middle", "end", "beginning", "middle", "end", "beginning", "middle"]
    assert [places[i] for i in range(N)] == expected


@pytest.mark.parametrize(
    ("spans", "place"),
    [
        ([(0, 99)], "beginning"),
        ([(98, 101)], "beginning"),
        ([(99, 101)], "middle"),
        ([(199, 201)], "end"),
        ([(290, 300)], "end"),
        ([(0, 10), (20, 30)], "beginning"),
        ([(0, 10), (290, 300)], "several"),
        ([], ""),
    ],
)
def test_middle_of_the_span_decides_its_third(spans: list[tuple[int, int]], place: str) -> None:
    passages = (
        Passage(id="d#0", document_id="d", ordinal=0, start=0, end=150, text="x" * 150),
        Passage(id="d#1", document_id="d", ordinal=1, start=150, end=300, text="x" * 150),
    )
    marked = Question("Why?", evidence=tuple(EvidenceSpan("d", start, end) for start, end in spans))
    assert find_evidence_place(marked, {"d": passages}) == place


# -- tables -----------------------------------------------------------------------------------------------------------


def find_table(tables: Sequence[Table], beginning: str) -> Table:
    (table,) = [table for table in tables if table.title.startswith(beginning)]
    return table


def test_each_set_has_its_tables_and_only_marked_evidence_has_places(finished: tuple[Path, Any, Any]) -> None:
    titles = [table.title for table in finished[2]]
    assert sorted(titles) == [
        "Accuracy and cost: all",
        "Accuracy and cost: articles",
        "Accuracy at equal tokens: all",
        "Accuracy at equal tokens: articles",
        "Accuracy by the place of the evidence: articles",
    ]
    assert all("A remark." in table.notes for table in finished[2])


def test_holm_corrects_all_comparisons_of_a_set_together(finished: tuple[Path, Any, tuple[Table, ...]]) -> None:
    for name in ("articles", "all"):
        table = find_table(finished[2], f"Accuracy at equal tokens: {name}")
        pairs: list[tuple[float, float]] = []
        for cells in table.rows:
            for index, cell in enumerate(cells):
                if isinstance(cell, Difference):
                    corrected = cells[index + 1]
                    assert isinstance(corrected, float)
                    pairs.append((cell.p, corrected))
        # Thirteen rivals against RAG and twelve against BriefContext, at each limit.
        assert len(pairs) == len(LIMITS) * (13 + 12)
        assert holm([p for p, _ in pairs]) == tuple(corrected for _, corrected in pairs)


def test_differences_pair_arms_of_the_same_limit(finished: tuple[Path, list[RunRecord], tuple[Table, ...]]) -> None:
    table = find_table(finished[2], "Accuracy at equal tokens: all")
    shares: dict[tuple[Any, Any], float] = {}
    for cells in rows(table):
        shares[cells[LIMIT], cells["arm"]] = cells[SHARE_COLUMN].value
    for cells in rows(table):
        for baseline in ("rag", "brief-context"):
            difference = cells[f"difference to {baseline}"]
            is_compared = cells["arm"] not in ("rag", "closed-book", baseline)
            assert (difference is not None) == is_compared
            if is_compared:
                expected = shares[cells[LIMIT], cells["arm"]] - shares[cells[LIMIT], baseline]
                assert difference.value == pytest.approx(expected)
    assert P_COLUMN in table.columns


def test_frontier_table_agrees_with_the_records(finished: tuple[Path, list[RunRecord], tuple[Table, ...]]) -> None:
    table, records = find_table(finished[2], "Accuracy and cost: articles"), finished[1]
    points: list[tuple[float, float, str]] = []
    for cells in rows(table):
        condition = {"dataset": "articles"}
        if cells[LIMIT] is not None:
            condition["prompt_tokens"] = cells[LIMIT]
        mine = with_arm(records, cells["arm"], **condition)
        tokens = 0
        for record in mine:
            for event in record.answer.trace:
                if isinstance(event, ModelCalled):
                    tokens += event.usage.prompt_tokens + event.usage.completion_tokens
        right = sum(record.answer.choice == record.answer.question.gold for record in mine)
        assert len(mine) == N
        assert cells[TOKENS] == round(tokens / N)
        assert cells[SHARE_COLUMN].value == pytest.approx(right / N)
        points.append((tokens / N, right / N, cells[FRONTIER]))
    assert len(points) == 1 + len(LIMITS) * 14
    assert points == sorted(points, key=lambda point: point[0])
    for cost, share, mark in points:
        beaten = any(c <= cost and s >= share and (c, s) != (cost, share) for c, s, _ in points)
        assert mark == ("no" if beaten else "yes")


@pytest.mark.slow
def test_tables_are_the_same_from_records_in_any_order(
    finished: tuple[Path, list[RunRecord], tuple[Table, ...]], tmp_path: Path
) -> None:
    folder, _, tables = finished
    (tmp_path / "run").mkdir()
    for file in folder.iterdir():
        if file.is_file():
            (tmp_path / "run" / file.name).write_bytes(file.read_bytes())
    lines = (folder / RECORDS).read_text("utf-8").splitlines(keepends=True)
    (tmp_path / "run" / RECORDS).write_text("".join(reversed(lines)), "utf-8")
    again = EXPERIMENT.tables(open_runs([tmp_path / "run"]), ("A remark.",))
    by_title = {table.title: table for table in again}
    for table in tables:
        assert by_title[table.title].rows == table.rows


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_missing_article_is_refused_before_the_first_call(library_search: LibrarySearch) -> None:
    with pytest.raises(InputError, match="gold documents that the library does not hold"):
        make_cases(library_search, {"all": [replace(question(1), gold_documents=("a:99",))]})


@pytest.mark.parametrize("change", [{"rotations": 2}, {"route": "brief-context"}, {"adaptive_k": True}])
def test_compared_settings_are_refused(change: dict[str, Any], library_search: LibrarySearch) -> None:
    with pytest.raises(InputError, match=f"compares {next(iter(change))} itself"):
        make_cases(library_search, {"all": [question(1)]}, settings=Settings(strategy="rag", **change))


def test_unknown_arm_is_refused(library_search: LibrarySearch) -> None:
    with pytest.raises(InputError, match="no arm is called map: known are rag, in-order"):
        make_cases(library_search, {"all": [question(1)]}, arms=["map"])


def test_remembering_encoder_returns_the_vectors_of_the_encoder() -> None:
    encoder = HashingEncoder(16)
    calls: list[int] = []

    class Counting(HashingEncoder):
        def encode_passages(self, texts: Sequence[tuple[str, str]]) -> Any:
            calls.append(len(texts))
            return super().encode_passages(texts)

    remembering = RememberingEncoder(Counting(16), texts=3)
    pairs = [("", "one two"), ("T", "three"), ("", "one two")]
    for batch in (pairs, pairs[::-1], [("", "four"), ("", "five")], pairs):
        assert (remembering.encode_passages(batch) == encoder.encode_passages(batch)).all()
    # Two texts at first; two new ones, for which the text used longest ago is forgotten; then that one again.
    assert calls == [2, 2, 1]
    assert remembering.encode_passages([]).shape[0] == 0


def test_arms_of_the_experiment_are_its_default_grid() -> None:
    assert tuple(equal_tokens.ARMS) == EXPERIMENT.grid.arms
