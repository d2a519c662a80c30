"""Render findings as one HTML page: tables first, each plot with its data, published figures next to computed ones.

The page works offline, without JavaScript and on paper. All texts of the findings are data: the template escapes them,
and the page's content security policy keeps them from running.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from importlib.util import find_spec
from itertools import count
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from epicrisis.core.printable import printable
from epicrisis.evaluation.analysis.findings import Findings
from epicrisis.evaluation.analysis.published import Published
from epicrisis.evaluation.analysis.table import Table
from epicrisis.evaluation.analysis.table_text import count_key_columns
from epicrisis.report.charts import Panel, Style, assign_styles, chart_program, draw_panels
from epicrisis.report.figures import PUBLISHED_PLOTS, PlotFigure, plot_figure, plot_figures
from epicrisis.report.page_header import describe_source, name_arms, name_arms_of_table, write_headline
from epicrisis.report.table_cells import NONE, CellText, printed_rows, table_csv, table_rows, with_minus
from epicrisis.report.templates import build_environment

if TYPE_CHECKING:
    from jinja2 import Template

GENERATOR = "epicrisis report"
_NO_SOURCE = "'none'"
SHOWN_FINDINGS = 5
"""Sentences of a section that are not folded."""
_ROWS_ON_PAPER = 40
_LEAST_ROWS = 2
"""Rows from which columns that say the same are moved to the caption."""
ERRATA: Mapping[str, str] = {
    "B1": "Equation 1 has the wrong sign: map-reduce is needed if the rankings disagree.",
    "B2": "The threshold is 0.2 in the papers and 0.3 in the code, and n is not stated; at n = 3 both are one test.",
    "B3": "By its labels the matrix gives precision 92.6 and recall 50.2; the text's rates need rows = truth.",
    "B4": "35.7 % is the specificity (235 of 658); the share of questions that skip map-reduce is 24.1 %.",
    "B5": "Equation 5 leaves out what the reduce call reads; by the printed tokens input rises by 79 %.",
    "B6": "The RAG row of GPT-3.5 is not the one that MIRAGE published (58.04, 67.40, 90.29).",
    "B7": "The arms differ in more than the strategy: documents read, retrievers, corpora, model version, prompt.",
    "B8": "Averages are over sets of 4,183, 500 and 618 questions, each counting the same.",
    "B9": "The significance test and the number of repeats are not stated, and all places share the same 105 "
    "questions.",
    "B10": (
        "Some percentages are impossible with this number of questions, and averages changed between the two versions."
    ),
    "B11": "48 comparisons are 14 wins, 6 losses and 28 ties: two-sided sign test p = 0.115.",
    "B12": (
        "The resolved conflicts include cases that plain RAG also answers correctly; wins, ties and losses say more."
    ),
    "B13": "The definition of the issue does not cover missing and multiple key documents.",
    "B14": "In the code, the random sample of 20 % is 35 questions of each class: 105 of 500, balanced unlike the set.",
    "B15": "Questions of PubMedQA can find their source abstract by its title.",
    "B16": "BriefContext does not outperform RAG in every cell of the papers' own tables.",
    "P1": "The released code cannot repeat these figures: its self-consistency stops before it asks, and its "
    "open-ended refinement is gone.",
    "P2": "If a reply names several options, the released code takes the last in display order, not the stated one.",
    "P3": "The released code shuffles with a random state shared by threads, and stops once all permutations are "
    "used: of four options at the 25th vote.",
    "P4": "The released code stores verdicts in the order of success: after a retry they belong to other questions.",
    "P5": "Rows of Tables 1 and 5 stand in Tables 3 and 6 under other settings or heads, Tables 2 and 3 disagree, and "
    "an average of Table 8 is misprinted.",
    "P6": "Context retrieval's gain is that of 20 votes over one next-token prediction, without a control of as many "
    "votes; the code's self-consistency has fixed examples besides.",
    "P7": "The reranker compares question with question, though it was trained on query and article.",
    "P8": (
        "The writer sees the reward, but it selects nothing: the last round is used, and only the first has examples."
    ),
    "P10": "Multiple-choice accuracy comes from next-token prediction, the others from free text marked by a judge.",
    "P11": "One model, Llama-3.1-70B, writes the databases of open answers and judges the answers.",
    "P12": "Votes, rounds and databases were chosen on the test questions; on MedQA the standard error is 1.4 points.",
    "P13": "MedMCQA is tested on its validation split, which is its validation database too; the repository's file of "
    "that name holds 10,000 training rows.",
    "E1": "BM25's k1 and b, the tokenizer of the chunks and their overlap are not stated; top k is twice the number of "
    "chunks.",
    "E2": "Low scores of the larger models without notes are explained by less memory, but look like empty replies "
    "scored 0.",
    "E3": "RadQA's unanswerable questions were left out, so whether a model abstains when it should was not measured.",
    "E4": "The judge is one of the models under test, and faithfulness is to the gold answer: true details beyond it "
    "count as unfaithful.",
    "E5": "Tables 2, 3 and 4 have rows of Include All for different populations: all lengths, 8K and longer, 4K and "
    "longer.",
    "E6": "METEOR and BERTScore do not distinguish right numbers from wrong ones, and NLI misses ranges.",
    "E8": "That larger models consistently perform better does not hold on EHR-DS-QA.",
    "E9": "The best of six arms of retrieval is compared with the one of full context, without n and without a test.",
    "E10": "Qwen2.5-7B-Instruct is in one place its long-context variant (-1M), and the score of Table 13 is unnamed.",
}
"""Errata of published figures by their codes: BriefContext (B), the context-retrieval study (P), the EHR study (E)."""


@dataclass(frozen=True, slots=True)
class _FigureView:
    """A plot with its charts and its legend."""

    figure: PlotFigure
    panels: tuple[Panel, ...]
    legend: Mapping[str, Style]


@dataclass(frozen=True, slots=True, kw_only=True)
class _TableView:
    """A table on the page."""

    number: str
    table: Table
    rows: tuple[tuple[CellText, ...], ...]
    keys: int
    numeric: tuple[bool, ...]
    """For each column: whether it holds figures rather than names."""
    notes: tuple[tuple[int, str], ...]
    """New notes with their numbers in the section."""
    repeated: tuple[int, ...]
    """Numbers of notes already printed in the section."""
    csv: str
    figures: tuple[_FigureView, ...]
    constants: tuple[tuple[str, CellText], ...]
    """Columns with the same cell in all rows. They stand in the caption."""
    empty: tuple[str, ...]
    """Columns without a value in any row. The caption names them."""
    step: int
    """On paper, every `step`-th row is printed, and the last one. The page says how many are left out."""
    printed: Published | None = None

    @property
    def left_out(self) -> int:
        return len(self.rows) - sum(self.on_paper(item) for item in range(len(self.rows)))

    def on_paper(self, row: int) -> bool:
        return row % self.step == 0 or row == len(self.rows) - 1

    @property
    def id(self) -> str:
        return f"table-{self.number.replace('.', '-')}"


@dataclass(frozen=True, slots=True)
class _Section:
    number: int
    heading: str
    findings: Findings
    tables: tuple[_TableView, ...]
    headline: str
    """The finding in one sentence, or empty."""
    sources: tuple[str, ...]
    """Model, questions and day of each run."""

    @property
    def conclusions(self) -> tuple[str, ...]:
        """The findings, without the one of the headline."""
        return tuple(sentence for sentence in map(name_arms, self.findings.conclusions) if sentence != self.headline)

    @property
    def lead(self) -> _TableView | None:
        """The first table with a plot. Its first plot stands on the first screen."""
        return next((table for table in self.tables if table.figures and not table.printed), None)


def render_page(findings: Sequence[Findings], title: str = "Report of experiments", *, plots: bool = True) -> str:
    """Render the whole page as HTML. Without the extra `report` the page has no plots and says so."""
    plots = plots and find_spec("vl_convert") is not None
    counts = Counter(finding.experiment for finding in findings)
    sections = []
    tables: list[_TableView] = []
    for number, one in enumerate(findings, 1):
        heading = one.experiment.replace("-", " ").capitalize()
        if counts[one.experiment] > 1:
            heading += f": {', '.join(source.name for source in one.sources)}"
        sections.append(_section(number, heading, one, plots))
        tables += sections[-1].tables
    scripts: tuple[str, ...] = ()
    if any(table.figures for table in tables):
        scripts = (chart_program().replace("</script", "<\\/script"), _read_resource("charts.js"))
    # The page loads nothing and runs only these scripts.
    script_sources = []
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        script_sources.append(f"'sha256-{digest}'")
    policy = (
        f"default-src 'none'; script-src {' '.join(script_sources) or _NO_SOURCE}; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )
    return _template().render(
        title=title,
        generator=GENERATOR,
        sections=sections,
        plots=plots,
        style=_read_resource("style.css"),
        scripts=scripts,
        policy=policy,
        errata=ERRATA,
        list_facts=_list_facts,
        first=lambda source: next(section for section in sections if source in section.findings.sources),
        dash=NONE,
        shown_findings=SHOWN_FINDINGS,
    )


def _section(number: int, heading: str, findings: Findings, plots: bool) -> _Section:
    """Return the section of one experiment: its tables with their plots, and the published tables."""
    sets = {source.name: source.questions for source in findings.sources}
    entries: list[tuple[Table, tuple[PlotFigure, ...], Published | None]] = []
    for table in map(name_arms_of_table, findings.tables):
        entries.append((table, plot_figures(findings.experiment, table, findings.published, sets), None))
    for publication in findings.published:
        plot = PUBLISHED_PLOTS.get(publication.name)
        printed = () if plot is None else (plot_figure(plot, publication.table, printed=True),)
        entries.append((publication.table, printed, publication))
    # A series has the same style in all figures of the section. Bars and other figures have separate styles.
    names: dict[bool, list[str]] = {False: [], True: []}
    for _, figures, _ in entries:
        for figure in figures:
            names[figure.bars] += figure.series
    styles = {False: assign_styles(names[False]), True: assign_styles(names[True])}
    notes: dict[str, int] = {}
    tables = []
    recorded = {i: table_csv(table) for i, table in enumerate(findings.tables, 1)}
    for i, (table, figures, publication_or_none) in enumerate(entries, 1):
        views = []
        for figure in figures if plots else ():
            figure_styles = styles[figure.bars]
            legend = {name: figure_styles[name] for name in figure.series}
            # No legend for a single series, or if each row has the name of its series.
            needs_legend = len(legend) > 1 and any(mark.series != mark.row for mark in figure.marks)
            panels = _shorten_titles(draw_panels(figure, figure_styles))
            views.append(_FigureView(figure, panels, legend if needs_legend else {}))
        # The table of a long curve would take tens of pages: print only some of its rows.
        step = math.ceil(len(table.rows) / _ROWS_ON_PAPER) if any(figure.many for figure in figures) else 1
        view = _table_view(f"{number}.{i}", table, notes, tuple(views), publication_or_none, step)
        # The file has the arms under the names of the command line.
        csv = recorded.get(i) or table_csv(table)
        tables.append(replace(view, csv=f"data:text/csv;charset=utf-8,{quote(csv)}"))
    sources = tuple(filter(None, map(describe_source, findings.sources)))
    return _Section(number, heading, findings, tuple(tables), write_headline(findings), sources)


def _table_view(
    number: str,
    table: Table,
    notes: dict[str, int],
    figures: tuple[_FigureView, ...],
    printed: Published | None,
    step: int,
) -> _TableView:
    """Return the table for the page, and add its notes to `notes`, the numbered notes of the section."""
    new_notes, repeated = [], []
    for note in table.notes:
        if note in notes:
            repeated.append(notes[note])
        else:
            notes[note] = len(notes) + 1
            new_notes.append((notes[note], note))
    rows = printed_rows(table) if printed else table_rows(table)
    keys = count_key_columns(table)
    places = [] if printed else _find_constants(rows, keys)
    varying_places = [place for place in range(len(table.columns)) if place not in places]
    constants = [(table.columns[place], rows[0][place]) for place in places if rows[0][place].figure != NONE]
    empty = [table.columns[place] for place in places if rows[0][place].figure == NONE]
    numeric = tuple(str not in map(type, table.column(name)) for name in table.columns)
    return _TableView(
        number=number,
        table=replace(
            table,
            columns=tuple(table.columns[place] for place in varying_places),
            rows=tuple(tuple(row[place] for place in varying_places) for row in table.rows),
        ),
        rows=tuple(tuple(row[place] for place in varying_places) for row in rows),
        keys=sum(place < keys for place in varying_places),
        numeric=tuple(numeric[place] for place in varying_places),
        notes=tuple(new_notes),
        repeated=tuple(repeated),
        csv="",
        figures=figures,
        constants=tuple(constants),
        empty=tuple(empty),
        step=step,
        printed=printed,
    )


def _shorten_titles(panels: Sequence[Panel]) -> tuple[Panel, ...]:
    """Return the panels without what all titles begin with, such as the only model. One without a rest comes last."""
    heads = {panel.title.partition(", ")[0] for panel in panels}
    if len(panels) == 1 or len(heads) > 1:
        return tuple(panels)
    shortened = [replace(panel, title=panel.title.partition(", ")[2]) for panel in panels]
    return tuple(sorted(shortened, key=lambda panel: not panel.title))


def _find_constants(rows: Sequence[tuple[CellText, ...]], keys: int) -> list[int]:
    """Return the places of columns with one value in all rows, except the last one that identifies a row."""
    if len(rows) < _LEAST_ROWS:
        return []
    places: list[int] = []
    for place in range(len(rows[0])):
        same = all(row[place] == rows[0][place] for row in rows)
        if same and (place >= keys or len(places) < keys - 1):
            places.append(place)
    return places


def _list_facts(facts: Mapping[str, Any], parent: str = "") -> Iterator[tuple[str, str]]:
    """Yield each fact with its name. The plain facts of a nested group are joined under the name of the group."""
    plain: dict[str, str] = {}
    groups: dict[str, Mapping[str, Any]] = {}
    for name, value in facts.items():
        if isinstance(value, Mapping):
            groups[name] = value
        elif isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
            groups[name] = dict(zip(map(str, count(1)), value, strict=False))
        else:
            plain[name] = _fact_text(value)
    if not parent:
        yield from plain.items()
    elif plain:
        yield parent, "; ".join(f"{name} {text}" for name, text in plain.items())
    for name, group in groups.items():
        yield from _list_facts(group, f"{parent}, {name}" if parent else name)


def _fact_text(value: Any) -> str:
    match value:
        case None:
            return NONE
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case list() | tuple():
            return ", ".join(map(_fact_text, value)) or NONE
        case _:
            return str(value)


@cache
def _read_resource(name: str) -> str:
    return resources.files("epicrisis.report").joinpath(name).read_text("utf-8")


@cache
def _template() -> Template:
    environment = build_environment()
    environment.filters["with_minus"] = with_minus
    environment.filters["printable"] = printable
    environment.filters["plain"] = name_arms
    return environment.from_string(_read_resource("page.html.jinja"))
