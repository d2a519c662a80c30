"""One door for every source of documents: which reader reads which path. Does not know what becomes of them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

from epicrisis.corpus import (
    fhir,
    jsonl,
    medcpt,
    medrag,
    note_tables,
    plain_text,
    pubmed,
    pubmedqa,
    retractions,
    sandbox,
)
from epicrisis.corpus.compression import describe_damage
from epicrisis.corpus.note_documents import NoteCleaning
from epicrisis.corpus.note_tables import NoteColumns
from epicrisis.corpus.reader_base import (
    FileDocument,
    FileFingerprint,
    ReaderItem,
    Skipped,
    append_fingerprint,
    check_file,
    fingerprint_file,
    is_folder,
    os_error_reason,
    printable_path,
)
from epicrisis.corpus.xml_text import detect_xml_kind
from epicrisis.errors import InputError
from epicrisis.types import Document, Origin

__all__ = ["FORMATS", "Skipped", "read_sources"]

_BY_NAME: Mapping[str, Callable[[Path, str], Iterator[ReaderItem]]] = {
    "text": plain_text.read_document,
    **{kind: partial(sandbox.read_file, kind) for kind in ("pdf", "html", "nxml")},
}
"""Readers that are told the file's name: it makes the id where nothing in the file does."""
_LIST = "retraction-watch"
_BY_PATH: Mapping[str, Callable[[Path], Iterator[ReaderItem]]] = {
    "jsonl": jsonl.read_documents,
    "medrag": medrag.read_snippets,
    "statpearls": partial(sandbox.read_file, "statpearls"),
    _LIST: retractions.read_retraction_watch,
}
FORMATS = (*_BY_PATH, "pubmed", "medcpt", "pubmedqa", *_BY_NAME, "notes", "fhir")
_XML, _CSV, _JSON = "xml", "csv", "json"
"""Endings that do not tell the format: the file's beginning does."""
_IN_FOLDERS = {
    ".jsonl": "jsonl",
    ".jsonl.gz": "jsonl",
    ".txt": "text",
    ".md": "text",
    ".markdown": "text",
    ".pdf": "pdf",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".nxml": _XML,
    ".nxml.gz": _XML,
    ".xml": _XML,
    ".xml.gz": _XML,
    **dict.fromkeys(note_tables.ENDINGS, _CSV),
    ".ndjson": "fhir",
    ".ndjson.gz": "fhir",
    ".json": _JSON,
    ".json.gz": _JSON,
}
_OTHERWISE = {_CSV: "notes", _JSON: "pubmedqa"}
"""What a file named by the user is taken for, where its beginning tells nothing."""

_Reader: TypeAlias = Callable[[], Iterator[ReaderItem]]
_NotesReader: TypeAlias = Callable[[Path, str], _Reader]


def read_sources(
    paths: Sequence[Path],
    format: str | None = None,
    known: Collection[FileFingerprint] = (),
    columns: NoteColumns | None = None,
    treatment: NoteCleaning | None = None,
    notes_alone: bool = False,
    with_files: bool = False,
) -> Iterator[ReaderItem]:
    """The documents of files and folders, in the order given; what was left out comes as `Skipped`, in its place.

    A folder gives every file below it in the order of its path, hidden ones left out; other endings, and empty files,
    are skipped. `format` (one of FORMATS) reads every file as that, whatever its ending; `medcpt` takes folders of
    NCBI's chunks. After a file that was read to its end comes its `WholeFile`. PubMed's XML files and MedCPT's chunks
    that are among the `known` ones are passed over: their documents have revisions, so that an earlier reading cannot
    have been undone by another file. `columns` and `treatment` are for notes of patients: CSV files whose header is
    known (MIMIC's) and FHIR are read without a format being named. `notes_alone` passes all other formats over.
    `with_files` gives documents that have neither a revision nor a patient's record around them as `FromFile`, so that
    a library can tell files of one name apart.

    Every path is looked at before this returns, so that a slip in the last one costs nothing. Raises InputError for a
    path that is missing, unreadable or empty, for a folder without a file that can be read, for an ending or format
    that is not known, and, without `with_files`, where two files would get the same id.
    """
    if format is not None and format not in FORMATS:
        raise InputError(f"no format is called {format!r}; the known ones are {', '.join(FORMATS)}")
    if not paths:
        raise InputError("no path was given; name at least one file or folder")
    if format == "medcpt":
        chunks = [chunk for folder in paths for chunk in medcpt.find_chunks(folder)]
        return itertools.chain.from_iterable(_chunk(chunk, known) for chunk in chunks)
    found: list[tuple[Path, str, str | None]] = []
    named: dict[str, Path] = {}
    met: set[Path] = set()
    for path in paths:
        for file, name, kind in (
            _below(path, format) if is_folder(path) else [(path, path.name, _format_of(path, format))]
        ):
            is_named = kind in _BY_NAME
            if is_named and (file.resolve() in met or not (with_files or _first_of_its_name(file, name, named))):
                continue
            if is_named and with_files:
                met.add(file.resolve())
            found.append((file, name, kind))
    if notes_alone:
        found = [each for each in found if each[2] in ("notes", "fhir")]
    return itertools.chain.from_iterable(
        reader() for reader in _readers(found, known, columns, treatment or NoteCleaning(), with_files)
    )


def _readers(
    found: Sequence[tuple[Path, str, str | None]],
    known: Collection[FileFingerprint],
    columns: NoteColumns | None,
    treatment: NoteCleaning,
    with_files: bool,
) -> list[_Reader]:
    """One a file, but one for PubMed files that follow each other, which are read side by side, and one for all files
    of FHIR, at the first one's place: what one says holds for the others."""
    with_notes = partial(_notes, columns, treatment)
    of_fhir = [(file, name) for file, name, kind in found if kind == "fhir" and file.stat().st_size]
    readers: list[_Reader] = []
    for kind, group in itertools.groupby(found, key=lambda item: item[2]):
        if kind == "fhir":
            together, of_fhir = of_fhir, []
            if together:
                readers.append(partial(fhir.read_files, together, treatment))
            readers += [_reader(file, name, kind, with_notes) for file, name, _ in group if not file.stat().st_size]
        elif kind == "pubmed":
            readers.append(partial(_pubmed, [file for file, _, _ in group], known))
        else:
            for file, name, _ in group:
                reader = _reader(file, name, kind, with_notes)
                is_located = with_files and kind is not None and kind != "notes"
                readers.append(partial(_located, file, name, kind in _BY_NAME, reader) if is_located else reader)
    return readers


def _located(file: Path, name: str, is_named: bool, reader: _Reader) -> Iterator[ReaderItem]:
    """Give the documents of a file with the file; those whose id is made of its name with the file's hash, too."""
    path = str(file.resolve())
    sha256 = ""
    for item in reader():
        if not isinstance(item, Document):
            yield item
        elif is_named and (item.id == f"file:{name}" or item.id.startswith(f"file:{name}#")):
            sha256 = sha256 or fingerprint_file(file).sha256
            yield FileDocument(item, Origin(path, name, sha256))
        else:
            yield FileDocument(item, Origin(path))


def _pubmed(paths: Sequence[Path], known: Collection[FileFingerprint]) -> Iterator[ReaderItem]:
    return pubmed.read_files([path for path in paths if not _is_known(path, known)])


def _chunk(chunk: medcpt.EmbeddingChunk, known: Collection[FileFingerprint]) -> Iterator[ReaderItem]:
    if not _is_known(chunk.vectors, known):
        yield from append_fingerprint(chunk.vectors, medcpt.read_chunk(chunk))
        yield from (fingerprint_file(path) for path in (chunk.ids, chunk.texts))


def _is_known(path: Path, known: Collection[FileFingerprint]) -> bool:
    """Files of the same name and size are read to be sure."""
    size = path.stat().st_size
    like = {each.sha256 for each in known if (each.name, each.bytes) == (printable_path(path.name), size)}
    return bool(like) and fingerprint_file(path).sha256 in like


def _format_of(path: Path, forced: str | None) -> str:
    check_file(path)
    kind = _kind(path, forced, _OTHERWISE)
    if kind is None:
        raise InputError(
            f"{printable_path(path)}: its ending is not one of {', '.join(_IN_FOLDERS)}, or it is XML of neither PubMed nor "
            f"JATS; rename it, or name the format ({', '.join(FORMATS)})"
        )
    return kind


def _kind(path: Path, forced: str | None, otherwise: Mapping[str, str]) -> str | None:
    kind = forced or next((kind for ending, kind in _IN_FOLDERS.items() if path.name.lower().endswith(ending)), None)
    try:
        if kind == _XML:
            return detect_xml_kind(path)
        if kind == _CSV:
            if path.suffix != ".gz" and retractions.is_retraction_watch(path):
                return _LIST
            return "notes" if note_tables.has_known_header(path) else otherwise.get(_CSV)
        if kind == _JSON:
            return "fhir" if fhir.is_fhir(path) else otherwise.get(_JSON)
        if kind == "fhir" and forced is None and not otherwise:
            # In a folder one file that is something else must not end the reading of all others.
            return kind if fhir.is_fhir(path) or not path.stat().st_size else None
    except OSError:
        return None
    return kind


def _below(folder: Path, forced: str | None) -> list[tuple[Path, str, str | None]]:
    """(path, path relative to the folder, format) of every visible file below; format `None`: cannot be read."""

    def refuse(error: OSError) -> None:
        raise InputError(
            f"{printable_path(error.filename)}: {os_error_reason(error)}; check the folder's permissions"
        ) from error

    found: list[tuple[Path, str, str | None]] = []
    for place, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if not name.startswith("."):
                file = Path(place, name)
                found.append((file, file.relative_to(folder).as_posix(), _kind(file, forced, {})))
    if not any(kind for _, _, kind in found):
        raise InputError(
            f"{printable_path(folder)}: no file below it that can be read ({', '.join(_IN_FOLDERS)}); check the path"
        )
    return sorted(found, key=lambda item: item[1])


def _first_of_its_name(file: Path, name: str, named: dict[str, Path]) -> bool:
    """False where this very file was met before. Raises InputError where another one has the same name."""
    if name not in named:
        named[name] = file
        return True
    first = named[name]
    if first.resolve() == file.resolve():
        return False
    raise InputError(
        f"{printable_path(first)} and {printable_path(file)} would both be the document file:{printable_path(name)}; "
        "name the folder above both, or rename one"
    )


def _notes(columns: NoteColumns | None, treatment: NoteCleaning, file: Path, name: str) -> _Reader:
    """Raises InputError, before anything is read, where a file of notes lacks a column.

    A garbled file is left out whole: text from before the damage may stand under another patient's id.
    """
    if garbled := describe_damage(file, include_truncated=False):
        return partial(_skip, file, garbled)
    try:
        note_tables.locate_columns(file, columns)
    except InputError:
        if broken := describe_damage(file):
            return partial(_skip, file, broken)
        raise
    return lambda: append_fingerprint(file, note_tables.read_notes(file, name, columns, treatment))


def _reader(file: Path, name: str, kind: str | None, with_notes: _NotesReader) -> _Reader:
    if kind == "pubmedqa":
        return partial(append_fingerprint, file, pubmedqa.read_documents(file, pubmedqa.load_entries(file)))
    if kind is None:
        if wrong := describe_damage(file):
            return partial(_skip, file, wrong)
        reason = f"its ending is not one of {', '.join(_IN_FOLDERS)}, or it is other XML, CSV or JSON"
        return partial(_skip, file, reason)
    try:
        check_file(file)
    except InputError as error:
        return partial(_skip, file, error.message.removeprefix(f"{printable_path(file)}: "))
    if kind == "notes":
        return with_notes(file, name)
    if kind in _BY_NAME:
        try:
            name.encode()
        except UnicodeEncodeError:
            return partial(_skip, file, "the file's name is not UTF-8; rename it")
        return lambda: append_fingerprint(file, _BY_NAME[kind](file, name))
    return lambda: append_fingerprint(file, _BY_PATH[kind](file))


def _skip(file: Path, reason: str) -> Iterator[ReaderItem]:
    yield Skipped(printable_path(file), "", reason)
