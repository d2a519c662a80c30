"""The Word file of an answer: the content and order of the Markdown file, and no text becomes a field or a link."""

from __future__ import annotations

import io
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from docx import Document
from lxml import etree

from epicrisis.core.answers import Answer, Claim, Conflict, ConflictSide, Failure, Notice, PartialAnswer
from epicrisis.core.references import Link, Reference
from epicrisis.core.types import Question
from epicrisis.report.answer_content import AnswerContent, build_answer_content
from epicrisis.report.answer_files import to_markdown
from epicrisis.report.answer_word import is_word_answer, to_word
from tests.support.citations import ADDRESS, TRIAL

RETRACTED = replace(
    TRIAL,
    reference=Reference(journal="N Engl J Med", year="2017", links=(Link("PMID", "28657417", ADDRESS),), page=3),
    marks=("retracted",),
)
CLAIMS = (Claim("Aspirin lowers the risk.", (1,)), Claim("It is safe.", ()))
SIDES = (
    ConflictSide(label="A (yes)", summary="1 trial", count=1, is_answer=True),
    ConflictSide(label="B (no)", summary="1 trial", count=1),
)
ANSWER = Answer(
    question=Question("Does aspirin help?", options={"A": "yes", "B": "no"}, form="choice"),
    strategy="rag",
    state="answered",
    text="It does. [1]",
    choice="A",
    citations=(RETRACTED,),
    claims=CLAIMS,
    conflicts=(Conflict("parts", SIDES, "votes"),),
    partials=(PartialAnswer(partition=0, passages=(), state="failed", failure=Failure("endpoint", "no reply")),),
    trace=(Notice("demo-model", "m is small"),),
)
EVIL = (
    'x\x00\x07\x0b\ufffe\uffff\ud800 <w:fldSimple w:instr="DDEAUTO c:\\\\cmd"/> { HYPERLINK "http://evil" } '
    "=cmd|' /C calc'!A0 http://evil.example ]]> &#x13; \u202e\x13 DDEAUTO \x14 \x15"
)


def read(data: bytes) -> Any:
    return Document(io.BytesIO(data))


def lines_of(document: Any) -> list[str]:
    return [line for paragraph in document.paragraphs for line in paragraph.text.split("\n")]


def parts_of(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return {name: file.read(name) for name in file.namelist()}


def test_word_file_has_the_lines_of_the_markdown_file_in_order() -> None:
    content = build_answer_content(ANSWER)
    document = read(to_word(content, ["Found by hybrid"]))
    markdown = to_markdown(content, ["Found by hybrid"]).replace("\\", "")
    wanted: list[str] = []
    for line in markdown.splitlines():
        text = line.strip().removeprefix("* ").lstrip("# ").replace("**", "")
        text = text.replace(f"[PMID 28657417](<{ADDRESS}>)", "PMID 28657417")
        if text and not text.startswith("<!--"):
            wanted.append(text)
    shown = [line for line in lines_of(document) if line]
    assert shown[: len(wanted)] == wanted
    assert shown[len(wanted) + 1 :] == ["Made with epicrisis, a research tool and not a medical device."]
    text = "\n".join(shown)
    order = ("Does aspirin help?", "Answer: A. yes", "lowers the risk. [1: RETRACTED]", "Sources", "Disagreements")
    places = [text.index(part) for part in (*order, "Not found, left out or failed", "Notes", "Found by hybrid")]
    assert places == sorted(places)


def test_headings_and_lists_are_those_of_word() -> None:
    document = read(to_word(build_answer_content(ANSWER)))
    styles = [(paragraph.style.name, paragraph.text) for paragraph in document.paragraphs]
    assert styles[0] == ("Heading 1", "Does aspirin help?")
    assert ("Heading 2", "Sources") in styles
    assert ("List Bullet", "Aspirin lowers the risk. [1: RETRACTED] (not checked)") in styles
    (warned,) = [p for p in document.paragraphs if p.text.startswith("[1] RETRACTED")]
    assert [run.text for run in warned.runs if run.bold] == ["RETRACTED "]


def test_only_identifiers_are_links() -> None:
    document = read(to_word(build_answer_content(ANSWER)))
    links = [link for paragraph in document.paragraphs for link in paragraph.hyperlinks]
    assert [(link.text, link.address) for link in links] == [("PMID 28657417", ADDRESS)]


def test_hostile_text_is_no_field_no_link_and_breaks_nothing() -> None:
    reference = Reference(journal=EVIL)
    evil = replace(RETRACTED, title=EVIL, quotation=EVIL, document_id=EVIL, reference=reference)
    answer = replace(ANSWER, question=Question(EVIL), citations=(evil,), claims=(Claim(EVIL, (1,)),), choice=None)
    answer = replace(answer, trace=(Notice("search", EVIL),))
    data = to_word(build_answer_content(answer), [EVIL])
    document = read(data)
    assert "DDEAUTO" in document.paragraphs[0].text
    assert [link for paragraph in document.paragraphs for link in paragraph.hyperlinks] == []
    for name, part in parts_of(data).items():
        if name.endswith((".xml", ".rels")):
            tree = etree.fromstring(part)
            tags = {etree.QName(element).localname for element in tree.iter(etree.Element)}
            assert not tags & {"fldSimple", "fldChar", "instrText", "hyperlink", "object", "altChunk"}, name
            assert b'TargetMode="External"' not in part
    shown = "".join(lines_of(document))
    assert not set(shown) & set("\x00\x07\x0b\x13\x14\x15\u202e\ufffe\uffff")


def test_long_question_fits_the_properties_of_word() -> None:
    content = AnswerContent(question="why " * 500, head="Answer", verdict=("yes",))
    assert len(read(to_word(content)).core_properties.title) == 255


def test_saved_or_foreign_file_is_not_ours(tmp_path: Path) -> None:
    path = tmp_path / "answer.docx"
    path.write_bytes(to_word(build_answer_content(ANSWER)))
    assert is_word_answer(path)
    document = Document(str(path))
    document.core_properties.last_modified_by = "Dr House"
    document.save(str(path))
    assert not is_word_answer(path)
    other = Document()
    other.add_paragraph("epicrisis ask")
    other.save(str(path))
    assert not is_word_answer(path)


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"plain"])
def test_broken_file_is_not_ours(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "answer.docx"
    path.write_bytes(data)
    assert not is_word_answer(path)
