"""Line ends that the width of a page put into sentences."""

from __future__ import annotations

from pathlib import Path

import pytest

from epicrisis.core.types import Document
from epicrisis.corpus.base.chunking import find_sentences
from epicrisis.corpus.documents.pdf import _clean_texts, read_document
from epicrisis.corpus.documents.pdf_text import join_wrapped_lines
from tests.support.pdf_files import column, placed_pdf

PARAGRAPH = (
    "Women with a singleton pregnancy were screened in the first trimester\n"
    "with an algorithm. Those at high risk took 150 mg of aspirin from 11 to\n"
    "14 weeks until 36 weeks. Fewer of them had the disease, which the\n"
    "ASPRE trial had expected."
)


def read_sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in find_sentences(text)]


def test_paragraph_of_full_lines_becomes_whole_sentences() -> None:
    joined = join_wrapped_lines(PARAGRAPH)
    assert len(joined) == len(PARAGRAPH)
    assert read_sentences(joined) == [
        "Women with a singleton pregnancy were screened in the first trimester with an algorithm.",
        "Those at high risk took 150 mg of aspirin from 11 to 14 weeks until 36 weeks.",
        "Fewer of them had the disease, which the ASPRE trial had expected.",
    ]


@pytest.mark.parametrize(
    "text",
    [
        f"Statistical analysis\n{PARAGRAPH.splitlines()[0]}",
        "Medication on admission:\naspirin 81 mg daily\nmetoprolol 25 mg twice daily\natorvastatin 40 mg",
        "The following outcomes were registered before the trial began\n- death from any cause within a year\n- stroke",
        "Age at entry (years)  54.2 (10.1)  55.1 (9.8)  0.43\nMale sex  102 (51)  99 (50)  0.77  101 (50)  0.81",
        "The trial ended at last.\nThe next began soon after that.",
        "One paragraph that fills its column\n\nand another that follows a blank line",
        "",
        "\n",
    ],
)
def test_line_ends_of_the_writer_stay(text: str) -> None:
    assert join_wrapped_lines(text) == text


def test_short_lines_of_a_justified_column_become_whole_sentences() -> None:
    text = (
        "In this trial, daily vitamin D\nreduced infections. Acute infection\noccurred in 131 of 390 shift workers.\n"
        "Observational studies link\ndeficiency to infection.\nDiscussion\nFew fell ill."
    )
    assert read_sentences(join_wrapped_lines(text)) == [
        "In this trial, daily vitamin D reduced infections.",
        "Acute infection occurred in 131 of 390 shift workers.",
        "Observational studies link deficiency to infection.",
        "Discussion",
        "Few fell ill.",
    ]


def test_line_that_must_go_on_does_so_before_a_number() -> None:
    text = "The hazard was higher (hazard ratio 1.27, 95% confidence interval 1.15 to\n1.40; P < 0.001). It rose."
    assert read_sentences(join_wrapped_lines(text))[0].endswith("1.15 to 1.40; P < 0.001).")


@pytest.mark.parametrize("end", ["\ufffe\r\n", "\ufffe\n", "\x02"])
def test_hyphen_at_a_line_end_is_read_whatever_its_sign(end: str) -> None:
    texts = _clean_texts(
        [f"Over-the-counter purchase. It is over-the{end}counter, and frac{end}tures heal. Fractures."]
    )
    assert texts == ["Over-the-counter purchase. It is over-the-counter, and fractures heal. Fractures."]


def test_title_is_not_joined_with_the_authors() -> None:
    title = "Aspirin from the first trimester in women at high risk"
    text = f"{title}\nRolnik D, Wright D, Poon L, Syngelaki A, and others."
    assert join_wrapped_lines(text, title) == text
    assert join_wrapped_lines(text, "another title") != text


def test_pdf_sentence_over_lines_and_pages_is_one_sentence(tmp_path: Path) -> None:
    first = (
        "Pre-eclampsia leading to delivery before the thirty-seventh week of pregnancy was the outcome. It occurred in"
    )
    second = "fewer women of the group that took aspirin than of the group that took placebo. The end."
    pages = [column(first, 72, 700, 60), column(second, 72, 740, 60)]
    (tmp_path / "trial.pdf").write_bytes(placed_pdf(pages, title="A trial"))
    (document,) = read_document(tmp_path / "trial.pdf", "trial.pdf")
    assert isinstance(document, Document)
    sentences = read_sentences(document.text)
    assert " ".join(sentences[1].split()) == (
        "It occurred in fewer women of the group that took aspirin than of the group that took placebo."
    )
    assert document.metadata["pages"] == [0, len(first) + 2]
    assert document.text[document.metadata["pages"][1] :].startswith("fewer women")


def test_pdf_pages_that_begin_a_sentence_are_separated_by_a_blank_line(tmp_path: Path) -> None:
    pages = [column("A page ends here with a sentence.", 72, 700, 60), column("Another page begins.", 72, 740, 60)]
    (tmp_path / "trial.pdf").write_bytes(placed_pdf(pages))
    (document,) = read_document(tmp_path / "trial.pdf", "trial.pdf")
    assert isinstance(document, Document)
    assert document.text == "A page ends here with a sentence.\n\nAnother page begins."
