"""Read tables of references, as PubMed, Scopus, Web of Science, Covidence, Rayyan and others export them as CSV.

if is_reference_header(["Title", "Abstract", "DOI"]):
    rows, faults = read_reference_rows(text)
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "title": ("title", "articletitle", "documenttitle", "primarytitle", "ti"),
    "abstract": ("abstract", "abstractnote", "abstracttext", "ab"),
    "authors": ("authors", "author", "authorlist", "authornames", "af", "au"),
    "editors": ("editors", "editor"),
    "journal": ("journal", "journalbook", "sourcetitle", "publicationtitle", "journaltitle", "publicationname", "so"),
    "date": ("publicationdate", "datepublished", "date", "published"),
    "year": ("year", "publicationyear", "publishedyear", "pubyear", "yearpublished", "py"),
    "month": ("month", "publishedmonth", "publicationmonth"),
    "day": ("day",),
    "doi": ("doi", "di"),
    "pmid": ("pmid", "pubmedid", "medlinepmid", "medlineid", "pm"),
    "pmcid": ("pmcid", "pmc", "pmcidentifier"),
    "volume": ("volume", "vl"),
    "issue": ("issue", "issuenumber", "number"),
    "pages": ("pages", "page", "pagerange", "pagination"),
    "first_page": ("pagestart", "startpage", "bp", "artno", "articlenumber"),
    "last_page": ("pageend", "endpage", "ep"),
    "issn": ("issn", "issns", "sn"),
    "isbn": ("isbn", "isbns"),
    "url": ("url", "link", "urls", "sourceurls"),
    "language": ("language", "languageoforiginaldocument", "la"),
    "keywords": ("keywords", "authorkeywords", "de"),
    "publisher": ("publisher",),
    "types": ("documenttype", "publicationtype", "publicationtypes", "dt"),
    "notes": ("notes", "note"),
    "extra": ("extra",),
}
"""The names of each column, in lower case without other signs. The first that a table has counts."""
_RECORD_COLUMNS = re.compile(r"patient|subjectid|personid|hadmid|mrn$|medicalrecord|encounter|visitid|notetype")
"""Columns of tables about patients, which are no references."""
_NO_LETTERS = re.compile(r"[\W_]+")
_INITIALS_LAST = re.compile(r"([^,]{0,200}[^\s,])\s((?:[A-ZÀ-ÖØ-Þ](?:\.?[-‐]|\.\s?)?){1,5})")
_SCOPUS_NUMBER = re.compile(r"\s{0,3}\(\d{4,20}\)$")
_OTHERS = ("", "et al", "et al.")


def is_reference_header(cells: Iterable[str]) -> bool:
    """Return whether these columns are of references: title, abstract or identifier, and where it was published."""
    names = {_fold(cell) for cell in cells}
    if any(_RECORD_COLUMNS.search(name) for name in names):
        return False
    if "ti" in names and "pt" not in names:
        return False
    fields = {field for field, options in _COLUMNS.items() if not names.isdisjoint(options)}
    sources = fields & {"authors", "journal", "year", "date", "doi", "pmid"}
    return "title" in fields and len(sources) >= 2 and not fields.isdisjoint(("abstract", "doi", "pmid"))


def split_header(text: str) -> tuple[list[str], str]:
    """Return the cells of a text's first line, and the delimiter that gives most of them."""
    line = text.removeprefix("\ufeff").partition("\n")[0].rstrip("\r")[:65_536]
    cells: list[str] = []
    delimiter = ","
    for mark in (",", "\t", ";", "|"):
        with suppress(csv.Error):
            row = next(csv.reader([line], delimiter=mark), [])
            if len(row) > len(cells):
                cells, delimiter = row, mark
    return cells, delimiter


def read_reference_rows(text: str) -> tuple[list[dict[str, str]], list[tuple[str, str]]]:
    """Return the values of each row by the names in `_COLUMNS`, and (place, reason) of rows that cannot be read."""
    header, delimiter = split_header(text)
    names = [_fold(cell) for cell in header]
    places = {}
    for field, options in _COLUMNS.items():
        for option in options:
            if option in names:
                places[field] = names.index(option)
                break
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    # Strict, because the text after a broken quote could get into the abstract of another article.
    lines = io.StringIO(text.removeprefix("\ufeff"), newline="")
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    rows: list[dict[str, str]] = []
    faults: list[tuple[str, str]] = []
    line = 1
    try:
        for cells in reader:
            if line > 1 and any(cells):
                if len(cells) < len(header) or any(cell.strip() for cell in cells[len(header) :]):
                    reason = f"has {len(cells)} columns, the first line {len(header)}; export the table again"
                    faults.append((f"line {line}", reason))
                else:
                    rows.append({field: cells[place].strip() for field, place in places.items()})
            line = reader.line_num + 1
    except csv.Error:
        reason = "the quotes of the next row are broken, and nothing more was read; export the table again"
        faults.append((f"after line {line - 1}", reason))
    return rows, faults


def split_authors(value: str) -> list[str]:
    """Return the names in a cell, `Family, Given` where the form is clear: `Smith A, Lee B.` has two."""
    value = value.strip()
    if value.endswith(".") and value.count(".") == 1:
        value = value[:-1]
    parts: Sequence[str] = [value]
    if ";" in value:
        parts = value.split(";")
    elif " and " in value:
        parts = value.split(" and ")
    elif "," in value:
        pieces = [piece.strip() for piece in value.split(",") if piece.strip().lower() not in _OTHERS]
        if all(_INITIALS_LAST.fullmatch(piece) for piece in pieces):
            parts = pieces
    names = []
    for part in parts:
        names.append(order_name(_SCOPUS_NUMBER.sub("", part.strip())))
    return [name for name in names if name.lower() not in _OTHERS]


def order_name(name: str) -> str:
    """Return a name that ends with initials as `Family, Given` (`Lee, K.-H.`), and others as they are."""
    match = _INITIALS_LAST.fullmatch(name)
    return f"{match[1]}, {match[2]}" if match else name


def _fold(cell: str) -> str:
    return _NO_LETTERS.sub("", cell).casefold()
