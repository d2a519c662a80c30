"""Load and list the settings. Flags win over the environment, then a TOML file, then a preset, then the defaults.

Environment: `EPICRISIS_` and the key, `__` between levels (`EPICRISIS_MODELS__WRITER__NAME`); lists and tables as JSON.
File: `--config`; else `epicrisis.toml` in the working folder above the one in the user's configuration folder. The
working folder's may have come with a checkout, so it names no secrets, hosts, logs or records, and weakens no privacy.
Unknown keys are rejected with the nearest known key. Keys of a chat model without their table are the writer's.
Unknown variables are named, and ignored.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from epicrisis.core.answers import Notice
from epicrisis.core.errors import SettingsError
from epicrisis.core.names import match_case
from epicrisis.settings.model_services import expand_model_name
from epicrisis.settings.settings import API_KEY_VARIABLE, ROLES, ModelSettings, Settings
from epicrisis.system.local_only import strip_secrets

# Variables with another use: the folder of test data, the settings file, and strict tests.
_OTHER_VARIABLES = {"EPICRISIS_DATA", "EPICRISIS_CONFIG", "EPICRISIS_REQUIRE_ALL"}
_ENVIRONMENT = "EPICRISIS_"
_PROTECTIVE = {"local_only", "deidentify"}
"""Settings that keep records private: a misspelt variable of theirs ends the program."""
_SECRET_KEYS = {"api_key_env", "api_key_file", "extra"}
"""These may contain an API key by mistake, so no message repeats their values."""
FOLDER_FILE = Path("epicrisis.toml")
"""The settings file of the working folder."""
_USERS_OWN = frozenset(
    (
        *("api_key_env", "api_key_file", "extra", "home", "store", "log", "log_text", "record"),
        *(
            "literature.pubmed",
            "literature.europe_pmc",
            "literature.email",
            "cache.path",
            "deidentify",
            "allow_remote",
            "break_glass",
        ),
    )
)
"""Keys that a file of the working folder may not name: where secrets, prompts and records go."""
_DEFAULTS = Settings()
_WRITER_KEYS = frozenset(ModelSettings.model_fields) - frozenset(Settings.model_fields) - {"name"}
"""Keys of a chat model that are understood without their table, as messages name them: they set the writer's."""
NO_MODEL = (
    "without a chat model no answer is written, only sentences of the library are shown; --model URL or "
    "--model FILE.gguf names one"
)


def load_settings(flags: Mapping[str, Any] | None = None, config: Path | None = None) -> Settings:
    """Return the settings in force. `flags` are nested values that win over everything; None means not set.

    Raises SettingsError with the key and the cure.
    """
    environment = _read_environment(_select_known_variables(os.environ))
    values = merge_tables(_place_writer_keys(_read_files(config)), _place_writer_keys(environment))
    _refuse_allow_remote(values)
    values = merge_tables(values, _place_writer_keys(_drop_none(flags or {})))
    preset = values.get("preset")
    if preset is not None:
        presets = read_presets()
        name = match_case(str(preset), presets)
        if name not in presets:
            raise SettingsError(f"no preset is called {preset}: known are {', '.join(presets)}")
        values = merge_tables(presets[name], values)
    if "home" not in values and os.environ.get("XDG_DATA_HOME"):
        values["home"] = Path(os.environ["XDG_DATA_HOME"]) / "epicrisis"
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        raise SettingsError(_explain(error)) from None
    try:
        home = settings.home.expanduser()
    except RuntimeError:
        raise SettingsError(
            "this user has no home folder: set EPICRISIS_HOME to the folder of the models, which is also that of the "
            "server's users and jobs"
        ) from None
    return settings.model_copy(update={"home": home})


def read_presets() -> dict[str, dict[str, Any]]:
    """Return every preset as nested settings, merged with the preset it is based on."""
    text = resources.files("epicrisis.settings").joinpath("presets.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    return {name: merge_tables(tables.get(values.get("preset"), {}), values) for name, values in tables.items()}


def parse_overrides(texts: Sequence[str]) -> dict[str, Any]:
    """Return `KEY=VALUE` texts with dotted keys (`votes.n=20`) as nested settings. Tables are JSON.

    A list is JSON, or its key is given once for each item. Raises SettingsError for any other form and for
    `allow_remote`.
    """
    values: dict[str, Any] = {}
    lists: dict[str, list[Any]] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise SettingsError("a setting has the form KEY=VALUE, such as votes.n=20")
        key, nested = key.strip(), _parse_value(value)
        if is_list_setting(key):
            items = lists.setdefault(key, [])
            items.extend(nested if isinstance(nested, list) else [nested])
            nested = items
        for name in reversed(key.split(".")):
            nested = {name: nested}
        values = merge_tables(values, nested)
    _refuse_allow_remote(values)
    return _place_writer_keys(values)


def merge_tables(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """Return both tables as one. Values of `upper` win."""
    both = dict(lower)
    for key, value in upper.items():
        old = both.get(key)
        both[key] = merge_tables(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return both


def _place_writer_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values, with the keys of a chat model that are in no table in that of the writer."""
    writer = {key: value for key, value in values.items() if key in _WRITER_KEYS}
    if not writer:
        return dict(values)
    others = {key: value for key, value in values.items() if key not in _WRITER_KEYS}
    return merge_tables({"models": {"writer": writer}}, others)


def _refuse_allow_remote(values: Mapping[str, Any]) -> None:
    """Raise SettingsError if the values would let notes reach other machines, or give a reason. Only a flag may."""
    if "break_glass" in values:
        raise SettingsError(
            "setting break_glass: a reason belongs to one reading: give it with --break-glass, never in a file, "
            "the environment or --setting: remove it there"
        )
    if "allow_remote" in values:
        raise SettingsError(
            "setting allow_remote: it is given once for each library, with --allow-remote, never in a settings file, "
            "the environment or --setting: remove it there"
        )


def find_folder_file(config: Path | None = None) -> Path | None:
    """Return the settings file of the working folder if it is in force: not beside a file that the user named."""
    is_named = config is not None or os.environ.get("EPICRISIS_CONFIG")
    return FOLDER_FILE if not is_named and FOLDER_FILE.is_file() else None


def _read_files(config: Path | None) -> dict[str, Any]:
    """Return the values of the settings files in force."""
    variable = os.environ.get("EPICRISIS_CONFIG")
    path = config or (Path(variable) if variable else None)
    if path is not None:
        if not path.is_file():
            raise SettingsError(f"no settings file at {path}: give --config an existing TOML file")
        return _read_toml(path)
    values: dict[str, Any] = {}
    # A container may run as a user without a home folder.
    with suppress(RuntimeError):
        base = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
        if (path := base / "epicrisis" / "epicrisis.toml").is_file():
            values = _read_toml(path)
    if folder_file := find_folder_file():
        table = _read_toml(folder_file)
        _refuse_users_own(table)
        values = merge_tables(values, table)
    return values


_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/|//|\\\\")
"""The beginning of a URL, or of a path on another machine."""


def _refuse_users_own(table: Mapping[str, Any], prefix: str = "") -> None:
    """Raise SettingsError if a file of the working folder says where secrets, prompts or records go."""
    for name, value in table.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and name not in _USERS_OWN:
            _refuse_users_own(value, f"{key}.")
            continue
        items = value if isinstance(value, list) else [value]
        if name in _USERS_OWN or key in _USERS_OWN or (key == "local_only" and value is not True):
            what = "names no keys, logs or records, and weakens no privacy"
        elif any(_names_host(item) for item in items):
            what = "names no hosts"
        else:
            continue
        raise SettingsError(
            f"setting {key} in {FOLDER_FILE} of this folder: a file that may have come with it {what}. Move it to "
            f"~/.config/epicrisis/epicrisis.toml or, if you trust the file, give it with --config {FOLDER_FILE}"
        )


def _names_host(value: object) -> bool:
    """Return whether a value is an address, or a name that stands for one."""
    if not isinstance(value, str):
        return False
    # As libraries are read: one slash is enough, and white space is left out of addresses.
    if _ADDRESS.match("".join(value.split())):
        return True
    try:
        return "://" in expand_model_name(value)
    except ValueError:
        return True


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise SettingsError(f"{path} is nested too deeply: write each setting as KEY = VALUE") from None
    except ValueError as error:
        raise SettingsError(f"{path} is not a TOML file: {error}") from None
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None


def explain_unknown_variables(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return a line for each variable that begins as settings do and names none. Other programs may have set it."""
    lines = []
    for name in sorted(_select_variables(environment) - _select_known_variables(environment).keys()):
        similar = _find_similar_key(name)
        cure = f"did you mean {_ENVIRONMENT}{similar.upper().replace('.', '__')}?" if similar else "unset it if unused"
        lines.append(f"the environment variable {name} names no setting and is ignored: {cure}")
    return lines


def _select_variables(environment: Mapping[str, str]) -> set[str]:
    names = {name for name in environment if name.startswith(_ENVIRONMENT) and not name.startswith(API_KEY_VARIABLE)}
    return names - _OTHER_VARIABLES


def _select_known_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that name a setting. Raise SettingsError for one that may be meant to protect records."""
    known = {}
    for name in sorted(_select_variables(environment)):
        if _names_setting(_read_variable_name(name)):
            known[name] = environment[name]
        elif (similar := _find_similar_key(name)) in _PROTECTIVE:
            raise SettingsError(
                f"the environment variable {name} names no setting: did you mean {_ENVIRONMENT}{similar.upper()}? "
                "Correct or unset it"
            )
    return known


def _read_variable_name(name: str) -> list[str]:
    return name.removeprefix(_ENVIRONMENT).lower().split("__")


def _find_similar_key(name: str) -> str | None:
    """Return the setting that a variable misspells, or None."""
    key = ".".join(_read_variable_name(name))
    keys = [*(row.key for row in setting_rows()), *_WRITER_KEYS]
    return next(iter(difflib.get_close_matches(key, keys, n=1, cutoff=0.8)), None)


def _names_setting(parts: Sequence[str]) -> bool:
    """Return whether these parts of a dotted key lead to a setting, a table of settings, or into a setting's value."""
    if len(parts) == 1 and parts[0] in _WRITER_KEYS:
        return True
    table: type[BaseModel] | None = Settings
    for part in parts:
        if table is None:
            return True
        field = table.model_fields.get(part)
        if field is None:
            return False
        table = _inner_table(field)
    return True


def _read_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in sorted(environment):
        *tables, key = _read_variable_name(name)
        place = values
        for table in tables:
            place = place.setdefault(table, {})
            if not isinstance(place, dict):
                raise SettingsError(f"{name} and a shorter variable set the same key: unset one of them")
        place[key] = _parse_value(environment[name])
    return values


def _parse_value(value: str) -> Any:
    """Return a list or table written as JSON, or else the text itself, also if it only begins like JSON."""
    try:
        return json.loads(value) if value.lstrip()[:1] in ("[", "{") else value
    except (ValueError, RecursionError):
        return value


def _drop_none(flags: Mapping[str, Any]) -> dict[str, Any]:
    values = {}
    for key, flag in flags.items():
        value = _drop_none(flag) if isinstance(flag, Mapping) else flag
        if value is not None and value != {}:
            values[key] = value
    return values


_ARGUMENTS = ("as_of", "model", "patient", "reranker", "since")
"""Arguments of the Python library that are no keys of their own."""


def _explain(error: ValidationError) -> str:
    """Return one problem in one line. Unknown keys come first, as one may be the misspelling of a missing key."""
    problems = error.errors(include_url=False)
    unknown = [problem for problem in problems if problem["type"] == "extra_forbidden"]
    problem = (unknown or problems)[0]
    key = ".".join(map(str, problem["loc"]))
    keys = [row.key for row in setting_rows()]
    if unknown:
        similar = difflib.get_close_matches(key, [*keys, *_ARGUMENTS], n=1, cutoff=0.5)
        cure = f"did you mean {similar[0]}?" if similar else "`epicrisis settings` lists all"
        return f"unknown setting {key}: {cure}"
    message = problem["msg"].removeprefix("Value error, ")
    if not key:
        return message
    if problem["type"] == "model_type":
        example = next(name for name in keys if name.startswith(f"{key}."))
        return f"setting {key} is a table: set one of its keys, such as {example}"
    value = problem["input"]
    if isinstance(value, str):
        value = strip_secrets(value.strip())
    may_be_secret = _SECRET_KEYS & set(key.split("."))
    quote = f" (got {value!r})" if isinstance(value, (str, int, float)) and not may_be_secret else ""
    return f"setting {key}: {message[:1].lower()}{message[1:]}{quote}"


class SettingRow(NamedTuple):
    """One line of the list of settings."""

    key: str
    """Dotted, such as `votes.n`."""
    default: str
    """As a settings file says it; empty if the setting has no default value."""
    unit: str
    meaning: str


def setting_rows(
    table: type[BaseModel] = Settings, prefix: str = "", defaults: BaseModel | None = _DEFAULTS
) -> list[SettingRow]:
    """Return key, default, unit and meaning of every setting of a table, in the order of the tables."""
    rows: list[SettingRow] = []
    for name, field in table.model_fields.items():
        default = getattr(defaults, name, None)
        inner = _inner_table(field)
        if inner is not None:
            rows += setting_rows(inner, f"{prefix}{name}.", default)
            continue
        extra = field.json_schema_extra
        unit = str(extra.get("unit", "")) if isinstance(extra, dict) else ""
        rows.append(SettingRow(f"{prefix}{name}", _format_default(default), unit, field.description or ""))
    return rows


def is_list_setting(key: str) -> bool:
    """Return whether the setting with this dotted key holds a list."""
    table: type[BaseModel] | None = Settings
    *tables, name = key.split(".")
    for part in tables:
        field = table.model_fields.get(part) if table else None
        table = _inner_table(field) if field else None
    field = table.model_fields.get(name) if table else None
    return field is not None and get_origin(field.annotation) is tuple


def _inner_table(field: FieldInfo) -> type[BaseModel] | None:
    for kind in (field.annotation, *get_args(field.annotation)):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None


def _format_default(value: object) -> str:
    if value is None or value == {}:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(f'"{item}"' for item in value) + "]"
    return str(value)


def has_name(model: ModelSettings | None) -> bool:
    """Return whether a settings file, a preset, the environment or an option names this chat model."""
    return model is not None and "name" in model.model_fields_set


def choose_strategy(settings: Settings) -> tuple[Settings, tuple[Notice, ...]]:
    """Return the settings, with the strategy `evidence` and a notice if they name neither a strategy nor a chat model.

    The default chat model is too small to be trusted unless the user chose it.
    """
    names_model = any(has_name(getattr(settings.models, role)) for role in ROLES)
    if names_model or "strategy" in settings.model_fields_set:
        return settings, ()
    return settings.model_copy(update={"strategy": "evidence"}), (Notice("no-model", NO_MODEL),)


def check_settings(settings: Settings) -> Settings:
    """Return the settings. Raises SettingsError for settings without effect on a question.

    This is no check of the settings alone, as experiments limit whole notes regardless of `unit`.
    """
    if settings.note_tokens is not None and (settings.unit != "note" or settings.strategy == "full-context"):
        raise SettingsError(
            "setting note_tokens: it only limits whole notes found by a search: use the setting unit = note and the "
            "strategy rag or brief-context, or leave out note_tokens"
        )
    return settings
