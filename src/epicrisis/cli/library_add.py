"""`epicrisis library add`: read files, add their documents to a library, and say what was read and skipped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from epicrisis.cli.command import Flags, command
from epicrisis.cli.fetched_sources import (
    Dois,
    FhirCredentialsFile,
    FhirGroup,
    FhirOrigins,
    FhirServer,
    FhirSince,
    FullText,
    Limit,
    Pmids,
    Searches,
    exported_records,
    fetch_items,
    read_request,
)
from epicrisis.cli.library_watch import watch_folders
from epicrisis.cli.options import ALLOW_REMOTE, CONFIG, ENCODER, LOCAL_ONLY, SETTING, Cluster, Json, LibraryPath
from epicrisis.cli.progress import describe_counts, show_ingest
from epicrisis.cli.run_progress import say_remarks, say_report_skipped
from epicrisis.cli.terminal import counted, show_report
from epicrisis.core.errors import InputError
from epicrisis.core.printable import agree, count_noun, printable
from epicrisis.core.types import SplitterName
from epicrisis.system.local_only import local_path, set_local_only

if TYPE_CHECKING:
    from epicrisis.corpus.base.removal_log import RemovalSummary
    from epicrisis.corpus.records.note_tables import NoteColumns
    from epicrisis.library.write.ingest_batches import IngestReport
    from epicrisis.models.cluster import ClusterAddress

_SHOWN_PATIENTS = 10
_SHOWN_FILES = 5
_SOURCES = (
    "Files and folders: PDF, Word (docx), PowerPoint (pptx), Excel (xlsx, xls), OpenDocument (odt, odp, ods), RTF, "
    "HTML, text, Markdown, JSONL, PubMed XML, JATS (nxml), references (nbib, RIS, BibTeX, CSL-JSON), Zotero's folder, "
    "notes as CSV, FHIR (JSON), C-CDA, HL7 v2, tables of OMOP and MIMIC (CSV, Parquet), Retraction Watch's list (CSV). "
    "Word, PowerPoint, RTF, odt, odp need the extra `office`."
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
_Collection = Annotated[
    str, Option(metavar="NAME", help="Of Zotero's library, read this collection and those below it alone.")
]
_Watch = Annotated[
    bool,
    Option("--watch", help="Go on adding files of the folders as they appear or change, until Ctrl-C."),
]


@command(
    ENCODER,
    SETTING,
    CONFIG,
    LOCAL_ONLY,
    ALLOW_REMOTE,
    examples=[
        "epicrisis library add ~/lib papers/*.jsonl reports/",
        "epicrisis library add ~/lib zotero-export/    # PDFs and the .bib or .ris file that describes them",
        "epicrisis library add ~/lib ~/Zotero --collection Preeclampsia",
        "epicrisis library add ~/pubmed baseline/pubmed26n*.xml.gz retraction_watch.csv",
        "epicrisis library add ~/ward NOTEEVENTS.csv.gz bundle.json",
        "epicrisis library add ~/ward notes.csv --column patient=subject_id --column time=charttime "
        "--column type=note_type --column text=text",
        "epicrisis library add ~/lib --pmid 12377809 --doi 10.1056/NEJMoa1715274 --search 'aspirin preeclampsia'",
        "epicrisis library add ~/lib --watch ~/papers",
        "epicrisis library add ~/ward --fhir-server https://fhir.example.org/r4 --fhir-credentials client.json",
        "epicrisis library add ~/pubmed baseline/pubmed26n*.xml.gz --on ray://head.example.org:10001",
    ],
)
def add(
    library: LibraryPath,
    sources: Annotated[list[Path] | None, Argument(help=_SOURCES)] = None,
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
    pmid: Pmids = None,
    doi: Dois = None,
    search: Searches = None,
    limit: Limit = 100,
    full_text: FullText = False,
    collection: _Collection = "",
    fhir_server: FhirServer = "",
    fhir_credentials: FhirCredentialsFile = None,
    fhir_group: FhirGroup = "",
    fhir_since: FhirSince = "",
    fhir_origin: FhirOrigins = None,
    watch: _Watch = False,
    on: Cluster = None,
    *,
    flags: Flags,
    json: Json = False,
) -> None:
    """Add documents to a library, which is created if necessary.

    A changed file replaces its own documents; unchanged documents are not encoded again. After an interruption, run the
    same command again: it continues. PubMed's files may be added in any order: the latest revision or deletion of an
    article is used.
    """
    from epicrisis.corpus.base.note_times import check_time_format
    from epicrisis.corpus.base.removal_log import RemovalLog
    from epicrisis.corpus.records.note_documents import NoteCleaning
    from epicrisis.pipeline.additions import AddOptions, add_files

    settings, path = flags.settings(), local_path(library)
    request = read_request(pmid or (), doi or (), search or (), limit, full_text)
    _check_sources(sources, collection, is_fetching=request is not None or bool(fhir_server), watch=watch, on=on)
    articles = fetch_items(settings, path, request, quiet=json) if request is not None else []
    if time_format:
        check_time_format(time_format)
    options = AddOptions(
        format=format,
        replace=replace,
        splitter=splitter,
        overlap=overlap,
        chunk_tokens=chunk_tokens,
        literature=literature,
        columns=_columns(column or (), format),
        collection=collection,
        cluster=on,
        cleaning=NoteCleaning(keep_boilerplate, time_format or "", RemovalLog(keep_texts=True), keep_superseded),
    )
    with exported_records(
        settings, fhir_server, fhir_credentials, fhir_group, fhir_since, fhir_origin or ()
    ) as records:
        # The sources may hold notes of patients, and adding them needs no other machine.
        set_local_only(True)
        files = [*(sources or ()), *records]
        if watch:
            watch_folders(settings, path, files, options, json=json)
            return
        with show_ingest("Adding", quiet=json) as display:
            report = add_files(settings, path, files, options, display.show, files=display.files, documents=articles)
    _show_report(report, path, json)


def _check_sources(
    sources: list[Path] | None, collection: str, *, is_fetching: bool, watch: bool, on: ClusterAddress | None
) -> None:
    """Raise InputError for sources and options that do not fit each other."""
    if not sources and not is_fetching:
        raise InputError("nothing to add: give files or folders, or --pmid, --doi, --search or --fhir-server")
    if collection and not sources:
        raise InputError("--collection takes Zotero's folder: epicrisis library add LIBRARY ~/Zotero --collection NAME")
    if watch and is_fetching:
        raise InputError("--watch takes folders alone: add what is fetched with a command of its own")
    if watch and on is not None:
        raise InputError("--watch adds a few files at a time: leave out --on")


def _show_report(report: IngestReport, path: Path, json: bool) -> None:
    """Show additions, remarks, and skipped items. End the command with an error if nothing was read."""
    show_report(report, _report_lines(report, path), json=json)
    say_remarks(report)
    say_report_skipped(report, path)


def _columns(assignments: list[str] | tuple[()], format: str | None) -> NoteColumns | None:
    """Return the columns named by `--column`, or None. Raises InputError for an unknown role."""
    from epicrisis.corpus.records.note_tables import NoteColumns

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


def _report_lines(report: IngestReport, path: Path) -> Iterator[str]:
    """Yield the counts of an addition, and what a reader must know about them."""
    from epicrisis.library.engines.vector_search import OUTGROWN

    counts = {
        "replaced": report.replaced,
        "unchanged": report.unchanged,
        "older than the library's": report.outdated,
        "deleted": report.deleted,
        "skipped": report.skipped,
    }
    line = describe_counts(report.added, counts)
    yield f"{line}; {count_noun(report.passages, 'passage')} in {report.seconds:.1f} s"
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
    if report.earlier_facts:
        facts = counted(report.earlier_facts, "structured fact")
        yield f"{facts} of earlier exports of the same days stay, as this one does not state them"
    if report.joined:
        pairs = [f"{printable(alias)} is {printable(patient)}" for alias, patient in report.joined[:_SHOWN_PATIENTS]]
        rest = f" and {len(report.joined) - len(pairs):,} more" if len(report.joined) > len(pairs) else ""
        patients = counted(len(report.joined), "patient")
        names = f"{', '.join(pairs)}{rest}"
        yield f"{patients} of the library recognised by a record number and the birth date or name: {names}"
    yield from _gone_lines(report.gone, path)
    if report.removed is not None:
        yield from removed_lines(report.removed, path)
    if report.outgrown:
        yield OUTGROWN


def _gone_lines(gone: Sequence[str], path: Path) -> Iterator[str]:
    """Yield which files of the added folders are no longer there."""
    if gone:
        names = ", ".join(map(printable, gone[:_SHOWN_FILES]))
        others = f" and {len(gone) - _SHOWN_FILES:,} more" if len(gone) > _SHOWN_FILES else ""
        stay = f"{agree(len(gone), 'its', 'their')} documents stay: `epicrisis library delete {path} --file FILE`"
        yield f"{count_noun(len(gone), 'file')} no longer there ({names}{others}); {stay} removes them"


def _fact_counts(removed: RemovalSummary) -> Iterator[str]:
    """Yield how many structured facts were read, and what they lack."""
    if removed.facts:
        counts = ", ".join(f"{count:,} {kind}" for kind, count in removed.facts.items())
        yield f"structured facts: {counts}"
    if removed.fact_problems:
        problems = ", ".join(f"{count:,} {problem}" for problem, count in removed.fact_problems.items())
        yield f"of structured data: {problems}"


def removed_lines(removed: RemovalSummary, library: Path) -> Iterator[str]:
    """Yield what was removed from notes, or left out with them."""
    from epicrisis.corpus.base.removal_log import FILE_KINDS, REMOVAL_LOG_FILE, WHOLE_NOTE_KINDS

    if removed.kinds:
        parts = []
        for name, kind in removed.kinds.items():
            noun = "file" if name in FILE_KINDS else "note"
            characters, notes = counted(kind.characters, "character"), counted(kind.notes, noun)
            parts.append(f"{name} {characters} of {notes} ({counted(kind.texts, 'text')})")
        line = f"removed: {'; '.join(parts)}; listed in {library / REMOVAL_LOG_FILE}"
        boilerplate = [name for name in removed.kinds if name not in WHOLE_NOTE_KINDS | FILE_KINDS]
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
    yield from _fact_counts(removed)
    if removed.other_resources:
        others = ", ".join(f"{count} {name}" for name, count in removed.other_resources.items())
        yield f"resources without a note were not read: {others}"
        if {"Patient", "Encounter"} & set(removed.other_resources):
            yield (
                "Patient and Encounter describe notes of the same `library add`: give all files of an export in one "
                "command"
            )
