"""Typed settings: flags, then environment, then a TOML file, then the defaults here. Read once, at the edge.

Environment: `EPICRISIS_` and the key, `__` between levels (`EPICRISIS_MODELS__WRITER__NAME`); lists and tables as JSON.
File: `--config`, else `epicrisis.toml` in the working folder, else the one in the user's configuration folder. Unknown
keys are refused, in the environment too, and the nearest right one is named.

Settings hold no key, only where one is. What of an address is secret (user, password) stands in no representation of
them, written out or not, and in no message.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, ValidationError, model_validator

from epicrisis.dates import last_day
from epicrisis.errors import InputError, SettingsError
from epicrisis.privacy import host_of, local_path, outside, without_secrets
from epicrisis.types import By, Remedy, SignalKind, StrategyName

ROLES = ("writer", "map", "reduce")

# Read by others than these settings: the folder of test data, the file of settings, the keys.
_OTHER_VARIABLES = {"EPICRISIS_DATA", "EPICRISIS_CONFIG", "EPICRISIS_REQUIRE_ALL"}
_KEYS = "EPICRISIS_API_KEY"
"""Begins the names of variables that hold endpoints' keys (`EPICRISIS_API_KEY_MAP`)."""

_UNTOLD = {"api_key_env", "api_key_file", "extra"}
"""What is written here by mistake may be a key: no message repeats it."""


def _date(value: str) -> str:
    last_day(value)
    return value


def _local(path: Path) -> Path:
    try:
        return local_path(path)
    except InputError as error:
        raise ValueError(error.message) from None


def _installed(name: str) -> str:
    _local(Path(name))
    return name


def _address(name: str) -> str:
    name = name.strip()
    if not re.match(r"https?:", name, re.IGNORECASE):
        return name
    if host_of(name) is None or without_secrets(name).endswith("://..."):
        raise ValueError("this URL cannot be read: write it as http://HOST:PORT/v1#model-name")
    scheme, _, rest = name.partition(":")
    return f"{scheme.lower()}:{rest}"


def _variable(name: str) -> str:
    if not re.fullmatch(r"[A-Z_][A-Z0-9_]{0,63}", name):
        raise ValueError("give the name of the variable that holds the key (capitals, digits, _), not the key")
    return name


Date = Annotated[str, AfterValidator(_date)]
LocalPath = Annotated[Path, AfterValidator(_local)]
Installed = Annotated[str, AfterValidator(_installed)]
"""A name of the catalogue, or a path."""
Address = Annotated[str, AfterValidator(_address), PlainSerializer(without_secrets)]
"""A name, a path or a URL. Written out it has lost its secrets."""
Variable = Annotated[str, AfterValidator(_variable)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for key, value in super().__repr_args__():
            yield key, without_secrets(value) if isinstance(value, str) else value

    def __hash__(self) -> int:
        """Tables with free parameters hold dictionaries, which have no hash of their own."""
        return hash(repr(self))


class Price(_Table):
    """US dollars for a million tokens. `cached`: of those of the prompt that the endpoint had computed before."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cached: float | None = Field(None, ge=0)


class ModelSettings(_Table):
    """One chat model."""

    name: Address = "smollm2-135m"
    """A name of the catalogue, a `.gguf` file, or the URL of an OpenAI-compatible endpoint
    (`http://127.0.0.1:8000/v1#model-name`)."""
    api_key_env: Variable = _KEYS
    """The environment variable that holds the endpoint's key. Read when a client is made. Not `OPENAI_API_KEY` by
    default: a key meant for one service would go to whatever endpoint is named."""
    api_key_file: LocalPath | None = None
    """A file that holds the key and nothing else; goes before the variable."""
    context_tokens: int | None = Field(None, ge=256)
    """The window, where the endpoint does not tell; for the embedded model the window to make."""
    timeout_seconds: float = Field(600.0, gt=0)
    temperature: float = Field(0.0, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    concurrency: int = Field(8, ge=1)
    """Calls in flight at once, exactly. The embedded model has one slot and takes them in turn."""
    requests_per_minute: float | None = Field(None, gt=0)
    tokens_per_minute: float | None = Field(None, gt=0)
    """Prompt and completion together."""
    tries: int = Field(5, ge=1)
    """Of one call, where it fails in a way that may pass. Being told to wait (429) is no try."""
    retry_seconds: float = Field(120.0, gt=0)
    """How long a call may be tried again, all in all."""
    max_reasoning_tokens: int = Field(0, ge=0)
    """Room for thinking, beside the answer's. 0: the model is none that thinks."""
    json_schema: bool | None = None
    """Whether it can be held to a JSON schema; found out at the first call where not said."""
    option_logprobs: bool | None = None
    """Whether it tells the log-probabilities of tokens; found out likewise."""
    price: Price | None = None
    """Where not said: the installed price list, by endpoint and model; what it does not know is unknown, not free."""
    extra: dict[str, Any] = Field(default_factory=dict, repr=False)
    """Parameters of this endpoint alone, sent with every call (`{reasoning_effort = "low"}`)."""

    @property
    def is_endpoint(self) -> bool:
        """Whether it is asked over a network, if only this machine's; else it runs in this process."""
        return "://" in self.name


class Models(_Table):
    """One chat model a role; without a name of its own it is the writer's. `judge` compares finished runs' answers."""

    writer: ModelSettings = ModelSettings()
    map: ModelSettings | None = None
    reduce: ModelSettings | None = None
    judge: ModelSettings | None = None


class PreflightSettings(_Table):
    """The preflight check; the defaults are the papers' text (errata B2). `epicrisis preflight calibrate` fits them."""

    enabled: bool = True
    signal: SignalKind = Field("overlap", exclude_if=lambda kind: kind == "overlap")
    """What is looked at (`retrieval.signals`). At its default it stands in no recipe: runs begun before it go on."""
    n: int = Field(3, ge=1)
    threshold: float = Field(0.2, ge=0)
    """One prompt will do where the signal is greater: below 1 for an overlap, in the ranker's scores for a gap."""
    depth: int = Field(16, ge=1)


class RerankSettings(_Table):
    """A reranker over the best `depth` passages: a catalogue name, a folder, or the URL of a `/v1/rerank` endpoint."""

    name: Address | None = None
    depth: int = Field(64, ge=1, le=1000)
    api_key_env: Variable = _KEYS


class CacheSettings(_Table):
    """Replies are kept by all that decides them, so that the same call is not paid for twice.

    `replay` answers from the cache alone and contacts nothing. Where no path is said it lies in the library, else among
    the models; a library of patients' notes has it inside or not at all.
    """

    mode: Literal["on", "off", "replay"] = "on"
    path: LocalPath | None = None


class BudgetSettings(_Table):
    """What a run may spend, retries included. It stops before it would spend more; what it has is kept."""

    tokens: int | None = Field(None, ge=1)
    """Prompt and completion together."""
    usd: float | None = Field(None, gt=0)
    minutes: float | None = Field(None, gt=0)


class PlanSettings(_Table):
    """A run that is expected to exceed one of these asks first."""

    ask_above_usd: float = Field(5.0, ge=0)
    ask_above_tokens: int = Field(20_000_000, ge=0)
    """Where the price is unknown."""


class ScopeSettings(_Table):
    """What a search may see, beside the patient; see `epicrisis.types.Scope`. `hide_gold`: a question's own documents
    are hidden from it (leak guard, errata B15)."""

    as_of: Date | None = None
    since: Date | None = None
    types: tuple[str, ...] = ()
    journals: tuple[str, ...] = ()
    without: tuple[Literal["retracted"], ...] = ()
    hide: tuple[str, ...] = ()
    hide_gold: bool = False


class Settings(_Table):
    """All settings."""

    home: LocalPath = Path("~/.local/share/epicrisis")
    """Where pulled models lie."""
    encoder: Installed | None = None
    """Name or folder; where not said, the one the library was made with, and `minilm` for a new library."""
    models: Models = Models()
    by: By = "hybrid"
    strategy: StrategyName = "brief-context"
    k: int = Field(16, ge=1, le=1000)
    partition: int = Field(4, ge=1)
    """Documents a map call."""
    rrf_k: int = Field(60, ge=1)
    preflight: PreflightSettings = PreflightSettings()
    long_questions: Remedy = "segments"
    """What is done where a question is longer than the encoder's window."""
    rerank: RerankSettings = RerankSettings()
    fuse: tuple[LocalPath, ...] = ()
    """Further libraries of the same passages, made with other encoders: their dense rankings are fused."""
    scope: ScopeSettings = ScopeSettings()
    seed: int = 0
    deadline_seconds: float | None = Field(None, gt=0)
    questions_at_once: int | None = Field(None, ge=1)
    """Of a run; where not said as many as the writer takes calls at once, and one for embedded models."""
    cache: CacheSettings = CacheSettings()
    budget: BudgetSettings = BudgetSettings()
    plan: PlanSettings = PlanSettings()
    record: LocalPath | None = None
    """A JSONL file for every prompt and reply. It holds their texts: whoever reads it reads the documents."""
    log: LocalPath | None = None
    """A file for what happens: ids and counts, no text but with `log_text`."""
    log_text: bool = False
    local_only: bool = False
    threads: int | None = Field(None, ge=1)
    """Threads of the embedded models; all cores where not said."""

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        if self.log_text and self.log is None:
            raise ValueError("setting log_text: there is no log for the texts: name its file with log (--log FILE)")
        files = [path for path in (self.log, self.record, self.cache.path) if path is not None]
        if len(set(files)) < len(files):
            raise ValueError("settings log, record and cache.path name one file: give each a file of its own")
        check = self.preflight
        if check.threshold >= 1 and not check.signal.endswith("gap"):
            raise ValueError(
                "setting preflight.threshold: no overlap is above 1: give less, or enabled = false to read all "
                f"questions in parts (it says {check.threshold:g})"
            )
        if check.enabled and check.signal == "reranker-overlap" and self.rerank.name is None:
            raise ValueError(
                "setting preflight.signal: reranker-overlap needs a reranker: name one with rerank.name (--rerank)"
            )
        for key, value in _places(self) if self.local_only else ():
            if (elsewhere := outside(value)) is not None:
                raise ValueError(
                    f"setting {key}: local_only (--local-only) is on and {elsewhere} is not this machine: name "
                    "something on this machine, or turn local_only off"
                )
        return self

    def model_for(self, role: str) -> ModelSettings:
        """The settings of the model that plays this role. A table without a name changes the writer's own settings."""
        writer: ModelSettings = self.models.writer
        own: ModelSettings | None = getattr(self.models, role, None)
        if own is None or "name" in own.model_fields_set:
            return own or writer
        return writer.model_copy(update={key: getattr(own, key) for key in own.model_fields_set})


def load(flags: Mapping[str, Any] | None = None, config: Path | None = None) -> Settings:
    """The settings in force. `flags`: nested values that win over everything, `None` meaning "not said".

    Raises SettingsError with the place and the cure.
    """
    path = _config_path(config)
    values = _read_toml(path) if path else {}
    values = _merge(values, _from_environment(os.environ))
    values = _merge(values, _without_none(flags or {}))
    if "home" not in values and os.environ.get("XDG_DATA_HOME"):
        values["home"] = Path(os.environ["XDG_DATA_HOME"]) / "epicrisis"
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        raise SettingsError(_explain(error)) from None
    return settings.model_copy(update={"home": settings.home.expanduser()})


def _config_path(config: Path | None) -> Path | None:
    named = config or (Path(os.environ["EPICRISIS_CONFIG"]) if os.environ.get("EPICRISIS_CONFIG") else None)
    if named is not None:
        if not named.is_file():
            raise SettingsError(f"no settings file at {named}: give --config an existing TOML file")
        return named
    base = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
    return next(
        (path for path in (Path("epicrisis.toml"), base / "epicrisis" / "epicrisis.toml") if path.is_file()), None
    )


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not a TOML file: {error}") from None
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in sorted(environment):
        if not name.startswith("EPICRISIS_") or name in _OTHER_VARIABLES or name.startswith(_KEYS):
            continue
        *tables, key = name.removeprefix("EPICRISIS_").lower().split("__")
        place = values
        for table in tables:
            place = place.setdefault(table, {})
            if not isinstance(place, dict):
                raise SettingsError(f"{name} and a shorter variable say two things: unset one of them")
        place[key] = _plain(environment[name])
    return values


def _plain(value: str) -> Any:
    """Lists and tables are written as JSON; all else is its own text, and so is what only begins like them."""
    try:
        return json.loads(value) if value.lstrip()[:1] in ("[", "{") else value
    except ValueError:
        return value


def _places(table: BaseModel, prefix: str = "") -> Iterator[tuple[str, str | Path]]:
    """Every value that may name a place, by its dotted key: all texts but those of a scope, which name documents."""
    for name in type(table).model_fields:
        value = getattr(table, name)
        if isinstance(value, BaseModel) and not isinstance(value, ScopeSettings):
            yield from _places(value, f"{prefix}{name}.")
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, (str, Path)):
                yield prefix + name, each


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def _without_none(flags: Mapping[str, Any]) -> dict[str, Any]:
    cleaned = {k: _without_none(v) if isinstance(v, Mapping) else v for k, v in flags.items() if v is not None}
    return {key: value for key, value in cleaned.items() if value != {}}


def known_keys(table: type[BaseModel] = Settings, prefix: str = "") -> Iterator[str]:
    """Every key there is, dotted."""
    for name, field in table.model_fields.items():
        kinds = (field.annotation, *get_args(field.annotation))
        inner = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
        if inner is None:
            yield prefix + name
        else:
            yield from known_keys(inner, f"{prefix}{name}.")


def _explain(error: ValidationError) -> str:
    """One thing wrong, in one line: an unknown key where there is one, as what seems to be missing may be that."""
    wrong = error.errors(include_url=False)
    first = next((each for each in wrong if each["type"] == "extra_forbidden"), wrong[0])
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(key, list(known_keys()), n=1, cutoff=0.5)
        cure = f"did you mean {near[0]}?" if near else f"known are {', '.join(known_keys())}"
        return f"unknown setting {key}: {cure}"
    said = first["msg"].removeprefix("Value error, ")
    return said if not key else f"setting {key}: {said[:1].lower()}{said[1:]}{_told(first['input'], key)}"


def _told(value: Any, key: str) -> str:
    """What the setting says, where that cannot be a secret."""
    if _UNTOLD & set(key.split(".")) or not isinstance(value, (str, int, float)):
        return ""
    return f" (it says {(without_secrets(value.strip()) if isinstance(value, str) else value)!r})"
