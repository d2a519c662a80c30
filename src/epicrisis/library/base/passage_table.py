"""The table of passages and vectors, the library's source of truth, and what its two engines share.

`SqliteTable` holds small libraries, `LanceTable` large ones; `tables.py` chooses. Every write is one atomic commit.
Conditions are SQL that both engines understand: comparisons, IN, IS NULL, AND, OR, NOT, `lower` and `contains`.
Documents, vectors and scopes are checked against the limits of the engines.
"""

from __future__ import annotations

import json
import string
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from epicrisis.core.dates import last_day
from epicrisis.core.errors import InputError, LibraryDamaged
from epicrisis.core.protocols import StoredDocument, Vectors
from epicrisis.core.serialization import to_json
from epicrisis.core.types import RETRACTION_FACETS, Document, Passage, Scope, list_facets
from epicrisis.library.base.engine_errors import REPAIR, translate_errors

Columns: TypeAlias = dict[str, Any]
"""Some columns of some rows: a list of values by column name. `vector` is a float16 array `(n, d)`."""

BATCH_ROWS = 4096
_MAX_ID = 1000
MAX_CHARACTERS = 50_000_000
"""Maximum length of a document's text: ten large textbooks."""
_TEXT_FIELDS = ["id", "document_id", "text", "title", "source", "metadata"]
_NUMBER_FIELDS = ["ordinal", "start", "end"]
_PASSAGE_FIELDS = [*_TEXT_FIELDS, *_NUMBER_FIELDS, "date", "patient"]
_COLUMNS = [*_PASSAGE_FIELDS, "content_hash", "revision"]
_NOT_FETCHED = ("document_id", "ordinal")
"""Columns whose values are part of the id. In Lance each column that is read costs time of its own."""
_FETCHED = [name for name in _PASSAGE_FIELDS if name not in _NOT_FETCHED]
ALL_COLUMNS = (*_COLUMNS, "last_day", "facets", "vector")


@dataclass(frozen=True, slots=True)
class StoredPassage:
    """A passage with the content hash and the revision of its document."""

    passage: Passage
    content_hash: str
    revision: str | None = None


@dataclass(frozen=True, slots=True)
class NoteSummary:
    """One or more notes of a patient, without their text."""

    patient: str
    notes: int
    dates: tuple[str, ...]
    """Dates of the notes, with the first and the last."""
    encounters: tuple[str, ...]
    note_types: Mapping[str, int]
    """Number of notes of each type."""


class PassageTable(ABC):
    """The table of one library. Raises StorageError or LibraryDamaged for errors of its engine."""

    name: str
    """The name of its file or folder within the library."""

    def __init__(self, folder: Path, dimensions: int) -> None:
        self._folder = folder
        self.dimensions = dimensions

    @property
    @abstractmethod
    def version(self) -> int:
        """Version number. It grows with every commit."""

    @abstractmethod
    def refresh(self) -> None:
        """Move to the newest committed version."""

    def refresh_version(self) -> int:
        """Move to the newest committed version, and return its number."""
        self.refresh()
        return self.version

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read one version within the block: the newest one at its beginning."""
        self.refresh()
        yield

    @abstractmethod
    def count(self, condition: str = "") -> int:
        """Return the number of rows that meet the SQL condition, or of all."""

    @abstractmethod
    def read_columns(self, names: Sequence[str], condition: str = "", limit: int | None = None) -> Iterator[Columns]:
        """Yield these columns of the rows that meet the SQL condition, BATCH_ROWS rows at a time, in no order."""

    @abstractmethod
    def facet_condition(self, names: Iterable[str]) -> str:
        """Return SQL for the rows with at least one of these facets."""

    @abstractmethod
    def append(self, columns: Columns, replaced: Sequence[str] = ()) -> None:
        """Add rows with all columns, and remove the old rows of the `replaced` document ids, in one commit."""

    @abstractmethod
    def update(self, columns: Columns) -> None:
        """Replace the rows with these passage ids in one commit."""

    @abstractmethod
    def delete(self, document_ids: Sequence[str]) -> None:
        """Remove the rows of these documents in one commit."""

    @abstractmethod
    def compact(self) -> None:
        """Free unused space and make reads faster."""

    def rewrite(self) -> None:
        """Rewrite all rows, and remove all earlier versions, so that no file holds anything of deleted rows."""
        self.compact()

    @abstractmethod
    def check(self) -> None:
        """Raise LibraryDamaged if a part of the table is missing or truncated. Not all of it is read."""

    def find_damage(self) -> tuple[str, ...]:
        """Read everything, and return the damaged files that the journal's checksums do not cover."""
        return ()

    @abstractmethod
    def purge(self) -> None:
        """Remove the remnants of deleted rows that `delete` left in the files. Called before a writer closes."""

    def is_moved(self) -> bool:
        """Return whether the library has another table now: open it again."""
        return False

    @abstractmethod
    def close(self) -> None:
        """Release the files."""

    def has_notes(self) -> bool:
        """Return whether any passage belongs to a patient's record."""
        return self._has("patient IS NOT NULL")

    def has_literature(self) -> bool:
        """Return whether any passage belongs to no patient."""
        return self._has("patient IS NULL")

    def _has(self, condition: str) -> bool:
        return any(columns["id"] for columns in self.read_columns(["id"], condition, limit=1))

    def write(self, documents: Sequence[StoredDocument], replaced: Iterable[str]) -> None:
        """Write all documents with one commit. It also removes the old passages of the `replaced` document ids."""
        import numpy as np

        columns: Columns = {name: [] for name in ALL_COLUMNS}
        for document in documents:
            for passage in document.passages:
                for name in _PASSAGE_FIELDS:
                    if name != "metadata":
                        columns[name].append(getattr(passage, name))
                columns["metadata"].append(json.dumps(to_json(passage.metadata), sort_keys=True))
                columns["last_day"].append(None if passage.date is None else last_day(passage.date))
                columns["facets"].append(sorted(list_facets(passage.metadata)))
                columns["content_hash"].append(bytes.fromhex(document.content_hash))
                columns["revision"].append(document.revision)
        vectors = np.concatenate([document.vectors for document in documents])
        columns["vector"] = vectors.astype(np.float16)
        self.append(columns, sorted(replaced))

    def write_marks(self, marks: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Set the marks of these documents with one commit. Texts and vectors do not change."""
        condition = sql_in("document_id", sorted(marks))
        columns: Columns = {name: [] for name in ALL_COLUMNS if name != "vector"}
        vectors = []
        for batch in self.read_columns(ALL_COLUMNS, condition):
            vectors.append(batch.pop("vector"))
            for name, values in batch.items():
                columns[name] += values
        if not vectors:
            return

        import numpy as np

        columns["vector"] = np.concatenate(vectors)
        for row, document_id in enumerate(columns["document_id"]):
            metadata = replace_marks(json.loads(columns["metadata"][row]), marks[document_id])
            columns["metadata"][row] = json.dumps(metadata, sort_keys=True)
            columns["facets"][row] = sorted(list_facets(metadata))
        self.update(columns)

    def rows(self, names: Sequence[str], condition: str = "", limit: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield these columns of each row that meets the SQL condition, without `vector`, in no order."""
        for columns in self.read_columns(names, condition, limit):
            for values in zip(*(columns[name] for name in names), strict=True):
                yield dict(zip(names, values, strict=True))

    def summarize_notes(self) -> Iterator[NoteSummary]:
        """Yield summaries of all notes of the patients. Each is of one or more notes of one patient."""
        for row in self.rows(["patient", "date", "metadata"], "patient IS NOT NULL AND ordinal = 0"):
            metadata = json.loads(row["metadata"])
            encounter, note_type = metadata.get("encounter"), metadata.get("note_type")
            yield NoteSummary(
                row["patient"],
                notes=1,
                dates=(row["date"],) if row["date"] else (),
                encounters=(str(encounter),) if encounter else (),
                note_types={str(note_type): 1} if note_type else {},
            )

    def literature(self, condition: str) -> Iterator[tuple[str, dict[str, Any], str | None]]:
        """Yield (id, metadata, date) of the documents without a patient whose first passage meets the condition."""
        first_passages = f"ordinal = 0 AND patient IS NULL AND ({condition})"
        for row in self.rows(["document_id", "metadata", "date"], first_passages):
            yield row["document_id"], json.loads(row["metadata"]), row["date"]

    def passages_of(self, document_ids: Sequence[str]) -> list[StoredPassage]:
        """Return all passages of these documents, in no particular order."""
        return self.select(sql_in("document_id", document_ids)) if document_ids else []

    def fetch(self, passage_ids: Sequence[str]) -> dict[str, Passage]:
        """Map the existing passages among these ids to their content."""
        passages: dict[str, Passage] = {}
        if not passage_ids:
            return passages
        with translate_errors(self._folder):
            for row in self.rows(_FETCHED, passages_condition(passage_ids)):
                row["document_id"], _, ordinal = row["id"].rpartition("#")
                row["ordinal"] = int(ordinal)
                passages[row["id"]] = self._parse_passage(row)
        return passages

    def hashes(self, passage_ids: Sequence[str]) -> dict[str, str]:
        """Map the existing passages among these ids to the content hashes of their documents."""
        if not passage_ids:
            return {}
        rows = self.rows(["id", "content_hash"], passages_condition(passage_ids))
        return {row["id"]: row["content_hash"].hex() for row in rows}

    def find_retracted(self, passage_ids: Sequence[str]) -> frozenset[str]:
        """Return the passages among these of retracted articles and of retraction notices."""
        if not passage_ids:
            return frozenset()
        rows = self.rows(["id", "facets"], passages_condition(passage_ids))
        return frozenset(row["id"] for row in rows if not RETRACTION_FACETS.isdisjoint(row["facets"]))

    def vectors_of(self, document_ids: Sequence[str]) -> dict[tuple[str, str], Vectors]:
        """Map (title, text) of all passages of these documents to their vectors `(d,)`."""
        if not document_ids:
            return {}
        rows = self._read_vectors(sql_in("document_id", document_ids), None)
        return {(title, text): vector for title, text, vector in rows}

    def some_vectors(self, count: int) -> list[tuple[str, str, Vectors]]:
        """Return (title, text, vector) of the first rows."""
        return self._read_vectors("", count)

    def _read_vectors(self, condition: str, limit: int | None) -> list[tuple[str, str, Vectors]]:
        rows: list[tuple[str, str, Vectors]] = []
        for columns in self.read_columns(["title", "text", "vector"], condition, limit):
            vectors = columns["vector"].astype("float32")
            rows += zip(columns["title"], columns["text"], vectors, strict=True)
        return rows

    def batches(self) -> Iterator[list[StoredPassage]]:
        """Yield all passages in batches, in no particular order."""
        for columns in self.read_columns(_COLUMNS):
            yield self.parse(columns)

    def select(self, condition: str) -> list[StoredPassage]:
        """Return all passages that meet the SQL condition, in no particular order."""
        passages = []
        for columns in self.read_columns(_COLUMNS, condition):
            passages += self.parse(columns)
        return passages

    def parse(self, columns: Columns) -> list[StoredPassage]:
        """Return the passages of rows. Raise LibraryDamaged if a column has a value of a wrong type."""
        passages = []
        with translate_errors(self._folder):
            for values in zip(*(columns[name] for name in _COLUMNS), strict=True):
                passages.append(self._parse_row(dict(zip(_COLUMNS, values, strict=True))))
        return passages

    def _parse_row(self, row: dict[str, Any]) -> StoredPassage:
        """Return the passage of a row. Raise LibraryDamaged if a column has a value of a wrong type."""
        if not isinstance(row["content_hash"], bytes):
            raise self._unreadable()
        return StoredPassage(self._parse_passage(row), row["content_hash"].hex(), row["revision"])

    def _unreadable(self) -> LibraryDamaged:
        return LibraryDamaged(f"{self._folder / self.name} contains an unreadable passage: {REPAIR}")

    def _parse_passage(self, row: dict[str, Any]) -> Passage:
        texts = [row[name] for name in _TEXT_FIELDS]
        numbers = [row[name] for name in _NUMBER_FIELDS]
        is_valid = set(map(type, texts)) == {str} and set(map(type, numbers)) == {int}
        metadata = json.loads(row["metadata"]) if is_valid else None
        if not isinstance(metadata, dict):
            raise self._unreadable()
        values = {name: row[name] for name in _PASSAGE_FIELDS}
        values["metadata"] = metadata
        if values["date"] is not None:
            last_day(values["date"])
        return Passage(**values)


def replace_marks(metadata: Mapping[str, Any], marks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the metadata with these marks instead of earlier ones."""
    new = dict(metadata)
    new.pop("marks", None)
    if marks:
        new["marks"] = list(marks)
    return new


def passages_condition(passage_ids: Sequence[str]) -> str:
    """Return SQL for these passages. Their document ids are included because these have an index in both engines."""
    documents = sorted({passage_id.rpartition("#")[0] for passage_id in passage_ids})
    return f"{sql_in('document_id', documents)} AND {sql_in('id', passage_ids)}"


def sql_text(value: str) -> str:
    """Return the value as an SQL string literal."""
    return "'" + value.replace("'", "''") + "'"


def sql_in(column: str, values: Sequence[str]) -> str:
    """Return SQL that is true if the column has one of the values. Values that no engine stores are left out."""
    texts = [sql_text(value) for value in values if _is_storable(value)]
    return f"{column} IN ({', '.join(texts)})" if texts else "false"


def _is_storable(value: str) -> bool:
    """Return whether the value is valid Unicode without NUL, which ends SQL for SQLite."""
    try:
        return b"\0" not in value.encode()
    except UnicodeEncodeError:
        return False


def find_fault(item: Document | Passage) -> str | None:
    """Return why the item cannot be stored, or None. The reason quotes none of the content."""
    name = item.document_id if isinstance(item, Passage) else item.id
    if not name or len(name) > _MAX_ID or "\0" in name:
        return f"its id is empty, longer than {_MAX_ID} characters or holds a NUL"
    if "\0" in (item.patient or ""):
        return "its patient's id holds a NUL"
    if not item.text.strip():
        return "no text"
    if len(item.text) > MAX_CHARACTERS:
        return f"its text is longer than {MAX_CHARACTERS:,} characters; split it"
    try:
        if item.date is not None:
            last_day(item.date)
    except ValueError:
        return "its date is not of the form YYYY, YYYY-MM or YYYY-MM-DD"
    try:
        "".join((item.id, item.text, item.title, item.source, item.patient or "")).encode()
    except UnicodeEncodeError:
        return "its text has half a surrogate pair"
    return None


def find_vector_fault(vector: Vectors, dimensions: int) -> str | None:
    """Return why a precomputed vector cannot be stored, or None."""
    import numpy as np

    if vector.shape != (dimensions,):
        return f"its vector has {vector.size} numbers, not {dimensions}: create a separate library for these"
    if not (np.abs(vector) <= np.finfo(np.float16).max).all():
        return "its vector is not finite, or too large for float16"
    return None


def check_documents(documents: Sequence[StoredDocument], dimensions: int) -> None:
    """Raise ValueError, with the document's id, unless all documents fit this library."""
    import numpy as np

    if len({document.id for document in documents}) < len(documents):
        raise ValueError("a batch contains a document twice")
    for document in documents:
        if document.vectors.shape != (len(document.passages), dimensions) or not document.passages:
            raise ValueError(
                f"{document.id!r}: {len(document.passages)} passages of dimension {dimensions} (at least one) need "
                f"vectors of that shape, got {document.vectors.shape}"
            )
        if len(document.content_hash) != 32 or not set(document.content_hash) <= set(string.hexdigits):
            raise ValueError(f"{document.id!r}: its content hash is not 32 hexadecimal digits")
        if not (np.abs(document.vectors) <= np.finfo(np.float16).max).all():
            raise ValueError(f"{document.id!r}: its vectors are not finite, or too large for float16")
        for ordinal, passage in enumerate(document.passages):
            if (passage.id, passage.document_id) != (f"{document.id}#{ordinal}", document.id):
                raise ValueError(f"{document.id!r}: passage {ordinal} has the id {passage.id!r} of another document")
            if reason := find_fault(passage):
                raise ValueError(f"{passage.id!r} cannot be stored: {reason}")


def check_scope(scope: Scope) -> None:
    """Raise InputError if `as_of` or `since` is not a date."""
    for name, date in (("as of", scope.as_of), ("since", scope.since)):
        try:
            if date is not None:
                last_day(date)
        except ValueError as error:
            raise InputError(f"{name}: {error}; write it as 2015, 2015-06 or 2015-06-30") from error
