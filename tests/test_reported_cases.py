"""Real inputs that failed: the cases of the folder `cases` beside the data give what each `case.md` expects.

A new case is a function that reads its folder with `read_case`, or opens its library with `open_case`, and checks the
expected line. Those of endpoints and chat clients, which need a server, are in the tests of these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest

from epicrisis import Library
from epicrisis.core.errors import EpicrisisError
from epicrisis.core.references import build_reference
from epicrisis.core.study_identity import CitedArticle, group_studies
from epicrisis.core.types import Document, is_retracted, list_article_marks
from epicrisis.corpus.base.reader_base import FileRemark, ReaderItem, Skipped
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.retrieval.question_language import find_language
from epicrisis.testing.hashing_encoder import HashingEncoder


@dataclass(frozen=True)
class CaseItems:
    """What the reader yields for the input of a case."""

    items: Sequence[ReaderItem]

    @property
    def documents(self) -> list[Document]:
        return [item for item in self.items if isinstance(item, Document)]

    @property
    def texts(self) -> list[str]:
        return [document.text for document in self.documents]

    @property
    def notes(self) -> list[Skipped | FileRemark]:
        return [item for item in self.items if isinstance(item, Skipped | FileRemark)]


CaseReader: TypeAlias = Callable[[str], CaseItems]


@pytest.fixture
def read_case(data_folder: Path) -> CaseReader:
    """A function that reads the input of the case with this number."""

    def read(number: str) -> CaseItems:
        (folder,) = (data_folder.parent / "cases" / "literature").glob(f"{number}-*")
        inputs = sorted(path for path in folder.iterdir() if path.name != "case.md")
        return CaseItems(list(read_sources(inputs)))

    return read


LibraryOpener: TypeAlias = Callable[[str], Library]


@pytest.fixture
def open_case(data_folder: Path, tmp_path: Path) -> LibraryOpener:
    """A function that makes a library of the input of the client's case with this number."""

    def make(number: str) -> Library:
        (folder,) = (data_folder.parent / "cases" / "clients").glob(f"{number}-*")
        inputs = [path for path in sorted(folder.iterdir()) if path.suffix in (".jsonl", ".pdf")]
        library = Library.create(tmp_path / "library", encoder=HashingEncoder(64))
        library.add(*inputs)
        return library

    return make


def test_01_nbib_types_and_relations_are_marks(read_case: CaseReader) -> None:
    marks = {document.metadata["pmid"]: list_article_marks(document.metadata) for document in read_case("01").documents}
    assert marks == {
        "31234567": ("retracted",),
        "33333333": ("retraction-notice",),
        "31234568": ("expression-of-concern",),
    }


def test_02_titles_and_notes_are_marks(read_case: CaseReader) -> None:
    documents = read_case("02").documents
    assert [is_retracted(document.metadata) for document in documents] == [True, True, True, True, False]


def test_05_latex_keeps_signs_and_powers(read_case: CaseReader) -> None:
    (text,) = read_case("05").texts
    assert "(p < 0.05) in women aged >35" in text
    assert text.endswith("150 x 10^9/L; change -5 mmHg.")


def test_07_address_in_latex_loses_no_entry(read_case: CaseReader) -> None:
    assert [document.title for document in read_case("07").documents] == ["A", "B second"]


def test_09_repeated_abstract_is_whole(read_case: CaseReader) -> None:
    (text,) = read_case("09").texts
    assert text == (
        "BACKGROUND: Few data exist. METHODS: We randomised 200 patients. RESULTS: Mortality was 12 % and 20 %. "
        "CONCLUSIONS: The drug helps."
    )


def test_11_text_line_like_an_end_stays_in_abstract(read_case: CaseReader) -> None:
    case = read_case("11")
    (document,) = case.documents
    assert document.text.startswith("We treated 400 women. ER- tumours did not respond")
    assert document.text.endswith("ER+ tumours responded, hazard ratio 0.61.")
    assert (document.date, document.metadata["doi"], case.notes) == ("2001", "10.1000/demo.11", [])


def test_13_tags_before_type_belong_to_their_record(read_case: CaseReader) -> None:
    case = read_case("13")
    assert [document.metadata["volume"] for document in case.documents] == ["49", "3"]
    assert {document.metadata["reference_type"] for document in case.documents} == {"article-journal"}
    assert not case.notes


def test_14_records_without_type_have_date_doi_and_journal(read_case: CaseReader) -> None:
    first, second = read_case("14").documents
    assert (first.date, second.date) == ("2014", "2005")
    assert (first.metadata["doi"], second.metadata["doi"]) == ("10.1000/demo.1", "10.1000/demo.2")
    assert (first.metadata["journal"], first.metadata["issue"]) == ("Demo Heart", "2")
    assert "issn" not in first.metadata


def test_16_authors_of_both_tags_are_read(read_case: CaseReader) -> None:
    (document,) = read_case("16").documents
    assert document.metadata["authors"] == ["First, Ann", "Second, Bob"]


def test_17_tags_of_three_letters_are_not_text(read_case: CaseReader) -> None:
    (document,) = read_case("17").documents
    assert (document.text, document.metadata["doi"]) == ("Text of it.", "10.1002/demo")


def test_19_placeholder_is_no_abstract(read_case: CaseReader) -> None:
    case = read_case("19")
    assert not case.documents
    (remark,) = case.notes
    assert isinstance(remark, FileRemark)
    assert remark.count == 3


def test_20_text_export_of_endnote_has_records(read_case: CaseReader) -> None:
    first, second = read_case("20").documents
    assert (first.title, second.title) == ("Aspirin and preterm preeclampsia", "Statins in dialysis")
    assert (first.date, second.date, first.metadata["doi"]) == ("2017", "2005", "10.1000/demo.20")


def test_22_abstract_without_tags_keeps_labels(read_case: CaseReader) -> None:
    assert read_case("22").texts == [
        "BACKGROUND: Few data exist. RESULTS: Mortality was 12 %.",
        "Background: Text. Methods: More.",
        "Objective To see.",
    ]


def test_24_table_of_pubmed_is_read(read_case: CaseReader) -> None:
    (document,) = read_case("24").documents
    assert (document.id, document.title, document.date) == ("pubmed:123", "Aspirin", "2020")
    assert (document.text, document.metadata["doi"]) == ("Aspirin lowered the rate.", "10.1000/x")


def test_31_citations_are_no_powers_and_all_authors_are_read(read_case: CaseReader) -> None:
    case = read_case("31")
    (document,) = case.documents
    assert "Mortality fell by 12 [3] percent, as reported before." in document.text
    assert "10^9/L cells" in document.text
    assert document.metadata["authors"] == ["NoType, A", "String, Bea", "Demo Group", "Alt, D"]
    assert "Rule\nStop at 5 mg." in document.text
    assert "The reviewer thinks" not in document.text
    assert len(case.notes) == 1


def test_32_notes_before_the_body_are_text(read_case: CaseReader) -> None:
    (text,) = read_case("32").texts
    assert text.endswith("Data Availability\nIndividual data of 200 patients are available on request.")


def test_38_dates_as_text_are_read(read_case: CaseReader) -> None:
    assert [document.date for document in read_case("38").documents] == ["2015", "2015-06"]


def test_39_joined_bibtex_values_are_read(read_case: CaseReader) -> None:
    first, second, third = read_case("39").documents
    assert (first.text, first.metadata["authors"]) == ("abs more", ["Sample, Stefan", "Other, Xavier"])
    assert (second.metadata["pmid"], third.title, third.text) == ("999", "C", "Text three.")


def test_25_line_numbers_are_no_text(read_case: CaseReader) -> None:
    (text,) = read_case("25").texts
    assert "in the aspirin group and 4.3 percent" in text
    assert "odds ratio of 0.38 and a confidence interval" in text


def test_27_columns_are_read_one_after_the_other(read_case: CaseReader) -> None:
    (text,) = read_case("27").texts
    assert "It occurred in 1.6 percent of women in the aspirin group" in text
    assert "9.1 percent of placebo patients" in text


def test_28_raised_numbers_are_citations_or_powers(read_case: CaseReader) -> None:
    (text,) = read_case("28").texts
    assert text == "Mortality fell by 12 [3] percent. Platelets were 150 x 10^9/L."


def test_29_names_of_files_are_no_titles(read_case: CaseReader) -> None:
    titles = [document.title for document in read_case("29").documents]
    assert titles == ["title_doiT", "title_pii", "title_word"]


def test_30_unreadable_letters_are_refused(read_case: CaseReader) -> None:
    case = read_case("30")
    assert case.texts == []
    assert ["OCR" in note.reason for note in case.notes if isinstance(note, Skipped)] == [True]


def test_41_copies_of_an_article_are_one_study(read_case: CaseReader, tmp_path: Path) -> None:
    documents = read_case("41").documents
    with Library.create(tmp_path / "library", encoder=HashingEncoder(64)) as library:
        library.add(*documents)
        found = {passage.document_id: passage for passage in library.search("septic shock", k=9).passages}
    articles = [CitedArticle(id_, passage.title, build_reference(passage)) for id_, passage in found.items()]
    studies = group_studies(articles)
    assert {"doi:10.1000/demo.77", "pubmed:7654321"} <= found.keys()
    assert studies.find_sure("doi:10.1000/demo.77") == studies.find_sure("pubmed:7654321")
    assert len({studies.find(id_) for id_ in found}) == 2


@pytest.mark.parametrize("question", ["Is Gleevec useful before surgery?", "Does Gleevec cause muscle pain?"])
@pytest.mark.parametrize("number", ["01", "21"])
def test_client_01_and_21_drug_of_no_document_is_named(open_case: LibraryOpener, number: str, question: str) -> None:
    with open_case(number) as library:
        if any("matinib" in passage.text for passage in library.search("imatinib", by="bm25").passages):
            pytest.fail("the case has the drug under another name")
        answer = library.ask(question, strategy="evidence")
        assert answer.state == "abstained"
        assert answer.failure is not None
        assert "Gleevec" in answer.failure.message


def test_client_02_both_spellings_are_found(open_case: LibraryOpener) -> None:
    with open_case("02") as library:
        assert library.search("hemolytic anemia", by="bm25").passages[0].document_id == "a"


@pytest.mark.parametrize(("brand", "found"), [("Gleevec", "a"), ("Coumadin", "b")])
def test_client_03_brands_find_their_drug(open_case: LibraryOpener, brand: str, found: str) -> None:
    with open_case("03") as library:
        assert library.search(brand, by="bm25").passages[0].document_id == found


def test_client_04_german_questions_are_named(data_folder: Path) -> None:
    (file,) = (data_folder.parent / "cases" / "clients").glob("04-*/questions.txt")
    questions = file.read_text("utf-8").splitlines()
    assert [find_language(question) for question in questions if question.strip()] == ["German"] * len(questions)


def test_client_13_printed_page_numbers_are_shown(open_case: LibraryOpener) -> None:
    with open_case("13") as library:
        answer = library.ask("Which cure rate had nitrofurantoin?", strategy="evidence", not_in_library="ask")
        assert "703" in {citation.reference.page_label for citation in answer.citations}


def test_client_17_dates_that_exclude_everything_are_refused(open_case: LibraryOpener) -> None:
    with open_case("02") as library, pytest.raises(EpicrisisError, match=r"since"):
        library.search("anemia", since="2018", as_of="2016")
