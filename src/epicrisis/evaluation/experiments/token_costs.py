"""The cost of BriefContext against plain RAG: the papers' equations 4 and 5, and the calls of finished runs.

Equation 5 omits the input of the reduce call (errata B5). With that input, with prompt prefixes that an endpoint has
cached, and with the questions that preflight answers from one prompt, it is a prediction that records can test. Tokens,
seconds and US dollars are those of one question, asked once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import filterfalse
from operator import attrgetter, sub
from statistics import fmean
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from epicrisis.core.answers import ModelCalled
from epicrisis.core.printable import count_noun
from epicrisis.evaluation.analysis.grouping import group_by
from epicrisis.evaluation.analysis.statistics import Mean, estimate_mean
from epicrisis.evaluation.analysis.table import Cell, Table, points_plot
from epicrisis.evaluation.experiments.arms import condition_order, pair_key
from epicrisis.evaluation.experiments.definition import Runs
from epicrisis.evaluation.experiments.outcome_groups import add_notes
from epicrisis.evaluation.runs.recorded_run import RecordedRun
from epicrisis.pipeline.recording.answer_record import RunRecord
from epicrisis.pipeline.recording.case import Condition

Equation: TypeAlias = Literal["published", "corrected"]

RAG, BRIEF_CONTEXT, CLOSED_BOOK = "rag", "brief-context", "closed-book"
CHECKED = "brief-context+preflight"


@dataclass(frozen=True, slots=True)
class TokenTotals:
    """Tokens and calls of one question, all calls together."""

    input: float
    output: float
    calls: float
    cached: float = 0.0
    """Input tokens that the endpoint had cached."""

    def __add__(self, other: TokenTotals) -> TokenTotals:
        return TokenTotals(
            self.input + other.input, self.output + other.output, self.calls + other.calls, self.cached + other.cached
        )

    def __mul__(self, share: float) -> TokenTotals:
        return TokenTotals(self.input * share, self.output * share, self.calls * share, self.cached * share)


NO_TOKENS = TokenTotals(0, 0, 0)


@dataclass(frozen=True, slots=True)
class PromptShape:
    """Size of a question's prompts, in tokens, in the papers' terms."""

    context: float
    """All passages, N_con."""
    instruction: float
    """Instruction and question of one prompt, N_ins."""
    output: float
    """Reply of one call, N_out."""
    parts: float
    """Number of map calls, M."""


def rag_tokens(shape: PromptShape) -> TokenTotals:
    """Return the tokens of plain RAG by equation 4."""
    return TokenTotals(shape.context + shape.instruction, shape.output, 1)


def map_reduce_tokens(
    shape: PromptShape, equation: Equation = "corrected", *, prefix_cache: bool = False
) -> TokenTotals:
    """Return the tokens of map-reduce by equation 5.

    `corrected` adds the input of the reduce call: its instruction, the question, and M findings. With `prefix_cache`
    the map calls after the first find their common prefix cached.
    """
    reduce_input = shape.instruction + shape.parts * shape.output if equation == "corrected" else 0.0
    return TokenTotals(
        input=shape.context + shape.parts * shape.instruction + reduce_input,
        output=(shape.parts + 1) * shape.output,
        calls=shape.parts + 1,
        cached=max(shape.parts - 1, 0) * shape.instruction if prefix_cache else 0.0,
    )


def preflight_tokens(
    shape: PromptShape, skipped: float, equation: Equation = "corrected", *, prefix_cache: bool = False
) -> TokenTotals:
    """Return the mean tokens where the share `skipped` (0 to 1) of the questions is answered from one prompt."""
    return rag_tokens(shape) * skipped + map_reduce_tokens(shape, equation, prefix_cache=prefix_cache) * (1 - skipped)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseCost:
    """Tokens, seconds and money of one case, by the calls in its trace."""

    question: str
    """`Question.key`: the cases of one question are one cluster."""
    condition: Condition
    arm: str
    single: TokenTotals
    """The only call of plain RAG, of closed book, and of a question that preflight answered from one prompt."""
    maps: TokenTotals
    reduce: TokenTotals
    seconds: float
    """Sum over the calls; concurrent calls add up to more than the wall clock."""
    cost: float | None
    skipped: bool = False
    """BriefContext read the question in one prompt, by its preflight check."""
    counted: bool = True
    """All of its tokens are known: no call failed, and none was answered from the cache."""
    repeated: bool = False
    """A reply could not be parsed and was requested again."""

    @property
    def plain(self) -> bool:
        """Whether each call was made once, as the equations assume."""
        return self.counted and not self.repeated and self.total.calls > 0

    @property
    def total(self) -> TokenTotals:
        """Tokens of all stages."""
        return self.single + self.maps + self.reduce

    @property
    def k(self) -> Cell:
        """Number of passages, where the run varies it."""
        return self.condition.get("k")


def case_costs(records: Iterable[RunRecord]) -> tuple[CaseCost, ...]:
    """Return the cost of each case, in the order of the records."""
    return tuple(map(_read_cost, records))


def _read_cost(record: RunRecord) -> CaseCost:
    answer, usage = record.answer, record.answer.usage
    calls: Counter[str] = Counter()
    stages: dict[str, TokenTotals] = dict.fromkeys(("map", "reduce", "single"), NO_TOKENS)
    repeated = False
    for event in answer.trace:
        if isinstance(event, ModelCalled):
            stage = event.stage.partition(" ")[0]
            calls[stage] += 1
            used = event.usage
            totals = TokenTotals(used.prompt_tokens, used.completion_tokens, used.calls, used.cached_tokens)
            stages[stage if stage in ("map", "reduce") else "single"] += totals
            repeated |= bool(event.sample)
    incomplete = (usage.failed_calls, usage.uncounted_calls, usage.replayed_calls)
    return CaseCost(
        question=record.question_key,
        condition=record.condition,
        arm=record.arm,
        single=stages["single"],
        maps=stages["map"],
        reduce=stages["reduce"],
        seconds=usage.seconds,
        cost=usage.cost,
        skipped=record.arm.startswith(BRIEF_CONTEXT) and bool(calls) and "map" not in calls,
        counted=answer.state != "failed" and not any(incomplete),
        repeated=repeated,
    )


def read_costs(run: RecordedRun) -> list[CaseCost]:
    """Read the costs of a run's cases, by arm, condition and question."""
    return sorted(case_costs(run.records()), key=lambda case: (condition_order(case.condition), case.question))


INPUT_PLOT = points_plot("Input tokens a question", "input", along=("arm",), series=("arm",))
_TOKENS = ("calls", "input", "cached", "output")
_CHARGES = ("seconds", "cost")
_MEASURED_NOTES = (
    "Means per case with 95 % intervals (bootstrap over questions), over the cases without failed calls and cached "
    "replies. Seconds are summed over calls. Unknown prices are shown as unknown, not as 0.",
    "Asked again: of the counted, those with a reply that could not be parsed and was requested again, which is "
    "part of their cost. From one prompt: preflight found that the rankings agree.",
)
_PREDICTION_NOTES = (
    "Predictions use only the prompts of plain RAG and closed book; the prompts and replies of map and reduce differ "
    "from these. Means per case; ratios are to RAG. Intervals of measured values are 95 %, by a bootstrap over "
    "questions.",
    "Predicted seconds and dollars: the rate of a fresh token, a cached one and one of the reply in plain RAG's and "
    "closed book's calls, by least squares; nothing is cached unless stated.",
    "Cached: the prediction counts what the map calls of a question share; the measurement counts what a prompt shares "
    "with any earlier call, so also what cases of one question share.",
)
_LACKING = (
    f"no prediction, for there is no case that {RAG} and {BRIEF_CONTEXT} (in parts) both answered by plain calls, or "
    f"none of {CLOSED_BOOK}: ask those arms too, with --setting cache.mode=off."
)


def tables(runs: Runs, remarks: Sequence[str]) -> tuple[Table, ...]:
    """Build the measured and the predicted costs of each run; the remarks are notes under each table."""
    built: list[Table] = []
    for run in runs:
        cases = read_costs(run)
        built += [measured_table(cases, run.name), prediction_table(cases, run.name)]
    return add_notes(built, remarks)


def measured_table(cases: Sequence[CaseCost], source: str = "") -> Table:
    """Build the table of each arm's cost per question, and its input beyond plain RAG's where both are counted."""
    rows: list[tuple[Cell, ...]] = []
    for (arm, k), of_arm in group_by(cases, attrgetter("arm", "k")).items():
        counted = [item for item in of_arm if item.counted]
        flags = sum(item.repeated for item in counted), sum(item.skipped for item in of_arm)
        seconds, cost = _means(counted, _CHARGES)
        charges = seconds, None if cost.unscored == len(counted) else cost
        extra = None
        ours, rivals = ([], []) if arm == RAG else _twins(cases, arm, k)
        if ours:
            inputs = (case.total.input for case in ours), (case.total.input for case in rivals)
            extra = estimate_mean(list(map(sub, *inputs)), [case.question for case in ours], shares=False)
        counts = (len(of_arm), len(of_arm) - len(counted), *flags)
        rows.append((arm, k, *counts, *_means(counted, _TOTALS), *charges, extra))
    counts_of = ("cases", "not counted", "asked again", "from one prompt")
    columns = ("arm", "k", *counts_of, *_TOKENS, "seconds", "US dollars", "input beyond RAG's")
    return Table("What it took", columns, tuple(rows), _MEASURED_NOTES, source)


_TOTALS = tuple(f"total.{token}" for token in _TOKENS)


def _means(cases: Sequence[CaseCost], names: Iterable[str]) -> list[Mean]:
    """Return the means of attributes (`seconds`, `total.input`) over the cases, clustered by question."""
    questions = [case.question for case in cases]
    return [estimate_mean(list(map(attrgetter(name), cases)), questions, shares=False) for name in names]


def _twins(
    cases: Iterable[CaseCost], arm: str, k: Cell, flag: Literal["counted", "plain"] = "counted"
) -> tuple[list[CaseCost], list[CaseCost]]:
    """Return the arm's cases at this k, and plain RAG's of the same question and condition, if both have the flag."""
    usable = group_by(filter(attrgetter(flag), cases), attrgetter("arm", "k"))
    rivals = {_pair(case): case for case in usable.get((RAG, k), ())}
    pairs: tuple[list[CaseCost], list[CaseCost]] = [], []
    for case in usable.get((arm, k), ()):
        rival = rivals.get(_pair(case))
        if rival is not None:
            pairs[0].append(case)
            pairs[1].append(rival)
    return pairs


def _pair(case: CaseCost) -> tuple[str, str]:
    return pair_key(case.question, case.condition)


def token_ratio(cases: Iterable[CaseCost], k: Cell) -> float | None:
    """Return BriefContext's tokens, in and out, divided by plain RAG's at this k, where both are counted.

    Returns None without such cases.
    """
    pairs = _twins(cases, BRIEF_CONTEXT, k)
    ours, theirs = (sum((case.total.input + case.total.output for case in part), 0.0) for part in pairs)
    return ours / theirs if theirs else None


def prediction_table(cases: Sequence[CaseCost], source: str = "") -> Table:
    """Build the table of the equations, fed with plain RAG's prompts, against BriefContext's cost, for each k.

    It covers the cases that both answered by plain calls.
    """
    closed = [item for item in group_by(cases, attrgetter("arm")).get(CLOSED_BOOK, ()) if item.plain]
    rows: list[tuple[Cell, ...]] = []
    shapes, lacking = [], []
    for k in dict.fromkeys(case.k for case in cases if case.arm in (BRIEF_CONTEXT, RAG)):
        ours, rivals = _twins(cases, BRIEF_CONTEXT, k, "plain")
        if not closed or all(case.skipped for case in ours):
            lacking.append(_LACKING if k is None else f"k = {k}: {_LACKING}")
            continue
        shape = mean_shape(ours, rivals, closed)
        # The cases with the preflight check, of the same questions.
        rival_pairs = set(map(_pair, rivals))
        compared = [case for case in _twins(cases, CHECKED, k, "plain")[0] if _pair(case) in rival_pairs]
        rows += _predicted_rows(k, shape, ours, rivals, closed, compared or ours)
        shapes.append(
            f"{count_noun(len(ours), 'case')}, {shape.context:.0f} tokens of passages, {shape.instruction:.0f} of "
            "instruction and "
            f"question, {shape.output:.0f} of output a call, {shape.parts:.1f} parts"
        )
    notes: tuple[str, ...] = tuple(lacking)
    if rows:
        about = f"Of plain calls (each made once, all counted, no reply requested again): {'; '.join(shapes)}."
        notes = (about, *_PREDICTION_NOTES, *lacking)
    columns = ("k", "what", *_TOKENS, "input to RAG's", "output to RAG's", "seconds", "US dollars")
    return Table("Predicted and measured", columns, tuple(rows), notes, source)


def mean_shape(ours: Sequence[CaseCost], rivals: Sequence[CaseCost], closed: Sequence[CaseCost]) -> PromptShape:
    """Return the mean shape of these cases' questions. None of the three may be empty.

    Plain RAG's and closed book's prompts (instruction and question alone) give the tokens, BriefContext's map calls the
    parts.
    """
    instruction = fmean(item.single.input for item in closed)
    context = fmean(rival.single.input for rival in rivals) - instruction
    parts = fmean(case.maps.calls for case in ours if not case.skipped)
    return PromptShape(context, instruction, fmean(rival.single.output for rival in rivals), parts)


def _predicted_rows(
    k: Cell,
    shape: PromptShape,
    ours: Sequence[CaseCost],
    rivals: Sequence[CaseCost],
    closed: Sequence[CaseCost],
    checked: Sequence[CaseCost],
) -> list[tuple[Cell, ...]]:
    """Return the rows of one k, each prediction before its measurement; `checked`: cases with the preflight check."""
    rates = [_rates([*rivals, *closed], name) for name in _CHARGES]
    base = _mean_tokens(rivals)

    def row(what: str, cells: Iterable[Cell], tokens: TokenTotals, charges: Iterable[Cell]) -> tuple[Cell, ...]:
        return (k, what, *cells, tokens.input / base.input, tokens.output / base.output, *charges)

    def predict(what: str, tokens: TokenTotals) -> tuple[Cell, ...]:
        charges = [None if rate is None else float(rate @ _token_kinds(tokens)) for rate in rates]
        return row(what, attrgetter(*_TOKENS)(tokens), tokens, charges)

    def measure(what: str, cases: Sequence[CaseCost]) -> tuple[Cell, ...]:
        charges = [None if mean.unscored else mean for mean in _means(cases, _CHARGES)]
        return row(f"measured: {what}", _means(cases, _TOTALS), _mean_tokens(cases), charges)

    rows = [
        predict("equation 4: RAG", rag_tokens(shape)),
        measure("RAG", rivals),
        predict("equation 5 as printed", map_reduce_tokens(shape, "published")),
        predict("with the reduce call's input", map_reduce_tokens(shape)),
        predict("and a prefix cache", map_reduce_tokens(shape, prefix_cache=True)),
        measure("read in parts", list(filterfalse(attrgetter("skipped"), ours))),
    ]
    skipped = fmean(item.skipped for item in checked)
    if skipped:
        what = f"and preflight, {100 * skipped:.1f} % from one prompt"
        rows.append(predict(what, preflight_tokens(shape, skipped, prefix_cache=True)))
        rows.append(measure("with preflight", checked))
    return rows


def _mean_tokens(cases: Sequence[CaseCost]) -> TokenTotals:
    return sum((case.total for case in cases), NO_TOKENS) * (1 / len(cases))


def _token_kinds(tokens: TokenTotals) -> npt.NDArray[np.float64]:
    """Return the tokens as (fresh, cached, output)."""
    return np.array([tokens.input - tokens.cached, tokens.cached, tokens.output])


def _rates(cases: Sequence[CaseCost], name: str) -> npt.NDArray[np.float64] | None:
    """Return the seconds or dollars of a token of each kind, by least squares; None where the cases cannot tell."""
    charges = list(map(attrgetter(name), cases))
    if None in charges:
        return None
    fresh, cached, output = np.array([_token_kinds(case.total) for case in cases]).T
    columns = [fresh, cached, output] if cached.any() else [fresh, output]
    rates, _, rank, _ = np.linalg.lstsq(np.stack(columns, axis=1), np.array(charges), rcond=None)
    if rank < len(columns):
        return None
    # Where nothing was cached, a cached token is assumed to cost as much as a fresh one.
    by_kind: npt.NDArray[np.float64] = rates.clip(min=0)[[0, 1, 2] if cached.any() else [0, 0, 1]]
    return by_kind
