"""Notes of patients as documents: cleaned, without boilerplate, each once, with time, sections and metadata.

Whatever file they come from, it is read twice: what recurs over its notes is known only at its end. Each file is judged
by itself, so that adding it again, alone or beside others, gives the same documents. The order of a record is not made
here: a library gives a patient's passages by time. Does not know any format of files.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from epicrisis.corpus.csv_rows import MAX_ROW_BYTES
from epicrisis.corpus.note_cleaning import (
    ParagraphHash,
    RecurringText,
    RecurringTextCounter,
    RemovedText,
    clean_text,
    remove_boilerplate,
)
from epicrisis.corpus.note_sections import find_sections
from epicrisis.corpus.note_times import parse_note_time
from epicrisis.corpus.reader_base import DeletedDocument, Skipped, printable_path
from epicrisis.corpus.removal_log import RemovalLog
from epicrisis.types import Document

SOURCE = "notes"
_NOTHING = frozenset(("nan", "nat", "null", "none", "na", "n/a", "\\n", "<na>"))
"""What exports write where a cell is empty."""


@dataclass(frozen=True, slots=True)
class ClinicalNote:
    """One note as its source gives it; texts as they stand there, empty where it says nothing."""

    where: str
    """Its place in the file, for `Skipped`."""
    patient: str
    text: str
    times: tuple[str, ...] = ()
    """When it was written; of several that can be read the most exact counts, of these the first."""
    note_type: str = ""
    encounter: str = ""
    note_id: str = ""
    patient_name: str = ""
    admitted: str = ""
    discharged: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further metadata."""
    is_error: bool = False
    """Its source says that it was written by mistake."""
    is_superseded: bool = False
    """Its source says that another note stands in its place."""


@dataclass(frozen=True, slots=True)
class NoteCleaning:
    """How notes are taken in. `time_format`: as `strptime` takes it, of times that are not ISO; see
    `notes_time.check_format`."""

    keep_boilerplate: bool = False
    time_format: str = ""
    ledger: RemovalLog = field(default_factory=RemovalLog)
    keep_superseded: bool = False


def build_documents(
    path: Path, name: str, notes: Callable[[], Iterator[ClinicalNote | Skipped]], treatment: NoteCleaning
) -> Iterator[Document | Skipped]:
    """As `build_items`, without the notes that were taken back."""
    return (item for item in build_items(path, name, notes, treatment) if not isinstance(item, DeletedDocument))


def build_items(
    path: Path, name: str, notes: Callable[[], Iterator[ClinicalNote | Skipped]], treatment: NoteCleaning
) -> Iterator[Document | DeletedDocument | Skipped]:
    """The notes as documents, in the order given; `name` is the file's, for the ledger. A note that its source marks as
    an error, or as superseded, is `Deleted` where it has an id: an earlier export may have brought it.

    The same note twice (patient, note type, day and text after cleaning) is one, the first. The same words of another
    day stay: they say that nothing had changed by then. Where the day is not known, so do those of another stay, or of
    a time that is written otherwise. 60 bytes a note are held to tell.
    """
    ledger = treatment.ledger
    source = ledger.reading(path, name)
    recurring = {} if treatment.keep_boilerplate else _recurring(notes(), treatment)
    # Whoever stops listening half-way leaves it to be closed by any thread.
    with closing(sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)) as seen:
        seen.execute("CREATE TABLE seen(digest BLOB PRIMARY KEY, id TEXT NOT NULL) WITHOUT ROWID")
        for note in notes():
            if isinstance(note, Skipped):
                yield note
                continue
            if _is_left_out(note, treatment) and normalize_id(note.patient):
                yield from _withdrawn(note, source, ledger)
                continue
            whole = clean_text(note.text) if len(note.text) <= MAX_ROW_BYTES else note.text
            if reason := _fault(note, whole):
                yield Skipped(printable_path(path), note.where, reason)
                continue
            document, taken = _document(note, whole, recurring, treatment)
            digest = _digest(note, document.date, whole)
            first = seen.execute("SELECT id FROM seen WHERE digest = ?", (digest,)).fetchone()
            if first is not None:
                ledger.take(source, "duplicate", document.id, [whole], kept=first[0])
            elif not document.text:
                yield Skipped(
                    printable_path(path), note.where, "nothing but boilerplate; --keep-boilerplate leaves it in"
                )
            else:
                seen.execute("INSERT INTO seen VALUES (?, ?)", (digest, document.id))
                _account(ledger, source, document, taken, recurring)
                yield document


def normalize_id(given: str) -> str:
    """An id as text: `10083814.0`, as spreadsheets write numbers, is `10083814`, and `NaN` is none (empty)."""
    given = given.strip()
    if given.casefold() in _NOTHING:
        return ""
    return given[:-2] if given.endswith(".0") and given[:-2].isdecimal() else given


def _withdrawn(note: ClinicalNote, source: str, ledger: RemovalLog) -> Iterator[DeletedDocument]:
    given = f"note:{normalize_id(note.note_id)}" if normalize_id(note.note_id) else ""
    ledger.take(source, "marked-as-error" if note.is_error else "superseded", given or note.where, [note.text])
    if given:
        yield DeletedDocument(given, patient=normalize_id(note.patient))


def _is_left_out(note: ClinicalNote, treatment: NoteCleaning) -> bool:
    return note.is_error or (note.is_superseded and not treatment.keep_superseded)


def _recurring(notes: Iterator[ClinicalNote | Skipped], treatment: NoteCleaning) -> dict[ParagraphHash, RecurringText]:
    counts = RecurringTextCounter()
    for note in notes:
        if isinstance(note, ClinicalNote) and not _is_left_out(note, treatment) and len(note.text) <= MAX_ROW_BYTES:
            counts.add(note.note_type, normalize_id(note.patient), clean_text(note.text))
    return counts.recurring()


def _fault(note: ClinicalNote, whole: str) -> str:
    if not normalize_id(note.patient):
        return "names no patient: whose record it is must be known; fill the cell in, or name another column"
    if len(whole) > MAX_ROW_BYTES:
        return f"longer than {MAX_ROW_BYTES // 2**20} MB: no note; split it"
    return "" if whole.strip() else "holds no text"


def _document(
    note: ClinicalNote, whole: str, recurring: Mapping[ParagraphHash, RecurringText], treatment: NoteCleaning
) -> tuple[Document, list[RemovedText]]:
    """The note as a document, its text empty where nothing but boilerplate is left; and what was taken out."""
    text = whole
    taken: list[RemovedText] = []
    if not treatment.keep_boilerplate:
        text, taken = remove_boilerplate(note.note_type, text, recurring)
    date, times = _time(note, treatment.time_format)
    kind, patient = note.note_type.strip(), normalize_id(note.patient)
    said = {
        "note_type": kind,
        "encounter": normalize_id(note.encounter),
        "patient_name": " ".join(note.patient_name.split()),
        **_stay("admitted", note.admitted, treatment.time_format),
        **_stay("discharged", note.discharged, treatment.time_format),
        **times,
        "sections": find_sections(text),
        **note.more,
    }
    given = normalize_id(note.note_id)
    document = Document(
        id=f"note:{given or f'{patient}:{_digest(note, date, whole).hex()[:16]}'}",
        text=text,
        title=", ".join(part for part in ((kind[:1].upper() + kind[1:]) or "Note", (date or "")[:10]) if part),
        source=SOURCE,
        date=date,
        patient=patient,
        metadata={key: value for key, value in said.items() if value},
    )
    return document, taken


def _time(note: ClinicalNote, form: str) -> tuple[str | None, dict[str, Any]]:
    """The date, and what the metadata say of it."""
    given = [time.strip() for time in note.times if normalize_id(time)]
    read = [found for time in given if (found := parse_note_time(time, form))]
    if not given:
        return None, {"time_missing": True}
    if not read:
        return None, {"time_given": given[0]}
    date, zone = max(read, key=lambda found: len(found[0]))
    return date, {"time_zone": zone}


def _stay(key: str, given: str, form: str) -> dict[str, str]:
    given = normalize_id(given)
    read = parse_note_time(given, form) if given else None
    return {key: read[0]} if read else {f"{key}_given": given}


def _digest(note: ClinicalNote, date: str | None, text: str) -> bytes:
    """16 bytes of what makes a note the same one."""
    when = (date or "")[:10]
    if len(when) < 10:
        # No day tells notes of equal words apart, so what else is said of the time, and the stay, must.
        times = () if date else (time.strip() for time in note.times if normalize_id(time))
        said = (*times, normalize_id(note.encounter))
        when += "\0".join(("", *said)) if any(said) else ""
    words = "\0".join((normalize_id(note.patient), note.note_type.strip(), when, text))
    return hashlib.blake2b(words.encode(), digest_size=16).digest()


def _account(
    ledger: RemovalLog,
    source: str,
    document: Document,
    taken: list[RemovedText],
    recurring: Mapping[ParagraphHash, RecurringText],
) -> None:
    ledger.notes += 1
    ledger.without_time += "time_missing" in document.metadata
    ledger.time_not_read += "time_given" in document.metadata
    footers: dict[str, list[str]] = {}
    for each in taken:
        if each.kind == "recurring":
            found = recurring[each.key]
            ledger.take(source, each.kind, document.id, [found.text], notes=found.notes, of=found.notes_of_type)
        else:
            footers.setdefault(each.kind, []).append(each.text)
    for kind, texts in footers.items():
        ledger.take(source, kind, document.id, texts)
