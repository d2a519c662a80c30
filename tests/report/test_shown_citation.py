"""A further fact on a source is one entry of the presenter, and all outputs print it."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from epicrisis.cli.event_display import EventDisplay
from epicrisis.core.answers import Citation
from epicrisis.core.references import Reference
from epicrisis.report import answer_content, shown_citation
from epicrisis.report.answer_content import build_answer_content
from epicrisis.report.answer_files import to_html, to_markdown
from epicrisis.report.answer_text import MAX_TITLE
from epicrisis.report.citation_files import CitedSource
from epicrisis.report.shown_citation import ShownCitation, show_citation
from epicrisis.server.api import mcp_results, openai_reply
from epicrisis.server.page import answer_view
from epicrisis.server.state.stored_answers import StoredAnswer
from tests.report.test_answer_content import ANSWER


def test_new_fact_is_printed_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def show_more(citation: Citation) -> ShownCitation:
        shown = show_citation(citation)
        return replace(shown, facts=(*shown.facts, ("Funding", "public")))

    for module in (answer_content, mcp_results, openai_reply, answer_view):
        monkeypatch.setattr(module, "show_citation", show_more)
    out = io.StringIO()
    EventDisplay(Console(file=out, width=500)).show_answer(ANSWER)
    content = build_answer_content(ANSWER)
    assert "Funding: public" in out.getvalue()
    assert "Funding: public" in to_markdown(content)
    assert "Funding: public" in to_html(content)
    assert mcp_results._build_citation(ANSWER, ANSWER.citations[0]).facts["Funding"] == "public"
    assert "Funding: public" in openai_reply._describe_citation(ANSWER.citations[0], "http://page", "")
    stored = StoredAnswer(id="1", answer=ANSWER, passages=(), library="library", owner="owner", at=0.0)
    assert ("Funding", "public") in answer_view.build_answer_view(stored).by_number[ANSWER.citations[0].number].facts


@pytest.mark.parametrize("strategy", ["rag", "evidence"])
def test_very_long_title_is_cut_on_a_screen_alone(strategy: str) -> None:
    """Its quotation is not, and `verbose` has both whole."""
    title = "Aspirin and " + "a very long list of outcomes " * 20 + "at term"
    long = replace(ANSWER.citations[0], title=title, quotation=f"{title}.")
    answer = replace(ANSWER, citations=(long, ANSWER.citations[1]), strategy=strategy)
    texts: dict[bool, str] = {}
    for verbose in (False, True):
        out = io.StringIO()
        EventDisplay(Console(file=out, width=5000)).show_answer(answer, verbose=verbose)
        texts[verbose] = out.getvalue()
    cut = f"{title[: MAX_TITLE - 1].rstrip()}…"
    assert (texts[False].count(cut), texts[False].count(title)) == (1, 1)
    assert (texts[True].count(cut), texts[True].count(title)) == (0, 2)
    assert to_markdown(build_answer_content(answer)).count(title) == 2
    assert ANSWER.citations[1].title in texts[False]


def test_very_long_title_of_a_nearest_result_is_cut_on_a_screen() -> None:
    long = replace(ANSWER.citations[0], title="A very long list of outcomes " * 20, quotation="It helped.")
    shown = str(replace(ANSWER, citations=(), nearest=(long,), claims=()))
    assert "It helped." in shown
    assert "A very long list" in shown
    assert long.title.strip() not in shown


def test_words_of_a_citation_are_printable_and_name_its_study() -> None:
    shown = show_citation(replace(ANSWER.citations[0], quotation="Aspirin\x1b[2J helped."))
    assert "\x1b" not in shown.quotation
    assert shown.facts == (("Study type", "randomised trial"),)
    assert shown_citation.show_citation(ANSWER.citations[1]).facts == ()


@pytest.mark.parametrize(
    ("title", "note_type", "reference"),
    [
        ("untitled", "", "file:leaflet.html. 2001"),
        ("about:blank", "Letter", "file:leaflet.html. 2001 (Letter)"),
        ("Aspirin in men.", "", "Aspirin in men. 2001"),
        ("", "", "2001"),
    ],
)
def test_title_that_is_none_is_no_title_of_a_citation(title: str, note_type: str, reference: str) -> None:
    citation = ANSWER.citations[0]
    words = replace(Reference(year="2001"), note_type=note_type)
    shown = show_citation(
        replace(citation, title=title, document_id="file:leaflet.html", reference=words, source="", date="2001")
    )
    assert shown.reference == reference


def test_files_of_references_name_a_document_without_title_by_its_id() -> None:
    source = CitedSource(
        id="file:leaflet.html", title="Untitled", source="", date="2001", reference=Reference(year="2001")
    )
    assert source.heading == "file:leaflet.html"
