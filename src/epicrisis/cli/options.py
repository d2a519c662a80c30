"""Options that several commands share. Rare settings have no option of their own: `--setting KEY=VALUE` sets any."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_args

from typer import Argument, BadParameter, Option

from epicrisis.cli.command import SharedOption
from epicrisis.cli.terminal import say
from epicrisis.core.errors import InputError, SettingsError
from epicrisis.core.strategy_names import StrategyName
from epicrisis.core.types import CitationStyle, SearchMode
from epicrisis.models.cluster import ClusterAddress, parse_cluster
from epicrisis.system.local_only import set_local_only
from epicrisis.system.remote_libraries import is_remote, library_folder, listen

SEARCHING = "Search"
ANSWERING = "Model and answer"
LIMITS = "Limits"
SETTINGS = "Settings and privacy"

# Arguments and options that are no settings.


def parse_library(text: str) -> Path:
    """Return the folder of a library, named by this folder or by a URL.

    Raises BadParameter for a wrong URL, and for wrong settings if they are read for the server of a URL.
    """
    try:
        folder = library_folder(text)
        if is_remote(folder):
            from epicrisis.settings.configuration import load_settings

            if load_settings().local_only:
                set_local_only(True)
            listen(partial(say, err=True))
    except (InputError, SettingsError) as error:
        raise BadParameter(error.message) from None
    return folder


LibraryPath = Annotated[
    Path, Argument(metavar="LIBRARY", parser=parse_library, help="Folder of the library, postgresql://... or s3://...")
]
LibraryOption = Annotated[
    Path | None,
    Option(
        "--library",
        metavar="FOLDER",
        parser=parse_library,
        help="Folder of the library, postgresql://... or s3://... Strategies without documents need none.",
    ),
]


def _parse_cluster(text: str) -> ClusterAddress:
    try:
        return parse_cluster(text)
    except InputError as error:
        raise BadParameter(error.message) from None


_cluster_option = partial(Option, "--on", metavar="local|ray://HOST:PORT", parser=_parse_cluster)
Cluster = Annotated[
    ClusterAddress | None, _cluster_option(help="Encode on a cluster of Ray, or on one started here (extra `ray`).")
]
SearchCluster = Annotated[
    ClusterAddress | None, _cluster_option(help="Search on a cluster of Ray, or on all cores here (extra `ray`).")
]
Json = Annotated[bool, Option("--json", help="Print JSON for programs instead of text.")]
CiteStyle = Annotated[
    CitationStyle | None, Option("--cite", help="Also list the references in this style (extra `citations`).")
]
Yes = Annotated[bool, Option("--yes", help="Start a large run without asking first.")]
Patient = Annotated[
    str | None, Option("--patient", help="Read this patient's record (id or number). Without it no record is read.")
]
Choices = Annotated[str | None, Option("--options", help="What the answer may be, with commas: yes,no,maybe.")]
QuestionFile = Annotated[Path | None, Option("--file", help="Read questions from a file: one JSON object per line.")]
Data = Annotated[
    Path | None, Option("--data", envvar="EPICRISIS_DATA", help="Folder of question sets that you downloaded yourself.")
]
output_option = partial(Option, "-o", "--output")
Draw = Annotated[int, Option("--draw", help="Seed for drawing the sample of questions.")]
RunFolder = Annotated[
    Path | None, output_option(help="Folder of the run, new or to continue. Default: a folder in runs/.")
]

# Options that are settings.


def _setting(flag: str, key: str, kind: Any, panel: str, help: str, metavar: str | None = None) -> SharedOption:
    """Return the option `flag` for the setting `key`. An option of type bool is a switch."""
    option = Option(flag, help=help, metavar=metavar, rich_help_panel=panel, case_sensitive=False)
    return SharedOption(flag.lstrip("-").replace("-", "_"), key, kind, option, False if kind is bool else None)


STRATEGY = _setting(
    "--strategy",
    "strategy",
    StrategyName | None,
    ANSWERING,
    f"Answering strategy: {', '.join(get_args(StrategyName))}. Default: evidence for `ask` without "
    "--model, else brief-context.",
    metavar="NAME",
)
MODEL = _setting(
    "--model",
    "models.writer.name",
    str | None,
    ANSWERING,
    "Chat model: catalogue name, .gguf file, ollama:MODEL, openai:MODEL, or endpoint URL#MODEL "
    "(several: URL,URL#MODEL). Default: none for `ask` without --strategy, else smollm2-135m (demo only).",
)
SEED = _setting("--seed", "seed", int | None, ANSWERING, "Seed of the model. Default: 0.")
BY = _setting("--by", "by", SearchMode | None, SEARCHING, "Search method. Default: hybrid.")
K = _setting("-k", "k", int | None, SEARCHING, "Documents to read; in a patient's record, passages. Default: 16.")
PREFER = _setting(
    "--prefer",
    "prefer",
    list[str] | None,
    SEARCHING,
    "Move studies of this type forward, such as randomised-trial (repeatable).",
    metavar="TYPE",
)
AS_OF = _setting(
    "--as-of", "scope.as_of", str | None, SEARCHING, "Hide documents newer than this date: 2015, 2015-06 or 2015-06-30."
)
ENCODER = _setting("--encoder", "encoder", str | None, SETTINGS, "Encoder: catalogue name or folder. Default: minilm.")
BUDGET = (
    _setting("--budget-tokens", "budget.tokens", int | None, LIMITS, "Stop after this many tokens."),
    _setting("--budget-usd", "budget.usd", float | None, LIMITS, "Stop after this many US dollars."),
    _setting("--budget-minutes", "budget.minutes", float | None, LIMITS, "Stop after this many minutes."),
)
SETTING = _setting(
    "--setting",
    "",
    list[str] | None,
    SETTINGS,
    "Change any setting, such as votes.n=20 (repeatable). `epicrisis settings` lists them.",
    metavar="KEY=VALUE",
)
CONFIG = _setting("--config", "", Path | None, SETTINGS, "Settings file (TOML). Default: epicrisis.toml.")
LOCAL_ONLY = _setting("--local-only", "local_only", bool, SETTINGS, "Refuse every connection to another machine.")
ALLOW_REMOTE = _setting(
    "--allow-remote",
    "allow_remote",
    bool,
    SETTINGS,
    "Let notes of this library's patients be sent to other machines. Recorded in the library.",
)
DEIDENTIFY = _setting(
    "--deidentify",
    "deidentify",
    float | None,
    SETTINGS,
    "Replace identifiers before a chat model reads them, if the recall of the worst kind is at least this: 0.9.",
    metavar="RECALL",
)

BREAK_GLASS = _setting(
    "--break-glass",
    "break_glass",
    str | None,
    SETTINGS,
    "Why you read this record, for the access log. Needed for a patient who is not assigned to you.",
    metavar="REASON",
)

LOCAL = (SETTING, CONFIG, LOCAL_ONLY)
"""Options of commands that may reach other machines, but read no patient's notes."""
COMMON = (*LOCAL, ALLOW_REMOTE)
SEARCH = (BY, K, PREFER, AS_OF, BREAK_GLASS, *COMMON)
ANSWER = (STRATEGY, MODEL, SEED, *BUDGET, *SEARCH, DEIDENTIFY)
GRADER = (MODEL, SEED, *BUDGET, *COMMON)
