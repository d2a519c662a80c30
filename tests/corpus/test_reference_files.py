"""Files of reference managers: their entries, messy ones too, and the files that they describe."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from epicrisis.core.errors import InputError
from epicrisis.core.types import Document
from epicrisis.corpus.base.reader_base import FileDocument, FileRemark, Skipped
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.corpus.records.note_tables import NoteColumns
from epicrisis.corpus.references.bibtex import decode_latex
from epicrisis.corpus.references.reference_entries import parse_references
from tests.support.pdf_files import column, placed_pdf

NBIB = """
PMID- 29768149
DP  - 2018 Jul 19
TI  - Rivaroxaban for Stroke Prevention after Embolic Stroke of Undetermined
      Source.
PG  - 2191-2201
LID - 10.1056/NEJMoa1802686 [doi]
AB  - BACKGROUND: Embolic strokes of undetermined source represent 20% of ischemic
      strokes (p<0.05).
FAU - Hart, Robert G
AU  - Hart RG
FAU - Sharma, Mukul
CN  - NAVIGATE ESUS Investigators
LA  - eng
PT  - Randomized Controlled Trial
TA  - N Engl J Med
JT  - The New England journal of medicine
VI  - 378
IP  - 23
MH  - *Stroke/prevention & control
PMC - PMC1234567

PMID- 2
TI  - Without an abstract.
"""
RIS = (
    "TY  - JOUR\r\nAU  - Smith, Jörg\r\nTI  - A title of\r\n two lines\r\nAB  - First line\r\nsecond line, 5 mg\r\n"
    "PY  - 2019/03/05/\r\n"
    "JF  - N Engl J Med\r\nVL  - 380\r\nSP  - 1\r\nEP  - 10\r\n"
    "DO  - https://doi.org/10.1000/ABC\r\n"
    "L1  - file:///home/u/My%20Papers/smith.pdf\r\nKW  - a\r\nKW  - b\r\n"
    "TY  - JOUR\r\nTI  - No ER before\r\nAB  - Second\r\nER  -\r\n\r\n"
    "TY - CHAP\r\nT1 - One space\r\nN2 - Third\r\nER - \r\n"
)
BIBTEX = r"""
Some text before.
@string{nejm = "N Engl J Med"}
@article{smith2019,
  author = {Smith, J{\"o}rg and Anna M{\"u}ller and {The {HOPE} Group} and others},
  title = {{Aspirin}: 5% of $\alpha$-blockers \& $p<0.05$},
  journal = nejm, year = 2019, month = mar, pages = {1--10}, doi = {10.1000/abc_def},
  abstract = {We found 10\textsuperscript{9} cells, $\beta$ 5\,mg, na\"{\i}ve, for $5 and $6.},
  file = {Full Text:files/12/smith2019.pdf:application/pdf;Snapshot:files/13/x.html:text/html}
}
@article{smith2019, author="Dup, A", title="Same key", year="2020", abstract="Second abstract"}
@article{nokey title={broken, year=2001}
@book{good2021, title = {After the broken one}, file={:C\:\\Users\\u\\good\_2021.pdf:PDF}, abstract={Good.}}
"""
CSL = json.dumps(
    [
        {
            "id": "hart",
            "type": "article-journal",
            "title": "A trial of <i>rivaroxaban</i>",
            "author": [{"family": "Beek", "given": "A.", "non-dropping-particle": "van"}, {"literal": "The Group"}],
            "issued": {"date-parts": [[2018, 7]]},
            "container-title": "NEJM",
            "DOI": "10.1056/NEJMoa1802686",
            "note": "PMID: 29768149",
            "abstract": "<jats:p>10<sup>9</sup> cells.</jats:p><jats:p>p < 0.05</jats:p>",
        },
        "no entry",
    ]
)


def test_nbib_gives_metadata_for_citations() -> None:
    (entry, other), faults = parse_references(NBIB)
    assert not faults
    assert other.title == "Without an abstract."
    assert (entry.key, entry.date) == ("29768149", "2018-07-19")
    assert entry.title.endswith("of Undetermined Source.")
    assert entry.abstract.endswith("20% of ischemic strokes (p<0.05).")
    assert entry.metadata == {
        "authors": ["Hart, Robert G", "Sharma, Mukul", "NAVIGATE ESUS Investigators"],
        "group_authors": ["NAVIGATE ESUS Investigators"],
        "journal": "The New England journal of medicine",
        "journal_abbreviation": "N Engl J Med",
        "volume": "378",
        "issue": "23",
        "page_range": "2191-2201",
        "doi": "10.1056/nejmoa1802686",
        "pmid": "29768149",
        "pmcid": "PMC1234567",
        "publication_types": ["Randomized Controlled Trial"],
        "mesh": ["Stroke/prevention & control"],
        "language": ["eng"],
    }


def test_ris_with_missing_ends_and_spaces_keeps_every_record() -> None:
    entries, faults = parse_references(RIS)
    assert not faults
    assert [(entry.title, entry.abstract) for entry in entries] == [
        ("A title of two lines", "First line second line, 5 mg"),
        ("No ER before", "Second"),
        ("One space", "Third"),
    ]
    first = entries[0]
    assert (first.date, first.files) == ("2019-03-05", ("/home/u/My Papers/smith.pdf",))
    assert first.metadata["doi"] == "10.1000/abc"
    assert first.metadata["page_range"] == "1-10"
    assert first.metadata["keywords"] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "doi", "url"),
    [
        (r"@article{a, title={T}, doi={10.1000/978-3-1\_5}}", "10.1000/978-3-1_5", None),
        (r"@article{a, title={T}, doi={10.1000/978-3-1{\_}5}}", "10.1000/978-3-1_5", None),
        (
            r"@article{a, title={T}, doi={10.1002/(SICI)1:1{\textless}1::A{\textgreater}3}}",
            "10.1002/(sici)1:1<1::a>3",
            None,
        ),
        (r"@article{a, title={T}, url={https://example.org/~jo/a\_b}}", None, "https://example.org/~jo/a_b"),
        (
            "TY  - JOUR\nTI  - T\nUR  - http://dx.doi.org/10.1000%2Fab.1\nER  -",
            "10.1000/ab.1",
            "http://dx.doi.org/10.1000%2Fab.1",
        ),
        ("TY  - JOUR\nTI  - T\nDO  - 10.1002/1:1&lt;1::A&gt;3\nER  -", "10.1002/1:1<1::a>3", None),
        ("title,doi,year\nT,https://doi.org/10.1000%2Fab.1,2019", "10.1000/ab.1", None),
    ],
)
def test_escapes_in_identifiers_are_read(text: str, doi: str | None, url: str | None) -> None:
    (entry,), _ = parse_references(text)
    assert (entry.metadata.get("doi"), entry.metadata.get("url")) == (doi, url)


def test_bibtex_decodes_latex_and_reports_broken_entries() -> None:
    entries, faults = parse_references(BIBTEX)
    assert [entry.key for entry in entries] == ["smith2019", "smith2019~2", "good2021"]
    first = entries[0]
    assert first.title == "Aspirin: 5% of α-blockers & p<0.05"
    assert first.abstract == "We found 10^9 cells, β 5 mg, naïve, for $5 and $6."
    assert first.date == "2019-03"
    assert first.metadata["authors"] == ["Smith, Jörg", "Müller, Anna", "The HOPE Group"]
    assert first.metadata["journal"] == "N Engl J Med"
    assert first.files == ("files/12/smith2019.pdf", "files/13/x.html")
    assert entries[2].files[0].endswith("/good_2021.pdf")
    assert [where for where, _ in faults] == ["line 12"]


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a.bib", "@article{{dup, title={{{0}}}, abstract={{About {0}.}}}}\n"),
        ("a.ris", "TY  - JOUR\nID  - dup\nTI  - {0}\nAB  - About {0}.\nER  - \n"),
    ],
)
def test_equal_keys_of_different_articles_keep_both(name: str, form: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("".join(map(form.format, ("One", "Two", "One", "Two", "Three"))), encoding="utf-8")
    ids = [item.id for item in read_sources([tmp_path]) if isinstance(item, Document)]
    key = f"file:{name}#dup"
    assert ids == [key, f"{key}~2", key, f"{key}~2", f"{key}~3"]


def test_per_cent_sign_does_not_begin_a_comment() -> None:
    assert decode_latex("falls by 5% in {women} and 7\\% in men") == "falls by 5% in women and 7% in men"


@pytest.mark.parametrize(
    ("latex", "text"),
    [
        (r"p {\textless} 0.05, {\textgreater}35, \textless{} 5, $<$ 1", "p < 0.05, >35, < 5, < 1"),
        (r"{\textminus}5 and \textpm 3 \textdegree C", "-5 and ±3 °C"),
        (r"{\textalpha}, \textbeta-blocker, \upmu g, \ensuremath{\gamma}, {\textDelta}x", "α, β-blocker, μg, γ, Δx"),
        (r"10{\textsuperscript{9}}/L, 10$^{9}$, 10\textsuperscript{-3}, 10\sp{9}", "10^9/L, 10^9, 10^-3, 10^9"),
        (r"5\textsuperscript{th}, H\textsubscript{2}O", "5th, H2O"),
        (r"\foo{kept} and \texttt{kept} and \mbox{kept}", "kept and kept and kept"),
        (r"\href{http://x.org}{here} or \url{http://a_b}", "here (http://x.org) or http://a_b"),
        (r"\SI{5}{mg}, \sfrac{1}{2}, \foo{1}{2}, 5 \mg", "5 mg, 1/2, 1 2, 5 \\mg"),
        (r"$\mathit{n}$ = 0\textperiodcentered5, costs $5", "n = 0·5, costs $5"),
        (r"SpO$_2$, HbA$_{1c}$, C$_{\text{max}}$, a_b and \url{http://a_b}", "SpO2, HbA1c, Cmax, a_b and http://a_b"),
        (r"Crohn & {colitis} \& \url{http://a?b=1&c=2}", "Crohn & colitis & http://a?b=1&c=2"),
        (
            r"\SI{5}{\milli\gram}, \qty{7}{\micro\gram\per\litre}, \si{\kilo\gram\per\metre\squared}",
            "5 mg, 7 μg/L, kg/m^2",
        ),
        (r"\noindent {\bf Bold} text\ldots \cite{key}", "Bold text…"),
    ],
)
def test_latex_keeps_signs_numbers_and_arguments(latex: str, text: str) -> None:
    (entry,), faults = parse_references(f"@article{{k, title={{T}}, abstract={{{latex}}}}}")
    assert (entry.abstract, faults) == (text, [])


@pytest.mark.parametrize(
    "fields",
    [
        r"title={A}, abstract={\SI}",
        "title={A}, abstract={" + 3000 * "{" + "x" + 3000 * "}" + "}",
        "title={A}, abstract={a } brace too many.}, year=2000",
        "title={A}, abstract={a { brace missing}",
        "title={A}, abstract={x} y",
    ],
)
def test_bad_bibtex_entry_is_skipped_with_its_line(fields: str) -> None:
    good = "@article{good, title={B}, abstract={Fine.}}"
    entries, faults = parse_references(f"{good}\n@article{{k, {fields}}}\n{good}\n")
    assert [entry.abstract for entry in entries] == ["Fine.", "Fine."]
    assert [where for where, _ in faults] == ["line 2"]


def test_bibtex_values_are_joined_and_missing_commas_are_read() -> None:
    (entry, other, quoted), faults = parse_references(
        '@string{a = "Smith, A"}\n@string{both = a # " and Jones, B"}\n'
        '@article{k, title = {T} # ": " # {sub}, author = BOTH # " and " # {Lee, C}, month = "5 " # jan, year = 2015,'
        " abstract = {One} # { two.}, note = {See {PMID:} 999}}\n"
        '@article{m, title={C}\n abstract="Text three."}\n@article{q, abstract="Text "four"."}'
    )
    assert not faults
    assert (entry.title, entry.abstract, entry.date) == ("T: sub", "One two.", "2015-01")
    assert (entry.metadata["authors"], entry.metadata["pmid"]) == (["Smith, A", "Jones, B", "Lee, C"], "999")
    assert (other.title, other.abstract) == ("C", "Text three.")
    assert quoted.abstract == 'Text "four".'


def test_csl_json_gives_metadata_and_reports_other_entries() -> None:
    (entry,), faults = parse_references(CSL)
    assert entry.title == "A trial of rivaroxaban"
    assert entry.abstract == "10^9 cells. p < 0.05"
    assert entry.metadata["authors"] == ["van Beek, A.", "The Group"]
    assert (entry.date, entry.metadata["pmid"]) == ("2018-07", "29768149")
    assert [where for where, _ in faults] == ["entry 2"]


@pytest.mark.parametrize(
    ("issued", "date"),
    [
        *(("2015", "2015"), ("2015-06-15T10:00:00Z", "2015-06-15"), ("2015-06-XX", "2015-06"), ("2015-21", "2015")),
        *(("2015~", "2015"), (2015, "2015"), ("n.d.", None), ({"edtf": "2015-06/2016"}, "2015-06")),
        *(({"date-parts": [["2015", "6"]]}, "2015-06"), ({"date-parts": [2015, 6]}, "2015-06")),
        *(({"date-parts": [[None]], "raw": "2014-03"}, "2014-03"), ({"date-parts": []}, None)),
    ],
)
def test_csl_date_in_any_form_is_read(issued: object, date: str | None) -> None:
    (entry,), _ = parse_references(json.dumps([{"type": "article-journal", "title": "T", "issued": issued}]))
    assert entry.date == date


def test_answer_of_crossref_is_read(tmp_path: Path) -> None:
    work = {
        "type": "journal-article",
        "title": ["A title"],
        "container-title": ["Demo"],
        "DOI": "10.1000/q",
        "abstract": "<jats:p>Text.</jats:p>",
        "published-print": {"date-parts": [[2019, 3]]},
        "updated-by": [{"type": "retraction", "DOI": "10.1000/r"}],
    }
    (tmp_path / "works.json").write_text(json.dumps({"status": "ok", "message": {"items": [work]}}))
    (document,) = [item for item in read_sources([tmp_path]) if isinstance(item, Document)]
    assert (document.title, document.text, document.date) == ("A title", "Text.", "2019-03")
    assert document.metadata["retracted"] is True
    assert document.metadata["reference_type"] == "article-journal"


@pytest.mark.parametrize(
    ("name", "ordered"),
    [
        ("Lee K.-H.", "Lee, K.-H."),
        ("Lee K-H", "Lee, K-H"),
        ("van der Berg J.P.", "van der Berg, J.P."),
        ("Öberg Å.", "Öberg, Å."),
        ("Smith, Jörg", "Smith, Jörg"),
        ("World Health Organization", "World Health Organization"),
    ],
)
def test_name_with_initials_last_is_ordered_in_tables_and_ris(name: str, ordered: str) -> None:
    table = f'Authors,Title,Year,DOI\n"Roe B.; {name}",T,2020,10.1000/a\n'
    for text in (table, f"TY  - JOUR\nAU  - Roe B.\nA2  - {name}\nAU  - {name}\nTI  - T\nER  - \n"):
        (entry,), _ = parse_references(text)
        assert entry.metadata["authors"] == ["Roe, B.", ordered]
    assert entry.metadata["editors"] == [ordered]


SCOPUS = (
    "Authors,Author full names,Title,Year,Source title,Page start,Page end,DOI,Abstract,Document Type\n"
    '"Sample A.; Lee B.C.","Sample, Ann (1234); Lee, Bo (5678)","Aspirin, again",2020,Demo,12,15,10.1000/s,'
    '"It ""lowered"" it,\nlater too.",Article\n'
)
COVIDENCE = (
    "Title,Authors,Abstract,Published Year,Published Month,Journal,Volume,DOI,Covidence #\n"
    '"RETRACTED: X","Sample, A.; Lee, B.",It fell.,2018,3,Demo,7,10.1000/c,#5\n'
)
RAYYAN = (
    "key,title,year,month,day,journal,authors,abstract,doi,pubmed_id\n"
    '1,X,2017,6,28,NEJM,"Sample, Ann and Lee, Bo",It fell.,,28657417\n'
)
EMBASE = (
    "Title,Author Names,Abstract,Publication Year,DOI,Medline PMID,Embase Accession ID\n"
    'X,"Sample A.; Lee B.",It fell.,2018,10.1000/e,28657418,2001\n'
)
ZOTERO = (
    '"Key","Item Type","Publication Year","Author","Title","DOI","Abstract Note","Notes","Extra"\n'
    '"A1","journalArticle","2018","Sample, A.; Lee, B.","X","","It fell.","","PMID: 28657419\nPMCID: PMC1"\n'
)
PUBMED = (
    "PMID;Title;Authors;Journal/Book;Publication Year;DOI;Abstract\n"
    '5;X;"Sample A, Lee B.";Demo;2020;10.1000/p;It fell.\n'
)
WEB_OF_SCIENCE = "PT\tAU\tTI\tSO\tAB\tPY\tDI\nJ\tSample, A; Lee, B\tX\tDemo\tIt fell.\t2021\t10.1000/w\n"


@pytest.mark.parametrize(
    ("name", "table", "id", "date", "authors"),
    [
        ("a.csv", SCOPUS, "doi:10.1000/s", "2020", ["Sample, A.", "Lee, B.C."]),
        ("a.csv", COVIDENCE, "doi:10.1000/c", "2018-03", ["Sample, A.", "Lee, B."]),
        ("a.csv", RAYYAN, "pubmed:28657417", "2017-06-28", ["Sample, Ann", "Lee, Bo"]),
        ("a.csv", EMBASE, "pubmed:28657418", "2018", ["Sample, A.", "Lee, B."]),
        ("a.csv", ZOTERO, "pubmed:28657419", "2018", ["Sample, A.", "Lee, B."]),
        ("a.csv", PUBMED, "pubmed:5", "2020", ["Sample, A", "Lee, B"]),
        ("a.tsv", WEB_OF_SCIENCE, "doi:10.1000/w", "2021", ["Sample, A", "Lee, B"]),
        ("savedrecs.txt", WEB_OF_SCIENCE, "doi:10.1000/w", "2021", ["Sample, A", "Lee, B"]),
    ],
)
def test_table_of_literature_database_is_read(
    name: str, table: str, id: str, date: str, authors: list[str], tmp_path: Path
) -> None:
    (tmp_path / name).write_text(f"\ufeff{table}", encoding="utf-8")
    (document,) = [item for item in read_sources([tmp_path]) if isinstance(item, Document)]
    assert (document.id, document.date, document.metadata["authors"]) == (id, date, authors)
    assert document.text in ("It fell.", 'It "lowered" it, later too.')
    assert ("retracted" in document.metadata) == (table == COVIDENCE)


def test_table_with_broken_rows_names_them() -> None:
    header = "Title,Abstract,DOI,Year\n"
    entries, faults = parse_references(f'{header}T,A,10.1000/a,2020\nU,short\n"V","open,10.1000/b,2020\n"W",B,,1\n')
    assert [entry.title for entry in entries] == ["T"]
    assert [where for where, _ in faults] == ["line 3", "after line 3"]


def test_table_with_named_columns_or_patients_is_one_of_notes(tmp_path: Path) -> None:
    path = tmp_path / "notes.csv"
    path.write_text("title,abstract,doi,year\nP1,Seen today.,10.1000/x,2020\n")
    columns = NoteColumns(patient="title", text="abstract")
    (note,) = [item for item in read_sources([path], columns=columns) if isinstance(item, Document)]
    assert (note.patient, note.text) == ("P1", "Seen today.")
    path.write_text("patient,title,abstract,doi,year\nP1,T,Seen today.,10.1000/x,2020\n")
    with pytest.raises(InputError, match="name its columns"):
        list(read_sources([path]))


@pytest.mark.parametrize("text", ["", "plain text", "[", "{}x"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"check|export"):
        parse_references(text)


def _pdf(path: Path, first_line: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(placed_pdf([[*column(first_line, 72, 700, 80), (72, 500, "Patients were enrolled.")]]))


def _documents(folder: Path) -> dict[str, Document]:
    documents = {}
    for item in read_sources([folder], with_origins=True):
        if isinstance(item, FileDocument):
            documents[item.document.id] = item.document
    return documents


def test_entries_describe_files_by_name_doi_and_title(tmp_path: Path) -> None:
    _pdf(tmp_path / "files" / "12" / "smith2019.pdf", "Nothing that identifies it")
    _pdf(tmp_path / "b.pdf", "doi: 10.1056/NEJMoa1802686 and more")
    _pdf(tmp_path / "c.pdf", "A long and unusual title of a paper on aspirin by Walsh")
    (tmp_path / "refs.bib").write_text(BIBTEX)
    (tmp_path / "refs.nbib").write_text(NBIB)
    (tmp_path / "refs.ris").write_text(
        "TY  - JOUR\nTI  - A long and unusual title of a paper on aspirin\nAU  - Walsh, P\nAB  - Abs.\nER  -\n"
    )
    documents = _documents(tmp_path)
    named = documents["file:files/12/smith2019.pdf"]
    assert named.title.startswith("Aspirin: 5%")
    assert (named.date, named.metadata["journal"]) == ("2019-03", "N Engl J Med")
    assert named.metadata["pages"] == [0], "what the file says stays"
    assert documents["file:b.pdf"].metadata["pmid"] == "29768149"
    assert documents["file:c.pdf"].metadata["authors"] == ["Walsh, P"]
    assert set(documents) == {
        "file:files/12/smith2019.pdf",
        "file:b.pdf",
        "file:c.pdf",
        "file:refs.bib#smith2019~2",
        "file:refs.bib#good2021",
    }, "an entry that describes a file is no document, and one without an abstract is none either"


def test_entries_outside_the_folder_describe_nothing(tmp_path: Path) -> None:
    _pdf(tmp_path / "b.pdf", "doi: 10.1056/NEJMoa1802686 and more")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "refs.nbib").write_text(NBIB)
    documents = _documents(tmp_path)
    assert "pmid" not in documents["file:b.pdf"].metadata
    assert documents["pubmed:29768149"].text.startswith("BACKGROUND")


def test_references_without_abstract_or_file_are_reported(tmp_path: Path) -> None:
    (tmp_path / "pubmed-set.txt").write_text(NBIB)
    (tmp_path / "zotero.json").write_text(CSL)
    (tmp_path / "broken.ris").write_text("nothing")
    items = list(read_sources([tmp_path]))
    assert [item.id for item in items if isinstance(item, Document)] == ["pubmed:29768149", "pubmed:29768149"]
    (remark,) = [item for item in items if isinstance(item, FileRemark)]
    assert (remark.count, remark.noun) == (1, "reference")
    assert [Path(item.path).name for item in items if isinstance(item, Skipped)] == ["broken.ris", "zotero.json"]
