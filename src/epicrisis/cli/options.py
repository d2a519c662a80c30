"""Options that are settings: which flag stands for which key, the same for every command that has it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from epicrisis.types import CountUnit, EvidenceOrder, EvidenceUnit, LongQuestionPolicy, SearchMode, StrategyName

Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of text.")]
LocalOnly = Annotated[bool, typer.Option("--local-only", help="Refuse every connection that leaves this machine.")]
AllowRemote = Annotated[
    bool,
    typer.Option("--allow-remote", help="Let these patients' notes reach other machines; said once, kept on record."),
]
Config = Annotated[Path | None, typer.Option("--config", help="Settings file (TOML) to use.")]
EncoderName = Annotated[str | None, typer.Option("--encoder", help="Encoder: a catalogue name or a folder.")]

ByName = Annotated[SearchMode | None, typer.Option("--by", help="How passages are found.")]
K = Annotated[int | None, typer.Option("-k", help="How many documents; of a patient's record, how many passages.")]
CountName = Annotated[
    CountUnit | None, typer.Option("--count", help="What -k, --partition and --depth count, if not these.")
]
AsOf = Annotated[str | None, typer.Option("--as-of", help="Hide what may be newer than this date (YYYY[-MM[-DD]]).")]
Since = Annotated[str | None, typer.Option("--since", help="Only what may have appeared since this date.")]
Types = Annotated[list[str] | None, typer.Option("--type", help="Only this publication type (repeat for more).")]
Journals = Annotated[list[str] | None, typer.Option("--journal", help="Only this journal (repeat for more).")]
Without = Annotated[list[str] | None, typer.Option("--without", help="Leave out: `retracted` (the default).")]
With = Annotated[
    list[str] | None, typer.Option("--with", help="Read all the same what is left out, marked: `retracted`.")
]
Hide = Annotated[list[str] | None, typer.Option("--hide", help="Hide this document id (repeat for more).")]
HideGold = Annotated[bool, typer.Option("--hide-gold", help="Hide each question's own documents from it.")]
Rerank = Annotated[str | None, typer.Option("--rerank", help="Score the hits anew: a reranker's name, folder or URL.")]
RerankDepth = Annotated[int | None, typer.Option("--rerank-depth", help="Hits that the reranker scores.")]
LongQuestions = Annotated[
    LongQuestionPolicy | None,
    typer.Option("--long-questions", help="What is done with a question longer than the encoder reads."),
]
Fuse = Annotated[
    list[Path] | None,
    typer.Option("--fuse", help="Fuse with this library of the same passages by another encoder (repeat for more)."),
]
Patient = Annotated[
    str | None, typer.Option("--patient", help="Whose record is read as well: the patient's id in the library.")
]
UnitName = Annotated[
    EvidenceUnit | None,
    typer.Option("--unit", help="Read of a record the passages found, or the whole notes they stand in."),
]
NoteTokens = Annotated[
    int | None, typer.Option("--note-tokens", help="Tokens that whole notes may take; else what the window leaves.")
]
OrderName = Annotated[
    EvidenceOrder | None,
    typer.Option("--order", help="Order of what is found; of a patient's record by time, else by rank."),
]
Beside = Annotated[
    list[Path] | None,
    typer.Option("--beside", help="Search this library of literature along with the first (repeat for more)."),
]
RrfK = Annotated[int | None, typer.Option("--rrf-k", help="The constant of reciprocal rank fusion.")]

Votes = Annotated[int | None, typer.Option("--votes", help="Votes of self-consistency and Medprompt.")]
ExampleLibrary = Annotated[
    Path | None, typer.Option("--examples", help="Library of solved questions to show (epicrisis examples build).")
]
Preset = Annotated[str | None, typer.Option("--preset", help="Settings by one name: cr, ehr, ehr-qwq-32b.")]
Setting = Annotated[
    list[str] | None, typer.Option("--setting", help="Any setting, KEY=VALUE (votes.tie=first-vote; repeat for more).")
]

Options = Annotated[str | None, typer.Option("--options", help="Options of a multiple-choice question, with commas.")]
File = Annotated[Path | None, typer.Option("--file", help="Questions, one JSON object a line (or PubMedQA's file).")]
Strategy = Annotated[StrategyName | None, typer.Option("--strategy", help="How the question is answered.")]
ModelName = Annotated[str | None, typer.Option("--model", help="Catalogue name, .gguf file, or endpoint URL[#model].")]
Partition = Annotated[int | None, typer.Option("--partition", help="Documents (or passages, as -k) a map call.")]
Preflight = Annotated[bool | None, typer.Option(help="Check first whether the rankings agree.")]
Depth = Annotated[
    int | None, typer.Option("--depth", help="Dense documents (or passages, as -k) that the preflight ranks anew.")
]
Seed = Annotated[int | None, typer.Option("--seed", help="Seed of the model's draws.")]
Deadline = Annotated[float | None, typer.Option("--deadline", help="Seconds a question may take.")]
AtOnce = Annotated[int | None, typer.Option("--at-once", help="Questions worked on together.")]
Cache = Annotated[
    Literal["on", "off", "replay"] | None,
    typer.Option("--cache", help="Keep replies, so that no call is paid for twice; replay: from kept ones alone."),
]
Record = Annotated[
    Path | None, typer.Option("--record", help="Write every prompt and reply here (JSONL, with their texts).")
]
BudgetTokens = Annotated[
    int | None, typer.Option("--budget-tokens", help="Tokens that may be spent, retries included.")
]
BudgetUsd = Annotated[float | None, typer.Option("--budget-usd", help="US dollars that may be spent.")]
BudgetMinutes = Annotated[float | None, typer.Option("--budget-minutes", help="Minutes it may take.")]
Log = Annotated[Path | None, typer.Option("--log", help="Write what happens here: ids and counts, no texts.")]
LogText = Annotated[bool, typer.Option("--log-text", help="Write prompts and replies into the log too.")]

_KEYS: Mapping[str, str] = {
    "strategy": "strategy",
    "by": "by",
    "k": "k",
    "partition": "partition",
    "seed": "seed",
    "encoder": "encoder",
    "rrf_k": "rrf_k",
    "fuse": "fuse",
    "long_questions": "long_questions",
    "model": "models.writer.name",
    "preflight": "preflight.enabled",
    "depth": "preflight.depth",
    "deadline": "deadline_seconds",
    "rerank": "rerank.name",
    "rerank_depth": "rerank.depth",
    "as_of": "scope.as_of",
    "since": "scope.since",
    "types": "scope.types",
    "journals": "scope.journals",
    "without": "scope.without",
    "including": "scope.include",
    "hide": "scope.hide",
    "hide_gold": "scope.hide_gold",
    "cache": "cache.mode",
    "record": "record",
    "budget_tokens": "budget.tokens",
    "budget_usd": "budget.usd",
    "budget_minutes": "budget.minutes",
    "at_once": "questions_at_once",
    "log": "log",
    "log_text": "log_text",
    "local_only": "local_only",
    "votes": "votes.n",
    "examples": "examples.library",
    "preset": "preset",
    "unit": "unit",
    "note_tokens": "note_tokens",
    "order": "order",
    "beside": "beside",
    "allow_remote": "allow_remote",
    "count": "count",
}
"""A command's parameter -> the key it sets."""
_SWITCHES = {"hide_gold", "log_text", "local_only", "allow_remote"}
"""They can turn something on, not off."""


def said(context: typer.Context) -> dict[str, Any]:
    """The command's options that are settings, nested as settings are; `None` where an option was not given.

    Raises SettingsError where --setting is none.
    """
    from epicrisis.configuration import merge_tables, parse_overrides

    flags: dict[str, Any] = {}
    for name, value in context.params.items():
        # Of an experiment these are several, and no settings.
        if name not in _KEYS or (name in ("votes", "examples") and isinstance(value, list | tuple)):
            continue
        *tables, key = _KEYS[name].split(".")
        place = flags
        for table in tables:
            place = place.setdefault(table, {})
        unsaid = value in ([], ()) or (name in _SWITCHES and not value)
        place[key] = None if unsaid else value
    return merge_tables(flags, parse_overrides(context.params.get("setting") or ()))
