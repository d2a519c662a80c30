"""Which notes of a record a question is about, by what it says of time (EHR study, appendix F and Table 13; errata E7).

Pure. Knows no store, no model and no text of a note: which notes tell of an event, or state a date, is looked up by
functions handed in. A note is left out only where every word of time in the question is understood and the note's own
time, with room for late dictation, lies elsewhere: of what may be the last all is kept, and a note without a time may
be of any. Otherwise nothing is left out, and that is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from epicrisis.retrieval.hospital_stays import HospitalStay, NoteTime
from epicrisis.retrieval.note_filtering import (
    RULES,
    AdmittedNotes,
    DatedNoteFinder,
    MentionFinder,
    RecordTimeline,
    note_ids,
    select_notes,
)
from epicrisis.retrieval.time_expressions import (
    NARROWING,
    TimeExpression,
    find_time_expressions,
    find_unrestricted,
    group_by_family,
)

__all__ = ["HospitalStay", "Mentions", "NoteTime", "Resolution", "Stating", "encounters", "resolve"]


@dataclass(frozen=True, slots=True)
class Resolution:
    """Which notes a question is about."""

    documents: frozenset[str] | None = None
    """Their ids, at least one; `None`: nothing is left out."""
    told: tuple[str, ...] = ()
    """What was resolved to what and why, a sentence each; true too where all notes are read."""
    unresolved: tuple[str, ...] = ()
    """Expressions that were recognised and could not be resolved, and why; then nothing is left out."""


def resolve(
    question: str,
    notes: Iterable[NoteTime],
    mentions: MentionFinder | None = None,
    stating: DatedNoteFinder | None = None,
) -> Resolution:
    """Return the notes of the record that the question is about.

    Expressions that narrow each other (`the last radiology report of the first admission`) leave what all of them
    admit; the others are taken together. A question leaves no note out where it says nothing of time, asks for an order
    of things, compares with what it does not say, or has a word of time that is not understood. `mentions` is needed
    for events (`before the surgery`); the notes of `stating` are kept whenever they were written.
    """
    expressions = find_time_expressions(question)
    told = [f"{each.text}: no note is left out, {each.noun}" for each in expressions if each.kind in ("open", "item")]
    if whole := find_unrestricted(expressions):
        asks = "an order, a span or every stay" if whole.kind == "all" else "more than the time that is said"
        return Resolution(told=(f"{whole.text}: asks for {asks}, so no note is left out", *told))
    if not any(each.kind in NARROWING for each in expressions):
        return Resolution(told=tuple(told))
    unresolved = [f"{each.text}: {why}" for each in expressions if (why := _not_understood(each))]
    record = RecordTimeline.of(notes, mentions, stating)
    kept, restricted = frozenset[str](), True
    for group in _groups(expressions):
        result = _narrowed(group, record)
        told += result.told
        unresolved += result.unresolved
        restricted = restricted and result.notes is not None
        kept |= note_ids(result.notes or ())
    if unresolved or not restricted:
        return Resolution(None, tuple(told), tuple(unresolved))
    return Resolution(kept, tuple(told))


def _not_understood(expression: TimeExpression) -> str:
    """Return why the expression leaves open what the question is about, beside one that narrows it; else ``."""
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


def _groups(expressions: Sequence[TimeExpression]) -> list[list[TimeExpression]]:
    """Return the expressions that leave notes out, those together that narrow each other."""
    groups = list[list[TimeExpression]]()
    for expression in expressions:
        if expression.kind not in (*NARROWING, "named-note"):
            continue
        if expression.attached and groups:
            groups[-1].append(expression)
        else:
            groups.append([expression])
    return [group for group in groups if any(each.kind in NARROWING for each in group)]


def _narrowed(group: Sequence[TimeExpression], record: RecordTimeline) -> AdmittedNotes:
    """Return the notes that all families of expressions in the group admit."""
    told, unresolved = list[str](), [f"{text}: {why}" for text, why in _unclear(group)]
    pool, restricted = record.notes, False
    for round_ in group_by_family(group):
        results = [RULES[expression.kind](expression, record, pool) for expression in round_]
        told += [line for result in results for line in result.told]
        unresolved += [line for result in results for line in result.unresolved]
        admitted = [result.notes for result in results]
        # One of several that leaves nothing out admits every note.
        if admitted and all(notes is not None for notes in admitted):
            ids = frozenset[str]().union(*(note_ids(notes or ()) for notes in admitted))
            sure = frozenset[str]().union(*(result.sure for result in results))
            pool, restricted = select_notes(pool, ids), True
            record = replace(record, sure=record.sure & sure)
    kinds = [expression.noun for expression in group if expression.kind == "named-note"]
    named = [note for note in pool if any(note.is_of(kind) for kind in kinds)]
    if named:
        pool = tuple(note for note in pool if note in named or note.of_unknown_kind)
    return AdmittedNotes(pool if restricted and pool else None, record.sure, tuple(told), tuple(unresolved))


def _unclear(group: Sequence[TimeExpression]) -> Iterator[tuple[str, str]]:
    """Yield the ordinals of stays that may be counted within another expression of the group: `the first admission in
    2016` need not be the patient's first."""
    for number, expression in enumerate(group):
        counted = expression.which and expression.kind in ("stay", "at-discharge")
        if counted and any(later.kind in ("day", "range", "stay", "stay-on") for later in group[number + 1 :]):
            yield expression.text, "it may be counted from any time"
