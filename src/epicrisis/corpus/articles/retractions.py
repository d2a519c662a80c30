"""Read who retracted, doubted or corrected which article: PubMed's notices, and Retraction Watch (Crossref's CSV)."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from epicrisis.core.dates import first_day, last_day
from epicrisis.core.types import Document
from epicrisis.corpus.base.reader_base import (
    ArticleStatement,
    Skipped,
    is_number,
    path_error,
    read_head,
    skip,
    unreadable,
)

REINSTATED = "reinstated"
_MARK_BY_NATURE = {
    "retraction": "retracted",
    "expression of concern": "expression-of-concern",
    "correction": "corrected",
    "reinstatement": REINSTATED,
}
MARK_BY_RELATION = {
    **dict.fromkeys(("RetractionOf", "PartialRetractionOf", "RetractedandRepublishedFrom"), "retracted"),
    "ExpressionOfConcernFor": "expression-of-concern",
    **dict.fromkeys(("ErratumFor", "CorrectedandRepublishedFrom"), "corrected"),
}
"""By the `RefType` in PubMed's record of the notice."""
MAX_CELL_CHARACTERS = 100_000
"""The list's longest cells, of authors and reasons, have a few thousand characters."""
_FIELD_SIZE_LIMIT = 20 * 1024 * 1024
_COLUMNS = ("Record ID", "RetractionDate", "OriginalPaperDOI", "OriginalPaperPubMedID", "RetractionNature")
_DATE = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})\b|(\d{4}-\d{2}-\d{2})", re.ASCII)
_DOI = re.compile(r"10\.\d{4,9}/\S{1,500}", re.ASCII)
_BETWEEN_DOIS = re.compile(r"[;,|\s](?=10\.\d{4,9}/)", re.ASCII)
_PMID = re.compile(r"(?<![\w.-])(\d{1,9})(?:\.0)?(?![\w.-])", re.ASCII)
"""A separate number, or one as spreadsheets write it (`123.0`); the number in `PMC123` is another article's."""


def article_names(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """Return names, other than the id, by which statements may refer to a document with these metadata."""
    values = {key.casefold(): value for key, value in metadata.items() if isinstance(key, str)}
    pmid, doi = str(values.get("pmid") or ""), str(values.get("doi") or "")
    names = [f"pubmed:{int(pmid)}"] if is_number(pmid) else []
    return (*names, *_find_dois(doi))


def _find_dois(text: str) -> list[str]:
    """Return the names of the DOIs in a field, without a full stop or comma after them.

    A field holds nothing else, so that every sign counts, also `#` at the end: `find_dois` reads DOIs in prose.
    """
    names = []
    for part in _BETWEEN_DOIS.split(text):
        if match := _DOI.search(part):
            names.append(f"doi:{match[0].casefold().rstrip('.,;')}")
    return names


def extract_statements(document: Document) -> tuple[ArticleStatement, ...]:
    """Return the statements of a PubMed record about other articles; none for documents of other sources."""
    # Only PubMed's own records have revisions: otherwise any source could withhold any article.
    corrections = document.metadata.get("corrections")
    if document.revision is None or not document.id.startswith("pubmed:") or not isinstance(corrections, list):
        return ()
    day = None if document.date is None else last_day(document.date)
    statements = []
    for correction in corrections:
        mark, pmid = MARK_BY_RELATION.get(str(correction.get("type"))), str(correction.get("pmid", ""))
        if mark is not None and is_number(pmid):
            statements.append(ArticleStatement(document.id, (f"pubmed:{int(pmid)}",), mark, day))
    return tuple(statements)


def is_retraction_watch(path: Path) -> bool:
    """Return whether the file has the header of Retraction Watch's list. Raises OSError."""
    beginning = read_head(path).data[:65_536].decode("utf-8-sig", errors="replace")
    header = next(csv.reader(beginning.splitlines()[:1]), [])
    return set(map(str.strip, header)).issuperset(_COLUMNS)


def read_retraction_watch(path: Path) -> Iterator[ArticleStatement | Skipped]:
    """Yield the statement of each entry of the list; `targets` is empty if it has no PMID and no DOI.

    An entry of an unknown nature is `Skipped`. Raises InputError if the header is not that of the list.
    """
    try:
        if not is_retraction_watch(path):
            columns = ", ".join(_COLUMNS)
            reason = f"no list of Retraction Watch: its header lacks one of {columns}"
            raise path_error(path, f"{reason}; name Crossref's file retraction_watch.csv")
        # The limit is that of the process, so cells are checked again below.
        csv.field_size_limit(max(csv.field_size_limit(), _FIELD_SIZE_LIMIT))
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            rows = csv.DictReader(file)
            try:
                for row in rows:
                    yield _read_entry(path, row, rows.line_num)
            except csv.Error as error:
                yield skip(path, f"after line {rows.line_num}", f"{error}; fetch the list again")
    except OSError as error:
        raise unreadable(path, error) from error


def _read_entry(path: Path, row: Mapping[str | None, Any], line: int) -> ArticleStatement | Skipped:
    # A row may have fewer cells than the header, or more.
    cells = {(name or "").strip(): value.strip() for name, value in row.items() if isinstance(value, str)}
    where = f"line {line}"
    longest = max(map(len, cells.values()), default=0)
    if longest > MAX_CELL_CHARACTERS:
        reason = f"a cell has {longest:,} characters, more than {MAX_CELL_CHARACTERS:,}"
        return skip(path, where, f"{reason}; correct the line, or fetch the list again")
    number, nature = cells.get("Record ID", ""), cells.get("RetractionNature", "")
    mark = _MARK_BY_NATURE.get(nature.casefold())
    if not number or mark is None:
        reason = "its RetractionNature is unknown" if number else "has no Record ID"
        return skip(path, where, f"{reason}; update epicrisis, or fetch the list again")
    # A PMID of 0 means that the article has none.
    pmids = set(map(int, _PMID.findall(cells.get("OriginalPaperPubMedID", "")))) - {0}
    targets = [*(f"pubmed:{pmid}" for pmid in sorted(pmids)), *_find_dois(cells.get("OriginalPaperDOI", ""))]
    day = None
    if match := _DATE.match(cells.get("RetractionDate", "")):
        # The list has the month first: `5/31/2021 0:00`.
        iso_date = match[4] or f"{match[3]}-{int(match[1]):02}-{int(match[2]):02}"
        with suppress(ValueError):
            day = first_day(iso_date) if mark == REINSTATED else last_day(iso_date)
    return ArticleStatement(f"retraction-watch:{number}", tuple(targets), mark, day)
