"""`epicrisis experiment` and `probe`: the experiments of the papers, each in one command, resumable."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from epicrisis.cli.command import Flags, command, fail
from epicrisis.cli.grade_run import Measures, measure_run
from epicrisis.cli.options import BUDGET, COMMON, ENCODER, MODEL, SEED, Data, Draw, Json, LibraryOption, RunFolder, Yes
from epicrisis.cli.progress import show_ingest
from epicrisis.cli.run_progress import file_name_part, run_cases, run_folder, say_skipped, show_runs
from epicrisis.cli.terminal import say
from epicrisis.core.errors import InputError
from epicrisis.evaluation.experiments.registry import NAMES

if TYPE_CHECKING:
    from epicrisis.evaluation.datasets.patient_records.source import RecordSet
    from epicrisis.evaluation.experiments.definition import Experiment, Request
    from epicrisis.evaluation.runs.run_folder import RunManifest, RunPlan
    from epicrisis.pipeline.pipeline import Pipeline
    from epicrisis.pipeline.recording.case import Case
    from epicrisis.settings.settings import Settings

_compared = partial(Option, rich_help_panel="What is compared")
_measured = partial(Option, rich_help_panel="Measures of open answers about records")

Texts = list[str] | None
Numbers = list[int] | None
Protocol = Annotated[
    Literal["published", "as-coded", "as-coded-mixtral", "as-coded-llama-2", "as-coded-llama-3", "corrected"],
    _compared(
        help="Follow the paper's text, its notebooks (for GPT-3.5, or for another family of models), or a corrected "
        "protocol."
    ),
]
Sets = Annotated[
    Texts,
    _compared(
        "--set",
        help="Question set, by name or file (repeatable); `cloze` makes questions from the library. Default: the "
        "paper's.",
    ),
]
Sample = Annotated[
    int | None,
    _compared(
        "--questions",
        "-n",
        min=1,
        help="Size of a random sample of each set; of each class if the protocol samples by class.",
    ),
]
Repeats = Annotated[int, _compared(min=1, help="Ask everything this often, each time with the next seed.")]
Ks = Annotated[Numbers, _compared("-k", min=0, help="Documents to read, or examples to show (repeatable).")]
Places = Annotated[
    Numbers, _compared("--place", min=0, max=100, help="Position of the key document, 0 first, 100 last (repeatable).")
]
Arms = Annotated[Texts, _compared("--arm", help="Arm to compare: rag, self-consistency, retrieved, ... (repeatable).")]
Gold = Annotated[Literal["one", "all"], _compared(help="Place one of several key documents, drawn at random, or all.")]
Votes = Annotated[Numbers, _compared("--votes", min=1, help="Number of votes (repeatable).")]
Temperatures = Annotated[
    list[float] | None, _compared("--temperature", min=0, max=2, help="Temperature of votes (repeatable).")
]
PromptTokens = Annotated[
    Numbers,
    _compared(
        "--prompt-tokens", min=200, help="Limit for all prompts of a question together, for every arm (repeatable)."
    ),
]
Examples = Annotated[
    Texts, _compared("--examples", help="Library of solved questions, as NAME=FOLDER or FOLDER (repeatable).")
]
AlsoModel = Annotated[Texts, _compared("--also", help="Run with this model too and share the tables (repeatable).")]
Reranker = Annotated[
    str | None,
    _compared(
        "--reranker", help="Reranker of the arm `reranked`, of examples, or of preflight signals: name, folder or URL."
    ),
]
Sparse = Annotated[str | None, _compared("--sparse", help="Sparse encoder of the arms +splade: name or folder.")]
Population = Annotated[
    str,
    _compared(
        help="Questions about records: all, answerable, 8k-and-longer, 4k-and-longer, or table-1 to table-4 of the "
        "study."
    ),
]
ChunkTokens = Annotated[
    int | None, Option("--chunk-tokens", min=8, help="Tokens per passage of a library made for the run.")
]
Judges = Annotated[Texts, _measured("--judge", help="Model that grades the answers (repeatable).")]
AgainstNotes = Annotated[
    bool, _measured("--against-notes", help="Also grade answers against the notes, which costs as much as asking.")
]
Nli = Annotated[Texts, _measured("--nli", help="Entailment model: name or folder (repeatable).")]
BertScore = Annotated[Texts, _measured("--bertscore", help="Encoder for BERTScore: name or folder.")]

_COUNTING = ("cost", "focused")
"""Experiments that count tokens, which are unknown for cached replies."""


@command(
    MODEL,
    SEED,
    ENCODER,
    *BUDGET,
    *COMMON,
    examples=[
        "epicrisis experiment positions --library ~/lib --model URL -n 105 -k 8",
        "epicrisis experiment context-length --library ~/lib --model URL --protocol published",
        "epicrisis experiment focused --set pubmedqa --prompt-tokens 2000 --model URL -n 40",
    ],
)
def experiment(
    name: Annotated[str, Argument(metavar="NAME", help=f"One of {', '.join(NAMES)}.")],
    library: LibraryOption = None,
    protocol: Protocol = "corrected",
    sets: Sets = None,
    sample: Sample = None,
    draw: Draw = 0,
    repeats: Repeats = 1,
    ks: Ks = None,
    places: Places = None,
    arms: Arms = None,
    gold: Gold = "one",
    votes: Votes = None,
    temperatures: Temperatures = None,
    prompt_tokens: PromptTokens = None,
    examples: Examples = None,
    also: AlsoModel = None,
    reranker: Reranker = None,
    sparse: Sparse = None,
    population: Population = "all",
    chunk_tokens: ChunkTokens = None,
    judges: Judges = None,
    against_notes: AgainstNotes = False,
    nli: Nli = None,
    bertscore: BertScore = None,
    output: RunFolder = None,
    data: Data = None,
    yes: Yes = False,
    *,
    flags: Flags,
    json: Json = False,
) -> None:
    """Run an experiment of the papers, or continue one, and show its tables.

    Options default to the values of the paper. `cost` and `focused` measure tokens, so they ignore cached replies
    unless `--setting cache.mode=on`. `focused` makes a library of the documents of its question sets if there is none.
    """
    from epicrisis.cli.calibrate import run_study
    from epicrisis.evaluation.experiments.definition import Grid, Request
    from epicrisis.evaluation.experiments.registry import find_experiment

    grid = Grid(
        tuple(arms or ()),
        tuple(ks or ()),
        tuple(places or ()),
        tuple(votes or ()),
        tuple(temperatures or ()),
        tuple(prompt_tokens or ()),
    )
    request = Request(
        protocol=protocol,
        sets=tuple(sets or ()),
        data=data,
        questions=sample,
        draw=draw,
        repeats=repeats,
        gold=gold,
        reranker=reranker,
        population=population,
        sparse=sparse,
        examples=tuple(map(_named_folder, examples or ())),
        grid=grid,
    )
    chosen = find_experiment(name)
    _check(chosen, request)
    if chosen.reads == "rankings":
        if library is None:
            raise InputError("this experiment reads documents of a library: add --library FOLDER")
        settings = flags.settings({"rerank": {"name": reranker}, "by": "dense"})
        folder = run_folder(output, "preflight", library.resolve().name)
        run_study(settings, library, request.sets, data, folder, json)
        return
    if name in _COUNTING and "mode" not in flags.values.get("cache", {}):
        flags = flags.with_values({"cache": {"mode": "off"}})
    call = _Call(chosen, request, flags, library, output, also or (), yes, json)
    if chosen.reads == "records":
        measures = Measures(tuple(judges or ()), tuple(nli or ()), tuple(bertscore or ()))
        _run_on_records(call, measures, against_notes, chunk_tokens)
    else:
        _run_on_passages(call)


@command(
    MODEL,
    SEED,
    ENCODER,
    *BUDGET,
    *COMMON,
    examples=[
        "epicrisis probe --library ~/lib --model URL",
        "epicrisis probe --library ~/lib --model URL --set my-questions.jsonl -n 100 -k 32",
    ],
)
def probe(
    library: LibraryOption = None,
    sets: Annotated[
        Texts,
        Option(
            "--set",
            help="Question set whose key documents are in the library (repeatable). Default: sentences of the library "
            "with a number left out.",
        ),
    ] = None,
    sample: Annotated[int, Option("--questions", "-n", min=2, help="Number of questions.")] = 40,
    k: Annotated[int, Option("-k", min=3, help="Documents per prompt.")] = 16,
    output: RunFolder = None,
    data: Data = None,
    yes: Yes = False,
    *,
    flags: Flags,
    json: Json = False,
) -> None:
    """Test whether a model loses the middle of long prompts on your documents, and whether map-reduce is worth it.

    The same questions are asked with the key passage first, in the middle and last of k passages, by RAG and by
    BriefContext, with the key passage alone, and without documents.
    """
    from epicrisis.evaluation.experiments.definition import Grid, Request
    from epicrisis.evaluation.experiments.registry import find_experiment

    request = Request(sets=tuple(sets or ()), data=data, questions=sample, grid=Grid(ks=(k,)))
    call = _Call(find_experiment("probe"), request, flags, library, output, (), yes, json)
    _run_on_passages(call, first_table_only=True)


@dataclass(frozen=True, slots=True)
class _Call:
    """An experiment, with options for its place and models."""

    experiment: Experiment
    request: Request
    flags: Flags
    library: Path | None
    output: Path | None
    also: Sequence[str]
    yes: bool
    json: bool

    def runs(self, defaults: Mapping[str, Any], changes: Mapping[str, Any]) -> list[tuple[Path, Settings]]:
        """Return the folder and the settings for the model of the options and for each further model."""
        runs = []
        for model in (None, *self.also):
            overrides = {**changes} if model is None else {**changes, "models": {"writer": {"name": model}}}
            settings = self.flags.settings(overrides, defaults=defaults)
            name = settings.model_for("writer").name
            if self.also:
                folder = run_folder(self.output, self.experiment.name) / file_name_part(name)
            else:
                folder = run_folder(self.output, self.experiment.name, name)
            runs.append((folder, settings))
        return runs


def _check(experiment: Experiment, request: Request) -> None:
    """Raise InputError for options the experiment cannot use."""
    from epicrisis.evaluation.experiments.definition import Request

    uses_reranker = experiment.reads != "passages" or experiment.name in ("integration", "medprompt")
    if request.reranker is not None and not uses_reranker and "reranked" not in request.grid.arms:
        raise InputError("--reranker is for the arm `reranked`: add --arm reranked, and the other arms you want")
    if experiment.name == "open-ended" and request.repeats > 1:
        raise InputError("open-ended asks each question once per arm: leave --repeats out")
    if experiment.reads == "rankings":
        usable = Request(sets=request.sets, data=request.data, reranker=request.reranker)
        if request != usable:
            raise InputError(
                f"{experiment.name} ranks complete question sets and asks no model: of the options on what is "
                "compared, use only --set and --reranker"
            )


def _named_folder(text: str) -> tuple[str, Path]:
    """Return name and folder of `NAME=FOLDER`, or of a folder under its own name."""
    name, separator, folder = text.partition("=")
    path = Path(folder if separator else name).expanduser()
    return (name if separator else path.name), path


def _run_on_passages(call: _Call, first_table_only: bool = False) -> None:
    """Run or continue an experiment on passages of literature, each model in a folder of its own."""
    from epicrisis.evaluation.experiments.planning import plan_experiment
    from epicrisis.evaluation.experiments.run_findings import read_findings
    from epicrisis.evaluation.experiments.study_protocols import find_protocol

    manifests: dict[Path, RunManifest] = {}
    defaults = find_protocol(call.request.protocol).settings
    for folder, settings in call.runs(defaults, {"strategy": call.experiment.strategy}):
        library = call.library
        if library is None and call.experiment.brings_documents:
            library = _make_library(call, settings)

        async def prepare(pipeline: Pipeline, settings: Settings = settings) -> tuple[RunPlan, Sequence[Case]]:
            return plan_experiment(call.experiment, call.request, settings, pipeline)

        run = run_cases(settings, library, folder, prepare, yes=call.yes, quiet=call.json)
        manifests[folder] = asyncio.run(run)
    show_runs(read_findings(list(manifests)), manifests, json=call.json, first_table_only=first_table_only)


def _make_library(call: _Call, settings: Settings) -> Path:
    """Return a library of the documents that the question sets bring, in `runs/`; added documents cost nothing."""
    from epicrisis.evaluation.experiments.planning import add_set_documents
    from epicrisis.pipeline.components import DEFAULT_ENCODER

    names = call.request.sets or call.experiment.sets
    parts = [*map(file_name_part, names), file_name_part(settings.encoder or DEFAULT_ENCODER)]
    path = Path("runs") / f"library-{'-'.join(parts)}"
    with show_ingest("Reading the documents", quiet=call.json) as display:
        report = add_set_documents(path, names, settings, call.request.data, display.show)
    if report.added or report.replaced:
        say(f"{report.added + report.replaced} documents, {report.passages} passages in {path}", err=True)
    return path


def _run_on_records(call: _Call, measures: Measures, against_notes: bool, chunk_tokens: int | None) -> None:
    """Run or continue an experiment on patient records, measure its answers, and show its findings.

    Without a library, one is created from the notes of the sets, next to the runs, for all experiments on these sets.
    """
    from epicrisis.evaluation.experiments.record_cases import (
        add_notes,
        check_protocol,
        load_record_sets,
        plan_record_experiment,
    )
    from epicrisis.evaluation.experiments.record_studies import PROTOCOL_SETTINGS
    from epicrisis.evaluation.experiments.run_findings import read_findings
    from epicrisis.evaluation.grading.scored_answers import read_answers

    experiment, request = call.experiment, call.request
    sets = load_record_sets(experiment, request)
    for record_set in sets:
        for notice in record_set.notices:
            say(f"note: {record_set.name}: {notice}", err=True)
    changes = {} if request.reranker is None else {"rerank": {"name": request.reranker}}
    manifests: dict[Path, RunManifest] = {}
    failed = 0
    defaults = {**PROTOCOL_SETTINGS[request.protocol], "strategy": experiment.strategy}
    for folder, settings in call.runs(defaults, changes):
        check_protocol(request, settings)
        path = call.library or _library_of(sets, request.data or Path(), settings, chunk_tokens)
        with show_ingest("Reading the notes", quiet=call.json) as display:
            report = add_notes(path, sets, settings, chunk_tokens, display.show)
        if report.added or report.replaced:
            say(f"{report.added + report.replaced} notes, {report.passages} passages in {path}", err=True)
        say_skipped(report.reasons)

        async def prepare(pipeline: Pipeline, settings: Settings = settings) -> tuple[RunPlan, Sequence[Case]]:
            return await plan_record_experiment(experiment, request, sets, settings, pipeline)

        manifests[folder] = asyncio.run(run_cases(settings, path, folder, prepare, yes=call.yes, quiet=call.json))
        if any(answer.measurable for answer in read_answers(folder)):
            notes = path if measures.judges and against_notes else None
            failed += measure_run(folder, measures, settings, notes, yes=call.yes, quiet=call.json)
    show_runs(read_findings(list(manifests)), manifests, json=call.json)
    if failed:
        fail(f"{failed} measures failed; the same command computes them again")


def _library_of(sets: Sequence[RecordSet], data: Path, settings: Settings, chunk_tokens: int | None) -> Path:
    """Return the folder for a library of these sets, named after their files, encoder and chunk size.

    Changed files get another folder, so that records from different sources never mix.
    """
    from epicrisis.pipeline.components import DEFAULT_ENCODER

    files = []
    for file in sorted(data.rglob("*")) if data.is_dir() else [data]:
        if file.is_file():
            files.append((str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns))
    digest = hashlib.sha256(repr(files).encode()).hexdigest()[:8]
    parts = [record_set.name for record_set in sets]
    parts.append(settings.encoder or DEFAULT_ENCODER)
    if chunk_tokens:
        parts.append(str(chunk_tokens))
    return Path("runs") / f"library-{'-'.join(map(file_name_part, [*parts, digest]))}"
