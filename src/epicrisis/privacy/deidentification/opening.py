"""Open de-identification for the questions to a library."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from epicrisis.core.answers import Event
from epicrisis.core.errors import SettingsError
from epicrisis.core.protocols import ChatModel, PassageStore
from epicrisis.core.types import Passage, Scope
from epicrisis.library.library import LibraryStore
from epicrisis.library.patients import Roster
from epicrisis.privacy.deidentification.deidentifier import RECOGNIZER_VERSION, Deidentifier, PatientIdentifiers
from epicrisis.privacy.deidentification.library_files import check_measured_recall, read_key
from epicrisis.privacy.deidentification.model import deidentify_models
from epicrisis.privacy.deidentification.name_lists import WORD
from epicrisis.privacy.deidentification.presidio import load_recognizers
from epicrisis.settings.settings import Settings
from epicrisis.system.remote_libraries import library_folder

_STAFF_KEYS = ("author", "authors", "provider", "attender", "signed_by", "practitioner")
"""Metadata with the names of people who wrote a note."""


def open_for_export(library: LibraryStore, least: float) -> LibraryDeidentification:
    """Return the de-identification of a library. Raise SettingsError if the measured recall is lower than `least`."""
    load_recognizers()
    check_measured_recall(library.path, least)
    return LibraryDeidentification(read_key(library.path), [Roster(library)], library)


class LibraryDeidentification:
    """The deidentifiers of a library's patients. Each is made once, for all questions about the patient."""

    version = RECOGNIZER_VERSION
    """The version of the recognizers."""

    def __init__(self, key: bytes, rosters: Sequence[Roster], store: PassageStore | None) -> None:
        self._key = key
        self._rosters = rosters
        self._store = store
        self._lock = threading.Lock()
        self._deidentifiers: dict[str | None, Deidentifier] = {}

    def wrap(
        self, models: Mapping[str, ChatModel], patient: str | None, emit: Callable[[Event], None]
    ) -> dict[str, ChatModel]:
        """Return each chat model in a layer that replaces the identifiers of this patient."""
        return deidentify_models(models, self.for_patient(patient), emit)

    def for_patient(self, patient: str | None) -> Callable[[], Deidentifier]:
        """Return a function that reads the record and makes the deidentifier. None: for questions without a patient."""
        return partial(self._get, patient)

    def _get(self, patient: str | None) -> Deidentifier:
        with self._lock:
            if patient not in self._deidentifiers:
                self._deidentifiers[patient] = self._make(patient)
            return self._deidentifiers[patient]

    def _make(self, patient: str | None) -> Deidentifier:
        avoid: set[str] = set()
        names: tuple[str, ...] = ()
        numbers: list[str] = []
        for roster in self._rosters:
            for record in roster.patients().values():
                avoid.update(match[0].casefold() for name in record.names for match in WORD.finditer(name))
                if record.id == patient:
                    names += record.names or ((record.name,) if record.name else ())
                    numbers += [number.rpartition("|")[2] for number in record.numbers]
        passages = _read_record(self._store, patient)
        staff = tuple(sorted({name for passage in passages for name in _list_staff(passage.metadata)}))
        identifiers = PatientIdentifiers(patient or "", names, tuple(numbers), staff)
        deidentifier = Deidentifier(self._key, identifiers, avoid)
        for passage in passages:
            deidentifier.learn(passage.text)
        return deidentifier


def _read_record(store: PassageStore | None, patient: str | None) -> Sequence[Passage]:
    if store is None or patient is None:
        return ()
    return store.fetch_record(Scope(patient=patient))


def _list_staff(metadata: Any) -> Sequence[str]:
    names: list[str] = []
    for key in _STAFF_KEYS:
        value = metadata.get(key)
        values = value if isinstance(value, list) else [value]
        names += [name for name in values if isinstance(name, str)]
    return names


def open_deidentification(
    settings: Settings, library: Path | str | None, rosters: Sequence[Roster], store: PassageStore | None
) -> LibraryDeidentification | None:
    """Return the de-identification of the settings, or None if they ask for none.

    Raise SettingsError if the measured recall is lower than the settings require, without a library, and for anything
    but chat models on another machine. Raise ModelMissing without the extra `deidentify`.
    """
    if settings.deidentify is None:
        return None
    folder = None if library is None or settings.store is not None else library_folder(library)
    if folder is None or not folder.is_dir():
        raise SettingsError("setting deidentify: it needs a library, whose key it uses: name one, or leave it out")
    for key, host in settings.remote_hosts():
        if not key.startswith("models."):
            raise SettingsError(
                f"setting deidentify: it changes the prompts of chat models only, and {key} would send texts to {host} "
                "unchanged: name something on this machine, or leave one of both out"
            )
    load_recognizers()
    check_measured_recall(folder, settings.deidentify)
    return LibraryDeidentification(read_key(folder), rosters, store)
