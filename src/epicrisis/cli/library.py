"""`epicrisis library`: look at a library and maintain it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from epicrisis.cli.command import command, fail
from epicrisis.cli.library_documents import BreakGlass, find_file_documents, record_reading
from epicrisis.cli.options import Json, LibraryPath, parse_library
from epicrisis.cli.progress import open_progress
from epicrisis.cli.run_progress import confirm
from epicrisis.cli.terminal import counted, say, say_lines, show_json, show_report
from epicrisis.core.printable import count_noun, printable
from epicrisis.core.serialization import to_json
from epicrisis.system.local_only import local_path
from epicrisis.system.remote_libraries import show_library

if TYPE_CHECKING:
    from epicrisis.library.base.remote_consent import RemoteConsent
    from epicrisis.library.engines.index_recall import IndexReport

_NAMED_IDS = 10
"""Deleted documents named on the screen."""


@command(examples=["epicrisis library info ~/lib --json"])
def info(library: LibraryPath, json: Json = False) -> None:
    """Show size, encoder and passages of a library, and whether its parts agree."""
    from epicrisis.library.base.remote_consent import read_remote
    from epicrisis.library.core.library_store import LibraryStore
    from epicrisis.library.core.patients import holds_patients
    from epicrisis.library.engines.vector_search import OUTGROWN

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
        documents, passages = count_noun(report.documents, "document"), count_noun(report.passages, "passage")
        say(f"{show_library(library)}: {documents}, {passages}")
        say(f"encoder: {manifest.encoder_name} ({manifest.dimensions} dimensions), {manifest.encoder_fingerprint}")
        say(f"passages: {splitters[manifest.splitter]}")
        say(f"on disk: {sizes}")
        if report.index is not None:
            say(_index_line(report.index))
        if report.unindexed:
            say(f"{count_noun(report.unindexed, 'passage')} not in the index yet and scanned: run `library optimize`")
        if report.outgrown:
            say(OUTGROWN)
        if report.open_batches:
            say("a writer is active, or was stopped: the next `epicrisis library add` completes or removes its work")
        if remote is not None:
            say(_remote_line(remote))
        say("NOT SOUND" if report.problems else "sound")
    if report.problems:
        fail("; ".join(report.problems))


@command(examples=["epicrisis library patients ~/ward"])
def patients(library: LibraryPath, break_glass: BreakGlass = None, json: Json = False) -> None:
    """List the patients of a library: ids, notes by type, first and last date, hospital stays.

    No text of the notes is shown. Names, birth dates and record numbers are shown if the source has them; --patient
    accepts record numbers as well.
    """
    from epicrisis.library.core.library_store import LibraryStore
    from epicrisis.library.core.patients import Roster

    with LibraryStore.open(library) as store:
        records = tuple(Roster(store).patients().values())
    if records:
        record_reading(library, "patients", None, reason=break_glass)
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


@command(
    examples=["epicrisis library delete ~/lib pubmed:12377809", "epicrisis library delete ~/lib --file papers/old.pdf"]
)
def delete(
    library: LibraryPath,
    documents: Annotated[list[str] | None, Argument(help="Ids of the documents.")] = None,
    file: Annotated[Path | None, Option("--file", help="Delete all documents of this file.")] = None,
    yes: Annotated[bool, Option("--yes", help="Delete the documents of a file without asking first.")] = False,
    json: Json = False,
) -> None:
    """Delete documents, by id or by file. Searches in progress no longer return them either.

    When a patient's last note is deleted, name, birth date and record numbers are deleted as well.
    """
    from epicrisis.library.core.journal import open_journal
    from epicrisis.library.core.library_store import LibraryStore
    from epicrisis.library.core.patients import delete_documents, read_document_patients

    if bool(documents) == (file is not None):
        fail("give either ids of documents, or --file with one file")
    with LibraryStore.open(library, write=True) as store:
        ids = documents or []
        if file is not None:
            ids = find_file_documents(store, file)
            confirm(None if yes else _ask_deletion(file, read_document_patients(store, ids)), "no document was deleted")
        existing = delete_documents(store, ids)
        if file is not None:
            with open_journal(store.path) as journal:
                journal.forget_sources(journal.sources_of_file(os.path.realpath(file.expanduser())))
    deleted = [document for document in ids if document in existing]
    unknown = [document for document in ids if document not in existing]
    if json:
        show_json({"deleted": deleted, "unknown": unknown})
    else:
        of_file = f" of {file}" if file is not None else ""
        say(f"{count_noun(len(deleted), 'document')}{of_file} deleted")
        if file is not None:
            say_lines(deleted[:_NAMED_IDS])
            if len(deleted) > _NAMED_IDS:
                say(f"and {len(deleted) - _NAMED_IDS:,} more (--json lists all)")
    if unknown:
        fail(
            f"not in the library: {', '.join(unknown)}. They were deleted before, or the ids are wrong: check them "
            "with `epicrisis library list --documents`"
        )


def _ask_deletion(file: Path, patients: Mapping[str, str | None]) -> str:
    """Return the question before the documents of a file are deleted. `patients` maps each to its patient, if any."""
    owners = set(filter(None, patients.values()))
    notes = f", notes of {count_noun(len(owners), 'patient')}" if owners else ""
    return f"delete {count_noun(len(patients), 'document')} of {printable(str(file))}{notes}. Go on?"


@command(examples=["epicrisis library check ~/pubmed --json"])
def check(library: LibraryPath, json: Json = False) -> None:
    """Check texts, ids and vectors of a library, and whether its parts agree.

    Reads everything once: about a minute for a million passages.
    """
    from epicrisis.library.core.library_store import LibraryStore
    from epicrisis.library.write.health import check_health
    from epicrisis.library.write.health_report import format_report

    with LibraryStore.open(library) as store, open_progress(quiet=json) as progress:
        task = progress.add_task("Checking", total=None)
        report = check_health(store, lambda done, total: progress.update(task, completed=done, total=total))
    show_report(report, format_report(report), json=json)
    if report.problems:
        fail(f"{len(report.problems)} problems; they are listed above, with what to do")


@command(examples=["epicrisis library optimize ~/pubmed --recall 0.95"])
def optimize(
    library: LibraryPath,
    recall: Annotated[float, Option(min=0.5, max=1.0, help="Recall@16 that the index must reach.")] = 0.95,
    rebuild: Annotated[bool, Option("--rebuild", help="Build the index even if there is one.")] = False,
    purge: Annotated[
        bool, Option("--purge", help="Write all files anew, so that nothing of deleted documents stays in them.")
    ] = False,
    json: Json = False,
) -> None:
    """Join small files, build or refresh the vector index, and measure its recall on the library's own passages."""
    from epicrisis.library.base.remote_store import check_in_folder
    from epicrisis.library.core.library_store import LibraryStore
    from epicrisis.library.engines.vector_search import OUTGROWN

    if purge:
        check_in_folder(library, "library optimize --purge", "the owner of the database runs VACUUM FULL")
    with LibraryStore.open(library, write=True) as store, open_progress("step", quiet=json, transient=True) as progress:
        task = progress.add_task("Optimizing", total=None, step="")
        if purge:
            store.purge(lambda step: progress.update(task, step=step))
        report = store.optimize(recall, rebuild=rebuild, on_step=lambda step: progress.update(task, step=step))
        state = store.info()
    if purge and not json:
        say("all files written anew: nothing of deleted documents is left in them")
    if json:
        show_json({"index": report, "good": report is None or report.good})
    elif state.outgrown:
        say(OUTGROWN)
    elif report is None and not state.exact:
        say("the literature is small enough for exact search, and a patient's notes are: recall@16 is 1")
    elif report is None:
        say("small enough for exact search: no index needed, recall@16 is 1")
    else:
        say(_index_line(report))
    if report is not None and not report.good:
        fail(
            f"the index does not reach recall {report.asked}, so {report.effect_below_recall}: build it anew "
            "with --rebuild, or accept a lower recall with --recall"
        )


@command(
    examples=[
        "epicrisis library copy ~/pubmed postgresql://library_owner@db.example.org/pubmed",
        "epicrisis library copy postgresql://library_owner@db.example.org/pubmed ~/pubmed-copy",
    ]
)
def copy(
    source: Annotated[Path, Argument(metavar="SOURCE", parser=parse_library, help="The library: folder or URL.")],
    destination: Annotated[
        Path, Argument(metavar="DESTINATION", parser=parse_library, help="New folder or URL, or an earlier copy.")
    ],
    break_glass: BreakGlass = None,
    json: Json = False,
) -> None:
    """Copy a library into a database, bucket or folder, and compare both at the end. No passage is encoded again.

    After an interruption, run the same command again: it continues. Later calls bring the copy up to date.
    """
    from epicrisis.library.core.patients import holds_patients
    from epicrisis.library.write.copying import copy_library

    if holds_patients(source):
        record_reading(source, "copy", None, reason=break_glass)
    with open_progress("step", quiet=json, transient=True) as progress:
        task = progress.add_task("Copying", total=None, step="")
        report = copy_library(
            source,
            destination,
            lambda done, total, step: progress.update(task, completed=done, total=total, step=step),
        )
    if json:
        show_json(report)
    else:
        documents, passages = count_noun(report.documents, "document"), count_noun(report.passages, "passage")
        say(f"{show_library(destination)}: {documents}, {passages}, the same as {show_library(source)}")
        say(f"{report.copied} copied and {report.deleted} deleted in {report.seconds:.1f} s")


@command(examples=["epicrisis library repair ~/lib"])
def repair(library: LibraryPath, json: Json = False) -> None:
    """Rebuild the word index and the list of documents from the passages."""
    from epicrisis.library.core.repair import repair_library

    report = repair_library(library)
    show_report(
        report,
        [f"repaired: {count_noun(report.documents, 'document')}, {count_noun(report.passages, 'passage')}"],
        json=json,
    )
    if report.problems:
        fail("; ".join(report.problems))


@command(examples=["epicrisis library forbid-remote ~/ward"])
def forbid_remote(library: LibraryPath, json: Json = False) -> None:
    """Withdraw the permission of --allow-remote: notes of this library stay on this machine.

    The library keeps the record of what was allowed.
    """
    from epicrisis.library.base.manifest import read_manifest
    from epicrisis.library.base.remote_consent import forbid_remote as withdraw
    from epicrisis.library.base.remote_consent import read_remote

    folder = local_path(library)
    read_manifest(folder)
    withdraw(folder)
    remote = read_remote(folder)
    show_report(remote, [_remote_line(remote)], json=json)


def _index_line(report: IndexReport) -> str:
    newest = "" if report.filtered_recall is None else f", {report.filtered_recall:.3f} among the newest tenth"
    return (
        f"index: recall@16 {report.recall:.3f}{newest} (required {report.asked}, {report.queries} passages, "
        f"{report.parameters}, {report.measured})"
    )


def _remote_line(remote: RemoteConsent) -> str:
    if not remote.allowed:
        return "patients' notes: sending them to other machines is refused (--allow-remote allows it)"
    hosts = ", ".join(remote.hosts) or "no host yet"
    return (
        f"patients' notes: sending them to other machines is allowed since {remote.since} ({hosts}); "
        "`epicrisis library forbid-remote` withdraws it"
    )


_UNUSUAL_NOTES = 5
"""Short notes, with one unusual identifier each, for one long note: each kind needs two hundred of them."""


@command(examples=["epicrisis library measure-deidentification ~/ward"])
def measure_deidentification(
    library: LibraryPath,
    notes: Annotated[
        int, Option("--notes", min=100, max=100_000, help="Long notes to generate, and five short ones for each.")
    ] = 2000,
    draw: Annotated[int, Option("--draw", help="Seed of the notes.")] = 0,
    json: Json = False,
) -> None:
    """Measure how many identifiers of generated notes are found, by kind, and record it for `ask --deidentify`.

    The worst kind decides. No note of the library is read. The notes are fictional, so real notes may have forms that
    they lack.
    """
    from epicrisis.evaluation.synthesis.deidentification_recall import (
        count_recall,
        count_unusual_recall,
        make_measurement,
    )
    from epicrisis.library.core.library_store import LibraryStore
    from epicrisis.privacy.deidentification.library_files import write_measurement
    from epicrisis.privacy.deidentification.presidio import load_recognizers

    load_recognizers()
    with LibraryStore.open(library) as store:
        folder = store.path
    unusual = count_unusual_recall(_UNUSUAL_NOTES * notes, draw, "held-out")
    measurement = make_measurement(count_recall(notes, draw), unusual)
    write_measurement(folder, measurement)
    if json:
        show_json({**measurement.model_dump(), "worst_kind": measurement.worst_kind})
        return
    for kind, row in sorted(measurement.kinds.items()):
        counts = f"{row.planted:7,} planted  {row.missed:5,} missed"
        say(f"{kind:44} {counts}  recall {row.recall:.4f} (at least {row.lower:.4f})")
    for kind, row in measurement.not_required.items():
        say(f"{kind}: not reached and not required, recall {row.recall:.4f} of {row.planted:,}")
    worst = measurement.kinds[measurement.worst_kind]
    say(
        f"worst kind, {measurement.worst_kind}: recall {worst.recall:.4f}, at least {worst.lower:.4f} with 95 % "
        f"confidence; precision {measurement.precision:.4f}; {measurement.notes_with_leak:,} of "
        f"{measurement.notes:,} notes with a leak"
    )
    say(f"recorded for {folder}: `ask --deidentify` accepts up to {worst.lower:.4f}")
