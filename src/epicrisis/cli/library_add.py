"""`epicrisis library add`: read files, add their documents to a library, and say what was read and skipped."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from epicrisis.cli.command import Flags, command
from epicrisis.cli.ingest_progress import IngestDisplay, show_ingest
from epicrisis.cli.options import CONFIG, ENCODER, LOCAL_ONLY, Json, LibraryPath
from epicrisis.cli.run_progress import say_report_skipped
from epicrisis.cli.terminal import counted, say, say_lines, show_json
from epicrisis.errors import InputError
from epicrisis.printable import count_noun
from epicrisis.privacy import local_path, set_local_only
from epicrisis.types import SplitterName

if TYPE_CHECKING:
    from epicrisis.corpus.note_documents import NoteCleaning
    from epicrisis.corpus.note_tables import NoteColumns
    from epicrisis.corpus.reader_base import FileFingerprint, ReaderItem
    from epicrisis.corpus.removal_log import RemovalSummary
    from epicrisis.library.ingest_batches import IngestReport
    from epicrisis.library.library import LibraryStore
    from epicrisis.protocols import Encoder
    from epicrisis.settings import Settings

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
    from epicrisis.corpus.note_documents import NoteCleaning
    from epicrisis.corpus.note_times import check_time_format
    from epicrisis.corpus.removal_log import RemovalLog

    settings = flags.settings()
    # The sources may hold notes of patients, and adding them needs no other machine.
    set_local_only(True)
    if time_format:
        check_time_format(time_format)
    addition = Addition(
        settings=settings,
        path=local_path(library),
        format=format,
        columns=_columns(column or (), format),
        cleaning=NoteCleaning(keep_boilerplate, time_format or "", RemovalLog(keep_texts=True), keep_superseded),
        replace=replace,
        literature=literature,
        splitter=splitter,
        overlap=overlap,
        chunk_tokens=chunk_tokens,
    )
    with show_ingest("Adding", quiet=json) as display:
        report = addition.run(sources, display)
    show_report(report, addition.path, json=json)


@dataclass(frozen=True)
class Addition:
    """What `library add` adds to which library, and how."""

    settings: Settings
    path: Path
    format: str | None
    columns: NoteColumns | None
    cleaning: NoteCleaning
    replace: bool
    literature: bool
    splitter: SplitterName | None
    overlap: int
    chunk_tokens: int | None

    def run(self, sources: Sequence[Path], display: IngestDisplay) -> IngestReport:
        """Add the documents of files and folders to the library, which is created if necessary."""
        from epicrisis.components import load_ingest_encoder
        from epicrisis.corpus.readers import read_sources
        from epicrisis.library.ingest import open_or_create

        splitter, complete_files = _read_library(self.path)
        read = partial(read_sources, sources, self.format, columns=self.columns)
        items = read(complete_files, cleaning=self.cleaning, with_origins=True, progress=display.files)
        # The first item is read now, so that wrong arguments fail before a library is created.
        first = list(islice(items, 1))
        is_encoded = self.format == "medcpt"
        encoder, encoder_name = load_ingest_encoder(self.settings, self.path, is_encoded)
        splitter = splitter or self.splitter or "tokens"
        if splitter != "tokens" and not is_encoded:
            self._check_notes(sources, splitter, encoder)
        store = open_or_create(
            self.path, encoder, encoder_name, self.overlap, self.splitter, is_encoded, self.chunk_tokens
        )
        return self._add(store, chain(first, items), encoder, display)

    def _check_notes(self, sources: Sequence[Path], splitter: str, encoder: Encoder) -> None:
        """Refuse an encoder that cannot read all notes, before a library is created."""
        from epicrisis.corpus.readers import read_sources
        from epicrisis.corpus.removal_log import RemovalLog
        from epicrisis.library.splitters import check_notes_fit_window

        recount = dataclasses.replace(self.cleaning, removal_log=RemovalLog())
        notes = read_sources(sources, self.format, (), self.columns, recount, only_notes=True)
        check_notes_fit_window(notes, splitter, encoder)

    def _add(
        self, library: LibraryStore, items: Iterable[ReaderItem], encoder: Encoder, display: IngestDisplay
    ) -> IngestReport:
        """Add the items, check the vectors, and return a report with what was removed from notes."""
        from epicrisis.library.ingest import add_documents, check_vectors
        from epicrisis.models.encoders import PrecomputedEncoder

        removal_log = self.cleaning.removal_log
        with library:
            removal_log.write_to(library.path)
            try:
                report = add_documents(
                    library,
                    items,
                    encoder,
                    replace=self.replace,
                    literature=self.literature,
                    on_progress=display.show,
                )
                if not isinstance(encoder, PrecomputedEncoder):
                    check_vectors(library, encoder)
            finally:
                removal_log.close()
        return dataclasses.replace(report, removed=removal_log.summary() if removal_log.has_sources else None)


def show_report(report: IngestReport, path: Path, *, json: bool) -> None:
    """Show what was added, remarks, and what was skipped. End the command with an error if nothing was read."""
    if json:
        show_json(report)
    else:
        say_lines(_report_lines(report, path))
    for remark in report.remarks:
        say(f"note: {remark}", err=True)
    if report.more_remarks:
        say(f"note: {count_noun(report.more_remarks, 'more file')} already in the library, or renamed", err=True)
    say_report_skipped(report, path)


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
