"""Read PubMed's download "Abstract (text)", whose paragraphs have no tags, as pairs of the tags of nbib.

    for pairs in read_pubmed_abstracts(text):
        title = dict(pairs)["TI"]

    1. J Demo Med. 2016 Mar 12;4(2):11-9. doi: 10.1000/1. Epub 2016 Jan 5.

    Honey for cough.

    Brown C(1), Green D(2); Demo Group.

    Author information: ...

    BACKGROUND: ...

    PMID: 61000011 [Indexed for MEDLINE]

The citation comes first, the title second; every other paragraph is known by its beginning, or is the abstract.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_CITATION = re.compile(r"(\d{1,6})\. (.{2,200}?)[.;:] ((?:18|19|20)\d{2}\b[^;:.]{0,20})")
_ISSUE = re.compile(r"(?:;([^(:.]{0,40})(?:\(([^)]{0,40})\))?)?(?::([^.\s]{1,40}))?")
_PARAGRAPHS = re.compile(r"\n\s*\n\s*")
_ID_LINE = re.compile(r"^(DOI|PMCID|PMID): ?(\S+)", re.MULTILINE)
_ID_TAGS = {"PMCID": "PMC", "PMID": "PMID"}
_PMID_LINE = re.compile(r"^PMID: ?\d", re.MULTILINE)
_SUMMARY = re.compile(r"1: \S.{20,}[.?!\]] .{2,200}\. (?:18|19|20)\d{2}\b.{0,400} PMID: ?\d{1,9}(?:[.;]|$)")
_PERSON = re.compile(r"([^\d,;:.()]{1,60}) ([^\W\d_a-z]{1,4})(?: (Jr|Sr|II|III|2nd|3rd))?")
_MARKS = re.compile(r"(?:\([^()\s]{1,3}\))+")
"""The numbers of an author's affiliations."""
_LANGUAGE = re.compile(r"\[Article in ([^\]]{2,60})\]")
_RELATION = re.compile(r"([A-Z][a-z]+(?: [a-z]+){0,3} (?:in|on|of|for|from))[ \t]*(?:\n|$)")
_RELATION_TAGS = {
    "Retraction in": "RIN",
    "Retraction of": "ROF",
    "Partial retraction in": "PRIN",
    "Partial retraction of": "PROF",
    "Retracted and republished in": "RRI",
    "Retracted and republished from": "RRF",
    "Expression of concern in": "ECI",
    "Expression of concern for": "ECF",
    "Erratum in": "EIN",
    "Erratum for": "EFR",
    "Corrected and republished in": "CRI",
    "Corrected and republished from": "CRF",
}
_NO_ABSTRACT = re.compile(
    r"\[No authors listed\]|(?:Author information|Collaborators|Conflict of interest statement|Publisher|Keywords):|"
    r"\(\d{1,3}\)|(?:Copyright|Published by|©|\(c\))",
    re.IGNORECASE,
)
"""Beginnings of paragraphs that are not read."""


def is_pubmed_abstracts(text: str) -> bool:
    """Return whether a text begins with a citation in a paragraph of its own, and a line has a PMID."""
    first = _PARAGRAPHS.split(text.lstrip()[:2_000], maxsplit=1)[0]
    return _CITATION.match(_join(first)) is not None and _PMID_LINE.search(text) is not None


def is_pubmed_summary(text: str) -> bool:
    """Return whether a text begins with an entry of PubMed's download "Summary (text)", which has no abstracts."""
    first = _PARAGRAPHS.split(text.lstrip()[:20_000], maxsplit=1)[0]
    return _SUMMARY.match(_join(first)) is not None


def read_pubmed_abstracts(text: str) -> Iterator[list[tuple[str, str]]]:
    """Yield the tags and values of each entry. The next one begins with a citation of the next number."""
    entry: list[str] = []
    number = 0
    for paragraph in _PARAGRAPHS.split(text.strip()):
        citation = _CITATION.match(_join(paragraph))
        if citation and (not entry or int(citation[1]) == number + 1):
            number = int(citation[1])
            if entry:
                yield list(_read_entry(entry))
            entry = []
        entry.append(paragraph)
    if entry:
        yield list(_read_entry(entry))


def _read_entry(paragraphs: Sequence[str]) -> Iterator[tuple[str, str]]:
    yield from _read_citation(_join(paragraphs[0]))
    has_authors = False
    for place, paragraph in enumerate(paragraphs[1:], 1):
        following = paragraphs[place + 1] if place + 1 < len(paragraphs) else ""
        text = _join(paragraph)
        if place == 1:
            yield "TI", text
        elif language := _LANGUAGE.fullmatch(text):
            yield "LA", language[1]
        elif relation := _RELATION.match(paragraph):
            if tag := _RELATION_TAGS.get(relation[1]):
                yield tag, text.removeprefix(relation[1]).strip()
        elif ids := _ID_LINE.findall(paragraph):
            for name, value in ids:
                yield ("AID", f"{value} [doi]") if name == "DOI" else (_ID_TAGS[name], value)
        elif not has_authors and _is_authors(text, following):
            has_authors = True
            yield from _read_authors(text)
        elif not _NO_ABSTRACT.match(text):
            yield "AB", text


def _read_citation(text: str) -> Iterator[tuple[str, str]]:
    """Yield journal, date, volume, issue, pages and DOI of `J Demo. 2016 Mar 12;4(2):11-9. doi: 10.1000/1.`"""
    citation = _CITATION.match(text)
    if citation is None:
        return
    yield "JT", citation[2]
    yield "DP", citation[3]
    if issue := _ISSUE.match(text, citation.end()):
        for tag, value in zip(("VI", "IP", "PG"), issue.groups(), strict=True):
            if value:
                yield tag, value.strip()
    if doi := re.search(r"\bdoi: (\S+)", text):
        yield "AID", f"{doi[1]} [doi]"


def _is_authors(text: str, following: str) -> bool:
    """Return whether a paragraph is of authors: half of it or more are names with initials, or affiliations follow."""
    names = _split_authors(text)
    persons = [name for name in names if _PERSON.fullmatch(name)]
    is_list = text.endswith(".") and 2 * len(persons) >= len(names)
    return is_list or following.startswith(("Author information:", "Collaborators:"))


def _read_authors(text: str) -> Iterator[tuple[str, str]]:
    """Yield the persons of `Brown C(1), Green D(2); Demo Group.`, and what else is an author as an organisation."""
    for name in _split_authors(text):
        person = _PERSON.fullmatch(name)
        yield ("FAU", ", ".join(filter(None, person.groups()))) if person else ("CN", name)


def _split_authors(text: str) -> list[str]:
    return [name for name in re.split(r"[,;] ", _MARKS.sub("", text).removesuffix(".")) if name]


def _join(paragraph: str) -> str:
    return " ".join(paragraph.split())
