"""Lists of references of text, Markdown, HTML and office files are no sentences of the document."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from docx import Document as WordDocument

from epicrisis.core.types import Document
from epicrisis.corpus.base.reader_base import OmittedText
from epicrisis.corpus.base.reference_lists import remove_reference_lists
from epicrisis.corpus.base.removal_log import RemovalLog
from epicrisis.corpus.documents import html, office
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.corpus.records.note_documents import NoteCleaning

TEXT = "Zinc for colds\n\nZinc shortened colds.\n\n"
VANCOUVER = (
    "1. Doe A. Zinc did not shorten colds. J Demo 2001;3:1-4.\n2. Roe B, Poe C. Zinc reduces colds. Lancet 1999;1:2.\n"
)
LISTS = {
    "numbers": VANCOUVER,
    "brackets": "[1] Doe A. Zinc failed. J Demo 2001.\n[2] Roe B. Zinc helps. J Demo 2002.\n",
    "bullets": "- Doe A. Zinc failed. J Demo 2001.\n* Roe B. Zinc helps. J Demo 2002.\n",
    "authors and years": "Doe, A. B., & Roe, C. (2001). Zinc fails. *Demo*, 3(1), 1-4.\n\nvan Poe, J. (1999). Zinc.\n",
    "wrapped lines": "Doe A. Zinc did not\nshorten colds. J Demo\n2001;3:1-4.\n\nRoe B, et al. Zinc. J Demo 1999.\n",
    "lines after a full stop": "1. Doe A. Zinc. Geneva; 2001.\nAccessed March 11.\n2. Roe B. Zinc. J Demo 2002.\n",
    "an organisation": "World Health Organization. Zinc. Geneva: WHO; 2010.\nDoe A. Zinc. J Demo 2001.\n",
    "a number on its own line": "1.\nDoe A. Zinc failed. J Demo 2001;3:1.\n2.\nRoe B. Zinc. J Demo 2002;3:1.\n",
    "an address": "1. Zinc in schools. https://example.org/zinc. Accessed 3 May 2019.\n",
    "others without a comma": "Doe A et al. Zinc failed. J Demo 2001.\n",
    "two authors": "Doe A and Roe B. Zinc failed. J Demo 2001.\n",
    "a year behind the author": "Doe A (2001) Zinc failed.\n",
    "a year behind a group": "Demo Group (2001). Zinc failed.\n",
    "one in press": "1. Doe A. Zinc failed. J Demo, in press.\n",
}


@pytest.mark.parametrize("references", LISTS.values(), ids=list(LISTS))
def test_list_in_any_style_is_removed(references: str) -> None:
    assert remove_reference_lists(f"{TEXT}References\n{references}") == (TEXT, [f"References\n{references}"])


@pytest.mark.parametrize(
    "heading",
    [
        *("References", "REFERENCES:", "  Bibliography", "Literature cited", "Works Cited", "References cited"),
        *("## References", "## References ##", "**References**", "7. References", "9 References", "Reference list"),
    ],
)
def test_heading_in_any_form_begins_a_list(heading: str) -> None:
    assert remove_reference_lists(f"{TEXT}{heading}\n\n{VANCOUVER}")[0] == TEXT


@pytest.mark.parametrize(
    "following",
    [
        "Appendix\n1. Search terms: zinc, cold.\n",
        "Appendix A. Search of 2001;3\nZinc.\n",
        "\nAddress for correspondence: Demo Institute.\n",
        "\nPatient information\nZinc was given since 2001.\n",
        "\nVitamin D was given in 2001 to 20 adults.\n",
        "# Doses of 2001;3\n1. Doe A. 2001;3:1 is no reference here.\n",
        "3. Dosage\nTake zinc.\n",
        "- Wash your hands.\n",
        "\nThe protocol is at https://example.org/zinc.\n",
        "The search took a day.\n",
    ],
)
def test_text_after_the_list_stays(following: str) -> None:
    assert remove_reference_lists(f"{TEXT}References\n{VANCOUVER}{following}")[0] == TEXT + following


def test_list_of_each_chapter_is_removed() -> None:
    text, lists = remove_reference_lists(f"One.\n\nReferences\n{VANCOUVER}\nTwo.\n\nReferences\n{VANCOUVER}")
    assert (text, len(lists)) == ("One.\n\n\nTwo.\n\n", 2)


@pytest.mark.parametrize(
    "text",
    [
        f"{TEXT}References to zinc are rare.\n{VANCOUVER}",
        f"{TEXT}See the references\nbelow, of which one was from 2001;3:1.\n",
        f"{TEXT}References\n\nMethods\n\n{VANCOUVER}",
        f"{TEXT}References\n1. Wash your hands.\n2. Sleep.\n3. Doe A. Zinc. J Demo 2001;3:1.\n",
        f"{TEXT}References\nWe asked Doe A. in 2001 for advice.\n",
        f"References\n{VANCOUVER}",
        f"{TEXT}References\n",
    ],
)
def test_text_without_a_list_of_references_is_kept(text: str) -> None:
    assert remove_reference_lists(text) == (text, [])


@pytest.mark.parametrize(
    "lines",
    ["References\n", "1. Doe A. Zinc\n", "x\n", "1 " * 999, "References\n1. Doe A. Zinc. J Demo 2001;3:1.\nx\n"],
)
def test_time_is_linear(lines: str) -> None:
    begin = time.perf_counter()
    remove_reference_lists("References\nDoe A\n" + lines * (2_000_000 // len(lines)))
    assert time.perf_counter() - begin < 10


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", f"{TEXT}References\n{VANCOUVER}"),
        ("a.md", f"# Zinc\n\n{TEXT}## References\n\n{VANCOUVER}"),
        ("a.html", "<p>Zinc shortened colds.</p><h2>References</h2><ol><li>Doe A. Zinc failed. J Demo 2001.</li></ol>"),
    ],
)
def test_files_are_read_without_their_references_and_the_log_has_them(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    log = RemovalLog()
    items = list(read_sources([tmp_path / name], cleaning=NoteCleaning(removal_log=log)))
    (document,) = [item for item in items if isinstance(item, Document)]
    assert "Zinc shortened colds." in document.text
    assert "Doe" not in document.text
    assert log.summary().kinds["reference-list"].texts == 1


def test_web_page_of_nothing_but_references_keeps_them(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<h1>References</h1><p>Doe A. Zinc. J Demo 2001.</p>")
    items = list(html.read_document(tmp_path / "a.html", "a.html"))
    assert not [item for item in items if isinstance(item, OmittedText)]


def test_list_of_a_word_file_is_left_out_and_its_sections_keep_their_places(tmp_path: Path) -> None:
    word = WordDocument()
    word.add_heading("Zinc for colds", 1)
    for heading in ("References", "Results", "References", "Appendix"):
        word.add_heading(heading, 2)
        for line in VANCOUVER.splitlines() if heading == "References" else (f"{heading} on zinc.",):
            word.add_paragraph(line)
    word.save(str(tmp_path / "zinc.docx"))
    document, omitted = office.read_document(tmp_path / "zinc.docx", "zinc.docx")
    assert isinstance(document, Document)
    assert document.text == ("Zinc for colds / Results\nResults on zinc.\nZinc for colds / Appendix\nAppendix on zinc.")
    parts = [document.text[start:end] for start, end, _ in document.metadata["sections"]]
    assert "\n".join(parts) == document.text
    assert omitted == OmittedText("file:zinc.docx", "reference-list", (f"References\n{VANCOUVER}",) * 2)


@pytest.mark.parametrize("lines", [["References", "See the ward."], ["References", *VANCOUVER.splitlines()]])
def test_word_file_of_nothing_else_or_without_entries_is_kept(tmp_path: Path, lines: list[str]) -> None:
    word = WordDocument()
    for line in lines:
        word.add_paragraph(line)
    word.save(str(tmp_path / "x.docx"))
    (document,) = office.read_document(tmp_path / "x.docx", "x.docx")
    assert isinstance(document, Document)
    assert document.text == "\n".join(lines)
