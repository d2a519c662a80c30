"""PubMed's XML: every field in its place, nothing lost, and whatever is broken is named."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import cast
from xml.sax.saxutils import escape, quoteattr

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epicrisis.core.dates import last_day
from epicrisis.core.errors import InputError
from epicrisis.core.types import Document
from epicrisis.corpus.articles import pubmed
from epicrisis.corpus.articles.pubmed_record import parse_printed_date
from epicrisis.corpus.base.reader_base import DeletedDocument, FileFingerprint, Skipped, append_fingerprint
from epicrisis.corpus.base.xml_text import detect_xml_kind
from tests.support.pubmed_xml import HEAD, article, article_set, write_realistic

NAME = "pubmed26n1234.xml"


def read(folder: Path, content: str | bytes, name: str = NAME) -> list[pubmed.PubMedItem]:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(pubmed.read_citations(path))


def one(folder: Path, xml: str) -> Document:
    (found,) = read(folder, article_set([xml]))
    assert isinstance(found, Document), found
    return found


def abstract(inner: str) -> str:
    return f"<Abstract>{inner}</Abstract>"


# -- text -----------------------------------------------------------------------------------------------------------


def test_citation_fields_fill_document(tmp_path: Path) -> None:
    assert one(tmp_path, article(12377809)) == Document(
        id="pubmed:12377809",
        text="Some text.",
        title="A title.",
        source="PubMed",
        date="2015-06-30",
        metadata={"journal": "The journal", "journal_abbreviation": "J", "date_printed": "2015 Jun 30"},
        revision="20200131.01.2601234",
    )


def test_abstract_sections_are_labelled_lines(tmp_path: Path) -> None:
    found = one(
        tmp_path,
        article(
            abstract=abstract(
                '<AbstractText Label="METHODS" NlmCategory="METHODS">We\n\t\tlooked  twice. </AbstractText>'
                '<AbstractText Label="EMPTY"></AbstractText><AbstractText>No label.</AbstractText>'
                '<AbstractText Label="UNLABELLED">None again.</AbstractText>'
                "<CopyrightInformation>C</CopyrightInformation>"
            )
        ),
    )
    assert found.text == "METHODS: We looked twice.\nNo label.\nNone again."


def test_abstract_without_sections_is_read(tmp_path: Path) -> None:
    assert one(tmp_path, article(abstract=abstract("Bare <i>text</i>."))).text == "Bare text."


@pytest.mark.parametrize(
    ("xml", "told"),
    [
        ("H<sub>2</sub>O and CO\n  <sub>2</sub> and T<sub>max</sub>", "H2O and CO2 and Tmax"),
        ("log<sub>10</sub> and A1<sub>2</sub>", "log10 and A1_2"),
        ("10<sup>-3</sup> M, 5 kg/m<sup>2</sup>, (a)<sup>2</sup>, 10<sup>n</sup>", "10^-3 M, 5 kg/m^2, (a)^2, 10^n"),
        ("Ca<sup>2+</sup> CD4<sup>+</sup> p53<sup>-/-</sup>", "Ca2+ CD4+ p53-/-"),
        ("<sup>99m</sup>Tc and [<sup>18</sup>F]FDG, 1<sup>st</sup>", "99mTc and [18F]FDG, 1st"),
        ("<i>E. coli</i> <b><i>in</i> vitro</b>", "E. coli in vitro"),
        ("a<!-- not said -->b<?pi x?>c<![CDATA[<d>]]>", "abc<d>"),
        ("1 &lt; 2 &amp; &#946;", "1 < 2 & β"),
        ("a&nbsp;b &alpha; &strange;", "a\xa0b α &strange;"),
    ],
)
def test_inline_markup_becomes_plain_text(tmp_path: Path, xml: str, told: str) -> None:
    found = one(tmp_path, article(title=xml, abstract=abstract(f"<AbstractText>{xml}</AbstractText>")))
    assert (found.title, found.text) == (told, told)


@pytest.mark.parametrize(
    ("xml", "told"),
    [
        ("<mml:msup><mml:mi>x</mml:mi><mml:mn>2</mml:mn></mml:msup>", "x^2"),
        ("<mml:msubsup><mml:mi>x</mml:mi><mml:mi>i</mml:mi><mml:mn>2</mml:mn></mml:msubsup>", "x_i^2"),
        (
            "<mml:mfrac>\n <mml:mrow><mml:mi>a</mml:mi><mml:mo>+</mml:mo><mml:mi>b</mml:mi></mml:mrow>"
            "<mml:mi>c</mml:mi></mml:mfrac>",
            "(a+b)/c",
        ),
        ("<mml:msqrt><mml:mi>x</mml:mi><mml:mo>-</mml:mo><mml:mn>1</mml:mn></mml:msqrt>", "√(x-1)"),
        ("<mml:mroot><mml:mi>x</mml:mi><mml:mn>3</mml:mn></mml:mroot>", "3√(x)"),
        ("<mml:mi>sin</mml:mi><mml:mo>&#8289;</mml:mo><mml:mi>x</mml:mi>", "sin x"),
        ("<mml:mfenced><mml:mi>a</mml:mi><mml:mi>b</mml:mi></mml:mfenced>", "(a,b)"),
        ("<mml:semantics><mml:mi>p</mml:mi><mml:annotation>TeX</mml:annotation></mml:semantics>", "p"),
        (
            "<mml:mtable><mml:mtr><mml:mtd><mml:mn>1</mml:mn></mml:mtd><mml:mtd><mml:mn>2</mml:mn></mml:mtd></mml:mtr>"
            "<mml:mtr><mml:mtd><mml:mn>3</mml:mn></mml:mtd></mml:mtr></mml:mtable>",
            "[1, 2; 3]",
        ),
    ],
)
def test_mathml_becomes_plain_text(tmp_path: Path, xml: str, told: str) -> None:
    math = f'<mml:math xmlns:mml="http://www.w3.org/1998/Math/MathML">{xml}</mml:math>'
    found = one(tmp_path, article(abstract=abstract(f"<AbstractText>Then {math} holds.</AbstractText>")))
    assert found.text == f"Then {told} holds."


def test_other_abstracts_are_metadata(tmp_path: Path) -> None:
    other = (
        '<OtherAbstract Type="Publisher" Language="fre"><AbstractText Label="BUT">Voir.</AbstractText></OtherAbstract>'
    )
    both = one(tmp_path, article(in_citation=other))
    assert both.text == "Some text."
    assert both.metadata["other_abstracts"] == [{"language": "fre", "type": "Publisher", "text": "BUT: Voir."}]
    alone = one(tmp_path, article(abstract="", in_citation=other))
    assert alone.text == "[fre] BUT: Voir."
    assert "other_abstracts" not in alone.metadata
    assert "abstract" not in alone.metadata


def test_citation_without_abstract_uses_title_as_text(tmp_path: Path) -> None:
    found = one(tmp_path, article(abstract=""))
    assert (found.text, found.metadata["abstract"]) == ("A title.", False)


def test_vernacular_title_is_read(tmp_path: Path) -> None:
    vernacular = "<VernacularTitle>Über <i>Herz</i>.</VernacularTitle>"
    translated = one(tmp_path, article(title="[On the heart].", in_article=vernacular))
    assert (translated.title, translated.metadata["vernacular_title"]) == ("[On the heart].", "Über Herz.")
    for missing in ("[Not Available].", ""):
        assert one(tmp_path, article(title=missing, in_article=vernacular)).title == "Über Herz."
    assert one(tmp_path, article(title="[Not Available].")).title == ""


# -- dates ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("xml", "date", "printed"),
    [
        ("<Year>2015</Year>", "2015", "2015"),
        ("<Year>2015</Year><Month>Jun</Month>", "2015-06", "2015 Jun"),
        ("<Year>2015</Year><Month>06</Month><Day>3</Day>", "2015-06-03", "2015 06 3"),
        ("<Year>2000</Year><Season>Spring</Season>", "2000-06", "2000 Spring"),
        ("<MedlineDate>1998 Dec-1999 Jan</MedlineDate>", "1999-01", "1998 Dec-1999 Jan"),
        ("<Year>2015</Year><Month>Feb</Month><Day>31</Day>", "2015-02", "2015 Feb 31"),
    ],
)
def test_publication_date_is_parsed(tmp_path: Path, xml: str, date: str, printed: str) -> None:
    found = one(tmp_path, article(date=xml))
    assert (found.date, found.metadata["date_printed"]) == (date, printed)


def test_electronic_date_is_used_without_issue_date(tmp_path: Path) -> None:
    electronic = "<ArticleDate><Year>2011</Year><Month>02</Month><Day>09</Day></ArticleDate>"
    assert one(tmp_path, article(date="<MedlineDate>Unknown</MedlineDate>", in_article=electronic)).date == "2011-02-09"
    assert one(tmp_path, article(in_article=electronic)).date == "2015-06-30"
    assert one(tmp_path, article(date="")).date is None


@pytest.mark.parametrize(
    ("printed", "date"),
    [
        ("2000 Spring", "2000-06"),
        ("Winter 2000", "2000"),
        ("1975-1976", "1976"),
        ("1975-76", "1976"),
        ("1999-00", "2000"),
        ("2000 Nov-Dec", "2000-12"),
        ("2000 Nov-Feb", "2001-02"),
        ("2000 Dec 23-30", "2000-12-30"),
        ("1998 Dec 28-1999 Jan 3", "1999-01-03"),
        ("1983 3d Quart", "1983-09"),
        ("1999 1st Quart", "1999-03"),
        ("1999 Fall-2000 Winter", "2000-12"),
        ("2000 Winter-Spring", "2000-06"),
        ("2015-06", "2015-06"),
        ("2015-06-30", "2015-06-30"),
        ("9999 Dec-Jan", None),
        ("0000", None),
        ("Suppl 3", None),
        ("", None),
    ],
)
def test_date_range_gives_its_end(printed: str, date: str | None) -> None:
    assert parse_printed_date(printed) == date


@pytest.mark.slow
@given(st.text(alphabet="0123456789- JanFebWinterSpQu/.", max_size=30))
def test_any_date_text_gives_date_or_none(printed: str) -> None:
    date = parse_printed_date(printed)
    assert date is None or last_day(date) > 0


# -- metadata -------------------------------------------------------------------------------------------------------


IN_ARTICLE = """
<ELocationID EIdType="pii" ValidYN="Y">S1</ELocationID>
<ELocationID EIdType="doi" ValidYN="N">no</ELocationID>
<ELocationID EIdType="doi" ValidYN="Y">10.1/x</ELocationID>
<AuthorList>
  <Author>
    <LastName>Müller</LastName><ForeName>Anna B</ForeName><Initials>AB</Initials><Suffix>Jr</Suffix>
    <Identifier Source="ORCID">0000</Identifier>
    <AffiliationInfo><Affiliation>Here.</Affiliation></AffiliationInfo>
    <AffiliationInfo><Affiliation>There.</Affiliation></AffiliationInfo>
  </Author>
  <Author><LastName>Li</LastName><Initials>L</Initials></Author>
  <Author><CollectiveName>The Group</CollectiveName></Author>
</AuthorList>
<Language>eng</Language><Language>ger</Language>
<Pagination><StartPage>7</StartPage><EndPage>9</EndPage></Pagination>
<DataBankList><DataBank><DataBankName>ClinicalTrials.gov</DataBankName>
  <AccessionNumberList><AccessionNumber>NCT01</AccessionNumber></AccessionNumberList></DataBank></DataBankList>
<GrantList><Grant><GrantID>R01</GrantID><Agency>NHLBI</Agency></Grant></GrantList>
<PublicationTypeList>
  <PublicationType UI="D1">Review</PublicationType><PublicationType UI="D2">Journal Article</PublicationType>
</PublicationTypeList>"""
IN_CITATION = """
<MedlineJournalInfo><Country>England</Country><MedlineTA>J M</MedlineTA></MedlineJournalInfo>
<ChemicalList><Chemical>
  <RegistryNumber>0</RegistryNumber><NameOfSubstance UI="D5">Gold</NameOfSubstance>
</Chemical></ChemicalList>
<MeshHeadingList>
  <MeshHeading>
    <DescriptorName UI="D3" MajorTopicYN="N">Asthma</DescriptorName>
    <QualifierName UI="Q4" MajorTopicYN="Y">drug therapy</QualifierName>
    <QualifierName UI="Q5" MajorTopicYN="N">genetics</QualifierName>
  </MeshHeading>
  <MeshHeading><DescriptorName UI="D6" MajorTopicYN="Y">Adult</DescriptorName></MeshHeading>
  <MeshHeading><DescriptorName UI="D7" MajorTopicYN="N">Child</DescriptorName></MeshHeading>
  <MeshHeading>
    <DescriptorName UI="D8" MajorTopicYN="Y">Gout</DescriptorName>
    <QualifierName UI="Q9" MajorTopicYN="N">diet</QualifierName>
  </MeshHeading>
</MeshHeadingList>
<KeywordList><Keyword>CO<sub>2</sub></Keyword><Keyword> </Keyword></KeywordList>
<CommentsCorrectionsList>
  <CommentsCorrections RefType="UpdateOf"><RefSource>BMJ</RefSource><PMID>4</PMID></CommentsCorrections>
  <CommentsCorrections><RefSource>Of no type</RefSource></CommentsCorrections>
</CommentsCorrectionsList>
<CoiStatement>None.</CoiStatement>"""
IN_DATA = """
<ArticleIdList><ArticleId IdType="doi">10.1/y</ArticleId><ArticleId IdType="pmc">PMC7</ArticleId></ArticleIdList>
<ReferenceList><Title>Refs</Title><ReferenceList><Reference>
  <Citation>Lancet 1.</Citation>
  <ArticleIdList><ArticleId IdType="pubmed">5</ArticleId><ArticleId IdType="pmc">PMC8</ArticleId></ArticleIdList>
</Reference></ReferenceList></ReferenceList>"""
FULL = article(in_article=IN_ARTICLE, in_citation=IN_CITATION, in_data=IN_DATA)


def test_citation_metadata_is_read(tmp_path: Path) -> None:
    found = one(tmp_path, FULL)
    assert found.metadata == {
        "journal": "The journal",
        "journal_abbreviation": "J",
        "date_printed": "2015 Jun 30",
        "doi": "10.1/x",
        "pmcid": "PMC7",
        "authors": ["Müller, Anna B, Jr", "Li, L", "The Group"],
        "group_authors": ["The Group"],
        "page_range": "7-9",
        "language": ["eng", "ger"],
        "registrations": ["ClinicalTrials.gov/NCT01"],
        "publication_types": ["Review", "Journal Article"],
        "country": "England",
        "mesh": ["Asthma/drug therapy*", "Asthma/genetics", "Adult*", "Child", "Gout*", "Gout/diet"],
        "keywords": ["CO2"],
        "corrections": [{"type": "UpdateOf", "source": "BMJ", "pmid": "4"}, {"source": "Of no type"}],
    }


@pytest.mark.parametrize("kind", ["RetractionIn", "RetractionOf", "ErratumIn", "ErratumFor", "ExpressionOfConcernIn"])
def test_corrections_are_read_in_both_directions(tmp_path: Path, kind: str) -> None:
    correction = (
        f'<CommentsCorrectionsList><CommentsCorrections RefType="{kind}"><RefSource>Lancet. 2010</RefSource>'
        f'<PMID Version="1">99</PMID><Note>why</Note></CommentsCorrections><CommentsCorrections RefType="CommentOn">'
        "<RefSource>Gut</RefSource></CommentsCorrections></CommentsCorrectionsList>"
    )
    found = one(tmp_path, article(in_citation=correction))
    assert found.metadata["corrections"] == [
        {"type": kind, "pmid": "99", "source": "Lancet. 2010", "note": "why"},
        {"type": "CommentOn", "source": "Gut"},
    ]
    assert found.metadata.get("retracted") == (True if kind == "RetractionIn" else None)
    assert found.id == "pubmed:1"


def test_publication_type_marks_retraction(tmp_path: Path) -> None:
    types = "<PublicationTypeList><PublicationType>Retracted Publication</PublicationType></PublicationTypeList>"
    assert one(tmp_path, article(in_article=types)).metadata["retracted"] is True
    notice = types.replace("Retracted Publication", "Retraction of Publication")
    assert "retracted" not in one(tmp_path, article(in_article=notice)).metadata


BOOK = """
<PubmedBookArticle><BookDocument>
  <PMID Version="1">20301295</PMID>
  <ArticleIdList><ArticleId IdType="bookaccession">NBK1</ArticleId></ArticleIdList>
  <Book>
    <Publisher><PublisherName>UW</PublisherName><PublisherLocation>Seattle</PublisherLocation></Publisher><BookTitle>GeneReviews</BookTitle>
    <PubDate><Year>1993</Year></PubDate>
    <AuthorList Type="editors"><Author><LastName>Adam</LastName><Initials>MP</Initials></Author></AuthorList>
  </Book>
  <ArticleTitle>Huntington</ArticleTitle><Language>eng</Language>
  <AuthorList Type="authors"><Author><LastName>Warby</LastName></Author></AuthorList>
  <PublicationType>Review</PublicationType>
  <Abstract><AbstractText>Chorea.</AbstractText></Abstract>
  <Sections><Section><SectionTitle>Summary</SectionTitle></Section></Sections>
  <ContributionDate><Year>1998</Year><Month>Oct</Month><Day>23</Day></ContributionDate>
  <DateRevised><Year>2020</Year><Month>6</Month><Day>11</Day></DateRevised>
</BookDocument></PubmedBookArticle>"""


def test_book_record_is_read(tmp_path: Path) -> None:
    (found,) = read(tmp_path, article_set([BOOK]))
    assert isinstance(found, Document)
    assert (found.id, found.title, found.text) == ("pubmed:20301295", "Huntington", "Chorea.")
    assert (found.date, found.revision) == ("1998-10-23", "20200611.01.2601234")
    assert found.metadata == {
        "book": "GeneReviews",
        "publisher": "UW",
        "publisher_place": "Seattle",
        "editors": ["Adam, MP"],
        "authors": ["Warby"],
        "language": ["eng"],
        "publication_types": ["Review"],
        "sections": ["Summary"],
        "date_printed": "1993",
    }
    untitled = read(tmp_path, article_set([BOOK.replace("<ArticleTitle>Huntington</ArticleTitle>", "")]))
    assert isinstance(untitled[0], Document)
    assert untitled[0].title == "GeneReviews"


# -- revisions ------------------------------------------------------------------------------------------------------


def test_revision_keys_sort_by_time(tmp_path: Path) -> None:
    def revision(name: str = NAME, **given: object) -> str:
        (found,) = read(tmp_path, article_set([article(**given)]), name)  # type: ignore[arg-type]
        assert isinstance(found, Document)
        return str(found.revision)

    completed = "<DateCompleted><Year>2019</Year><Month>1</Month><Day>2</Day></DateCompleted>"
    ordered = [
        revision("other.xml", revised=None),
        revision(revised=None, in_citation=completed),
        revision(),
        revision(version=2),
        revision(revised="20200201"),
        revision("pubmed26n1235.xml", revised="20200201"),
        revision("pubmed27n0001.xml", revised="20200201"),
    ]
    assert ordered == sorted(ordered)
    assert ordered[:2] == ["00000000.01.0000000", "20190102.01.2601234"]
    assert len({len(each) for each in ordered}) == 1


def test_deletion_outranks_own_file_but_not_later_files(tmp_path: Path) -> None:
    found = read(tmp_path, article_set([article(1), article(2, revised="20210505")], deleted=[7, "x", 8]))
    assert found[2:] == [
        DeletedDocument("pubmed:7", "20210505.99.2601234"),
        DeletedDocument("pubmed:8", "20210505.99.2601234"),
    ]
    assert isinstance(found[1], Document)
    assert str(found[1].revision) < "20210505.99.2601234" < "20210506.01.2601235"
    assert read(tmp_path, article_set([], deleted=[7])) == [DeletedDocument("pubmed:7", "99999999.99.2601234")]


# -- broken and hostile ---------------------------------------------------------------------------------------------


def test_malformed_records_are_reported_and_rest_is_read(tmp_path: Path) -> None:
    found = read(tmp_path, article_set([article("x"), article(""), article(3, title="", abstract=""), article(4)]))
    assert [each.where for each in found if isinstance(each, Skipped)] == ["record 1", "record 2", "PMID 3"]
    assert {each.path for each in found if isinstance(each, Skipped)} == {str(tmp_path / NAME)}
    assert [each.id for each in found if isinstance(each, Document)] == ["pubmed:4"]


def test_truncated_gzip_gives_complete_records(tmp_path: Path) -> None:
    path = tmp_path / "pubmed26n0001.xml.gz"
    write_realistic(path, 60)
    whole = list(pubmed.read_citations(path))
    assert [each.id for each in whole if isinstance(each, Document)] == [f"pubmed:{1_000_000 + n}" for n in range(60)]
    path.write_bytes(path.read_bytes()[:-3000])
    *found, last = pubmed.read_citations(path)
    assert 0 < len(found) < 60
    assert found == whole[: len(found)]
    assert isinstance(last, Skipped)
    assert last.where == f"after record {len(found)}"
    assert "fetch it again or recreate it" in last.reason


@pytest.mark.parametrize(
    "cut", ["</PubmedArticleSet>", "</MedlineCitation><PubmedData></PubmedData></PubmedArticle>\n</P"]
)
def test_truncated_xml_gives_complete_records(tmp_path: Path, cut: str) -> None:
    text = article_set([article(1), article(2)])
    *found, last = read(tmp_path, text[: text.rindex(cut)])
    assert isinstance(last, Skipped)
    assert last.where == f"after record {len(found)}"
    assert "not well-formed" in last.reason


@pytest.mark.parametrize("content", ["<a/>", "<html><body>No.</body></html>", article_set([])])
def test_xml_without_records_is_reported(tmp_path: Path, content: str) -> None:
    (found,) = read(tmp_path, content)
    assert isinstance(found, Skipped)
    assert "no record" in found.reason


LAUGHS = '<!ENTITY a0 "lol">' + "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 12))
SECRET = "the secret of another file"


@pytest.mark.parametrize(
    ("declared", "used"),
    [
        (LAUGHS, "&a11;"),
        (f'<!ENTITY a "{"x" * 100_000}">', "&a;" * 100_000),
        ('<!ENTITY a SYSTEM "file://{secret}">', "&a;"),
        ('<!ENTITY a SYSTEM "http://127.0.0.1:9/x">', "&a;"),
        ('<!ENTITY % a SYSTEM "file://{secret}"> %a;', "text"),
        ('<!ENTITY a "&b;"><!ENTITY b "&a;">', "&a;"),
    ],
    ids=["laughs", "quadratic", "file", "network", "parameter", "loop"],
)
@pytest.mark.parametrize("where", ["text", "attribute"])
def test_xml_entities_are_rejected_in_bounded_memory(tmp_path: Path, declared: str, used: str, where: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET, encoding="utf-8")
    declared = declared.replace("{secret}", str(secret))
    xml = article(1, title=used) if where == "text" else article(1).replace('Status="MEDLINE"', f'Status="{used}"')
    with Peak() as peak:
        found = read(tmp_path, f"<!DOCTYPE PubmedArticleSet [{declared}]><PubmedArticleSet>{xml}</PubmedArticleSet>")
    assert peak.grown < 50
    assert [type(each) for each in found] == [Skipped]
    assert "entities" in str(found[0]) or "not well-formed" in str(found[0])
    assert SECRET not in str(found)


class Peak:
    """MiB that this process's memory grew by at its highest, seen from the system: libxml2's is not Python's."""

    def __enter__(self) -> Peak:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        self._before = self._highest()
        return self

    def __exit__(self, *_: object) -> None:
        self.grown = self._highest() - self._before

    def _highest(self) -> float:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1024


@pytest.mark.long
@pytest.mark.parametrize("inner", ["<a/>", "<a>" * 3000, "x" * 1000])
def test_endless_element_is_abandoned_in_bounded_memory(tmp_path: Path, inner: str) -> None:
    path = tmp_path / "pubmed26n0001.xml.gz"
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write(article_set([article(1)]).replace("</PubmedArticleSet>", ""))
        for _ in range(40_000 // len(inner) * 1000):
            file.write(inner)
    with Peak() as peak:
        found = list(pubmed.read_citations(path))
    assert [type(each) for each in found] == [Document, Skipped]
    assert any(told in str(found[1]) for told in ("more than 16 MiB", "exceed the parser's limits"))
    assert peak.grown < 700


@pytest.mark.long
def test_memory_is_independent_of_file_size(tmp_path: Path) -> None:
    path = tmp_path / "pubmed26n0001.xml.gz"
    write_realistic(path, 1500)
    with Peak() as peak:
        assert sum(1 for _ in pubmed.read_citations(path)) == 1500
    assert peak.grown < 16


FUZZED = [
    article_set([article(1), article(2, abstract=abstract("<AbstractText>H<sub>2</sub>O &lt; 1</AbstractText>"))], [3]),
    f"<!DOCTYPE a [{LAUGHS}]>" + article_set([article(1, title="&a2;")]).removeprefix(HEAD),
    article_set([BOOK], [3]),
    article_set([FULL]),
]


def mutated(content: bytes, dice: random.Random) -> bytes:
    out = bytearray(content)
    for _ in range(dice.choice((1, 1, 2, 4))):
        at, to = sorted(dice.choices(range(len(out) + 1), k=2))
        match dice.randrange(5):
            case 0 if out:
                out[at % len(out)] = dice.randrange(256)
            case 1:
                del out[at : dice.choice((to, at + 5))]
            case 2:
                out[at:at] = dice.randbytes(dice.randrange(1, 8))
            case 3:
                out[at:at] = out[at : min(to, at + 300)]
            case _:
                token = dice.choice(
                    [b"<", b">", b"&a9;", b"</PubmedArticle>", b"<PMID>", b"]]>", b"<!--", b"\0", b"&#0;"]
                )
                out[at:at] = token
    return bytes(out)


@pytest.mark.long
def test_pubmed_with_random_mutations_never_raises(tmp_path: Path) -> None:
    dice = random.Random(20240131)
    path = tmp_path / NAME
    slowest = 0.0
    outcomes = {Document: 0, DeletedDocument: 0, Skipped: 0}
    with Peak() as peak:
        for number in range(10_000):
            content = mutated(FUZZED[number % 4].encode(), dice)
            if number % 50 == 0:
                content = mutated(gzip.compress(content), dice)
            # Anew each time: some file systems write a file out to the disk when it is emptied and filled again.
            path.unlink(missing_ok=True)
            path.write_bytes(content)
            began = time.process_time()
            for each in pubmed.read_citations(path):
                outcomes[type(each)] += 1
                if isinstance(each, Document):
                    assert re.fullmatch(r"pubmed:[0-9]+", each.id)
                    assert each.text.strip()
                    json.dumps(each.metadata)
            slowest = max(slowest, time.process_time() - began)
    assert min(outcomes.values()) > 200, outcomes
    assert slowest < 5
    assert peak.grown < 100


# -- round trips ----------------------------------------------------------------------------------------------------

CHARACTERS = st.characters(codec="utf-8", exclude_categories=("C", "Z"))
PROSE = st.lists(st.text(CHARACTERS, min_size=1, max_size=8), min_size=1, max_size=3).map(" ".join)


@st.composite
def marked_up(draw: st.DrawFn, depth: int = 0) -> tuple[str, str]:
    """(XML, its characters without white space)."""
    xml = said = ""
    for _ in range(draw(st.integers(1, 3))):
        plain = draw(PROSE)
        tag = draw(st.sampled_from(["", "i", "b", "sup", "sub", "u"]))
        if tag and depth < 2:
            inner, inner_said = draw(marked_up(depth + 1))
            xml, said = f"{xml}<{tag}>{inner}</{tag}>", said + inner_said
        space = draw(st.sampled_from(["", " ", "\n\t  "]))
        xml, said = f"{xml}{space}{escape(plain)}", said + plain
    return xml, "".join(said.split())


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(marked_up(), marked_up())
def test_inline_markup_keeps_every_character(
    tmp_path_factory: pytest.TempPathFactory, title: tuple[str, str], text: tuple[str, str]
) -> None:
    folder = tmp_path_factory.getbasetemp()
    found = one(folder, article(title=title[0], abstract=abstract(f"<AbstractText>{text[0]}</AbstractText>")))

    def without_marks(said: str) -> str:
        return "".join(said.split()).replace("^", "").replace("_", "")

    assert without_marks(found.text) == without_marks(text[1])
    assert without_marks(found.title) == without_marks(title[1]) or title[1].startswith("[NotAvailable]")


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 10**9), PROSE, st.lists(st.tuples(PROSE, PROSE), min_size=1, max_size=4)),
        max_size=3,
    )
)
def test_pubmed_reader_returns_generated_fields(
    tmp_path_factory: pytest.TempPathFactory, articles: list[tuple[int, str, list[tuple[str, str]]]]
) -> None:
    xml = article_set(
        article(
            pmid,
            title=escape(title),
            abstract=abstract(
                "".join(
                    f"<AbstractText Label={quoteattr(label)}>{escape(said)}</AbstractText>" for label, said in sections
                )
            ),
        )
        for pmid, title, sections in articles
    )
    found = read(tmp_path_factory.getbasetemp(), xml)
    if articles:
        assert [(d.id, d.title, d.text) for d in found if isinstance(d, Document)] == [
            (f"pubmed:{pmid}", title, "\n".join(f"{label}: {said}" for label, said in sections))
            for pmid, title, sections in articles
        ]


# -- many files -----------------------------------------------------------------------------------------------------


def files(folder: Path, count: int, size: int = 40) -> list[Path]:
    paths = [folder / f"pubmed26n{number:04}.xml.gz" for number in range(count)]
    for number, path in enumerate(paths):
        write_realistic(path, size, seed=number)
    return paths


@pytest.mark.slow
def test_parallel_reading_gives_same_items_in_order(tmp_path: Path) -> None:
    paths = files(tmp_path, 3)
    paths[1].write_bytes(paths[1].read_bytes()[:-2000])
    alone = [each for path in paths for each in append_fingerprint(path, pubmed.read_citations(path))]
    assert [each.name for each in alone if isinstance(each, FileFingerprint)] == [paths[0].name, paths[2].name]
    assert list(pubmed.read_files(paths, workers=2)) == alone
    assert list(pubmed.read_files(paths, workers=1)) == alone
    assert list(pubmed.read_files([])) == []


def files_with_one_that_never_comes(folder: Path) -> list[Path]:
    """The second is a pipe that nobody writes to, so that its process waits as long as the test likes."""
    paths = files(folder, 3, size=10)
    paths[1].unlink()
    os.mkfifo(paths[1])
    return paths


@pytest.mark.slow
def test_killed_process_raises_error_with_file_name(tmp_path: Path) -> None:
    reading = pubmed.read_files(files_with_one_that_never_comes(tmp_path), workers=2)
    assert isinstance(next(reading), Document)
    second = next(each for each in multiprocessing.active_children() if "n0001" in each.name)
    second.kill()
    with pytest.raises(InputError, match=r"n0001\.xml\.gz: the process that read it was stopped .* run again"):
        list(reading)
    assert multiprocessing.active_children() == []


@pytest.mark.slow
def test_closing_reader_ends_processes_and_removes_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spools = tmp_path / "spools"
    spools.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(spools))
    reading = pubmed.read_files(files_with_one_that_never_comes(tmp_path), workers=2)
    assert isinstance(next(reading), Document)
    assert list(spools.iterdir()) != []
    assert multiprocessing.active_children() != []
    cast(Generator[object, None, None], reading).close()
    assert multiprocessing.active_children() == []
    assert list(spools.iterdir()) == []


SCRIPT = """
import signal
import sys
from pathlib import Path
from epicrisis.corpus.articles import pubmed
# A shell that starts its commands in the background lets them ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
if __name__ == "__main__":
    for each in pubmed.read_files([Path(name) for name in sys.argv[1:]], workers=2):
        sys.stdout.write(getattr(each, "id", "") + chr(10))
        sys.stdout.flush()
"""


@pytest.mark.long
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_stopped_reader_ends_its_processes(tmp_path: Path, sent: signal.Signals) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    paths = [*files(tmp_path, 1), tmp_path / "pubmed26n0009.xml.gz"]
    write_realistic(paths[1], 2000)
    names = [str(path) for path in (*paths, *paths[1:] * 3)]
    running = subprocess.Popen(
        [sys.executable, str(script), *names],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert running.stdout is not None
    assert running.stdout.readline() == b"pubmed:1000000\n"
    if sent == signal.SIGINT:
        os.killpg(running.pid, sent)
    else:
        running.kill()
    running.communicate(timeout=60)
    assert running.returncode == -sent
    deadline = time.monotonic() + 60
    while _group_is_there(running.pid):
        assert time.monotonic() < deadline, "a process went on alone"
        time.sleep(0.05)


def _group_is_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_kind_of_distinguishes_xml_files(tmp_path: Path) -> None:
    def kind(content: bytes) -> str | None:
        path = tmp_path / "x.xml"
        path.write_bytes(content)
        return detect_xml_kind(path)

    pubmed_file = article_set([article()]).encode()
    assert kind(pubmed_file) == kind(gzip.compress(pubmed_file)) == "pubmed"
    assert kind(gzip.compress(pubmed_file)[:-12]) == "pubmed"
    assert kind(article_set([article()]).replace('encoding="utf-8"', "").encode("utf-16")) == "pubmed"
    assert kind(article_set([], deleted=[1]).encode()) == "pubmed"
    assert kind(b"<!DOCTYPE article SYSTEM 'JATS'><article xmlns:x='y'><front/></article>") == "nxml"
    assert kind(b"<pmc-articleset><article></article></pmc-articleset>") == "nxml"
    assert kind(b"<articles/>") is None
    assert kind(b"") is None


@pytest.mark.data
def test_real_citation_is_read(data_folder: Path) -> None:
    (found,) = pubmed.read_citations(data_folder / "pubmed_xml" / "pubmed-29768149.xml")
    assert isinstance(found, Document)
    assert (found.id, found.date, found.revision) == ("pubmed:29768149", "2018-05-17", "20220410.01.0000000")
    assert found.title == "Inhaled Combined Budesonide-Formoterol as Needed in Mild Asthma."
    assert [line.partition(":")[0] for line in found.text.split("\n")] == [
        "BACKGROUND",
        "METHODS",
        "RESULTS",
        "CONCLUSIONS",
    ]
    assert "a fast-acting β2-agonist may be" in found.text
    assert "Clinical Trial, Phase III" in found.metadata["publication_types"]
    assert "Asthma/drug therapy*" in found.metadata["mesh"]
    assert found.metadata["registrations"] == ["ClinicalTrials.gov/NCT02149199"]
    assert [each["pmid"] for each in found.metadata["corrections"]] == ["29768146", "30242404"]
