"""Which questions of a set are asked: all of it, those about long records, or those that one of the EHR study's tables
is about, by name.

The study's tables have different populations under the same words (errata E5): Table 2 all lengths, Table 3 records of
8K tokens and longer, Table 4 of 4K and longer. Knows no file and counts no token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from epicrisis.errors import InputError
from epicrisis.evaluation.datasets.patient_records.lengths import K
from epicrisis.evaluation.datasets.patient_records.source import RecordSource
from epicrisis.question_options import is_unanswerable
from epicrisis.types import Question

ALL, ANSWERABLE = "all", "answerable"
STUDIED = ("table-1", "table-2", "table-3", "table-4")
"""The questions that the study took of a set."""
SHORTEST = {"8k-and-longer": 8 * K, "4k-and-longer": 4 * K, "table-3": 8 * K, "table-4": 4 * K}
"""Tokens that a patient's record has at least."""
POPULATIONS = (ALL, ANSWERABLE, "8k-and-longer", "4k-and-longer", *STUDIED)
_OF = {"table-3": ("ehrnoteqa", "ehrnoteqa-open", "ehr-ds-qa"), "table-4": ("radqa", "cliniqg4qa")}
"""The sets that such a table is about."""


def check_population_name(population: str) -> str:
    """The name itself. Raises InputError with the names there are."""
    if population not in POPULATIONS:
        raise InputError(f"no population is called {population!a}: known are {', '.join(POPULATIONS)}")
    return population


def check_population(name: str, source: RecordSource, population: str) -> None:
    """Raises InputError where the study did not take the set of that name, or has no such table of it, or no population
    is called so."""
    if check_population_name(population) in STUDIED and (
        source.studied is None or name not in _OF.get(population, (name,))
    ):
        others = [each for each in POPULATIONS if each not in STUDIED]
        raise InputError(f"{population} of the EHR study is not about {name}: give a population of {', '.join(others)}")


def select_questions(name: str, source: RecordSource, population: str) -> tuple[Question, ...]:
    """The questions of the population, in their order, before `long_enough`. Raises InputError as `check` does.

    `answerable` leaves out those that no note answers; the tables' populations are the questions that the study took.
    """
    check_population(name, source, population)
    if population == ANSWERABLE:
        return tuple(question for question in source.questions if not is_unanswerable(question.gold, question.options))
    if population in STUDIED:
        return tuple(question for question in source.questions if question.id in (source.studied or ()))
    return source.questions


def select_by_length(questions: Sequence[Question], population: str, tokens: Mapping[str, int]) -> tuple[Question, ...]:
    """Those about records that are as long as the population wants; all where it wants no length.

    `tokens`: of all notes of each patient (Include All) by the answering model; a patient who is not in it has none.
    """
    shortest = SHORTEST.get(check_population_name(population), 0)
    return tuple(question for question in questions if tokens.get(question.patient or "", 0) >= shortest)


def count_questions_and_patients(questions: Sequence[Question]) -> tuple[int, int]:
    """How many questions these are, and about how many patients."""
    return len(questions), len({question.patient for question in questions})
