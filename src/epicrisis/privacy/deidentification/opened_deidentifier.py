"""Open de-identification for the questions to a library, and the layer that it puts around each chat model."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from epicrisis.core.answers import Event, Notice
from epicrisis.core.errors import SettingsError
from epicrisis.core.protocols import ChatModel, ChatReply, ChatRequest, DeltaCallback, Message, PassageStore
from epicrisis.core.types import Passage, Scope
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.core.patients import Roster
from epicrisis.models.chat.layers import Layer
from epicrisis.privacy.deidentification.deidentifier import (
    RECOGNIZER_VERSION,
    Deidentifier,
    PatientIdentifiers,
    ReplacedTexts,
)
from epicrisis.privacy.deidentification.library_files import check_measured_recall, read_key
from epicrisis.privacy.deidentification.name_lists import WORD
from epicrisis.privacy.deidentification.presidio import load_recognizers
from epicrisis.privacy.deidentification.spans import IdentifierKind
from epicrisis.settings.settings import Settings
from epicrisis.system.remote_libraries import library_folder

_HELD_BACK = 80
"""Characters of a streamed reply that are shown only when more follow: a surrogate may continue."""


class DeidentifiedModel(Layer):
    """Replaces the identifiers in prompts and restores them in replies. Raises ModelMissing without the extra.

    `deidentifier` is called once, in a thread, before the first prompt. `report` receives the number of replaced
    identifiers of each kind, for each completion.
    """

    def __init__(
        self,
        inner: ChatModel,
        deidentifier: Callable[[], Deidentifier],
        report: Callable[[Mapping[IdentifierKind, int]], None] = lambda counts: None,
    ) -> None:
        super().__init__(inner)
        self._deidentifier = deidentifier
        self._report = report

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        replaced = await self._replace(request.messages)
        self._report(replaced.counts)
        stream = None if on_delta is None else RestoredStream(replaced, on_delta)
        sent = replace(request, messages=_make_messages(request.messages, replaced))
        reply = await self._inner.complete(sent, None if stream is None else stream.feed)
        text = replaced.restore(reply.text)
        if stream is not None:
            stream.finish(text)
        notes = tuple(replaced.restore(note) for note in reply.notes)
        return replace(reply, text=text, reasoning=replaced.restore(reply.reasoning), notes=notes)

    async def count_tokens(self, messages: Sequence[Message]) -> int:
        replaced = await self._replace(messages)
        return await self._inner.count_tokens(_make_messages(messages, replaced))

    async def _replace(self, messages: Sequence[Message]) -> ReplacedTexts:
        def work() -> ReplacedTexts:
            return self._deidentifier().replace([message.content for message in messages])

        return await asyncio.to_thread(work)


def _make_messages(messages: Sequence[Message], replaced: ReplacedTexts) -> tuple[Message, ...]:
    pairs = zip(messages, replaced.texts, strict=True)
    return tuple(replace(message, content=text) for message, text in pairs)


class RestoredStream:
    """Passes a streamed reply on with its originals, except the last characters: a surrogate may continue."""

    def __init__(self, replaced: ReplacedTexts, on_delta: DeltaCallback) -> None:
        self._replaced = replaced
        self._on_delta = on_delta
        self._text = ""
        self._shown = ""

    def feed(self, piece: str | None) -> None:
        """Take the next piece, or None if the reply starts again."""
        if piece is None:
            self._text = self._shown = ""
            self._on_delta(None)
            return
        self._text += piece
        cut = self._text.rfind(" ", 0, max(0, len(self._text) - _HELD_BACK))
        if cut > 0:
            self._show(self._replaced.restore(self._text[:cut]))

    def finish(self, text: str) -> None:
        """Show the rest of the restored reply."""
        if text:
            self._show(text)

    def _show(self, restored: str) -> None:
        if not restored.startswith(self._shown):
            # A surrogate went on behind the cut after all.
            self._on_delta(None)
            self._shown = ""
        if len(restored) > len(self._shown):
            self._on_delta(restored[len(self._shown) :])
            self._shown = restored


def describe_counts(counts: Mapping[IdentifierKind, int]) -> str:
    """Return the number of replaced identifiers by kind, such as `name: 3, date: 2`."""
    ordered = sorted(Counter(counts).items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{kind}: {count}" for kind, count in ordered) or "none"


def deidentify_models(
    models: Mapping[str, ChatModel], deidentifier: Callable[[], Deidentifier], emit: Callable[[Event], None]
) -> dict[str, ChatModel]:
    """Return the chat model of each role in a layer that replaces identifiers and emits their number."""

    def report(counts: Mapping[IdentifierKind, int]) -> None:
        emit(Notice("de-identified", f"replaced before the prompt was sent: {describe_counts(counts)}"))

    protected = {model: DeidentifiedModel(model, deidentifier, report) for model in models.values()}
    return {role: protected[model] for role, model in models.items()}


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
