"""PubMed XML made to order: one article at a time for a test, or a file of realistic ones for a measurement."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterable
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

HEAD = (
    '<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE PubmedArticleSet PUBLIC "-//NLM//DTD PubMedArticle, '
    '1st January 2025//EN" "https://dtd.nlm.nih.gov/ncbi/pubmed/out/pubmed_250101.dtd">\n'
)
DATE = "<Year>2015</Year><Month>Jun</Month><Day>30</Day>"


def article(
    pmid: object = 1,
    *,
    title: str = "A title.",
    abstract: str = "<Abstract><AbstractText>Some text.</AbstractText></Abstract>",
    date: str = DATE,
    revised: str | None = "20200131",
    version: int = 1,
    in_article: str = "",
    in_citation: str = "",
    in_data: str = "",
) -> str:
    """One PubmedArticle. Every argument but `pmid`, `revised` and `version` is XML, put where the DTD has its place."""
    day = ""
    if revised:
        y, m, d = revised[:4], revised[4:6], revised[6:]
        day = f"<DateRevised><Year>{y}</Year><Month>{m}</Month><Day>{d}</Day></DateRevised>"
    return (
        f'<PubmedArticle><MedlineCitation Status="MEDLINE" Owner="NLM"><PMID Version="{version}">{pmid}</PMID>{day}'
        f'<Article PubModel="Print"><Journal><JournalIssue CitedMedium="Print"><PubDate>{date}</PubDate></JournalIssue>'
        f"<Title>The journal</Title><ISOAbbreviation>J</ISOAbbreviation></Journal>"
        f"<ArticleTitle>{title}</ArticleTitle>{abstract}{in_article}</Article>{in_citation}</MedlineCitation>"
        f"<PubmedData>{in_data}</PubmedData></PubmedArticle>\n"
    )


def article_set(articles: Iterable[str], deleted: Iterable[object] = ()) -> str:
    """Return a whole file."""
    deletions = "".join(f'<PMID Version="1">{pmid}</PMID>' for pmid in deleted)
    tail = f"<DeleteCitation>{deletions}</DeleteCitation>" if deletions else ""
    return f"{HEAD}<PubmedArticleSet>\n{''.join(articles)}{tail}</PubmedArticleSet>\n"


_TEXT = """
patients treatment of the in with and was study results clinical trial effect risk group cells expression protein
increased decreased significantly compared associated between after before months years therapy placebo mortality
hypertension diabetes infection inflammation receptor response analysis method data model outcome survival rate
95% CI (0.57-1.16) P<0.001 β-blocker TNF-α μg/ml respectively however these findings suggest that further
"""
WORDS = _TEXT.split()
LABELS = ["BACKGROUND", "METHODS", "RESULTS", "CONCLUSIONS"]


def write_realistic(path: Path, count: int, seed: int = 7) -> None:
    """A gzip file of `count` citations as PubMed's are: abstracts of about 1,500 characters, three in five structured,
    one in ten with inline markup, one in eight without abstract; authors with affiliations, MeSH, chemicals, grants,
    keywords, identifiers, history and references."""
    dice = random.Random(seed)
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=1) as file:
        file.write(f"{HEAD}<PubmedArticleSet>\n")
        for number in range(count):
            file.write(realistic(1_000_000 + number, dice))
        file.write("</PubmedArticleSet>\n")


def realistic(pmid: int, dice: random.Random) -> str:
    """Return one citation like PubMed's."""
    doi = f"10.1000/j.{pmid}"
    return article(
        pmid,
        title=escape(_sentence(dice, 14)),
        abstract=_abstract(dice),
        date=f"<Year>{dice.randrange(1975, 2026)}</Year><Month>{dice.choice(['Jan', 'May', 'Nov'])}</Month>",
        revised=f"20{dice.randrange(10, 26)}{dice.randrange(1, 13):02}{dice.randrange(1, 29):02}",
        in_article=f"<Pagination><MedlinePgn>{dice.randrange(999)}-9</MedlinePgn></Pagination>"
        f'<ELocationID EIdType="doi" ValidYN="Y">{doi}</ELocationID>{_authors(dice)}'
        f"<Language>eng</Language>{_grants(dice)}"
        '<PublicationTypeList><PublicationType UI="D016428">Journal Article</PublicationType><PublicationType '
        'UI="D016449">Randomized Controlled Trial</PublicationType></PublicationTypeList>',
        in_citation="<MedlineJournalInfo><Country>United States</Country><MedlineTA>J Med</MedlineTA>"
        f"<NlmUniqueID>025556</NlmUniqueID><ISSNLinking>0028-4793</ISSNLinking></MedlineJournalInfo>{_chemicals(dice)}"
        f"<CitationSubset>IM</CitationSubset>{_mesh(dice)}{_keywords(dice)}",
        in_data=f"{_history(dice)}<PublicationStatus>ppublish</PublicationStatus><ArticleIdList>"
        f'<ArticleId IdType="pubmed">{pmid}</ArticleId><ArticleId IdType="pmc">PMC{pmid}</ArticleId>'
        f'<ArticleId IdType="doi">{doi}</ArticleId></ArticleIdList>{_references(dice)}',
    )


def _sentence(dice: random.Random, words: int) -> str:
    return " ".join(dice.choices(WORDS, k=words)).capitalize() + "."


def _prose(dice: random.Random, characters: int) -> str:
    out = ""
    while len(out) < characters:
        out += ("" if not out else " ") + _sentence(dice, 20)
    return out


def _abstract(dice: random.Random) -> str:
    if dice.random() < 0.12:
        return ""
    mark = "CO<sub>2</sub> at 10<sup>-3</sup> in <i>E. coli</i>. " if dice.random() < 0.1 else ""
    if dice.random() < 0.4:
        return f"<Abstract><AbstractText>{mark}{escape(_prose(dice, 1400))}</AbstractText></Abstract>"
    sections = "".join(
        f'<AbstractText Label={quoteattr(label)} NlmCategory="{label}">{mark}{escape(_prose(dice, 330))}</AbstractText>'
        for label in LABELS
    )
    return f"<Abstract>{sections}<CopyrightInformation>Copyright 2015 The authors.</CopyrightInformation></Abstract>"


def _authors(dice: random.Random) -> str:
    return (
        '<AuthorList CompleteYN="Y">'
        + "".join(
            f'<Author ValidYN="Y"><LastName>{dice.choice(WORDS[:20]).title()}</LastName><ForeName>Paul M</ForeName>'
            f"<Initials>PM</Initials><AffiliationInfo><Affiliation>{escape(_sentence(dice, 15))}</Affiliation>"
            "</AffiliationInfo></Author>"
            for _ in range(dice.randrange(1, 11))
        )
        + "</AuthorList>"
    )


def _grants(dice: random.Random) -> str:
    if dice.random() < 0.8:
        return ""
    return (
        f"<GrantList><Grant><GrantID>R01 HL{dice.randrange(99999)}</GrantID><Acronym>HL</Acronym><Agency>NHLBI NIH HHS"
        "</Agency><Country>United States</Country></Grant></GrantList>"
    )


def _chemicals(dice: random.Random) -> str:
    entries = "".join(
        f'<Chemical><RegistryNumber>0</RegistryNumber><NameOfSubstance UI="D{dice.randrange(99999):06}">'
        f"{dice.choice(WORDS[:30])} agents</NameOfSubstance></Chemical>"
        for _ in range(dice.randrange(5))
    )
    return f"<ChemicalList>{entries}</ChemicalList>" if entries else ""


def _mesh(dice: random.Random) -> str:
    headings = ""
    for _ in range(dice.randrange(6, 16)):
        star = dice.choice("YNNN")
        qualifier = f'<QualifierName UI="Q000188" MajorTopicYN="{star}">drug therapy</QualifierName>'
        headings += (
            f'<MeshHeading><DescriptorName UI="D{dice.randrange(99999):06}" MajorTopicYN="N">'
            f"{dice.choice(WORDS[:40]).title()}</DescriptorName>"
            f"{qualifier if dice.random() < 0.4 else ''}</MeshHeading>"
        )
    return f"<MeshHeadingList>{headings}</MeshHeadingList>"


def _keywords(dice: random.Random) -> str:
    if dice.random() < 0.6:
        return ""
    words = "".join(f'<Keyword MajorTopicYN="N">{dice.choice(WORDS[:40])}</Keyword>' for _ in range(5))
    return f'<KeywordList Owner="NOTNLM">{words}</KeywordList>'


def _history(dice: random.Random) -> str:
    dates = "".join(
        f'<PubMedPubDate PubStatus="{status}"><Year>2018</Year><Month>{dice.randrange(1, 13)}</Month><Day>17</Day>'
        "<Hour>6</Hour><Minute>0</Minute></PubMedPubDate>"
        for status in ("entrez", "pubmed", "medline")
    )
    return f"<History>{dates}</History>"


def _references(dice: random.Random) -> str:
    if dice.random() < 0.6:
        return ""
    entries = "".join(
        f"<Reference><Citation>{escape(_sentence(dice, 10))}</Citation><ArticleIdList><ArticleId "
        f'IdType="pubmed">{dice.randrange(30_000_000)}</ArticleId></ArticleIdList></Reference>'
        for _ in range(dice.randrange(10, 40))
    )
    return f"<ReferenceList>{entries}</ReferenceList>"
