"""Literature on the command line: PubMed files, precomputed vectors, filters, splitters, fused libraries."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epicrisis.library.core.library_store import LibraryStore
from epicrisis.testing.stores import build_stored_document
from tests.cli.conftest import Run

CITATION = """<PubmedArticle><MedlineCitation><PMID Version="1">{pmid}</PMID>
<DateRevised><Year>{year}</Year><Month>03</Month><Day>01</Day></DateRevised>
<Article><Journal><JournalIssue><PubDate><Year>{year}</Year></PubDate></JournalIssue><Title>{journal}</Title></Journal>
<ArticleTitle>{title}</ArticleTitle><Abstract><AbstractText>{text}</AbstractText></Abstract>
<PublicationTypeList><PublicationType UI="D">{kind}</PublicationType></PublicationTypeList></Article>
</MedlineCitation></PubmedArticle>"""
TRIAL, REVIEW, RETRACTED = "Randomized Controlled Trial", "Review", "Retracted Publication"


def citation(pmid: int, year: int, text: str, kind: str = TRIAL, journal: str = "The Lancet") -> str:
    return CITATION.format(pmid=pmid, year=year, title=f"Aspirin {pmid}", text=text, kind=kind, journal=journal)


def pubmed(path: Path, *citations: str, deleted: Sequence[int] = ()) -> Path:
    gone = "".join(f'<PMID Version="1">{pmid}</PMID>' for pmid in deleted)
    tail = f"<DeleteCitation>{gone}</DeleteCitation>" if deleted else ""
    path.write_bytes(gzip.compress(f"<PubmedArticleSet>{''.join(citations)}{tail}</PubmedArticleSet>".encode()))
    return path


def search_ids(run: Run, library: Path, *options: object) -> set[str]:
    result = run("search", library, "aspirin and stroke", "-k", 20, *options, "--json")
    assert result.exit_code == 0, result.stderr
    return {hit["passage"]["document_id"] for hit in json.loads(result.stdout)["hits"]}


@pytest.fixture
def literature(tmp_path: Path, run: Run, model_home: Path) -> Path:
    """Return a library of four citations from one baseline file."""
    baseline = pubmed(
        tmp_path / "pubmed26n0001.xml.gz",
        citation(1, 2010, "Aspirin prevents stroke."),
        citation(2, 2016, "Aspirin and stroke reviewed.", REVIEW, "BMJ"),
        citation(3, 2018, "Aspirin and stroke once more.", RETRACTED),
        citation(4, 2020, "Aspirin in stroke, a trial."),
    )
    assert run("library", "add", tmp_path / "library", baseline).exit_code == 0
    return tmp_path / "library"


@pytest.mark.long
@pytest.mark.models
@pytest.mark.parametrize("by", ["dense", "bm25", "hybrid"])
def test_search_with_scope_settings_filters_articles(literature: Path, run: Run, by: str) -> None:
    for options, pmids in (
        (("--setting", "scope.since=2016"), (2, 4)),
        (("--setting", "scope.since=2016", "--setting", "scope.include=retracted"), (2, 3, 4)),
        (("--as-of", "2016"), (1, 2)),
        (("--setting", "scope.types=randomized controlled trial"), (1, 4)),
        (("--setting", f"scope.types={REVIEW}", "--setting", f"scope.types={TRIAL}"), (1, 2, 4)),
        (("--setting", "scope.journals=bmj"), (2,)),
        (("--setting", "scope.without=retracted"), (1, 2, 4)),
        (("--setting", "scope.hide=pubmed:1", "--setting", "scope.hide=pubmed:4"), (2,)),
        (
            (
                "--setting",
                "scope.since=2015",
                "--setting",
                f"scope.types={TRIAL}",
                "--setting",
                "scope.without=retracted",
            ),
            (4,),
        ),
        ((), (1, 2, 4)),
        (("--setting", "scope.include=retracted"), (1, 2, 3, 4)),
    ):
        assert search_ids(run, literature, "--by", by, *options) == {f"pubmed:{pmid}" for pmid in pmids}, options


@pytest.mark.long
@pytest.mark.models
def test_add_update_files_in_any_order_keeps_latest_revision(literature: Path, tmp_path: Path, run: Run) -> None:
    newer = pubmed(tmp_path / "pubmed26n1400.xml.gz", citation(1, 2025, "Aspirin, revised twice."), deleted=[2])
    older = pubmed(
        tmp_path / "pubmed26n1399.xml.gz", citation(1, 2024, "Aspirin, revised."), citation(2, 2024, "Aspirin.")
    )
    output = json.loads(run("library", "add", literature, newer, "--json").stdout)
    assert (output["added"], output["replaced"], output["deleted"]) == (0, 1, 1)
    output = json.loads(run("library", "add", literature, older, "--json").stdout)
    assert (output["added"], output["replaced"], output["outdated"]) == (0, 0, 2)
    assert search_ids(run, literature, "--by", "bm25") == {"pubmed:1", "pubmed:4"}
    again = json.loads(run("library", "add", literature, older, newer, "--json").stdout)
    assert again["unchanged"] == again["outdated"] == 0, "complete files are skipped"
    info = json.loads(run("library", "info", literature, "--json").stdout)
    names = {"pubmed26n0001.xml.gz", "pubmed26n1400.xml.gz", "pubmed26n1399.xml.gz"}
    assert {source["name"] for source in info["sources"]} == names
    assert info["problems"] == []


@pytest.mark.slow
@pytest.mark.models
def test_delete_removes_documents_and_names_unknown_ids(literature: Path, run: Run) -> None:
    output = run("library", "delete", literature, "pubmed:1", "pubmed:99", "--json")
    assert json.loads(output.stdout) == {"deleted": ["pubmed:1"], "unknown": ["pubmed:99"]}
    assert (output.exit_code, "not in the library: pubmed:99" in output.stderr) == (2, True)
    assert search_ids(run, literature) == {"pubmed:2", "pubmed:4"}
    report = json.loads(run("library", "check", literature, "--json").stdout)
    assert report["problems"] == []
    assert report["library"]["documents"] == 3
    health = run("library", "check", literature)
    assert (health.exit_code, "no problem found" in health.stdout) == (0, True)
    assert "pubmed26n0001.xml.gz" in health.stdout


@pytest.mark.slow
@pytest.mark.models
def test_optimize_small_library_builds_no_index(literature: Path, run: Run) -> None:
    assert json.loads(run("library", "optimize", literature, "--json").stdout) == {"index": None, "good": True}
    assert "small enough for exact search: no index needed" in run("library", "optimize", literature).stdout


@pytest.mark.long
def test_purge_of_a_library_of_lance_leaves_nothing_of_a_deleted_document(tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "large"
    library = LibraryStore.create(
        folder, encoder_fingerprint="t", encoder_name="t", dimensions=4, max_tokens=9, overlap=0, engine="lance"
    )
    with library:
        library.add([build_stored_document(f"d{number}", "aspirin") for number in range(50)])
        library.add([build_stored_document("secretname", "xylophon quartz")])
    assert run("library", "delete", folder, "secretname").exit_code == 0
    assert find_files_with(folder, b"xylophon")
    purged = run("library", "optimize", folder, "--purge")
    assert "all files written anew: nothing of deleted documents is left in them" in purged.stdout
    assert find_files_with(folder, b"xylophon") == find_files_with(folder, b"secretname") == []
    assert "50 documents, 50 passages" in run("library", "info", folder).stdout


def find_files_with(folder: Path, text: bytes) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file() and text in path.read_bytes()]


def test_purge_of_a_database_names_its_command(run: Run) -> None:
    result = run("library", "optimize", "postgresql://user@127.0.0.1:9/nowhere", "--purge")
    assert result.exit_code == 2
    assert "library optimize --purge is for libraries in folders" in result.stderr
    assert "VACUUM FULL" in result.stderr


@pytest.mark.long
@pytest.mark.models
def test_search_fuses_libraries_and_reports_long_question(literature: Path, run: Run) -> None:
    question = "Does aspirin prevent stroke? " * 80
    result = run(
        "search",
        literature,
        question,
        "--by",
        "dense",
        "--setting",
        f"fuse={literature}",
        "--setting",
        f"rrf_k={100}",
        "--json",
    )
    ranking: dict[str, Any] = json.loads(result.stdout)
    assert ranking["parameters"]["rrf_k"] == 100
    assert ranking["parameters"]["question_cut"] is True
    assert "segments, all of it seen by dense search" in ranking["notes"][0]
    cut = json.loads(run("search", literature, question, "--setting", "long_questions=cut", "--json").stdout)
    assert "tokens not seen by dense search" in cut["notes"][0]


@pytest.mark.long
@pytest.mark.models
def test_add_with_other_splitter_is_refused(tmp_path: Path, run: Run, model_home: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_text("Aspirin thins the blood. " * 100, encoding="utf-8")
    output = json.loads(run("library", "add", tmp_path / "books", book, "--splitter", "medrag", "--json").stdout)
    assert output["passages"] == 3
    assert "1,000 characters" in run("library", "info", tmp_path / "books").stdout
    refused = run("library", "add", tmp_path / "books", book, "--splitter", "whole")
    assert refused.exit_code == 2
    assert "cuts documents by medrag, not by whole" in refused.stderr


def chunk(folder: Path, articles: dict[str, tuple[str, str]]) -> np.ndarray[Any, Any]:
    """Write NCBI's three files for articles (title and abstract by PMID) and return their vectors."""
    folder.mkdir()
    vectors = np.random.default_rng(0).normal(size=(len(articles), 768)).astype(np.float32)
    np.save(folder / "embeds_chunk_0.npy", vectors)
    (folder / "pmids_chunk_0.json").write_text(json.dumps(list(articles)))
    rows = {pmid: {"d": "20200301", "t": title, "a": text, "m": ""} for pmid, (title, text) in articles.items()}
    (folder / "pubmed_chunk_0.json").write_text(json.dumps(rows))
    return vectors


@pytest.mark.slow
def test_add_precomputed_vectors_needs_no_encoder(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPICRISIS_HOME", str(tmp_path / "no models"))
    library = tmp_path / "library"
    chunk(tmp_path / "chunks", {"1": ("Aspirin 1", "Aspirin prevents stroke."), "9": ("Aspirin 9", "Aspirin, stroke.")})
    output = json.loads(run("library", "add", library, "--format", "medcpt", tmp_path / "chunks", "--json").stdout)
    assert (output["added"], output["passages"], output["encode_seconds"]) == (2, 2, pytest.approx(0, abs=0.1))
    assert search_ids(run, library, "--by", "bm25") == {"pubmed:1", "pubmed:9"}
    dense = run("search", library, "aspirin", "--by", "dense")
    assert dense.exit_code == 2
    assert "epicrisis models pull medcpt" in dense.stderr

    same = pubmed(tmp_path / "pubmed26n0001.xml.gz", citation(1, 2020, "Aspirin prevents\n stroke.", REVIEW))
    output = json.loads(run("library", "add", library, same, "--json").stdout)
    assert output["replaced"] == 1, "the XML's fields, with NCBI's vector"
    assert search_ids(run, library, "--by", "bm25", "--setting", f"scope.types={REVIEW}") == {"pubmed:1"}
    other = pubmed(tmp_path / "pubmed26n0002.xml.gz", citation(9, 2021, "Aspirin and something new."))
    refused = run("library", "add", library, other)
    assert refused.exit_code == 2
    assert "a text has no precomputed vector, and medcpt is not installed" in refused.stderr
    assert search_ids(run, library, "--by", "bm25") == {"pubmed:1", "pubmed:9"}
    again = json.loads(run("library", "add", library, "--format", "medcpt", tmp_path / "chunks", "--json").stdout)
    assert again["added"] == again["replaced"] == again["unchanged"] == 0
