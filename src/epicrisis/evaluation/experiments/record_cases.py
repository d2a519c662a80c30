"""From sets of records to the cases of an experiment: each question with the whole record it is asked of, lengths by
the answering model's tokenizer, and what searches the record.

Asks no model but for counts of tokens. Knows no metric and no screen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from epicrisis.components import Opened, encoder_to_add, scope_of
from epicrisis.errors import InputError
from epicrisis.evaluation.datasets.dataset import Dataset
from epicrisis.evaluation.datasets.patient_records import populations
from epicrisis.evaluation.datasets.patient_records.recordset import RecordSet, load_records
from epicrisis.evaluation.datasets.sampling import at_random
from epicrisis.evaluation.experiments import record_arms
from epicrisis.evaluation.experiments.experiment import Experiment, Request
from epicrisis.evaluation.runs.case import Case
from epicrisis.evaluation.runs.run_folder import RunPlan
from epicrisis.library.ingest import add_documents, open_or_create
from epicrisis.library.ingest_report import IngestProgress, IngestReport
from epicrisis.library.manifest import NAME as MANIFEST
from epicrisis.models.sparse import load_sparse
from epicrisis.pipeline import Pipeline
from epicrisis.protocols import ChatModel, Message
from epicrisis.retrieval.event_mentions import stating, telling
from epicrisis.retrieval.record_context import of_record
from epicrisis.retrieval.sparse_ranking import sparse_ranking
from epicrisis.retrieval.timeline import NoteTime, Resolution, resolve
from epicrisis.settings import Settings
from epicrisis.types import ExtractionTarget, Passage, Question, Ranking, Scope, SearchMode
from epicrisis.unanswerable import is_unanswerable

CHUNK_TOKENS = 512
"""The study's chunks (3.3)."""
_COUNTED_AT_ONCE = 8
_PROMPT = 1_500
"""Room for the question, what stands around the notes, and the reply."""

TokenCounter: TypeAlias = Callable[[str], int]


def load_record_sets(wanted: Experiment, request: Request) -> list[RecordSet]:
    """The sets that are asked, before records are chosen by their length. Raises InputError for whatever cannot be
    asked."""
    _check(wanted, request)
    if request.data is None:
        raise InputError("this experiment asks patients' records: name their folder with --data")
    return [load_records(request.data, name, request.population) for name in request.sets or (None,)]


# -- the library ------------------------------------------------------------------------------------------------------


def add_notes(
    path: Path,
    sets: Sequence[RecordSet],
    settings: Settings,
    chunk_tokens: int | None,
    on_progress: Callable[[IngestProgress], None] | None = None,
) -> IngestReport:
    """The notes of these sets in the library at `path`, made where there is none; what is there costs nothing.

    A new library has chunks of `chunk_tokens`; where nobody says, of CHUNK_TOKENS or, by an encoder that reads less, of
    its window. Raises UserError: longer chunks than the encoder reads, another encoder, no such model.
    """
    encoder, name = encoder_to_add(settings, path, ready_made=False)
    if chunk_tokens is None and not (path / MANIFEST).is_file():
        chunk_tokens = min(CHUNK_TOKENS, encoder.max_tokens)
    items = chain.from_iterable(each.notes() for each in sets)
    with open_or_create(path, encoder, name, chunk_tokens=chunk_tokens) as library:
        return add_documents(library, items, encoder, on_progress=on_progress)


# -- the cases --------------------------------------------------------------------------------------------------------


async def plan_record_experiment(
    wanted: Experiment, request: Request, sets: Sequence[RecordSet], settings: Settings, pipeline: Pipeline
) -> tuple[RunPlan, tuple[Case, ...]]:
    """A run of the experiment over the pipeline's library: its plan and its cases.

    Raises InputError: no such arm or population, a patient whose record is not in the library.
    """
    opened = pipeline.opened
    assert opened is not None
    model = pipeline.context(lambda _: None, Scope()).models["writer"]
    window = (await model.capabilities()).context_tokens
    records = _Records(opened, settings, await _counter(model))
    chosen = [await _chosen(each, wanted, request, records) for each in sets]
    asked = [dataset for dataset, _ in chosen]
    search = _search(opened, settings, request, settings.note_tokens or (window and max(1, window - _PROMPT)))
    asking = record_arms.RecordStudy(
        search, _extract(request, settings), request.repeats, settings.seed, settings.partition
    )
    arms = request.grid.arms or wanted.grid.arms
    cases = [
        case
        for each, dataset in zip(sets, asked, strict=True)
        for case in await asyncio.to_thread(
            record_arms.build_record_cases, records.charts(dataset.questions, each), asking, arms, {"set": each.name}
        )
    ]
    exact = (await model.capabilities()).exact_token_counts
    notices = {
        each.name: told for each, (_, left) in zip(sets, chosen, strict=True) if (told := (*each.notices, *left))
    }
    return _plan(wanted, request, asked, notices, arms, settings, pipeline, exact=exact), tuple(cases)


def _check(wanted: Experiment, request: Request) -> None:
    """Raises InputError for what was said and is of no use here."""
    grid = request.grid
    for flag, said in (
        ("-k", grid.ks),
        ("--place", grid.places),
        ("--votes", grid.votes),
        ("--temperature", grid.temperatures),
        ("--examples", request.examples),
        ("--gold", request.gold != "one"),
    ):
        if said:
            raise InputError(f"{wanted.name} does not vary that: leave {flag} out")
    arms = grid.arms or wanted.grid.arms
    record_arms.check_arms(arms)
    if record_arms.needs_sparse(arms) and request.sparse is None:
        raise InputError("the arms with +splade need a sparse encoder: name one with --sparse")


def _extract(request: Request, settings: Settings) -> ExtractionTarget:
    """`published`: a short sentence; `corrected`: as the settings say, a span where they say nothing."""
    return "sentence" if request.protocol == "published" else settings.extract


async def _chosen(
    each: RecordSet, wanted: Experiment, request: Request, records: _Records
) -> tuple[Dataset, tuple[str, ...]]:
    """The questions of the population, of the forms that the experiment is about, as many as are wanted, their records
    read; and a notice where a patient has no note in the library, so that nobody can be asked about it."""
    questions = tuple(question for question in each.questions if not wanted.forms or question.form in wanted.forms)
    if request.population in populations.SHORTEST:
        questions = populations.long_enough(questions, request.population, await records.read(questions))
    if not questions:
        forms = " or ".join(wanted.forms) or "any"
        raise InputError(f"{each.name} has no {forms} question in the population {request.population}: name another")
    dataset = Dataset(each.name, questions, {}, licence=each.licence)
    dataset = dataset if request.questions is None else at_random(dataset, request.questions, request.draw)
    tokens = await records.read(dataset.questions)
    there = tuple(question for question in dataset.questions if tokens[question.patient or ""])
    if not there:
        raise InputError(
            f"no patient of {each.name} has a note in this library: add the notes of the set, or leave --library out"
        )
    lost = len(dataset.questions) - len(there)
    notice = (f"{lost} of {len(dataset.questions)} questions are of patients without a note in the library: left out",)
    return replace(dataset, questions=there), notice if lost else ()


def _plan(
    wanted: Experiment,
    request: Request,
    asked: Sequence[Dataset],
    notices: Mapping[str, Sequence[str]],
    arms: Sequence[str],
    settings: Settings,
    pipeline: Pipeline,
    *,
    exact: bool,
) -> RunPlan:
    from epicrisis.evaluation.experiments.registry import together

    n, patients = populations.pairs_and_patients([question for each in asked for question in each.questions])
    grid = replace(request.grid, arms=tuple(arms))
    return RunPlan(
        name=wanted.name,
        arguments={
            "protocol": request.protocol,
            **{each.name: value for each in fields(grid) if (value := getattr(grid, each.name))},
            "population": request.population,
            "asked": {each.name: _sizes(each, request.population) for each in asked},
            "tokens": "counted" if exact else "estimated from above",
            **_library_told(pipeline),
            **({"sparse": request.sparse} if request.sparse else {}),
            "repeats": request.repeats,
        },
        recipe=pipeline.recipe(),
        dataset=together(asked),
        sample={
            "how": "all" if request.questions is None else "at-random",
            "n": n,
            "patients": patients,
            "seed": request.draw,
            **({"notices": notices} if notices else {}),
        },
        seed=settings.seed,
    )


def _sizes(asked: Dataset, population: str) -> dict[str, str | int]:
    questions, patients = populations.pairs_and_patients(asked.questions)
    unanswerable = sum(is_unanswerable(question.gold, question.options) for question in asked.questions)
    return {"population": population, "questions": questions, "patients": patients, "unanswerable": unanswerable}


def _library_told(pipeline: Pipeline) -> dict[str, int]:
    """How the library was cut (errata E1)."""
    assert pipeline.opened is not None
    made = pipeline.opened.library.manifest
    return {"chunk_tokens": made.max_tokens, "overlap": made.overlap}


# -- records ----------------------------------------------------------------------------------------------------------


async def _counter(model: ChatModel) -> Callable[[Sequence[str]], asyncio.Future[list[int]]]:
    """Counts the tokens of texts, each by itself, what a prompt puts around them taken off."""
    around = await model.count_tokens((Message("user", ""),))
    slots = asyncio.Semaphore(_COUNTED_AT_ONCE)

    async def one(text: str) -> int:
        async with slots:
            return max(0, await model.count_tokens((Message("user", text),)) - around)

    return lambda texts: asyncio.gather(*map(one, texts))


@dataclass(slots=True)
class _Records:
    """The records of a library, each read once: whole notes, oldest first, and their tokens."""

    opened: Opened
    settings: Settings
    count: Callable[[Sequence[str]], asyncio.Future[list[int]]]
    notes: dict[str, tuple[Passage, ...]]
    tokens: dict[str, int]

    def __init__(
        self, opened: Opened, settings: Settings, count: Callable[[Sequence[str]], asyncio.Future[list[int]]]
    ) -> None:
        self.opened, self.settings, self.count = opened, settings, count
        self.notes, self.tokens = {}, {}

    async def read(self, questions: Iterable[Question]) -> dict[str, int]:
        """Tokens of the record of each patient asked about; 0 where there is no note."""
        for question in questions:
            patient = question.patient or ""
            if patient not in self.notes:
                scope = scope_of(self.settings.scope, question=question)
                notes = of_record(await asyncio.to_thread(self.opened.library.record, scope)).passages
                self.notes[patient] = notes
                counts = await self.count([note.text for note in notes])
                self.tokens |= {note.document_id: n for note, n in zip(notes, counts, strict=True)}
        return {patient: sum(self.tokens[note.document_id] for note in notes) for patient, notes in self.notes.items()}

    def charts(self, questions: Sequence[Question], of_set: RecordSet) -> list[record_arms.Chart]:
        return [
            record_arms.Chart(question, notes, of_set.related.get(question.id, frozenset()), self._tokens(notes))
            for question in questions
            for notes in [self.notes[question.patient or ""]]
        ]

    def _tokens(self, notes: Sequence[Passage]) -> dict[str, int]:
        return {note.document_id: self.tokens[note.document_id] for note in notes}


# -- the search -------------------------------------------------------------------------------------------------------


def _search(opened: Opened, settings: Settings, request: Request, note_tokens: int | None) -> record_arms.RecordSearch:
    sparse = None if request.sparse is None else load_sparse(request.sparse, settings.home, settings.threads)

    def scope(question: Question, hidden: frozenset[str] = frozenset()) -> Scope:
        seen = scope_of(settings.scope, question=question)
        return replace(seen, hidden=seen.hidden | hidden)

    def chunks(question: Question, k: int, by: str, hidden: frozenset[str]) -> Ranking:
        seen = scope(question, hidden)
        if by != "splade":
            ways: Mapping[str, SearchMode] = {"hybrid": settings.by, "bm25": "bm25", "dense": "dense"}
            return opened.retriever.rank(question.text, k, ways[by], seen)
        assert sparse is not None, "looked at before"
        passages = opened.library.record(seen)
        words = partial(sparse_ranking, question.text, passages, sparse)
        return opened.retriever.rank(question.text, k, "hybrid", seen, words)

    def resolved(chart: record_arms.Chart) -> Resolution:
        return resolve(
            chart.question.text,
            NoteTime.of(chart.notes),
            lambda event: telling(event, chart.notes),
            lambda time, years: stating(time, chart.notes, years),
        )

    return record_arms.RecordSearch(chunks, resolved, note_tokens)
