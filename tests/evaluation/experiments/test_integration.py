"""Test integration with real rankings: readers of known accuracy, averages, and published figures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epicrisis.core.errors import InputError
from epicrisis.core.prompts import unfence
from epicrisis.core.types import AnswerState, Document, Preflight, Question, Ranking, Scope
from epicrisis.evaluation.analysis import statistics
from epicrisis.evaluation.analysis.grouping import P_COLUMN, SHARE_COLUMN
from epicrisis.evaluation.analysis.published import load_published
from epicrisis.evaluation.analysis.statistics import wilson
from epicrisis.evaluation.experiments import integration
from epicrisis.evaluation.experiments.arms import Study
from epicrisis.evaluation.experiments.integration import MACRO, MICRO
from epicrisis.evaluation.experiments.passage_source import PassageSource, library_source
from epicrisis.evaluation.experiments.study_protocols import PROTOCOLS
from epicrisis.evaluation.runs.outcomes import Outcome
from epicrisis.evaluation.runs.run_folder import RECORDS
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.write.ingest import add_documents
from epicrisis.pipeline.components import LibrarySearch
from epicrisis.pipeline.recording.answer_record import read_records
from epicrisis.pipeline.recording.case import Case
from epicrisis.retrieval.preflight import ScoredIds
from epicrisis.retrieval.rankings import rank_in_order
from epicrisis.retrieval.retriever import Retriever
from epicrisis.settings.settings import Settings
from epicrisis.settings.tables import PreflightSettings
from epicrisis.testing.hashing_encoder import HashingEncoder
from epicrisis.testing.scorers import TermOverlapReranker
from tests.support.experiments import (
    build_cases,
    evidence,
    found_for,
    key_of,
    near,
    questions,
    reader,
    retrieve,
    row,
    run,
)
from tests.support.position_biased_reader import u_curve

SIZES = {"large": 36, "small": 12}
N = sum(SIZES.values())
K, PARTITION = 16, 4
CURVE = u_curve()
DIFFERENCE = "difference to rag"


def make_sets() -> dict[str, list[Question]]:
    sample = questions(N)
    return {"large": sample[: SIZES["large"]], "small": sample[SIZES["large"] :]}


def rank_by_words(question: Question, ids: Sequence[str]) -> ScoredIds:
    """Return the dense order if the key passage is among the first three, else its reverse."""
    ordered = ids if key_of(question).id in ids[:3] else ids[::-1]
    return [(id_, -float(rank)) for rank, id_ in enumerate(ordered)]


def rank_fused(question: Question, k: int) -> Ranking:
    """Return a ranking with the key passage in the middle."""
    others = [item for item in found_for(question) if item.id != key_of(question).id][: k - 1]
    parameters = {"k": k, "encoder": "minilm:1", "fused": 2}
    return rank_in_order([*others[: k // 2], key_of(question), *others[k // 2 :]], "hybrid", parameters)


def make_study(protocol: str = "corrected", repeats: int = 1, **changes: Any) -> Study:
    return Study(evidence(**{"words": rank_by_words, "fused": rank_fused, **changes}), PROTOCOLS[protocol], repeats)


def key_place(question: Question) -> int:
    """Return the rank of the key passage among those retrieved."""
    return int(question.id) % 7


def ranking_of(case: Case) -> Ranking:
    assert case.treatment.ranking is not None
    return case.treatment.ranking


# -- the cases --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_cases_have_each_condition_once_and_one_ranking_per_question() -> None:
    cases = build_cases(integration, make_sets(), make_study(repeats=2))
    assert len(cases) == N * 2 * len(integration.ARMS)
    assert len({case.key for case in cases}) == len(cases)
    for case in cases:
        arm, expected = case.condition["arm"], retrieve(case.question, K).ids
        assert case.condition["dataset"] == ("large" if int(case.question.id) < SIZES["large"] else "small")
        if arm == "chain-of-thought":
            assert case.treatment.ranking is None
            assert "k" not in case.condition
        elif arm == "mirage":
            assert (case.condition["k"], ranking_of(case).ids) == (32, rank_fused(case.question, 32).ids)
            assert case.treatment.strategy == "rag"
        else:
            assert (case.condition["k"], ranking_of(case).ids) == (K, expected)


def test_cases_include_questions_without_gold_documents() -> None:
    bare = {"medmcqa": [replace(question, gold_documents=()) for question in questions(2)]}
    assert len(build_cases(integration, bare, make_study())) == 2 * len(integration.ARMS)


def test_cases_preflight_checks_ranking_that_is_read() -> None:
    cases = build_cases(integration, make_sets(), make_study("published"))
    for case in cases:
        verdict = case.treatment.preflight
        if case.condition["arm"] != "brief-context+preflight":
            assert verdict is False
            continue
        assert isinstance(verdict, Preflight)
        assert case.treatment.strategy == "brief-context"
        assert verdict.dense_top == tuple(passage.document_id for passage in ranking_of(case).passages[:3])
        assert verdict.rankings_agree == (key_place(case.question) < 3)
        assert (verdict.signal, verdict.n, verdict.threshold, verdict.depth) == ("overlap", 3, 0.2, 16)
        assert verdict.rule == "the paper's rule"


def test_cases_preflight_uses_protocol_or_given_settings() -> None:
    """As coded it is called nowhere (errata C2)."""
    sample = {"one": questions(2)}
    coded = build_cases(integration, sample, make_study("as-coded"), arms=("brief-context", "brief-context+preflight"))
    assert {case.treatment.preflight for case in coded} == {False}
    assert {case.treatment.options["partition"] for case in coded} == {8}
    own = PreflightSettings(signal="dense-gap", n=5, threshold=0.5, depth=20)
    settings = Settings(preflight=own)
    (case, _) = build_cases(integration, sample, make_study("as-coded"), arms=(integration.CHECKED,), settings=settings)
    verdict = case.treatment.preflight
    assert isinstance(verdict, Preflight)
    assert (verdict.signal, verdict.n, verdict.threshold, verdict.depth) == ("dense-gap", 5, 0.5, 20)
    assert len(ranking_of(case).ids) == K, "a deeper check makes no longer prompt"


def test_cases_with_missing_retriever_or_arm_raise_input_error() -> None:
    sample = make_sets()
    with pytest.raises(InputError, match="no arm is called oracle: known are chain-of-thought"):
        build_cases(integration, sample, make_study(), arms=("oracle",))
    with pytest.raises(InputError, match=r"1 of 1 question has no options or no gold letter .* needs both"):
        build_cases(integration, {"open": [Question("What?", gold="It does.")]}, make_study())
    with pytest.raises(InputError, match="draw at least one"):
        build_cases(integration, {"none": []}, make_study())


@pytest.mark.parametrize("signal", ["overlap", "rank-biased-overlap", "dense-gap", "bm25-gap"])
def test_preflight_verdict_over_real_library_equals_pipeline(library_search: LibrarySearch, signal: str) -> None:
    settings = Settings.model_validate({"preflight": {"signal": signal, "threshold": 0.1}, "rerank": {"name": "o"}})
    result = make_evidence(library_search, settings)
    question = questions(1)[0]
    check = settings.preflight
    verdict = integration.preflight_verdict(result, question, result.retrieve(question, 16), check)
    by = {"n": check.n, "threshold": check.threshold, "depth": check.depth}
    assert verdict == library_search.retriever.preflight(question.text, Scope(), signal=check.signal, **by)  # type: ignore[arg-type]


def test_mirage_arm_over_real_library_fuses_available_retrievers(
    library_search: LibrarySearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integration, "MIRAGE_K", 8)
    cases = build_cases(
        integration,
        {"one": questions(2)},
        Study(make_evidence(library_search, Settings()), PROTOCOLS["corrected"]),
    )
    mirage = [case for case in cases if case.condition["arm"] == "mirage"]
    assert [len(ranking_of(case).ids) for case in mirage] == [8, 8]
    assert {ranking_of(case).retriever for case in mirage} == {"hybrid"}
    assert ranking_of(mirage[0]).parameters["fused"] == 2


@pytest.fixture(scope="module")
def library_search(tmp_path_factory: pytest.TempPathFactory) -> LibrarySearch:
    encoder = HashingEncoder(64)
    path = tmp_path_factory.mktemp("integration") / "library"
    texts = {f"doc:{j}": f"Study {j} saw drug {j % 3} help in disease {j % 5} in town {j}." for j in range(24)}
    with LibraryStore.create(
        path, encoder_fingerprint=encoder.fingerprint, encoder_name="hashing", dimensions=64, max_tokens=64, overlap=0
    ) as result:
        add_documents(result, [Document(name, text) for name, text in texts.items()], encoder)
    library = LibraryStore.open(path)
    return LibrarySearch(library, Retriever(library, encoder, reranker=("overlap", TermOverlapReranker())))


def make_evidence(library_search: LibrarySearch, settings: Settings) -> PassageSource:
    """Return evidence without the retriever's reranker, so that the dense order is kept."""
    bare = LibrarySearch(library_search.library, Retriever(library_search.library, HashingEncoder(64)))
    return library_source(bare, settings, "dense", reranker=("overlap", TermOverlapReranker()))


# -- known answers, through the whole path ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def biased_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[Outcome, ...], list[int]]:
    """Return the run's folder, its outcomes and the number of documents of each prompt."""
    sample, folder = make_sets(), tmp_path_factory.mktemp("biased")
    cases = build_cases(integration, sample, make_study())
    model = reader([item for of in sample.values() for item in of], CURVE)
    result = run(cases, model, folder)
    return folder, result, [len(unfence(request.messages[-1].content)) for request in model.requests]


def expected_share(arm: str, of: Sequence[Question]) -> float:
    """Return the expected share right of these questions."""
    in_one = [CURVE(key_place(item), K) for item in of]
    in_parts = [CURVE(key_place(item) % PARTITION, PARTITION) for item in of]
    by_arm: Mapping[str, Sequence[float]] = {
        "rag": in_one,
        "brief-context": in_parts,
        "brief-context+preflight": [
            one if key_place(item) < 3 else parts for item, one, parts in zip(of, in_one, in_parts, strict=True)
        ],
        "mirage": [CURVE(16, 32) for _ in of],
        "chain-of-thought": [0.0 for _ in of],
    }
    return float(np.mean(by_arm[arm]))


@pytest.mark.long
def test_tables_reproduce_curve_of_reader(biased_run: tuple[Path, tuple[Outcome, ...], list[int]]) -> None:
    table = integration.tables({"reader": biased_run[1]})[0]
    for name, of in make_sets().items():
        for arm in integration.ARMS:
            result = row(table, "reader", name, arm)
            assert result[SHARE_COLUMN].n == len(of)
            assert near(result[SHARE_COLUMN].value, expected_share(arm, of), len(of))
            assert result["failed"] == result["unparsed"] == result["wrong"] == 0
    means = {name: row(table, "reader", name, "brief-context")[SHARE_COLUMN].value for name in SIZES}
    macro, micro = (row(table, "reader", part, "brief-context") for part in (MACRO, MICRO))
    assert macro[SHARE_COLUMN].value == pytest.approx(np.mean(list(means.values())))
    assert micro[SHARE_COLUMN].value == pytest.approx(sum(SIZES[name] * means[name] for name in SIZES) / N)
    assert (macro["right"], micro["abstained"]) == (None, N - micro["right"])
    sample = [item for of in make_sets().values() for item in of]
    for arm in ("brief-context", "brief-context+preflight", "mirage", "chain-of-thought"):
        gain = expected_share(arm, sample) - expected_share("rag", sample)
        interval = row(table, "reader", MICRO, arm)[DIFFERENCE].interval
        assert interval.low <= gain <= interval.high
    assert row(table, "reader", MICRO, "brief-context")[DIFFERENCE].interval.low > 0
    assert row(table, "reader", MICRO, "chain-of-thought")[P_COLUMN] < 0.01


@pytest.mark.slow
def test_preflight_arm_reads_one_prompt_when_rankings_agree(
    biased_run: tuple[Path, tuple[Outcome, ...], list[int]],
) -> None:
    folder, _, documents = biased_run
    agreeing = sum(key_place(item) < 3 for of in make_sets().values() for item in of)
    assert documents.count(K) == N + agreeing
    assert documents.count(32) == N
    records = {record.key: record.answer for record in read_records(folder / RECORDS)}
    by_arm = {
        arm: {
            key.partition(" ")[0]: answer
            for key, answer in records.items()
            if json.loads(key.partition(" ")[2])["arm"] == arm
        }
        for arm in integration.ARMS
    }
    for key, answer in by_arm["brief-context+preflight"].items():
        assert answer.preflight is not None
        agree = answer.preflight.rankings_agree
        rival = by_arm["rag" if agree else "brief-context"][key]
        assert (answer.state, answer.choice) == (rival.state, rival.choice)
    assert all(answer.preflight is None for answer in by_arm["brief-context"].values())


@pytest.mark.slow
def test_mirage_remarks_name_replacing_retrievers(biased_run: tuple[Path, tuple[Outcome, ...], list[int]]) -> None:
    (text,) = integration.mirage_remarks(read_records(biased_run[0] / RECORDS))
    assert "MIRAGE fused four retrievers (BM25, Contriever, SPECTER, MedCPT)" in text
    assert "here BM25 and minilm:1 over this library replaced them" in text
    rag = [record for record in read_records(biased_run[0] / RECORDS) if record.arm == "rag"]
    assert integration.mirage_remarks(rag) == ()


@pytest.mark.long
def test_tables_of_unbiased_reader_show_no_significant_difference(tmp_path: Path) -> None:
    sample = make_sets()
    cases = build_cases(
        integration, sample, make_study(), arms=("rag", "brief-context", "brief-context+preflight", "mirage")
    )
    everyone = [item for of in sample.values() for item in of]
    result = run(cases, reader(everyone, lambda _, documents: 1.0 if documents == 1 else 0.7), tmp_path / "run")
    for table in integration.tables({"reader": result})[:-1]:
        assert min((cell for cell in table.column(P_COLUMN) if isinstance(cell, float)), default=1.0) > 0.05


# -- known answers, by the analysis alone ------------------------------------------------------------------------------


def simulate_outcomes(seed: int, shares: Mapping[str, Mapping[str, float]], sizes: Mapping[str, int]) -> list[Outcome]:
    """Simulate outcomes with `shares` by arm and set; questions differ in difficulty."""
    dice = np.random.default_rng(seed)
    return [
        Outcome(
            question=f"{name}{number}",
            condition={"arm": arm, "dataset": name, "k": K, "repeat": 0},
            state="answered",
            right=right,
            chance=1 / 3,
        )
        for name, size in sizes.items()
        for number in range(size)
        for ease in (dice.uniform(-0.2, 0.2),)
        for arm, share in shares.items()
        for right in (bool(dice.random() < share[name] + ease),)
    ]


@pytest.mark.long
def test_tables_without_effect_have_nominal_false_alarms(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 16 of 200 seeds: of the macro average alone, and of the table, any comparison of which counts."""
    monkeypatch.setattr(statistics, "RESAMPLES", 400)
    even, alone, together = {"a": 0.6, "b": 0.5, "c": 0.7}, 0, 0
    for seed in range(200):
        result = simulate_outcomes(seed, {"rag": even, "brief-context": even}, {"a": 40, "b": 16, "c": 24})
        table = integration.tables({"m": result})[0]
        alone += row(table, "m", MACRO, "brief-context")[DIFFERENCE].p < 0.05
        together += min(p for p in table.column(P_COLUMN) if isinstance(p, float)) < 0.05
    assert max(alone, together) <= 16
    assert alone >= 4, "a test that never speaks says nothing"


@pytest.mark.long
def test_tables_macro_and_micro_averages_may_differ_in_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    """As against MIRAGE's own row (errata B6): lost on the large set, gained on the small ones."""
    monkeypatch.setattr(statistics, "RESAMPLES", 1000)
    sizes = {"large": 400, "small": 60, "other": 60}
    shares = {
        "mirage": {"large": 0.6, "small": 0.4, "other": 0.4},
        "brief-context": {"large": 0.5, "small": 0.7, "other": 0.7},
    }
    covered, found_macro = 0, 0
    for seed in range(20):
        table = integration.tables({"m": simulate_outcomes(seed, shares, sizes)})[1]
        macro, micro = (row(table, "m", part, "brief-context")["difference to mirage"] for part in (MACRO, MICRO))
        covered += macro.interval.low <= 0.5 / 3 <= macro.interval.high
        found_macro += macro.p < 0.05
        assert macro.value > 0
        assert micro.value < macro.value
        if seed == 0:
            assert "against mirage" in table.title
    assert covered >= 16
    assert found_macro >= 19


def make_outcomes(marks: Mapping[str, str], arm: str) -> list[Outcome]:
    """Return outcomes by set from letters: r right, w wrong, f failed."""
    states: dict[str, tuple[AnswerState, bool | None]] = {
        "r": ("answered", True),
        "w": ("answered", False),
        "f": ("failed", None),
    }
    return [
        Outcome(
            question=f"{name}{i}",
            condition={"arm": arm, "dataset": name, "repeat": 0},
            state=states[mark][0],
            right=states[mark][1],
            chance=0.5,
        )
        for name, of in marks.items()
        for i, mark in enumerate(of)
    ]


def test_macro_averages_match_manual_calculation() -> None:
    mine, theirs = make_outcomes({"a": "rrrw", "b": "rf"}, "rag"), make_outcomes({"a": "wwrw", "b": "wr"}, "mirage")
    mean = integration.macro_mean(mine)
    assert mean.value == pytest.approx((3 / 4 + 1 / 2) / 2)
    assert (mean.n, mean.unscored) == (6, 0)
    assert mean.interval.low < mean.value <= mean.interval.high
    difference = integration.macro_difference(mine, theirs)
    assert difference is not None
    assert difference.value == pytest.approx((2 / 4 + 0) / 2), "the failed case is not right, and its pair counts"
    assert (difference.n, difference.clusters) == (6, 6)
    assert difference.p == pytest.approx(3 / 4), "of 16 flips of 3/4, 3/4, 3/2 and 3/2, 12 have a sum of 3/2 or more"
    failed = integration.macro_difference(mine, make_outcomes({"a": "rrrr", "b": "ff"}, "rag"))
    assert failed is not None
    assert failed.value == pytest.approx((-1 / 4 + 1 / 2) / 2)
    assert integration.macro_difference(mine, make_outcomes({"a": "rrrr"}, "rag")) is None
    assert integration.macro_mean(make_outcomes({"a": "ff"}, "rag")).value == 0
    assert np.isnan(integration.macro_mean([]).value)


def test_macro_interval_combines_wilson_intervals_of_sets() -> None:
    """Of sets that are all right and all wrong nothing can be drawn otherwise: each has Wilson's room."""
    one, other = (make_outcomes({"a": "r" * 9, "b": "w" * 9}, arm) for arm in ("brief-context", "rag"))
    sure, nothing = integration.macro_mean(one), integration.macro_difference(one, other)
    expected = wilson(9, 9).low / 2, (1 + wilson(0, 9).high) / 2
    assert (sure.value, sure.interval.low, sure.interval.high) == pytest.approx((0.5, *expected))
    assert nothing is not None
    assert nothing.interval.low < nothing.value == 0 < nothing.interval.high
    half = integration.macro_mean(make_outcomes({"a": "rw" * 50}, "rag"))
    assert half.interval.high - half.interval.low == pytest.approx(2 * 1.96 * 0.05, abs=0.03)


def test_tables_order_sets_as_paper_does() -> None:
    marks = {"own": "rw", "mirage/bioasq": "rr", "mirage/medmcqa": "wr"}
    result = [*make_outcomes(marks, "rag"), *make_outcomes(marks, "brief-context")]
    tables = [integration.tables({"m": item})[0] for item in (result, result[::-1])]
    assert tables[0].rows == tables[1].rows
    names = ["mirage/medmcqa", "mirage/bioasq", "own", MACRO, MICRO]
    assert list(dict.fromkeys(tables[0].column("set"))) == names


def test_tables_of_one_set_and_one_arm_have_no_averages_and_differences() -> None:
    table, papers = integration.tables({"m": make_outcomes({"a": "rrw"}, "rag")})
    assert [cells[:3] for cells in table.rows] == [("m", "a", "rag")]
    assert table.column(DIFFERENCE) == (None,)
    assert papers == integration.published_table()


# -- what the papers print --------------------------------------------------------------------------------------------


def test_published_table_shows_gains_by_question_and_by_released_row() -> None:
    """Errata B6 and B16: the gains by question, and those on the row that MIRAGE released."""
    table = integration.published_table()
    gains = {(cells[0], cells[1]): (cells[-2], cells[-1]) for cells in table.rows if str(cells[1]).startswith("RAG")}
    printed = gains["GPT-3.5-turbo-0125", "RAG"]
    released = gains["GPT-3.5-turbo-0125", "RAG, as MIRAGE released it"]
    assert printed[0] == pytest.approx(72.51 - 69.19, abs=0.01)
    assert printed[1] == pytest.approx(0.94, abs=0.01)
    assert gains["LLama3-70B-instruct", "RAG"][1] == pytest.approx(0.38, abs=0.01)
    assert released[0] == pytest.approx(0.6, abs=0.01)
    assert isinstance(released[1], float)
    assert released[1] < 0
    for cells in load_published()["integration"].table.rows:
        assert row(table, cells[0], cells[1])[MACRO] == pytest.approx(cells[-1], abs=0.011)
    assert set(integration.EXPERIMENT.published) <= set(load_published())
