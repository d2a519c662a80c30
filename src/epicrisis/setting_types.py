"""Types of single settings, checked when settings are loaded: dates, local paths, names, URLs and variable names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, PlainSerializer

from epicrisis.dates import last_day
from epicrisis.errors import InputError
from epicrisis.privacy import local_path, parse_host, strip_secrets


def _date(value: str) -> str:
    last_day(value)
    return value


def _local(path: Path) -> Path:
    try:
        return local_path(path)
    except InputError as error:
        raise ValueError(error.message) from None


def _local_name(name: str) -> str:
    _local(Path(name))
    return name


def _address(name: str) -> str:
    name = name.strip()
    if not re.match(r"https?:", name, re.IGNORECASE):
        return name
    if parse_host(name) is None or strip_secrets(name).endswith("://..."):
        raise ValueError("this URL cannot be read: write it as http://HOST:PORT/v1#model-name")
    scheme, _, rest = name.partition(":")
    return f"{scheme.lower()}:{rest}"


def _variable(name: str) -> str:
    if not re.fullmatch(r"[A-Z_][A-Z0-9_]{0,63}", name):
        raise ValueError("give the name of the variable with the key (capitals, digits, _), not the key")
    return name


Date = Annotated[str, AfterValidator(_date)]
LocalPath = Annotated[Path, AfterValidator(_local)]
NameOrPath = Annotated[str, AfterValidator(_local_name)]
"""A name of the catalogue, or a path."""
NameOrUrl = Annotated[str, AfterValidator(_address), PlainSerializer(strip_secrets)]
"""A name, a path or a URL. Serialized without secrets."""
VariableName = Annotated[str, AfterValidator(_variable)]
