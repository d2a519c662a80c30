"""Retracted articles on the command line: left out with a note, or marked wherever they are shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from epicrisis.core.prompts import unfence
from epicrisis.testing.chat import ScriptedModel
from tests.cli.conftest import Run
from tests.cli.test_literature import citation, pubmed
from tests.corpus.test_retractions import entry, watch
from tests.support.hostile import HostileServer
from tests.support.replies import content_text
from tests.support.served_models import served

pytestmark = pytest.mark.models

QUOTE = "Aspirin prevents stroke in all who take it."
NOTICE = """<PubmedArticle><MedlineCitation><PMID Version="1">900</PMID>
<DateRevised><Year>2024</Year><Month>03</Month><Day>01</Day></DateRevised><Article><Journal><JournalIssue><PubDate>
<Year>2024</Year></PubDate></JournalIssue><Title>Gut</Title></Journal><ArticleTitle>Retraction: Aspirin and stroke.
</ArticleTitle></Article><CommentsCorrectionsList><CommentsCorrections RefType="RetractionOf"><RefSource>Gut</RefSource>
<PMID Version="1">1</PMID></CommentsCorrections></CommentsCorrectionsList></MedlineCitation></PubmedArticle>"""


@pytest.fixture
def library(tmp_path: Path, run: Run, model_home: Path) -> Path:
    """Return a library of two citations that were not retracted when they were added."""
    baseline = pubmed(
        tmp_path / "pubmed26n0001.xml.gz", citation(1, 2010, QUOTE), citation(2, 2016, "Aspirin and stroke reviewed.")
    )
    assert run("library", "add", tmp_path / "library", baseline).exit_code == 0
    return tmp_path / "library"


@pytest.fixture
def retracted(request: pytest.FixtureRequest, library: Path, tmp_path: Path, run: Run) -> Path:
    """Return the library after a notice in an update file, or the list, retracted its first citation."""
    by = getattr(request, "param", "list")
    if by == "list":
        source = watch(
            tmp_path / "retraction_watch.csv", entry(7, "Retraction", pmid=1), entry(8, "Correction", pmid=2)
        )
    else:
        source = pubmed(tmp_path / "pubmed26n1400.xml.gz", NOTICE)
    report = json.loads(run("library", "add", library, source, "--json").stdout)
    assert report["marked"] == (2 if by == "list" else 1)
    return library


@pytest.mark.long
@pytest.mark.parametrize(
    ("retracted", "by"), [("list", "dense"), ("list", "bm25"), ("update file", "hybrid")], indirect=["retracted"]
)
def test_search_leaves_out_retracted_article_with_note(retracted: Path, run: Run, by: str) -> None:
    command = ("search", retracted, "aspirin prevents stroke", "--by", by)
    ranking = json.loads(run(*command, "--json").stdout)
    assert [hit["passage"]["document_id"] for hit in ranking["hits"]] == ["pubmed:2"]
    (note_of_search,) = [note for note in ranking["notes"] if "retracted" in note]
    assert "pubmed:1" in note_of_search
    assert note_of_search.endswith("(scope.include=retracted reads them, with a mark)")
    assert "pubmed:1" in ranking["parameters"]["withheld"]
    assert note_of_search in run(*command).stdout
    # The notice is of 2024: an article is left out whenever it was retracted.
    early = json.loads(run(*command, "--as-of", "2023", "--json").stdout)
    assert [hit["passage"]["document_id"] for hit in early["hits"]] == ["pubmed:2"]
    assert any("retracted" in note and "left out" in note for note in early["notes"])


@pytest.mark.long
def test_search_including_retracted_marks_article(retracted: Path, run: Run) -> None:
    command = ("search", retracted, "aspirin prevents stroke", "--by", "dense", "--setting", "scope.include=retracted")
    hits = {hit["passage"]["document_id"]: hit for hit in json.loads(run(*command, "--json").stdout)["hits"]}
    assert hits["pubmed:1"]["marks"] == ["retracted"]
    blocks = run(*command).stdout.split("\n\n")
    assert [block.splitlines()[0].endswith("[RETRACTED]") for block in blocks if "pubmed:1#0" in block] == [True]


def reply_with_quote(request: Any) -> str:
    prompt = request.messages[-1].content
    if "[finding 1" in prompt:
        return json.dumps({"result": {"found": True, "sources": [1], "answer": "It does."}})
    number = next((n for n, text in enumerate(unfence(prompt), 1) if QUOTE in text), None)
    if number is None:
        return json.dumps({"result": {"found": False}})
    quotes = [{"doc": number, "quote": QUOTE}]
    return json.dumps({"result": {"found": True, "quotes": quotes, "answer": "It does.", "finding": "It does."}})


def read_prompts(server: HostileServer) -> list[str]:
    """Return the prompts after the instructions, one for each call."""
    bodies = [
        request_of_server.body
        for request_of_server in server.received
        if request_of_server.path.endswith("/chat/completions")
    ]
    return [content_text(body["messages"][-1]["content"]) for body in bodies]


@pytest.mark.long
@pytest.mark.parametrize(
    ("retracted", "strategy"), [("update file", "rag"), ("list", "brief-context")], indirect=["retracted"]
)
def test_ask_including_retracted_marks_prompt_and_answer(
    retracted: Path, run: Run, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EPICRISIS_CACHE__MODE", "off")
    monkeypatch.setenv("EPICRISIS_MODELS__WRITER__CONTEXT_TOKENS", "100000")
    with served(ScriptedModel(reply_with_quote)) as server:
        command = (
            "ask",
            retracted,
            "Does aspirin prevent stroke?",
            "--strategy",
            strategy,
            "--setting",
            "preflight.enabled=false",
            "--by",
            "dense",
            "--model",
            f"{server.url}#m",
            "--setting",
            "citing=quotes",
        )
        plain = run(*command, "--json")
        assert QUOTE not in "".join(read_prompts(server))
        first = len(read_prompts(server))
        assert "retracted document" in plain.stdout, "the trace says what was left out"
        assert run(*command).stdout.count("retracted document") == 1, "and the screen, once"
        marked = json.loads(run(*command, "--json", "--setting", "scope.include=retracted").stdout)
        screen = run(*command, "--setting", "scope.include=retracted").stdout
        prompts = read_prompts(server)[first:]
    (citation_of_answer,) = marked["citations"]
    assert (citation_of_answer["document_id"], citation_of_answer["marks"]) == ("pubmed:1", ["retracted"])
    assert "[1] [RETRACTED]" in screen
    of_documents = [prompt for prompt in prompts if QUOTE in prompt and "[doc " in prompt]
    assert of_documents
    for prompt in of_documents:
        label = next(line for line in prompt.splitlines() if line.startswith("[doc") and "Aspirin 1 " in line)
        assert ": RETRACTED] " in label
        assert any(QUOTE in text and "RETRACTED" not in text for text in unfence(prompt))
    if strategy == "brief-context":
        assert any("[finding 1: RETRACTED]" in prompt for prompt in prompts)


@pytest.mark.long
def test_search_finds_reinstated_article(retracted: Path, run: Run, tmp_path: Path) -> None:
    reinstatement = watch(tmp_path / "newer.csv", entry(70, "Reinstatement", "12/31/2030 0:00", pmid=1))
    assert run("library", "add", retracted, reinstatement).exit_code == 0
    ranking = json.loads(run("search", retracted, "aspirin prevents stroke", "--json").stdout)
    assert "pubmed:1" in {hit["passage"]["document_id"] for hit in ranking["hits"]}


@pytest.mark.slow
def test_add_retraction_list_reports_counts(library: Path, run: Run, tmp_path: Path) -> None:
    report = run(
        "library", "add", library, watch(tmp_path / "l.csv", entry(1, "Retraction", pmid=1), entry(2, "Retraction"))
    )
    assert report.exit_code == 0, report.stderr
    assert "2 entries on retractions, concerns and corrections read, 1 of them without a PMID or DOI" in report.stdout
    assert "1 document of the library received a new mark" in report.stdout
    assert "1 of 2 documents retracted" in run("library", "check", library).stdout
