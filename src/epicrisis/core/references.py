"""What a reader wants to know of a source: its reference, links, type of study, and place in the document."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from epicrisis.core.study_types import StudyTypeMatch, find_study_type
from epicrisis.core.types import Metadata, Passage

STARTS = "_starts"
"""Ends the keys `page_starts` and `section_starts`, lists of [offset in the document, value] within a passage."""
PAGE_LABELS = "page_labels"
"""The key of the printed page numbers of a PDF file: a list of texts, and in a passage of [page from 1, text]."""
_MAX_AUTHORS = 3
_MAX_INITIALS = 3
_BETWEEN_INITIALS = re.compile(r"[.\-\u2010]")
_PMID = re.compile(r"pubmed:(\d{1,9})")
_PMCID = re.compile(r"pmc:(PMC\d{1,9})")
_NUMBER = re.compile(r"\d{1,9}")
_PMC_NUMBER = re.compile(r"PMC\d{1,9}")
_DOI = re.compile(r"10\.\d{4,9}/\S+")
_PREFIX = re.compile(r"(?:https?://(?:dx\.|www\.)?doi\.org/|doi\b:? ?|pmid\b:? ?)", re.IGNORECASE)
"""What exports write before a DOI or PMID."""
_CSL_TYPE = re.compile(r"[a-z]+(?:-[a-z]+)*")
_URL = re.compile(r"https?://[^\s<>\"{}\\^`|]+")
_LABELLED_URLS = {
    "PMID": "https://pubmed.ncbi.nlm.nih.gov/{}/",
    "PMCID": "https://pmc.ncbi.nlm.nih.gov/articles/{}/",
    "DOI": "https://doi.org/{}",
}


_NO_TITLE = re.compile(
    r"(?:about:blank|(?:new |untitled |blank )?(?:document|tab|page)?(?: ?\d{1,3})?|untitled\S*|unbenannt|no title|"
    r"no name|undefined|null|none)\.?",
    re.IGNORECASE,
)
"""What programs write where a document has no title."""


def name_document(title: str, document_id: str) -> str:
    """Return the title of a document, or its id where the title is none, such as `untitled` or `about:blank`."""
    return document_id if _NO_TITLE.fullmatch(title.strip()) else title


@dataclass(frozen=True, slots=True)
class Link:
    """An identifier of an article and the page it names."""

    label: str
    """`PMID`, `PMCID` or `DOI`."""
    identifier: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """Where an article or a chapter appeared. Empty fields are unknown."""

    type: str = ""
    """A type of CSL, such as `article-journal`."""
    journal: str = ""
    """The full title."""
    volume: str = ""
    issue: str = ""
    page_range: str = ""
    """The pages, or the number of an article without pages."""
    book: str = ""
    """The book of which the document is a chapter."""
    edition: str = ""
    editors: tuple[str, ...] = ()
    publisher: str = ""
    publisher_place: str = ""
    isbn: str = ""
    issn: str = ""
    url: str = ""
    group_authors: tuple[str, ...] = ()
    """Those of the authors that are organisations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A source as a reader would cite it. Empty fields are unknown."""

    authors: tuple[str, ...] = ()
    """As the source gives them, the family name first."""
    journal: str = ""
    year: str = ""
    links: tuple[Link, ...] = ()
    study: StudyTypeMatch | None = None
    """None for notes of a record and for studies of an unknown type."""
    note_type: str = ""
    """Of a note in a patient's record; `note` if its type is unknown."""
    section: str = ""
    """The heading above the cited words, in a full text or a note."""
    page: int | None = None
    """The page of a PDF file on which the cited words begin, from 1."""
    is_page_by_ocr: bool = False
    """Whether this page was read by OCR, which makes mistakes."""
    last_page: int | None = None
    """The page on which the cited words end, if that is another one."""
    page_label: str = ""
    """The number printed on the page, such as `703` or `xii`, if the file says so."""
    last_page_label: str = ""
    publication: Publication = field(default_factory=Publication)
    """Empty for notes of a record."""
    first_written: str = ""
    """The date of the earlier note that the cited words were copied from; empty for words that are new in the note."""

    def describe(self, title: str, source: str, date: str | None) -> str:
        """Return the reference on one line: authors, title, journal or source, year or date of the note, pages.

        For example `Pucciani F et al. Endosonography in dyschesia. Dis Colon Rectum. 2002;45(1):12-9`. A title that is
        none, such as `untitled`, is left out.
        """
        title = name_document(title, "")
        when = (date or "") if self.note_type else self.year + self._describe_pages()
        journal = self.journal or self.publication.book or source
        pieces = (_shorten_authors(self.authors), title, journal, when)
        return ". ".join(filter(None, (piece.rstrip(".") for piece in pieces)))

    def _describe_pages(self) -> str:
        """Return volume, issue and pages behind a year, such as `;378(20):1865-76`; empty without a year and volume."""
        volume, issue = self.publication.volume, self.publication.issue
        if not (self.year and volume):
            return ""
        pages = f":{self.publication.page_range}" if self.publication.page_range else ""
        return f";{volume}{f'({issue})' if issue else ''}{pages}"

    def describe_place(self) -> str:
        """Return the place in the document, such as `section Results, page 703 (3 of the file)`; empty if unknown."""
        page = self._describe_page()
        section = f"section {self.section}" if self.section else ""
        copied = f"copied from a note of {self.first_written}" if self.first_written else ""
        return ", ".join(filter(None, (section, page, copied)))

    def _describe_page(self) -> str:
        """Return the printed page, or the one of the file; both where they differ, and both of words on two pages."""
        if self.page is None:
            return ""
        first, last = str(self.page), "" if self.last_page is None else str(self.last_page)
        in_file = f"{first}-{last}" if last else first
        first, last = self.page_label or first, self.last_page_label or last
        printed = f"{first}-{last}" if last else first
        file = "" if printed == in_file else f" ({in_file} of the file)"
        return f"page{'s' if last else ''} {printed}{file}{' (read by OCR)' if self.is_page_by_ocr else ''}"


def build_reference(passage: Passage, start: int | None = None, end: int | None = None) -> Reference:
    """Return the reference of the words from `start` to `end` in the document, or of the beginning of the passage.

    It comes from the metadata. Values of an unexpected type are ignored.
    """
    metadata = passage.metadata
    note_type = _text(metadata, "note_type")
    offset = passage.start if start is None else start
    page, section = _find_value(metadata, "page", offset), _find_value(metadata, "section", offset)
    last_page = None if end is None else _find_value(metadata, "page", max(offset, end - 1))
    is_record = passage.patient is not None
    by_ocr = metadata.get("pages_by_ocr")
    labels = dict(list_page_labels(metadata))
    return Reference(
        authors=_list_texts(metadata, "authors"),
        journal=_text(metadata, "journal_abbreviation") or _text(metadata, "journal"),
        year=(passage.date or "")[:4],
        links=() if is_record else _links(passage),
        study=find_passage_study(passage),
        note_type=(note_type or "note") if is_record else "",
        section=" ".join(section.split()) if isinstance(section, str) else "",
        page=_page_number(page),
        is_page_by_ocr=isinstance(by_ocr, list) and (page in by_ocr or last_page in by_ocr),
        last_page=None if last_page == page else _page_number(last_page),
        page_label=labels.get(page, "") if isinstance(page, int) else "",
        last_page_label=labels.get(last_page, "") if isinstance(last_page, int) and last_page != page else "",
        publication=Publication() if is_record else _build_publication(metadata),
    )


def _page_number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def list_page_labels(metadata: Metadata) -> list[tuple[int, str]]:
    """Return the pages of a passage that have a printed number, from 1, with it."""
    rows = metadata.get(PAGE_LABELS)
    labels: list[tuple[int, str]] = []
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, list | tuple) and list(map(type, row)) == [int, str]:
            labels.append((row[0], row[1]))
    return labels


def _build_publication(metadata: Metadata) -> Publication:
    journal, book, url = _text(metadata, "journal"), _text(metadata, "book"), _text(metadata, "url")
    kind = _text(metadata, "reference_type")
    if not _CSL_TYPE.fullmatch(kind):
        kind = "chapter" if book else "article-journal" if journal else ""
    return Publication(
        type=kind,
        journal=journal,
        volume=_text(metadata, "volume"),
        issue=_text(metadata, "issue"),
        page_range=_text(metadata, "page_range"),
        book=book,
        edition=_text(metadata, "edition"),
        editors=_list_texts(metadata, "editors"),
        publisher=_text(metadata, "publisher"),
        publisher_place=_text(metadata, "publisher_place"),
        isbn=_text(metadata, "isbn"),
        issn=_text(metadata, "issn"),
        url=url if _URL.fullmatch(url) else "",
        group_authors=_list_texts(metadata, "group_authors"),
    )


def join_places(passages: Sequence[Passage]) -> dict[str, Any]:
    """Return the metadata of one passage made of these, in the order of their text, with their pages and sections."""
    metadata = {key: value for key, value in passages[0].metadata.items() if not key.endswith(STARTS)}
    if labels := {page: label for passage in passages for page, label in list_page_labels(passage.metadata)}:
        metadata[PAGE_LABELS] = [[page, labels[page]] for page in sorted(labels)]
    for key, unknown in (("page", None), ("section", "")):
        values: dict[int, object] = {}
        for passage in passages:
            values[passage.start] = passage.metadata.get(key, unknown)
            values.update(_list_starts(passage.metadata, key))
        starts: list[list[object]] = []
        last = passages[0].metadata.get(key, unknown)
        for offset in sorted(values):
            if values[offset] != last:
                last = values[offset]
                starts.append([offset, last])
        if starts:
            metadata[key + STARTS] = starts
    return metadata


def list_page_starts(passages: Sequence[Passage]) -> list[tuple[int, int]]:
    """Return where the pages of a PDF file begin in the passages of a document, in order, as (offset, page from 1).

    Empty for a document without pages. Each page that the passages touch is in the list.
    """
    if not passages:
        return []
    metadata = join_places(passages)
    values: dict[int, object] = {passages[0].start: metadata.get("page"), **_list_starts(metadata, "page")}
    starts: list[tuple[int, int]] = []
    for offset, page in sorted(values.items()):
        if isinstance(page, int) and not isinstance(page, bool):
            starts.append((offset, page))
    return starts


def _list_starts(metadata: Metadata, key: str) -> dict[int, object]:
    """Return the pages or sections that begin within a passage, by their offset in the document."""
    rows = metadata.get(key + STARTS)
    starts: dict[int, object] = {}
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, list) and len(row) == 2 and isinstance(row[0], int):
            starts[row[0]] = row[1]
    return starts


def _find_value(metadata: Metadata, key: str, offset: int) -> object:
    """Return the page or the section at an offset in the document, or None if unknown."""
    value = metadata.get(key)
    for start, following in sorted(_list_starts(metadata, key).items()):
        if start <= offset:
            value = following
    return value


def find_passage_study(passage: Passage) -> StudyTypeMatch | None:
    """Return the type of the study that a passage belongs to, or None for a note or an unknown type.

    The words of the abstract count only in the first passage of a document.
    """
    if passage.patient is not None:
        return None
    return find_study_type(passage.metadata, passage.title, passage.text if passage.ordinal == 0 else "")


def find_document_study(document_id: str, passages: Iterable[Passage]) -> StudyTypeMatch | None:
    """Return the type of a study from the first of these passages of it that shows one, or None."""
    for passage in passages:
        if passage.document_id == document_id and (study := find_passage_study(passage)):
            return study
    return None


def _text(metadata: Metadata, key: str) -> str:
    value = metadata.get(key)
    return " ".join(value.split()) if isinstance(value, str) else ""


def _list_texts(metadata: Metadata, key: str) -> tuple[str, ...]:
    """Return the texts of a list, or a single text as a list of one."""
    values = metadata.get(key)
    if isinstance(values, str):
        values = [values]
    return tuple(filter(lambda value: isinstance(value, str), values if isinstance(values, list) else ()))


def _links(passage: Passage) -> tuple[Link, ...]:
    """Return the links to an article. Only identifiers of the known form become part of an address."""
    metadata = passage.metadata
    pmid, pmcid = _PMID.fullmatch(passage.document_id), _PMCID.fullmatch(passage.document_id)
    identifiers = {
        "PMID": pmid[1] if pmid else _match(_NUMBER, metadata.get("pmid")),
        "PMCID": pmcid[1] if pmcid else _match(_PMC_NUMBER, metadata.get("pmcid")),
        "DOI": _match(_DOI, metadata.get("doi")),
    }
    links: list[Link] = []
    for label, identifier in identifiers.items():
        if identifier:
            links.append(Link(label, identifier, _LABELLED_URLS[label].format(quote(identifier, safe="/:;."))))
    return tuple(links)


def _match(pattern: re.Pattern[str], value: object) -> str:
    """Return the value without the prefix of an identifier if all of it has this form, else an empty text."""
    text = _PREFIX.sub("", str(value).strip(), count=1) if isinstance(value, str | int) else ""
    return text if pattern.fullmatch(text) else ""


def _shorten_authors(authors: tuple[str, ...]) -> str:
    """Return the authors with initials: `Walsh PR, Jones A`; from the fourth on `et al.`."""
    names: list[str] = []
    for author in authors:
        family, _, given_names = author.partition(",")
        words = _BETWEEN_INITIALS.sub(" ", given_names).split()
        # `KH` are two initials already, `Kyung` is a name.
        initials = "".join(word if word.isupper() and len(word) <= _MAX_INITIALS else word[0].upper() for word in words)
        names.append(f"{family.strip()} {initials}".strip())
    return ", ".join(names) if len(names) <= _MAX_AUTHORS else f"{names[0]} et al"
