"""Selection of a question's notes by its time expressions (EHR study, appendix F and Table 13; errata E7).

A note is left out only if every time word of the question is understood and the note's own time is elsewhere, with
tolerance for late dictation. All notes that may be the last are kept, and so is a note without a time. Otherwise no
note is left out, and the result says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from epicrisis.retrieval.expression_groups import find_unrestricted, group_by_family
from epicrisis.retrieval.hospital_stays import NoteTime
from epicrisis.retrieval.note_filtering import RULES, AdmittedNotes
from epicrisis.retrieval.record_timeline import DatedNoteFinder, MentionFinder, RecordTimeline, note_ids, select_notes
from epicrisis.retrieval.time_expressions import NARROWING, TimeExpression, find_time_expressions


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

    `find_mentions` is needed for events (`before the surgery`). Notes from `find_dated` are kept whatever their time.
    """
    expressions = find_time_expressions(question)
    explanations: list[str] = []
    for expression in expressions:
        if expression.kind in ("open", "item"):
            explanations.append(f"{expression.text}: no note is left out, {expression.noun}")
    if unrestricted := find_unrestricted(expressions):
        scope = "an order, a span or every stay" if unrestricted.kind == "all" else "more than the time that is said"
        explanation = f"{unrestricted.text}: asks for {scope}, so no note is left out"
        return Resolution(explanations=(explanation, *explanations))
    if not any(expression.kind in NARROWING for expression in expressions):
        return Resolution(explanations=tuple(explanations))
    unresolved: list[str] = []
    for expression in expressions:
        if reason := _reason_not_understood(expression):
            unresolved.append(f"{expression.text}: {reason}")
    record = RecordTimeline.build(notes, find_mentions, find_dated)
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


def _reason_not_understood(expression: TimeExpression) -> str:
    """Return why an expression leaves open what the question is about; empty if it does not."""
    match expression.kind:
        case "leftover":
            return "it may speak of another time"
        case "bare":
            return "of what is not said"
        case "open":
            return expression.noun
        case "item" if not expression.attached:
            return "of which time is not said"
    return ""


def _group_attached(expressions: Sequence[TimeExpression]) -> list[list[TimeExpression]]:
    """Return the expressions that leave notes out, in groups that narrow each other."""
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
    explanations, unresolved = list[str](), list(_find_unclear_ordinals(group))
    pool, restricted = record.notes, False
    for family in group_by_family(group):
        ids, certain, admits_all = set[str](), set[str](), not family
        for expression in family:
            admitted = RULES[expression.kind](expression, record, pool)
            explanations += admitted.explanations
            unresolved += admitted.unresolved
            # One expression that leaves no note out admits every note.
            admits_all = admits_all or admitted.notes is None
            ids |= note_ids(admitted.notes or ())
            certain |= admitted.certain
        if not admits_all:
            pool, restricted = select_notes(pool, frozenset(ids)), True
            record = replace(record, certain=record.certain & certain)
    kinds = [expression.noun for expression in group if expression.kind == "named-note"]
    matches = {note for note in pool if any(map(note.is_of, kinds))}
    if matches:
        pool = tuple(note for note in pool if note in matches or note.has_unknown_kind)
    notes = pool if restricted and pool else None
    return AdmittedNotes(notes, record.certain, tuple(explanations), tuple(unresolved))


def _find_unclear_ordinals(group: Sequence[TimeExpression]) -> Iterator[str]:
    """Yield the ordinals of stays that may be counted within another expression of the group.

    `The first admission in 2016` need not be the patient's first.
    """
    for number, expression in enumerate(group):
        if not expression.which or expression.kind not in ("stay", "at-discharge"):
            continue
        if any(later.kind in ("day", "range", "stay", "stay-on") for later in group[number + 1 :]):
            yield f"{expression.text}: it may be counted from any time"
