"""`epicrisis library add --pmid, --doi, --search` with services on loopback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from epicrisis.cli.fetched_sources import read_request
from epicrisis.core.errors import InputError
from epicrisis.core.types import Document
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.system.local_only import set_local_only
from epicrisis.testing.hashing_encoder import HashingEncoder
from tests.cli.conftest import Run
from tests.support.literature_services import LiteratureServices, pubmed_record, serve_literature


@pytest.fixture(autouse=True)
def _guard_off() -> object:
    """Turn the network guard off afterwards: the command turns it on for its process."""
    yield
    set_local_only(False)


def options(services: LiteratureServices) -> list[str]:
    return [
        "--setting",
        f"literature.pubmed={services.url}/eutils",
        "--setting",
        f"literature.europe_pmc={services.url}/rest",
    ]


@pytest.mark.slow
@pytest.mark.models
def test_add_says_whom_it_asks_adds_what_is_there_and_lists_the_rest(
    run: Run, tmp_path: Path, model_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EPICRISIS_LITERATURE__CACHE_DAYS", "0")
    library, paper = tmp_path / "library", tmp_path / "paper.txt"
    paper.write_text("Warfarin.")
    with serve_literature() as services:
        services.records.update({"12377809": pubmed_record(12377809), "5": pubmed_record(5)})
        services.results["aspirin"] = ["5", "12377809"]
        wanted = ["--pmid", "PMID: 12377809, 77", "--doi", "https://doi.org/10.1/none", "--search", "aspirin"]
        result = run("library", "add", library, paper, *wanted, "--limit", 1, *options(services))
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("3 documents added")
    asked, note, *_ = result.stderr.splitlines()
    assert asked == "asking 127.0.0.1 for 2 PMIDs, 1 DOI, 1 search"
    assert note.startswith("note: search 1: PubMed has 2 results; the 1 most relevant are taken (--limit")
    assert "warning: PMID 77: PubMed has no record of this number; check the number" in result.stderr
    assert "warning: DOI 10.1/none: Europe PMC has no article with this DOI" in result.stderr
    hits = json.loads(run("search", library, "aspirin", "--by", "bm25", "--json").stdout)["hits"]
    assert {hit["passage"]["document_id"] for hit in hits} == {"pubmed:12377809", "pubmed:5"}


def test_articles_under_local_only_are_refused_before_anything_is_created(run: Run, tmp_path: Path) -> None:
    result = run("library", "add", tmp_path / "library", "--doi", "10.1/x", "--local-only")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "--pmid, --doi and --search contact eutils.ncbi.nlm.nih.gov and www.ebi.ac.uk, and local_only" in line
    assert not (tmp_path / "library").exists()


def test_articles_for_a_library_of_notes_are_refused_and_nobody_is_asked(run: Run, tmp_path: Path) -> None:
    encoder = HashingEncoder(64, 128)
    with open_or_create(tmp_path / "ward", encoder, "hashing", 0) as library:
        add_documents(library, [Document("n", "Jane has lupus.", patient="p")], encoder)
    with serve_literature() as services:
        result = run("library", "add", tmp_path / "ward", "--search", "lupus", *options(services))
        assert services.asked == []
    assert result.exit_code == 2
    assert "holds patients' notes" in result.stderr
    assert "--setting beside=" in result.stderr
    assert "lupus" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([], "nothing to add"),
        (["--pmid", "abc"], "--pmid abc: a PMID is a number"),
        (["--pmid", "1234567890"], "at most nine digits"),
        (["--doi", "11.1/x"], "a DOI begins with 10."),
        (["--doi", '10.1234/x" OR "y'], "a DOI begins with 10."),
        (["--search", "  "], "the search is empty"),
        (["--watch", "--pmid", "1"], "--watch takes folders alone"),
    ],
)
def test_wrong_options_are_one_line(arguments: list[str], part: str, run: Run, tmp_path: Path) -> None:
    result = run("library", "add", tmp_path / "library", *arguments)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert part in line


def test_numbers_and_dois_are_read_in_the_forms_people_copy() -> None:
    request = read_request(["PMID:0012,13 14"], ["doi: 10.1000/X", "https://dx.doi.org/10.1000/X"], [], 5, True)
    assert request is not None
    assert (request.pmids, request.dois) == (("12", "13", "14"), ("10.1000/X",))
    assert read_request([], [], [], 5, False) is None
    with pytest.raises(InputError, match="a PMID is a number"):
        read_request(["12a"], [], [], 5, False)
