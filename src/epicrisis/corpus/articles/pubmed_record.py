"""Convert one record of PubMed's XML into a document; the tables at the end list every element that is read."""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from epicrisis.core.dates import last_day
from epicrisis.core.types import Document
from epicrisis.corpus.base.reader_base import is_number
from epicrisis.corpus.base.xml_text import element_text

if TYPE_CHECKING:
    from lxml.etree import _Element

_MONTHS = {name.lower(): number for number, name in enumerate(calendar.month_abbr) if name}
_SEASONS = {"spr": 6, "sum": 9, "fal": 12, "aut": 12, "win": 12}
_DATE_PART = re.compile(r"(\d{4})(?:-(\d\d)(?![\d-]))?|(\d{1,2})(?!\d)|([a-z]{3,})", re.ASCII)
RETRACTION_RELATIONS = frozenset(("RetractionIn", "PartialRetractionIn", "RetractedandRepublishedIn"))
_NAME_PARTS = frozenset(("LastName", "ForeName", "Initials", "Suffix", "CollectiveName"))


@dataclass(slots=True, kw_only=True)
class _Draft:
    """The parts of one record read so far."""

    pmid: str = ""
    version: str = "1"
    revised: str = ""
    completed: str = ""
    title: str = ""
    sections: list[str] = field(default_factory=list)
    printed: str = ""
    published: list[str] = field(default_factory=list)
    electronic: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)

    def append(self, key: str, value: Any) -> None:
        if value:
            self.metadata.setdefault(key, []).append(value)


_Handler: TypeAlias = Callable[["_Element", _Draft], None]


def read_record(element: _Element, file_key: str) -> tuple[Document, str]:
    """Return the record's document, and its date of revision (`20240131`, or empty). Raises ValueError if unusable."""
    draft = _Draft()
    _walk(element, draft, _RECORD)
    if not is_number(draft.pmid):
        raise ValueError("no PMID; fetch the file again")
    metadata = draft.metadata
    title = draft.title
    if title in ("", "[Not Available].", "[Not Available]"):
        title = metadata.get("vernacular_title") or metadata.get("book") or ""
    body = "\n".join(draft.sections)
    if not body and (others := metadata.pop("other_abstracts", None)):
        body = "\n".join(f"[{other['language']}] {other['text']}" for other in others)
    if not body:
        if not title:
            raise ValueError("no title and no abstract to search")
        metadata["abstract"] = False
    relations = {correction.get("type") for correction in metadata.get("corrections", ())}
    is_retracted = not relations.isdisjoint(RETRACTION_RELATIONS)
    if is_retracted or "Retracted Publication" in metadata.get("publication_types", ()):
        metadata["retracted"] = True
    if "RetractionOf" in relations:
        metadata["retraction_notice"] = True
    if draft.printed:
        metadata["date_printed"] = draft.printed
    version = draft.version if re.fullmatch(r"[0-9]{1,2}", draft.version) else "1"
    revision = f"{draft.revised or draft.completed or '00000000'}.{version:0>2}.{file_key}"
    return Document(
        id=f"pubmed:{draft.pmid}",
        text=body or title,
        title=title,
        source="PubMed",
        date=max(draft.published, key=last_day, default=None) or draft.electronic or None,
        metadata=metadata,
        revision=revision,
    ), draft.revised


def find_pmids(element: _Element) -> Iterator[str]:
    """Return the number in every PMID child of the element, in order."""
    return filter(is_number, map(element_text, element.iterchildren("PMID")))


def parse_printed_date(printed: str) -> str | None:
    """Return a date printed on a journal in ISO form, as exact as it is; the end of a range; None without a year.

    The end is used so that nothing appears as of a day on which it may not have been published: `1998 Dec-1999 Jan` is
    1999-01, `2000 Nov-Feb` 2001-02, `1975-1976` 1976, `2000 Dec 23-30` 2000-12-30, `1983 3d Quart` 1983-09. A season
    is its last month in the northern calendar; winter is December of the printed year.
    """
    year = month = day = number = 0
    for full_year, short, small, word in _DATE_PART.findall(printed.lower()):
        if full_year:
            # The last year of a range (`1975-76`, `1999-00`, `2004-05`), or a month (`2015-06`).
            first, day = int(full_year), 0
            years = (int(short) - first) % 100 if short else 0
            is_month = years > 10 and 1 <= int(short) <= 12
            year, month = (first, int(short)) if is_month else (first + years, 0)
        elif small:
            number = int(small)
            if month:
                day = number
            elif year and 1 <= number <= 12:
                month = number
        elif new_month := _month_number(word, number or month):
            if new_month < month and word[:3] in _MONTHS:
                year += 1
            month, day = new_month, 0
    if not 1 <= year <= 9999:
        return None
    if not month:
        return f"{year:04}"
    is_valid_day = 1 <= day <= calendar.monthrange(year, month)[1]
    return f"{year:04}-{month:02}-{day:02}" if is_valid_day else f"{year:04}-{month:02}"


def _month_number(word: str, number: int) -> int:
    """Return 1 to 12 for a month, a season or (with its number) a quarter; 0 for any other word."""
    start = word[:3]
    if start == "qua":
        return 3 * number if 1 <= number <= 4 else 0
    return _MONTHS.get(start) or _SEASONS.get(start, 0)


def _walk(element: _Element, draft: _Draft, table: Mapping[Any, _Handler]) -> None:
    """Call the table's handler for each child that has one."""
    for child in element:
        handle = table.get(child.tag)
        if handle is not None:
            handle(child, draft)


def _within(table: Mapping[str, _Handler]) -> _Handler:
    return partial(_walk, table=table)


def _first(key: str) -> _Handler:
    """Return a handler that stores the first non-empty text."""

    def handle(element: _Element, draft: _Draft) -> None:
        if key not in draft.metadata and (text := element_text(element)):
            draft.metadata[key] = text

    return handle


def _list(key: str) -> _Handler:
    """Return a handler that stores every non-empty text."""

    def handle(element: _Element, draft: _Draft) -> None:
        draft.append(key, element_text(element))

    return handle


def _entries(key: str, names: Mapping[str, str]) -> _Handler:
    """Return a handler that stores a dict of the non-empty children; `@` marks the element's attributes."""

    def handle(element: _Element, draft: _Draft) -> None:
        values = {f"@{name!s}": str(value) for name, value in element.items()}
        values |= _child_texts(element)
        draft.append(key, {names[name]: value for name, value in values.items() if value and name in names})

    return handle


def _child_texts(element: _Element) -> dict[str, str]:
    return {str(child.tag): element_text(child) for child in element}


def _other_abstract(element: _Element, draft: _Draft) -> None:
    if sections := _abstract_sections(element):
        language, kind = element.get("Language") or "und", element.get("Type") or ""
        draft.append("other_abstracts", {"language": language, "type": kind, "text": "\n".join(sections)})


def _databank(element: _Element, draft: _Draft) -> None:
    name = element.findtext("DataBankName") or ""
    for number in element.iter("AccessionNumber"):
        draft.append("registrations", f"{name}/{element_text(number)}")


def _book_authors(element: _Element, draft: _Draft) -> None:
    key = "editors" if element.get("Type") == "editors" else "authors"
    for author in element.iterchildren("Author"):
        _add_name(key, _child_texts(author), draft)


def _pmid(element: _Element, draft: _Draft) -> None:
    draft.pmid = element_text(element)
    draft.version = element.get("Version") or "1"


def _title(element: _Element, draft: _Draft) -> None:
    draft.title = element_text(element)


def _abstract(element: _Element, draft: _Draft) -> None:
    draft.sections.extend(_abstract_sections(element))


def _abstract_sections(element: _Element) -> list[str]:
    """Return the abstract by section, each on one line after its label; a label alone is ignored."""
    sections = []
    has_copyright = False
    for child in element:
        has_copyright = has_copyright or child.tag == "CopyrightInformation"
        if child.tag == "AbstractText" and (text := element_text(child)):
            label = child.get("Label")
            sections.append(f"{label}: {text}" if label and label != "UNLABELLED" else text)
    if not sections and not has_copyright and (text := element_text(element)):
        sections.append(text)
    return sections


def _identifier(element: _Element, draft: _Draft) -> None:
    """Store the DOI or PMCID of an ArticleId or an ELocationID."""
    kind = element.get("IdType") or element.get("EIdType")
    if kind in ("doi", "pmc") and element.get("ValidYN") != "N":
        (_doi if kind == "doi" else _pmcid)(element, draft)


_doi, _pmcid = _first("doi"), _first("pmcid")


def _mesh_heading(element: _Element, draft: _Draft) -> None:
    descriptor = ""
    for child in element:
        name = element_text(child)
        star = "*" if child.get("MajorTopicYN") == "Y" else ""
        if descriptor:
            draft.append("mesh", f"{descriptor}/{name}{star}")
        else:
            descriptor = name
            if star or len(element) == 1:
                draft.append("mesh", name + star)


def _author(element: _Element, draft: _Draft) -> None:
    # Other children, such as affiliations, are long: their text is not read.
    _add_name("authors", {child.tag: element_text(child) for child in element if child.tag in _NAME_PARTS}, draft)


def _add_name(key: str, parts: Mapping[Any, str], draft: _Draft) -> None:
    name = parts.get("LastName", "")
    for part in (parts.get("ForeName") or parts.get("Initials"), parts.get("Suffix"), parts.get("CollectiveName")):
        if part:
            name = f"{name}, {part}" if name else part
    draft.append(key, name)
    if key == "authors" and name and name == parts.get("CollectiveName"):
        draft.append("group_authors", name)


def _page_range(element: _Element, draft: _Draft) -> None:
    """Store the pages as printed (`1187-95`), else from the first and the last page."""
    parts = _child_texts(element)
    ends = (parts.get("StartPage", ""), parts.get("EndPage", ""))
    if pages := parts.get("MedlinePgn") or "-".join(filter(None, ends)):
        draft.metadata.setdefault("page_range", pages)


def _date_of(field_name: str) -> _Handler:
    """Return a handler that stores DateRevised or DateCompleted as `20240131`."""

    def handle(element: _Element, draft: _Draft) -> None:
        parts = _child_texts(element)
        year = parts.get("Year", "")
        date = f"{year}{parts.get('Month', ''):0>2}{parts.get('Day', ''):0>2}"
        if len(year) == 4 and len(date) == 8 and is_number(date):
            setattr(draft, field_name, date)

    return handle


def _published(element: _Element, draft: _Draft) -> None:
    printed = " ".join(filter(None, map(element_text, element)))
    draft.printed = draft.printed or printed
    if date := parse_printed_date(printed):
        draft.published.append(date)


def _electronic(element: _Element, draft: _Draft) -> None:
    draft.electronic = parse_printed_date(" ".join(map(element_text, element))) or ""


_CONTENT: dict[str, _Handler] = {
    "ArticleTitle": _title,
    "VernacularTitle": _first("vernacular_title"),
    "Abstract": _abstract,
    "OtherAbstract": _other_abstract,
    "AuthorList": _within({"Author": _author}),
    "Language": _list("language"),
    "PublicationTypeList": _within({"PublicationType": _list("publication_types")}),
    "PublicationType": _list("publication_types"),
    "KeywordList": _within({"Keyword": _list("keywords")}),
    "PMID": _pmid,
    "DateRevised": _date_of("revised"),
    "DateCompleted": _date_of("completed"),
    "ELocationID": _identifier,
    "ArticleIdList": _within({"ArticleId": _identifier}),
    "ArticleDate": _electronic,
    "ContributionDate": _published,
    "DataBankList": _within({"DataBank": _databank}),
    "CommentsCorrectionsList": _within(
        {
            "CommentsCorrections": _entries(
                "corrections", {"@RefType": "type", "PMID": "pmid", "RefSource": "source", "Note": "note"}
            )
        }
    ),
    "MeshHeadingList": _within({"MeshHeading": _mesh_heading}),
    "Journal": _within(
        {
            "ISSN": _first("issn"),
            "JournalIssue": _within({"Volume": _first("volume"), "Issue": _first("issue"), "PubDate": _published}),
            "Title": _first("journal"),
            "ISOAbbreviation": _first("journal_abbreviation"),
        }
    ),
    "Pagination": _page_range,
    "MedlineJournalInfo": _within({"Country": _first("country"), "MedlineTA": _first("journal_abbreviation")}),
    "Book": _within(
        {
            "BookTitle": _first("book"),
            "PubDate": _published,
            "AuthorList": _book_authors,
            "Volume": _first("volume"),
            "Edition": _first("edition"),
            "Isbn": _first("isbn"),
            "Publisher": _within(
                {"PublisherName": _first("publisher"), "PublisherLocation": _first("publisher_place")}
            ),
        }
    ),
}
"""Elements of an article and of a book's chapter; each name has one meaning."""

_SECTIONS: dict[str, _Handler] = {"SectionTitle": _list("sections")}
_SECTIONS["Section"] = _CONTENT["Sections"] = _within(_SECTIONS)
_CONTENT["Article"] = _within(_CONTENT)
_IDENTIFIERS = _within({"ArticleIdList": _CONTENT["ArticleIdList"]})
_RECORD = {
    "MedlineCitation": _within(_CONTENT),
    "BookDocument": _within(_CONTENT),
    "PubmedData": _IDENTIFIERS,
    "PubmedBookData": _IDENTIFIERS,
}
"""The children of PubmedArticle and PubmedBookArticle."""
