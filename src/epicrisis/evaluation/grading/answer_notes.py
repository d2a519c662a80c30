"""The notes that an answer was given, with their words: a run keeps their places alone, the library has the texts.

Read under the patient's scope, whatever a record says. Knows no judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from epicrisis.errors import InputError
from epicrisis.protocols import PassageStore
from epicrisis.retrieval.record_context import whole_notes
from epicrisis.types import Passage, Scope


class NoteTexts:
    """The words of passages, out of a library or as a record keeps them. The last patient's record stays in memory."""

    def __init__(self, store: PassageStore | None = None, told: dict[str, Any] | None = None) -> None:
        """`told`: which library it is, as a recipe says it."""
        self._store = store
        self.told = told
        self._patient: str | None = None
        self._whole: dict[str, Passage] = {}

    def read(self, passages: Sequence[Passage], patient: str | None) -> tuple[Passage, ...]:
        """The passages with their words, in their order. Raises InputError where the library has them not."""
        return tuple(passage if passage.text else self._read(passage, patient) for passage in passages)

    def _read(self, passage: Passage, patient: str | None) -> Passage:
        if self._store is None:
            raise InputError("the run keeps no texts of its notes: name the library that it read (--against-notes)")
        if passage.patient is None:
            (found,) = self._store.fetch([passage.id], Scope(patient=patient))
            return found
        if patient != self._patient:
            # Also the whole of a note may have been given, which no library keeps as one passage.
            whole = whole_notes(self._store.fetch_record(Scope(patient=patient)))
            self._patient, self._whole = patient, {note.document_id: note for note in whole}
        note = self._whole.get(passage.document_id)
        if note is None or not note.start <= passage.start <= passage.end <= note.end:
            raise InputError(
                f"the library has no such place in {passage.document_id!r} of this patient: name the one that was read"
            )
        return replace(passage, text=note.text[passage.start - note.start : passage.end - note.start])
