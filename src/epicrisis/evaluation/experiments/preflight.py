"""Can the program predict that the key document is lost in the middle? (BriefContext, Supplementary Tables 4 and 5.)

The tables are made from recorded rankings, a file for each leak guard; no chat model is asked.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from epicrisis.core.errors import InputError
from epicrisis.core.printable import count_noun
from epicrisis.evaluation.analysis.findings import Findings
from epicrisis.evaluation.analysis.grouping import group_by
from epicrisis.evaluation.analysis.published import load_published
from epicrisis.evaluation.analysis.statistics import Mean
from epicrisis.evaluation.analysis.table import Cell, Table, bars_plot, line_plot, points_plot
from epicrisis.evaluation.experiments import preflight_rules
from epicrisis.evaluation.experiments.definition import Experiment
from epicrisis.evaluation.experiments.preflight_calibration import (
    calibrate,
    calibration_table,
    signals_table,
)
from epicrisis.evaluation.experiments.recorded_rankings import GUARDS, Guard, QuestionRankings, read_rankings
from epicrisis.evaluation.runs.recorded_run import RunSummary
from epicrisis.retrieval.preflight import Signal
from epicrisis.retrieval.rankings import parse_document_id

NAME = "preflight"
K = 16
HIDDEN: Guard = "source-hidden"
OVERLAP = Signal("overlap", 3)
"""The signal of the papers' rule."""
RULES = (
    preflight_rules.PAPERS_RULE,
    preflight_rules.Rule(OVERLAP, 0.2, depth=64),
    preflight_rules.AS_CODED,
    preflight_rules.CODED_NUMBERS,
    preflight_rules.Rule(Signal("overlap", 5), 0.2),
    preflight_rules.ALWAYS,
    preflight_rules.NEVER,
)
"""The papers' rule, a deeper one, the coded one, its numbers with the library's BM25, a wider one, and the two that
ignore the signal."""

_COUNTS = ("TP", "FN", "FP", "TN")
_RATES = ("precision", "recall", "specificity", "F1", "skipped", "apart")
_APART = "Apart: questions without a label, in no rate but the share skipped."


def rankings_path(folder: Path, guard: Guard) -> Path:
    """Return the path of the rankings under a guard."""
    return folder / f"rankings-{guard}.jsonl"


def holds_rankings(folder: Path) -> bool:
    """Return whether the folder holds a run of this experiment."""
    return rankings_path(folder, "none").is_file()


def read_findings(folder: Path) -> Findings:
    """Build all tables of one library's rankings. Raises InputError where a file holds none."""
    recipe, recorded = read_rankings(rankings_path(folder, "none"))
    by_guard: dict[str, Sequence[QuestionRankings]] = {"none": recorded}
    for guard in GUARDS[1:]:
        path = rankings_path(folder, guard)
        if path.is_file():
            by_guard[guard] = read_rankings(path)[1]
    tables = [places_table(recorded, K), counts_table(recorded), rules_table(recorded, RULES, K)]
    conclusions: list[str] = []
    for definition in preflight_rules.definitions(K)[:2]:
        try:
            calibration = calibrate(recorded, definition)
        except InputError as error:
            issue = f"the issue that the key document is {definition.name}"
            conclusions.append(f"No rule was fitted for {issue}: {error.message}.")
            continue
        papers = calibration.papers
        conclusions.append(
            f"The issue being that the key document is {definition.name}: the papers' rule has a specificity of "
            f"{_describe_rates(papers)}; rules fitted on the other questions, set to that recall, "
            f"{_describe_rates(calibration.at_recall(papers.recall.value))}. Fitted on all: {calibration.rule}."
        )
        fitted = (
            signals_table(recorded, definition),
            calibration_table(calibration, K),
            curve_table(recorded, OVERLAP, definition),
        )
        for table in fitted:
            tables.append(replace(table, title=f"{table.title} (issue: key document {definition.name})"))
    if len(by_guard) > 1:
        tables.append(guards_table(by_guard, k=K))
    name = folder.resolve().name
    source = f"{name}: {count_noun(recipe['passages'], 'passage')} by {recipe['encoder']}, read {recipe['by']}, "
    source += f"counted by {recipe.get('count', 'passages')}"
    facts: dict[str, Any] = {}
    for guard_name, rankings in by_guard.items():
        facts["questions" if guard_name == "none" else f"questions, {guard_name}"] = len(rankings)
    facts["recipe"] = {key: value for key, value in recipe.items() if key != "guard"}
    # The guard by date leaves questions out; the other one asks the same questions.
    complete = len(by_guard.get(HIDDEN, recorded)) == len(recorded)
    datasets = dict.fromkeys(item.dataset for item in recorded)
    return Findings(
        experiment=NAME,
        about=EXPERIMENT.question,
        sources=(RunSummary(name, facts, complete, " + ".join(datasets)),),
        tables=tuple(replace(table, source=source) for table in tables),
        conclusions=tuple(conclusions),
        published=tuple(load_published()[item] for item in EXPERIMENT.published),
    )


def _describe_rates(matrix: preflight_rules.Confusion) -> str:
    texts: list[str] = []
    for share in (matrix.specificity, matrix.recall):
        interval = share.interval
        texts.append(f"{100 * share.value:.1f} % ({100 * interval.low:.1f} to {100 * interval.high:.1f})")
    return " at a recall of ".join(texts)


def published_confusion() -> preflight_rules.Confusion:
    """Return the papers' matrix with its rows as the truth, which alone gives the rates in the text (errata B3)."""
    issue, no_issue = load_published()["preflight"].table.rows
    return preflight_rules.Confusion(*map(int, map(str, (*issue[1:], *no_issue[1:]))))


def rules_table(
    recorded: Sequence[QuestionRankings],
    rules: Sequence[preflight_rules.Rule] = (
        preflight_rules.PAPERS_RULE,
        preflight_rules.ALWAYS,
        preflight_rules.NEVER,
    ),
    k: int = 16,
) -> Table:
    """Build Supplementary Table 4 for each definition of the issue and each rule, after the papers' own matrix."""
    rows = [("as published", "overlap > 0.2, n not stated", *_matrix_cells(published_confusion()))]
    with_candidates = any(rankings.candidate_bm25 is not None for rankings in recorded)
    usable = [rule for rule in rules if with_candidates or rule.word_statistics == "library"]
    for definition in preflight_rules.definitions(k):
        for rule in usable:
            rows.append(
                (definition.name, str(rule), *_matrix_cells(preflight_rules.evaluate_rule(recorded, rule, definition)))
            )
    notes = (
        _APART,
        "The published row is of other questions, another encoder and another library: no replication.",
        f"The papers' rule is assumed to be {preflight_rules.PAPERS_RULE}, for they state no n; the notebooks have "
        f"{preflight_rules.AS_CODED}: their BM25 counts words among the ranked passages alone (C6), and they never "
        "call the rule (C2). It is left out for rankings recorded without that BM25. All other rules use the whole "
        "library's statistics. At n = 3 both thresholds are one test, except where BM25 finds fewer than 3 of the "
        "passages (B2).",
        "Intervals: Wilson's, F1's by bootstrap over questions.",
    )
    columns = ("issue: key document", "rule", *_COUNTS, *_RATES)
    return Table("Is the issue foreseen?", columns, tuple(rows), notes)


def _matrix_cells(matrix: preflight_rules.Confusion) -> tuple[Cell, ...]:
    counts = (matrix.tp, matrix.fn, matrix.fp, matrix.tn)
    rates = (matrix.precision, matrix.recall, matrix.specificity, matrix.f1(), matrix.skipped)
    return (*counts, *rates, matrix.apart)


def places_table(recorded: Sequence[QuestionRankings], k: int = 16) -> Table:
    """Build the table of the place of each question's best-placed key document, by question set."""
    columns = ("place 1", "2 to 3", f"4 to {k}", f"not among {k}", "not in the library")
    counts: dict[str, Counter[str]] = {}
    for rankings in recorded:
        documents = rankings.documents_read(k)
        places = [documents.index(item) for item in rankings.held if item in documents]
        first, next_two, rest, missing, absent = columns
        if not places:
            column = missing if rankings.held else absent
        elif min(places) == 0:
            column = first
        else:
            column = next_two if min(places) < 3 else rest
        counts.setdefault(rankings.dataset, Counter())[column] += 1
    rows = _count_rows(counts, columns)
    with_total = [(row[0], counts[str(row[0])].total(), *row[1:]) for row in rows]
    return Table("Ranks of the key documents", ("set", "questions", *columns), tuple(with_total))


def _count_rows(counts: Mapping[str, Counter[str]], columns: Sequence[str]) -> list[tuple[Cell, ...]]:
    """Return a row for each name with its counts in these columns."""
    return [(name, *(count[column] for column in columns)) for name, count in counts.items()]


def counts_table(recorded: Sequence[QuestionRankings]) -> Table:
    """Build the table of how often the papers' rule counts two passages of one document as two documents, by set.

    Both counts use the same recorded rankings of passages.
    """
    by_set: dict[str, Counter[str]] = {}
    for rankings in recorded:
        counts = by_set.setdefault(rankings.dataset, Counter())
        counts["questions"] += 1
        by_passages = replace(rankings, count="passages").at_depth(preflight_rules.PAPERS_RULE.depth)
        by_documents = bool(preflight_rules.PAPERS_RULE.agree(replace(rankings, count="documents")))
        counts["documents"] += by_documents
        if not preflight_rules.PAPERS_RULE.agree(by_passages):
            counts["only documents"] += by_documents
            continue
        first_words = {passage_id for passage_id, _ in by_passages.bm25[:3]}
        shared = {parse_document_id(passage_id) for passage_id, _ in by_passages.dense[:3] if passage_id in first_words}
        counts["passages"] += 1
        counts["one document"] += len(shared) == 1
        counts["only passages"] += not by_documents
    keys = ("questions", "passages", "one document", "only passages", "documents", "only documents")
    rows = _count_rows(by_set, keys)
    if len(rows) > 1:
        rows += _count_rows({"all": sum(by_set.values(), Counter())}, keys)
    columns = (
        "set",
        "questions",
        "agree by passages",
        "of these share one document alone",
        "of these disagree by documents",
        "agree by documents",
        "of these disagree by passages",
    )
    notes = (
        f"By the papers' rule, {preflight_rules.PAPERS_RULE}: of documents, each by its best passage, or of passages.",
    )
    return Table("What is counted", columns, tuple(rows), notes)


def curve_table(
    recorded: Sequence[QuestionRankings], signal: Signal, definition: preflight_rules.Definition, depth: int = 16
) -> Table:
    """Build the table of the matrix at every threshold of one signal, from never to always map-reduce."""
    rows: list[tuple[Cell, ...]] = []
    for point in preflight_rules.threshold_curve(*preflight_rules.label_rankings(recorded, signal, definition, depth)):
        cells: list[Cell] = [None if math.isinf(point.threshold) else point.threshold]
        for cell in _matrix_cells(point.confusion):
            cells.append(None if isinstance(cell, Mean) and not cell.n else cell)
        rows.append(tuple(cells))
    notes = (
        _APART,
        f"The issue: key document {definition.name}. Map-reduce runs where the signal is not above the "
        "threshold; without one it never runs.",
    )
    return Table(f"Every threshold of {signal}", ("threshold", *_COUNTS, *_RATES), tuple(rows), notes)


def guards_table(
    by_guard: Mapping[str, Sequence[QuestionRankings]],
    rules: Sequence[preflight_rules.Rule] = (preflight_rules.PAPERS_RULE,),
    k: int = 16,
) -> Table:
    """Build the table of the rules' verdicts where a question may not find its own source (errata B15), and where it
    may."""
    not_retrieved = replace(preflight_rules.PUBLISHED, top=k, k=k)
    rows: list[tuple[Cell, ...]] = []
    for guard, recorded in by_guard.items():
        by_label = group_by(recorded, not_retrieved.label)
        gone, issues = by_label.get("no-key", []), by_label.get("issue", [])
        for rule in rules:
            skipped: list[Cell] = []
            for part in (recorded, issues, gone):
                verdicts = [rule.agree(item) for item in part]
                skipped.append(preflight_rules.proportion(verdicts.count(True), len(verdicts) - verdicts.count(None)))
            rows.append((guard, str(rule), len(recorded), len(issues), len(gone), *skipped))
    counts = ("questions", "key not retrieved", "no key to find")
    columns = ("guard", "rule", *counts, "skipped", "skipped, key not retrieved", "skipped, no key")
    notes = (
        "Skipped though no key document is read: the rule trusts a ranking that cannot hold the answer.",
        "A guard by date leaves out the questions without a dated document.",
    )
    return Table("Preflight under leak guards", columns, tuple(rows), notes)


def _refuse(*_: Any) -> Any:
    raise InputError("preflight ranks whole question sets and asks no model: it has no cases and no records")


EXPERIMENT = Experiment(
    name=NAME,
    question="Can it be foreseen that the key document will be lost? (BriefContext, Supplementary Tables 4 and 5)",
    cases=_refuse,
    tables=_refuse,
    published=("preflight", "preflight-rates"),
    plots=(
        (
            points_plot(
                "Both rates of a rule", "recall", "specificity", along=("rule",), panel=("issue: key document",)
            ),
        ),
        (points_plot("Both errors of a rule", "missed where needed", "run where not needed", along=("rule",)),),
        (points_plot("Specificity at the recall of the papers' rule", "specificity", along=("signal",)),),
        (line_plot("Every threshold", "recall", along=("specificity",), axis_title="specificity (%)"),),
        (points_plot("Questions that skip map-reduce", "skipped*", along=("guard",), panel=("rule",)),),
        (bars_plot("Ranks of the key documents", "place *", "2 to *", "4 to *", "not *", along=("set",)),),
    ),
    reads="rankings",
)
