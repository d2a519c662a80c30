"""Populations of a question set: all questions, those about long records, or those of a table of the EHR study.

The length of a record is that of its notes' texts (Include All) in tokens of the answering model, without the rest of a
prompt. The study does not say whether its K is 1,000 or 1,024; here it is 1,000.

The study's tables use the same words for different populations (errata E5): Table 2 has records of all lengths, Table 3
of 8K tokens and longer, Table 4 of 4K and longer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from epicrisis.core.errors import InputError
from epicrisis.core.question_options import is_unanswerable
from epicrisis.core.types import Question
from epicrisis.evaluation.datasets.patient_records.source import RecordSet

K = 1000
BINS = ("0-8K", "8-16K", "16-32K", "32-128K", "over 128K")
"""The study's bins of length (section 4.2)."""
_BEGINS = (0, 8 * K, 16 * K, 32 * K, 128 * K + 1)
GENERATED_FACTS = "generated-facts"
"""The set of questions about structured entries: its right answers are the parts of a computed answer."""
ALL, ANSWERABLE = "all", "answerable"
STUDIED = ("table-1", "table-2", "table-3", "table-4")
"""The questions of a set that the study used."""
SHORTEST = {"8k-and-longer": 8 * K, "4k-and-longer": 4 * K, "table-3": 8 * K, "table-4": 4 * K}
"""The minimum tokens of a patient's record."""
_FOR_ALL_SETS = (ALL, ANSWERABLE, "8k-and-longer", "4k-and-longer")
POPULATIONS = (*_FOR_ALL_SETS, *STUDIED)
_SETS = {"table-3": ("ehrnoteqa", "ehrnoteqa-open", "ehr-ds-qa"), "table-4": ("radqa", "cliniqg4qa")}


def check_population_name(population: str) -> str:
    """Return the name. Raises InputError with the known names for another one."""
    if population not in POPULATIONS:
        raise InputError(f"no population is called {population!a}: known are {', '.join(POPULATIONS)}")
    return population


def check_population(name: str, source: RecordSet, population: str) -> None:
    """Raise InputError for an unknown population, and for a table of the study that does not include this set."""
    if check_population_name(population) in STUDIED and (
        source.studied is None or name not in _SETS.get(population, (name,))
    ):
        raise InputError(
            f"{population} of the EHR study is not about {name}: give a population of {', '.join(_FOR_ALL_SETS)}"
        )


def select_questions(name: str, source: RecordSet, population: str) -> tuple[Question, ...]:
    """Return the questions of a population in order, before `select_by_length`.

    `answerable` omits questions that no note answers. Populations of tables are the questions that the study used.
    Raises InputError as `check_population` does.
    """
    check_population(name, source, population)
    if population == ANSWERABLE:
        return tuple(question for question in source.questions if not is_unanswerable(question.gold, question.options))
    if population in STUDIED:
        return tuple(question for question in source.questions if question.id in (source.studied or ()))
    return source.questions


def select_by_length(questions: Sequence[Question], population: str, tokens: Mapping[str, int]) -> tuple[Question, ...]:
    """Return the questions about records of the population's minimum length.

    `tokens` maps each patient to the tokens of all notes (Include All) for the answering model; the default is 0.
    """
    shortest = SHORTEST.get(check_population_name(population), 0)
    return tuple(question for question in questions if tokens.get(question.patient or "", 0) >= shortest)


def count_questions_and_patients(questions: Sequence[Question]) -> tuple[int, int]:
    """Return the number of questions and of patients."""
    return len(questions), len({question.patient for question in questions})


def find_length_bin(tokens: int) -> str:
    """Return the name of the bin. 8,000 tokens are in `8-16K` ("8K and longer"), 128,000 are still in `32-128K`."""
    return BINS[bisect_right(_BEGINS, tokens) - 1]
