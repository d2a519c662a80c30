"""Files and folders, good and bad, through the one door."""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from epicrisis.core.errors import InputError
from epicrisis.core.types import Document, Origin
from epicrisis.corpus.base.reader_base import HEAD_BYTES, FileDocument, FileFingerprint, Skipped
from epicrisis.corpus.readers.sources import FORMATS, read_sources

GOOD = '{"id": "a", "text": "Aspirin thins the blood."}\n'


def _put(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def _ids(paths: list[Path], format: str | None = None) -> list[str]:
    return [item.id for item in read_sources(paths, format) if isinstance(item, Document)]


def _skipped(paths: list[Path], format: str | None = None) -> list[Skipped]:
    return [item for item in read_sources(paths, format) if isinstance(item, Skipped)]


def test_plain_text_is_kept_except_line_breaks_and_byte_order_mark(tmp_path: Path) -> None:
    path = _put(tmp_path, "note.txt", b"\xef\xbb\xbf  # no heading here\r\nfever\rchills \n")
    document = Document("file:note.txt", "  # no heading here\nfever\nchills \n", title="note", source="note.txt")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert list(read_sources([path])) == [document, FileFingerprint("note.txt", digest, path.stat().st_size)]


@pytest.mark.parametrize(
    ("markdown", "title"),
    [
        ("# Heart failure\nText", "Heart failure"),
        ("intro\n\n## Second  level ##\n# First", "Second level"),
        ("```\n# a comment\n```\n# Real", "Real"),
        ("#hashtag\n####### seven\n#\n# #\n", "page"),
        ("no heading", "page"),
    ],
)
def test_first_markdown_heading_is_title(tmp_path: Path, markdown: str, title: str) -> None:
    document, _ = read_sources([_put(tmp_path, "page.md", markdown)])
    assert isinstance(document, Document)
    assert (document.title, document.text) == (title, markdown)


def test_folder_is_read_in_path_order(tmp_path: Path) -> None:
    _put(tmp_path, "b.txt", "b")
    _put(tmp_path, "a/z.MD", "z")
    _put(tmp_path, "a/lines.jsonl", GOOD)
    _put(tmp_path, ".hidden.txt", "hidden")
    _put(tmp_path, ".git/config.txt", "hidden")
    assert _ids([tmp_path]) == ["a", "file:a/z.MD", "file:b.txt"]
    assert _skipped([tmp_path]) == []


def test_unreadable_files_in_folder_are_reported(tmp_path: Path) -> None:
    _put(tmp_path, "good.txt", "good")
    _put(tmp_path, "blank.txt", " \n")
    _put(tmp_path, "empty.txt", "")
    _put(tmp_path, "latin.txt", "naïve\n".encode() + b"na\xefve")
    _put(tmp_path, "nul.txt", "a\0b")
    _put(tmp_path, "scan.dcm", "DICM")
    _put(tmp_path, "other.xml", "<plist/>")
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nowhere")
    assert _ids([tmp_path]) == ["file:good.txt"]
    reasons = {Path(item.path).name: item.reason for item in _skipped([tmp_path])}
    assert set(reasons) == {
        "blank.txt",
        "empty.txt",
        "latin.txt",
        "nul.txt",
        "scan.dcm",
        "other.xml",
        "pipe.txt",
        "gone.txt",
    }
    assert reasons["latin.txt"] == "two encodings are mixed, one of them UTF-8; save all of it as UTF-8"
    assert reasons["nul.txt"] == "contains a NUL character: not a text file"
    assert reasons["blank.txt"] == "holds no text; leave it out"
    assert reasons["empty.txt"].startswith("the file is empty")
    assert "save it as PDF" in reasons["scan.dcm"]
    assert "other XML" in reasons["other.xml"]
    assert all(item.where == "" for item in _skipped([tmp_path]))


@pytest.mark.parametrize("ending", [".txt", ".md", ".pdf", ".html", ".nxml"])
def test_file_name_without_utf8_is_reported_printably(tmp_path: Path, ending: str) -> None:
    (tmp_path / os.fsdecode(b"na\xefve" + ending.encode())).write_text(JATS)
    (skipped,) = read_sources([tmp_path])
    assert isinstance(skipped, Skipped)
    assert skipped.reason == "the file's name is not UTF-8; rename it"
    assert skipped.path.encode().endswith(f"na\ufffdve{ending}".encode())


ENDNOTE_XML = (
    '<?xml version="1.0"?><xml><records><record><database name="x.enl">x.enl</database></record></records></xml>'
)
ZOTERO_RDF = '<rdf:RDF xmlns:z="http://www.zotero.org/namespaces/export#"><bib:Article/></rdf:RDF>'


@pytest.mark.parametrize(
    ("name", "content", "cure"),
    [
        ("x.xml", ENDNOTE_XML, "EndNote's library or XML; export the references as RIS"),
        ("x.xml", ENDNOTE_XML.replace("><", ">\n<"), "or as .enw"),
        ("x.enl", "x", "or as .enw"),
        ("x.enlx", b"PK\x03\x04", "or as .enw"),
        ("x.xml", ZOTERO_RDF, "Zotero RDF; export the references as RIS"),
        ("x.rdf", ZOTERO_RDF, "Zotero RDF; export the references as RIS"),
        ("x.xml", '<collection xmlns="http://www.loc.gov/MARC21/slim"/>', "export the references as RIS"),
        ("x.mrc", "00714cam", "export the references as RIS"),
        ("x.papers2", "x", "export the references as RIS"),
    ],
)
def test_format_of_a_reference_manager_is_refused_with_what_to_export(
    name: str, content: str | bytes, cure: str, tmp_path: Path
) -> None:
    path = _put(tmp_path, name, content)
    _put(tmp_path, "good.jsonl", GOOD)
    (skipped,) = _skipped([tmp_path])
    assert cure in skipped.reason
    with pytest.raises(InputError, match=re.escape(cure)):
        read_sources([path])


def test_all_paths_are_checked_before_first_document(tmp_path: Path) -> None:
    good = _put(tmp_path, "good.jsonl", GOOD)
    other = _put(tmp_path, "other.json", '{"1": "yes"}')
    with pytest.raises(InputError, match="no such file or folder; check the spelling"):
        read_sources([good, tmp_path / "typo.jsonl"])
    with pytest.raises(InputError, match=r"not PubMedQA's file; it must map PMIDs"):
        read_sources([good, other])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.jsonl", "", "the file is empty; leave it out"),
        ("empty.txt", "", "the file is empty; leave it out"),
        ("scan.dcm", "DICM", "its ending is not one of .jsonl, .jsonl.gz, .txt"),
        ("plist.xml", "<plist/>", "XML of neither PubMed, JATS nor C-CDA"),
        ("noending", "text", "rename it, or give its format"),
        ("broken.json", "{", "not a JSON file in UTF-8; it must map PMIDs"),
        ("deep.json", "[" * 100_000, "not a JSON file in UTF-8"),
        ("list.json", "[]", "not PubMedQA's file"),
    ],
)
def test_unreadable_named_file_raises_one_line_error(tmp_path: Path, name: str, content: str, message: str) -> None:
    path = _put(tmp_path, name, content)
    with pytest.raises(InputError) as caught:
        read_sources([path])
    assert message in caught.value.message
    assert caught.value.message.startswith(str(path))
    assert "\n" not in caught.value.message


def test_unusable_paths_raise(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    _put(tmp_path, "pictures/a.png", "png")
    os.mkfifo(tmp_path / "pipe")
    file = _put(tmp_path, "good.jsonl", GOOD)
    with pytest.raises(InputError, match="no file below it that can be read"):
        read_sources([tmp_path / "empty"])
    with pytest.raises(InputError, match="no file below it that can be read"):
        read_sources([tmp_path / "pictures"])
    with pytest.raises(InputError, match="neither a file nor a folder; write the data to a file"):
        read_sources([tmp_path / "pipe"])
    with pytest.raises(InputError, match="check the path and its permissions"):
        read_sources([file / "below"])
    with pytest.raises(InputError, match="no path was given"):
        read_sources([])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_file_without_permission_raises(tmp_path: Path) -> None:
    file = _put(tmp_path, "locked/note.txt", "text")
    file.chmod(0)
    with pytest.raises(InputError, match="check the path and its permissions"):
        read_sources([file])
    assert [item.path for item in _skipped([tmp_path])] == [str(file)]
    file.parent.chmod(0)
    with pytest.raises(InputError, match="check its permissions"):
        read_sources([tmp_path])
    file.parent.chmod(0o700)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("mode", [0, 0o400])
def test_closed_folder_and_closed_database_are_errors_of_input(mode: int, tmp_path: Path) -> None:
    """Zotero's database is looked for in each folder, before its files are read."""
    names = ["note.txt", "data.json", "data.csv", "data.xml.gz", "data.bib"]
    for name in names:
        _put(tmp_path, f"closed/{name}", "text")
    database = _put(tmp_path, "zotero/zotero.sqlite", "SQLite format 3\0")
    _put(tmp_path, "zotero/note.txt", "text")
    database.chmod(0)
    assert [item.path for item in _skipped([tmp_path / "zotero"])] == [str(database)]
    closed = tmp_path / "closed"
    closed.chmod(mode)
    try:
        if mode:
            skipped = _skipped([closed])
            assert sorted(Path(item.path).name for item in skipped) == sorted(names)
            assert all("ermission" in item.reason for item in skipped)
        else:
            with pytest.raises(InputError, match="check its permissions"):
                read_sources([closed])
    finally:
        closed.chmod(0o700)


def test_format_option_overrides_detection(tmp_path: Path) -> None:
    lines = _put(tmp_path, "export.data", GOOD)
    note = _put(tmp_path, "NOTE", "fever")
    entries = _put(tmp_path, "set.txt", json.dumps({"7": {"QUESTION": "q?", "CONTEXTS": ["c"]}}))
    assert _ids([lines], "jsonl") == ["a"]
    assert _ids([note], "text") == ["file:NOTE"]
    assert _ids([entries], "pubmedqa") == ["pubmed:7"]
    assert _ids([tmp_path], "text") == ["file:NOTE", "file:export.data", "file:set.txt"]
    with pytest.raises(InputError, match=f"'csv'; the known ones are {', '.join(FORMATS)}"):
        read_sources([lines], "csv")


def test_files_of_equal_name_have_different_ids(tmp_path: Path) -> None:
    first = _put(tmp_path, "p1/note.txt", "one")
    second = _put(tmp_path, "p2/note.txt", "two")
    with pytest.raises(InputError, match="give the folder above both"):
        read_sources([first, second])
    with pytest.raises(InputError, match=r"would both be the document file:note\.txt"):
        read_sources([tmp_path / "p1", tmp_path / "p2"])
    assert _ids([first, first, tmp_path / "p1"]) == ["file:note.txt"]
    assert _ids([tmp_path]) == ["file:p1/note.txt", "file:p2/note.txt"]


def test_documents_have_source_files_if_requested(tmp_path: Path) -> None:
    note, lines = _put(tmp_path, "p1/note.txt", "one"), _put(tmp_path, "p2/a.jsonl", GOOD)
    _put(tmp_path, "p2/note.txt", "two")
    _put(tmp_path, "p2/b.xml", PUBMED.format(pmid=1))
    items = [
        item
        for item in read_sources([note, tmp_path / "p2"], with_origins=True)
        if not isinstance(item, FileFingerprint)
    ]
    named, line, citation, other = items
    assert isinstance(citation, Document), "its revision says what replaces it"
    assert isinstance(named, FileDocument)
    assert named.document.id == "file:note.txt"
    assert named.origin == Origin(str(note), "note.txt", hashlib.sha256(b"one").hexdigest())
    assert isinstance(line, FileDocument)
    assert (line.document.id, line.origin) == ("a", Origin(str(lines)))
    assert isinstance(other, FileDocument)
    assert (other.document.id, other.origin.path) == ("file:note.txt", str(tmp_path / "p2/note.txt"))
    again = read_sources([note, tmp_path / "p1"], with_origins=True)
    assert len([item for item in again if isinstance(item, FileDocument)]) == 1, "one file, named twice"


PUBMED = """<?xml version="1.0"?><!DOCTYPE PubmedArticleSet PUBLIC "-//NLM//DTD" "https://nowhere.invalid/pubmed.dtd">
<PubmedArticleSet><PubmedArticle><MedlineCitation><PMID Version="1">{pmid}</PMID><Article>
<ArticleTitle>Title {pmid}</ArticleTitle></Article></MedlineCitation></PubmedArticle></PubmedArticleSet>"""
JATS = (
    "<article><front><article-meta><title-group><article-title>T</article-title></title-group></article-meta></front>"
    "<body><p>Body.</p></body></article>"
)


@pytest.mark.slow
def test_xml_kind_is_detected_by_content(tmp_path: Path) -> None:
    _put(tmp_path, "a.xml.gz", gzip.compress(PUBMED.format(pmid=1).encode()))
    _put(tmp_path, "b.xml", PUBMED.format(pmid=2))
    _put(tmp_path, "c.nxml", JATS)
    assert _ids([tmp_path]) == ["pubmed:1", "pubmed:2", "file:c.nxml"]


def test_complete_pubmed_files_are_skipped(tmp_path: Path) -> None:
    one, two = (_put(tmp_path, f"pubmed26n000{n}.xml", PUBMED.format(pmid=n)) for n in (1, 2))
    known = [item for item in read_sources([one]) if isinstance(item, FileFingerprint)]
    assert [each.name for each in known] == ["pubmed26n0001.xml"]
    assert [item.id for item in read_sources([one, two], previous=known) if isinstance(item, Document)] == ["pubmed:2"]
    one.write_text(PUBMED.format(pmid=3))
    assert [item.id for item in read_sources([one], previous=known) if isinstance(item, Document)] == ["pubmed:3"], (
        "same size"
    )
    lines = _put(tmp_path, "a.jsonl", GOOD)
    whole = [item for item in read_sources([lines]) if isinstance(item, FileFingerprint)]
    assert [item.id for item in read_sources([lines], previous=whole) if isinstance(item, Document)] == ["a"], (
        "no revisions"
    )


def test_truncated_file_is_not_complete(tmp_path: Path) -> None:
    cut = _put(tmp_path, "cut.jsonl.gz", gzip.compress((GOOD * 50).encode())[:-9])
    broken = _put(tmp_path, "broken.xml", PUBMED.format(pmid=1)[:-30])
    for path in (cut, broken):
        items = list(read_sources([path]))
        assert not any(isinstance(item, FileFingerprint) for item in items)
        assert isinstance(items[-1], Skipped)
        assert items[-1].where.startswith("after")


def test_links_that_lead_nowhere_are_skipped_with_the_cure(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("text")
    (tmp_path / "self.txt").symlink_to("self.txt")
    (tmp_path / "gone.pdf").symlink_to("missing.pdf")
    (tmp_path / "loop").symlink_to(".")
    (tmp_path / "library.bib").write_text("@article{a, title={T}, abstract={A}, file={x\0y/note.txt}}")
    for with_origins in (False, True):
        items = list(read_sources([tmp_path], with_origins=with_origins))
        reasons = {Path(item.path).name: item.reason for item in items if isinstance(item, Skipped)}
        cure = "a link to a file that is not there; correct or remove the link"
        assert reasons.items() >= {"self.txt": cure, "gone.pdf": cure}.items()


def test_folder_that_cannot_be_listed_is_skipped_unless_it_is_the_outermost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "closed").mkdir()
    (tmp_path / "note.txt").write_text("text")
    refused = {str(tmp_path / "closed")}
    scandir = os.scandir

    def refuse(path: Any = ".") -> Any:
        if str(path) in refused:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    items = list(read_sources([tmp_path]))
    assert [item.text for item in items if isinstance(item, Document)] == ["text"]
    (skipped,) = [item for item in items if isinstance(item, Skipped)]
    assert skipped == Skipped(str(tmp_path / "closed"), "", "Permission denied; check its permissions, or leave it out")
    refused.add(str(tmp_path))
    with pytest.raises(InputError, match="Permission denied; check its permissions"):
        read_sources([tmp_path])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "Aspirin helped."),
        ("b.json", '{"resourceType": "Patient", "id": "p1"}'),
        (
            "c.csv",
            "note_id,subject_id,hadm_id,note_type,note_seq,charttime,storetime,text\nn1,1,2,DS,1,2150-01-01,,Aspirin.\n",
        ),
        ("d.jsonl", '{"id": "x", "text": "Aspirin."}\n'),
    ],
)
def test_small_file_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: str) -> None:
    """By a look at its format, its reader and its fingerprint together."""
    path = _put(tmp_path, name, content)
    os.utime(path, (1e9, 1e9))
    opened = []
    open_path = Path.open

    def note(self: Path, *arguments: Any, **keywords: Any) -> Any:
        opened.append(self)
        return open_path(self, *arguments, **keywords)

    monkeypatch.setattr(Path, "open", note)
    assert list(read_sources([path]))
    assert opened == [path]


def test_file_that_changes_at_the_same_time_of_its_clock_is_read_anew(tmp_path: Path) -> None:
    path = _put(tmp_path, "a.txt", "Aspirin helped.")
    status = path.stat()
    assert [item.text for item in read_sources([path]) if isinstance(item, Document)] == ["Aspirin helped."]
    path.write_text("Aspirin harmed.", encoding="utf-8")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert [item.text for item in read_sources([path]) if isinstance(item, Document)] == ["Aspirin harmed."]


def test_file_beyond_the_head_is_read_to_its_end(tmp_path: Path) -> None:
    path = _put(tmp_path, "a.txt", "x " * HEAD_BYTES + "Aspirin at the end.")
    (document, fingerprint) = read_sources([path])
    assert isinstance(document, Document)
    assert document.text.endswith("Aspirin at the end.")
    assert isinstance(fingerprint, FileFingerprint)
    assert fingerprint.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
