"""Read documents from files and folders of every supported format: choose the reader for each path."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

from epicrisis.core.errors import InputError
from epicrisis.core.extensions import list_extensions, make_extension
from epicrisis.core.protocols import FileReader
from epicrisis.core.types import Document, Origin
from epicrisis.corpus.articles import medcpt, pubmed, retractions
from epicrisis.corpus.base.encodings import detect_file_encoding, encoding_remark
from epicrisis.corpus.base.patient_numbers import PatientNumbers, StoredPatients
from epicrisis.corpus.base.reader_base import (
    CURES,
    FileDocument,
    FileFingerprint,
    OmittedText,
    ReaderItem,
    Skipped,
    append_fingerprint,
    check_file,
    describe_damage,
    describe_unread,
    find_cure,
    fingerprint_file,
    is_folder,
    is_visible,
    path_error,
    printable_path,
    real_path,
    skip,
)
from epicrisis.corpus.base.reading_progress import ReadingProgress
from epicrisis.corpus.base.removal_log import RemovalLog
from epicrisis.corpus.base.retraction_wording import mark_document
from epicrisis.corpus.base.xml_text import detect_xml_kind
from epicrisis.corpus.documents import office
from epicrisis.corpus.readers import formats, zotero
from epicrisis.corpus.readers import question_files as questions
from epicrisis.corpus.readers.reference_files import (
    ReferenceFiles,
    is_csl_json,
    is_reference_export,
    is_reference_table,
)
from epicrisis.corpus.records import note_tables
from epicrisis.corpus.records.facts.fact_tables import detect_table_format
from epicrisis.corpus.records.fhir import export_folder as export
from epicrisis.corpus.records.fhir.fhir_resources import has_fhir_lines, is_fhir, is_fhir_xml
from epicrisis.corpus.records.note_documents import NoteCleaning
from epicrisis.corpus.records.note_tables import NoteColumns
from epicrisis.corpus.records.record_files import RECORD_FORMATS, detect_record, read_records

_RETRACTION_WATCH = "retraction-watch"
_REFERENCES = "references"
"""Files of reference managers, which describe other files of the same addition."""


NOTE_FORMATS = ("notes", *RECORD_FORMATS)
"""Formats of patients' records."""
FORMATS = (*formats.FORMATS, "pubmed", "medcpt", "pubmedqa", _REFERENCES, *NOTE_FORMATS)
"""The names of all formats."""
_XML, _CSV, _JSON = "xml", "csv", "json"
"""Several formats with one suffix: the beginning of the file decides."""
FORMAT_BY_SUFFIX = {
    **{suffix: format.name for format in formats.FORMATS.values() for suffix in format.suffixes},
    **dict.fromkeys((".nxml", ".nxml.gz", ".xml", ".xml.gz"), _XML),
    **dict.fromkeys((".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet"), _CSV),
    **dict.fromkeys((".json", ".json.gz"), _JSON),
    **dict.fromkeys((".nbib", ".ris", ".enw", ".ciw", ".bib", ".csljson"), _REFERENCES),
    **dict.fromkeys((".ndjson", ".ndjson.gz"), "fhir"),
    **dict.fromkeys((".cda", ".ccda"), "ccda"),
    **dict.fromkeys((".hl7", ".hl7.gz"), "hl7"),
}
SUFFIXES = tuple(FORMAT_BY_SUFFIX)
"""The endings of files that can be read."""
_DEFAULT_FORMATS = {_CSV: "notes", _JSON: "pubmedqa"}
"""Formats of a file named by the user whose beginning does not decide."""

_Reader: TypeAlias = Callable[[], Iterator[ReaderItem]]
_NotesReader: TypeAlias = Callable[[Path, str], _Reader]


class _SourceFile(NamedTuple):
    """A file to read; `name` is its path relative to the folder named by the user; `format` None: unreadable."""

    path: Path
    name: str
    format: str | None


def read_sources(
    paths: Sequence[Path],
    format: str | None = None,
    previous: Collection[FileFingerprint] = (),
    columns: NoteColumns | None = None,
    cleaning: NoteCleaning | None = None,
    only_notes: bool = False,
    with_origins: bool = False,
    names: Mapping[Path, str] | None = None,
    progress: ReadingProgress | None = None,
    only: Collection[Path] | None = None,
    collection: str = "",
    patients: StoredPatients | None = None,
) -> Iterator[ReaderItem]:
    """Return an iterator over the documents of files and folders, in the given order.

    A part that cannot be read becomes a `Skipped`. The last item of a completely read file is its fingerprint.
    A folder means every visible file below it in the order of the paths; files with other suffixes, and empty
    files, are skipped. Entries of reference managers that describe no other file come last.

    * `format`: one of `FORMATS`, for files with any suffix; `medcpt` takes folders of NCBI's chunks.
    * `previous`: PubMed's XML files and MedCPT's chunks with these fingerprints are omitted. Their documents have
      revisions, so no other file can have replaced them by an older version.
    * `columns` and `cleaning` apply to notes of patients. CSV files with MIMIC's headers and FHIR need no format.
    * `only_notes` omits all other formats.
    * `with_origins` yields documents without a revision and outside a patient's record as `FileDocument`, so that a
      library can distinguish files with equal names.
    * `names`: the names of files that are stored under other ones. They become ids and titles, never paths.
    * `progress` counts the files as they are read.
    * `only`: of folders, these files alone are read, if there is one among them that can be.
    * `patients` of the library keep their ids in exports that name them by record numbers.
    * `collection`: of Zotero's library, the items of this collection alone, which a `/` puts below another.

    All paths are checked before this returns. Raises InputError for a missing, unreadable or empty path, a folder
    without a readable file, an unknown suffix or format, and, without `with_origins`, two files with the same id.
    """
    names_of_formats = (*FORMATS, *list_extensions("reader"))
    if format is not None and format not in names_of_formats:
        raise InputError(f"no format is called {format!r}; the known ones are {', '.join(names_of_formats)}")
    if not paths:
        raise InputError("no path was given; give at least one file or folder")
    if format == "medcpt":
        chunks = list(itertools.chain.from_iterable(map(medcpt.find_chunks, paths)))
        return itertools.chain.from_iterable(_read_chunk(chunk, previous) for chunk in chunks)
    files = _find_files(paths, format, with_origins, names or {}, only, collection)
    if columns is not None:
        # Who names the columns of notes means a table of notes.
        files = [file._replace(format="notes") if _is_table_of_references(file) else file for file in files]
    if only_notes:
        files = [file for file in files if file.format in NOTE_FORMATS]
    readers = _choose_readers(files, previous, columns, cleaning or NoteCleaning(), with_origins, collection, patients)
    progress = progress or ReadingProgress()
    progress.expect(file.path for file in files)
    return itertools.chain.from_iterable(progress.follow(paths, reader()) for paths, reader in readers)


def _names_documents(format: str | None) -> bool:
    """Return whether the name of a file of this format becomes the id of a document."""
    described = formats.FORMATS.get(format or "")
    return described is not None and described.names_documents


def _is_table_of_references(file: _SourceFile) -> bool:
    return file.format == _REFERENCES and _format_by_name(file.path) == _CSV


def detect_format(path: Path) -> str | None:
    """Return the format that `read_sources` gives to a file, or None if no reader takes it."""
    return _detect_format(path, None, _DEFAULT_FORMATS)


def list_suffixes() -> tuple[str, ...]:
    """Return the endings of the files that can be read, with those of the readers of other packages."""
    suffixes = list(SUFFIXES)
    for _, reader in list_own_readers():
        suffixes += reader.suffixes
    return tuple(suffixes)


def find_suffix(name: str) -> str | None:
    """Return the ending of a file's name that decides on its format, such as `.xml.gz`, or None for an unknown one."""
    return next(
        (suffix for suffix in sorted(list_suffixes(), key=len, reverse=True) if name.lower().endswith(suffix)), None
    )


def _find_files(
    paths: Sequence[Path],
    format: str | None,
    with_origins: bool,
    names: Mapping[Path, str],
    only: Collection[Path] | None,
    collection: str,
) -> list[_SourceFile]:
    """Return all files to read. A file whose name becomes its id is returned only once."""
    files: list[_SourceFile] = []
    if collection and not any(_find_zotero(path, format) for path in paths):
        raise InputError(f"no source is Zotero's folder, so there is no collection {collection!r}; name that folder")
    path_by_key: dict[str, Path] = {}
    for path in paths:
        for file in _list_source(path, format, names, only, collection):
            if _names_documents(file.format):
                key = str(real_path(file.path)) if with_origins else file.name
                if key not in path_by_key:
                    path_by_key[key] = file.path
                elif real_path(path_by_key[key]) == real_path(file.path):
                    continue
                else:
                    both = (
                        f"{printable_path(path_by_key[key])} and {printable_path(file.path)} would both be the document"
                    )
                    reason = f"file:{printable_path(file.name)}; give the folder above both, or rename one"
                    raise InputError(f"{both} {reason}")
            files.append(file)
    return files


def _list_source(
    path: Path, format: str | None, names: Mapping[Path, str], only: Collection[Path] | None, collection: str
) -> list[_SourceFile]:
    """Return the files of a folder, of Zotero's library, or the file itself."""
    if (database := _find_zotero(path, format)) is not None:
        return _list_zotero(database, only, collection)
    return _list_folder(path, format, only) if is_folder(path) else [_describe_file(path, format, names)]


def _find_zotero(path: Path, format: str | None) -> Path | None:
    """Return Zotero's database, if the path is the folder that holds it or the file itself."""
    database = path / zotero.DATABASE if is_folder(path) else path
    # A folder or file that is closed to this user is reported once it is read.
    with suppress(PermissionError):
        if format is None and database.is_file() and zotero.is_zotero(database):
            return database
    return None


def _list_zotero(database: Path, only: Collection[Path] | None, collection: str) -> list[_SourceFile]:
    """Return Zotero's database, which describes the files attached to its items, and these files."""
    try:
        attached = zotero.list_attached_files(database, collection)
    except ValueError as error:
        raise path_error(database, str(error)) from error
    files = [_SourceFile(database, database.name, _REFERENCES)]
    for path in attached:
        if only is None or path in only:
            is_stored = path.is_relative_to(database.parent)
            name = path.relative_to(database.parent).as_posix() if is_stored else path.name
            files.append(_SourceFile(path, name, _detect_format(path, None, {})))
    return files


def _describe_file(path: Path, override: str | None, names: Mapping[Path, str]) -> _SourceFile:
    """Return a file named by the user. Raises InputError if it cannot be opened, or its format is unknown."""
    check_file(path)
    format = _detect_format(path, override, _DEFAULT_FORMATS)
    if format is None and (cure := find_cure(path)):
        raise path_error(path, cure)
    if format is None:
        reason = (
            f"its ending is not one of {', '.join(FORMAT_BY_SUFFIX)}, or it is XML of neither PubMed, JATS nor C-CDA"
        )
        raise path_error(path, f"{reason}; rename it, or give its format ({', '.join(FORMATS)})")
    return _SourceFile(path, names.get(path, path.name), format)


def _choose_readers(
    files: Sequence[_SourceFile],
    previous: Collection[FileFingerprint],
    columns: NoteColumns | None,
    cleaning: NoteCleaning,
    with_origins: bool,
    collection: str,
    patients: StoredPatients | None,
) -> list[tuple[list[Path], _Reader]]:
    """Return the readers with their files: one for consecutive PubMed files, one for each export, one for others."""
    notes_reader = partial(_notes_reader, columns, cleaning)
    # An entry describes files that may precede it, so the entries themselves come last.
    described = [file for file in files if file.format == _REFERENCES]
    others = [file for file in files if file.format != _REFERENCES]
    references = ReferenceFiles([file[:2] for file in described], [file.path for file in others], collection)
    fhir_files = [file for file in files if file.format == "fhir" and file.path.stat().st_size]
    if 0 < len(fhir_files) < len(others):
        # Attachments of patients' documents are read with these, and are no literature.
        attached = export.list_attached_files([file[:2] for file in fhir_files])
        others = [file for file in others if file.format == "fhir" or real_path(file.path) not in attached]
    record_files = _group_record_files(others)
    numbers = PatientNumbers(patients)
    readers: list[tuple[list[Path], _Reader]] = []
    # Patients that FHIR describes keep their ids in the files of other formats.
    for format in sorted(record_files, key=RECORD_FORMATS.index):
        paths = [file.path for file in record_files[format]]
        readers.append(
            (paths, partial(read_records, format, [file[:2] for file in record_files[format]], cleaning, numbers))
        )
    for format, group in itertools.groupby(others, key=lambda file: file.format):
        if format in RECORD_FORMATS:
            empty = [file for file in group if not file.path.stat().st_size]
            readers += [([file.path], _reader(file, notes_reader, cleaning.removal_log)) for file in empty]
        elif format == "pubmed":
            paths = [file.path for file in group]
            readers.append((paths, partial(_read_pubmed, paths, previous)))
        else:
            for file in group:
                reader = _reader(file, notes_reader, cleaning.removal_log)
                if described and _names_documents(format):
                    reader = partial(_add_references, file, reader, references)
                if with_origins and format not in (None, "notes"):
                    reader = partial(_add_origins, file, reader)
                readers.append(([file.path], reader))
    for file in described:
        reader = partial(references.read_rest, file.path)
        readers.append(([file.path], partial(_add_origins, file, reader) if with_origins else reader))
    return readers


def _group_record_files(files: Sequence[_SourceFile]) -> dict[str, list[_SourceFile]]:
    """Return the files of patients' records that are not empty, by format."""
    groups: dict[str, list[_SourceFile]] = {}
    for file in files:
        if file.format in RECORD_FORMATS and file.path.stat().st_size:
            groups.setdefault(file.format, []).append(file)
    return groups


def _add_references(file: _SourceFile, reader: _Reader, references: ReferenceFiles) -> Iterator[ReaderItem]:
    """Yield the items of a file, its documents with the metadata of the reference that describes it."""
    for item in reader():
        yield references.describe(file.path, item) if isinstance(item, Document) else item


def _add_origins(file: _SourceFile, reader: _Reader) -> Iterator[ReaderItem]:
    """Yield the documents with their file, and with the file's hash if its name is part of their id."""
    file_id, sha256 = f"file:{file.name}", ""
    for item in reader():
        if not isinstance(item, Document):
            yield item
            continue
        origin = Origin(str(real_path(file.path)))
        if (_names_documents(file.format) or file.format == _REFERENCES) and (
            item.id == file_id or item.id.startswith(f"{file_id}#")
        ):
            sha256 = sha256 or fingerprint_file(file.path).sha256
            origin = Origin(origin.path, file.name, sha256)
        yield FileDocument(item, origin)


def _read_pubmed(paths: Sequence[Path], previous: Collection[FileFingerprint]) -> Iterator[ReaderItem]:
    return pubmed.read_files([path for path in paths if not _was_read(path, previous)])


def _read_chunk(chunk: medcpt.EmbeddingChunk, previous: Collection[FileFingerprint]) -> Iterator[ReaderItem]:
    if not _was_read(chunk.vectors, previous):
        yield from append_fingerprint(chunk.vectors, medcpt.read_chunk(chunk))
        yield from map(fingerprint_file, (chunk.ids, chunk.texts))


def _was_read(path: Path, previous: Collection[FileFingerprint]) -> bool:
    """Return whether a previous file is the same; contents are compared only if name and size agree."""
    name_and_size = (printable_path(path.name), path.stat().st_size)
    hashes = {file.sha256 for file in previous if (file.name, file.bytes) == name_and_size}
    return bool(hashes) and fingerprint_file(path).sha256 in hashes


def _detect_format(path: Path, override: str | None, defaults: Mapping[str, str]) -> str | None:
    """Return the format by suffix and beginning of the file; None if unknown. `defaults` is empty within a folder."""
    format = override or _format_by_name(path)
    try:
        if format == _XML:
            # The reader of FHIR says that it reads no XML.
            return detect_xml_kind(path) or ("fhir" if is_fhir_xml(path) else None)
        if format == _CSV:
            if path.suffix != ".gz" and retractions.is_retraction_watch(path):
                return _RETRACTION_WATCH
            if note_tables.has_known_header(path):
                return "notes"
            is_packed = path.name.lower().endswith((".gz", ".parquet"))
            is_references = not is_packed and path.is_file() and is_reference_table(path)
            return detect_table_format(path, _REFERENCES if is_references else defaults.get(_CSV))
        if format == _JSON:
            if path.suffix != ".gz" and path.is_file() and is_csl_json(path):
                return _REFERENCES
            return "fhir" if is_fhir(path) else defaults.get(_JSON)
        # Opening a pipe would wait for its writer.
        if format in ("text", None) and override is None and path.is_file():
            return _detect_text(path, format)
        if format == "fhir" and override is None and not defaults:
            # In a folder, one file of another kind must not stop the reading of all others.
            return format if is_fhir(path) or not path.stat().st_size else None
    except OSError:
        # Its reader says why it cannot be opened.
        return format if _names_documents(format) else None
    return format


def _detect_text(path: Path, format: str | None) -> str | None:
    """Return the format of a text file, or of one with an unknown ending, by its beginning. Raises OSError."""
    if format == "text" and is_reference_export(path):
        return _REFERENCES
    if format is None and path.suffix.lower() in CURES:
        is_office = path.suffix.lower() in (".doc", ".ppt") and office.is_newer_format(path)
        return "office" if is_office else None
    return detect_record(path) or format


def _format_by_name(path: Path) -> str | None:
    """Return the format that belongs to a file's ending. Files without one, or of JSON lines, may be FHIR."""
    suffixes = (item for item in FORMAT_BY_SUFFIX if path.name.lower().endswith(item))
    format = FORMAT_BY_SUFFIX.get(next(suffixes, "")) or find_own_format(path)
    return "fhir" if (format == "jsonl" or path.name.isalpha()) and has_fhir_lines(path) else format


def _list_folder(folder: Path, override: str | None, only: Collection[Path] | None) -> list[_SourceFile]:
    """Return every visible file below the folder by name, or `only` these. Raises InputError if none can be read.

    A folder that cannot be listed is among them, to be skipped with its reason.
    """
    files: list[_SourceFile] = []
    closed: list[Path] = []

    def note(error: OSError) -> None:
        path = Path(error.filename)
        closed.append(path)
        if only is None:
            files.append(_SourceFile(path, path.relative_to(folder).as_posix(), None))

    for parent, folders, names in os.walk(folder, onerror=note):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = Path(parent, name)
            if is_visible(name) and (only is None or path in only):
                format = _detect_format(path, override, {})
                files.append(_SourceFile(path, path.relative_to(folder).as_posix(), format))
    if only is None and not any(file.format for file in files):
        if closed:
            raise path_error(closed[0], describe_unread(closed[0], is_known=False))
        suffixes = ", ".join(FORMAT_BY_SUFFIX)
        raise path_error(folder, f"no file below it that can be read ({suffixes}); check the path")
    return sorted(files, key=lambda file: file.name)


def _notes_reader(columns: NoteColumns | None, cleaning: NoteCleaning, path: Path, name: str) -> _Reader:
    """Return the reader of a table of notes. Raises InputError if the table lacks a column."""
    # In a garbled file, text before the damage may be under another patient's id.
    if damage := describe_damage(path, include_truncated=False):
        return partial(_skip, path, damage)
    try:
        note_tables.locate_columns(path, columns)
    except InputError:
        if damage := describe_damage(path):
            return partial(_skip, path, damage)
        raise
    notes = note_tables.read_notes(path, name, columns, cleaning)
    encoding = detect_file_encoding(path)
    remarks = [encoding_remark(name, encoding)] if encoding else []
    return lambda: append_fingerprint(path, itertools.chain(notes, remarks))


def _reader(file: _SourceFile, notes_reader: _NotesReader, log: RemovalLog) -> _Reader:
    path, name, format = file
    if format == "pubmedqa":
        return partial(append_fingerprint, path, questions.read_pubmedqa_documents(path, questions.load_pubmedqa(path)))
    if format is None or (os.path.islink(path) and not os.path.exists(path)):
        return partial(_skip, path, describe_unread(path, is_known=find_suffix(name) is not None))
    try:
        check_file(path)
    except InputError as error:
        return partial(_skip, path, error.message.removeprefix(f"{printable_path(path)}: "))
    if format == "notes":
        return notes_reader(path, name)
    if (own := formats.FORMATS.get(format)) is None:
        extension = find_own_reader(format)
        assert extension is not None
        return lambda: append_fingerprint(path, read_own(extension, path, name))
    if own.names_documents:
        try:
            name.encode()
        except UnicodeEncodeError:
            return partial(_skip, path, "the file's name is not UTF-8; rename it")
    return lambda: append_fingerprint(path, _mark(_log_removed(file, log, own.read(path, name))))


def _log_removed(file: _SourceFile, log: RemovalLog, items: Iterable[ReaderItem | OmittedText]) -> Iterator[ReaderItem]:
    """Yield the items, and record the texts that the reader removed."""
    for item in items:
        if isinstance(item, OmittedText):
            log.record(log.begin_source(file.path, file.name), item.kind, item.document, item.texts)
        else:
            yield item


def _mark(items: Iterable[ReaderItem]) -> Iterator[ReaderItem]:
    """Yield the items, documents with the marks of a retraction that they state themselves."""
    for item in items:
        yield mark_document(item) if isinstance(item, Document) else item


def _skip(path: Path, reason: str) -> Iterator[ReaderItem]:
    yield skip(path, "", reason)


@cache
def find_own_reader(name: str) -> FileReader | None:
    """Return the reader that an installed package offers for this format, or None."""
    reader: FileReader | None = make_extension("reader", name)
    return reader


def list_own_readers() -> Iterator[tuple[str, FileReader]]:
    """Yield the formats of installed packages with their readers."""
    for name in list_extensions("reader"):
        reader = find_own_reader(name)
        if reader is not None:
            yield name, reader


def find_own_format(path: Path) -> str | None:
    """Return the format of an installed package for a file with this ending, or None."""
    for name, reader in list_own_readers():
        if path.name.lower().endswith(tuple(reader.suffixes)):
            return name
    return None


def read_own(reader: FileReader, path: Path, name: str) -> Iterator[Document | Skipped]:
    """Yield what the reader of another package finds. A reader that fails skips the file."""
    try:
        for item in reader.read(path, name):
            yield item if isinstance(item, Document) else skip(path, "", item)
    except Exception as error:  # noqa: BLE001 - a reader's error costs one file only
        # The message may quote the file.
        yield skip(path, "", f"its reader failed ({type(error).__name__}); report it to the reader's author")
