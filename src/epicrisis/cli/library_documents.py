"""`epicrisis library list`, `show` and `export`: what a library holds, one document, and all of them as a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from epicrisis.cli.command import command
from epicrisis.cli.options import Json, LibraryPath, Patient, output_option
from epicrisis.cli.terminal import counted, say, say_lines, say_text, show_json, show_report
from epicrisis.core.errors import InputError
from epicrisis.core.printable import GUTTER, printable_json, quote_for_shell, split_printable_lines
from epicrisis.core.references import build_reference
from epicrisis.core.types import Document, Origin, Passage, Scope

if TYPE_CHECKING:
    from epicrisis.library.core.journal import LibraryFile
    from epicrisis.library.core.library_store import LibraryStore
    from epicrisis.library.core.patients import PatientRecord

_LISTED_VALUES = 12
_SHOWN_ELSEWHERE = frozenset(("authors", "pages", "page_labels", "sections", "journal_abbreviation", "marks"))
_NAMED_IDS = 10
"""Documents named when a prefix fits several."""
_Limit = Annotated[int, Option("--limit", min=1, help="Most files or documents to list.")]
BreakGlass = Annotated[
    str | None,
    Option(
        "--break-glass",
        metavar="REASON",
        help="Why you read a record, for the access log. Needed for patients who are not assigned to you.",
    ),
]
_File = Annotated[Path | None, Option("--file", help="List the documents of this file.")]


@command(
    examples=[
        "epicrisis library list ~/lib",
        "epicrisis library list ~/lib --documents --limit 200",
        "epicrisis library list ~/ward --patient 10083814 --json",
    ],
)
def list_contents(
    library: LibraryPath,
    documents: Annotated[bool, Option("--documents", help="List documents instead of files.")] = False,
    file: _File = None,
    patient: Patient = None,
    limit: _Limit = 50,
    break_glass: BreakGlass = None,
    json: Json = False,
) -> None:
    """List the files of a library with the number of documents and passages and the date added, or its documents.

    Notes of patients are listed with --patient only.
    """
    from epicrisis.library.core.library_store import LibraryStore

    with LibraryStore.open(library) as store:
        if documents or file is not None or patient is not None:
            data, lines = _list_documents(store, file, patient, limit, break_glass)
            if patient is not None:
                owners = {row["patient"] for row in data["documents"]}
                for owner in owners:
                    ids = [row["id"] for row in data["documents"]]
                    record_reading(library, "list", owner, ids, break_glass)
        else:
            data, lines = _list_files(store, limit)
    show_report(data, lines, json=json)


def _list_files(store: LibraryStore, limit: int) -> tuple[dict[str, Any], list[str]]:
    from epicrisis.library.core.journal import open_journal

    with open_journal(store.path) as journal:
        files = journal.list_files()
    documents, passages = store.count()
    unrecorded = documents - sum(file.documents or 0 for file in files)
    data = {
        "files": files[:limit],
        "files_left_out": len(files[limit:]),
        "documents": documents,
        "passages": passages,
        "documents_without_file": unrecorded,
    }
    lines = [f"{counted(len(files), 'file')}, {counted(documents, 'document')}, {counted(passages, 'passage')}"]
    if files:
        lines.append(f"{'documents':>9}  {'passages':>8}  {'added':<10}  file")
    lines += map(_describe_file, files[:limit])
    lines += _left_out(len(files), limit, "file")
    if unrecorded:
        lines.append(
            f"{counted(unrecorded, 'document')} with no file recorded: records of PubMed's files, and notes of patients"
        )
    return data, lines


def _describe_file(file: LibraryFile) -> str:
    documents = "-" if file.documents is None else f"{file.documents:,}"
    passages = "-" if file.passages is None else f"{file.passages:,}"
    return f"{documents:>9}  {passages:>8}  {file.added[:10] or 'unknown':<10}  {_shorten_path(file.path)}"


def _shorten_path(path: str) -> str:
    """Return a path from the current folder or the home folder, if it lies there."""
    current = ""
    # The current folder may have been deleted.
    with suppress(OSError):
        current = os.getcwd()
    for folder, prefix in ((current, ""), (os.environ.get("HOME", ""), "~/")):
        if folder not in ("", "/") and path.startswith(f"{folder}/"):
            return prefix + path.removeprefix(f"{folder}/")
    return path


def _left_out(total: int, limit: int, noun: str) -> Iterator[str]:
    if total > limit:
        yield f"{counted(total - limit, noun)} left out: --limit {total} lists more"


def _list_documents(
    store: LibraryStore, file: Path | None, patient: str | None, limit: int, reason: str | None
) -> tuple[dict[str, Any], list[str]]:
    """Return the documents without a patient, or of one patient, as data and as lines."""
    from epicrisis.report.search_results import describe_source

    scope = _build_scope(store, "list", patient, reason)
    passages, total = _read_first_passages(store, file, scope, limit)
    rows: list[dict[str, Any]] = []
    lines: list[str] = []
    for passage in passages:
        reference = build_reference(passage)
        source = describe_source(passage, reference, reference.study)
        rows.append(
            {
                "id": passage.document_id,
                "title": passage.title,
                "source": passage.source,
                "date": passage.date,
                "patient": passage.patient,
                "reference": reference,
            }
        )
        title = passage.title or "(no title)"
        described = f"{title.rstrip('.')}. {source}" if source else title
        lines.append(f"{passage.document_id}  {described}")
    kind = "document" if patient is None else "note"
    if not lines:
        lines = [f"no {kind} in this scope" + ("; notes of patients need --patient ID" if patient is None else "")]
    lines += _left_out(total, limit, kind)
    return {"documents": rows, "documents_left_out": max(total - limit, 0)}, lines


def _read_first_passages(store: LibraryStore, file: Path | None, scope: Scope, limit: int) -> tuple[list[Passage], int]:
    """Return the first passage of each document to list, and the number of all documents that could be listed."""
    from epicrisis.library.core.document_list import DocumentFilter, list_documents
    from epicrisis.library.core.passage_lookup import read_document_passages
    from epicrisis.retrieval.record_context import rank_record

    if file is not None:
        ids = find_file_documents(store, file)
        documents = read_document_passages(store, ids, scope)
        return [passages[0] for passages in documents.values()][:limit], len(documents)
    if scope.patient is not None:
        notes: dict[str, Passage] = {}
        for passage in rank_record(store.fetch_record(scope)).passages:
            notes.setdefault(passage.document_id, passage)
        return list(notes.values())[:limit], len(notes)
    page = list_documents(store, DocumentFilter(), limit=limit)
    return [entry.to_passage() for entry in page.documents], page.matches


@command(examples=["epicrisis library show ~/lib pubmed:12377809", "epicrisis library show ~/ward note:41 --patient 7"])
def show(
    library: LibraryPath,
    document: Annotated[str, Argument(metavar="ID", help="Id of a document, or a beginning that no other id has.")],
    patient: Patient = None,
    break_glass: BreakGlass = None,
    json: Json = False,
) -> None:
    """Show one document: reference, links, the file it came from, metadata and text.

    A note of a patient is shown with --patient only.
    """
    from epicrisis.library.core.library_store import LibraryStore
    from epicrisis.library.write.document_export import restore_document

    with LibraryStore.open(library) as store:
        passages = _find_document(store, document, _build_scope(store, "show", patient, break_glass))
        origin = store.origins([passages[0].document_id]).get(passages[0].document_id)
    if passages[0].patient is not None:
        record_reading(library, "show", passages[0].patient, [passages[0].document_id], break_glass)
    content = restore_document(passages)
    if json:
        data = {
            "document": content,
            "reference": build_reference(passages[0]),
            "marks": passages[0].marks,
            "file": origin.path if origin else None,
            "passages": [{"id": passage.id, "start": passage.start, "end": passage.end} for passage in passages],
        }
        show_json(data)
        return
    say_lines(_describe_document(content, passages, origin))
    say()
    for line in split_printable_lines(content.text.strip()):
        # No line of a text can pass for one of the program.
        say(f"{GUTTER}{line}")


def _describe_document(document: Document, passages: Sequence[Passage], origin: Origin | None) -> Iterator[str]:
    """Yield title, reference, links, file and metadata of a document, one line each."""
    from epicrisis.core.references import find_document_study
    from epicrisis.report.answer_content import describe_marks
    from epicrisis.report.search_results import describe_source

    first = passages[0]
    reference = build_reference(first)
    marks = f" [{describe_marks(first.marks)}]" if first.marks else ""
    yield f"{document.title or document.id}{marks}"
    if document.metadata.get("authors"):
        yield f"authors: {'; '.join(reference.authors)}"
    yield describe_source(first, reference, find_document_study(document.id, passages))
    for link in reference.links:
        yield f"{link.label} {link.identifier}: {link.url}"
    yield f"id: {document.id}"
    if document.date:
        yield f"date: {document.date}"
    if document.patient is not None:
        yield f"patient: {document.patient}"
    yield f"source: {document.source or 'unknown'}{f', from {origin.path}' if origin else ''}"
    yield f"text: {counted(len(document.text), 'character')} in {counted(len(passages), 'passage')}"
    for key, value in sorted(document.metadata.items()):
        if key not in _SHOWN_ELSEWHERE:
            yield f"{key}: {_describe_value(value)}"


def _describe_value(value: Any) -> str:
    """Return a value of the metadata on one line. Of a long list only the beginning is shown."""
    if isinstance(value, list) and len(value) > _LISTED_VALUES:
        beginning = ", ".join(map(_describe_value, value[:_LISTED_VALUES]))
        return f"{beginning} and {len(value) - _LISTED_VALUES} more (--json shows all)"
    if isinstance(value, list):
        return ", ".join(map(_describe_value, value))
    if isinstance(value, dict):
        return ", ".join(f"{key} {_describe_value(item)}" for key, item in value.items())
    return str(value)


def _find_document(store: LibraryStore, prefix: str, scope: Scope) -> tuple[Passage, ...]:
    """Return the passages of the document with this id, or of the only one that begins with it.

    Raises InputError if none or several do. Documents outside the scope count as missing.
    """
    from epicrisis.library.core.journal import open_journal
    from epicrisis.library.core.passage_lookup import read_document_passages

    with open_journal(store.path) as journal:
        ids = journal.ids_with_prefix(prefix) if prefix else []
    documents = read_document_passages(store, [prefix] if prefix in ids else ids, scope)
    if len(documents) == 1:
        return next(iter(documents.values()))
    if documents:
        candidates = ", ".join(list(documents)[:_NAMED_IDS])
        others = f" and {len(documents) - _NAMED_IDS} more" if len(documents) > _NAMED_IDS else ""
        raise InputError(f"{prefix!a} is the beginning of several ids: {candidates}{others}. Give more of the id")
    raise InputError(
        f"no document with the id {prefix!a}, or whose id begins so, in this scope: check the id (`epicrisis library "
        f"list {quote_for_shell(store.path)} --documents`); a note needs --patient"
    )


@command(
    examples=[
        "epicrisis library export ~/lib -o lib.jsonl",
        "epicrisis library export ~/ward --patient 10083814 -o record.jsonl",
        "epicrisis library export ~/ward --all-patients --deidentify 0.9 -o notes.jsonl",
        "epicrisis library export ~/lib -o lib.bib",
    ]
)
def export(
    library: LibraryPath,
    output: Annotated[
        Path | None,
        output_option(help="New file: .jsonl, or .bib, .ris or .csl.json for references. Default: standard output."),
    ] = None,
    patient: Patient = None,
    all_patients: Annotated[
        bool, Option("--all-patients", help="Export literature and the notes of every patient.")
    ] = False,
    break_glass: BreakGlass = None,
    deidentify: Annotated[
        float | None,
        Option(
            "--deidentify",
            metavar="RECALL",
            help="Replace identifiers, if the recall of the worst kind is at least this.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Write the documents as JSON lines, which `library add` reads back with the same ids, or only their references.

    The suffix of the file decides, and it is readable by its owner only. Without --patient only documents without a
    patient are written, with it only the notes of this patient.
    """
    from epicrisis.library.core.library_store import LibraryStore
    from epicrisis.library.write.document_export import export_documents

    if patient is not None and all_patients:
        raise InputError("--patient and --all-patients are different exports: give one of them")
    if json and output is None:
        raise InputError("--json describes the file that was written: name one with -o")
    with LibraryStore.open(library) as store:
        scope = _build_scope(store, "export", patient, break_glass)
        if patient is not None or all_patients:
            for owner, ids in _list_notes(store, scope.patient).items():
                record_reading(library, "export", owner, ids, break_glass)
        documents: Iterable[Document] = export_documents(
            store, _choose_passages(scope.patient, all_patients=all_patients)
        )
        if deidentify is not None:
            documents = _deidentify_documents(store, documents, deidentify, output)
        count = _write_documents(documents, output)
        left_out = store.count()[0] - count
    if json:
        show_json({"documents": count, "left_out": left_out, "output": str(output)})
    else:
        where = "" if output is None else f" written to {output}"
        say(f"{counted(count, 'document')}{where}", err=output is None)
    if left_out:
        kind, cure = (
            ("document", "") if patient is not None else ("note", ": --patient ID or --all-patients adds notes")
        )
        outside = "outside this patient's record" if patient is not None else "of patients"
        say(f"{counted(left_out, kind)} {outside} left out{cure}", err=True)
    if patient is not None or all_patients:
        say("note: names, birth dates and record numbers of patients are not part of the export", err=True)


def _deidentify_documents(
    store: LibraryStore, documents: Iterable[Document], least: float, output: Path | None
) -> Iterable[Document]:
    """Return the documents with surrogates. Raises InputError for an export of references, which have no notes."""
    from epicrisis.privacy.deidentification.export import deidentify_documents
    from epicrisis.report.citation_files import find_citation_suffix

    if output is not None and find_citation_suffix(output.name):
        raise InputError(f"{output}: --deidentify is for notes: name a file like notes.jsonl")
    return deidentify_documents(store, documents, least)


def _write_documents(documents: Iterable[Document], output: Path | None) -> int:
    """Write the documents to a file, by its suffix, or as lines to standard output. Return their number."""
    from epicrisis.library.write.document_export import to_json_line
    from epicrisis.report.citation_files import CITATION_WRITERS, find_citation_suffix, make_document_source
    from epicrisis.report.saved_answers import check_new_file, open_new_file, write_private_text

    count = 0
    if output is None:
        for document in documents:
            say_text(printable_json(to_json_line(document)))
            count += 1
        return count
    if suffix := find_citation_suffix(output.name):
        check_new_file(output)
        sources = list(map(make_document_source, documents))
        write_private_text(output, CITATION_WRITERS[suffix](sources))
        return len(sources)
    if output.suffix.lower() != ".jsonl":
        raise InputError(f"{output}: the suffix is unknown: name the file .jsonl, .bib, .ris or .csl.json")
    with open_new_file(output) as file:
        for document in documents:
            file.write(to_json_line(document) + "\n")
            count += 1
    return count


def record_reading(
    library: Path, action: str, patient: str | None, documents: Sequence[str] = (), reason: str | None = None
) -> None:
    """Write to the access log of a library what is shown of a patient's record, or of all if `patient` is None.

    Raises InputError for a user who may not read it, and StorageError.
    """
    from epicrisis.privacy.record_access import open_record_access
    from epicrisis.settings.configuration import load_settings

    open_record_access(library, load_settings().home, reason).record(action, patient, documents)


def _list_notes(store: LibraryStore, patient: str | None) -> dict[str, list[str]]:
    """Map this patient, or all patients, to the ids of their notes."""
    from epicrisis.library.base.passage_table import sql_in

    condition = "patient IS NOT NULL" if patient is None else sql_in("patient", [patient])
    notes: dict[str, list[str]] = {}
    for row in store.open_table().rows(["patient", "document_id"], f"({condition}) AND ordinal = 0"):
        notes.setdefault(row["patient"], []).append(row["document_id"])
    return notes


def _choose_passages(patient: str | None, *, all_patients: bool) -> Callable[[Passage], bool]:
    """Return what decides whether a passage is exported."""
    if all_patients:
        return lambda passage: True
    return lambda passage: passage.patient == patient


def _build_scope(store: LibraryStore, action: str, patient: str | None, reason: str | None) -> Scope:
    """Return the scope of literature and this patient. Raises InputError as `find_patient` does."""
    return Scope() if patient is None else Scope(patient=find_patient(store, action, patient, reason).id)


def find_patient(store: LibraryStore, action: str, name: str, reason: str | None = None) -> PatientRecord:
    """Return the patient with this id or record number, whose record the user may read.

    Raises InputError for a patient who is not assigned to the user or not in the library. A user with assigned patients
    does not learn which.
    """
    from epicrisis.library.core.patient_check import resolve_patient
    from epicrisis.library.core.patients import Roster
    from epicrisis.privacy.record_access import open_record_access
    from epicrisis.settings.configuration import load_settings

    access, roster = open_record_access(store.path, load_settings().home, reason), Roster(store)
    records = roster.patients()
    readable = roster if access.readable is None else roster.limit(access.readable)
    patient = resolve_patient([readable], name) or ""
    access.check(action, patient, is_known=patient in records)
    if patient not in records:
        raise InputError(
            f"the library has no patient {name!a}: `epicrisis library patients {quote_for_shell(store.path)}` lists "
            "them"
        )
    return records[patient]


def find_file_documents(store: LibraryStore, file: Path) -> list[str]:
    """Return the ids of the documents of a file in the library.

    Documents without a recorded file are found by reading the file, if it still exists. Raises InputError if none is
    found.
    """
    from epicrisis.library.core.journal import open_journal

    path = os.path.realpath(file.expanduser())
    with open_journal(store.path) as journal:
        ids = journal.documents_of_file(path)
    if not ids and file.is_file():
        ids = _find_unrecorded(store, file)
    if not ids:
        raise InputError(
            f"{file}: the library has no document of this file: `epicrisis library list "
            f"{quote_for_shell(store.path)}` lists its files. Records of PubMed's files and notes of patients are "
            "found by their file only while it exists unchanged"
        )
    return ids


def _find_unrecorded(store: LibraryStore, file: Path) -> list[str]:
    """Return the ids in a file that the library has without a recorded file."""
    from epicrisis.corpus.readers.sources import read_sources

    ids = [item.id for item in read_sources([file], with_origins=True) if isinstance(item, Document)]
    existing = store.content_hashes(ids)
    recorded = store.origins(ids)
    return [id_ for id_ in dict.fromkeys(ids) if id_ in existing and id_ not in recorded]
