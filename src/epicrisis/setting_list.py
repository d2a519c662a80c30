"""The list of all settings for readers: key, default, unit and meaning.

for row in setting_rows():
    print(row.key, row.default)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from epicrisis.settings import Settings


class SettingRow(NamedTuple):
    """One line of the list of settings."""

    key: str
    """Dotted, such as `votes.n`."""
    default: str
    """As a settings file says it; empty if the setting has no default value."""
    unit: str
    meaning: str


def setting_rows() -> list[SettingRow]:
    """Return key, default, unit and meaning of every setting, in the order of the tables."""
    return list(_list_rows(Settings, "", Settings()))


def is_list_setting(key: str) -> bool:
    """Return whether the setting with this dotted key holds a list."""
    table: type[BaseModel] | None = Settings
    *tables, name = key.split(".")
    for part in tables:
        field = table.model_fields.get(part) if table else None
        table = _inner_table(field) if field else None
    field = table.model_fields.get(name) if table else None
    return field is not None and get_origin(field.annotation) is tuple


def _list_rows(table: type[BaseModel], prefix: str, defaults: BaseModel | None) -> Iterator[SettingRow]:
    for name, field in table.model_fields.items():
        default = getattr(defaults, name, None)
        inner = _inner_table(field)
        if inner is not None:
            yield from _list_rows(inner, f"{prefix}{name}.", default)
            continue
        extra = field.json_schema_extra
        unit = str(extra.get("unit", "")) if isinstance(extra, dict) else ""
        yield SettingRow(f"{prefix}{name}", _format_default(default), unit, field.description or "")


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
