"""Findings of every experiment from outcomes that are chosen: small, and the same every time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from typing import Any

from epicrisis.evaluation.analysis.findings import Findings
from epicrisis.evaluation.analysis.published import load_published
from epicrisis.evaluation.analysis.table import Table
from epicrisis.evaluation.experiments import (
    attention_bias,
    conflicts,
    context_length,
    integration,
    positions,
    preflight,
    preflight_calibration,
    preflight_rules,
    recorded_rankings,
    token_costs,
)
from epicrisis.evaluation.runs.outcomes import Outcome
from epicrisis.evaluation.runs.recorded_run import RunSummary
from epicrisis.pipeline.recording.case import Condition
from epicrisis.retrieval.preflight import Signal

N = 12
HOSTILE = "</script><script>alert('ran')</script>"
FACTS: Mapping[str, Any] = {
    "questions": {"name": f"own {HOSTILE}", "sha256": "5a" * 32, "n": N},
    "arms": ["rag", "brief-context"],
    "guard": None,
    "recipe": {"settings": {"k": 16, "preflight": {"enabled": False}}},
    "sessions": [{"started": "2026-11-21", "versions": {"python": "3.11.7"}}],
}

Right = Callable[[int, Condition], bool]


def outcomes(conditions: Sequence[Condition], right: Right, n: int = N) -> tuple[Outcome, ...]:
    """Every question under every condition; the last question fails."""
    return tuple(
        Outcome(
            question=f"q{i}",
            condition=condition,
            state="failed" if i == n - 1 else "answered",
            right=right(i, condition),
            chance=1 / 3,
        )
        for i, condition in product(range(n), conditions)
    )


def findings(
    name: str, tables: Sequence[Table], models: Sequence[str] = ("tiny",), printed: Sequence[str] = ()
) -> Findings:
    """As `findings_of` makes them; the second run is not finished."""
    return Findings(
        experiment=name,
        about=f"What is asked of {name}?",
        sources=tuple(RunSummary(model, FACTS, i != 1, f"own {HOSTILE}") for i, model in enumerate(models)),
        tables=tuple(tables),
        conclusions=(f"Shown for {name}: a difference of 5 points.", "Not shown: another."),
        published=tuple(load_published()[each] for each in printed),
    )


def _placed(arms: Sequence[str], ks: Sequence[int], places: Sequence[int], bounds: Sequence[str]) -> list[Condition]:
    read: list[Condition] = [{"arm": arm, "k": k, "place": p, "repeat": 0} for k, arm, p in product(ks, arms, places)]
    alone: list[Condition] = [{"arm": arm, "repeat": 0} for arm in bounds]
    return read + alone


def _in_the_middle(i: int, condition: Condition) -> bool:
    lost = condition["arm"] == "rag" and condition.get("place") not in (0, 100)
    return i % 4 != 0 if not lost else i % 3 == 0


@cache
def by_position() -> Findings:
    asked = _placed(("rag", "brief-context"), (8, 16), (0, 50, 100), ("oracle", "closed-book"))
    runs = {"tiny": outcomes(asked, _in_the_middle), HOSTILE: outcomes(asked, _in_the_middle)}
    return findings("positions", positions.tables(runs), tuple(runs), positions.EXPERIMENT.published)


@cache
def by_length() -> Findings:
    asked = _placed(("rag",), (1, 2, 4, 8), (0, 100), ("oracle", "closed-book"))
    runs = {"tiny": outcomes(asked, lambda i, at: i % (1 + int(at.get("k", 2))) != 0)}
    return findings("context-length", context_length.tables(runs))


@cache
def by_distractors() -> Findings:
    asked: list[Condition] = [
        {"arm": "rag", "k": 16, "place": 50, "distractors": each, "repeat": 0} for each in ("retrieved", "random")
    ]
    asked += [{"arm": arm, "repeat": 0} for arm in ("oracle", "chain-of-thought")]
    runs = {"tiny": outcomes(asked, lambda i, at: i % 2 == 0 or at.get("distractors") == "random")}
    return findings("attention-bias", attention_bias.tables(runs))


@cache
def integrated() -> Findings:
    sets = ("mirage/pubmedqa", "mirage/bioasq")
    asked: list[Condition] = [
        {"dataset": dataset, "arm": arm, "repeat": 0, **({} if arm == integration.COT else {"k": 16})}
        for dataset, arm in product(sets, (integration.COT, integration.RAG, integration.BRIEF))
    ]
    runs = {"tiny": outcomes(asked, lambda i, at: i % 3 == 0 or at["arm"] == integration.BRIEF)}
    return findings("integration", integration.tables(runs), printed=integration.EXPERIMENT.published)


@cache
def in_conflict() -> Findings:
    cases, rival = [], []
    for i, place in product(range(N), (0, 100)):
        condition: Condition = {"arm": "brief-context", "k": 8, "place": place, "repeat": 0}
        parts = tuple(
            conflicts.PartialChoice(choice, 1 + i % 2, 20200101, choice == "A") for choice in "AB"[: 1 + i % 2]
        )
        outcome = Outcome(question=f"q{i}", condition=condition, state="answered", right=i % 4 != 0, chance=0.5)
        cases.append(
            conflicts.PartitionedCase(
                outcome=outcome, final="A", gold="A", stated=parts, undecided=0, nothing=1, unparsed=0, failed=0
            )
        )
        rival.append(
            Outcome(
                question=f"q{i}", condition={**condition, "arm": "rag"}, state="answered", right=i % 3 == 0, chance=0.5
            )
        )
    by = ("k", "place")
    tables = (
        conflicts.conflicts_table(cases, rival, by, source="tiny"),
        conflicts.parts_table(cases, by, source="tiny"),
        conflicts.rules_table(cases, source="tiny"),
    )
    return findings("conflicts", tables, printed=("conflicts", "conflicts-totals"))


@cache
def costing() -> Findings:
    cases = list(_spent())
    tables = (token_costs.measured_table(cases, "tiny"), token_costs.prediction_table(cases, source="tiny"))
    return findings("cost", tables, printed=("cost",))


def _spent() -> Iterator[token_costs.CaseCost]:
    none = token_costs.TokenTotals(0, 0, 0)
    for i in range(N):
        one = token_costs.TokenTotals(2_800 + i, 150, 1)
        for arm, asked, maps, reduce in (
            ("rag", one, none, none),
            (
                "brief-context",
                none,
                token_costs.TokenTotals(3_700 + i, 300, 4, 600),
                token_costs.TokenTotals(700, 120, 1),
            ),
            ("closed-book", token_costs.TokenTotals(280, 120, 1), none, none),
        ):
            condition: Condition = {"arm": arm} if arm == "closed-book" else {"arm": arm, "k": 8}
            yield token_costs.CaseCost(
                question=f"q{i}",
                condition=condition,
                arm=arm,
                single=asked,
                maps=maps,
                reduce=reduce,
                seconds=1.5,
                cost=None,
            )


@cache
def foreseen() -> Findings:
    letters = "abcdefgh"
    recorded = []
    for i in range(40):
        read = letters[i % 3 :] + letters[: i % 3]
        words = read if i % 4 else read[::-1]
        gold = (read[5 if i % 4 == 0 else i % 3],)
        dense = tuple((f"{name}#0", 1 / rank) for rank, name in enumerate(read, 1))
        bm25 = tuple((f"{name}#0", 2 / rank) for rank, name in enumerate(words, 1))
        recorded.append(
            recorded_rankings.QuestionRankings(
                key=f"q{i}",
                dataset="own",
                dense=dense,
                bm25=bm25,
                reranked=None,
                read=tuple(f"{name}#0" for name in read),
                gold=gold,
                held=gold,
            )
        )
    k, definition = 8, preflight_rules.BEYOND_3
    tables = (
        preflight.places_table(recorded, k),
        preflight.rules_table(recorded, k=k),
        preflight_calibration.signals_table(recorded, definition, k),
        preflight_calibration.calibration_table(preflight_calibration.calibrate(recorded, definition, depth=k), k),
        preflight.curve_table(recorded, Signal("overlap", 3), definition, k),
        preflight.guards_table({"none": recorded, "source-hidden": recorded}, k=k),
    )
    return findings("preflight", tables, printed=("preflight", "preflight-rates"))


def everything() -> tuple[Findings, ...]:
    return (
        by_position(),
        integrated(),
        in_conflict(),
        by_length(),
        foreseen(),
        by_distractors(),
        costing(),
    )
