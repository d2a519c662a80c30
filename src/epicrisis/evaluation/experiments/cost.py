"""What BriefContext costs against plain RAG: the papers' equations 4 and 5, and what runs really took.

Equation 5 leaves out what the reduce call reads (errata B5); with it, with prompts' beginnings that an endpoint has
computed before, and with the questions that preflight answers from one prompt, it is a prediction that can be held
against records. From shapes and records to tables; calls nothing. Tokens, seconds and US dollars are a question's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal, TypeAlias

from epicrisis.errors import InputError
from epicrisis.evaluation.runs.cases import Condition, canonical
from epicrisis.evaluation.runs.records import Record
from epicrisis.evaluation.statistics import Difference, Mean, mean_of, paired_difference
from epicrisis.evaluation.tables.table import Cell, Table
from epicrisis.settings import Price

Equation: TypeAlias = Literal["published", "corrected"]

RAG, BRIEF_CONTEXT, CLOSED_BOOK = "rag", "brief-context", "closed-book"


@dataclass(frozen=True, slots=True)
class Tokens:
    """Of one question, all calls together."""

    input: float
    output: float
    calls: float
    cached: float = 0.0
    """Those of the input that the endpoint had computed before."""

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(
            self.input + other.input, self.output + other.output, self.calls + other.calls, self.cached + other.cached
        )

    def __mul__(self, share: float) -> Tokens:
        return Tokens(self.input * share, self.output * share, self.calls * share, self.cached * share)

    def cost(self, price: Price) -> float:
        """US dollars; cached tokens cost what others do where they have no price of their own."""
        cached = price.input if price.cached is None else price.cached
        return (
            (self.input - self.cached) * price.input + self.cached * cached + self.output * price.output
        ) / 1_000_000


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


def rag(shape: Shape) -> Tokens:
    """Equation 4."""
    return Tokens(shape.context + shape.instruction, shape.output, 1)


def map_reduce(shape: Shape, equation: Equation = "corrected", *, prefix_cache: bool = False) -> Tokens:
    """Equation 5; `corrected` adds the reduce call's input: its instruction, the question, and M findings.

    With `prefix_cache` the map calls after the first find their common beginning computed.
    """
    reads = shape.instruction + shape.parts * shape.output if equation == "corrected" else 0.0
    return Tokens(
        input=shape.context + shape.parts * shape.instruction + reads,
        output=(shape.parts + 1) * shape.output,
        calls=shape.parts + 1,
        cached=max(shape.parts - 1, 0) * shape.instruction if prefix_cache else 0.0,
    )


def with_preflight(
    shape: Shape, skipped: float, equation: Equation = "corrected", *, prefix_cache: bool = False
) -> Tokens:
    """The mean where this share of the questions, 0 to 1, is answered from one prompt."""
    return rag(shape) * skipped + map_reduce(shape, equation, prefix_cache=prefix_cache) * (1 - skipped)


def implied_instruction(
    rag_input: float, map_reduce_input: float, parts: float, findings: float | None = None
) -> float:
    """How long the instruction must be for both inputs to come out: by equation 5, or, with what M findings take, by
    the corrected one. Needs two parts or more, or findings."""
    if findings is None:
        return (map_reduce_input - rag_input) / (parts - 1)
    return (map_reduce_input - rag_input - findings) / parts


# -- measured ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spent:
    """What one case took, by the calls in its trace."""

    question: str
    """`Question.key`: the cases of one question are one cluster."""
    condition: Condition
    arm: str
    one: Tokens
    """The only call of plain RAG, of closed book, and of a question that preflight answered from one prompt."""
    maps: Tokens
    reduce: Tokens
    seconds: float
    """Summed over the calls; those made at once add up to more than the wall clock."""
    cost: float | None
    plain: bool
    """Each call made once and counted: no retry, no reply out of the cache, none asked for again."""

    @property
    def total(self) -> Tokens:
        return self.one + self.maps + self.reduce

    @property
    def k(self) -> Cell:
        """Passages read, where the run varies them."""
        return self.condition.get("k")

    @property
    def twin(self) -> tuple[str, str]:
        """Alike in the two arms of a pair."""
        return self.question, canonical({name: value for name, value in self.condition.items() if name != "arm"})

    @property
    def skipped(self) -> bool:
        return self.arm == BRIEF_CONTEXT and self.maps.calls == 0


def spent(records: Iterable[Record]) -> tuple[Spent, ...]:
    """What each case took, in their order."""
    return tuple(_spent(record) for record in records)


def _spent(record: Record) -> Spent:
    answer, condition = record["answer"], record.get("condition", {})
    calls = [event for event in answer["trace"] if event["event"] == "called"]
    stages = {"map": Tokens(0, 0, 0), "reduce": Tokens(0, 0, 0), "one": Tokens(0, 0, 0)}
    for call in calls:
        stage = call["stage"].partition(" ")[0]
        stages[stage if stage in stages else "one"] += _tokens(call["usage"])
    usage = answer["usage"]
    return Spent(
        question=record["key"].removesuffix(f" {canonical(condition)}") if condition else record["key"],
        condition=condition,
        arm=condition.get("arm", answer["strategy"]),
        one=stages["one"],
        maps=stages["map"],
        reduce=stages["reduce"],
        seconds=usage["seconds"],
        cost=usage["cost"],
        plain=answer["state"] != "failed"
        and not any(call["sample"] for call in calls)
        and not any(usage[name] for name in ("failed_calls", "uncounted_calls", "replayed_calls")),
    )


def _tokens(usage: Any) -> Tokens:
    return Tokens(usage["prompt_tokens"], usage["completion_tokens"], usage["calls"], usage["cached_tokens"])


# -- tables -----------------------------------------------------------------------------------------------------------


def measured_table(cases: Sequence[Spent], source: str = "") -> Table:
    """What each arm took a question, and how much more than plain RAG, on the questions that both were asked."""
    rows: list[tuple[Cell, ...]] = []
    for arm, k in dict.fromkeys((case.arm, case.k) for case in cases):
        mine = [case for case in cases if (case.arm, case.k) == (arm, k)]
        plain = [case for case in mine if case.plain]
        costs = [case.cost for case in plain]
        rows.append(
            (
                arm, k, len(mine), len(mine) - len(plain), sum(case.skipped for case in mine),
                *(_mean(plain, name) for name in ("calls", "input", "cached", "output")),
                mean_of([case.seconds for case in plain], _questions(plain)),
                mean_of(costs, _questions(plain)) if any(cost is not None for cost in costs) else None,
                None if arm == RAG else _more(plain, [case for case in cases if case.arm == RAG and case.plain]),
            )
        )  # fmt: skip
    columns = (
        "arm", "k", "cases", "not plain", "from one prompt",
        "calls", "input", "cached", "output", "seconds", "US dollars", "input beyond RAG's",
    )  # fmt: skip
    told = (
        "Means a question with 95 % intervals (bootstrap over questions), of plain cases: no retry, no reply out of "
        "the cache, none asked for again. Tokens; seconds are summed over calls. Unknown prices are none, never 0.",
        "From one prompt: preflight found the rankings to agree.",
    )
    return Table("What it took", columns, tuple(rows), told, source)


def _mean(cases: Sequence[Spent], name: str) -> Mean:
    return mean_of([getattr(case.total, name) for case in cases], _questions(cases))


def _questions(cases: Iterable[Spent]) -> list[str]:
    return [case.question for case in cases]


def _more(cases: Sequence[Spent], rival: Sequence[Spent]) -> Difference | None:
    first, second = ({case.twin: case.total.input for case in arm} for arm in (cases, rival))
    if not first.keys() & second.keys():
        return None
    return paired_difference(first, second, {twin: twin[0] for twin in first})


def shape_of(cases: Sequence[Spent], instruction: float | None = None) -> Shape:
    """The mean shape of these cases' questions, from plain RAG's prompts and closed book's (which are instruction and
    question alone), and from the number of map calls.

    Raises InputError where an arm is not there; `instruction` stands for closed book.
    """
    plain = [case for case in cases if case.plain]
    rags = [case.one for case in plain if case.arm == RAG]
    closed = [case.one.input for case in plain if case.arm == CLOSED_BOOK]
    parted = [case.maps.calls for case in plain if case.arm == BRIEF_CONTEXT and not case.skipped]
    missing = [
        name
        for name, found in ((RAG, rags), (f"{BRIEF_CONTEXT} in parts", parted), (CLOSED_BOOK, closed or instruction))
        if not found
    ]
    if missing:
        raise InputError(f"no plain case of {', '.join(missing)}: ask those arms too, with --cache off")
    length = fmean(closed) if instruction is None else instruction
    return Shape(
        context=fmean(each.input for each in rags) - length,
        instruction=length,
        output=fmean(each.output for each in rags),
        parts=fmean(parted),
    )


def prediction_table(
    cases: Sequence[Spent], instruction: float | None = None, price: Price | None = None, source: str = ""
) -> Table:
    """The equations, fed with plain RAG's measured prompts, against what BriefContext took, for each k. Raises as
    `shape_of`."""
    rows: list[tuple[Cell, ...]] = []
    shapes = []
    for k in dict.fromkeys(case.k for case in cases if case.arm in (BRIEF_CONTEXT, RAG)) or (None,):
        mine = [case for case in cases if case.k == k or case.arm == CLOSED_BOOK]
        shape = shape_of(mine, instruction)
        told = _predictions(shape, [case for case in mine if case.plain])
        base = told[1][1]
        rows += [
            (
                k, name, each.calls, each.input, each.cached, each.output, each.input / base.input,
                each.output / base.output, None if price is None else each.cost(price),
            )
            for name, each in told
        ]  # fmt: skip
        shapes.append(
            f"{shape.context:.0f} tokens of passages, {shape.instruction:.0f} of instruction and question, "
            f"{shape.output:.0f} of output a call, {shape.parts:.1f} parts"
        )
    notes = (
        f"Shape: {'; '.join(shapes)}.",
        "Predicted from plain RAG's and closed book's prompts alone: the prompts of map and reduce are others, and so "
        "are their replies. Means a question; ratios are to what RAG took.",
    )
    columns = ("k", "what", "calls", "input", "cached", "output", "input to RAG's", "output to RAG's", "US dollars")
    return Table("Predicted and measured", columns, tuple(rows), notes, source)


def _predictions(shape: Shape, plain: Sequence[Spent]) -> list[tuple[str, Tokens]]:
    """In pairs of what was predicted and what came; the second is measured RAG."""
    ours = [case for case in plain if case.arm == BRIEF_CONTEXT]
    skipped = fmean(case.skipped for case in ours)
    return [
        ("equation 4: RAG", rag(shape)),
        ("measured: RAG", _total([case for case in plain if case.arm == RAG])),
        ("equation 5 as printed", map_reduce(shape, "published")),
        ("with the reduce call's input", map_reduce(shape)),
        ("and a prefix cache", map_reduce(shape, prefix_cache=True)),
        ("measured: read in parts", _total([case for case in ours if not case.skipped])),
        (f"and preflight, {100 * skipped:.1f} % from one prompt", with_preflight(shape, skipped, prefix_cache=True)),
        ("measured: all of BriefContext", _total(ours)),
    ]


def _total(cases: Sequence[Spent]) -> Tokens:
    total = sum((case.total for case in cases), Tokens(0, 0, 0))
    return total * (1 / len(cases))
