"""Selection of a question's notes by its time expressions (EHR study, appendix F and Table 13; errata E7).

A note is left out only if every time word of the question is understood and the note's own time is elsewhere, with
tolerance for late dictation. All notes that may be the last are kept, and so is a note without a time. Otherwise no
note is left out, and the result says why.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from epicrisis.retrieval.hospital_stays import NoteTime, group_stays
from epicrisis.retrieval.note_filtering import (
    AdmittedNotes,
    DatedNoteFinder,
    MentionFinder,
    RecordTimeline,
    admit_notes,
    note_ids,
)
from epicrisis.retrieval.time_expressions import FAMILIES, NARROWING, TimeExpression, find_time_expressions

_REASONS: Mapping[str, str] = {
    "leftover": "it may speak of another time",
    "bare": "of what is not said",
    "item": "of which time is not said",
}
"""Why an expression of a kind leaves open what the question is about."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """The notes that a question is about."""

    documents: frozenset[str] | None = None
    """Their ids, at least one. None if no note is left out."""
    explanations: tuple[str, ...] = ()
    """How each expression was resolved and why, one sentence each. Also present if no note is left out."""
    unresolved: tuple[str, ...] = ()
    """Expressions that were recognised and not resolved, and why. Then no note is left out."""


def resolve(
    question: str,
    notes: Iterable[NoteTime],
    find_mentions: MentionFinder | None = None,
    find_dated: DatedNoteFinder | None = None,
) -> Resolution:
    """Return the notes of the record that the question is about.

    Expressions that narrow each other (`the last radiology report of the first admission`) leave the notes that all of
    them admit; the notes of other expressions are added. No note is left out if the question mentions no time, asks for
    an order of events, compares with something it does not mention, or has a time word that is not understood.

    `find_mentions` is needed for events (`before the surgery`). Notes from `find_dated` are always kept.
    """
    expressions = find_time_expressions(question)
    explanations: list[str] = []
    for expression in expressions:
        if expression.kind in ("open", "item"):
            explanations.append(f"{expression.text}: no note is left out, {expression.noun}")
    unrestricted = _find_unrestricted(expressions)
    if unrestricted:
        scope = "an order, a span or every stay" if unrestricted.kind == "all" else "more than the time that is said"
        explanation = f"{unrestricted.text}: asks for {scope}, so no note is left out"
        return Resolution(explanations=(explanation, *explanations))
    if not any(expression.kind in NARROWING for expression in expressions):
        return Resolution(explanations=tuple(explanations))
    unresolved: list[str] = []
    for expression in expressions:
        is_understood = expression.kind == "item" and expression.attached
        reason = expression.noun if expression.kind == "open" else _REASONS.get(expression.kind)
        if reason and not is_understood:
            unresolved.append(f"{expression.text}: {reason}")
    ordered = tuple(sorted(set(notes), key=lambda note: note.document_id))
    record = RecordTimeline(
        ordered, group_stays(ordered), find_mentions, find_dated, pool=ordered, certain=note_ids(ordered)
    )
    documents, restricted = frozenset[str](), True
    for group in _group_attached(expressions):
        admitted = _apply_group(group, record)
        explanations += admitted.explanations
        unresolved += admitted.unresolved
        restricted = restricted and admitted.notes is not None
        documents |= note_ids(admitted.notes or ())
    if unresolved or not restricted:
        return Resolution(None, tuple(explanations), tuple(unresolved))
    return Resolution(documents, tuple(explanations))


def _find_unrestricted(expressions: Sequence[TimeExpression]) -> TimeExpression | None:
    """Return the first expression that needs the entire record, or None.

    A comparison or a readmission needs it if the question mentions only one of its two sides.
    """
    families = _group_by_family(expressions)
    has_two_sides = True
    for family in filter(None, families):
        counts: dict[tuple[object, ...], int] = {}
        spans = 0
        for expression in family:
            counts[expression.kind, expression.which, expression.noun, expression.readings] = expression.count
            # A span between two of them has both.
            spans += expression.relation == "between"
        has_two_sides = has_two_sides and sum(counts.values()) + spans > 1
    relations = {family.relation for family in itertools.chain.from_iterable(families)}
    for expression in expressions:
        match expression.kind:
            case "all":
                return expression
            case "compared" if not has_two_sides:
                return expression
            case "readmission" if not relations <= {"after", "since", "between"}:
                return expression
    return None


def _group_by_family(expressions: Sequence[TimeExpression]) -> list[list[TimeExpression]]:
    """Return the expressions in groups that narrow the record in this order: stays, days, each range, and notes."""
    stays, days, notes = list[TimeExpression](), list[TimeExpression](), list[TimeExpression]()
    ranges = list[list[TimeExpression]]()
    for expression in expressions:
        if expression.kind == "range":
            ranges.append([expression])
        for group, family in zip((stays, days, notes), FAMILIES, strict=True):
            if expression.kind in family:
                group.append(expression)
    return [stays, days, *ranges, notes]


def _group_attached(expressions: Sequence[TimeExpression]) -> list[list[TimeExpression]]:
    """Return the expressions that leave notes out, in groups narrowing each other."""
    groups = list[list[TimeExpression]]()
    for expression in expressions:
        if expression.kind not in (*NARROWING, "named-note"):
            continue
        if expression.attached and groups:
            groups[-1].append(expression)
        else:
            groups.append([expression])
    return [group for group in groups if any(expression.kind in NARROWING for expression in group)]


def _apply_group(group: Sequence[TimeExpression], record: RecordTimeline) -> AdmittedNotes:
    """Return the notes that all families of expressions in the group admit."""
    explanations, unresolved, restricted = list[str](), list[str](), False
    for number, expression in enumerate(group):
        if not expression.which or expression.kind not in ("stay", "at-discharge"):
            continue
        # `The first admission in 2016` need not be the patient's first.
        if any(later.kind in ("day", "range", "stay", "stay-on") for later in group[number + 1 :]):
            unresolved.append(f"{expression.text}: it may be counted from any time")
    for family in _group_by_family(group):
        ids, certain, admits_all = set[str](), set[str](), not family
        for expression in family:
            admitted = admit_notes(expression, record)
            explanations += admitted.explanations
            unresolved += admitted.unresolved
            # One expression that leaves no note out admits every note.
            admits_all = admits_all or admitted.notes is None
            ids |= note_ids(admitted.notes or ())
            certain |= admitted.certain
        if not admits_all:
            record, restricted = replace(record.restrict(ids), certain=record.certain & certain), True
    kinds = [expression.noun for expression in group if expression.kind == "named-note"]
    matches = note_ids(note for note in record.pool if any(note.is_of(kind) for kind in kinds))
    if matches:
        record = record.restrict(matches | note_ids(item for item in record.pool if item.has_unknown_kind))
    notes = record.pool if restricted and record.pool else None
    return AdmittedNotes(notes, record.certain, tuple(explanations), tuple(unresolved))
