"""What BriefContext costs against plain RAG: the papers' equations 4 and 5, and what runs really took.

Equation 5 leaves out what the reduce call reads (errata B5); with it, with prompts' beginnings that an endpoint has
computed before, and with the questions that preflight answers from one prompt, it is a prediction that can be held
against records. From shapes and records to tables; calls nothing. Tokens, seconds and US dollars are a question's,
asked once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from epicrisis.answers import ModelCalled, Usage
from epicrisis.evaluation.analysis.statistics import Mean, estimate_mean
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.runs.case import Condition, canonical_condition
from epicrisis.evaluation.runs.record import RunRecord

Equation: TypeAlias = Literal["published", "corrected"]

RAG, BRIEF_CONTEXT, CLOSED_BOOK = "rag", "brief-context", "closed-book"
CHECKED = "brief-context+preflight"


@dataclass(frozen=True, slots=True)
class TokenTotals:
    """Of one question, all calls together."""

    input: float
    output: float
    calls: float
    cached: float = 0.0
    """Those of the input that the endpoint had computed before."""

    def __add__(self, other: TokenTotals) -> TokenTotals:
        return TokenTotals(
            self.input + other.input, self.output + other.output, self.calls + other.calls, self.cached + other.cached
        )

    def __mul__(self, share: float) -> TokenTotals:
        return TokenTotals(self.input * share, self.output * share, self.calls * share, self.cached * share)


@dataclass(frozen=True, slots=True)
class Shape:
    """A question's prompts, in tokens, in the papers' terms."""

    context: float
    """All passages, N_con."""
    instruction: float
    """Instruction and question of one prompt, N_ins."""
    output: float
    """Of one call, N_out."""
    parts: float
    """Map calls, M."""


def rag(shape: Shape) -> TokenTotals:
    """Equation 4."""
    return TokenTotals(shape.context + shape.instruction, shape.output, 1)


def map_reduce(shape: Shape, equation: Equation = "corrected", *, prefix_cache: bool = False) -> TokenTotals:
    """Equation 5; `corrected` adds the reduce call's input: its instruction, the question, and M findings.

    With `prefix_cache` the map calls after the first find their common beginning computed.
    """
    reads = shape.instruction + shape.parts * shape.output if equation == "corrected" else 0.0
    return TokenTotals(
        input=shape.context + shape.parts * shape.instruction + reads,
        output=(shape.parts + 1) * shape.output,
        calls=shape.parts + 1,
        cached=max(shape.parts - 1, 0) * shape.instruction if prefix_cache else 0.0,
    )


def with_preflight(
    shape: Shape, skipped: float, equation: Equation = "corrected", *, prefix_cache: bool = False
) -> TokenTotals:
    """The mean where this share of the questions, 0 to 1, is answered from one prompt."""
    return rag(shape) * skipped + map_reduce(shape, equation, prefix_cache=prefix_cache) * (1 - skipped)


# -- measured ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CaseCost:
    """What one case took, by the calls in its trace."""

    question: str
    """`Question.key`: the cases of one question are one cluster."""
    condition: Condition
    arm: str
    one: TokenTotals
    """The only call of plain RAG, of closed book, and of a question that preflight answered from one prompt."""
    maps: TokenTotals
    reduce: TokenTotals
    seconds: float
    """Summed over the calls; those made at once add up to more than the wall clock."""
    cost: float | None
    skipped: bool = False
    """Read in one prompt by BriefContext, as its preflight said."""
    counted: bool = True
    """Every token of it is known: no call failed, none came out of the cache."""
    again: bool = False
    """A reply could not be read and was asked for once more."""

    @property
    def plain(self) -> bool:
        """Calls made once each, as the equations have it."""
        return self.counted and not self.again and self.total.calls > 0

    @property
    def total(self) -> TokenTotals:
        return self.one + self.maps + self.reduce

    @property
    def k(self) -> Cell:
        """Passages read, where the run varies them."""
        return self.condition.get("k")

    @property
    def twin(self) -> tuple[str, str]:
        """Alike in the two arms of a pair."""
        return self.question, canonical_condition(
            {name: value for name, value in self.condition.items() if name != "arm"}
        )


def spent(records: Iterable[RunRecord]) -> tuple[CaseCost, ...]:
    """What each case took, in their order."""
    return tuple(_spent(record) for record in records)


def _spent(record: RunRecord) -> CaseCost:
    answer, condition = record.answer, record.condition
    calls = [event for event in answer.trace if isinstance(event, ModelCalled)]
    stages = {"map": TokenTotals(0, 0, 0), "reduce": TokenTotals(0, 0, 0), "one": TokenTotals(0, 0, 0)}
    names = [call.stage.partition(" ")[0] for call in calls]
    for name, call in zip(names, calls, strict=True):
        stages[name if name in stages else "one"] += _tokens(call.usage)
    usage, arm = answer.usage, record.arm
    return CaseCost(
        question=record.question_key,
        condition=condition,
        arm=arm,
        one=stages["one"],
        maps=stages["map"],
        reduce=stages["reduce"],
        seconds=usage.seconds,
        cost=usage.cost,
        skipped=arm.startswith(BRIEF_CONTEXT) and bool(calls) and "map" not in names,
        counted=answer.state != "failed" and not (usage.failed_calls or usage.uncounted_calls or usage.replayed_calls),
        again=any(call.sample for call in calls),
    )


def _tokens(usage: Usage) -> TokenTotals:
    return TokenTotals(usage.prompt_tokens, usage.completion_tokens, usage.calls, usage.cached_tokens)


# -- tables -----------------------------------------------------------------------------------------------------------


def measured_table(cases: Sequence[CaseCost], source: str = "") -> Table:
    """What each arm took a question, and how much more than plain RAG, on the cases that both have counted."""
    rows: list[tuple[Cell, ...]] = []
    for arm, k in dict.fromkeys((case.arm, case.k) for case in cases):
        mine = [case for case in cases if (case.arm, case.k) == (arm, k)]
        counted = [case for case in mine if case.counted]
        costs = [case.cost for case in counted]
        rows.append(
            (
                arm,
                k,
                len(mine),
                len(mine) - len(counted),
                sum(case.again for case in counted),
                sum(case.skipped for case in mine),
                *(_mean(counted, [getattr(case.total, name) for case in counted]) for name in _TOKENS),
                _mean(counted, [case.seconds for case in counted]),
                _mean(counted, costs) if any(cost is not None for cost in costs) else None,
                None if arm == RAG else _more([(case, other) for case, other in _twins(cases, arm) if case.k == k]),
            )
        )
    columns = (
        "arm",
        "k",
        "cases",
        "not counted",
        "asked again",
        "from one prompt",
        *_TOKENS,
        "seconds",
        "US dollars",
        "input beyond RAG's",
    )
    told = (
        "Means a case with 95 % intervals (bootstrap over questions), of the cases whose calls are all counted: none "
        "failed and none came out of the cache. Tokens; seconds are summed over calls. Unknown prices are none, never "
        "0.",
        "Asked again: of the counted, those with a reply that could not be read and was asked for once more, which is "
        "part of what they took. From one prompt: preflight found the rankings to agree.",
    )
    return Table("What it took", columns, tuple(rows), told, source)


_TOKENS = ("calls", "input", "cached", "output")


def _mean(cases: Sequence[CaseCost], taken: Sequence[float | None]) -> Mean:
    return estimate_mean(taken, [case.question for case in cases], shares=False)


def _more(twins: Sequence[tuple[CaseCost, CaseCost]]) -> Mean | None:
    if not twins:
        return None
    return _mean([case for case, _ in twins], [case.total.input - other.total.input for case, other in twins])


def _twins(cases: Iterable[CaseCost], arm: str = BRIEF_CONTEXT) -> list[tuple[CaseCost, CaseCost]]:
    """The arm's counted cases, each with plain RAG's of the same question and condition."""
    counted = [case for case in cases if case.counted]
    rags = {case.twin: case for case in counted if case.arm == RAG}
    return [(case, rags[case.twin]) for case in counted if case.arm == arm and case.twin in rags]


def times(cases: Iterable[CaseCost], k: Cell) -> float | None:
    """Tokens, in and out, of BriefContext to those of plain RAG at this k, on the cases that both have counted; `None`
    where there is none."""
    twins = [pair for pair in _twins(cases) if pair[0].k == k]
    ours, theirs = (sum(pair[i].total.input + pair[i].total.output for pair in twins) for i in (0, 1))
    return ours / theirs if theirs else None


def prediction_table(cases: Sequence[CaseCost], source: str = "") -> Table:
    """The equations, fed with plain RAG's measured prompts, against what BriefContext took, for each k: of the cases
    that both answered by plain calls."""
    closed = [case for case in cases if case.arm == CLOSED_BOOK and case.plain]
    rows: list[tuple[Cell, ...]] = []
    shapes, lacking = [], []
    for k in dict.fromkeys(case.k for case in cases if case.arm in (BRIEF_CONTEXT, RAG)):
        twins = [(ours, rival) for ours, rival in _twins(cases) if ours.k == k and ours.plain and rival.plain]
        ours, rivals = [case for case, _ in twins], [case for _, case in twins]
        if not closed or not any(not case.skipped for case in ours):
            lacking.append(f"{'' if k is None else f'k = {k}: '}{_LACKING}")
            continue
        shape = shape_of(ours, rivals, closed)
        same = {case.twin for case in rivals}
        checked = [case for case, _ in _twins(cases, CHECKED) if case.plain and case.twin in same]
        rows += _predicted(k, shape, ours, rivals, closed, checked or ours)
        shapes.append(
            f"{len(twins)} cases, {shape.context:.0f} tokens of passages, {shape.instruction:.0f} of instruction and "
            f"question, {shape.output:.0f} of output a call, {shape.parts:.1f} parts"
        )
    told = (f"Of plain calls (each made once, all counted, no reply asked for again): {'; '.join(shapes)}.", *_TOLD)
    columns = ("k", "what", *_TOKENS, "input to RAG's", "output to RAG's", "seconds", "US dollars")
    return Table("Predicted and measured", columns, tuple(rows), (*(told if rows else ()), *lacking), source)


_TOLD = (
    "Predicted from plain RAG's and closed book's prompts alone: the prompts of map and reduce are others, and so are "
    "their replies. Means a case; ratios are to what RAG took. Intervals are 95 %, of what was measured, by a "
    "bootstrap over questions.",
    "Predicted seconds and dollars: what a fresh token, a cached one and one of the reply took in plain RAG's and "
    "closed book's calls, by least squares; nothing is cached but where it says so.",
    "Cached: predicted is what the map calls of a question share, measured whatever a prompt shares with any call "
    "before it, so also what cases of one question share.",
)
_LACKING = (
    f"no prediction, for there is no case that {RAG} and {BRIEF_CONTEXT} (in parts) both answered by plain calls, or "
    f"none of {CLOSED_BOOK}: ask those arms too, with --cache off."
)


def shape_of(ours: Sequence[CaseCost], rivals: Sequence[CaseCost], closed: Sequence[CaseCost]) -> Shape:
    """The mean shape of these cases' questions: from plain RAG's prompts and closed book's (which are instruction and
    question alone), and from the number of BriefContext's map calls. None of them is empty."""
    instruction = fmean(case.one.input for case in closed)
    return Shape(
        context=fmean(case.one.input for case in rivals) - instruction,
        instruction=instruction,
        output=fmean(case.one.output for case in rivals),
        parts=fmean(case.maps.calls for case in ours if not case.skipped),
    )


def _predicted(
    k: Cell,
    shape: Shape,
    ours: Sequence[CaseCost],
    rivals: Sequence[CaseCost],
    closed: Sequence[CaseCost],
    checked: Sequence[CaseCost],
) -> list[tuple[Cell, ...]]:
    """The rows of one k, in pairs of what was predicted and what came; `checked`: cases with the preflight check."""
    rates = [_rates([*rivals, *closed], name) for name in _TAKEN]
    base = _summed(rivals)

    def predicted(what: str, tokens: TokenTotals) -> tuple[Cell, ...]:
        taken = (None if rate is None else float(rate @ _kinds(tokens)) for rate in rates)
        return (k, what, *(getattr(tokens, name) for name in _TOKENS), *_times(tokens, base), *taken)

    def measured(what: str, cases: Sequence[CaseCost]) -> tuple[Cell, ...]:
        tokens = (_mean(cases, [getattr(case.total, name) for case in cases]) for name in _TOKENS)
        taken = (_mean(cases, [getattr(case, name) for case in cases]) for name in _TAKEN)
        known = (None if each.unscored else each for each in taken)
        return (k, f"measured: {what}", *tokens, *_times(_summed(cases), base), *known)

    rows = [
        predicted("equation 4: RAG", rag(shape)),
        measured("RAG", rivals),
        predicted("equation 5 as printed", map_reduce(shape, "published")),
        predicted("with the reduce call's input", map_reduce(shape)),
        predicted("and a prefix cache", map_reduce(shape, prefix_cache=True)),
        measured("read in parts", [case for case in ours if not case.skipped]),
    ]
    if skipped := fmean(case.skipped for case in checked):
        told = f"and preflight, {100 * skipped:.1f} % from one prompt"
        rows += [
            predicted(told, with_preflight(shape, skipped, prefix_cache=True)),
            measured("with preflight", checked),
        ]
    return rows


_TAKEN = ("seconds", "cost")


def _summed(cases: Sequence[CaseCost]) -> TokenTotals:
    """The mean of the cases."""
    return sum((case.total for case in cases), TokenTotals(0, 0, 0)) * (1 / len(cases))


def _times(tokens: TokenTotals, base: TokenTotals) -> tuple[float, float]:
    """How many times the base's tokens, in and out."""
    return tokens.input / base.input, tokens.output / base.output


def _kinds(tokens: TokenTotals) -> npt.NDArray[np.float64]:
    """(fresh, cached, of the reply)."""
    return np.array([tokens.input - tokens.cached, tokens.cached, tokens.output])


def _rates(cases: Sequence[CaseCost], name: str) -> npt.NDArray[np.float64] | None:
    """What a token of each kind took of seconds or dollars, by least squares; `None` where the cases do not tell."""
    taken = [getattr(case, name) for case in cases]
    if any(each is None for each in taken):
        return None
    fresh, cached, output = np.array([_kinds(case.total) for case in cases]).T
    columns = [fresh, cached, output] if cached.any() else [fresh, output]
    rates, _, rank, _ = np.linalg.lstsq(np.stack(columns, axis=1), np.array(taken), rcond=None)
    if rank < len(columns):
        return None
    # Where nothing was cached, a cached token is taken to be as dear as a fresh one.
    found: npt.NDArray[np.float64] = rates.clip(min=0)[[0, 1, 2] if cached.any() else [0, 0, 1]]
    return found
