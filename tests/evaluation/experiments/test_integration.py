"""Integration with real rankings: readers whose answers are known, averages by hand, and what the papers print."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epicrisis.components import LibrarySearch
from epicrisis.errors import InputError
from epicrisis.evaluation.analysis import statistics
from epicrisis.evaluation.analysis.grouping import P_COLUMN, SHARE_COLUMN
from epicrisis.evaluation.analysis.published import load_published
from epicrisis.evaluation.analysis.statistics import wilson
from epicrisis.evaluation.experiments import integration
from epicrisis.evaluation.experiments.arms import Study
from epicrisis.evaluation.experiments.integration import MACRO, MICRO
from epicrisis.evaluation.experiments.passage_source import PassageSource, library_source
from epicrisis.evaluation.experiments.study_protocols import PROTOCOLS
from epicrisis.evaluation.runs.case import Case
from epicrisis.evaluation.runs.outcomes import Outcome
from epicrisis.evaluation.runs.record import read_records
from epicrisis.evaluation.runs.run_folder import RECORDS
from epicrisis.library.ingest import add_documents
from epicrisis.library.library import Library
from epicrisis.prompts import unfence
from epicrisis.retrieval.ordering import rank_in_order
from epicrisis.retrieval.ranking_signals import ScoredIds
from epicrisis.retrieval.retriever import Retriever
from epicrisis.settings import PreflightSettings, Settings
from epicrisis.testing.encoders import HashingEncoder
from epicrisis.testing.reader import u_curve
from epicrisis.testing.rerankers import TermOverlapReranker
from epicrisis.types import Document, Preflight, Question, Ranking, Scope
from tests.support.experiments import evidence, found_for, key_of, near, questions, reader, retrieve, row, run

SIZES = {"large": 36, "small": 12}
N = sum(SIZES.values())
K, PARTITION = 16, 4
CURVE = u_curve()
DIFFERENCE = "difference to rag"


def sets() -> dict[str, list[Question]]:
    asked = questions(N)
    return {"large": asked[: SIZES["large"]], "small": asked[SIZES["large"] :]}


def words(question: Question, ids: Sequence[str]) -> ScoredIds:
    """The same order where the key passage is among the first three, else the other way round: they agree there."""
    ordered = ids if key_of(question).id in ids[:3] else ids[::-1]
    return [(id_, -float(rank)) for rank, id_ in enumerate(ordered)]


def fused(question: Question, k: int) -> Ranking:
    """The key passage in the middle."""
    others = [each for each in found_for(question) if each.id != key_of(question).id][: k - 1]
    parameters = {"k": k, "encoder": "minilm:1", "fused": 2}
    return rank_in_order([*others[: k // 2], key_of(question), *others[k // 2 :]], "hybrid", parameters)


def study(protocol: str = "corrected", repeats: int = 1, **changes: Any) -> Study:
    return Study(evidence(**{"words": words, "fused": fused, **changes}), PROTOCOLS[protocol], repeats)


def place(question: Question) -> int:
    """Of the key passage among those retrieved."""
    return int(question.id) % 7


def ranking_of(case: Case) -> Ranking:
    assert case.treatment.ranking is not None
    return case.treatment.ranking


# -- the cases --------------------------------------------------------------------------------------------------------


def test_every_condition_once_and_one_ranking_for_all_arms() -> None:
    made = integration.cases(sets(), study(repeats=2))
    assert len(made) == N * 2 * len(integration.ARMS)
    assert len({case.key for case in made}) == len(made)
    for case in made:
        arm, expected = case.condition["arm"], retrieve(case.question, K).ids
        assert case.condition["dataset"] == ("large" if int(case.question.id) < SIZES["large"] else "small")
        if arm == "chain-of-thought":
            assert case.treatment.ranking is None
            assert "k" not in case.condition
        elif arm == "mirage":
            assert (case.condition["k"], ranking_of(case).ids) == (32, fused(case.question, 32).ids)
            assert case.treatment.strategy == "rag"
        else:
            assert (case.condition["k"], ranking_of(case).ids) == (K, expected)


def test_questions_without_gold_documents_are_asked_too() -> None:
    bare = {"medmcqa": [replace(each, gold_documents=()) for each in questions(2)]}
    assert len(integration.cases(bare, study())) == 2 * len(integration.ARMS)


def test_the_check_is_of_the_very_ranking_that_is_read() -> None:
    made = integration.cases(sets(), study("published"))
    for case in made:
        verdict = case.treatment.preflight
        if case.condition["arm"] != "brief-context+preflight":
            assert verdict is False
            continue
        assert isinstance(verdict, Preflight)
        assert case.treatment.strategy == "brief-context"
        assert verdict.dense_top == tuple(passage.document_id for passage in ranking_of(case).passages[:3])
        assert verdict.rankings_agree == (place(case.question) < 3)
        assert (verdict.signal, verdict.n, verdict.threshold, verdict.depth) == ("overlap", 3, 0.2, 16)
        assert verdict.rule == "the paper's rule"


def test_the_check_is_the_protocols_or_ones_own() -> None:
    """As coded it is called nowhere (errata C2)."""
    asked = {"one": questions(2)}
    coded = integration.cases(asked, study("as-coded"), arms=("brief-context", "brief-context+preflight"))
    assert {case.treatment.preflight for case in coded} == {False}
    assert {case.treatment.partition for case in coded} == {8}
    own = PreflightSettings(signal="dense-gap", n=5, threshold=0.5, depth=20)
    (case, _) = integration.cases(asked, study("as-coded"), arms=("brief-context+preflight",), check=own)
    verdict = case.treatment.preflight
    assert isinstance(verdict, Preflight)
    assert (verdict.signal, verdict.n, verdict.threshold, verdict.depth) == ("dense-gap", 5, 0.5, 20)
    assert len(ranking_of(case).ids) == K, "a deeper check makes no longer prompt"


def test_what_is_missing_is_an_error_before_anything_is_asked() -> None:
    asked = sets()
    with pytest.raises(InputError, match="no arm is called oracle: known are chain-of-thought"):
        integration.cases(asked, study(), arms=("oracle",))
    with pytest.raises(InputError, match="arm mirage needs a search by several retrievers"):
        integration.cases(asked, study(fused=None))
    assert integration.cases(asked, study(fused=None), arms=("rag",))
    with pytest.raises(InputError, match="by overlap needs a search by words"):
        integration.cases(asked, study(words=None))
    with pytest.raises(InputError, match="reranker-overlap needs a reranker"):
        integration.cases(asked, study(reranker=None), check=PreflightSettings(signal="reranker-overlap"))
    with pytest.raises(InputError, match=r"1 of 1 questions have no options or no gold letter .* needs both"):
        integration.cases({"open": [Question("What?", gold="It does.")]}, study())
    with pytest.raises(InputError, match="draw at least one"):
        integration.cases({"none": []}, study())


@pytest.mark.parametrize("signal", ["overlap", "rank-biased-overlap", "dense-gap", "bm25-gap", "reranker-overlap"])
def test_the_check_over_a_real_library_is_the_pipelines(opened: LibrarySearch, signal: str) -> None:
    settings = Settings.model_validate({"preflight": {"signal": signal, "threshold": 0.1}, "rerank": {"name": "o"}})
    found = real(opened, settings)
    question = questions(1)[0]
    check = settings.preflight
    verdict = integration.preflight_verdict(found, question, found.retrieve(question, 16), check)
    by = {"n": check.n, "threshold": check.threshold, "depth": check.depth}
    assert verdict == opened.retriever.preflight(question.text, Scope(), signal=check.signal, **by)  # type: ignore[arg-type]


def test_over_a_real_library_the_fusion_is_of_all_that_there_is(opened: LibrarySearch) -> None:
    made = integration.cases({"one": questions(2)}, Study(real(opened, Settings()), PROTOCOLS["corrected"]), mirage_k=8)
    mirage = [case for case in made if case.condition["arm"] == "mirage"]
    assert [len(ranking_of(case).ids) for case in mirage] == [8, 8]
    assert {ranking_of(case).retriever for case in mirage} == {"hybrid"}
    assert ranking_of(mirage[0]).parameters["fused"] == 2


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> LibrarySearch:
    encoder = HashingEncoder(64)
    path = tmp_path_factory.mktemp("integration") / "library"
    texts = {f"doc:{j}": f"Study {j} saw drug {j % 3} help in disease {j % 5} in town {j}." for j in range(24)}
    with Library.create(
        path, encoder_fingerprint=encoder.fingerprint, encoder_name="hashing", dimensions=64, max_tokens=64, overlap=0
    ) as made:
        add_documents(made, [Document(name, text) for name, text in texts.items()], encoder)
    library = Library.open(path)
    return LibrarySearch(library, Retriever(library, encoder, reranker=("overlap", TermOverlapReranker())))


def real(opened: LibrarySearch, settings: Settings) -> PassageSource:
    """Without the retriever's reranker, so that the dense order is kept; it is the rival's."""
    bare = LibrarySearch(opened.library, Retriever(opened.library, HashingEncoder(64)))
    return library_source(bare, settings, "dense", reranker=("overlap", TermOverlapReranker()))


# -- known answers, through the whole path ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def biased(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[Outcome, ...], list[int]]:
    """The folder, the outcomes, and how many documents each prompt held."""
    asked, folder = sets(), tmp_path_factory.mktemp("biased")
    made = integration.cases(asked, study())
    model = reader([each for of in asked.values() for each in of], CURVE)
    found = run(made, model, folder)
    return folder, found, [len(unfence(request.messages[-1].content)) for request in model.requests]


def expected(arm: str, of: Sequence[Question]) -> float:
    """The share right of these questions."""
    in_one = [CURVE(place(each), K) for each in of]
    in_parts = [CURVE(place(each) % PARTITION, PARTITION) for each in of]
    by_arm: Mapping[str, Sequence[float]] = {
        "rag": in_one,
        "brief-context": in_parts,
        "brief-context+preflight": [
            one if place(each) < 3 else parts for each, one, parts in zip(of, in_one, in_parts, strict=True)
        ],
        "mirage": [CURVE(16, 32) for _ in of],
        "chain-of-thought": [0.0 for _ in of],
    }
    return float(np.mean(by_arm[arm]))


def test_each_arm_comes_out_as_the_curve_says(biased: tuple[Path, tuple[Outcome, ...], list[int]]) -> None:
    table = integration.tables({"reader": biased[1]})[0]
    for name, of in sets().items():
        for arm in integration.ARMS:
            found = row(table, "reader", name, arm)
            assert found[SHARE_COLUMN].n == len(of)
            assert near(found[SHARE_COLUMN].value, expected(arm, of), len(of))
            assert found["failed"] == found["unparsed"] == found["wrong"] == 0
    means = {name: row(table, "reader", name, "brief-context")[SHARE_COLUMN].value for name in SIZES}
    macro, micro = (row(table, "reader", part, "brief-context") for part in (MACRO, MICRO))
    assert macro[SHARE_COLUMN].value == pytest.approx(np.mean(list(means.values())))
    assert micro[SHARE_COLUMN].value == pytest.approx(sum(SIZES[name] * means[name] for name in SIZES) / N)
    assert (macro["right"], micro["abstained"]) == (None, N - micro["right"])
    asked = [each for of in sets().values() for each in of]
    for arm in ("brief-context", "brief-context+preflight", "mirage", "chain-of-thought"):
        gain = expected(arm, asked) - expected("rag", asked)
        interval = row(table, "reader", MICRO, arm)[DIFFERENCE].interval
        assert interval.low <= gain <= interval.high
    assert row(table, "reader", MICRO, "brief-context")[DIFFERENCE].interval.low > 0
    assert row(table, "reader", MICRO, "chain-of-thought")[P_COLUMN] < 0.01


def test_where_the_rankings_agree_one_prompt_is_read(biased: tuple[Path, tuple[Outcome, ...], list[int]]) -> None:
    folder, _, documents = biased
    agreeing = sum(place(each) < 3 for of in sets().values() for each in of)
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


def test_the_retrievers_that_stood_in_are_named(biased: tuple[Path, tuple[Outcome, ...], list[int]]) -> None:
    (said,) = integration.mirage_remarks(read_records(biased[0] / RECORDS))
    assert "MIRAGE fused four retrievers (BM25, Contriever, SPECTER, MedCPT)" in said
    assert "here BM25 and minilm:1 over this library replaced them" in said
    rag = [record for record in read_records(biased[0] / RECORDS) if record.arm == "rag"]
    assert integration.mirage_remarks(rag) == ()


def test_an_unbiased_reader_gives_no_alarm(tmp_path: Path) -> None:
    asked = sets()
    made = integration.cases(asked, study(), arms=("rag", "brief-context", "brief-context+preflight", "mirage"))
    everyone = [each for of in asked.values() for each in of]
    found = run(made, reader(everyone, lambda _, documents: 1.0 if documents == 1 else 0.7), tmp_path / "run")
    for table in integration.tables({"reader": found})[:-1]:
        assert min((cell for cell in table.column(P_COLUMN) if isinstance(cell, float)), default=1.0) > 0.05


# -- known answers, by the analysis alone ------------------------------------------------------------------------------


def simulated(seed: int, shares: Mapping[str, Mapping[str, float]], sizes: Mapping[str, int]) -> list[Outcome]:
    """`shares`: by arm, then set. Each question has an ease of its own."""
    dice = np.random.default_rng(seed)
    return [
        Outcome(f"{name}{number}", {"arm": arm, "dataset": name, "k": K, "repeat": 0}, "answered", right, 1 / 3)
        for name, size in sizes.items()
        for number in range(size)
        for ease in (dice.uniform(-0.2, 0.2),)
        for arm, share in shares.items()
        for right in (bool(dice.random() < share[name] + ease),)
    ]


def test_no_false_alarms(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 16 of 200 seeds: of the macro average alone, and of the table, any comparison of which counts."""
    monkeypatch.setattr(statistics, "RESAMPLES", 400)
    even, alone, together = {"a": 0.6, "b": 0.5, "c": 0.7}, 0, 0
    for seed in range(200):
        found = simulated(seed, {"rag": even, "brief-context": even}, {"a": 40, "b": 16, "c": 24})
        table = integration.tables({"m": found})[0]
        alone += row(table, "m", MACRO, "brief-context")[DIFFERENCE].p < 0.05
        together += min(p for p in table.column(P_COLUMN) if isinstance(p, float)) < 0.05
    assert max(alone, together) <= 16
    assert alone >= 4, "a test that never speaks says nothing"


def test_macro_and_micro_may_have_two_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As against MIRAGE's own row (errata B6): lost on the large set, gained on the small ones."""
    monkeypatch.setattr(statistics, "RESAMPLES", 1000)
    sizes = {"large": 400, "small": 60, "other": 60}
    shares = {
        "mirage": {"large": 0.6, "small": 0.4, "other": 0.4},
        "brief-context": {"large": 0.5, "small": 0.7, "other": 0.7},
    }
    covered, found_macro = 0, 0
    for seed in range(20):
        table = integration.tables({"m": simulated(seed, shares, sizes)})[1]
        macro, micro = (row(table, "m", part, "brief-context")["difference to mirage"] for part in (MACRO, MICRO))
        covered += macro.interval.low <= 0.5 / 3 <= macro.interval.high
        found_macro += macro.p < 0.05
        assert macro.value > 0
        assert micro.value < macro.value
        if seed == 0:
            assert "against mirage" in table.title
    assert covered >= 16
    assert found_macro >= 19


def outcomes_of(marks: Mapping[str, str], arm: str) -> list[Outcome]:
    """r right, w wrong, f failed; by set."""
    states = {"r": ("answered", True), "w": ("answered", False), "f": ("failed", None)}
    return [
        Outcome(f"{name}{i}", {"arm": arm, "dataset": name, "repeat": 0}, *states[mark], chance=0.5)  # type: ignore[arg-type]
        for name, of in marks.items()
        for i, mark in enumerate(of)
    ]


def test_averages_by_hand() -> None:
    mine, theirs = outcomes_of({"a": "rrrw", "b": "rf"}, "rag"), outcomes_of({"a": "wwrw", "b": "wr"}, "mirage")
    mean = integration.macro_mean(mine)
    assert mean.value == pytest.approx((3 / 4 + 1) / 2)
    assert (mean.n, mean.unscored) == (5, 1)
    assert mean.interval.low < mean.value <= mean.interval.high
    difference = integration.macro_difference(mine, theirs)
    assert difference is not None
    assert difference.value == pytest.approx((2 / 4 + 1) / 2)
    assert (difference.n, difference.clusters) == (5, 5)
    assert difference.p == pytest.approx(2 / 2**3), "three questions that differ, all of one sign"
    assert integration.macro_difference(mine, outcomes_of({"a": "rrrr", "b": "ff"}, "rag")) is None
    assert integration.macro_difference(mine, outcomes_of({"a": "rrrr"}, "rag")) is None
    assert np.isnan(integration.macro_mean(outcomes_of({"a": "ff"}, "rag")).value)


def test_the_interval_of_a_macro_mean_is_that_of_its_sets() -> None:
    """Of sets that are all right and all wrong nothing can be drawn otherwise: each has Wilson's room."""
    one, other = (outcomes_of({"a": "r" * 9, "b": "w" * 9}, arm) for arm in ("brief-context", "rag"))
    sure, nothing = integration.macro_mean(one), integration.macro_difference(one, other)
    expected = wilson(9, 9).low / 2, (1 + wilson(0, 9).high) / 2
    assert (sure.value, sure.interval.low, sure.interval.high) == pytest.approx((0.5, *expected))
    assert nothing is not None
    assert nothing.interval.low < nothing.value == 0 < nothing.interval.high
    half = integration.macro_mean(outcomes_of({"a": "rw" * 50}, "rag"))
    assert half.interval.high - half.interval.low == pytest.approx(2 * 1.96 * 0.05, abs=0.03)


def test_sets_stand_in_the_papers_order_whatever_ended_first() -> None:
    marks = {"own": "rw", "mirage/bioasq": "rr", "mirage/medmcqa": "wr"}
    found = [*outcomes_of(marks, "rag"), *outcomes_of(marks, "brief-context")]
    tables = [integration.tables({"m": each})[0] for each in (found, found[::-1])]
    assert tables[0].rows == tables[1].rows
    names = ["mirage/medmcqa", "mirage/bioasq", "own", MACRO, MICRO]
    assert list(dict.fromkeys(tables[0].column("set"))) == names


def test_a_run_of_one_set_has_no_averages_and_one_of_rag_alone_no_rivals() -> None:
    table, papers = integration.tables({"m": outcomes_of({"a": "rrw"}, "rag")})
    assert [cells[:3] for cells in table.rows] == [("m", "a", "rag")]
    assert table.column(DIFFERENCE) == (None,)
    assert papers == integration.published_table()


# -- what the papers print --------------------------------------------------------------------------------------------


def test_what_the_papers_gain_depends_on_the_row_and_on_the_average() -> None:
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
