"""Collect the segments of HL7 v2 that state facts other than results, with the segments that belong to them.

    for statement in read_statements(message):
        statement.segment.name, statement.order, statement.find("RXR")

Messages of all kinds have them: allergies and diagnoses of an admission, problems, vaccinations, orders of drugs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from epicrisis.corpus.base.patient_numbers import StatedPerson
from epicrisis.corpus.records.hl7.messages import Hl7Message, Hl7Segment
from epicrisis.corpus.records.hl7.notes import STATEMENTS, read_person

_DETAILS = frozenset(("TQ1", "RXR", "RXC", "NTE"))
"""Segments that belong to the one before them."""
_RESULTS = frozenset(("OBR", "OBX", "TXA"))
_STOPS = frozenset(("CA", "DC", "OC", "OD", "CR", "DR", "RP", "RU", "RQ"))
"""Order controls (ORC-1) which say that an order is no longer valid."""
_PEOPLE = frozenset("MSH EVN PID PD1 PV1 PV2 ORC MRG NK1 SFT UAC ROL PRT".split())  # noqa: SIM905
"""Segments of persons, stays and orders."""


@dataclass(frozen=True, slots=True)
class Hl7Statement:
    """A segment that states a fact, with its patient, visit and order (ORC)."""

    segment: Hl7Segment
    person: StatedPerson
    visit: str
    order: Hl7Segment | None = None
    details: list[Hl7Segment] = field(default_factory=list)
    requested: list[Hl7Segment] = field(default_factory=list)
    """The order before it was encoded, dispensed or given, and its details."""

    def find(self, name: str) -> list[Hl7Segment]:
        """Return the details of a name: those of the segment, else those of its order."""
        details = [detail for detail in self.details if detail.name == name]
        return details or [detail for detail in self.requested if detail.name == name]


def read_statements(message: Hl7Message) -> list[Hl7Statement]:
    """Return the statements of a message, of each order the last one: it was requested, encoded, then dispensed.

    Raises ValueError with the reason if one comes before the patient.
    """
    collector = _Collector()
    for segment in message.segments:
        if segment.name == "PID":
            collector = _Collector(read_person(segment, message.header), segment.text(18), collector.statements)
        elif segment.name == "PV1":
            collector.visit = segment.text(19) or collector.visit
        elif segment.name == "ORC":
            collector.begin_order(segment)
        elif segment.name in STATEMENTS:
            collector.add(segment)
        elif segment.name in _DETAILS:
            collector.add_detail(segment)
        elif segment.name in _RESULTS:
            collector.current = None
    return collector.statements


@dataclass(slots=True)
class _Collector:
    """The statements so far, and what the next ones belong to."""

    person: StatedPerson | None = None
    visit: str = ""
    statements: list[Hl7Statement] = field(default_factory=list)
    order: Hl7Segment | None = None
    current: Hl7Statement | None = None
    """To which details belong."""
    pending: list[Hl7Segment] = field(default_factory=list)
    """Details between an order and what is ordered."""

    def begin_order(self, segment: Hl7Segment) -> None:
        """Begin an order; one that is stopped is a statement, even without its drug."""
        self.order, self.current, self.pending = segment, None, []
        if segment.text(1).upper() in _STOPS and self.person is not None:
            self.statements.append(Hl7Statement(segment, self.person, self.visit, segment))

    def add(self, segment: Hl7Segment) -> None:
        """Add a statement. Raises ValueError if no patient was named."""
        if self.person is None:
            raise ValueError("names no patient before its facts, and every fact needs one; export it with PID")
        order = self.order if segment.name.startswith("RX") else None
        self.current = Hl7Statement(segment, self.person, self.visit, order, [], self._take_order(order))
        self.statements.append(self.current)

    def _take_order(self, order: Hl7Segment | None) -> list[Hl7Segment]:
        """Return the details of an order so far. What was encoded, dispensed or given says more than the request."""
        if order is None:
            return []
        current = self.current
        if self.statements and self.statements[-1].segment is order:
            # The order names its drug.
            self.statements.pop()
        if current is None or current.order is not order:
            return self.pending
        requested = [*current.details, *current.requested]
        if current.segment.name in ("RXO", "RXE"):
            requested.append(self.statements.pop().segment)
        return requested

    def add_detail(self, segment: Hl7Segment) -> None:
        """Add a segment that belongs to the one before it."""
        (self.pending if self.current is None else self.current.details).append(segment)


def count_unread(message: Hl7Message, statements: Sequence[Hl7Statement]) -> Counter[str]:
    """Return how many segments of each name are not read in a message without results."""
    seen: set[int] = set()
    for statement in statements:
        seen.update(map(id, (statement.segment, *statement.details, *statement.requested)))
    others = [segment for segment in message.segments if id(segment) not in seen and segment.name not in _PEOPLE]
    return Counter(f"{segment.name[:3]} segment" for segment in others)
