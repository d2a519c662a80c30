"""`epicrisis search` on the screen: at every width, in a pipe and on a terminal, and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from epicrisis.cli import search_output
from epicrisis.core.types import Hit, Passage, Ranking
from tests.cli.conftest import Run

ABSTRACT = "Background. " * 40 + "Low-dose aspirin lowered the risk of preterm pre-eclampsia. " + "More text. " * 40
METADATA = {
    "authors": ["Rolnik, Daniel L", "Wright, David", "Poon, Liona C", "O'Gorman, Neil"],
    "journal_abbreviation": "N Engl J Med",
    "doi": "10.1056/NEJMoa1704559",
    "publication_types": ["Randomized Controlled Trial"],
}
ARTICLE = Passage(
    id="pubmed:28657417#0",
    document_id="pubmed:28657417",
    ordinal=0,
    start=0,
    end=len(ABSTRACT),
    text=ABSTRACT,
    title="Aspirin versus Placebo in Pregnancies at High Risk for Preterm Preeclampsia",
    source="PubMed",
    date="2017-08-17",
    metadata=METADATA,
)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_search_shows_reference_link_and_two_lines_at_every_width(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    search_output.show_search(Ranking((Hit(ARTICLE, 0.5, 0),), "bm25"), "aspirin against pre-eclampsia")
    output = capsys.readouterr().out
    assert "Rolnik DL et al. N Engl J Med. 2017. randomised trial" in " ".join(output.split())
    assert "PMID 28657417: https://pubmed.ncbi.nlm.nih.gov/28657417/" in output
    lines = output.splitlines()
    text = [line for line in lines if line.startswith("      ")]
    assert len(text) == 2
    assert "aspirin lowered the risk" in " ".join(" ".join(text).split())
    assert max(map(cell_len, lines)) <= width
    assert "\x1b" not in output


def test_search_on_a_terminal_highlights_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(force_terminal=True, width=80, record=True, color_system="standard")
    monkeypatch.setattr("epicrisis.cli.terminal.open_console", lambda: console)
    search_output.show_search(Ranking((Hit(ARTICLE, 0.5, 0),), "bm25"), "aspirin")
    assert "\x1b[1;33maspirin\x1b[0m" in console.export_text(styles=True)


def test_search_json_keeps_its_fields_and_adds_documents_and_matches(small_library: Path, run: Run) -> None:
    data = json.loads(run("search", small_library, "aspirin", "--by", "bm25", "--json").stdout)
    assert {"hits", "retriever", "parameters", "notes", "tops"} < set(data)
    hit, document = data["hits"][0], data["documents"][0]
    start, end = hit["matches"][0]
    assert hit["passage"]["text"][start:end].lower() == "aspirin"
    assert document["passages"][0] == hit["passage"]["id"]
    assert {"authors", "journal", "year", "links"} < set(document["reference"])
