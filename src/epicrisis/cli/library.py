"""`epicrisis library`: add to one, look at one, mend one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from epicrisis.cli import notes
from epicrisis.cli.common import fail, show_json, translated
from epicrisis.cli.options import Config, EncoderName, Json, LocalOnly
from epicrisis.cli.terminal import open_console, say, say_lines
from epicrisis.types import SplitterName

if TYPE_CHECKING:
    from epicrisis.corpus.note_documents import NoteCleaning
    from epicrisis.corpus.reader_base import FileFingerprint, ReaderItem
    from epicrisis.library.ingest_report import IngestReport
    from epicrisis.library.library import Library
    from epicrisis.library.remote_consent import RemoteConsent
    from epicrisis.library.vector_index import IndexReport
    from epicrisis.protocols import Encoder

library = typer.Typer(no_args_is_help=True, help="Make, fill, look at and mend libraries.")

SKIPPED = 2
_SOURCES = (
    "Files and folders: JSONL, text, Markdown, PDF, HTML, PubMed XML, JATS (nxml), notes as CSV, FHIR (JSON), "
    "Retraction Watch's list (CSV)."
)
LibraryPath = Annotated[Path, typer.Argument(help="The library's folder.")]


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    app.add_typer(library, name="library")


@library.command(
    epilog="Examples: epicrisis library add ~/lib papers/*.jsonl notes/   |   "
    "epicrisis library add ~/pubmed baseline/pubmed26n*.xml.gz   |   "
    "epicrisis library add ~/pubmed --format medcpt chunks/   |   "
    "epicrisis library add ~/pubmed retraction_watch.csv   |   "
    "epicrisis library add ~/books textbooks/ --splitter medrag   |   "
    "epicrisis library add ~/ward NOTEEVENTS.csv.gz bundle.json   |   "
    "epicrisis library add ~/ward notes.csv --format notes --patient subject_id --time charttime --type note_type "
    "--text text --encounter hadm_id --note-id note_id"
)
@translated
def add(
    context: typer.Context,
    path: LibraryPath,
    sources: Annotated[list[Path], typer.Argument(help=_SOURCES)],
    format: Annotated[str | None, typer.Option(help="Take every source as this format.")] = None,
    splitter: Annotated[
        SplitterName | None,
        typer.Option(help="How a new library cuts documents: by the encoder's window, as MedRAG, not."),
    ] = None,
    overlap: Annotated[int, typer.Option(min=0, help="Tokens neighbouring passages share (new libraries).")] = 32,
    chunk_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens of a passage, such as 512; else what the encoder reads (new libraries)."),
    ] = None,
    encoder: EncoderName = None,
    patient: notes.Patient = None,
    time: notes.Time = None,
    type: notes.Type = None,
    text: notes.Text = None,
    encounter: notes.Encounter = None,
    note_id: notes.NoteId = None,
    patient_name: notes.PatientName = None,
    born: notes.BirthDate = None,
    record_number: notes.RecordNumber = None,
    admitted: notes.Admitted = None,
    discharged: notes.Discharged = None,
    time_format: notes.TimeFormat = None,
    keep_boilerplate: notes.KeepBoilerplate = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace documents of the same id that came from other files.")
    ] = False,
    keep_superseded: notes.KeepSuperseded = False,
    literature: notes.Literature = False,
    config: Config = None,
    local_only: LocalOnly = False,
    json: Json = False,
) -> None:
    """Add documents; a new library is made, unchanged documents cost nothing, changed ones are replaced.

    A document replaces only one that came from the same file, unless --replace is given.

    Interrupted, the same command goes on where it stopped. PubMed's files may come in any order: the latest revision
    and the latest deletion count.
    """
    from epicrisis.components import load_ingest_encoder
    from epicrisis.configuration import load_settings
    from epicrisis.corpus.readers import read_sources
    from epicrisis.library.ingest import add_documents, check_vectors, open_or_create
    from epicrisis.models.precomputed_encoder import PrecomputedEncoder
    from epicrisis.privacy import local_path, set_local_only

    settings = load_settings({"encoder": encoder, "local_only": local_only or None}, config)
    # Notes may be among what comes, and nothing of another machine is needed to add it.
    set_local_only(True)
    path = local_path(path)
    columns, treatment = notes.said(context)
    items = _begun(read_sources(sources, format, _known(path), columns, treatment, with_origins=True))
    ready_made = format == "medcpt"
    used, name = load_ingest_encoder(settings, path, ready_made)
    cut_by = _splitter_of(path) or splitter or "tokens"
    if cut_by != "tokens" and not ready_made:
        _check_notes(
            lambda told: read_sources(sources, format, (), columns, told, only_notes=True), treatment, cut_by, used
        )
    made = open_or_create(path, used, name, overlap, splitter, ready_made, chunk_tokens)
    with made as opened, notes.kept(treatment, path):
        if json:
            report = add_documents(opened, items, used, replace=replace, literature=literature)
        else:
            report = _with_progress(opened, items, used, replace, literature)
        if not isinstance(used, PrecomputedEncoder):
            check_vectors(opened, used)
    _tell(
        dataclasses.replace(
            report, removed=treatment.removal_log.summary() if treatment.removal_log.has_sources else None
        ),
        path,
        json,
    )


def _known(path: Path) -> list[FileFingerprint]:
    """The files that the library has whole; none where there is no library yet."""
    from epicrisis.corpus.reader_base import FileFingerprint
    from epicrisis.library.library import Library
    from epicrisis.library.manifest import complete_manifest

    if complete_manifest(path) is None:
        return []
    with Library.open(path) as opened:
        return [FileFingerprint(each.name, each.sha256, each.bytes) for each in opened.sources()]


def _splitter_of(path: Path) -> str | None:
    """How the library cuts documents; `None` where there is none yet."""
    from epicrisis.library.manifest import complete_manifest

    manifest = complete_manifest(path)
    return None if manifest is None else manifest.splitter


def _check_notes(
    again: Callable[[NoteCleaning], Iterator[ReaderItem]], treatment: NoteCleaning, splitter: str, encoder: Encoder
) -> None:
    """Reads the notes once more, before a library is made: raises InputError where the encoder would not read all."""
    from epicrisis.corpus.removal_log import RemovalLog
    from epicrisis.library.splitters import check_notes_fit_window

    check_notes_fit_window(again(dataclasses.replace(treatment, removal_log=RemovalLog())), splitter, encoder)


def _begun(items: Iterator[ReaderItem]) -> Iterator[ReaderItem]:
    """The same items, the first one read already: wrong arguments are told before a library is made."""
    first = next(items, None)
    return chain(() if first is None else (first,), items)


def _with_progress(
    opened: Library, items: Iterator[ReaderItem], encoder: Encoder, replace: bool, literature: bool
) -> IngestReport:
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from epicrisis.library.ingest import add_documents

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=open_console(stderr=True)) as bar:
        task = bar.add_task("Adding", total=None)
        return add_documents(
            opened,
            items,
            encoder,
            replace=replace,
            literature=literature,
            on_progress=lambda now: bar.update(
                task,
                description=f"Adding: {now.documents} read, {now.saved} saved, {now.unchanged} unchanged, "
                f"{now.passages} passages, {now.passages / max(now.seconds, 1e-9):.0f} a second",
            ),
        )


def _tell(report: IngestReport, path: Path, json: bool) -> None:
    if json:
        show_json(report)
    else:
        say_lines(_report_lines(report, path))
    for remark in report.remarks:
        say(f"epicrisis: {remark}", err=True)
    if report.more_remarks:
        say(f"epicrisis: {report.more_remarks} more files were there already, or were named apart", err=True)
    for item in report.first_skipped:
        place = ", ".join(part for part in (item.path, item.where) if part)
        say(f"epicrisis: {place}: {item.reason}", err=True)
    if report.skipped:
        fail(f"{report.skipped} items were skipped, the first ones named above; all others are saved", SKIPPED)


def _report_lines(report: IngestReport, path: Path) -> Iterator[str]:
    """Yield what the addition did: its counts, then what a reader has to know of them."""
    yield (
        f"{report.added} documents added, {report.replaced} replaced, {report.unchanged} unchanged, "
        f"{report.outdated} older than what is there, {report.deleted} deleted, {report.skipped} skipped; "
        f"{report.passages} passages in {report.seconds:.1f} s"
    )
    if report.statements:
        without = f", {report.nameless} of them without a PMID or DOI" if report.nameless else ""
        yield f"{report.statements} entries on retractions, concerns and corrections read{without}"
    if report.marked:
        yield f"{report.marked} documents that were there already are marked anew"
    if report.cut_off:
        yield f"{report.cut_off} passages are longer than the encoder reads: dense search misses their ends"
    if report.renamed:
        patients = notes.counted(report.renamed, "patient")
        yield f"{patients} with another name than before, by birth date and record number the same person"
    if report.removed is not None:
        yield from notes.removed_lines(report.removed, path)
    if report.of_unknown_file:
        yield (
            f"{report.of_unknown_file} of the replaced documents were added by an earlier version, which did not note "
            "their files: they were taken for the same by their ids"
        )


@library.command(epilog="Example: epicrisis library optimize ~/pubmed --recall 0.95")
@translated
def optimize(
    path: LibraryPath,
    recall: Annotated[float, typer.Option(min=0.5, max=1.0, help="The recall@16 asked of the index.")] = 0.95,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Build the index anew even where one is there.")] = False,
    json: Json = False,
) -> None:
    """Join small files, build or refresh the index, and measure its recall on the library's own passages."""
    from rich.status import Status

    from epicrisis.library.library import Library

    with Library.open(path, write=True) as opened, Status("", console=open_console(stderr=True)) as status:
        report = opened.optimize(recall, rebuild=rebuild, on_step=lambda step: status.update(f"Optimizing: {step}"))
    if json:
        show_json({"index": report, "good": report is None or report.good})
    elif report is None:
        say("small enough to be searched exactly: no index needed, recall@16 is 1")
    else:
        say(_index_line(report))
    if report is not None and not report.good:
        fail(
            f"the index does not reach the recall of {report.asked} that was asked: it is not used, searches are exact "
            "and slower; ask for less with --recall, or keep it so",
            SKIPPED,
        )


def _index_line(report: IndexReport) -> str:
    tenth = "" if report.filtered_recall is None else f", {report.filtered_recall:.3f} among the newest tenth"
    return (
        f"index: recall@16 {report.recall:.3f}{tenth} (asked {report.asked}, {report.queries} passages, "
        f"{report.probes} of {report.partitions} partitions probed, {report.measured})"
    )


@library.command(epilog="Example: epicrisis library info ~/lib --json")
@translated
def info(path: LibraryPath, json: Json = False) -> None:
    """What is in a library, how it was encoded, and whether it is sound."""
    from epicrisis.library.library import Library
    from epicrisis.library.patients import holds_patients
    from epicrisis.library.remote_consent import read_remote
    from epicrisis.serialization import to_json

    with Library.open(path) as opened:
        found = opened.info()
        remote = read_remote(opened.path) if holds_patients(opened.path) else None
    if json:
        show_json({**to_json(found), "remote": remote})
    else:
        made = found.manifest
        say(f"{path}: {found.documents} documents, {found.passages} passages")
        say(f"encoder: {made.encoder_name} ({made.dimensions} dimensions), {made.encoder_fingerprint}")
        by_tokens = f"up to {made.max_tokens} tokens, {made.overlap} shared by neighbours"
        cut = {"tokens": by_tokens, "medrag": "1,000 characters, 200 shared (MedRAG)", "whole": "whole documents"}
        say(f"passages: {cut[made.splitter]}")
        sizes = ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in found.bytes_on_disk.items())
        say(f"on disk: {sizes}")
        if found.index is not None:
            say(_index_line(found.index))
        if found.unindexed:
            say(f"{found.unindexed} passages are not in the index yet and are scanned: run `library optimize`")
        if found.open_batches:
            say("a writer is at work, or was stopped: the next `epicrisis library add` settles what it left")
        if remote is not None:
            say(remote_line(remote))
        say("NOT SOUND" if found.problems else "sound")
    if found.problems:
        fail("; ".join(found.problems), SKIPPED)


def remote_line(remote: RemoteConsent) -> str:
    """Whether a library of notes lets other machines see them."""
    if not remote.allowed:
        return "patients' notes: other machines are refused (--allow-remote, said once, allows them)"
    hosts = ", ".join(remote.hosts) or "none named so far"
    return (
        f"patients' notes: other machines allowed since {remote.since} ({hosts}); `library forbid-remote` takes it back"
    )


@library.command(epilog="Example: epicrisis library check ~/pubmed --json")
@translated
def check(path: LibraryPath, json: Json = False) -> None:
    """The health of a library: texts, ids, vectors, whether its parts agree, and where everything came from.

    Reads everything once: a minute or so for a million passages.
    """
    from rich.progress import Progress

    from epicrisis.library.health import check_health as checked
    from epicrisis.library.health_report import format_report
    from epicrisis.library.library import Library

    with Library.open(path) as opened, Progress(console=open_console(stderr=True), disable=json) as bar:
        task = bar.add_task("Checking")
        report = checked(opened, lambda read, all_: bar.update(task, completed=read, total=all_))
    if json:
        show_json(report)
    else:
        say_lines(format_report(report))
    if report.problems:
        fail(f"{len(report.problems)} problems, named above with their cures", SKIPPED)


@library.command(epilog="Example: epicrisis library delete ~/lib pubmed:12377809")
@translated
def delete(
    path: LibraryPath,
    documents: Annotated[list[str], typer.Argument(help="Document ids.")],
    json: Json = False,
) -> None:
    """Delete documents, at once and for searches under way; added again they come back.

    Of a patient without a note name, birth date and record numbers are forgotten, too.
    """
    from epicrisis.library.ingest_patients import read_document_patients
    from epicrisis.library.library import Library
    from epicrisis.library.patients import forget_patients

    with Library.open(path, write=True) as opened:
        # The same command, killed after its commit, was brought to its end by opening the library.
        there = {*opened.content_hashes(documents), *opened.settled_deletions}
        patients = {patient for patient in read_document_patients(opened, list(there)).values() if patient is not None}
        opened.delete(documents)
        forget_patients(opened, patients)
    deleted = [each for each in documents if each in there]
    unknown = [each for each in documents if each not in there]
    if json:
        show_json({"deleted": deleted, "unknown": unknown})
    else:
        say(f"{len(deleted)} documents deleted")
    if unknown:
        fail(
            f"not there: {', '.join(unknown)}: deleted before, or check the ids with `epicrisis search --json`", SKIPPED
        )


@library.command(epilog="Example: epicrisis library repair ~/lib")
@translated
def repair(path: LibraryPath, json: Json = False) -> None:
    """Make the word index and the list of documents anew from the passages."""
    from epicrisis.library.library import Library

    found = Library.repair(path)
    if json:
        show_json(found)
    else:
        say(f"mended: {found.documents} documents, {found.passages} passages")
    if found.problems:
        fail("; ".join(found.problems), SKIPPED)
