"""Who retracted, doubted or corrected what: PubMed's notices, and the list of Retraction Watch (Crossref's CSV).

    Record ID,Title,...,RetractionDate,RetractionDOI,...,OriginalPaperDOI,OriginalPaperPubMedID,RetractionNature,...

A PMID of 0, or none, means that the article has none; its DOI names it then. Knows no library.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from epicrisis.corpus.reader_base import ArticleStatement, Skipped, os_error_reason, printable_path
from epicrisis.dates import first_day, last_day
from epicrisis.errors import InputError
from epicrisis.types import Document

REINSTATED = "reinstated"
_OF_NATURE = {
    "retraction": "retracted",
    "expression of concern": "expression-of-concern",
    "correction": "corrected",
    "reinstatement": REINSTATED,
}
_OF_RELATION = {
    "RetractionOf": "retracted",
    "PartialRetractionOf": "retracted",
    "RetractedandRepublishedFrom": "retracted",
    "ExpressionOfConcernFor": "expression-of-concern",
    "ErratumFor": "corrected",
    "CorrectedandRepublishedFrom": "corrected",
}
"""By PubMed's `RefType`, as the record of the notice has it."""
LONGEST_CELL = 100_000
"""Characters: the list's longest cells, of authors and reasons, have a few thousand."""
_LONGEST_READ = 20 * 1024 * 1024
_COLUMNS = ("Record ID", "RetractionDate", "OriginalPaperDOI", "OriginalPaperPubMedID", "RetractionNature")
_DATE = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})\b|(\d{4}-\d{2}-\d{2})", re.ASCII)
_DOI = re.compile(r"10\.\d{4,9}/\S{1,500}", re.ASCII)
_BETWEEN_DOIS = re.compile(r"[;,|\s](?=10\.\d{4,9}/)", re.ASCII)
_PMID = re.compile(r"(?<![\w.-])(\d{1,9})(?:\.0)?(?![\w.-])", re.ASCII)
"""A number by itself, also as spreadsheets write it (`123.0`); that of `PMC123` is another article's."""


def article_names(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names by which others may speak of a document with these metadata, beside its id."""
    told = {str(key).casefold(): value for key, value in metadata.items() if isinstance(key, str)}
    names = []
    pmid, doi = str(told.get("pmid") or ""), str(told.get("doi") or "")
    if pmid.isascii() and pmid.isdecimal():
        names.append(f"pubmed:{int(pmid)}")
    return (*names, *_dois(doi))


def _dois(text: str) -> list[str]:
    """Return the names of the DOIs that are written here, without the full stop or comma behind one."""
    matches = [_DOI.search(part) for part in _BETWEEN_DOIS.split(text)]
    return [f"doi:{match[0].casefold().rstrip('.,;')}" for match in matches if match is not None]


def extract_statements(document: Document) -> tuple[ArticleStatement, ...]:
    """Return what a record of PubMed says of other articles; nothing for documents of other sources.

    Only PubMed's own records have revisions: another source could otherwise withhold any article.
    """
    corrections = document.metadata.get("corrections")
    if document.revision is None or not document.id.startswith("pubmed:") or not isinstance(corrections, list):
        return ()
    day = None if document.date is None else last_day(document.date)
    found = []
    for entry in corrections:
        mark, pmid = _OF_RELATION.get(str(entry.get("type"))), str(entry.get("pmid", ""))
        if mark is not None and pmid.isascii() and pmid.isdecimal():
            found.append(ArticleStatement(document.id, (f"pubmed:{int(pmid)}",), mark, day))
    return tuple(found)


def is_retraction_watch(path: Path) -> bool:
    """Return whether the header is that of the list. Raises OSError."""
    with path.open("rb") as file:
        beginning = file.read(65_536).decode("utf-8-sig", errors="replace")
    header = next(csv.reader(beginning.splitlines()[:1]), [])
    return {name.strip() for name in header}.issuperset(_COLUMNS)


def read_retraction_watch(path: Path) -> Iterator[ArticleStatement | Skipped]:
    """Yield what each entry of the list says of its article; `targets` is empty where it names no PMID and no DOI.

    An entry of an unknown nature is Skipped. Raises InputError where the header is not that of the list.
    """
    try:
        if not is_retraction_watch(path):
            raise InputError(
                f"{printable_path(path)}: no list of Retraction Watch: its header lacks one of {', '.join(_COLUMNS)}; name "
                "Crossref's file retraction_watch.csv"
            )
        # The limit is the whole process's: that a cell is too long is judged below, whoever raised it before.
        csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_READ))
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            rows = csv.DictReader(file)
            try:
                for row in rows:
                    yield _entry(path, row, rows.line_num)
            except csv.Error as error:
                yield Skipped(printable_path(path), f"after line {rows.line_num}", f"{error}; fetch the list again")
    except OSError as error:
        raise InputError(
            f"{printable_path(path)}: {os_error_reason(error)}; check the path and its permissions"
        ) from error


def _entry(path: Path, row: Mapping[str | None, Any], line: int) -> ArticleStatement | Skipped:
    # A row may have fewer cells than the header, or more.
    cells = {(name or "").strip(): value.strip() for name, value in row.items() if isinstance(value, str)}
    longest = max(map(len, cells.values()), default=0)
    if longest > LONGEST_CELL:
        reason = (
            f"a cell has {longest:,} characters, more than {LONGEST_CELL:,}; mend the line, or fetch the list again"
        )
        return Skipped(printable_path(path), f"line {line}", reason)
    number, nature = cells.get("Record ID", ""), cells.get("RetractionNature", "")
    mark = _OF_NATURE.get(nature.casefold())
    if not number or mark is None:
        reason = "has no Record ID" if not number else "its RetractionNature is none that is known"
        return Skipped(printable_path(path), f"line {line}", f"{reason}; update epicrisis, or fetch the list again")
    pmids = {int(pmid) for pmid in _PMID.findall(cells.get("OriginalPaperPubMedID", ""))} - {0}
    targets = [*(f"pubmed:{pmid}" for pmid in sorted(pmids)), *_dois(cells.get("OriginalPaperDOI", ""))]
    day = _day(cells.get("RetractionDate", ""), first=mark == REINSTATED)
    return ArticleStatement(f"retraction-watch:{number}", tuple(targets), mark, day)


def _day(told: str, *, first: bool) -> int | None:
    """Return the day of a date of the list (`5/31/2021 0:00`: the month stands first), or None where it is none."""
    found = _DATE.match(told)
    if found is None:
        return None
    date = found[4] or f"{found[3]}-{int(found[1]):02}-{int(found[2]):02}"
    try:
        return first_day(date) if first else last_day(date)
    except ValueError:
        return None
