"""Test rules fitted on a user's own questions: planted signals, chance, and held-out judgement."""

from __future__ import annotations

import random
import tomllib
from dataclasses import replace

import pytest

from epicrisis.core.errors import InputError
from epicrisis.evaluation.analysis.statistics import Difference, Mean, holm, sign_test
from epicrisis.evaluation.experiments.preflight_calibration import (
    SIGNALS,
    HeldOutResult,
    PreflightCalibration,
    calibrate,
    calibration_table,
    fit_rule,
    fold_of,
    settings_text,
    signals_table,
)
from epicrisis.evaluation.experiments.preflight_rules import (
    BEYOND_3,
    PUBLISHED,
    Confusion,
    Label,
    Rule,
    confusion,
    evaluate_rule,
    label_rankings,
    threshold_curve,
)
from epicrisis.evaluation.experiments.recorded_rankings import QuestionRankings
from epicrisis.retrieval.preflight import Signal

K = 16


def make_rankings(seed: int, n: int = 300, strength: float = 1.0) -> list[QuestionRankings]:
    """Return rankings whose dense gap predicts the issue with the given strength (0: not at all); BM25 does not."""
    dice, result = random.Random(seed), []
    for number in range(n):
        names = [f"d{i}#0" for i in range(K)]
        issue = dice.random() < 0.4
        gap = dice.gauss(0, 1) + (0 if issue else strength)
        scores = [gap, *(-i / 1000 for i in range(1, K))]
        shuffled = dice.sample(names, K)
        key = dice.randrange(4, K) if issue else dice.randrange(3)
        result.append(
            QuestionRankings(
                key=f"{number}:x",
                dataset="set",
                dense=tuple(zip(names, scores, strict=True)),
                bm25=tuple((name, 1.0) for name in shuffled),
                reranked=None,
                read=tuple(names),
                gold=(f"d{key}",),
                held=(f"d{key}",),
            )
        )
    return result


# -- fitting ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_fit_rule_finds_planted_signal() -> None:
    rule = fit_rule(make_rankings(1, strength=4), recall=0.9)
    assert rule.signal.kind == "dense-gap"
    of = evaluate_rule(make_rankings(1, strength=4), rule, BEYOND_3)
    assert of.recall.value >= 0.9
    assert of.specificity.value > 0.95


def test_calibrate_with_rule_of_zero_recall_raises_input_error() -> None:
    """Its recall is 0, and what has that recall and the best specificity is no check at all."""
    never = [
        QuestionRankings(
            key=f"{number}:x",
            dataset="set",
            dense=tuple((f"d{i}#0", 1.0) for i in range(K)),
            bm25=tuple((f"d{i}#0", 1.0) for i in range(K)),
            reranked=None,
            read=tuple(f"d{i}#0" for i in range(K)),
            gold=(f"d{place}",),
            held=(f"d{place}",),
        )
        for number, place in enumerate([0, 9] * 6)
    ]
    with pytest.raises(InputError, match=r"the papers' rule detects none of 6 questions .* give one with --recall"):
        fit_rule(never)
    assert 0 <= fit_rule(never, recall=0.5).threshold < float("inf")


@pytest.mark.slow
def test_fit_rule_has_best_specificity_on_its_questions() -> None:
    recorded = make_rankings(2, 120)
    rule = fit_rule(recorded, recall=0.8)
    mine = evaluate_rule(recorded, rule, BEYOND_3)
    assert mine.recall.value >= 0.8
    for signal in SIGNALS[:-3]:
        for point in threshold_curve(*label_rankings(recorded, signal, BEYOND_3)):
            if point.confusion.recall.value >= 0.8:
                assert point.confusion.specificity.value <= mine.specificity.value


@pytest.mark.long
def test_fit_rule_reaches_recall_of_papers_rule() -> None:
    recorded = make_rankings(3)
    papers = confusion((result.label, result.papers) for result in calibrate(recorded).results)
    assert evaluate_rule(recorded, fit_rule(recorded), BEYOND_3).recall.value >= papers.recall.value


def test_fit_rule_uses_reranker_signals_only_when_recorded_for_all() -> None:
    bare = make_rankings(4, 60)
    helped = [
        replace(item, reranked=item.dense if BEYOND_3.label(item) == "no-issue" else item.dense[::-1]) for item in bare
    ]
    assert fit_rule(helped, recall=0.9).signal.kind == "reranker-overlap"
    assert fit_rule([*helped[1:], bare[0]], recall=0.9).signal.kind != "reranker-overlap"
    with pytest.raises(InputError, match="none of the signals was recorded"):
        fit_rule(bare, signals=[Signal("reranker-overlap", 3)])


def test_fit_rule_with_one_kind_of_question_raises_input_error() -> None:
    fine = [item for item in make_rankings(5, 40) if BEYOND_3.label(item) == "no-issue"]
    with pytest.raises(InputError, match=r"^0 questions with the issue and \d+ without"):
        fit_rule(fine)
    with pytest.raises(InputError, match="give more questions"):
        calibrate([replace(item, held=()) for item in make_rankings(5, 40)])


# -- held out ---------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_calibrate_judges_each_question_by_rule_fitted_without_it() -> None:
    recorded = make_rankings(6, 60)
    done = calibrate(recorded, recall=0.9, folds=4, seed=3)
    assert len(done.folds) == 4
    assert [result.key for result in done.results] == [item.key for item in recorded]
    for item, judged in zip(recorded, done.results, strict=True):
        part = fold_of(item.key, 4, 3)
        others = [other for other in recorded if fold_of(other.key, 4, 3) != part]
        assert done.folds[part] == fit_rule(others, recall=0.9)
        assert judged.fitted == done.folds[part].agree(item)
    assert done.rule == fit_rule(recorded, recall=0.9)


@pytest.mark.long
def test_calibrate_without_signal_stays_at_chance() -> None:
    """Without a signal, recall and the share wrongly read in parts are the same share."""
    few = [Signal("overlap", 3), Signal("rank-biased-overlap", 10), Signal("dense-gap", 2)]
    sums = [calibrate(make_rankings(seed, strength=0), recall=0.8, signals=few).held_out for seed in range(12)]
    caught = sum(of.tp for of in sums) / sum(of.issues for of in sums)
    needless = sum(of.fp for of in sums) / sum(of.fp + of.tn for of in sums)
    assert caught == pytest.approx(needless, abs=0.05)
    assert caught == pytest.approx(0.8, abs=0.05)


def test_fold_of_is_even_and_depends_on_key_and_seed() -> None:
    parts = [fold_of(f"{i}:x", 5, 0) for i in range(2000)]
    assert all(340 < parts.count(part) < 460 for part in range(5))
    assert parts != [fold_of(f"{i}:x", 5, 1) for i in range(2000)]
    assert fold_of("1:x", 5, 0) == parts[1]


@pytest.mark.long
def test_calibrate_compares_signals_of_folds_by_percentile() -> None:
    recorded = make_rankings(8, strength=2)
    done = calibrate(recorded, recall=0.5)
    for item, judged in zip(recorded, done.results, strict=True):
        part = fold_of(item.key, 5, 0)
        others = [other for other in recorded if fold_of(other.key, 5, 0) != part]
        values = label_rankings(others, done.folds[part].signal, BEYOND_3)[1]
        (value,) = label_rankings([item], done.folds[part].signal, BEYOND_3)[1]
        assert judged.percentile == sum(other < value for other in values) / len(values)
    for recall in (0.5, 0.8, 1.0):
        of = done.at_recall(recall)
        assert of.recall.value >= recall
        moved = [confusion((j.label, j.percentile > at.percentile) for j in done.results) for at in done.results]
        assert of.specificity.value == max(m.specificity.value for m in moved if m.recall.value >= recall)


def test_calibration_compares_both_rules_on_same_questions() -> None:
    def judged(label: Label, pairs: str) -> list[HeldOutResult]:
        """Return results of letters: f agrees by the fitted rule only, p by the papers' only, b by both, n neither."""
        return [HeldOutResult(f"{label}{i}", label, item in "fb", item in "pb") for i, item in enumerate(pairs)]

    done = PreflightCalibration(
        Rule(Signal("overlap", 3), 0.2),
        PUBLISHED,
        None,
        (),
        (*judged("no-issue", "fffffbpnnn"), *judged("issue", "ppn"), *judged("not-retrieved", "fb")),
    )
    assert done.held_out == Confusion(tp=3, fn=0, fp=4, tn=6, apart=2, apart_skipped=2)
    assert done.papers == Confusion(tp=1, fn=2, fp=8, tn=2, apart=2, apart_skipped=1)
    recall, specificity = done.differences
    assert specificity.value == pytest.approx(0.4)
    assert specificity.n == 10
    assert specificity.p == holm([sign_test(5, 1), sign_test(2, 0)])[0], "two tests"
    assert specificity.interval.low < 0.4 < specificity.interval.high
    assert recall.value == pytest.approx(2 / 3)
    assert recall.n == 3


# -- what comes of it -------------------------------------------------------------------------------------------------


def test_settings_text_is_toml() -> None:
    rule = Rule(Signal("rank-biased-overlap", 10), 1 / 3, 16)
    result = {"signal": "rank-biased-overlap", "n": 10, "threshold": 1 / 3, "depth": 16}
    judged = (
        HeldOutResult("1", "issue", True, False),
        HeldOutResult("2", "no-issue", True, False),
        HeldOutResult("3", "issue", False, True),
    )
    text = settings_text(PreflightCalibration(rule, BEYOND_3, None, (), judged))
    assert tomllib.loads(text) == {"preflight": result}
    assert "Fitted on 3 questions, 2 of them with the issue" in text
    assert "1 of 2 with the issue missed, 0 of 1 others read in parts for nothing; the papers' rule: 1 and 1." in text


@pytest.mark.long
def test_calibration_tables_have_rules_and_rates() -> None:
    recorded = make_rankings(7)
    done = calibrate(recorded, recall=0.9)
    table = calibration_table(done)
    names = table.column("rule")
    assert names == ("fitted, held out", "papers' rule", "difference", "fitted, at its recall")
    recall, specificity = table.column("recall"), table.column("specificity")
    assert isinstance(recall[0], Mean)
    assert recall[0].value == done.held_out.recall.value
    assert isinstance(specificity[2], Difference)
    assert isinstance(specificity[0], Mean)
    assert isinstance(specificity[1], Mean)
    assert specificity[2].value == pytest.approx(specificity[0].value - specificity[1].value)
    assert str(done.rule) in table.notes[1]
    # 16 in parts of 4: five calls or one.
    assert table.column("calls saved")[0] == done.held_out.skipped.value * 4
    signals = signals_table(recorded)
    assert list(signals.column("signal")) == [str(signal) for signal in SIGNALS[:-3]]
    areas = dict(zip(signals.column("signal"), signals.column("area"), strict=True))
    best, none = areas["dense-gap@16"], areas["overlap@3"]
    assert isinstance(best, Mean)
    assert isinstance(none, Mean)
    assert best.interval.low > 0.6
    assert none.interval.low < 0.5 < none.interval.high
