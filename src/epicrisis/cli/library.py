"""`epicrisis library`: add documents, look at a library, maintain it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from epicrisis.cli.command import Flags, command, fail
from epicrisis.cli.options import CONFIG, ENCODER, LOCAL_ONLY, Json, LibraryPath
from epicrisis.cli.run_progress import say_report_skipped
from epicrisis.cli.terminal import counted, open_console, say, say_lines, show_json
from epicrisis.errors import InputError
from epicrisis.printable import count_noun
from epicrisis.privacy import local_path, set_local_only
from epicrisis.serialization import to_json
from epicrisis.types import SplitterName

if TYPE_CHECKING:
    from epicrisis.corpus.note_documents import NoteCleaning
    from epicrisis.corpus.note_tables import NoteColumns
    from epicrisis.corpus.reader_base import FileFingerprint, ReaderItem
    from epicrisis.corpus.removal_log import RemovalSummary
    from epicrisis.library.ingest_batches import IngestProgress, IngestReport
    from epicrisis.library.library import LibraryStore
    from epicrisis.library.remote_consent import RemoteConsent
    from epicrisis.library.vector_index import IndexReport
    from epicrisis.protocols import Encoder

_SOURCES = (
    "Files and folders: JSONL, text, Markdown, PDF, HTML, PubMed XML, JATS (nxml), notes as CSV, FHIR (JSON), "
    "Retraction Watch's list (CSV)."
)
_COLUMN_ROLES = {
    "patient": "patient",
    "time": "time",
    "type": "type",
    "text": "text",
    "encounter": "encounter",
    "note-id": "note_id",
    "patient-name": "patient_name",
    "birth-date": "born",
    "record-number": "record_number",
    "admitted": "admitted",
    "discharged": "discharged",
}
"""What `--column ROLE=NAME` may name, and the attribute of `NoteColumns`."""
_new = partial(Option, rich_help_panel="New libraries")
_notes = partial(Option, rich_help_panel="Notes of patients")
_Splitter = Annotated[
    SplitterName | None, _new(help="How documents are split: by tokens (default), like MedRAG, or not at all.")
]
_Overlap = Annotated[int, _new(min=0, help="Tokens that neighbouring passages share.")]
_ChunkTokens = Annotated[int | None, _new(min=1, help="Tokens per passage. Default: as many as the encoder reads.")]
_Columns = Annotated[
    list[str] | None,
    _notes(
        metavar="ROLE=NAME",
        help=f"Column of a CSV file (repeatable; MIMIC's are known). Roles: {', '.join(_COLUMN_ROLES)}.",
    ),
]
_TimeFormat = Annotated[str | None, _notes(help="Format of times that are not ISO: %d/%m/%Y %H:%M.")]
_KeepBoilerplate = Annotated[bool, _notes("--keep-boilerplate", help="Keep recurring texts and footers.")]
_KeepSuperseded = Annotated[
    bool, _notes("--keep-superseded", help="Keep documents that others replace (FHIR: status, relatesTo).")
]
_Literature = Annotated[
    bool,
    _notes(
        "--literature",
        help="Take documents without a patient as literature, read with the questions about every patient.",
    ),
]


@command(
    ENCODER,
    CONFIG,
    LOCAL_ONLY,
    examples=[
        "epicrisis library add ~/lib papers/*.jsonl reports/",
        "epicrisis library add ~/pubmed baseline/pubmed26n*.xml.gz retraction_watch.csv",
        "epicrisis library add ~/ward NOTEEVENTS.csv.gz bundle.json",
        "epicrisis library add ~/ward notes.csv --column patient=subject_id --column time=charttime "
        "--column type=note_type --column text=text",
    ],
)
def add(
    library: LibraryPath,
    sources: Annotated[list[Path], Argument(help=_SOURCES)],
    format: Annotated[str | None, Option(help="Read every source as this format.")] = None,
    replace: Annotated[
        bool, Option("--replace", help="Also replace documents of the same id from other files.")
    ] = False,
    splitter: _Splitter = None,
    overlap: _Overlap = 32,
    chunk_tokens: _ChunkTokens = None,
    column: _Columns = None,
    time_format: _TimeFormat = None,
    keep_boilerplate: _KeepBoilerplate = False,
    keep_superseded: _KeepSuperseded = False,
    literature: _Literature = False,
    *,
    flags: Flags,
    json: Json = False,
) -> None:
    """Add documents to a library, which is created if necessary.

    A changed file replaces its own documents; unchanged documents are not encoded again. After an interruption, run the
    same command again: it continues. PubMed's files may be added in any order: the latest revision or deletion of an
    article is used.
    """
    from epicrisis.components import load_ingest_encoder
    from epicrisis.corpus.note_documents import NoteCleaning
    from epicrisis.corpus.note_times import check_time_format
    from epicrisis.corpus.readers import read_sources
    from epicrisis.corpus.removal_log import RemovalLog
    from epicrisis.library.ingest import open_or_create
    from epicrisis.library.splitters import check_notes_fit_window

    settings = flags.settings()
    # The sources may hold notes of patients, and adding them needs no other machine.
    set_local_only(True)
    path = local_path(library)
    columns = _columns(column or (), format)
    if time_format:
        check_time_format(time_format)
    cleaning = NoteCleaning(keep_boilerplate, time_format or "", RemovalLog(keep_texts=True), keep_superseded)
    splitter_name, complete_files = _read_library(path)
    items = read_sources(sources, format, complete_files, columns, cleaning, with_origins=True)
    # The first item is read now, so that wrong arguments fail before a library is created.
    first = list(islice(items, 1))
    ready_made = format == "medcpt"
    encoder, encoder_name = load_ingest_encoder(settings, path, ready_made)
    splitter_name = splitter_name or splitter or "tokens"
    if splitter_name != "tokens" and not ready_made:
        # An encoder that could not read all notes is refused before a library is created.
        recount = dataclasses.replace(cleaning, removal_log=RemovalLog())
        notes = read_sources(sources, format, (), columns, recount, only_notes=True)
        check_notes_fit_window(notes, splitter_name, encoder)
    store = open_or_create(path, encoder, encoder_name, overlap, splitter, ready_made, chunk_tokens)
    report = _add(store, chain(first, items), encoder, cleaning, replace=replace, literature=literature, quiet=json)
    if json:
        show_json(report)
    else:
        say_lines(_report_lines(report, path))
    for remark in report.remarks:
        say(f"note: {remark}", err=True)
    if report.more_remarks:
        say(f"note: {count_noun(report.more_remarks, 'more file')} already in the library, or renamed", err=True)
    say_report_skipped(report)


def _columns(assignments: list[str] | tuple[()], format: str | None) -> NoteColumns | None:
    """Return the columns named by `--column`, or None. Raises InputError for an unknown role."""
    from epicrisis.corpus.note_tables import NoteColumns

    if not assignments:
        return None
    if format not in (None, "notes"):
        raise InputError(f"--column is for --format notes, not for {format}: leave one of them out")
    names: dict[str, str] = {}
    times: list[str] = []
    for assignment in assignments:
        role, _, name = assignment.partition("=")
        if role not in _COLUMN_ROLES or not name:
            raise InputError(
                f"--column {assignment}: write ROLE=NAME, with one of the roles {', '.join(_COLUMN_ROLES)}"
            )
        if role == "time":
            times.append(name)
        else:
            names[_COLUMN_ROLES[role]] = name
    return NoteColumns(time=tuple(times), **names)


def _read_library(path: Path) -> tuple[str | None, list[FileFingerprint]]:
    """Return how the library splits documents, and the files that it holds completely; none without a library."""
    from epicrisis.corpus.reader_base import FileFingerprint
    from epicrisis.library.library import LibraryStore
    from epicrisis.library.manifest import complete_manifest

    manifest = complete_manifest(path)
    if manifest is None:
        return None, []
    with LibraryStore.open(path) as store:
        return manifest.splitter, [FileFingerprint(file.name, file.sha256, file.bytes) for file in store.sources()]


def _add(
    library: LibraryStore,
    items: Iterable[ReaderItem],
    encoder: Encoder,
    cleaning: NoteCleaning,
    *,
    replace: bool,
    literature: bool,
    quiet: bool,
) -> IngestReport:
    """Add the items, check the vectors, and return a report with what was removed from notes."""
    from epicrisis.library.ingest import add_documents, check_vectors
    from epicrisis.models.encoders import PrecomputedEncoder

    def show_progress(progress: IngestProgress) -> None:
        rate = progress.passages / max(progress.seconds, 1e-9)
        status.update(
            f"Adding: {progress.documents} read, {progress.saved} saved, {progress.unchanged} unchanged, "
            f"{count_noun(progress.passages, 'passage')}, {rate:.0f} per second"
        )

    removal_log = cleaning.removal_log
    with library:
        removal_log.write_to(library.path)
        try:
            with open_console(stderr=True, quiet=quiet).status("Adding") as status:
                report = add_documents(
                    library, items, encoder, replace=replace, literature=literature, on_progress=show_progress
                )
            if not isinstance(encoder, PrecomputedEncoder):
                check_vectors(library, encoder)
        finally:
            removal_log.close()
    return dataclasses.replace(report, removed=removal_log.summary() if removal_log.has_sources else None)


def _report_lines(report: IngestReport, path: Path) -> Iterator[str]:
    """Yield the counts of an addition, and what a reader must know about them."""
    yield (
        f"{count_noun(report.added, 'document')} added, {report.replaced} replaced, {report.unchanged} unchanged, "
        f"{report.outdated} older than the library's, {report.deleted} deleted, {report.skipped} skipped; "
        f"{count_noun(report.passages, 'passage')} in {report.seconds:.1f} s"
    )
    if report.statements:
        nameless = f", {report.nameless} of them without a PMID or DOI" if report.nameless else ""
        yield f"{report.statements} entries on retractions, concerns and corrections read{nameless}"
    if report.marked:
        yield f"{count_noun(report.marked, 'document')} of the library received a new mark"
    if report.cut_off:
        yield f"{count_noun(report.cut_off, 'passage')} longer than the encoder reads: dense search misses the end"
    if report.renamed:
        patients = counted(report.renamed, "patient")
        yield f"{patients} with a new name, the same person by birth date and record number"
    if report.removed is not None:
        yield from removed_lines(report.removed, path)
    if report.of_unknown_file:
        yield (
            f"{report.of_unknown_file} of the replaced documents were added by an earlier version, which did not "
            "record their files: they were matched by id"
        )


def removed_lines(removed: RemovalSummary, library: Path) -> Iterator[str]:
    """Yield what was removed from notes, or left out with them."""
    from epicrisis.corpus.removal_log import REMOVAL_LOG_FILE, WHOLE_NOTE_KINDS

    if removed.kinds:
        parts = []
        for name, kind in removed.kinds.items():
            characters, notes = counted(kind.characters, "character"), counted(kind.notes, "note")
            parts.append(f"{name} {characters} of {notes} ({counted(kind.texts, 'text')})")
        line = f"removed: {'; '.join(parts)}; listed in {library / REMOVAL_LOG_FILE}"
        boilerplate = [name for name in removed.kinds if name not in WHOLE_NOTE_KINDS]
        if boilerplate:
            line += f"; --keep-boilerplate keeps: {', '.join(boilerplate)}"
        if "superseded" in removed.kinds:
            line += "; --keep-superseded keeps documents that others replace"
        yield line
    problems = []
    for count, problem in ((removed.without_time, "no time"), (removed.time_not_read, "an unreadable time")):
        if count:
            problems.append(f"{count:,} {'has' if count == 1 else 'have'} {problem}")
    if problems:
        yield f"of {counted(removed.notes, 'note')} {' and '.join(problems)} (--column time=NAME, --time-format)"
    if removed.other_resources:
        others = ", ".join(f"{count} {name}" for name, count in removed.other_resources.items())
        yield f"resources without a note were not read: {others}"
        if {"Patient", "Encounter"} & set(removed.other_resources):
            yield (
                "Patient and Encounter describe notes of the same `library add`: give all files of an export in one "
                "command"
            )


@command(examples=["epicrisis library info ~/lib --json"])
def info(library: LibraryPath, json: Json = False) -> None:
    """Show size, encoder and passages of a library, and whether its parts agree."""
    from epicrisis.library.library import LibraryStore
    from epicrisis.library.patients import holds_patients
    from epicrisis.library.remote_consent import read_remote

    with LibraryStore.open(library) as store:
        report = store.info()
        remote = read_remote(store.path) if holds_patients(store.path) else None
    if json:
        show_json({**to_json(report), "remote": remote})
    else:
        manifest = report.manifest
        splitters = {
            "tokens": f"up to {count_noun(manifest.max_tokens, 'token')}, {manifest.overlap} shared by neighbours",
            "medrag": "1,000 characters, 200 shared (MedRAG)",
            "whole": "whole documents",
        }
        sizes = ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in report.bytes_on_disk.items())
        say(f"{library}: {count_noun(report.documents, 'document')}, {count_noun(report.passages, 'passage')}")
        say(f"encoder: {manifest.encoder_name} ({manifest.dimensions} dimensions), {manifest.encoder_fingerprint}")
        say(f"passages: {splitters[manifest.splitter]}")
        say(f"on disk: {sizes}")
        if report.index is not None:
            say(_index_line(report.index))
        if report.unindexed:
            say(f"{count_noun(report.unindexed, 'passage')} not in the index yet and scanned: run `library optimize`")
        if report.open_batches:
            say("a writer is active, or was stopped: the next `epicrisis library add` completes or removes its work")
        if remote is not None:
            say(_remote_line(remote))
        say("NOT SOUND" if report.problems else "sound")
    if report.problems:
        fail("; ".join(report.problems))


@command(examples=["epicrisis library patients ~/ward"])
def patients(library: LibraryPath, json: Json = False) -> None:
    """List the patients of a library: ids, notes by type, first and last date, hospital stays.

    No text of the notes is shown. Names, birth dates and record numbers are shown if the source has them; --patient
    accepts record numbers as well.
    """
    from epicrisis.library.library import LibraryStore
    from epicrisis.library.patients import Roster

    with LibraryStore.open(library) as store:
        records = tuple(Roster(store).patients().values())
    if json:
        show_json(records)
        return
    for record in records:
        details = [record.name or "", f"born {record.born}" if record.born else ""]
        for number in record.numbers:
            # Before the bar stands the address of the numbering system, which means nothing to a reader.
            details.append(f"number {number.rpartition('|')[2]}")
        identity = ", ".join(filter(None, details))
        dates = "no dates" if record.first is None else f"{record.first} to {record.last}"
        types = ", ".join(f"{count} {name}" for name, count in record.note_types.items())
        say(
            f"{record.id}{f' ({identity})' if identity else ''}: {counted(record.notes, 'note')}, {dates}, "
            f"{counted(record.encounters, 'hospital stay')}{f'; {types}' if types else ''}"
        )
    notes = sum(record.notes for record in records)
    say(f"{counted(len(records), 'patient')}, {counted(notes, 'note')}")


@command(examples=["epicrisis library delete ~/lib pubmed:12377809"])
def delete(
    library: LibraryPath, documents: Annotated[list[str], Argument(help="Ids of the documents.")], json: Json = False
) -> None:
    """Delete documents. Searches in progress no longer return them either.

    When a patient's last note is deleted, name, birth date and record numbers are deleted as well.
    """
    from epicrisis.library.library import LibraryStore
    from epicrisis.library.patients import forget_patients, read_document_patients

    with LibraryStore.open(library, write=True) as store:
        # Opening the library completed a deletion that was killed after its commit.
        existing = {*store.content_hashes(documents), *store.settled_deletions}
        owners = set(filter(None, read_document_patients(store, list(existing)).values()))
        store.delete(documents)
        forget_patients(store, owners)
    deleted = [document for document in documents if document in existing]
    unknown = [document for document in documents if document not in existing]
    if json:
        show_json({"deleted": deleted, "unknown": unknown})
    else:
        say(f"{count_noun(len(deleted), 'document')} deleted")
    if unknown:
        fail(
            f"not in the library: {', '.join(unknown)}. They were deleted before, or the ids are wrong: check them "
            "with `epicrisis search --json`"
        )


@command(examples=["epicrisis library check ~/pubmed --json"])
def check(library: LibraryPath, json: Json = False) -> None:
    """Check texts, ids and vectors of a library, and whether its parts agree.

    Reads everything once: about a minute for a million passages.
    """
    from epicrisis.cli.terminal import open_progress
    from epicrisis.library.health import check_health
    from epicrisis.library.health_report import format_report
    from epicrisis.library.library import LibraryStore

    with LibraryStore.open(library) as store, open_progress(quiet=json) as progress:
        task = progress.add_task("Checking", total=None)
        report = check_health(store, lambda done, total: progress.update(task, completed=done, total=total))
    if json:
        show_json(report)
    else:
        say_lines(format_report(report))
    if report.problems:
        fail(f"{len(report.problems)} problems; they are listed above, with what to do")


@command(examples=["epicrisis library optimize ~/pubmed --recall 0.95"])
def optimize(
    library: LibraryPath,
    recall: Annotated[float, Option(min=0.5, max=1.0, help="Recall@16 that the index must reach.")] = 0.95,
    rebuild: Annotated[bool, Option("--rebuild", help="Build the index even if there is one.")] = False,
    json: Json = False,
) -> None:
    """Join small files, build or refresh the vector index, and measure its recall on the library's own passages."""
    from epicrisis.library.library import LibraryStore

    with LibraryStore.open(library, write=True) as store, open_console(stderr=True, quiet=json).status("") as status:
        report = store.optimize(recall, rebuild=rebuild, on_step=lambda step: status.update(f"Optimizing: {step}"))
    if json:
        show_json({"index": report, "good": report is None or report.good})
    elif report is None:
        say("small enough for exact search: no index needed, recall@16 is 1")
    else:
        say(_index_line(report))
    if report is not None and not report.good:
        fail(
            f"the index does not reach recall {report.asked}, so it is not used: searches stay exact and slower. "
            "Accept a lower recall with --recall, or keep exact search"
        )


@command(examples=["epicrisis library repair ~/lib"])
def repair(library: LibraryPath, json: Json = False) -> None:
    """Rebuild the word index and the list of documents from the passages."""
    from epicrisis.library.library import LibraryStore

    report = LibraryStore.repair(library)
    if json:
        show_json(report)
    else:
        say(f"repaired: {count_noun(report.documents, 'document')}, {count_noun(report.passages, 'passage')}")
    if report.problems:
        fail("; ".join(report.problems))


@command(examples=["epicrisis library forbid-remote ~/ward"])
def forbid_remote(library: LibraryPath, json: Json = False) -> None:
    """Withdraw --allow-remote: the notes of this library stay on this machine again.

    The library keeps the record of what was allowed.
    """
    from epicrisis.library.manifest import read_manifest
    from epicrisis.library.remote_consent import forbid_remote as withdraw
    from epicrisis.library.remote_consent import read_remote

    folder = local_path(library)
    read_manifest(folder)
    withdraw(folder)
    remote = read_remote(folder)
    if json:
        show_json(remote)
    else:
        say(_remote_line(remote))


def _index_line(report: IndexReport) -> str:
    newest = "" if report.filtered_recall is None else f", {report.filtered_recall:.3f} among the newest tenth"
    return (
        f"index: recall@16 {report.recall:.3f}{newest} (required {report.asked}, {report.queries} passages, "
        f"{report.probes} of {report.partitions} partitions searched, {report.measured})"
    )


def _remote_line(remote: RemoteConsent) -> str:
    if not remote.allowed:
        return "patients' notes: sending them to other machines is refused (--allow-remote allows it)"
    hosts = ", ".join(remote.hosts) or "no host yet"
    return (
        f"patients' notes: sending them to other machines is allowed since {remote.since} ({hosts}); "
        "`epicrisis library forbid-remote` withdraws it"
    )
