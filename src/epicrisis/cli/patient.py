"""`epicrisis patient`: one patient's record in a library."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from epicrisis.cli.access import server_folder
from epicrisis.cli.command import Flags, command, fail
from epicrisis.cli.library_documents import BreakGlass, find_patient, record_reading
from epicrisis.cli.options import ANSWER, LOCAL, Json, LibraryPath
from epicrisis.cli.progress import open_progress
from epicrisis.cli.run_progress import confirm
from epicrisis.cli.terminal import say, show_json
from epicrisis.core.errors import InputError
from epicrisis.core.fact_kinds import KINDS, LASTING_KINDS
from epicrisis.core.printable import agree, count_noun, printable
from epicrisis.core.serialization import to_json
from epicrisis.system.remote_libraries import is_remote

if TYPE_CHECKING:
    from epicrisis.core.types import Passage
    from epicrisis.library.core.patients import PatientRecord
    from epicrisis.operations.forgetting.forgetting import ForgetReport, Places
    from epicrisis.records.patient_chart import ChartCourse, PatientChart
    from epicrisis.settings.settings import Settings

PatientId = Annotated[str, Argument(metavar="PATIENT", help="Id or record number of the patient.")]
Since = Annotated[
    str | None,
    Option(
        "--since",
        metavar="DAY",
        help="Only events since this day, month or year (2150-03), or since the last stay or visit (last-visit).",
    ),
]
FAILED_STATES = frozenset({"failed", "unparsed", "over-window"})
_UNKNOWN_DAY = "no day"


@command(
    examples=["epicrisis patient show ~/ward 10083814", "epicrisis patient show ~/ward 10083814 --since last-visit"]
)
def show(
    library: LibraryPath, patient: PatientId, since: Since = None, break_glass: BreakGlass = None, json: Json = False
) -> None:
    """Show a patient's record at a glance: stays, problems, allergies, medications, and a timeline with its notes.

    Problems and medications come from structured data (FHIR, OMOP, MIMIC, C-CDA). Notes are listed, not interpreted.
    """
    record, chart, passages = _read_record(library, "chart", patient, since, break_glass)
    record_reading(library, "chart", record.id, sorted({passage.document_id for passage in passages}), break_glass)
    if json:
        show_json({"patient": record, **to_json(chart)})
    else:
        _show_chart(record, chart)


def _show_chart(record: PatientRecord, chart: PatientChart) -> None:
    born = f"born {record.born}" if record.born else ""
    identity = ", ".join(filter(None, (record.id, record.name, born)))
    dates = "no dates" if record.first is None else f"{record.first} to {record.last}"
    say(f"{identity}: {count_noun(record.notes, 'document')}, {dates}")
    if not chart.facts:
        say("No structured data: problems, allergies and medications are known from the notes only.")
    for kind in LASTING_KINDS:
        courses = [course for course in chart.courses if course.kind == kind]
        if courses:
            say("")
            say(KINDS[kind].plural.capitalize())
            for course in courses:
                say(f"  {_describe_course(course)}")
    if chart.stays:
        say("")
        say("Hospital stays")
    for stay in chart.stays:
        is_ongoing = stay.first_day and not stay.last_day
        days = f"since {stay.first_day}" if is_ongoing else f"{stay.first_day or '?'} to {stay.last_day or '?'}"
        say(f"  {days}  stay {printable(stay.encounter)}, {count_noun(stay.notes, 'document')}")
    say("")
    say(f"Timeline since {chart.since}" if chart.since else "Timeline")
    day = None
    for event in chart.events:
        event_day = event.time[:10] if event.time else _UNKNOWN_DAY
        label = event_day if event_day != day else ""
        day = event_day
        say(f"  {label:<10}  {printable(event.text)}")
    if not chart.events:
        say("  nothing")


def _describe_course(course: ChartCourse) -> str:
    """Return one line: name, details, state, first and last time, and the number of statements."""
    details = f" {course.details}" if course.details else ""
    why = course.status if course.state == "withdrawn" else course.remark
    state = f" ({course.state}: {why})" if why else f" ({course.state})"
    entries = agree(course.statements, "1 entry", f"{course.statements} entries")
    return printable(f"{course.name}{details}{state}, {_describe_days(course)}, {entries}")


def _describe_days(course: ChartCourse) -> str:
    """Return the first and the last day. What ended on an unknown day, or never was, is not `since` its first."""
    first, end = (course.first or "")[:10], (course.end or "")[:10]
    if first and end:
        return f"{first} to {end}"
    if end:
        return f"until {end}"
    if not first:
        return _UNKNOWN_DAY
    if course.state == "ended":
        return f"from {first}, end unknown"
    return first if course.state == "withdrawn" else f"since {first}"


@command(
    *ANSWER,
    examples=[
        "epicrisis patient summary ~/ward 10083814",
        "epicrisis patient summary ~/ward 10083814 --since last-visit --model http://127.0.0.1:8000/v1#qwen",
    ],
)
def summary(library: LibraryPath, patient: PatientId, since: Since = None, *, flags: Flags, json: Json = False) -> None:
    """Summarize a patient's record problem by problem, each sentence with its citations.

    Problems come from structured data and from the last lists of diagnoses and history. Each is one question, so a
    model is called several times for each. Without --model, the sentences of the record are shown.
    """
    import asyncio

    from epicrisis.cli.event_display import EventDisplay
    from epicrisis.pipeline.patient_summary import ProblemName, SummarySection, list_problems, summarize
    from epicrisis.pipeline.pipeline import Pipeline
    from epicrisis.settings.configuration import check_settings, choose_strategy

    # The questions name no time, and the names of problems may contain one.
    settings, notices = choose_strategy(check_settings(flags.settings({"timeline": False})))
    record, chart, passages = _read_record(library, "summary", patient, since, settings.break_glass)
    documents = sorted({passage.document_id for passage in passages})
    record_reading(library, "summary", record.id, documents, settings.break_glass)
    problems = list_problems(chart, passages)
    if not problems:
        raise InputError(
            "the record names no problem: it has neither structured problems nor a list of diagnoses. Ask a question "
            "about it with `epicrisis ask`"
        )
    display = EventDisplay()
    sections: list[SummarySection] = []

    async def answer_all(problems: Sequence[ProblemName]) -> None:
        async with Pipeline.open(settings, library, notices=notices if json else ()) as pipeline:
            with open_progress(quiet=json) as progress:
                task = progress.add_task("Summarizing", total=len(problems))
                async for section in summarize(pipeline, problems, record.id, chart.since):
                    sections.append(section)
                    progress.advance(task)

    asyncio.run(answer_all(problems))
    if json:
        show_json({"patient": record, "since": chart.since, "sections": sections})
    else:
        # Once, instead of under each problem.
        for notice in notices:
            say(f"note: {notice.message}", err=True)
        for section in sections:
            state = f" ({section.problem.state})" if section.problem.state else ""
            say("")
            say(f"## {printable(section.problem.full_name)}{state}")
            display.show_answer(section.answer)
    failures = [section for section in sections if section.answer.state in FAILED_STATES]
    if failures:
        fail(f"{len(failures)} of {count_noun(len(sections), 'problem')} could not be summarized: the sections say why")


def _read_record(
    library: Path, action: str, patient: str, since: str | None, reason: str | None
) -> tuple[PatientRecord, PatientChart, tuple[Passage, ...]]:
    """Return a patient with the chart and all passages of the record. Raises InputError as `find_patient` does."""
    from epicrisis.core.types import Scope
    from epicrisis.library.core.library_store import LibraryStore
    from epicrisis.records.patient_chart import build_chart

    with LibraryStore.open(library) as store:
        record = find_patient(store, action, patient, reason)
        passages = store.fetch_record(Scope(patient=record.id))
    return record, build_chart(passages, since), passages


@command(
    *LOCAL,
    examples=[
        "epicrisis patient forget ~/ward 10083814",
        "epicrisis patient forget ~/ward 10083814 10083815 --runs runs --folder /srv/epicrisis --yes",
    ],
)
def forget(
    library: LibraryPath,
    patients: Annotated[list[str], Argument(metavar="PATIENT...", help="Ids of the patients.")],
    runs: Annotated[
        list[Path] | None,
        Option("--runs", help="Folder of runs, or file of answers, to clean as well (repeatable). Default: runs."),
    ] = None,
    folder: Annotated[
        Path | None,
        Option(
            "--folder",
            help="Folder of a server to clean as well, or postgresql://OWNER@... of its state. Default: `server` in "
            "the data folder (EPICRISIS_HOME).",
        ),
    ] = None,
    yes: Annotated[bool, Option("--yes", help="Forget them without asking first.")] = False,
    *,
    flags: Flags,
    json: Json = False,
) -> None:
    """Remove patients from a library, its runs and answers, and search all files for them at the end.

    Stop the server first. Notes, words, names, numbers, cached replies, records of runs, answers of the server, logs
    with texts and recorded calls are removed. Files that are only partly about these patients keep the rest. Before it
    asks, the command names what it cannot reach, such as backups. After an interruption, repeat the same command.
    """
    from epicrisis.operations.forgetting.forgetting import find_plan, forget_patients, list_outside
    from epicrisis.privacy.record_access import find_user
    from epicrisis.privacy.user_rights import find_rights

    rights = find_rights(library, flags.settings().home, find_user().account)
    if rights is not None:
        rights.require_administrator()
    places = _list_places(library, flags.settings(), runs, folder)
    say(f"note: not reached by this command: {'; '.join(list_outside(library, places))}", err=True)
    if find_plan(library) is None:
        names = ", ".join(str(place) for place in places.all) or "no folder of runs or of a server"
        question = f"forget {count_noun(len(set(patients)), 'patient')} in {library} for good (also in: {names})?"
        confirm(None if yes else question, "nothing was removed")
    with open_progress("step", quiet=json, transient=True) as progress:
        task = progress.add_task("Forgetting", total=None, step="")
        reader = find_user()
        report = forget_patients(library, patients, places, reader, lambda step: progress.update(task, step=step))
    if json:
        show_json(report)
    else:
        _show(report)
    if not report.is_clean:
        fail(
            "something of these patients is left, as listed above: remove it and repeat the command, which then "
            "searches again"
        )


def _list_places(library: Path, settings: Settings, runs: list[Path] | None, folder: Path | None) -> Places:
    """Return the folders and files to clean outside of the library."""
    from epicrisis.library.core.library_parts import REPLIES
    from epicrisis.operations.forgetting.forgetting import Places
    from epicrisis.privacy.record_access import locate_outside_log

    run_paths = [path.expanduser() for path in runs or ()]
    for path in run_paths:
        if not path.exists():
            raise InputError(f"there is no {path} to clean: correct --runs, or leave it out")
    paths = [Path("runs")] if runs is None else run_paths
    paths += [path for path in (settings.log, settings.record, settings.cache.path, settings.home / REPLIES) if path]
    existing = [path.expanduser() for path in paths if path.expanduser().exists()]
    server = server_folder(folder).expanduser()
    has_server = server.is_dir() or is_remote(server)
    if folder is not None and not has_server:
        raise InputError(f"there is no folder of a server at {folder}: correct --folder, or leave it out")
    log = locate_outside_log(library.absolute(), settings.home)
    return Places(tuple(existing), server if has_server else None, log if log.is_file() else None)


def _show(report: ForgetReport) -> None:
    say(f"{count_noun(report.patients, 'patient')} forgotten, {count_noun(report.documents, 'note')} removed")
    if report.lines or report.files:
        say(
            f"also removed: {count_noun(report.lines, 'line')} of records and logs, and "
            f"{count_noun(len(report.files), 'file')} deleted or shortened"
        )
    if report.log_entries:
        say(f"entries of access logs that name a pseudonym now: {report.log_entries:,}")
    say(
        f"{count_noun(report.scanned, 'file')} searched for {count_noun(report.names, 'name')} and "
        f"{count_noun(report.windows, 'window')} of text: {'nothing found' if report.is_clean else 'NOT CLEAN'}"
    )
    if report.shared:
        say(f"{count_noun(report.shared, 'name')} or windows are not searched for: other records contain them too")
    for match in report.remaining:
        remainder = (
            match.unreadable or f"{count_noun(match.names, 'name')}, {count_noun(match.texts, 'window')} of text"
        )
        say(f"  {match.path}: {remainder}")
    for problem in report.problems:
        say(f"  {problem}")
