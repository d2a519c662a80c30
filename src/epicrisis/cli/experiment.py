"""`epicrisis experiment`: each experiment of the papers as one command, resumable."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from epicrisis.cli.common import plain_name, translated
from epicrisis.cli.evaluate import Data, Draw, Folder, Library, Yes
from epicrisis.cli.options import (
    AllowRemote,
    AtOnce,
    BudgetMinutes,
    BudgetTokens,
    BudgetUsd,
    Cache,
    Config,
    Deadline,
    EncoderName,
    Json,
    LocalOnly,
    Log,
    LongQuestions,
    ModelName,
    NoteTokens,
    Preset,
    Seed,
    Setting,
    said,
)
from epicrisis.cli.record_experiments import Measures
from epicrisis.cli.record_experiments import asked as asked_of_records
from epicrisis.cli.running import folder_of, run_cases, show_runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from epicrisis.evaluation.experiments.experiment import Request
    from epicrisis.evaluation.runs.case import Case
    from epicrisis.evaluation.runs.run_folder import RunManifest, RunPlan
    from epicrisis.pipeline import Pipeline
    from epicrisis.settings import Settings

NAMES = (
    "positions",
    "integration",
    "conflicts",
    "context-length",
    "preflight",
    "attention-bias",
    "cost",
    "open-ended",
    "ensembles",
    "medprompt",
    "models",
    "openmedprompt",
    "ehr-context",
    "ehr-retrieval",
    "ehr-extractive",
    "ehr-metrics",
    "ehr",
)
OF_RECORDS = tuple(name for name in NAMES if name.startswith("ehr"))
_OF_CASES = {
    "protocol": "--protocol",
    "sample": "-n",
    "draw": "--draw",
    "repeats": "--repeats",
    "ks": "-k",
    "places": "--place",
    "arms": "--arm",
    "gold": "--gold",
    "votes": "--votes",
    "examples": "--examples",
    "temperatures": "--temperature",
}
"""Options of experiments whose cases a model answers; `preflight` has none."""

Protocol = Annotated[
    Literal["published", "as-coded", "corrected"],
    typer.Option(help="By whose rules: the paper's text, its notebooks, or a sound study."),
]
Population = Annotated[
    str | None,
    typer.Option(
        help="Which questions about records: all, answerable, 8k-and-longer, 4k-and-longer, or those of the study's "
        "table-1 to table-4."
    ),
]
Judges = Annotated[
    list[str] | None, typer.Option("--judge", help="Let this model judge open answers about records (repeat for more).")
]
AgainstNotes = Annotated[
    bool, typer.Option("--against-notes", help="Let the judges hold answers against the notes too: as dear as asking.")
]
Nli = Annotated[
    list[str] | None, typer.Option("--nli", help="Entailment of open answers by this model: name or folder (repeat).")
]
BertScore = Annotated[list[str] | None, typer.Option("--bertscore", help="BERTScore by this encoder: name or folder.")]
Sparse = Annotated[
    str | None, typer.Option("--sparse", help="Sparse encoder of the arms with +splade: name or folder.")
]
ChunkTokens = Annotated[int | None, typer.Option("--chunk-tokens", min=8, help="Chunks of a library that is made.")]

Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Question set, by name or file, in the paper's place (repeat for more); `cloze`: the "
        "probe's own, not for `preflight`.",
    ),
]
Sample = Annotated[
    int | None,
    typer.Option(
        "--questions",
        "-n",
        min=1,
        help="So many of each set, drawn by --draw; of each class, where the protocol draws by class.",
    ),
]
Repeats = Annotated[int, typer.Option(min=1, help="Ask everything so often, each time with the next seed.")]
Ks = Annotated[
    list[int] | None, typer.Option("-k", min=0, help="How many documents are read, or examples shown (repeat).")
]
Places = Annotated[
    list[int] | None,
    typer.Option("--place", min=0, max=100, help="Where the key document stands, 0 first, 100 last (repeat)."),
]
Arms = Annotated[
    list[str] | None,
    typer.Option("--arm", help="What is compared: rag, self-consistency, retrieved, ... (repeat for more)."),
]
Gold = Annotated[Literal["one", "all"], typer.Option(help="Of several key documents place one, drawn, or all of them.")]
Reranker = Annotated[
    str | None,
    typer.Option(
        "--reranker", help="Of the arm `reranked`, of solved questions, of preflight's signals: name, folder, URL."
    ),
]


Also = Annotated[
    list[str] | None,
    typer.Option("--also", help="Ask this model as well, in a run of its own (repeat for more); one set of tables."),
]
Numbers = Annotated[list[int] | None, typer.Option("--votes", min=1, help="How many votes (repeat for more).")]
Temperatures = Annotated[
    list[float] | None,
    typer.Option("--temperature", min=0, max=2, help="Of votes, beside the setting's own (repeat for more)."),
]
Examples = Annotated[
    list[str] | None,
    typer.Option("--examples", help="Library of solved questions, as NAME=FOLDER or FOLDER (repeat for more)."),
]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        epilog="Examples: epicrisis experiment positions --library ~/lib --model URL -n 105 -k 8   |   "
        "epicrisis experiment context-length --library ~/lib --model URL --protocol published"
    )(experiment)


@translated
def experiment(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"One of {', '.join(NAMES)}.")],
    library: Library = None,
    model: ModelName = None,
    also: Also = None,
    protocol: Protocol = "corrected",
    sets: Sets = None,
    sample: Sample = None,
    draw: Draw = 0,
    repeats: Repeats = 1,
    ks: Ks = None,
    places: Places = None,
    arms: Arms = None,
    gold: Gold = "one",
    reranker: Reranker = None,
    output: Folder = None,
    data: Data = None,
    population: Population = None,
    judges: Judges = None,
    against_notes: AgainstNotes = False,
    nli: Nli = None,
    bertscore: BertScore = None,
    sparse: Sparse = None,
    chunk_tokens: ChunkTokens = None,
    note_tokens: NoteTokens = None,
    votes: Numbers = None,
    temperatures: Temperatures = None,
    examples: Examples = None,
    preset: Preset = None,
    setting: Setting = None,
    seed: Seed = None,
    deadline: Deadline = None,
    long_questions: LongQuestions = None,
    encoder: EncoderName = None,
    at_once: AtOnce = None,
    cache: Cache = None,
    budget_tokens: BudgetTokens = None,
    budget_usd: BudgetUsd = None,
    budget_minutes: BudgetMinutes = None,
    yes: Yes = False,
    log: Log = None,
    config: Config = None,
    local_only: LocalOnly = False,
    allow_remote: AllowRemote = False,
    json: Json = False,
) -> None:
    """Run an experiment of the papers, or go on with one, and show its tables. What is not said is as in the paper.

    `cost` asks without kept replies, which would tell no times, unless --cache says otherwise."""
    from epicrisis.evaluation.experiments.experiment import Grid, Request

    _check(name, reranker, arms or (), repeats)
    flags = said(context)
    if name == "preflight":
        _preflight(context, flags, config, library, sets or (), data, output, reranker, json)
        return
    if name == "cost" and cache is None:
        flags["cache"] = {"mode": "off"}
    request = Request(
        protocol=protocol,
        sets=tuple(sets or ()),
        data=data,
        questions=sample,
        draw=draw,
        repeats=repeats,
        gold=gold,
        reranker=reranker,
        population=population or "all",
        sparse=sparse,
        examples=tuple(map(_named, examples or ())),
        grid=Grid(
            tuple(arms or ()), tuple(ks or ()), tuple(places or ()), tuple(votes or ()), tuple(temperatures or ())
        ),
    )
    if name in OF_RECORDS:
        measures = Measures(tuple(judges or ()), tuple(nli or ()), tuple(bertscore or ()), against_notes)
        asked_of_records(
            name, request, flags, config, library, output, measures, chunk_tokens, yes=yes, json=json, also=also or ()
        )
        return
    asked(name, request, flags, config, library, output, yes=yes, json=json, also=also or ())


def _check(name: str, reranker: str | None, arms: Sequence[str], repeats: int) -> None:
    """Raises InputError for an unknown experiment, or where it has no use for what was said."""
    from epicrisis.errors import InputError

    if name not in NAMES:
        raise InputError(f"no experiment is called {name}: known are {', '.join(NAMES)}")
    with_reranker = ("integration", "medprompt", "preflight", *OF_RECORDS)
    if reranker is not None and name not in with_reranker and "reranked" not in arms:
        raise InputError("--reranker is for the arm reranked: name that with --arm, beside the others that are wanted")
    if name == "open-ended" and repeats > 1:
        raise InputError("open-ended asks each question once an arm: leave --repeats out")


def _named(text: str) -> tuple[str, Path]:
    """`NAME=FOLDER`, or a folder under its own name."""
    name, separator, folder = text.partition("=")
    path = Path(folder if separator else name).expanduser()
    return (name if separator else path.name), path


def _preflight(
    context: typer.Context,
    flags: dict[str, Any],
    config: Path | None,
    library: Path | None,
    sets: Sequence[str],
    data: Path | None,
    output: Path | None,
    reranker: str | None,
    json: bool,
) -> None:
    """No chat model answers, so it is no run of cases."""
    from epicrisis.cli.preflight import study
    from epicrisis.configuration import load_settings
    from epicrisis.errors import InputError

    sources = {flag: context.get_parameter_source(name) for name, flag in _OF_CASES.items()}
    if given := [flag for flag, source in sources.items() if source is not None and source.name != "DEFAULT"]:
        raise InputError(f"preflight ranks whole question sets and asks no model: leave {', '.join(given)} out")
    if library is None:
        raise InputError("experiments take their documents from a library: name one with --library")
    settings = load_settings({**flags, "rerank": {"name": reranker}, "by": "dense"}, config)
    study(settings, library, sets, data, folder_of(output, "preflight", library.resolve().name), json)


def asked(
    name: str,
    request: Request,
    flags: dict[str, Any],
    config: Path | None,
    library: Path | None,
    output: Path | None,
    *,
    yes: bool,
    json: bool,
    answers_alone: bool = False,
    also: Sequence[str] = (),
) -> None:
    """Runs the experiment of that name, or goes on with it, and shows what it came to, or its first table alone; with
    `also` each model in a folder of its own."""
    from epicrisis.configuration import load_settings, merge_tables
    from epicrisis.evaluation.experiments.planning import plan_experiment
    from epicrisis.evaluation.experiments.registry import find_experiment as called
    from epicrisis.evaluation.experiments.run_findings import read_findings

    wanted = called(name)
    runs: dict[Path, RunManifest] = {}
    for each in (None, *also):
        changes: dict[str, Any] = {} if each is None else {"models": {"writer": {"name": each}}}
        settings = load_settings(
            merge_tables({"unverified": "keep", **flags, "strategy": wanted.strategy}, changes), config
        )
        model = settings.model_for("writer").name
        folder = folder_of(output, name, model) if not also else folder_of(output, name) / plain_name(model)

        async def planned(pipeline: Pipeline, settings: Settings = settings) -> tuple[RunPlan, Sequence[Case]]:
            return plan_experiment(wanted, request, settings, pipeline)

        runs[folder] = asyncio.run(run_cases(settings, library, folder, planned, yes=yes, quiet=json))
    show_runs(read_findings(list(runs)), runs, json=json, answers_alone=answers_alone)
