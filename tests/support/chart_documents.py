"""Documents of two patients with structured facts, for the tests of charts."""

from __future__ import annotations

from epicrisis.core.clinical_facts import FACTS, ClinicalFact, write_facts
from epicrisis.core.fact_kinds import FactEvent, FactKind
from epicrisis.core.types import Document, Passage

STAY = {"encounter": "s1", "admitted": "2150-03-01", "discharged": "2150-03-07"}


def _facts(day: str | None, kind: FactKind, *rows: tuple[str, FactEvent, str, str]) -> Document:
    """Return a document with a line for each (name, event, value, status). A name is one prescription or problem."""
    facts, lines, offset = [], [], 0
    for name, event, value, status in rows:
        line = f"{name} {value} {event} {status}"
        source = f"{kind}/{name.lower()}"
        fact = ClinicalFact(
            kind,
            name,
            start=offset,
            end=offset + len(line),
            event=event,
            time=day,
            value=value,
            status=status,
            source=source,
        )
        facts.append(fact)
        lines.append(line)
        offset += len(line) + 1
    metadata = {FACTS: write_facts(facts), "note_type": kind}
    return Document(f"note:p1:{day}:{kind}", "\n".join(lines), date=day, patient="p1", metadata=metadata)


CHART_DOCUMENTS = [
    _facts("2150-03-01", "problem", ("Heart failure", "start", "", "active")),
    _facts("2150-03-02", "medication", ("Furosemide", "start", "40 mg daily", "active")),
    _facts("2150-06-01", "medication", ("furosemide", "end", "", "stopped"), ("Torasemide", "start", "10 mg", "")),
    _facts("2150-06-01", "laboratory", ("Creatinine", "state", "1.2", ""), ("Sodium", "state", "139", "")),
    _facts(None, "allergy", ("Penicillin", "state", "rash", "active")),
    Document("note:1", "Admitted.", date="2150-03-01", patient="p1", metadata={"note_type": "admission note", **STAY}),
    Document("note:2", "Sent home.", date="2150-03-07", patient="p1", metadata={"note_type": "letter", **STAY}),
    Document("note:3", "Visit.", date="2150-06-01", patient="p1", metadata={"note_type": "clinic note", "visit": "v1"}),
    Document("note:9", "Another one.", date="2150-06-02", patient="p2", metadata={"note_type": "letter"}),
]


def read_chart_record() -> list[Passage]:
    """Return the record of the first patient."""
    return [make_passage(document) for document in CHART_DOCUMENTS if document.patient == "p1"]


def make_passage(document: Document) -> Passage:
    """Return a document as one passage."""
    return Passage(
        id=f"{document.id}#0",
        document_id=document.id,
        ordinal=0,
        start=0,
        end=len(document.text),
        text=document.text,
        date=document.date,
        patient=document.patient,
        metadata=document.metadata,
    )
