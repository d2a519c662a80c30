"""Readings of patients' records: the access log has an entry before anybody sees a text."""

from __future__ import annotations

from pathlib import Path

import pytest

from epicrisis.core.answers import Event, Notice, Retrieved
from epicrisis.core.errors import StorageError
from epicrisis.core.types import Hit, Passage, Ranking
from epicrisis.privacy.access_log import NAME, AccessLog
from epicrisis.privacy.record_access import RecordAccess, watch_reading


def retrieve(*documents: str) -> Retrieved:
    hits = [
        Hit(
            Passage(id=f"{document}#0", document_id=document, ordinal=0, start=0, end=5, text="Fever", patient="p1"),
            1.0,
            rank,
        )
        for rank, document in enumerate(documents)
    ]
    return Retrieved(Ranking(tuple(hits), "dense"))


def test_reading_is_logged_before_event_is_shown(tmp_path: Path) -> None:
    log = AccessLog(tmp_path / NAME)
    shown: list[list[list[str]]] = []

    def show(event: Event) -> None:
        """Note what the log says at the moment of showing."""
        if isinstance(event, Retrieved):
            shown.append([list(entry["documents"]) for entry in log.entries()])

    with watch_reading(RecordAccess("ward", log), "ask", "p1", show) as emit:
        emit(Notice("timeline", "no document yet"))
        emit(retrieve("note:1", "note:2"))
        emit(retrieve("note:2", "note:3"))
    assert shown == [[["note:1", "note:2"]], [["note:1", "note:2"], ["note:3"]]]


def test_event_is_not_shown_if_it_cannot_be_logged(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    shown: list[Event] = []
    access = RecordAccess("ward", AccessLog(tmp_path / NAME))
    with pytest.raises(StorageError), watch_reading(access, "ask", "p1", shown.append) as emit:
        emit(retrieve("note:1"))
    assert shown == []
