"""Join the entries of reference managers' files with the files that they describe.

    references = ReferenceFiles([(path, "library.bib")], all_paths)
    document = references.describe(pdf_path, document)
    items = list(references.read_rest(path))

An entry describes a file in the same folder or below, in this order: a file that the entry names; a file with the same
DOI or PMID; a file on whose first page the entry's title is. Such an entry gives the file its metadata and is no
document of its own. Of the others, those with an abstract are documents.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from epicrisis.core.errors import InputError
from epicrisis.core.types import Document
from epicrisis.corpus import sandbox
from epicrisis.corpus.base.csv_rows import read_header
from epicrisis.corpus.base.encodings import encoding_remark
from epicrisis.corpus.base.reader_base import (
    FileRemark,
    ReaderItem,
    fingerprint_file,
    os_error_reason,
    printable_path,
    read_head,
    real_path,
    skip,
)
from epicrisis.corpus.base.retraction_wording import merge_marks, strip_retraction
from epicrisis.corpus.readers import zotero
from epicrisis.corpus.references.reference_entries import MIN_TITLE_LETTERS, ReferenceEntry, fold_title
from epicrisis.corpus.references.reference_tables import is_reference_header
from epicrisis.corpus.references.tagged_records import begins_with_record

FIRST_PAGE_LETTERS = 4_000
_START_BYTES = 65_536
_CSL_TYPES = re.compile(
    rb'"type"\s{0,9}:\s{0,9}"(?:article(?:-journal|-magazine|-newspaper)?|book|chapter|report|thesis|webpage|dataset|'
    rb'paper-conference|journal-article|book-chapter|proceedings-article|posted-content|entry(?:-\w{1,20})?|review|document|post(?:-weblog)?|manuscript|software|patent)"'
)


class ReferenceFiles:
    """The files of reference managers in one addition, read when the first document asks for them."""

    def __init__(self, files: Sequence[tuple[Path, str]], others: Sequence[Path], collection: str = "") -> None:
        self._names = dict(files)
        self._collection = collection
        self._others = [real_path(path) for path in others]
        self._rest: dict[Path, dict[int, ReferenceEntry]] | None = None
        self._titles: dict[Path, list[str]] = {}
        self._faults: dict[Path, list[ReaderItem]] = {}

    def describe(self, path: Path, document: Document) -> Document:
        """Return the document of a file with the metadata of the entry that describes it, if there is one."""
        if document.patient is not None or not self._names:
            return document
        place = real_path(path)
        described: Document | None = None
        marks: dict[str, Any] = {}
        for reference_path, entries in self._read().items():
            # Zotero names files in other folders, too.
            if real_path(reference_path).parent not in place.parents and reference_path.name != zotero.DATABASE:
                continue
            numbers = self._find_entries(reference_path, entries, place, document)
            for number in numbers:
                marks = merge_marks(marks, _select_marks(entries[number].metadata))
            if len(numbers) == 1 and described is None:
                described = _describe(document, entries.pop(numbers[0]))
        document = described or document
        return dataclasses.replace(document, metadata=merge_marks(document.metadata, marks)) if marks else document

    def read_rest(self, path: Path) -> Iterator[ReaderItem]:
        """Yield the documents of the entries that describe no file, what cannot be read, and the fingerprint."""
        yield from self._faults_of(path)
        name = self._names[path]
        without_abstract = 0
        for entry in self._read().get(path, {}).values():
            if entry.abstract:
                yield _make_document(entry, name)
            else:
                without_abstract += 1
        if without_abstract:
            text = "without an abstract and a PDF beside it, not added: put the PDF into the same folder"
            yield FileRemark(name, "reference", text, without_abstract)
        if path in self._read():
            yield fingerprint_file(path)

    def _faults_of(self, path: Path) -> list[ReaderItem]:
        self._read()
        return self._faults.get(path, [])

    def _read(self) -> dict[Path, dict[int, ReferenceEntry]]:
        """Return the entries of each file that describe no file so far. The file is read in the sandbox."""
        if self._rest is None:
            self._rest = {}
            for path, name in self._names.items():
                faults: list[ReaderItem] = []
                self._faults[path] = faults
                try:
                    entries, skipped, encoding = _read_entries(path, self._collection)
                except ValueError as error:
                    faults.append(skip(path, "", str(error)))
                    continue
                except OSError as error:
                    faults.append(skip(path, "", f"{os_error_reason(error)}; check its permissions, or leave it out"))
                    continue
                faults += [skip(path, where, reason) for where, reason in skipped]
                if encoding:
                    faults.append(encoding_remark(name, encoding))
                if not entries and not skipped:
                    faults.append(skip(path, "", "holds no entries"))
                self._rest[path] = dict(enumerate(entries))
                self._titles[path] = [_fold_entry_title(entry) for entry in entries]
        return self._rest

    def _find_entries(
        self, reference_path: Path, entries: dict[int, ReferenceEntry], place: Path, document: Document
    ) -> list[int]:
        """Return the numbers of the entries of the first rule that finds any.

        One alone describes the file. Several have its name or identifier, and are about it.
        """
        start = fold_title(document.text[:FIRST_PAGE_LETTERS])
        own_title = fold_title(strip_retraction(document.title))
        ids = {(key, str(document.metadata[key]).lower()) for key in ("doi", "pmid") if document.metadata.get(key)}
        by_file: list[int] = []
        by_id: list[int] = []
        by_title: list[int] = []
        for number, entry in entries.items():
            if any(self._is_file(reference_path, file, place) for file in entry.files):
                by_file.append(number)
            if any((key, str(entry.metadata.get(key, "")).lower()) in ids for key in ("doi", "pmid")):
                by_id.append(number)
            title = self._titles[reference_path][number]
            if len(title) >= MIN_TITLE_LETTERS and (title in start or title == own_title):
                by_title.append(number)
        return by_file or by_id or (by_title if len(by_title) == 1 else [])

    def _is_file(self, reference_path: Path, file: str, place: Path) -> bool:
        """Return whether a path in an entry is this file: the path itself, or else the only file of that name."""
        if Path(file).name != place.name:
            return False
        with suppress(ValueError):  # a NUL character
            if real_path(real_path(reference_path).parent / file) == place:
                return True
        same_name = [path for path in self._others if path.name == place.name]
        return len(same_name) == 1


def is_csl_json(path: Path) -> bool:
    """Return whether a JSON file begins like CSL-JSON: a list of entries with types of CSL. Raises OSError."""
    start = read_head(path).data[:_START_BYTES].removeprefix(b"\xef\xbb\xbf").lstrip()
    return start.startswith((b"[", b'{"items"', b'{"status"')) and _CSL_TYPES.search(start) is not None


def is_reference_table(path: Path) -> bool:
    """Return whether a CSV file has the header of a table of references."""
    try:
        return is_reference_header(read_header(path)[0])
    except InputError:
        return False


def is_reference_export(path: Path) -> bool:
    """Return whether a text file is an export of a reference manager or a literature database. Raises OSError."""
    start = read_head(path).data[:_START_BYTES]
    # Without the NULs, UTF-16 looks like ASCII.
    text = start.removeprefix(b"\xff\xfe").removeprefix(b"\xfe\xff").replace(b"\0", b"")
    return begins_with_record(text.decode("utf-8", "replace"))


def _read_entries(path: Path, collection: str) -> tuple[list[ReferenceEntry], list[tuple[str, str]], str]:
    if zotero.is_zotero(path):
        return zotero.read_entries(path, collection), [], ""
    return sandbox.read_references(path)


def _fold_entry_title(entry: ReferenceEntry) -> str:
    """Return the title as it is on the file's first page, where no `RETRACTED:` may be before it."""
    is_notice = entry.metadata.get("retraction_notice")
    return fold_title(entry.title if is_notice else strip_retraction(entry.title))


def _select_marks(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an entry says of a retraction or a concern."""
    names = ("retracted", "retraction_notice", "corrections")
    return {name: metadata[name] for name in names if metadata.get(name)}


def _describe(document: Document, entry: ReferenceEntry) -> Document:
    """Return a document with the title, date and metadata of an entry. The file's own date and metadata stay."""
    metadata: dict[str, Any] = {**entry.metadata, **document.metadata}
    return dataclasses.replace(
        document, title=entry.title or document.title, date=document.date or entry.date, metadata=metadata
    )


def _make_document(entry: ReferenceEntry, name: str) -> Document:
    """Return the abstract of an entry as a document, under its PMID or DOI if it has one."""
    pmid, doi = entry.metadata.get("pmid"), entry.metadata.get("doi")
    own_id = f"file:{name}#{printable_path(entry.key)}"
    return Document(
        id=f"pubmed:{pmid}" if pmid else f"doi:{doi}" if doi else own_id,
        text=entry.abstract,
        title=entry.title or Path(name).stem,
        source=name,
        date=entry.date,
        metadata=entry.metadata,
    )
