"""Are computed answers about structured facts right?

    PYTHONPATH=. python benchmarks/structured_questions.py [--questions 10000]
    PYTHONPATH=. python benchmarks/structured_questions.py --model smollm2-135m [--asked 100]
    PYTHONPATH=. python benchmarks/structured_questions.py --conflicts

Patients are generated with known histories (`tests.support.structured_questions`), put into a real
library, and asked. Without a model the computed answer is graded: exact, abstained with a reason, not understood (the
question is left to the notes) or wrong. With one the questions go through the strategy rag, and the model's wording is
graded too: whether its text has the right value, and whether a wrong number in it was flagged.

`--conflicts` measures which generated sentences of notes the conflict ledger holds against the values: how many of
those that agree or do not bear on them, and how many of those that state another value.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections import Counter, defaultdict
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path

from epicrisis.core.answers import Answer
from epicrisis.core.clinical_facts import ClinicalFact
from epicrisis.core.types import Passage, Question, Scope
from epicrisis.evaluation.analysis.statistics import wilson
from epicrisis.evaluation.grading.computed_answers import grade_computed
from epicrisis.evaluation.synthesis.patient_records.entry_questions import StructuredQuestion
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.pipeline.components import LibrarySearch
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.records.fact_questions.answer import compute
from epicrisis.records.fact_questions.fact_conflicts import NoteSentence, find_value_conflicts
from epicrisis.records.fact_questions.question_rules import plan_by_rules
from epicrisis.records.fact_questions.record import read_fact_record
from epicrisis.retrieval.retriever import Retriever
from epicrisis.settings.settings import Settings
from epicrisis.testing.hashing_encoder import HashingEncoder
from tests.support.structured_questions import GeneratedFacts, generate_record
from tests.support.value_questions import TRAPS

FIRST_SEED = 10_000
"""The rules were written on other seeds."""
MIN_PATIENTS = 20
"""Of the questions for a model: one patient alone has over 100."""


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=10_000)
    parser.add_argument("--model", help="name of an embedded chat model")
    parser.add_argument("--asked", type=int, default=100, help="questions for the model")
    parser.add_argument("--conflicts", action="store_true")
    arguments = parser.parse_args()
    if arguments.conflicts:
        measure_conflicts()
        return
    records = draw_records(arguments.asked, MIN_PATIENTS) if arguments.model else draw_records(arguments.questions)
    with tempfile.TemporaryDirectory() as folder:
        library = build_library(Path(folder) / "library", records)
        with library:
            if arguments.model:
                asyncio.run(ask_model(library, records, arguments.model, arguments.asked))
            else:
                measure_computation(library, records, arguments.questions)


def draw_records(questions: int, patients: int = 1) -> list[GeneratedFacts]:
    """Return enough patients for so many questions, and at least so many patients."""
    records: list[GeneratedFacts] = []
    while len(records) < patients or sum(len(record.questions) for record in records) < questions:
        records.append(generate_record(FIRST_SEED + len(records)))
    return records


def build_library(path: Path, records: list[GeneratedFacts]) -> LibrarySearch:
    """Return a new library with the patients."""
    encoder = HashingEncoder(64)
    documents = [document for record in records for document in record.documents]
    with open_or_create(path, encoder, "hashing", 0) as library:
        add_documents(library, documents, encoder)
    store = LibraryStore.open(path)
    return LibrarySearch(store, Retriever(store, encoder))


def measure_computation(library: LibrarySearch, records: list[GeneratedFacts], questions: int) -> None:
    """Print how many computed answers are exact, by category."""
    grades: Counter[str] = Counter()
    by_category: dict[str, Counter[str]] = defaultdict(Counter)
    start = time.perf_counter()
    for generated in records:
        record = read_fact_record(library.library.fetch_record(Scope(patient=generated.patient)))
        assert record is not None
        for question in generated.questions:
            if grades.total() == questions:
                break
            plan = plan_by_rules(question.text, record)
            grade = grade_computed(None if plan is None else compute(plan, record).answer, question.expected)
            grades[grade] += 1
            by_category[question.category][grade] += 1
    seconds = time.perf_counter() - start
    print(f"{grades.total():,} questions about {len(records)} patients in {seconds:.0f} s: {dict(grades)}")
    interval = wilson(grades["wrong"], grades.total())
    print(f"wrong: {grades['wrong']} (95 % interval {interval.low:.2%} to {interval.high:.2%})")
    for category, counts in sorted(by_category.items()):
        if set(counts) - {"exact", "rightly-abstained"}:
            print(f"  {category}: {dict(counts)}")


def choose_questions(records: list[GeneratedFacts], asked: int) -> list[tuple[str, StructuredQuestion]]:
    """Return questions of all kinds in turn, spread evenly over patients and over the traps of each kind."""
    waiting: dict[str, list[tuple[str, StructuredQuestion]]] = defaultdict(list)
    for record in records:
        for question in record.questions:
            waiting[name_kind(question.category)].append((record.patient, question))
    chosen: list[tuple[str, StructuredQuestion]] = []
    counts: Counter[str] = Counter()
    while waiting and len(chosen) < asked:
        for kind in sorted(waiting)[: asked - len(chosen)]:
            # The first of those patients, and then of those traps, that were asked about least.
            entry = min(waiting[kind], key=lambda pair: (counts[pair[0]], counts[pair[1].category]))
            waiting[kind].remove(entry)
            if not waiting[kind]:
                del waiting[kind]
            counts.update((entry[0], entry[1].category))
            chosen.append(entry)
    return chosen


def name_kind(category: str) -> str:
    """Return the kind of question without the trap in its values: `last` of `last partial`."""
    kind, _, trap = category.rpartition(" ")
    return kind if trap in TRAPS else category


async def ask_model(library: LibrarySearch, records: list[GeneratedFacts], name: str, asked: int) -> None:
    """Print how a real model words computed answers."""
    from epicrisis.settings.configuration import load_settings

    base = load_settings()
    models = {"writer": {"name": name}}
    settings = Settings.model_validate(
        {**base.model_dump(exclude={"models"}), "models": models, "strategy": "rag", "k": 4}
    )
    counts: Counter[str] = Counter()
    start = time.perf_counter()
    async with Pipeline.open(settings, None, strategies=("closed-book",)) as opened:
        pipeline = Pipeline(settings, opened.models, library)
        for number, (patient, question) in enumerate(choose_questions(records, asked), 1):
            answer = await pipeline.answer(Question(question.text, patient=patient))
            counts[f"computed {grade_computed(answer.computed, question.expected)}"] += 1
            counts[f"model {answer.model_state}"] += 1
            counts[f"shown {answer.state}"] += 1
            counts.update(grade_wording(answer, question))
            if number % 10 == 0:
                print(number, dict(sorted(counts.items())), flush=True)
    print(f"{asked} questions through {name} in {time.perf_counter() - start:.0f} s: {dict(sorted(counts.items()))}")


def grade_wording(answer: Answer, question: StructuredQuestion) -> list[str]:
    """Return whether the model's own words have the right numbers, and whether those without them are flagged.

    The computed sentence before them does not count. A copy of it is left out of an answer, and has the right numbers.
    """
    if answer.model_state != "answered" or question.expected is None:
        return []
    numbers = ["".join(part.split()[:1]).lstrip("<") for part in question.expected]
    if not all(any(sign.isdigit() for sign in number) for number in numbers):
        return ["words without a number to compare"]
    claims = [claim for claim in answer.claims if not claim.is_computed]
    words = " ".join(claim.text for claim in claims) or answer.text
    has_value = all(number in words for number in numbers)
    is_flagged = any(claim.is_doubtful or claim.support == "contradicted" for claim in claims)
    return [f"words {'with' if has_value else 'without'} the right value{', flagged' if is_flagged else ''}"]


AGREEING = (
    "Creatinine was {value} on {day}.",
    "On {day} the creatinine was {value} mg/dL.",
    "Creatinine {rounded} on {day}.",
    "Creatinine on {day}: {molar} umol/L.",
    "Goal creatinine {other} by {day}.",
    "Creatinine was {other} on {other_day}.",
    "Creatinine rose from {other} to {value} on {day}.",
    "Urine creatinine was {other} on {day}.",
    "Creatinine at the outside hospital was {other} on {day}.",
    "Creatinine clearance was {other} on {day}.",
    "If creatinine is {other} on {day}, call us.",
    "Creatinine was not {other} on {day}.",
    "Baseline creatinine {other}, seen on {day}.",
    "Creatinine was {other} yesterday, seen on {day}.",
    "Seen on {day}; creatinine to be repeated in {other} weeks.",
    "Potassium was {other} on {day}, creatinine not sent.",
    "Creatinine > {other} on {day}.",
    "Creatinine {other} last month (visit of {day}).",
)
CONTRADICTING = (
    "Creatinine was {other} on {day}.",
    "On {day} the creatinine was {other} mg/dL.",
    "Creatinine: {other} on {day}.",
    "On {day} her serum creatinine was {other}.",
    "Labs of {day} showed a creatinine of {other}.",
    "creatinine {other} mg/dL ({day})",
)


def measure_conflicts(size: int = 5000) -> None:
    """Print how many sentences of each group are held against the values."""
    draw = random.Random(1)
    for name, templates in (("agree or do not bear", AGREEING), ("state another value", CONTRADICTING)):
        raised: Counter[str] = Counter()
        for _ in range(size):
            value = Decimal(f"{draw.uniform(0.6, 5):.2f}")
            day = date(2150, 1, 1) + timedelta(days=draw.randrange(300))
            fact = ClinicalFact(
                "laboratory",
                "Creatinine",
                start=0,
                end=1,
                time=f"{day}",
                value=str(value),
                number=float(value),
                unit="mg/dL",
                codes=("loinc:2160-0",),
            )
            other = value * Decimal(draw.choice(("0.5", "1.5", "2")))
            template = draw.choice(templates)
            text = template.format(
                value=value,
                day=day,
                rounded=round(value, 1),
                molar=round(value * Decimal("88.4")),
                other=f"{other:.2f}",
                other_day=day + timedelta(days=400),
            )
            passage = Passage(
                id="n#0", document_id="n", ordinal=0, start=0, end=len(text), text=text, date="2151-12-01", patient="p"
            )
            found = find_value_conflicts([NoteSentence(passage, 0, text)], [fact], ["creatinine", "serum creatinine"])
            raised[template] += bool(found)
        print(f"{name}: {raised.total()} of {size} sentences raise a conflict; {wilson(raised.total(), size)}")
        print(f"  {dict(raised)}")


if __name__ == "__main__":
    main()
