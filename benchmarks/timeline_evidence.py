"""What the filter of time leaves of a record, and whether the evidence is in it: no model, no search.

    epicrisis synthesize-record --patients 12 --seed 11 --questions-each 42 -o FOLDER
    python benchmarks/timeline_evidence.py FOLDER [--list]

FOLDER is a set of records whose questions mark their evidence. `--list` shows each question that lost evidence.
"""

from __future__ import annotations

import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from epicrisis.core.types import Document, Passage, Question
from epicrisis.evaluation.datasets.patient_records.recordset import load_records
from epicrisis.pipeline.evidence_selection import resolve_time_restriction


def records(items: Iterable[object]) -> dict[str, list[Passage]]:
    """Return each patient's notes as whole passages."""
    notes: dict[str, list[Passage]] = defaultdict(list)
    for item in items:
        if isinstance(item, Document):
            passage = Passage(
                id=f"{item.id}#0",
                document_id=item.id,
                ordinal=0,
                start=0,
                end=len(item.text),
                text=item.text,
                title=item.title,
                source=item.source,
                date=item.date,
                patient=item.patient,
                metadata=item.metadata,
            )
            notes[item.patient or ""].append(passage)
    return notes


def loss(question: Question, hidden: frozenset[str]) -> str:
    """Return `all`, `a fact` (one that a correct answer needs), `a copy` or `nothing`: the evidence that is hidden."""
    documents = {place.document_id for place in question.evidence}
    if documents <= hidden:
        return "all"
    facts: dict[str, set[str]] = defaultdict(set)
    for number, place in enumerate(question.evidence):
        facts[place.fact or str(number)].add(place.document_id)
    if any(places <= hidden for places in facts.values()):
        return "a fact"
    return "a copy" if documents & hidden else "nothing"


def main(folder: Path, listing: bool) -> None:
    """Print one line of figures for each category of questions, and one for all."""
    record_set = load_records(folder)
    notes = records(record_set.notes())
    losses: dict[str, Counter[str]] = defaultdict(Counter)
    shares: dict[str, list[float]] = defaultdict(list)
    for question in record_set.questions:
        passages = notes[question.patient or ""]
        asked = resolve_time_restriction(question.text, lambda passages=passages: passages)  # type: ignore[misc]
        losses[question.category]["questions"] += 1
        if not asked.hidden:
            continue
        losses[question.category]["narrowed"] += 1
        sizes = {passage.document_id: len(passage.text) for passage in passages}
        left = sum(size for name, size in sizes.items() if name not in asked.hidden)
        shares[question.category].append(left / sum(sizes.values()))
        if question.evidence:
            losses[question.category][loss(question, asked.hidden)] += 1
        if listing and question.evidence and loss(question, asked.hidden) != "nothing":
            say(f"{loss(question, asked.hidden):>7}  {question.id}  {question.text}  {' | '.join(asked.explanations)}")
    say(f"{'':20} questions narrowed  lost all  a fact  a copy  text left (median)")
    for category in (*sorted(losses), "all"):
        counts = sum(losses.values(), Counter()) if category == "all" else losses[category]
        left_of = [share for each in shares.values() for share in each] if category == "all" else shares[category]
        report(category, counts, left_of)


def report(category: str, counts: Counter[str], shares: Sequence[float]) -> None:
    share = f"{statistics.median(shares):.1%}" if shares else "-"
    figures = [counts[name] for name in ("questions", "narrowed", "all", "a fact", "a copy")]
    say(f"{category:20} {figures[0]:9} {figures[1]:8} {figures[2]:9} {figures[3]:7} {figures[4]:7}  {share}")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), "--list" in sys.argv[2:])
