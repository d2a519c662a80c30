"""How each table of an experiment is drawn: declared by the columns of the table that a plot shows.

Knows the experiments' tables by their columns alone, and nothing of how a mark is made or drawn (`figures`, `charts`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

PlotKind: TypeAlias = Literal["line", "points", "bars"]


@dataclass(frozen=True, slots=True)
class Plot:
    """How a table is drawn. Of `series` and `panel` those columns count that the table has."""

    title: str
    kind: PlotKind
    values: tuple[str, ...]
    """Columns of figures, by name or pattern. Several are a series each; bars of several are stacked."""
    along: tuple[str, ...] = ()
    """What the figures stand along: of a line the column of numbers, else those whose cells name a row each (none: all
    that tell the table's rows apart and are neither series nor panel)."""
    series: tuple[str, ...] = ()
    panel: tuple[str, ...] = ("model", "k")
    axis: str = ""
    """Of a line: what the numbers are; default: the column's name."""
    log2: bool = False
    beside: tuple[str, ...] = ()
    """Columns that name the method of a row: beside it stand the papers' figures of the same, on the row's `set`."""
    some: bool = False
    """The table need not have its `values`: then nothing is drawn."""
    measured: str = ""
    """Rows whose name does not begin so are predictions, and drawn hollow. Empty: all are measured."""


_SHARE = "share right"
_ARM = ("arm",)
_BY_PLACE = Plot(
    "Share right by the place of the key document",
    "line",
    (_SHARE,),
    ("place",),
    _ARM,
    axis="place of the key document (percentile)",
)
_ARMS = Plot("Share right by arm", "points", (_SHARE,), _ARM, _ARM)
_AGAINST = Plot("Differences by arm", "points", ("difference to *",), _ARM, _ARM, _ARMS.panel)
_SETS = ("model", "set")
_MODEL, _VOTED, _BY_SOURCE = ("model",), ("arm", "votes"), ("model", "examples")
_SHARES = Plot("Share right", "points", (_SHARE,), panel=_MODEL)
_DIFFERENCES = Plot("Differences", "points", ("difference to *",), panel=_MODEL)
_POSITIONS = (
    (_BY_PLACE,),
    (_ARMS, _AGAINST),
    (Plot("What the middle loses", "points", ("lost in the middle",), _ARM, _ARM),),
)
_TOOK = (Plot("Input tokens a question", "points", ("input",), _ARM, _ARM),)
_SPENT = (Plot("Tokens a case", "points", ("tokens",)), Plot("Calls a case", "points", ("calls",)))
_RATES, _ERRORS = ("recall", "specificity"), ("missed where needed", "run where not needed")


def _refined(size: str, of: str) -> tuple[Plot, ...]:
    """By the number of these."""
    return tuple(
        Plot(f"{title} by {of}", "line", (value,), (size,), _ARM, _BY_SOURCE, f"{of} ({size.upper()})")
        for title, value in (("Share right", _SHARE), ("Differences to one draft", "difference to one draft *"))
    )


_OF_RECORDS = ("model", "set", "form")
_METRICS = {
    "accuracy": "Accuracy",
    "judge-correctness*": "Correctness, by judges",
    "nli-entailment*": "Entailment",
    "bertscore*": "BERTScore",
    "meteor*": "METEOR",
    "token-f1": "Token F1",
}
"""Patterns of the columns that tables of measured answers may have, and their names."""


def _measured(by: str, baseline: str, more: tuple[str, ...] = ()) -> tuple[Plot, ...]:
    """Each metric on its own, the differences, and the evidence that was read: a row for each arm and what there is
    more."""
    along = (*_ARM, *more)
    return (
        *(
            Plot(f"{title} {by}", "points", (column,), along, more, _OF_RECORDS, some=True)
            for column, title in _METRICS.items()
        ),
        Plot(f"Differences {by}", "points", (f"difference to {baseline}",), along, more, _OF_RECORDS),
        Plot(f"Evidence that was read {by}", "points", ("evidence recall",), along, more, _OF_RECORDS, some=True),
    )


def _of_records(baseline: str) -> tuple[tuple[Plot, ...], ...]:
    """The EHR study: by kind of question (Table 13), by length (Figures 3, 4 and 8), by arm (Tables 2 to 4, Figure 5),
    the lengths of records (Figures 6 and 7), correlations (Figures 9 and 10)."""
    return (
        (
            Plot(
                "Differences by kind of question",
                "points",
                (f"difference to {baseline}",),
                ("category", "arm"),
                _ARM,
                _OF_RECORDS,
            ),
        ),
        _measured("by length of the record", baseline, ("bin",)),
        _measured("by arm", baseline),
        (Plot("Records by their length", "line", ("patients",), ("up to tokens",), ("set",), ("model",), log2=True),),
        (Plot("Correlation of metrics", "points", ("Spearman*",), ("metric", "other"), panel=()),),
    )


_FIRST = "difference to the first library, or without reranker"
PLOTS: Mapping[str, tuple[tuple[Plot, ...], ...]] = {
    "positions": _POSITIONS,
    "probe": (*_POSITIONS, _TOOK),
    "context-length": (
        (
            Plot(
                "Share right by the number of documents",
                "line",
                (_SHARE,),
                ("k",),
                _ARM,
                ("model",),
                log2=True,
                axis="documents (k)",
            ),
        ),
        (Plot("What a doubling of the documents changes", "points", ("change a doubling",), _ARM, _ARM),),
    ),
    "attention-bias": ((_SHARES, _DIFFERENCES),),
    "integration": (
        (
            Plot("Share right by arm", "points", (_SHARE,), _ARM, _ARM, _SETS, beside=_ARM),
            Plot("Differences by arm", "points", ("difference to *",), _ARM, _ARM, _SETS),
        ),
    ),
    "conflicts": (
        (Plot("Conflict cases against RAG", "bars", ("win", "tie", "lose"), ("place",)),),
        (Plot("How often a rule is followed, and how right it is", "points", ("followed", "rule right"), ("rule",)),),
    ),
    "preflight": (
        (Plot("Both rates of a rule", "points", _RATES, ("rule",), panel=("issue: key document",)),),
        (Plot("Both errors of a rule", "points", _ERRORS, ("rule",)),),
        (Plot("Specificity at the recall of the papers' rule", "points", ("specificity",), ("signal",)),),
        (Plot("Every threshold", "line", ("recall",), ("specificity",), axis="specificity (%)"),),
        (Plot("Questions that skip map-reduce", "points", ("skipped*",), ("guard",), panel=("rule",)),),
        (Plot("Where the key documents stand", "bars", ("place *", "2 to *", "4 to *", "not *"), ("set",)),),
    ),
    "cost": (
        _TOOK,
        (Plot("Input tokens, predicted and measured", "points", ("input",), ("what",), measured="measured"),),
    ),
    "open-ended": (
        (Plot("Better, same, worse", "bars", ("better", "same", "worse"), ("judge",)),),
        (Plot("By the place of the answer", "bars", ("first better", "tie", "second better"), ("judge",)),),
    ),
    "ensembles": (
        (
            Plot("Share right by method", "points", (_SHARE,), _VOTED, _ARM, _MODEL, beside=_VOTED),
            Plot("Differences by method", "points", ("difference to chain-of-thought",), _VOTED, _ARM, _MODEL),
        ),
        (Plot("What shuffled options change", "points", ("difference to options as they are",), ("votes",)),),
        (
            Plot("Share right by the number of votes", "line", (_SHARE,), ("votes",), _ARM, _MODEL),
            Plot("What more votes change", "line", ("difference to the same arm *",), ("votes",), _ARM, _MODEL),
        ),
        (
            Plot("Tokens a case", "line", ("tokens",), ("votes",), _ARM, _MODEL),
            Plot("Calls a case", "line", ("calls",), ("votes",), _ARM, _MODEL),
        ),
    ),
    "medprompt": (
        (Plot("Differences between examples", "points", (_FIRST,), panel=_MODEL),),
        (_SHARES, _DIFFERENCES),
        tuple(replace(each, along=("examples",)) for each in _SPENT),
    ),
    "models": (
        (
            Plot("Gains over one prediction", "points", ("difference to zero-shot",), _MODEL + _ARM, _ARM, ("set",)),
            Plot("Share right", "points", (_SHARE,), _MODEL + _ARM, _ARM, ("set",), beside=_ARM),
        ),
        (Plot("What the examples bring", "points", ("difference to *",), _MODEL, _MODEL, ("set",)),),
        (Plot("Leaderboard", "points", ("average",), _MODEL + _ARM, _ARM, ()),),
        tuple(replace(each, along=_ARM, series=_ARM, panel=_SETS) for each in _SPENT),
    ),
    "openmedprompt": (
        (_SHARES, Plot("Differences to no examples", "points", ("difference to no examples",), panel=_MODEL)),
        _refined("n", "drafts or rounds"),
        _refined("k", "examples"),
        tuple(replace(each, along=("examples", "k", "n"), series=_ARM, panel=_MODEL + _ARM) for each in _SPENT),
    ),
    "ehr-context": _of_records("include-all"),
    "ehr-retrieval": _of_records("full-context"),
    "ehr-extractive": _of_records("full-context"),
    "ehr-metrics": _of_records("include-all"),
    "ehr": _of_records("include-all"),
    "evaluate": ((_SHARES,), (_DIFFERENCES,)),
    "compare": ((_SHARES,), (_DIFFERENCES,)),
}
"""By experiment: the plots of a table, the first ones that all have their columns there."""

ENERGY_PLOTS = tuple(
    tuple(
        Plot(title, "points", (value,), along, along, panel)
        for title, value in (
            ("Energy for questions", "kWh per 1,000 questions"),
            ("Energy for right answers", "Wh per right answer"),
        )
    )
    for along, panel in ((_ARM, ("run",)), (("run",), ()))
)
"""Plots of tables that runs of any experiment may have."""

_STUDIED = ("CareQA", "MedMCQA", "MedQA", "MMLU")
PUBLISHED_PLOTS: Mapping[str, Plot] = {
    "positions": Plot(_BY_PLACE.title, "line", ("RAG", "BriefContext"), ("place",), axis=_BY_PLACE.axis),
    "integration": Plot("Accuracy", "points", ("MedMCQA", "PubMedQA", "BioASQ"), ("method",)),
    "open-ended": Plot("Verdicts", "bars", ("percent",), ("verdict",)),
    "conflicts": Plot("Conflict cases against RAG", "bars", ("win", "tie", "lose"), ("place",)),
    "ensembles-baseline": Plot("Accuracy by method", "points", _STUDIED, ("method",)),
    "ensembles-shuffling": Plot("Accuracy with shuffled options", "points", _STUDIED, ("options",), panel=("votes",)),
    "ensembles-votes": Plot("Accuracy by the number of votes", "line", _STUDIED, ("votes",)),
    "medprompt-encoders": Plot("Accuracy by encoder", "points", _STUDIED, ("encoder",)),
    "models": Plot("Accuracy without context retrieval and with", "points", _STUDIED, _MODEL, panel=("method",)),
    "models-leaderboard": Plot("Leaderboard", "points", ("average",), ("model", "method"), ("source",), ()),
    "open-baseline": Plot("Accuracy with options and without", "points", ("accuracy (%)",), ("type", "examples")),
    "openmedprompt-refining": Plot("Accuracy by the number of drafts", "line", ("CoT", "ToT"), ("drafts",)),
    "openmedprompt-reflection": Plot("Accuracy by the number of rounds", "line", ("CoT", "ToT"), ("rounds",)),
}
"""By the name of a published table: its plot, of percentages as they are printed."""
