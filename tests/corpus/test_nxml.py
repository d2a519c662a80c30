"""JATS full texts: every paragraph, caption and cell under its section, and no reference among them."""

from __future__ import annotations

import gzip
import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epicrisis.core.types import Document
from epicrisis.corpus.articles import jats
from epicrisis.corpus.base.reader_base import FileRemark, Skipped

IDS = '<article-id pub-id-type="pmid">5</article-id><article-id pub-id-type="pmc">7</article-id>'
DOI = '<article-id pub-id-type="doi">10.1/x</article-id>'
BODY = "<body><p>Text.</p></body>"


def article_xml(
    body: str = BODY, meta: str = IDS + DOI, rest: str = "", attributes: str = 'article-type="review-article"'
) -> str:
    return (
        '<!DOCTYPE article PUBLIC "-//NLM//DTD JATS (Z39.96)//EN" "JATS-archivearticle1.dtd">'
        f"<article {attributes}><front><journal-meta><journal-title-group><journal-title>Gut</journal-title>"
        f"</journal-title-group></journal-meta><article-meta>{meta}</article-meta></front>{body}{rest}</article>"
    )


def read(folder: Path, content: str | bytes) -> list[Document | Skipped | FileRemark]:
    path = folder / "x.nxml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(jats.read_articles(path, "folder/x.nxml"))


def one(folder: Path, content: str | bytes) -> Document:
    (found,) = read(folder, content)
    assert isinstance(found, Document), found
    return found


def sections(document: Document) -> dict[str, str]:
    """The text of each section below its heading. Fails unless the offsets agree with the text."""
    found = {}
    after = 0
    for start, end, title in document.metadata["sections"]:
        assert start == after
        heading, _, below = document.text[start:end].partition("\n")
        assert heading == title
        found[title] = below
        after = end + 1
    assert after == len(document.text) + 1
    return found


def test_jats_sections_have_title_paths(tmp_path: Path) -> None:
    found = one(
        tmp_path,
        article_xml(
            "<body><sec><label>1</label><title>Methods</title><sec><title>The <italic>mice</italic></title>"
            "<p>Ten\n mice.</p><p>Fed.</p></sec><sec><p>Untitled.</p></sec></sec>"
            "<sec><title>Results</title><p>All lived.</p></sec></body>",
            IDS + "<abstract><p>Short.</p></abstract><abstract abstract-type='plain-language'><p>Plain.</p></abstract>"
            "<abstract><title>Synopsis</title><sec><title>Aim</title><p>To see.</p></sec></abstract>",
            "<back><ack><p>Thanks.</p></ack><ref-list><title>References</title><ref><mixed-citation>Cited work"
            "</mixed-citation></ref></ref-list><app-group><app><title>Extra</title><p>More.</p></app></app-group></back>",
        ),
    )
    assert sections(found) == {
        "Abstract": "Short.",
        "Abstract (plain language)": "Plain.",
        "Synopsis / Aim": "To see.",
        "Methods / The mice": "Ten mice.\nFed.",
        "Methods": "Untitled.",
        "Results": "All lived.",
        "Acknowledgements": "Thanks.",
        "Extra": "More.",
    }


def test_jats_tables_figures_lists_and_formulas_are_text(tmp_path: Path) -> None:
    body = """<body><sec><title>S</title>
      <p>Before <fig><label>Figure 1</label><caption><title>A cell.</title><p>Seen.</p></caption><graphic/></fig>
        and after <xref ref-type="bibr">[1]</xref>.<list><list-item><p>One</p></list-item><list-item><p>Two</p>
        </list-item></list></p>
      <table-wrap><label>Table 1</label><caption><p>Doses.</p></caption><alternatives><graphic/><table>
        <thead><tr><th>Drug</th><th>mg/m<sup>2</sup></th></tr></thead><tbody><tr><td>A</td><td>5</td></tr></tbody>
        </table></alternatives><table-wrap-foot><fn><label>a</label><p>Note.</p></fn></table-wrap-foot></table-wrap>
      <disp-formula><alternatives><tex-math>\\begin{document}$$x^2$$\\end{document}</tex-math>
        <mml:math xmlns:mml="http://www.w3.org/1998/Math/MathML"><mml:msup><mml:mi>x</mml:mi><mml:mn>2</mml:mn>
        </mml:msup></mml:math></alternatives></disp-formula>
      <p>Then <inline-formula><tex-math>\\documentclass{a}\\begin{document}$\\alpha$\\end{document}</tex-math>
        </inline-formula>.</p></sec></body>"""
    assert sections(one(tmp_path, article_xml(body)))["S"].split("\n") == [
        "Before and after [1].",
        "Figure 1 A cell. Seen.",
        "One",
        "Two",
        "Table 1 Doses.",
        "Drug | mg/m^2",
        "A | 5",
        "a Note.",
        "x^2",
        "Then \\alpha .",
    ]


def test_jats_metadata_and_title_are_read(tmp_path: Path) -> None:
    meta = (
        IDS + DOI + "<title-group><article-title>On <italic>E. coli</italic></article-title></title-group>"
        "<contrib-group><contrib contrib-type='author'><name><surname>Li</surname><given-names>A B</given-names></name>"
        "</contrib><contrib contrib-type='author'><collab>The Group</collab></contrib>"
        "<contrib contrib-type='editor'><name><surname>No"
        "</surname></name></contrib></contrib-group><kwd-group><kwd>H<sub>2</sub></kwd></kwd-group>"
        "<pub-date pub-type='collection'><year>2012</year></pub-date>"
        "<pub-date pub-type='epub'><day>28</day><month>9</month><year>2012</year></pub-date>"
        "<pub-date pub-type='nihms-submitted'><year>2011</year></pub-date>"
        "<volume>7</volume><issue>9</issue><fpage>12</fpage><lpage>19</lpage>"
    )
    found = one(tmp_path, article_xml(meta=meta))
    assert (found.id, found.title, found.date) == ("pmc:PMC7", "On E. coli", "2012-09-28")
    assert (found.source, found.text) == ("PubMed Central", "Text\nText.")
    assert found.metadata == {
        "doi": "10.1/x",
        "pmid": "5",
        "pmcid": "PMC7",
        "journal": "Gut",
        "publication_types": ["review-article"],
        "authors": ["Li, A B", "The Group"],
        "group_authors": ["The Group"],
        "volume": "7",
        "issue": "9",
        "page_range": "12-19",
        "keywords": ["H2"],
        "sections": [[0, 10, "Text"]],
    }


@pytest.mark.parametrize(
    ("meta", "id"),
    [
        ('<article-id pub-id-type="pmcid">PMC9</article-id>', "pmc:PMC9"),
        (DOI, "doi:10.1/x"),
        ("", "file:folder/x.nxml"),
    ],
)
def test_jats_document_id_is_chosen(tmp_path: Path, meta: str, id: str) -> None:
    assert one(tmp_path, article_xml(meta=meta)).id == id


def test_jats_retracted_article_is_marked(tmp_path: Path) -> None:
    assert one(tmp_path, article_xml(attributes='article-type="retracted-article"')).metadata["retracted"] is True


def test_jats_with_namespaces_gzip_and_several_articles_is_read(tmp_path: Path) -> None:
    bare = re.sub("<!DOCTYPE[^>]*>", "", article_xml(meta=""))
    other = bare.replace("<article ", '<article xmlns="https://jats.nlm.nih.gov/ns/archiving/1.4/" ')
    found = read(tmp_path, gzip.compress(f"<pmc-articleset>{bare}{other}</pmc-articleset>".encode()))
    assert [each.id for each in found if isinstance(each, Document)] == ["file:folder/x.nxml", "file:folder/x.nxml#2"]
    assert len({each.text for each in found if isinstance(each, Document)}) == 1


def test_jats_response_belongs_to_its_article(tmp_path: Path) -> None:
    response = "<front-stub><title-group><article-title>Reply</article-title></title-group></front-stub>"
    found = one(tmp_path, article_xml(rest=f"<response>{response}<body><p>We agree.</p></body></response>"))
    assert sections(found) == {"Text": "Text.", "Reply": "We agree."}


def test_jats_reviewers_reports_are_left_out_and_counted(tmp_path: Path) -> None:
    part = "<sub-article article-type='{}'><body><p>{}</p></body></sub-article>"
    kinds = ["decision-letter", "reply", "referee-report", "translation"]
    found, remark = read(tmp_path, article_xml(rest="".join(part.format(kind, kind) for kind in kinds)))
    assert isinstance(found, Document)
    assert isinstance(remark, FileRemark)
    assert sections(found) == {"Text": "Text.", "sub-article": "translation"}
    assert remark.count == 3


@pytest.mark.parametrize(
    ("paragraph", "text"),
    [
        ("by 12<sup>{}</sup> percent", "by 12 [3] percent"),
        ("by 12{} percent", "by 12 [3] percent"),
        ("by 12<sup>{},{}</sup> percent", "by 12 [3,3] percent"),
        ("by 12<xref ref-type='bibr' rid='a'><sup>3</sup></xref> percent", "by 12 [3] percent"),
        ("by 12<sup><xref ref-type='fn' rid='a'>3</xref></sup> percent", "by 12 [note 3] percent"),
        ("before.<sup>4,5</sup> Then,<sup>6–8</sup> so", "before. [4,5] Then, [6–8] so"),
        ("as [{},{}] and (see {}–{}) in {}", "as [3,3] and (see 3–3) in 3"),
        ("trials{}, {} and {} with 5", "trials [3], [3] and [3] with 5"),
        ("trials{} {} and in use{} , {} .", "trials [3] [3] and in use [3] , [3] ."),
        ("before.<xref ref-type='bibr' rid='a'>[1]</xref> So", "before.[1] So"),
        ("in 2015<sup>[7]</sup>, 10<sup>9</sup>/L and m<sup>2</sup>", "in 2015[7], 10^9/L and m^2"),
        ("<sup>1</sup>H,<sup>13</sup>C NMR", "1H,13C NMR"),
    ],
)
def test_jats_citation_is_no_power(tmp_path: Path, paragraph: str, text: str) -> None:
    cited = paragraph.replace("{}", "<xref ref-type='bibr' rid='r'>3</xref>")
    assert one(tmp_path, article_xml(f"<body><p>{cited}</p></body>")).text == f"Text\n{text}"


def test_jats_authors_of_every_form_are_listed_once(tmp_path: Path) -> None:
    def name(family: str) -> str:
        return f"<name><surname>{family}</surname><given-names>A</given-names></name>"

    author = "<contrib contrib-type='author'>{}</contrib>"
    members = f"<contrib-group>{author.format(name('Member'))}</contrib-group>"
    meta = (
        f"<contrib-group><contrib>{name('Untyped')}</contrib>"
        + author.format("<string-name>Bea String</string-name>")
        + author.format(f"<collab>The <italic>Demo</italic> Group{members}</collab>")
        + author.format(f"<name-alternatives>{name('First')}{name('Second')}</name-alternatives>")
        + f"</contrib-group><contrib-group content-type='editors'><contrib>{name('Editor')}</contrib></contrib-group>"
    )
    metadata = one(tmp_path, article_xml(meta=meta)).metadata
    assert metadata["authors"] == ["Untyped, A", "Bea String", "The Demo Group", "First, A"]
    assert metadata["group_authors"] == ["The Demo Group"]


def test_jats_front_notes_statements_and_footnotes_are_text(tmp_path: Path) -> None:
    article = article_xml(
        "<body><p>See<fn><p>Aside.</p></fn> this.</p><statement><label>Rule 1</label><p>Stop.</p></statement></body>",
        "<title-group><article-title>A title<xref ref-type='fn'>*</xref></article-title></title-group>",
    ).replace("</front>", "<notes><title>Data</title><p>On request.</p></notes></front>")
    found = one(tmp_path, article)
    assert found.title == "A title"
    assert sections(found) == {"Text": "See this.\nAside.", "Rule 1": "Stop.", "Data": "On request."}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (article_xml("<body/>"), "neither an abstract nor a body"),
        ("<html/>", "no article"),
        (article_xml()[:-20], "not well-formed"),
        ("", "not well-formed"),
        (gzip.compress(article_xml().encode())[:-20], "breaks off"),
        (f"<!DOCTYPE article [<!ENTITY a 'b'>]>{article_xml().partition('>')[2]}", "entities"),
        (f"<!DOCTYPE article [<!ENTITY a SYSTEM 'file:///etc/passwd'>]>{article_xml().partition('>')[2]}", "entities"),
        (article_xml(f"<body>{'<sec>' * 1500}<p>x</p>{'</sec>' * 1500}</body>"), "nesting"),
    ],
)
def test_jats_unreadable_file_is_reported(tmp_path: Path, content: str | bytes, reason: str) -> None:
    (found,) = read(tmp_path, content)
    assert isinstance(found, Skipped)
    assert reason in found.reason


def test_jats_of_maximum_depth_is_read(tmp_path: Path) -> None:
    depth = 240
    found = one(tmp_path, article_xml(f"<body>{'<sec>' * depth}<p>deep</p>{'</sec>' * depth}</body>"))
    assert found.text == "Text\ndeep"
    marked = one(tmp_path, article_xml(f"<body><p>{'<b>' * depth}deep{'</b>' * depth}</p></body>"))
    assert marked.text == "Text\ndeep"


@pytest.mark.slow
def test_jats_with_random_mutations_never_raises(tmp_path: Path) -> None:
    dice = random.Random(7)
    whole = article_xml(
        "<body><sec><title>S</title><p>a <fig><label>F</label><caption><p>c</p></caption></fig></p></sec></body>"
    )
    kinds = {Document: 0, Skipped: 0}
    for number in range(2000):
        content = bytearray(whole.encode())
        at = dice.randrange(len(content))
        match number % 3:
            case 0:
                content[at] = dice.randrange(256)
            case 1:
                del content[at : at + dice.randrange(40)]
            case _:
                content[at:at] = content[at - 30 : at]
        path = tmp_path / str(number)
        path.write_bytes(content)
        for each in jats.read_articles(path, "x"):
            kinds[type(each)] += 1
        path.unlink()
    assert min(kinds.values()) > 100, kinds


NAMES = st.text("abcdefgh", min_size=1, max_size=6)


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(NAMES, st.lists(NAMES, min_size=1, max_size=3)), min_size=1, max_size=4, unique_by=lambda x: x[0]
    )
)
def test_jats_reader_returns_generated_text(
    tmp_path_factory: pytest.TempPathFactory, given: list[tuple[str, list[str]]]
) -> None:
    body = "".join(f"<sec><title>{t}</title>{''.join(f'<p>{p}</p>' for p in ps)}</sec>" for t, ps in given)
    found = one(tmp_path_factory.getbasetemp(), article_xml(f"<body>{body}</body>"))
    assert sections(found) == {title: "\n".join(paragraphs) for title, paragraphs in given}


@pytest.mark.data
def test_jats_real_article_is_read(data_folder: Path) -> None:
    (found,) = jats.read_articles(data_folder / "pubmed_xml" / "pone.0046493.nxml", "pone.0046493.nxml")
    assert isinstance(found, Document)
    assert (found.id, found.date) == ("pmc:PMC3460867", "2012-09-28")
    assert found.title.startswith("MmPPOX Inhibits Mycobacterium tuberculosis Lipolytic Enzymes")
    assert (found.metadata["pmid"], found.metadata["doi"]) == ("23029536", "10.1371/journal.pone.0046493")
    below = sections(found)
    assert list(below)[:3] == ["Abstract", "Introduction", "Materials and Methods / Chemicals"]
    assert "LipC [18] | C4/0.12 | C10/0.02 | n.d | n.d | n.d | n.d" in found.text
    assert (
        "Figure 4 Antimycobacterial activity of MmPPOX and THL."
        in below["Results / Effect of MmPPOX on mycobacterial growth"]
    )
    assert "Inflammopharmacology" not in found.text
    source = (data_folder / "pubmed_xml" / "pone.0046493.nxml").read_text(encoding="utf-8")
    paragraphs = re.findall(r"<p>([^<&]{40,})</p>", source.partition("<body>")[2].partition("<back>")[0])
    assert paragraphs
    assert [each for each in paragraphs if each.strip() not in found.text] == []


def test_article_number_and_abbreviated_journal_of_the_real_article_are_read(data_folder: Path) -> None:
    [article] = jats.read_articles(data_folder / "pubmed_xml" / "pone.0046493.nxml", "a.nxml")
    assert isinstance(article, Document)
    names = ("journal_abbreviation", "volume", "issue", "page_range", "issn", "publisher")
    values = [article.metadata[name] for name in names]
    assert values == ["PLoS One", "7", "9", "e46493", "1932-6203", "Public Library of Science"]
