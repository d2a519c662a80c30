"""Retractions that titles, types, notes, banners and relations state, and wording about something else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from epicrisis.core.types import Document, list_article_marks
from epicrisis.corpus.base.reader_base import FileDocument
from epicrisis.corpus.base.retraction_wording import find_banner, find_retraction, strip_retraction
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.corpus.references.reference_entries import parse_references
from tests.support.pdf_files import column, placed_pdf

RETRACTED_TITLES = [
    *("RETRACTED: Drug X", "Retracted - Drug X", "Retracted—Drug X", "RETRACTED Drug X halves mortality"),
    *("[Retracted] Drug X", "(Retracted) Drug X", "Retracted article: Drug X", "RETRACTED ARTICLE. Drug X"),
    *(
        "WITHDRAWN: Drug X",
        "This article has been retracted: Drug X",
        "Drug X (RETRACTED ARTICLE)",
        "Drug X (retracted)",
    ),
    *(
        "Drug X (Retracted article. See vol. 3, pg. 5, 2010)",
        "Drug X. [Retracted in: J Foo 2010]",
        "Drug X – RETRACTED",
    ),
    *("TEMPORARY REMOVAL: Drug X", "REMOVED: Drug X halves mortality"),
]
NOTICE_TITLES = [
    *('Retraction notice to "Drug X"', "Retraction: Drug X", "Retraction Note: Drug X", "Retraction—Drug X"),
    *(
        "Statement of Retraction: Drug X",
        "Notice of retraction: Drug X",
        "Retraction to: Drug X",
        "Drug X [Retraction]",
    ),
    *("Retraction for Smith et al., Drug X", "Retraction of “Drug X”", "Retraction and republication: Drug X"),
    *("Drug X (Retraction of Vol 3, Pg 4, 2014)", "Drug X (Retraction notice of vol. 3, pg. 4, 2014)"),
]
OTHER_TITLES = [
    *(
        "Retraction of the tongue in infants",
        "Lid retraction: surgery",
        "Brain retraction injury",
        "Retractions in oncology",
    ),
    *(
        "Retracted nipples in women",
        "Retracted papers: a survey",
        "RETRACTED NIPPLES IN WOMEN",
        "Outcome (retracted nipples)",
    ),
    *("Withdrawal: effects of alcohol", "Withdrawn patients: who are they?", "Safety of rofecoxib (withdrawn)"),
    *("Temporary removal: of pacemakers", "Teeth (retraction of canines)", "Removed: what happens to kidneys"),
    *("Retraction notices in dentistry", "Citations of retracted articles", "Retraction for lung surgery"),
]


@pytest.mark.parametrize("title", RETRACTED_TITLES)
def test_title_of_retracted_article_marks_it(title: str) -> None:
    assert find_retraction(title) == {"retracted": True}
    assert strip_retraction(title).startswith("Drug X")


@pytest.mark.parametrize("title", NOTICE_TITLES)
def test_title_of_notice_marks_it_as_notice(title: str) -> None:
    assert find_retraction(title, "This article has been retracted.") == {"retraction_notice": True}


@pytest.mark.parametrize("title", OTHER_TITLES)
def test_title_about_another_retraction_is_unmarked(title: str) -> None:
    assert find_retraction(title) == {}


@pytest.mark.parametrize(
    ("note", "marks"),
    [
        *(
            (note, ["retracted"])
            for note in ("Retracted: yes", "RETRACTED (2021)", "Retraction in: J Foo. 2020", "retracted")
        ),
        ("Cited 5 times. Journal Article; Retracted Publication; United States", ["retracted"]),
        ("This article is marked: retracted", ["retracted"]),
        ("Retraction of Publication", ["retraction-notice"]),
        ("Expression of concern in: J Foo. 2020", ["expression-of-concern"]),
        *((note, []) for note in ("Retracted: no", "cites a retracted paper", "not retracted", "retracted lobe in 3")),
        ("Retraction of Publication as Topic", []),
    ],
)
@pytest.mark.parametrize(
    "form",
    [
        "TY  - JOUR\nTI  - T\nAB  - x\nN1  - {}\nER  - \n",
        "@article{{k, title={{T}}, abstract={{x}}, note={{{}}}}}",
        '[{{"type": "article-journal", "title": "T", "abstract": "x", "note": "{}"}}]',
    ],
)
def test_note_of_reference_marks_it(form: str, note: str, marks: list[str]) -> None:
    (entry,), _ = parse_references(form.format(note))
    assert list(list_article_marks(entry.metadata)) == marks


def _nbib_marks(*records: str) -> list[tuple[str, ...]]:
    entries, _ = parse_references("\n\n".join(f"{record}\nTI  - T\nAB  - x" for record in records))
    return [list_article_marks(entry.metadata) for entry in entries]


def test_nbib_relations_mark_articles_and_those_that_they_name() -> None:
    assert _nbib_marks(
        "PMID- 1\nRIN - J Foo. PMID: 9",
        "PMID- 2\nECI - J Foo. PMID: 9",
        "PMID- 3\nPT  - Retracted Publication",
        "PMID- 4\nEIN - J Foo. PMID: 9",
        "PMID- 5\nROF - J Foo. PMID: 6\nECF - J Foo. PMID: 7",
        *("PMID- 6", "PMID- 7", "PMID- 8\nCIN - J Foo. PMID: 9"),
    ) == [
        *(("retracted",), ("expression-of-concern",), ("retracted",), ("corrected",), ("retraction-notice",)),
        *(("retracted",), ("expression-of-concern",), ()),
    ]


@pytest.mark.parametrize(
    ("notice", "marks"),
    [
        ('Retraction notice to "{}" [J Demo 3 (2014) 4]', ("retracted",)),
        ("Retraction notice to “{}” (J Demo 3 (2014))", ("retracted",)),
        ("Expression of concern: {}", ("expression-of-concern",)),
        ('Expression of concern: "{}" [J Demo 3 (2014) 4]', ("expression-of-concern",)),
    ],
)
def test_notice_with_a_journal_and_concern_mark_the_title_that_they_name(notice: str, marks: tuple[str, ...]) -> None:
    title = "Effect of drug X on mortality in septic shock"
    titles = [title, notice.format(title), f"{title}: a comment"]
    text = "".join(f"TY  - JOUR\nTI  - {each}\nAB  - x\nER  - \n" for each in titles)
    first, _, comment = parse_references(text)[0]
    assert (list_article_marks(first.metadata), list_article_marks(comment.metadata)) == (marks, ())


@pytest.mark.parametrize(
    ("update", "marks"),
    [
        ("retraction", ("retracted",)),
        ("removal", ("retracted",)),
        ("expression_of_concern", ("expression-of-concern",)),
        ("corrigendum", ("corrected",)),
        ("new_version", ()),
    ],
)
def test_notice_of_crossref_marks_the_doi_that_it_names(update: str, marks: tuple[str, ...]) -> None:
    article = {"type": "article-journal", "title": "T", "DOI": "10.1234/ab"}
    notice = {"type": "article-journal", "title": "N", "DOI": "10.1234/n"}
    items = [article, {**notice, "update-to": [{"DOI": "10.1234/AB", "type": update}]}]
    (first, _), _ = parse_references(json.dumps(items))
    assert list_article_marks(first.metadata) == marks


def test_notice_in_the_same_file_marks_the_title_that_it_names() -> None:
    title = "Drug X halves mortality in septic shock"
    ris = "TY  - JOUR\nTI  - {}\nAB  - x\nER  - \n"
    titles = [title, f"Retraction notice to “{title}”", f"{title}: a comment"]
    entries, _ = parse_references("".join(map(ris.format, titles)))
    assert [list_article_marks(entry.metadata) for entry in entries] == [("retracted",), ("retraction-notice",), ()]


@pytest.mark.parametrize(
    ("pages", "marks"),
    [
        (["Lancet\nDrug X\nRETRACTED\nWe saw"], {"retracted": True}),
        (["R\nE\nT\nR\nA\nC\nT\nE\nD\nDrug X"], {"retracted": True}),
        (["Drug X\nR E T R A C T E D\nWe saw"], {"retracted": True}),
        (["RETRACTED ARTICLE: Drug X\nWe saw"], {"retracted": True}),
        (["Cover", "We\nRETRACTED\nsaw", "RETRACTED"], {"retracted": True}),
        (["Drug X\nThis article has been retracted at the request of the editor."], {"retracted": True}),
        (["WITHDRAWN\nDrug X\nWe saw"], {"retracted": True}),
        (["Drug X\nWe saw 20 percent. RETRACTED\nMore"], {"retracted": True}),
        (["Drug X\n\nRETRACTED We saw", "RETRACTED More of it"], {"retracted": True}),
        (["Journal\nRetraction notice to: Drug X\nWe saw"], {"retraction_notice": True}),
        (["Flow\nlost\n3\nleft\n2\nWITHDRAWN\n4\nn\nm\no\np"], {}),
        (["RETRACTED PAPERS IN ONCOLOGY\nWe saw", "RETRACTED PAPERS IN ONCOLOGY\nMore"], {}),
        (["Retracted nipples\nThe lip has been retracted.", "RETRACTED", "x", "y"], {}),
    ],
)
def test_banner_on_pages_marks_article(pages: list[str], marks: dict[str, Any]) -> None:
    assert find_banner(pages) == marks


def _marks(folder: Path) -> dict[str, tuple[str, ...]]:
    documents: list[Document] = []
    for item in read_sources([folder], with_origins=True):
        if isinstance(item, FileDocument):
            documents.append(item.document)
    return {document.source: list_article_marks(document.metadata) for document in documents}


def _pdf(path: Path, *lines: str) -> None:
    path.write_bytes(placed_pdf([[(72, 700 - 30 * number, line) for number, line in enumerate(lines)]]))


def test_files_state_their_retraction(tmp_path: Path) -> None:
    _pdf(tmp_path / "a.pdf", "RETRACTED", "Drug X lowered mortality.")
    _pdf(tmp_path / "b.pdf", "Retraction of the tongue", "It was seen in 3 of 20 infants.")
    (tmp_path / "c.html").write_text("<title>RETRACTED ARTICLE: Drug X</title><p>It lowered mortality.</p>")
    (tmp_path / "d.txt").write_text("Drug X\n\nThis article has been retracted.\n")
    article = '<article article-type="{}"><front><article-meta>{}</article-meta></front><body><p>x</p></body></article>'
    relation = '<related-article related-article-type="{}"/>'
    forms = {
        "e": ("research-article", relation.format("retraction-forward")),
        "f": ("retraction", relation.format("retracted-article")),
        "g": ("research-article", relation.format("retracted-article")),
        "h": ("correction", relation.format("retracted-article")),
        "i": ("research-article", relation.format("concern-forward")),
        "j": ("retracted-article", ""),
        "k": ("research-article", "<title-group><article-title>WITHDRAWN: Drug X</article-title></title-group>"),
    }
    for name, form in forms.items():
        (tmp_path / f"{name}.nxml").write_text(article.format(*form))
    assert _marks(tmp_path) == {
        **dict.fromkeys(("a.pdf", "c.html", "d.txt", "e.nxml", "j.nxml", "k.nxml"), ("retracted",)),
        **dict.fromkeys(("f.nxml", "h.nxml"), ("retraction-notice",)),
        **dict.fromkeys(("b.pdf", "g.nxml"), ()),
        "i.nxml": ("expression-of-concern",),
    }


def test_watermark_on_later_pages_of_pdf_marks_it(tmp_path: Path) -> None:
    cover = column("Drug X lowered mortality in septic shock. " * 120, 40, 760, 90)
    page = [(72, 600, "Drug X lowered mortality"), (72, 590, "RETRACTED"), (72, 580, "in septic shock.")]
    (tmp_path / "x.pdf").write_bytes(placed_pdf([cover, page, page]))
    assert _marks(tmp_path) == {"x.pdf": ("retracted",)}


TITLE = "Drug X halves mortality in septic shock"


@pytest.mark.parametrize(
    "references",
    [
        {"r.ris": f"TY  - JOUR\nTI  - RETRACTED: {TITLE}\nER  - \n"},
        {"r.bib": f"@article{{k, title={{{TITLE} (Retracted article)}}, doi={{10.1000/x}}}}"},
        {"r.nbib": "PMID- 1\nTI  - Other\nLID - 10.1000/x [doi]\nPT  - Retracted Publication\n"},
        {
            "a.ris": f"TY  - JOUR\nTI  - {TITLE}\nDO  - 10.1000/x\nER  - \n",
            "b.ris": "TY  - JOUR\nTI  - RETRACTED: Other\nDO  - 10.1000/x\nER  - \n",
        },
        {
            "r.ris": f"TY  - JOUR\nTI  - {TITLE}\nDO  - 10.1000/x\nER  - \n"
            "TY  - JOUR\nTI  - WITHDRAWN: Other\nDO  - 10.1000/x\nER  - \n"
        },
    ],
)
def test_file_beside_marked_reference_is_marked(references: dict[str, str], tmp_path: Path) -> None:
    _pdf(tmp_path / "x.pdf", TITLE, "doi: 10.1000/x and more", "It lowered mortality.")
    _pdf(tmp_path / "y.pdf", "Another article", "It cites no one.")
    for name, text in references.items():
        (tmp_path / name).write_text(text)
    assert _marks(tmp_path) == {"x.pdf": ("retracted",), "y.pdf": ()}
