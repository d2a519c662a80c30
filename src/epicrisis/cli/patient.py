"""`epicrisis patient`: one patient's record in a library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from epicrisis.cli.command import command
from epicrisis.cli.library_documents import record_reading
from epicrisis.cli.options import Json, LibraryPath
from epicrisis.cli.terminal import say, show_json
from epicrisis.errors import InputError
from epicrisis.printable import agree, count_noun, printable
from epicrisis.serialization import to_json

if TYPE_CHECKING:
    from epicrisis.library.patients import PatientRecord
    from epicrisis.patient_chart import ChartCourse, PatientChart

PatientId = Annotated[str, Argument(metavar="PATIENT", help="Id or record number of the patient.")]
Since = Annotated[
    str | None,
    Option("--since", metavar="DAY", help="Events since this day only, such as 2150-03, or since the last-visit."),
]
_UNKNOWN_DAY = "no day"
_HEADINGS = {"problem": "Problems", "allergy": "Allergies", "medication": "Medications"}


@command(
    examples=["epicrisis patient show ~/ward 10083814", "epicrisis patient show ~/ward 10083814 --since last-visit"]
)
def show(library: LibraryPath, patient: PatientId, since: Since = None, json: Json = False) -> None:
    """Show a patient's record at a glance: stays, problems, allergies, medications, and a timeline with its notes.

    Problems and medications come from structured data (FHIR, OMOP, MIMIC, C-CDA). Notes are listed, not interpreted.
    """
    from epicrisis.library.library import LibraryStore
    from epicrisis.library.patient_check import resolve_patient
    from epicrisis.library.patients import Roster
    from epicrisis.patient_chart import build_chart
    from epicrisis.types import Scope

    with LibraryStore.open(library) as store:
        roster = Roster(store)
        record = roster.patients().get(resolve_patient([roster], patient) or "")
        if record is None:
            raise InputError(f"the library has no patient {patient!a}: `epicrisis library patients` lists them")
        passages = store.fetch_record(Scope(patient=record.id))
        chart = build_chart(passages, since)
    record_reading(library, "chart", record.id, sorted({passage.document_id for passage in passages}))
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
    for kind, heading in _HEADINGS.items():
        courses = [course for course in chart.courses if course.kind == kind]
        if courses:
            say(f"\n{heading}")
            for course in courses:
                say(f"  {_describe_course(course)}")
    if chart.stays:
        say("\nHospital stays")
    for stay in chart.stays:
        days = f"{stay.first_day or '?'} to {stay.last_day or '?'}"
        say(f"  {days}  stay {printable(stay.encounter)}, {count_noun(stay.notes, 'document')}")
    say(f"\nTimeline since {chart.since}" if chart.since else "\nTimeline")
    day = None
    for event in chart.events:
        event_day = event.time[:10] if event.time else _UNKNOWN_DAY
        label = event_day if event_day != day else ""
        day = event_day
        say(f"  {label:<10}  {printable(event.text)}")
    if not chart.events:
        say("  nothing")


def _describe_course(course: ChartCourse) -> str:
    """Return one line: name, details, status, first and last time, and the number of statements."""
    details = f" {course.details}" if course.details else ""
    status = f" ({course.status})" if course.status else ""
    first = (course.first or _UNKNOWN_DAY)[:10]
    ended = f" to {course.ended[:10]}" if course.ended else ""
    entries = agree(course.statements, "1 entry", f"{course.statements} entries")
    return printable(f"{course.name}{details}{status}, {first}{ended}, {entries}")
