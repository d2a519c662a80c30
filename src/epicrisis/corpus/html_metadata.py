"""Read the metadata that publishers write into HTML pages: `citation_*` tags (Highwire Press) and Dublin Core."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from epicrisis.core.dates import find_publication_date
from epicrisis.corpus.article_ids import find_dois

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser

MAX_VALUES = 5_000
"""Values of one name that are read: authors of a large trial, keywords."""
_PMID = re.compile(r"\d{1,9}")
_TEXTS = {
    "journal": ("citation_journal_title", "prism.publicationname"),
    "journal_abbreviation": ("citation_journal_abbrev",),
    "volume": ("citation_volume", "prism.volume"),
    "issue": ("citation_issue", "prism.number"),
    "book": ("citation_inbook_title", "citation_book_title"),
    "publisher": ("citation_publisher", "dc.publisher"),
    "issn": ("citation_issn", "prism.issn"),
    "isbn": ("citation_isbn",),
    "url": ("citation_abstract_html_url", "citation_fulltext_html_url", "citation_public_url"),
}
"""Metadata that are one text, and the names of their tags, the first that has a value."""
_DATES = ("citation_publication_date", "citation_date", "citation_online_date", "dc.date", "dc.date.issued")


def read_metadata(tree: LexborHTMLParser) -> tuple[str, str | None, dict[str, Any]]:
    """Return title, date and metadata of a page, as far as its tags say. The names are those of `docs/documents.md`."""
    tags: dict[str, list[str]] = defaultdict(list)
    for node in tree.css("meta[content]"):
        attributes = node.attributes
        name = (attributes.get("name") or attributes.get("property") or "").lower().replace("dcterms.", "dc.")
        content = " ".join((attributes.get("content") or "").split())
        if name.startswith(("citation_", "dc.", "prism.")) and content and len(tags[name]) < MAX_VALUES:
            tags[name].append(content)
    metadata: dict[str, Any] = {}
    for key, names in _TEXTS.items():
        if value := _first(tags, *names):
            metadata[key] = value
    if not str(metadata.get("url", "")).startswith(("http://", "https://")):
        metadata.pop("url", None)
    authors = tags["citation_author"] or _split_list(tags["citation_authors"], ";") or tags["dc.creator"]
    for key, values in (
        ("authors", [_family_first(author) for author in authors]),
        ("keywords", _split_list(tags["citation_keywords"], ";")),
        ("language", tags["citation_language"] or tags["dc.language"]),
    ):
        if values:
            metadata[key] = values
    metadata.update(_read_ids(tags))
    return _first(tags, "citation_title", "dc.title"), find_publication_date(_first(tags, *_DATES)), metadata


def _read_ids(tags: dict[str, list[str]]) -> dict[str, str]:
    """Return pages, DOI and PMID."""
    ids: dict[str, str] = {}
    first, last = _first(tags, "citation_firstpage", "prism.startingpage"), _first(tags, "citation_lastpage")
    if first:
        ids["page_range"] = f"{first}-{last}" if last not in ("", first) else first
    dois = find_dois("\n".join([*tags["citation_doi"], *tags["dc.identifier"], *tags["dc.identifier.doi"]]))
    if len(dois) == 1:
        ids["doi"] = dois[0]
    pmid = _first(tags, "citation_pmid")
    if _PMID.fullmatch(pmid):
        ids["pmid"] = pmid
    return ids


def _first(tags: dict[str, list[str]], *names: str) -> str:
    """Return the first value of the first of these names that has one, or an empty string."""
    for name in names:
        if tags.get(name):
            return tags[name][0]
    return ""


def _split_list(values: list[str], mark: str) -> list[str]:
    parts: list[str] = []
    for value in values:
        parts += filter(None, map(str.strip, value.split(mark)))
    return parts


def _family_first(name: str) -> str:
    """Return a name of a person with the family name first: `Peter R. Walsh` is `Walsh, Peter R.`."""
    words = name.split()
    is_plain = "," not in name and 2 <= len(words) <= 4
    return f"{words[-1]}, {' '.join(words[:-1])}" if is_plain else name
