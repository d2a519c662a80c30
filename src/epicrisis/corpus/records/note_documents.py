"""Turn notes of patients into documents: cleaned, without boilerplate and duplicates, with time and sections.

Every file is read twice, because its recurring texts are known only at its end. Each file is treated separately, so
that adding it again, alone or with others, gives the same documents.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from epicrisis.core.types import Document
from epicrisis.corpus.base import note_cleaning
from epicrisis.corpus.base.csv_rows import MAX_ROW_BYTES
from epicrisis.corpus.base.note_times import parse_note_time
from epicrisis.corpus.base.patient_numbers import stands_for_nobody
from epicrisis.corpus.base.reader_base import DeletedDocument, FileRemark, Skipped, skip
from epicrisis.corpus.base.removal_log import RemovalLog

SOURCE = "notes"
_MISSING_VALUES = frozenset(("nan", "nat", "null", "none", "na", "n/a", "\\n", "<na>"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClinicalNote:
    """One note with its texts as in the source; a field is empty if the source has no value."""

    where: str
    """The place in the file, for `Skipped`."""
    patient: str
    text: str
    times: tuple[str, ...] = ()
    """When the note was written. The most exact of the readable times is used, and the first of equally exact ones."""
    note_type: str = ""
    encounter: str = ""
    note_id: str = ""
    patient_name: str = ""
    born: str = ""
    """The patient's birth date. No date of the note is before it."""
    admitted: str = ""
    discharged: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)
    is_error: bool = False
    is_superseded: bool = False
    headings: tuple[str, ...] = ()
    """Lines of the text that begin sections, if the source says so."""
    version: str = ""
    """What the note is other than a final text of its own, such as `amended`; behind the type in the title."""


NoteSource: TypeAlias = Callable[[], Iterator[ClinicalNote | Skipped | FileRemark]]
"""Returns a new iterator over the notes of a file, with what was not read, at each call."""


@dataclass(frozen=True, slots=True)
class NoteCleaning:
    """Settings for reading notes. `time_format` is a format of `strptime` for times that are not ISO."""

    keep_boilerplate: bool = False
    time_format: str = ""
    removal_log: RemovalLog = field(default_factory=RemovalLog)
    keep_superseded: bool = False


def build_documents(
    path: Path, name: str, notes: NoteSource, cleaning: NoteCleaning
) -> Iterator[Document | Skipped | FileRemark]:
    """Yield the items of `build_items` without deletions."""
    for item in build_items(path, name, notes, cleaning):
        if not isinstance(item, DeletedDocument):
            yield item


def build_items(
    path: Path, name: str, notes: NoteSource, cleaning: NoteCleaning
) -> Iterator[Document | DeletedDocument | Skipped | FileRemark]:
    """Yield the notes as documents, in their order; `name` is the file's name for the removal log.

    A note that its source marks as an error, or as superseded, is a `DeletedDocument` if it has an id, because an
    earlier export may have contained it. Notes with the same patient, note type, day and cleaned text are duplicates;
    only the first is yielded. The same words of another day stay, since they say that nothing had changed. If the day
    is unknown, the encounter and the time as written must be the same too. This takes 60 bytes of memory a note.
    """
    log = cleaning.removal_log
    source = log.begin_source(path, name)
    recurring = {} if cleaning.keep_boilerplate else _count_recurring(notes(), cleaning)
    # A generator that is not exhausted may be closed by any thread.
    with closing(sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)) as database:
        database.execute("CREATE TABLE note(digest BLOB PRIMARY KEY, id TEXT NOT NULL) WITHOUT ROWID")
        for note in notes():
            if isinstance(note, Skipped | FileRemark):
                yield note
                continue
            patient, note_id = normalize_id(note.patient), normalize_id(note.note_id)
            if stands_for_nobody(patient):
                reason = "names no patient, and every note needs one; fill the cell in, or choose another column"
                yield skip(path, note.where, reason)
                continue
            if _is_left_out(note, cleaning):
                kind = "marked-as-error" if note.is_error else "superseded"
                log.record(source, kind, f"note:{note_id}" if note_id else note.where, [note.text])
                if note_id:
                    yield DeletedDocument(f"note:{note_id}", patient=patient)
                continue
            is_long = len(note.text) > MAX_ROW_BYTES
            text = "" if is_long else note_cleaning.clean_text(note.text)
            if not text.strip():
                size = f"longer than {MAX_ROW_BYTES // 2**20} MB: no note; split it"
                yield skip(path, note.where, size if is_long else "holds no text")
                continue
            document, removed = _build_document(note, text, recurring, cleaning)
            digest = _digest_note(note, document.date, text)
            first = database.execute("SELECT id FROM note WHERE digest = ?", (digest,)).fetchone()
            if first is not None:
                log.record(source, "duplicate", document.id, [text], kept=first[0])
            elif not document.text:
                yield skip(path, note.where, "nothing but boilerplate; --keep-boilerplate keeps it")
            else:
                database.execute("INSERT INTO note VALUES (?, ?)", (digest, document.id))
                _log_removals(log, source, document, removed, recurring)
                yield document


def normalize_id(value: str) -> str:
    """Return an id as text: `10083814.0`, as spreadsheets write numbers, becomes `10083814`, and `NaN` is empty."""
    value = value.strip()
    if value.casefold() in _MISSING_VALUES:
        return ""
    return value[:-2] if value.endswith(".0") and value[:-2].isdecimal() else value


def _is_left_out(note: ClinicalNote, cleaning: NoteCleaning) -> bool:
    return note.is_error or (note.is_superseded and not cleaning.keep_superseded)


def _count_recurring(
    notes: Iterator[ClinicalNote | Skipped | FileRemark], cleaning: NoteCleaning
) -> dict[note_cleaning.ParagraphHash, note_cleaning.RecurringText]:
    counter = note_cleaning.RecurringTextCounter()
    for note in notes:
        if isinstance(note, ClinicalNote) and not _is_left_out(note, cleaning) and len(note.text) <= MAX_ROW_BYTES:
            counter.add(note.note_type, normalize_id(note.patient), note_cleaning.clean_text(note.text))
    return counter.recurring()


def _build_document(
    note: ClinicalNote,
    clean: str,
    recurring: Mapping[note_cleaning.ParagraphHash, note_cleaning.RecurringText],
    cleaning: NoteCleaning,
) -> tuple[Document, list[note_cleaning.RemovedText]]:
    """Return the note as a document, and the removed texts. The text is empty if all of it is boilerplate."""
    text = clean
    removed: list[note_cleaning.RemovedText] = []
    if not cleaning.keep_boilerplate:
        text, removed = note_cleaning.remove_boilerplate(note.note_type, text, recurring)
    date: str | None = None
    time_metadata: dict[str, Any] = {}
    times = _written_times(note)
    birth = parse_note_time(normalize_id(note.born), cleaning.time_format)
    born = birth[0] if birth else ""
    parsed = list(filter(None, (parse_note_time(time, cleaning.time_format, born) for time in times)))
    if parsed:
        date, time_metadata["time_zone"] = max(parsed, key=lambda time: len(time[0]))
    else:
        time_metadata = {"time_given": times[0]} if times else {"time_missing": True}
    note_type, patient, note_id = note.note_type.strip(), normalize_id(note.patient), normalize_id(note.note_id)
    metadata = {
        "note_type": note_type,
        "version": note.version,
        "encounter": normalize_id(note.encounter),
        "patient_name": " ".join(note.patient_name.split()),
        **_stay_metadata("admitted", note.admitted, cleaning.time_format, born),
        **_stay_metadata("discharged", note.discharged, cleaning.time_format, born),
        **time_metadata,
        "sections": note_cleaning.find_sections(text, frozenset(map(note_cleaning.clean_text, note.headings))),
        **note.more,
    }
    title = (note_type[:1].upper() + note_type[1:]) or "Note"
    if note.version:
        title = f"{title} ({note.version})"
    document = Document(
        id=f"note:{note_id or f'{patient}:{_digest_note(note, date, clean).hex()[:16]}'}",
        text=text,
        title=f"{title}, {date[:10]}" if date else title,
        source=SOURCE,
        date=date,
        patient=patient,
        metadata={key: value for key, value in metadata.items() if value},
    )
    return document, removed


def _written_times(note: ClinicalNote) -> list[str]:
    return [time.strip() for time in note.times if normalize_id(time)]


def _stay_metadata(key: str, value: str, form: str, born: str) -> dict[str, str]:
    value = normalize_id(value)
    time = parse_note_time(value, form, born) if value else None
    return {key: time[0]} if time else {f"{key}_given": value}


def _digest_note(note: ClinicalNote, date: str | None, text: str) -> bytes:
    """Return 16 bytes that are equal for duplicates of a note."""
    when = (date or "")[:10]
    if len(when) < 10:
        # Without a day to separate notes of equal words, the rest of the time and the encounter must.
        details = [*([] if date else _written_times(note)), normalize_id(note.encounter)]
        if any(details):
            when += "\0".join(("", *details))
    words = "\0".join((normalize_id(note.patient), note.note_type.strip(), when, text))
    return hashlib.blake2b(words.encode(), digest_size=16).digest()


def _log_removals(
    log: RemovalLog,
    source: str,
    document: Document,
    removed: Sequence[note_cleaning.RemovedText],
    recurring: Mapping[note_cleaning.ParagraphHash, note_cleaning.RecurringText],
) -> None:
    log.notes += 1
    log.without_time += "time_missing" in document.metadata
    log.time_not_read += "time_given" in document.metadata
    footers: dict[str, list[str]] = {}
    for removal in removed:
        if removal.kind == "recurring":
            text = recurring[removal.key]
            log.record(source, removal.kind, document.id, [text.text], notes=text.notes, of=text.notes_of_type)
        else:
            footers.setdefault(removal.kind, []).append(removal.text)
    for kind, texts in footers.items():
        log.record(source, kind, document.id, texts)


DocumentKey = tuple[str, str]
"""Patient and id of a document."""


def find_replaced(successors: Mapping[DocumentKey, Iterable[DocumentKey]]) -> set[DocumentKey]:
    """Return the replaced documents. The map has the replacements of each document.

    A document is not replaced by one that it replaces itself, directly or through others.
    """
    replaced: set[DocumentKey] = set()
    for document, later in successors.items():
        if any(document not in _later_documents(successor, successors) for successor in later):
            replaced.add(document)
    return replaced


def _later_documents(
    document: DocumentKey, successors: Mapping[DocumentKey, Iterable[DocumentKey]]
) -> set[DocumentKey]:
    """Return the document and all that replace it, directly or through others."""
    reached = {document}
    queue = [document]
    while queue:
        for successor in successors.get(queue.pop(), ()):
            if successor not in reached:
                reached.add(successor)
                queue.append(successor)
    return reached
