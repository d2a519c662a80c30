"""Options that several commands share. Rare settings have no option of their own: `--setting KEY=VALUE` sets any."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args

import typer

from epicrisis.cli.command import SharedOption
from epicrisis.types import SearchMode, StrategyName

SEARCHING = "Search"
ANSWERING = "Model and answer"
LIMITS = "Limits"
SETTINGS = "Settings and privacy"

# Arguments and options that are no settings.

LibraryPath = Annotated[Path, typer.Argument(metavar="LIBRARY", help="Folder of the library.")]
LibraryOption = Annotated[Path | None, typer.Option("--library", metavar="FOLDER", help="Folder of the library.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")]
Yes = Annotated[bool, typer.Option("--yes", help="Start a large run without asking first.")]
Patient = Annotated[str | None, typer.Option("--patient", help="Also read the record of this patient (id or number).")]
Choices = Annotated[str | None, typer.Option("--options", help="Options of a multiple-choice question: yes,no,maybe.")]
QuestionFile = Annotated[
    Path | None, typer.Option("--file", help="Read questions from a file: one JSON object per line.")
]
Data = Annotated[
    Path | None,
    typer.Option("--data", envvar="EPICRISIS_DATA", help="Folder of question sets that you downloaded yourself."),
]
Draw = Annotated[int, typer.Option("--draw", help="Seed for drawing the sample of questions.")]
RunFolder = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="Folder of the run, new or to continue. Default: a folder in runs/."),
]

# Options that are settings.

STRATEGY = SharedOption(
    "strategy",
    "strategy",
    Annotated[
        StrategyName | None,
        typer.Option(
            "--strategy",
            metavar="NAME",
            help=f"Answering strategy: {', '.join(get_args(StrategyName))}. Default: brief-context.",
            rich_help_panel=ANSWERING,
        ),
    ],
)
MODEL = SharedOption(
    "model",
    "models.writer.name",
    Annotated[
        str | None,
        typer.Option(
            "--model",
            help="Chat model: catalogue name, .gguf file, or endpoint URL#model. Default: smollm2-135m (demo only).",
            rich_help_panel=ANSWERING,
        ),
    ],
)
SEED = SharedOption(
    "seed",
    "seed",
    Annotated[int | None, typer.Option("--seed", help="Seed of the model. Default: 0.", rich_help_panel=ANSWERING)],
)
BY = SharedOption(
    "by",
    "by",
    Annotated[
        SearchMode | None,
        typer.Option("--by", help="Search method. Default: hybrid.", rich_help_panel=SEARCHING),
    ],
)
K = SharedOption(
    "k",
    "k",
    Annotated[
        int | None,
        typer.Option(
            "-k",
            help="Documents to read; in a patient's record, passages. Default: 16.",
            rich_help_panel=SEARCHING,
        ),
    ],
)
AS_OF = SharedOption(
    "as_of",
    "scope.as_of",
    Annotated[
        str | None,
        typer.Option(
            "--as-of",
            help="Hide documents newer than this date: 2015, 2015-06 or 2015-06-30.",
            rich_help_panel=SEARCHING,
        ),
    ],
)
ENCODER = SharedOption(
    "encoder",
    "encoder",
    Annotated[
        str | None,
        typer.Option("--encoder", help="Encoder: catalogue name or folder. Default: minilm.", rich_help_panel=SETTINGS),
    ],
)
BUDGET = (
    SharedOption(
        "budget_tokens",
        "budget.tokens",
        Annotated[
            int | None,
            typer.Option("--budget-tokens", help="Stop after this many tokens.", rich_help_panel=LIMITS),
        ],
    ),
    SharedOption(
        "budget_usd",
        "budget.usd",
        Annotated[
            float | None, typer.Option("--budget-usd", help="Stop after this many US dollars.", rich_help_panel=LIMITS)
        ],
    ),
    SharedOption(
        "budget_minutes",
        "budget.minutes",
        Annotated[
            float | None, typer.Option("--budget-minutes", help="Stop after this many minutes.", rich_help_panel=LIMITS)
        ],
    ),
)
SETTING = SharedOption(
    "setting",
    "",
    Annotated[
        list[str] | None,
        typer.Option(
            "--setting",
            metavar="KEY=VALUE",
            help="Change any setting, such as votes.n=20 (repeatable). `epicrisis settings` lists them.",
            rich_help_panel=SETTINGS,
        ),
    ],
)
CONFIG = SharedOption(
    "config",
    "",
    Annotated[
        Path | None,
        typer.Option("--config", help="Settings file (TOML). Default: epicrisis.toml.", rich_help_panel=SETTINGS),
    ],
)
LOCAL_ONLY = SharedOption(
    "local_only",
    "local_only",
    Annotated[
        bool,
        typer.Option("--local-only", help="Refuse every connection to another machine.", rich_help_panel=SETTINGS),
    ],
    False,
)
ALLOW_REMOTE = SharedOption(
    "allow_remote",
    "allow_remote",
    Annotated[
        bool,
        typer.Option(
            "--allow-remote",
            help="Let notes of this library's patients be sent to other machines. Recorded in the library.",
            rich_help_panel=SETTINGS,
        ),
    ],
    False,
)

LOCAL = (SETTING, CONFIG, LOCAL_ONLY)
"""Options of commands that may reach other machines, but read no patient's notes."""
COMMON = (*LOCAL, ALLOW_REMOTE)
SEARCH = (BY, K, AS_OF, *COMMON)
ANSWER = (STRATEGY, MODEL, SEED, *BUDGET, *SEARCH)
GRADER = (MODEL, SEED, *BUDGET, *COMMON)
