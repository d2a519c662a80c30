"""One record of PubMed's XML as a document: which element is read into what.

Knows nothing of files; the tables below name every element that is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias

from epicrisis.corpus.pubmed_dates import parse_printed_date
from epicrisis.corpus.xml_text import element_text
from epicrisis.dates import last_day
from epicrisis.types import Document

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


_RETRACTED_IN = frozenset(("RetractionIn", "PartialRetractionIn", "RetractedandRepublishedIn"))
"""How the record of an article names the notice that retracts it."""


def read_record(element: _Element, file_key: str, details: bool) -> tuple[Document, str]:
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
    relations = {each.get("type") for each in metadata.get("corrections", ())}
    if "Retracted Publication" in metadata.get("publication_types", ()) or relations & _RETRACTED_IN:
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
    """Every PMID right below the element, in order; one that is no number is left out."""
    for each in element.iterchildren("PMID"):
        if _is_number(told := element_text(each)):
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
        if key not in draft.metadata and (told := element_text(element)):
            draft.metadata[key] = told

    return handle


def _list(key: str) -> _Handler:
    def handle(element: _Element, draft: _Draft) -> None:
        draft.append(key, element_text(element))

    return handle


def _entries(key: str, names: Mapping[str, str]) -> _Handler:
    """One object an element, of those children that say something; an `@` stands for the element's attributes."""

    def handle(element: _Element, draft: _Draft) -> None:
        told = {f"@{name!s}": str(value) for name, value in element.items()}
        told |= {str(child.tag): element_text(child) for child in element}
        draft.append(key, {names[name]: value for name, value in told.items() if value and name in names})

    return handle


def _pmid(element: _Element, draft: _Draft) -> None:
    draft.pmid = element_text(element)
    draft.version = element.get("Version") or "1"


def _title(element: _Element, draft: _Draft) -> None:
    draft.title = element_text(element)


def _abstract(element: _Element, draft: _Draft) -> None:
    draft.sections.extend(_sections(element))


def _abstract_in_full(element: _Element, draft: _Draft) -> None:
    _abstract(element, draft)
    _walk(element, draft, {"CopyrightInformation": _keep("copyright")})


def _sections(element: _Element) -> list[str]:
    """The abstract by section, each on one line behind its label; a label alone says nothing."""
    found = []
    for child in element:
        if child.tag == "AbstractText" and (told := element_text(child)):
            label = child.get("Label")
            found.append(f"{label}: {told}" if label and label != "UNLABELLED" else told)
    if (
        not found
        and (told := element_text(element))
        and not any(child.tag == "CopyrightInformation" for child in element)
    ):
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
        draft.append("registrations", f"{name}/{element_text(number)}")


def _mesh_heading(element: _Element, draft: _Draft, with_ids: bool = False) -> None:
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
        if with_ids:
            draft.append("mesh_ids", f"{child.get('UI')}:{name}")


def _publication_type_with_id(element: _Element, draft: _Draft) -> None:
    draft.append("publication_types", element_text(element))
    draft.append("publication_type_ids", f"{element.get('UI')}:{element_text(element)}")


def _author(element: _Element, draft: _Draft) -> None:
    _add_name("authors", {child.tag: element_text(child) for child in element if child.tag in _NAMES}, draft)


_NAMES = frozenset(("LastName", "ForeName", "Initials", "Suffix", "CollectiveName"))


def _add_name(key: str, told: Mapping[Any, str], draft: _Draft) -> None:
    name = told.get("LastName", "")
    for part in (told.get("ForeName") or told.get("Initials"), told.get("Suffix"), told.get("CollectiveName")):
        if part:
            name = f"{name}, {part}" if name else part
    draft.append(key, name)


def _book_authors(element: _Element, draft: _Draft) -> None:
    key = "editors" if element.get("Type") == "editors" else "authors"
    for author in element.iterchildren("Author"):
        _add_name(key, {child.tag: element_text(child) for child in author}, draft)


def _author_in_full(element: _Element, draft: _Draft) -> None:
    entry: dict[Any, Any] = {}
    for child in element:
        tag = child.tag
        if tag in _NAMES:
            entry[tag] = element_text(child)
        elif tag == "AffiliationInfo":
            entry.setdefault("affiliations", []).extend(
                [element_text(each) for each in child if each.tag == "Affiliation"]
            )
        elif tag == "Identifier":
            entry.setdefault("identifiers", []).append(element_text(child))
    _add_name("authors", entry, draft)
    draft.append("author_details", entry)


def _chemical(element: _Element, draft: _Draft) -> None:
    entry = {}
    for child in element:
        if child.tag == "RegistryNumber":
            entry["registry_number"] = element_text(child)
        elif child.tag == "NameOfSubstance":
            entry["name"] = element_text(child)
            entry["id"] = str(child.get("UI") or "")
    draft.append("chemicals", entry)


def _pages(element: _Element, draft: _Draft) -> None:
    told = {child.tag: element_text(child) for child in element}
    pages = told.get("MedlinePgn") or "-".join(filter(None, (told.get("StartPage"), told.get("EndPage"))))
    if pages:
        draft.metadata["pages"] = pages


def _reference(element: _Element, draft: _Draft) -> None:
    entry = {}
    for child in element:
        if child.tag == "Citation":
            entry["citation"] = element_text(child)
        elif child.tag == "ArticleIdList":
            for each in child:
                if each.get("IdType") == "pubmed":
                    entry["pmid"] = element_text(each)
    draft.append("references", entry)


def _date_of(field_name: str) -> _Handler:
    """DateRevised and DateCompleted, as `20240131`."""

    def handle(element: _Element, draft: _Draft) -> None:
        told = {child.tag: element_text(child) for child in element}
        year, month, day = (told.get(name, "") for name in ("Year", "Month", "Day"))
        date = f"{year}{month:0>2}{day:0>2}"
        if len(year) == 4 and len(date) == 8 and _is_number(date):
            setattr(draft, field_name, date)

    return handle


def _published(element: _Element, draft: _Draft) -> None:
    printed = " ".join(filter(None, (element_text(child) for child in element)))
    draft.printed = draft.printed or printed
    if date := parse_printed_date(printed):
        draft.published.append(date)


def _electronic(element: _Element, draft: _Draft) -> None:
    draft.electronic = parse_printed_date(" ".join(element_text(child) for child in element)) or ""


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
    "MeshHeadingList": _within({"MeshHeading": partial(_mesh_heading, with_ids=True)}),
    "Pagination": _pages,
    "GrantList": _within(
        {"Grant": _entries("grants", {"GrantID": "id", "Acronym": "acronym", "Agency": "agency", "Country": "country"})}
    ),
    "ChemicalList": _within({"Chemical": _chemical}),
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
            **also(
                MedlineTA=_keep("medline_ta"), NlmUniqueID=_keep("nlm_unique_id"), ISSNLinking=_keep("issn_linking")
            ),
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
    data = {name: handle for name, handle in content.items() if name in ("ArticleIdList", "ReferenceList")}
    return {
        "MedlineCitation": _within(content),
        "BookDocument": _within(content),
        "PubmedData": _within(data),
        "PubmedBookData": _within(data),
    }
