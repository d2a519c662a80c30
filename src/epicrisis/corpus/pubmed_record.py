"""One record of PubMed's XML as a document: which element is read into what, and what a printed date can mean.

Knows nothing of files; the tables below name every element that is read.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias

from epicrisis.types import Document, last_day

from .xmltext import text

if TYPE_CHECKING:
    from lxml.etree import _Element


@dataclass(slots=True)
class _Draft:
    """What was met of one record so far."""

    pmid: str = ""
    version: str = "1"
    revised: str = ""
    completed: str = ""
    title: str = ""
    sections: list[str] = field(default_factory=list)
    printed: str = ""
    published: list[str] = field(default_factory=list)
    """Every date of publication, as far as it says anything."""
    electronic: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)

    def append(self, key: str, value: Any) -> None:
        if value:
            self.metadata.setdefault(key, []).append(value)


_Handler: TypeAlias = Callable[["_Element", _Draft], None]


def document(element: _Element, file_key: str, details: bool) -> tuple[Document, str]:
    """The record's document, and its date of revision (`20240131`, or empty).

    Raises ValueError, with a reason, for a record without a PMID or without a title and an abstract.
    """
    draft = _Draft()
    _walk(element, draft, _tables(details))
    if not _is_number(draft.pmid):
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
            raise ValueError("neither a title nor an abstract; nothing to find it by")
        metadata["abstract"] = False
    if "Retracted Publication" in metadata.get("publication_types", ()) or any(
        each["type"] == "RetractionIn" for each in metadata.get("corrections", ())
    ):
        metadata["retracted"] = True
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


def pmids_of(element: _Element) -> Iterator[str]:
    """Every PMID below the element, in order; one that is no number is left out."""
    for each in element.iter("PMID"):
        if _is_number(told := text(each)):
            yield told


def _is_number(told: str) -> bool:
    return told.isascii() and told.isdecimal()


# -- handlers: what one element gives -------------------------------------------------------------------------------


def _walk(element: _Element, draft: _Draft, table: Mapping[Any, _Handler]) -> None:
    for child in element:
        handle = table.get(child.tag)
        if handle is not None:
            handle(child, draft)


def _within(table: Mapping[str, _Handler]) -> _Handler:
    return partial(_walk, table=table)


def _keep(key: str) -> _Handler:
    """The first one that says something."""

    def handle(element: _Element, draft: _Draft) -> None:
        if key not in draft.metadata and (told := text(element)):
            draft.metadata[key] = told

    return handle


def _list(key: str) -> _Handler:
    def handle(element: _Element, draft: _Draft) -> None:
        draft.append(key, text(element))

    return handle


def _entries(key: str, names: Mapping[str, str]) -> _Handler:
    """One object an element, of those children that say something; an `@` stands for the element's attributes."""

    def handle(element: _Element, draft: _Draft) -> None:
        entry: dict[str, Any] = {}
        for name, value in element.items():
            if f"@{name}" in names and value:
                entry[names[f"@{name}"]] = value
        for child in element:
            if child.tag in names and (told := text(child)):
                entry[names[child.tag]] = told
        draft.append(key, entry)

    return handle


def _pmid(element: _Element, draft: _Draft) -> None:
    draft.pmid = text(element)
    draft.version = element.get("Version") or "1"


def _title(element: _Element, draft: _Draft) -> None:
    draft.title = text(element)


def _abstract(element: _Element, draft: _Draft) -> None:
    draft.sections.extend(_sections(element))


def _abstract_in_full(element: _Element, draft: _Draft) -> None:
    _abstract(element, draft)
    _walk(element, draft, {"CopyrightInformation": _keep("copyright")})


def _sections(element: _Element) -> list[str]:
    """The abstract by section, each on one line behind its label; a label alone says nothing."""
    found = []
    for child in element:
        if child.tag == "AbstractText" and (told := text(child)):
            label = child.get("Label")
            found.append(f"{label}: {told}" if label and label != "UNLABELLED" else told)
    if not found and (told := text(element)) and not any(child.tag == "CopyrightInformation" for child in element):
        found.append(told)
    return found


def _other_abstract(element: _Element, draft: _Draft) -> None:
    if sections := _sections(element):
        told = {"language": element.get("Language") or "und", "type": element.get("Type") or ""}
        draft.append("other_abstracts", {**told, "text": "\n".join(sections)})


def _identifier(element: _Element, draft: _Draft) -> None:
    """Of an ArticleId or an ELocationID."""
    kind = element.get("IdType") or element.get("EIdType")
    if kind in ("doi", "pmc") and element.get("ValidYN") != "N":
        (_DOI if kind == "doi" else _PMCID)(element, draft)


_DOI, _PMCID = _keep("doi"), _keep("pmcid")


def _databank(element: _Element, draft: _Draft) -> None:
    name = element.findtext("DataBankName") or ""
    for number in element.iter("AccessionNumber"):
        draft.append("registrations", f"{name}/{text(number)}")


def _mesh_heading(element: _Element, draft: _Draft) -> None:
    descriptor = ""
    alone = True
    for child in element:
        star = "*" if child.get("MajorTopicYN") == "Y" else ""
        if child.tag == "DescriptorName":
            descriptor = text(child)
            if star:
                draft.append("mesh", f"{descriptor}*")
                alone = False
        elif child.tag == "QualifierName":
            draft.append("mesh", f"{descriptor}/{text(child)}{star}")
            alone = False
    if alone:
        draft.append("mesh", descriptor)


def _mesh_with_id(element: _Element, draft: _Draft) -> None:
    _mesh_heading(element, draft)
    for child in element:
        draft.append("mesh_ids", [child.get("UI") or "", text(child)])


def _publication_type_with_id(element: _Element, draft: _Draft) -> None:
    draft.append("publication_types", text(element))
    draft.append("publication_type_ids", [element.get("UI") or "", text(element)])


def _author(element: _Element, draft: _Draft, key: str = "authors") -> None:
    told = {}
    for child in element:
        if child.tag == "AffiliationInfo":
            break
        told[child.tag] = text(child)
    fore = told.get("ForeName") or told.get("Initials")
    name = ", ".join(filter(None, (told.get("LastName"), fore, told.get("Suffix"))))
    draft.append(key, name or told.get("CollectiveName"))


def _book_authors(element: _Element, draft: _Draft) -> None:
    key = "editors" if element.get("Type") == "editors" else "authors"
    for author in element.iterchildren("Author"):
        _author(author, draft, key)


def _author_in_full(element: _Element, draft: _Draft) -> None:
    _author(element, draft)
    entry: dict[str, Any] = {}
    for child in element:
        if child.tag == "AffiliationInfo":
            entry.setdefault("affiliations", []).extend(text(each) for each in child.iterchildren("Affiliation"))
        elif child.tag == "Identifier":
            entry.setdefault("identifiers", []).append(text(child))
        elif isinstance(child.tag, str):
            entry[child.tag] = text(child)
    draft.append("author_details", entry)


def _pages(element: _Element, draft: _Draft) -> None:
    told = {child.tag: text(child) for child in element}
    pages = told.get("MedlinePgn") or "-".join(filter(None, (told.get("StartPage"), told.get("EndPage"))))
    if pages:
        draft.metadata["pages"] = pages


def _reference(element: _Element, draft: _Draft) -> None:
    pmids = [text(each) for each in element.iter("ArticleId") if each.get("IdType") == "pubmed"]
    citation = element.find("Citation")
    told = text(citation) if citation is not None else ""
    if told or pmids:
        draft.append("references", {"citation": told, "pmid": pmids[0] if pmids else ""})


def _date_of(field_name: str) -> _Handler:
    """DateRevised and DateCompleted, as `20240131`."""

    def handle(element: _Element, draft: _Draft) -> None:
        told = {child.tag: text(child) for child in element}
        year, month, day = (told.get(name, "") for name in ("Year", "Month", "Day"))
        date = f"{year}{month:0>2}{day:0>2}"
        if len(year) == 4 and len(date) == 8 and _is_number(date):
            setattr(draft, field_name, date)

    return handle


def _published(element: _Element, draft: _Draft) -> None:
    printed = " ".join(filter(None, (text(child) for child in element)))
    draft.printed = draft.printed or printed
    if date := iso_date(printed):
        draft.published.append(date)


def _electronic(element: _Element, draft: _Draft) -> None:
    draft.electronic = iso_date(" ".join(text(child) for child in element)) or ""


# -- which element is read into what --------------------------------------------------------------------------------

_CONTENT: dict[str, _Handler] = {
    "ArticleTitle": _title,
    "VernacularTitle": _keep("vernacular_title"),
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
}
"""Of an article and a book's chapter alike; no name means two things."""

_MORE: dict[str, _Handler] = {
    "Abstract": _abstract_in_full,
    "AuthorList": _within({"Author": _author_in_full}),
    "PublicationTypeList": _within({"PublicationType": _publication_type_with_id}),
    "PublicationType": _publication_type_with_id,
    "MeshHeadingList": _within({"MeshHeading": _mesh_with_id}),
    "Pagination": _pages,
    "GrantList": _within(
        {"Grant": _entries("grants", {"GrantID": "id", "Acronym": "acronym", "Agency": "agency", "Country": "country"})}
    ),
    "ChemicalList": _within(
        {"Chemical": _entries("chemicals", {"RegistryNumber": "registry_number", "NameOfSubstance": "name"})}
    ),
    "SupplMeshList": _within({"SupplMeshName": _list("supplementary_mesh")}),
    "OtherID": _list("other_ids"),
    "CoiStatement": _keep("competing_interests"),
}
"""With details: what only a bibliography needs."""


@cache
def _tables(details: bool) -> Mapping[str, _Handler]:
    """The handlers of a PubmedArticle's and a PubmedBookArticle's children, by element."""

    def also(**table: _Handler) -> dict[str, _Handler]:
        return table if details else {}

    content = {**_CONTENT, **also(**_MORE)}
    issue = {"PubDate": _published, **also(Volume=_keep("volume"), Issue=_keep("issue"))}
    content["Journal"] = _within(
        {
            "JournalIssue": _within(issue),
            "Title": _keep("journal"),
            "ISOAbbreviation": _keep("journal_abbreviation"),
            **also(ISSN=_keep("issn")),
        }
    )
    content["MedlineJournalInfo"] = _within(
        {
            "Country": _keep("country"),
            "MedlineTA": _keep("journal_abbreviation"),
            **also(MedlineTA=_keep("medline_ta"), NlmUniqueID=_keep("nlm_unique_id"), ISSNLinking=_keep("issn_linking")),
        }
    )
    content["Article"] = _within(content)
    book = {"BookTitle": _keep("book"), "PubDate": _published, "AuthorList": _book_authors}
    content["Book"] = _within({**book, "Publisher": _within({"PublisherName": _keep("publisher")})})
    sections: dict[str, _Handler] = {"SectionTitle": _list("sections")}
    sections["Section"] = content["Sections"] = _within(sections)
    references: dict[str, _Handler] = {"Reference": _reference}
    references["ReferenceList"] = _within(references)
    content |= also(ReferenceList=_within(references))
    data = {name: content[name] for name in ("ArticleIdList", "ReferenceList") if name in content}
    return {
        "MedlineCitation": _within(content),
        "BookDocument": _within(content),
        "PubmedData": _within(data),
        "PubmedBookData": _within(data),
    }


# -- dates ----------------------------------------------------------------------------------------------------------

_MONTHS = {name.lower(): number for number, name in enumerate(calendar.month_abbr) if name}
_SEASONS = {"spr": 6, "sum": 9, "fal": 12, "aut": 12, "win": 12}
_WORD = re.compile(r"(\d{4})(?:-(\d\d)(?![\d-]))?|(\d{1,2})(?!\d)|([A-Za-z]{3,})")


def iso_date(printed: str) -> str | None:
    """The printed date in ISO's form, as exact as it is; of a range its end; `None` where no year is named.

    The end, so that nothing is shown as of a day on which it may not yet have been out: `1998 Dec-1999 Jan` is
    1999-01, `2000 Nov-Feb` 2001-02, `1975-1976` 1976, `2000 Dec 23-30` 2000-12-30, `1983 3d Quart` 1983-09. A season
    is its last month in the northern calendar (spring 06, summer 09, autumn 12), and the winter of a year is that
    year's December: the year is the printed one.
    """
    year = month = day = number = 0
    for full, short, small, word in _WORD.findall(printed):
        name = word[:3].lower()
        if full:
            # `1999-00` and `1975-76` are ranges of years, and so may `2004-05` be; `2015-06` is a month.
            years = (int(short) - int(full)) % 100 if short else 0
            year, month, day = (int(full), int(short), 0) if 10 < years and int(short) <= 12 else (int(full) + years, 0, 0)
        elif small:
            number = int(small)
            if month:
                day = number
            elif 1 <= number <= 12 and year:
                month = number
        elif name == "qua":
            month, day = min(max(3 * (number or month), 1), 12), 0
        elif name in _MONTHS:
            if _MONTHS[name] < month:
                year += 1
            month, day = _MONTHS[name], 0
        elif name in _SEASONS:
            month, day = _SEASONS[name], 0
    if not 1 <= year <= 9999:
        return None
    if not month:
        return f"{year:04}"
    fits = 1 <= day <= calendar.monthrange(year, month)[1]
    return f"{year:04}-{month:02}-{day:02}" if fits else f"{year:04}-{month:02}"
