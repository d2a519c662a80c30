"""Test the report page: offline, accessible, readable without scripts, and safe from hostile names."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from itertools import pairwise
from urllib.parse import unquote

import pytest
from selectolax.lexbor import LexborHTMLParser, LexborNode

from epicrisis.evaluation.analysis.findings import Findings
from epicrisis.evaluation.analysis.published import load_published
from epicrisis.evaluation.analysis.statistics import Interval, Mean
from epicrisis.evaluation.analysis.table import Table
from epicrisis.evaluation.runs.recorded_run import RunSummary
from epicrisis.report.charts import COLOURS
from epicrisis.report.page import ERRATA, GENERATOR, SHOWN_FINDINGS, render_page
from epicrisis.report.page_header import name_arms
from epicrisis.report.table_cells import table_csv
from tests.support import report_findings

STYLE = resources.files("epicrisis.report").joinpath("style.css").read_text("utf-8")


@cache
def render_with_plots() -> str:
    """Render two experiments with plots, one of them with hostile names."""
    return render_page(
        (report_findings.by_position(), report_findings.in_conflict()), f"Report {report_findings.HOSTILE}"
    )


@cache
def render_tables() -> str:
    """Render every experiment without plots."""
    return render_page(report_findings.everything(), plots=False)


def parse_page(html: str) -> LexborHTMLParser:
    return LexborHTMLParser(html)


def read_text(node: LexborNode | None) -> str:
    """Return the text of a node, with a space where an element ends a line."""
    assert node is not None
    return " ".join(node.text(separator=" ").split())


def read_policy(tree: LexborHTMLParser) -> str:
    (policy,) = [
        node.attributes["content"] or ""
        for node in tree.css("meta")
        if node.attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    return policy


@pytest.mark.long
@pytest.mark.parametrize("html", [render_with_plots, render_tables])
def test_page_loads_no_external_resource(html: object) -> None:
    tree = parse_page(html())  # type: ignore[operator]
    for node in tree.css("*"):
        for name, value in node.attributes.items():
            if name in ("src", "srcset", "action", "data", "poster", "xlink:href", "background"):
                pytest.fail(f"{node.tag} loads {value}")
            if name == "href":
                assert (value or "").startswith(("#", "data:text/csv")), value
            assert "url(" not in (value or "")
    assert tree.css("link, iframe, img, object, embed, form, base, animate, use") == []
    assert "url(" not in STYLE
    assert "@import" not in STYLE


@pytest.mark.long
def test_page_policy_allows_only_its_own_scripts() -> None:
    tree = parse_page(render_with_plots())
    policy = read_policy(tree)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    scripts = [node for node in tree.css("script") if node.attributes.get("type") != "application/json"]
    hashes = [
        f"'sha256-{base64.b64encode(hashlib.sha256(node.text().encode()).digest()).decode()}'" for node in scripts
    ]
    assert rules["default-src"] == "'none'"
    assert rules["script-src"].split() == hashes
    assert len(scripts) == 2
    assert "unsafe-eval" not in policy
    assert not any(name.startswith("on") for node in tree.css("*") for name in node.attributes)


@pytest.mark.slow
def test_page_without_plots_has_no_script() -> None:
    tree = parse_page(render_tables())
    assert tree.css("script, svg") == []
    assert "script-src 'none'" in read_policy(tree)


@pytest.mark.slow
def test_page_shows_hostile_names_as_text() -> None:
    tree = parse_page(render_with_plots())
    assert read_text(tree.css_first("h1")) == f"Report {report_findings.HOSTILE}"
    assert read_text(tree.css_first("title")) == f"Report {report_findings.HOSTILE}"
    assert "<script>alert" not in render_with_plots()
    assert any(f"own {report_findings.HOSTILE}" in read_text(node) for node in tree.css("dd"))
    assert report_findings.HOSTILE in [read_text(node) for node in tree.css("tbody th")]
    assert sum("alert" in node.text() for node in tree.css("script:not([type])")) == 0


def test_page_shows_hostile_table_as_text() -> None:
    table = Table(
        report_findings.HOSTILE,
        (report_findings.HOSTILE, "n"),
        ((report_findings.HOSTILE, 1),),
        (report_findings.HOSTILE,),
        report_findings.HOSTILE,
    )
    hostile = replace(
        report_findings.by_position(),
        experiment=report_findings.HOSTILE,
        about=report_findings.HOSTILE,
        tables=(table,),
        conclusions=(report_findings.HOSTILE,),
    )
    tree = parse_page(render_page((hostile,), plots=False))
    assert tree.css("script") == []
    text = (read_text(tree.css_first(which)) for which in (".about", ".conclusions li", "thead th", "caption small"))
    assert set(text) == {report_findings.HOSTILE}


def test_page_has_sections_in_order() -> None:
    tree = parse_page(render_with_plots())
    assert "Not a medical device" in read_text(tree.css_first("header p"))
    assert [read_text(node) for node in tree.css("h2")] == ["Positions", "Conflicts"]
    section = tree.css_first("section")
    assert section is not None
    assert [read_text(node) for node in section.css("h3")] == [
        "Findings",
        "Results",
        "Published figures",
        "How the runs were made",
    ]
    for block in tree.css(".table"):
        inside = [node.tag for node in block.css("table, figure")]
        assert inside[0] == "table"
        assert inside.count("table") == 1


@pytest.mark.slow
def test_page_headings_and_links_are_consistent() -> None:
    tree = parse_page(render_tables())
    levels = [int(str(node.tag)[1:]) for node in tree.css("h1, h2, h3, h4")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    ids = [node.attributes["id"] for node in tree.css("[id]")]
    assert len(ids) == len(set(ids))
    links = [(node.attributes["href"] or "").removeprefix("#") for node in tree.css("a[href^='#']")]
    assert set(links) <= set(ids)
    assert {"experiment-1", "table-1-1", "runs-7"} <= set(links)


@pytest.mark.slow
def test_page_begins_with_finding_source_and_plot() -> None:
    source = RunSummary(
        "run",
        {
            "questions": {"name": "pubmedqa"},
            "sample": {"n": 40},
            "recipe": {"models": {"writer": {"name": "http://127.0.0.1:8000/v1#tiny"}}},
            "sessions": [{"started": "2026-11-02T10:00:00+00:00"}],
        },
        complete=True,
    )
    tree = parse_page(render_page((replace(report_findings.by_position(), sources=(source,)),)))
    section = tree.css_first("section")
    assert section is not None
    names = [node.attributes.get("class") for node in section.css(".about, .measured, .headline, figure, h3")]
    assert names[:4] == ["about", "measured", "headline", "plot"]
    assert read_text(section.css_first(".measured")) == "model tiny · pubmedqa, 40 questions · 2 November 2026"
    headline = read_text(section.css_first(".headline"))
    assert "RAG" in headline
    assert headline.startswith("In 4 of 4 comparisons (difference to RAG at that k, averaged over the places;")
    assert "rag" not in headline.split()
    assert len(section.css(".conclusions")[0].css("li")) <= SHOWN_FINDINGS
    assert len(section.css("figure.plot")) == len({read_text(node) for node in section.css("figcaption")})


def test_page_states_repeated_cells_once_in_the_caption() -> None:
    rows = tuple(("tiny", arm, 0, n) for arm, n in (("rag", 4), ("brief-context", 5), ("closed-book", 6)))
    table = Table("Counts", ("model", "arm", "failed", "right"), rows)
    html = render_page((replace(report_findings.by_position(), tables=(table,), published=()),), plots=False)
    tree = parse_page(html)
    assert [read_text(node) for node in tree.css("thead th")] == ["arm", "right"]
    assert read_text(tree.css_first("caption small")) == "In all rows: model tiny; failed 0."
    assert [read_text(node) for node in tree.css("tbody th")] == ["RAG", "BriefContext", "closed book"]
    (link,) = tree.css("a[download]")
    assert unquote(str(link.attributes["href"])).splitlines()[1] == "tiny,rag,0,4"


def test_page_names_empty_columns_in_the_caption() -> None:
    rows = (("tiny", "rag", 4, None), ("tiny", "brief-context", 5, None))
    table = Table("Counts", ("model", "arm", "right", "difference to rag"), rows)
    tree = parse_page(
        render_page((replace(report_findings.by_position(), tables=(table,), published=()),), plots=False)
    )
    assert [read_text(node) for node in tree.css("thead th")] == ["arm", "right"]
    captions = [read_text(node) for node in tree.css("caption small")]
    assert captions == ["In all rows: model tiny.", "Without a value: difference to RAG."]


def test_page_without_tested_differences_states_the_shares() -> None:
    rows = tuple(("tiny", arm, Mean(share, Interval(0, 1), 40)) for arm, share in (("rag", 0.25), ("closed-book", 0.5)))
    table = Table("Accuracy", ("model", "arm", "share right"), rows)
    tree = parse_page(
        render_page((replace(report_findings.by_position(), tables=(table,), published=()),), plots=False)
    )
    headline = read_text(tree.css_first(".headline"))
    assert headline.startswith("The share right was highest with closed book, 50.0 %")
    assert headline.endswith("the difference was not tested.")


def test_page_names_arms_only_as_words() -> None:
    assert name_arms("rag+route beats rag, not rag-model or storage") == (
        "RAG, then BriefContext beats RAG, not rag-model or storage"
    )
    assert name_arms("brief-context+confidence: +1") == "BriefContext with confidence: +1"


def test_page_sections_of_one_experiment_have_distinct_titles() -> None:
    one, other = (replace(make_curve(3), sources=(RunSummary(name, {}, True),)) for name in ("titles", "bodies"))
    tree = parse_page(render_page((one, report_findings.by_position(), other), plots=False))
    assert [read_text(node) for node in tree.css("h2")] == ["Preflight: titles", "Positions", "Preflight: bodies"]


def test_page_tables_have_captions_and_scoped_heads() -> None:
    tree = parse_page(render_tables())
    table_nodes = tree.css("table")
    assert len(table_nodes) == sum(len(item.tables) + len(item.published) for item in report_findings.everything())
    for table in table_nodes:
        assert read_text(table.css_first("caption")).startswith("Table ")
        assert all(node.attributes.get("scope") == "col" and read_text(node) for node in table.css("thead th"))
        for row in table.css("tbody tr"):
            heads = row.css("th")
            assert heads
            assert all(node.attributes.get("scope") == "row" for node in heads)
    for region in tree.css(".scroll"):
        assert region.attributes["tabindex"] == "0"
        assert region.attributes["role"] == "region"


def test_page_figures_show_interval_count_and_bounds_of_failed_cases() -> None:
    """3 of the 36 cases failed: they count as not right, and may have been right."""
    row = next(node for node in parse_page(render_tables()).css("tbody tr") if " to 63.9" in node.text())
    assert [read_text(cell) for cell in row.css("th, td")][:9] == [
        "tiny",
        "8",
        "RAG",
        "55.6 % 33.3 to 75.0, n 36",
        "20",
        "13",
        "3",
        "19.2 %",
        "55.6 to 63.9",
    ]
    none = next(node for node in row.css("td") if node.css_first(".unseen"))
    assert read_text(none) == "– none"
    assert "– means no value" in read_text(parse_page(render_tables()).css_first(".reading"))


def test_page_notes_are_listed_once_per_section() -> None:
    (section, *_) = parse_page(render_tables()).css("section")
    notes = [read_text(node) for node in section.css(".notes li:not(.again)")]
    assert len(notes) == len(set(notes))
    text = {note for table in report_findings.by_position().tables for note in table.notes}
    assert text <= set(notes)
    assert "Also notes 1 , 2 , 4" in read_text(section.css_first(".again"))


def test_page_published_tables_state_source_and_errata() -> None:
    tree = parse_page(render_tables())
    printed = tree.css(".printed")
    assert [read_text(node.css_first("caption"))[11:33] for node in printed] == ["As the paper prints it"] * len(
        printed
    )
    first = printed[0]
    assert "BriefContext, preprint, Supplementary Table 1 (Figure 2)" in read_text(first.css_first("caption"))
    assert [read_text(node) for node in first.css("dt")] == ["B9", "B10", "B14", "B16"]
    assert load_published()["positions"].paper.title in read_text(first.css_first(".source"))
    assert "56.59" in [read_text(node) for node in first.css("td")]


def test_page_errata_of_tables_have_texts() -> None:
    named = {name for table in load_published().values() for name in table.errata}
    assert named <= set(ERRATA)
    assert all(text.endswith(".") for text in ERRATA.values())


def test_page_shows_recipe_and_unfinished_runs() -> None:
    section = parse_page(render_with_plots()).css_first("section")
    assert section is not None
    facts = [(read_text(node.css_first("dt")), read_text(node.css_first("dd"))) for node in section.css(".facts > div")]
    assert ("questions", f"name own {report_findings.HOSTILE}; sha256 {'5a' * 32}; n {report_findings.N}") in facts
    assert ("arms", "rag, brief-context") in facts
    assert ("guard", "–") in facts
    assert ("recipe, settings, preflight", "enabled no") in facts
    assert ("sessions, 1", "started 2026-11-21") in facts
    assert ("sessions, 1, versions", "python 3.11.7") in facts
    assert read_text(section.css_first(".unfinished")).startswith(f"Not finished: {report_findings.HOSTILE}.")
    assert [read_text(node) for node in section.css("h4")] == ["tiny", f"{report_findings.HOSTILE} (not finished)"]


def test_page_describes_run_of_two_experiments_once() -> None:
    first, second = parse_page(render_tables()).css("section")[:2]
    assert first.css(".facts")
    assert second.css(".facts") == []
    link = second.css_first("h4 + details p a")
    assert link is not None
    assert (link.attributes["href"], read_text(link)) == ("#runs-1", "Positions")


def test_page_contains_csv_of_each_table() -> None:
    tree = parse_page(render_tables())
    links = tree.css(".data a")
    shown_tables = [
        table
        for item in report_findings.everything()
        for table in (*item.tables, *(printed.table for printed in item.published))
    ]
    for link, table in zip(links, shown_tables, strict=True):
        head, _, data = (link.attributes["href"] or "").partition(",")
        assert head == "data:text/csv;charset=utf-8"
        assert unquote(data) == table_csv(table)
        assert len(list(csv.reader(io.StringIO(unquote(data))))) == len(table.rows) + 1
    assert links[0].attributes["download"] == "positions-table-1.1.csv"


def make_curve(points: int) -> Findings:
    """Make preflight's table of thresholds with `n` rows."""
    at = [i / points for i in range(points)]
    rows = tuple((item, Mean(item, Interval(0, 1), 9), Mean(1 - item, Interval(0, 1), 9)) for item in at)
    table = Table("Every threshold", ("threshold", "recall", "specificity"), rows)
    return report_findings.findings("preflight", (table,))


@pytest.mark.slow
@pytest.mark.parametrize("plots", [True, False])
def test_page_prints_long_curve_in_steps(plots: bool) -> None:
    tree = parse_page(render_page((make_curve(203),), plots=plots))
    rows = tree.css("tbody tr")
    assert len(rows) == 203, "the screen has every row"
    printed = [i for i, row in enumerate(rows) if "off-paper" not in (row.attributes.get("class") or "")]
    assert printed == [*range(0, 203, 6), 202]
    assert read_text(tree.css_first(".on-paper")) == (
        "One row in 6 is printed: 168 of 203 rows are left out on paper. All are in the CSV file of table 1.1, which "
        "the page offers on the screen."
    )
    (link,) = tree.css(".data a")
    assert len(list(csv.reader(io.StringIO(unquote(link.attributes["href"] or ""))))) == 204
    on_screen, on_paper = STYLE.split("@media print")
    assert ".on-paper { display: none; }" in on_screen
    assert ".off-paper" not in on_screen
    assert ".off-paper { display: none; }" in on_paper


def test_page_prints_short_tables_completely() -> None:
    assert parse_page(render_page((make_curve(60),), plots=False)).css(".off-paper, .on-paper") == []
    assert parse_page(render_tables()).css(".off-paper, .on-paper") == []


def test_page_plots_are_visible_without_scripts_and_named() -> None:
    tree = parse_page(render_with_plots())
    charts = tree.css(".chart")
    assert len(charts) > 20
    for chart in charts:
        assert chart.attributes["role"] == "img"
        assert "The figures are in table" in (chart.attributes["aria-label"] or "")
        assert chart.css_first(".still svg") is not None
    for plot in tree.css("figure.plot"):
        assert "drawn from table" in read_text(plot.css_first("figcaption"))
    legends = [[read_text(item) for item in legend.css("li")] for legend in tree.css(".legend")]
    assert ["RAG", "BriefContext"] in legends
    assert ["win", "tie", "lose"] in legends


@pytest.mark.slow
def test_page_is_deterministic_and_small() -> None:
    assert (
        render_page((report_findings.by_position(), report_findings.in_conflict()), f"Report {report_findings.HOSTILE}")
        == render_with_plots()
    )
    assert len(render_with_plots()) < 2_000_000
    assert len(render_tables()) < 500_000


def test_page_without_report_extra_states_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    tree = parse_page(render_page((report_findings.by_position(),)))
    assert tree.css("svg, script, figure") == []
    assert len(tree.css("table")) == 6
    assert 'pip install "epicrisis[report]"' in read_text(tree.css_first(".reading"))
    assert "epicrisis[report]" not in read_text(parse_page(render_with_plots()).css_first("header"))


def test_page_without_findings_is_valid() -> None:
    tree = parse_page(render_page(()))
    assert read_text(tree.css_first("h1")) == "Report of experiments"
    empty = replace(report_findings.by_position(), tables=(Table("Nothing yet", ("arm", "n"), ()),), published=())
    assert "There is nothing to show yet." in read_text(parse_page(render_page((empty,))).css_first("tbody"))


def test_page_starts_with_generator_and_language() -> None:
    assert GENERATOR in render_with_plots()[:2_000]
    assert '<html lang="en">' in render_with_plots()[:2_000]


def read_variables(scheme: str) -> Mapping[str, str]:
    return dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", scheme))


def compute_contrast(one: str, other: str) -> float:
    """Return the contrast ratio of WCAG 2, from relative luminance."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_page_colours_have_sufficient_contrast() -> None:
    light, dark = (read_variables(part) for part in STYLE.split("@media screen and (prefers-color-scheme: dark)"))
    dark = {name: colour for name, colour in list(dark.items()) if name in light}
    assert light.keys() == dark.keys()
    assert [light[f"c{i}"] for i in range(len(COLOURS))] == list(COLOURS)
    for colours in (light, dark):
        assert all(compute_contrast(colours[name], colours["paper"]) >= 4.5 for name in ("ink", "soft", "link"))
        assert all(compute_contrast(colours[f"c{i}"], colours["paper"]) >= 3 for i in range(len(COLOURS)))
