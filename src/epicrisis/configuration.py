"""The settings in force: flags, then environment, then a TOML file, then a preset, then the defaults. Read once, at the
edge.

Environment: `EPICRISIS_` and the key, `__` between levels (`EPICRISIS_MODELS__WRITER__NAME`); lists and tables as JSON.
File: `--config`, else `epicrisis.toml` in the working folder, else the one in the user's configuration folder. Unknown
keys are refused, in the environment too, and the nearest right one is named.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from epicrisis.errors import SettingsError
from epicrisis.privacy import strip_secrets
from epicrisis.settings import API_KEY_VARIABLE, Settings, setting_rows

# Read by others than these settings: the folder of test data, the file of settings, the keys.
_OTHER_VARIABLES = {"EPICRISIS_DATA", "EPICRISIS_CONFIG", "EPICRISIS_REQUIRE_ALL"}
_UNTOLD = {"api_key_env", "api_key_file", "extra"}
"""What is written here by mistake may be a key: no message repeats it."""


def load_settings(flags: Mapping[str, Any] | None = None, config: Path | None = None) -> Settings:
    """The settings in force. `flags`: nested values that win over everything, `None` meaning "not said".

    Raises SettingsError with the place and the cure.
    """
    path = _config_path(config)
    values = _read_toml(path) if path else {}
    values = merge_tables(values, _from_environment(os.environ))
    _without_permission(values)
    values = merge_tables(values, _without_none(flags or {}))
    values = merge_tables(_preset(values.get("preset")), values)
    if "home" not in values and os.environ.get("XDG_DATA_HOME"):
        values["home"] = Path(os.environ["XDG_DATA_HOME"]) / "epicrisis"
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        raise SettingsError(_explain(error)) from None
    return settings.model_copy(update={"home": settings.home.expanduser()})


def _without_permission(values: Mapping[str, Any]) -> None:
    """Raises SettingsError where they would let notes reach other machines, which is a flag's to say."""
    if "allow_remote" in values:
        raise SettingsError(
            "setting allow_remote: it is said once for each library, with --allow-remote, never in a settings file, "
            "the environment or --setting: take it out there"
        )


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


def read_presets() -> dict[str, dict[str, Any]]:
    """Every preset there is, as a file of settings would say it, on top of the preset that it names."""
    said = tomllib.loads(resources.files("epicrisis").joinpath("presets.toml").read_text(encoding="utf-8"))
    return {name: merge_tables(said.get(values.get("preset"), {}), values) for name, values in said.items()}


def _preset(name: object) -> dict[str, Any]:
    if name is None:
        return {}
    if not isinstance(name, str) or name not in read_presets():
        raise SettingsError(f"no preset is called {name}: known are {', '.join(read_presets())}")
    return read_presets()[name]


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise SettingsError(f"{path} is nested too deep to be read: write each setting as KEY = VALUE") from None
    except ValueError as error:
        raise SettingsError(f"{path} is not a TOML file: {error}") from None
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None


def parse_overrides(said: Sequence[str]) -> dict[str, Any]:
    """`KEY=VALUE` texts, the keys dotted (`votes.n=20`), nested as settings are; lists and tables as JSON. Raises
    SettingsError where one is not of that form, or is `allow_remote`."""
    values: dict[str, Any] = {}
    for text in said:
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise SettingsError("a setting is said as KEY=VALUE, such as votes.n=20")
        *tables, last = key.strip().split(".")
        values = merge_tables(values, _nested(tables, {last: _plain(value)}))
    _without_permission(values)
    return values


def _nested(tables: Sequence[str], value: dict[str, Any]) -> dict[str, Any]:
    return {tables[0]: _nested(tables[1:], value)} if tables else value


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in sorted(environment):
        if not name.startswith("EPICRISIS_") or name in _OTHER_VARIABLES or name.startswith(API_KEY_VARIABLE):
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
    except (ValueError, RecursionError):
        return value


def merge_tables(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Both tables as one; where both say something the upper one holds."""
    both = dict(below)
    for key, value in above.items():
        old = both.get(key)
        both[key] = merge_tables(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return both


def _without_none(flags: Mapping[str, Any]) -> dict[str, Any]:
    cleaned = {k: _without_none(v) if isinstance(v, Mapping) else v for k, v in flags.items() if v is not None}
    return {key: value for key, value in cleaned.items() if value != {}}


def _explain(error: ValidationError) -> str:
    """One thing wrong, in one line: an unknown key where there is one, as what seems to be missing may be that."""
    wrong = error.errors(include_url=False)
    first = next((each for each in wrong if each["type"] == "extra_forbidden"), wrong[0])
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        keys = [row.key for row in setting_rows()]
        near = difflib.get_close_matches(key, keys, n=1, cutoff=0.5)
        cure = f"did you mean {near[0]}?" if near else f"known are {', '.join(keys)}"
        return f"unknown setting {key}: {cure}"
    said = first["msg"].removeprefix("Value error, ")
    return said if not key else f"setting {key}: {said[:1].lower()}{said[1:]}{_told(first['input'], key)}"


def _told(value: Any, key: str) -> str:
    """What the setting says, where that cannot be a secret."""
    if _UNTOLD & set(key.split(".")) or not isinstance(value, (str, int, float)):
        return ""
    return f" (got {(strip_secrets(value.strip()) if isinstance(value, str) else value)!r})"
