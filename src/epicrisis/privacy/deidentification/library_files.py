"""The two files of de-identification in a library's folder: the secret key, and the measured recall."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from epicrisis.core.errors import LibraryDamaged, SettingsError
from epicrisis.core.printable import quote_for_shell
from epicrisis.library.base.engine_errors import translate_errors
from epicrisis.privacy.deidentification.deidentifier import RECOGNIZER_VERSION
from epicrisis.system.local_only import open_private

KEY = "deidentification.key"
MEASUREMENT = "deidentification.json"
_KEY_BYTES = 32


class KindMeasurement(BaseModel):
    """The figures of one kind of identifier."""

    model_config = ConfigDict(frozen=True)

    planted: int
    missed: int
    """Identifiers of which at least one character was left."""
    recall: float
    lower: float
    """Lower bound of the 95 % interval of the recall."""
    upper: float


class RecallMeasurement(BaseModel):
    """What `epicrisis library measure-deidentification` measured on generated notes."""

    model_config = ConfigDict(frozen=True)

    recognizer: str
    """The version of the recognizers."""
    at: str
    """ISO 8601, UTC."""
    notes: int
    patients: int
    notes_with_leak: int
    precision: float
    """Share of the replaced characters that are planted identifiers."""
    kinds: Mapping[str, KindMeasurement]
    """By kind. The kinds of unusual forms begin with `unusual: `."""
    not_required: Mapping[str, KindMeasurement] = Field(default_factory=dict)
    """Kinds that are not reached, and that no requirement covers."""

    @property
    def worst_kind(self) -> str:
        """The kind whose recall has the smallest lower bound. An average would hide it."""
        return min(self.kinds, key=lambda kind: self.kinds[kind].lower)


def read_key(folder: Path) -> bytes:
    """Return the secret key of the library. The first call makes it: 32 random bytes, readable by the owner only.

    Raise LibraryDamaged for a file that is no key, and StorageError if it cannot be written.
    """
    path = folder / KEY
    with translate_errors(folder):
        if not path.exists():
            draft = folder / f"{KEY}.{secrets.token_hex(8)}"
            descriptor = open_private(draft, os.O_WRONLY | os.O_EXCL)
            try:
                os.write(descriptor, secrets.token_bytes(_KEY_BYTES))
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            # Of two processes the first one makes the key.
            with suppress(FileExistsError):
                os.link(draft, path)
            draft.unlink()
        key = path.read_bytes()
    if len(key) != _KEY_BYTES:
        raise LibraryDamaged(
            f"{path} is no key: delete it to get a new one; surrogates and dates will then differ from earlier ones"
        )
    return key


def write_measurement(folder: Path, measurement: RecallMeasurement) -> None:
    """Write the measurement into the library's folder, in place of an earlier one. Raise StorageError."""
    text = measurement.model_dump_json(indent=1) + "\n"
    with translate_errors(folder):
        descriptor = open_private(folder / MEASUREMENT, os.O_WRONLY | os.O_TRUNC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


def read_measurement(folder: Path) -> RecallMeasurement | None:
    """Return the measurement of this library, or None without one. A file that cannot be read is none."""
    try:
        return RecallMeasurement.model_validate_json((folder / MEASUREMENT).read_bytes())
    except (OSError, ValidationError):
        return None


def check_measured_recall(folder: Path, least: float) -> RecallMeasurement:
    """Return the measurement. Raise SettingsError unless the recall of the worst kind reaches `least`."""
    cure = f"`epicrisis library measure-deidentification {quote_for_shell(folder)}` measures it"
    measurement = read_measurement(folder)
    if measurement is None:
        raise SettingsError(f"setting deidentify: the recall was not measured for {folder}: {cure}")
    if measurement.recognizer != RECOGNIZER_VERSION:
        raise SettingsError(f"setting deidentify: the recall was measured with other recognizers: {cure}")
    worst = measurement.worst_kind
    lower = measurement.kinds[worst].lower
    if lower < least:
        raise SettingsError(
            f"setting deidentify: the recall is at least {lower:.4f} for the worst kind of identifiers ({worst}; 95 % "
            f"confidence, on generated notes), and {least:g} is required: use a model on this machine, or require less"
        )
    return measurement
