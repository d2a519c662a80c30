"""From sets of patients' records to the plan and the cases of an experiment.

Each question is asked with the whole record of its patient; lengths are those of the answering model's tokenizer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from operator import methodcaller
from pathlib import Path
from typing import Any, TypeAlias

from epicrisis.answering.paper_prompts import EHR, describe_prompts
from epicrisis.core.clinical_facts import FACTS
from epicrisis.core.errors import InputError
from epicrisis.core.printable import agree, count_noun
from epicrisis.core.protocols import ChatModel, Message
from epicrisis.core.question_options import is_unanswerable
from epicrisis.core.types import Passage, Question, Ranking, Scope, SearchMode
from epicrisis.evaluation.datasets.dataset import Dataset, sample_at_random
from epicrisis.evaluation.datasets.patient_records import populations
from epicrisis.evaluation.datasets.patient_records.recordset import load_records
from epicrisis.evaluation.datasets.patient_records.source import RecordSet
from epicrisis.evaluation.experiments import record_arms
from epicrisis.evaluation.experiments.definition import Experiment, Request
from epicrisis.evaluation.experiments.planning import describe_grid, describe_sets
from epicrisis.evaluation.experiments.record_studies import PROTOCOL_NOTES
from epicrisis.evaluation.runs.run_folder import RunPlan
from epicrisis.library.base.manifest import NAME as MANIFEST
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.library.write.ingest_batches import IngestProgress, IngestReport
from epicrisis.models.encoders import load_sparse
from epicrisis.pipeline.components import LibrarySearch, build_scope, load_ingest_encoder
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.pipeline.question_evidence import build_context
from epicrisis.pipeline.recording.case import Case
from epicrisis.retrieval.event_mentions import find_event_mentions, find_notes_with_date
from epicrisis.retrieval.hospital_stays import NoteTime
from epicrisis.retrieval.rankings import rank_by_sparse_vectors
from epicrisis.retrieval.record_context import rank_record
from epicrisis.retrieval.timeline import Resolution, resolve
from epicrisis.settings.settings import Settings

CHUNK_TOKENS = 512
"""The study's chunks (3.3)."""
_CONCURRENT_COUNTS = 8
_PROMPT_TOKENS = 1_500
"""Room for the question, the text around the notes, and the reply."""

TokenCounter: TypeAlias = Callable[[Sequence[str]], Awaitable[list[int]]]


def load_record_sets(experiment: Experiment, request: Request) -> list[RecordSet]:
    """Load the requested sets, before records are chosen by length. Raises InputError for unusable options."""
    _check(experiment, request)
    if request.data is None:
        raise InputError("this experiment asks patients' records: name their folder with --data")
    return [load_records(request.data, name, request.population) for name in request.sets or (None,)]


def add_notes(
    path: Path,
    sets: Iterable[RecordSet],
    settings: Settings,
    chunk_tokens: int | None,
    on_progress: Callable[[IngestProgress], None] | None = None,
) -> IngestReport:
    """Add the notes of these sets to the library at `path`, which is created if needed; known notes cost nothing.

    A new library has chunks of `chunk_tokens`; by default of CHUNK_TOKENS, or of the window of an encoder with a
    smaller one. Raises UserError for longer chunks than the encoder reads, another encoder, or a missing model.
    """
    encoder, name = load_ingest_encoder(settings, path, precomputed=False)
    if chunk_tokens is None and not (path / MANIFEST).is_file():
        chunk_tokens = min(CHUNK_TOKENS, encoder.max_tokens)
    notes = chain.from_iterable(map(methodcaller("notes"), sets))
    with open_or_create(path, encoder, name, chunk_tokens=chunk_tokens) as library:
        return add_documents(library, notes, encoder, on_progress=on_progress)


def check_protocol(request: Request, settings: Settings) -> None:
    """Raise InputError if the prompts of the study cannot be used with these settings."""
    if request.protocol == "published" and settings.citing == "numbers":
        raise InputError(
            "protocol published has the prompts of the study, which know no citing=numbers: leave the setting out, or "
            "use --protocol corrected"
        )


async def plan_record_experiment(
    experiment: Experiment, request: Request, sets: Sequence[RecordSet], settings: Settings, pipeline: Pipeline
) -> tuple[RunPlan, tuple[Case, ...]]:
    """Build the plan and the cases of a run over the pipeline's library.

    Raises InputError for an unknown arm or population, or a library without the patients' notes.
    """
    library_search = pipeline.search
    assert library_search is not None
    model = build_context(pipeline, lambda _: None, Scope()).models["writer"]
    window = (await model.capabilities()).context_tokens
    reader = _RecordReader(library_search, settings, await _token_counter(model))
    chosen: list[Dataset] = []
    notices: dict[str, tuple[str, ...]] = {}
    for record_set in sets:
        dataset, left_out = await _choose_questions(record_set, experiment, request, reader)
        chosen.append(dataset)
        if record_set.notices or left_out:
            notices[record_set.name] = (*record_set.notices, *left_out)
    note_tokens = settings.note_tokens or (window and max(1, window - _PROMPT_TOKENS))
    search = _build_search(library_search, settings, request, note_tokens)
    # `published`: a short sentence; `corrected`: as in the settings, by default a span.
    extract = "sentence" if request.protocol == "published" else settings.extract
    prompts = EHR if request.protocol == "published" else None
    study = record_arms.RecordStudy(search, extract, request.repeats, settings.seed, settings.partition, prompts)
    arms = request.grid.arms or experiment.grid.arms
    cases: list[Case] = []
    for record_set, dataset in zip(sets, chosen, strict=True):
        charts = reader.charts(dataset.questions, record_set)
        cases += await asyncio.to_thread(record_arms.build_record_cases, charts, study, arms, {"set": record_set.name})
    n, patients = populations.count_questions_and_patients(list(chain.from_iterable(item.questions for item in chosen)))
    how = "all" if request.questions is None else "at-random"
    sample: dict[str, Any] = {"how": how, "n": n, "patients": patients, "seed": request.draw}
    if notices:
        sample["notices"] = notices
    exact = (await model.capabilities()).exact_token_counts
    plan = RunPlan(
        name=experiment.name,
        arguments=_describe_arguments(request, chosen, arms, pipeline, exact=exact),
        recipe=pipeline.recipe(),
        dataset=describe_sets(chosen),
        sample=sample,
        seed=settings.seed,
    )
    return plan, tuple(cases)


def _check(experiment: Experiment, request: Request) -> None:
    """Raise InputError for options without effect, an unknown arm, or a missing sparse encoder."""
    grid = request.grid
    unused = {
        "-k": grid.ks,
        "--place": grid.places,
        "--votes": grid.votes,
        "--temperature": grid.temperatures,
        "--examples": request.examples,
        "--gold": request.gold != "one",
    }
    for flag, value in unused.items():
        if value:
            raise InputError(f"{experiment.name} does not vary that: leave {flag} out")
    if request.protocol not in PROTOCOL_NOTES:
        raise InputError(
            f"{experiment.name} has no protocol {request.protocol}, since the study of records has no published code "
            f"(errata E1): use {' or '.join(PROTOCOL_NOTES)}"
        )
    arms = grid.arms or experiment.grid.arms
    record_arms.check_arms(arms)
    if request.sparse is None and "+splade" in " ".join(arms):
        raise InputError("the arms with +splade need a sparse encoder: give one with --sparse")


async def _choose_questions(
    record_set: RecordSet, experiment: Experiment, request: Request, reader: _RecordReader
) -> tuple[Dataset, tuple[str, ...]]:
    """Return the sample of the population and forms, and notices on patients without a note in the library."""
    questions = record_set.questions
    if experiment.forms:
        questions = tuple(question for question in questions if question.form in experiment.forms)
    if request.population in populations.SHORTEST:
        questions = populations.select_by_length(questions, request.population, await reader.read(questions))
    if not questions:
        forms = " or ".join(experiment.forms) or "any"
        raise InputError(
            f"{record_set.name} has no {forms} question in the population {request.population}: name another"
        )
    dataset = Dataset(record_set.name, questions, {}, licence=record_set.licence)
    if request.questions is not None:
        dataset = sample_at_random(dataset, request.questions, request.draw)
    tokens = await reader.read(dataset.questions)
    with_notes = tuple(question for question in dataset.questions if tokens[question.patient or ""])
    if not with_notes:
        raise InputError(
            f"no patient of {record_set.name} has a note in this library: add the notes of the set, or leave --library "
            "out"
        )
    n, missing = len(dataset.questions), len(dataset.questions) - len(with_notes)
    notice = (
        f"{missing} of {count_noun(n, 'question')} {agree(missing, 'is', 'are')} of patients without "
        "a note in the library: left out"
    )
    return replace(dataset, questions=with_notes), (notice,) if missing else ()


def _describe_arguments(
    request: Request, chosen: Sequence[Dataset], arms: Sequence[str], pipeline: Pipeline, *, exact: bool
) -> dict[str, Any]:
    """Return the arguments of the plan, with the chunks of the library (errata E1)."""
    assert pipeline.search is not None
    manifest = pipeline.search.library.manifest
    sizes: dict[str, dict[str, str | int]] = {}
    for dataset in chosen:
        questions, patients = populations.count_questions_and_patients(dataset.questions)
        unanswerable = sum(is_unanswerable(question.gold, question.options) for question in dataset.questions)
        size = {"questions": questions, "patients": patients, "unanswerable": unanswerable}
        sizes[dataset.name] = {"population": request.population, **size}
    arguments: dict[str, Any] = {
        "protocol": request.protocol,
        **describe_grid(replace(request.grid, arms=tuple(arms))),
        "population": request.population,
        "asked": sizes,
        "tokens": "counted" if exact else "estimated from above",
        "chunk_tokens": manifest.max_tokens,
        "overlap": manifest.overlap,
    }
    if request.protocol == "published":
        arguments["prompts"] = describe_prompts(EHR)
    if request.sparse:
        arguments["sparse"] = request.sparse
    return {**arguments, "repeats": request.repeats}


async def _token_counter(model: ChatModel) -> TokenCounter:
    """Return a function that counts the tokens of each text, without those of the prompt around it."""
    around = await model.count_tokens((Message("user", ""),))
    slots = asyncio.Semaphore(_CONCURRENT_COUNTS)

    async def count(text: str) -> int:
        async with slots:
            return max(0, await model.count_tokens((Message("user", text),)) - around)

    async def count_all(texts: Sequence[str]) -> list[int]:
        return await asyncio.gather(*map(count, texts))

    return count_all


@dataclass(frozen=True, slots=True)
class _RecordReader:
    """Reads each record of a library once: whole notes, oldest first, and their tokens."""

    search: LibrarySearch
    settings: Settings
    count: TokenCounter
    notes: dict[str, tuple[Passage, ...]] = field(default_factory=dict)
    """By patient."""
    tokens: dict[str, int] = field(default_factory=dict)
    """By note."""

    async def read(self, questions: Iterable[Question]) -> dict[str, int]:
        """Read the records of all patients in the questions. Return the tokens of each record: 0 without a note."""
        for question in questions:
            patient = question.patient or ""
            if patient not in self.notes:
                scope = build_scope(self.settings.scope, question=question)
                notes = rank_record(await asyncio.to_thread(self.search.library.fetch_record, scope)).passages
                counts = await self.count([note.text for note in notes])
                self.notes[patient] = notes
                self.tokens.update(zip([note.document_id for note in notes], counts, strict=True))
        return {patient: sum(self._tokens_of(notes).values()) for patient, notes in self.notes.items()}

    def charts(self, questions: Sequence[Question], record_set: RecordSet) -> list[record_arms.Chart]:
        """Return the chart of each question."""
        charts: list[record_arms.Chart] = []
        for question in questions:
            notes = self.notes[question.patient or ""]
            facts = frozenset(note.document_id for note in notes if FACTS in note.metadata)
            charts.append(record_arms.Chart(question, notes, record_set.note_types, self._tokens_of(notes), facts))
        return charts

    def _tokens_of(self, notes: Sequence[Passage]) -> dict[str, int]:
        return {note.document_id: self.tokens[note.document_id] for note in notes}


def _build_search(
    library_search: LibrarySearch, settings: Settings, request: Request, note_tokens: int | None
) -> record_arms.RecordSearch:
    sparse = None if request.sparse is None else load_sparse(request.sparse, settings.home, settings.threads)
    modes: Mapping[str, SearchMode] = {"hybrid": settings.by, "bm25": "bm25", "dense": "dense"}

    def search(question: Question, k: int, by: str, hidden: frozenset[str]) -> Ranking:
        scope = build_scope(settings.scope, question=question)
        scope = replace(scope, hidden=scope.hidden | hidden)
        if by != "splade":
            return library_search.retriever.rank(question.text, k, modes[by], scope)
        assert sparse is not None, "checked by load_record_sets"
        rank_words = partial(rank_by_sparse_vectors, question.text, library_search.library.fetch_record(scope), sparse)
        return library_search.retriever.rank(question.text, k, "hybrid", scope, rank_words)

    def resolve_time(chart: record_arms.Chart) -> Resolution:
        return resolve(
            chart.question.text,
            NoteTime.from_passages(chart.notes),
            lambda event: find_event_mentions(event, chart.notes),
            lambda time, years: find_notes_with_date(time, chart.notes, years),
        )

    return record_arms.RecordSearch(search, resolve_time, note_tokens)
