"""`epicrisis patient`: one patient's record in a library."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from epicrisis.cli.command import Flags, command, fail
from epicrisis.cli.library_documents import BreakGlass, find_patient, record_reading
from epicrisis.cli.options import ANSWER, Json, LibraryPath
from epicrisis.cli.progress import open_progress
from epicrisis.cli.terminal import say, show_json
from epicrisis.core.errors import InputError
from epicrisis.core.fact_kinds import KINDS, LASTING_KINDS
from epicrisis.core.printable import agree, count_noun, printable
from epicrisis.core.serialization import to_json

if TYPE_CHECKING:
    from epicrisis.core.types import Passage
    from epicrisis.library.patients import PatientRecord
    from epicrisis.records.patient_chart import ChartCourse, PatientChart

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
        days = f"{stay.first_day or '?'} to {stay.last_day or '?'}"
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
    first = (course.first or _UNKNOWN_DAY)[:10]
    days = f"{first} to {course.end[:10]}" if course.end else f"since {first}" if course.first else first
    entries = agree(course.statements, "1 entry", f"{course.statements} entries")
    return printable(f"{course.name}{details}{state}, {days}, {entries}")


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
    from epicrisis.library.library import LibraryStore
    from epicrisis.records.patient_chart import build_chart

    with LibraryStore.open(library) as store:
        record = find_patient(store, action, patient, reason)
        passages = store.fetch_record(Scope(patient=record.id))
    return record, build_chart(passages, since), passages
