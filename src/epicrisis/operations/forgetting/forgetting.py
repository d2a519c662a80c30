"""Forget patients, and prove at the end that no file names or quotes them.

    report = forget_patients(library_folder("~/ward"), ["10083814"], Places(runs=(Path("runs"),)), reader)

The folder `forgetting` in the library's folder holds the plan until the proof succeeds: ids, documents, names, and
hashes of the notes. A removal that was killed continues from it, since every step can be repeated:

1. write the plan, and an entry in each access log for each patient;
2. remove quotations from runs, answers, logs and caches;
3. remove notes, words, identities and traces from the library, and rewrite its files or tables;
4. take the names out of the access logs, and rewrite the tables of a server's state;
5. search every file and every row, and ask the engines;
6. remove the plan.

Call `list_outside` first: it names the places out of reach, and refuses a library or state that this user may not
rewrite.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from epicrisis.core.errors import InputError
from epicrisis.library.base.passage_table import sql_in
from epicrisis.library.base.remote_store import is_in_database, load_database_engine, load_object_storage
from epicrisis.library.core.journal import open_journal
from epicrisis.library.core.library_parts import REPLIES, remove_parts
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.core.patient_identities import read_identities
from epicrisis.library.core.patients import Roster, number_without_system
from epicrisis.library.postgresql.rewriting import list_copies, rewrite_tables
from epicrisis.library.write.record_removal import find_documents, find_remnants, remove_records
from epicrisis.operations.forgetting.file_scan import FileMatch, list_files, scan_files
from epicrisis.operations.forgetting.patient_strings import PatientStrings
from epicrisis.operations.forgetting.places import PlaceRemoval, clean_place
from epicrisis.operations.forgetting.server_items import clean_server_items
from epicrisis.operations.forgetting.server_tables import clean_server_tables
from epicrisis.operations.forgetting.table_scan import scan_tables
from epicrisis.privacy.access_log import FORGET, NAME, AccessLog, build_entry
from epicrisis.privacy.record_access import SystemUser
from epicrisis.server.base.users import USERS_FILE, UserStore
from epicrisis.server.state.shared_state.shared_database import StateDatabase
from epicrisis.server.state.state import open_state
from epicrisis.system.local_only import replace_file
from epicrisis.system.remote_libraries import is_remote, show_library

FOLDER = "forgetting"
_PLAN, _STRINGS = "plan.json", "strings.npz"
_COLUMNS = ["id", "document_id", "text", "title", "source", "metadata", "patient"]
_ENCOUNTERS = ("encounter", "note_id", "patient_name")


@dataclass(frozen=True, slots=True)
class Places:
    """Where answers about a library may be, outside of its own folder."""

    runs: tuple[Path, ...] = ()
    """Folders of runs, and files of answers, logs and recorded calls."""
    server: Path | None = None
    """The folder of a server, or the one that stands for its state in PostgreSQL (`state_folder`)."""
    log: Path | None = None
    """The access log outside of the library, from the time when its folder was read-only."""

    @property
    def all(self) -> tuple[Path, ...]:
        """All folders and files that are cleaned."""
        return self.runs if self.server is None else (*self.runs, self.server)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetReport:
    """The removed items, and the result of the search of all files."""

    patients: int
    documents: int
    lines: int
    """Lines removed from records, logs and recorded calls."""
    files: tuple[str, ...]
    """Files that were deleted or shortened: answers, reports, caches."""
    log_entries: int
    """Entries of access logs that name nobody any more."""
    scanned: int
    """Files that were searched."""
    names: int
    windows: int
    """What was searched for: names, and windows of 32 bytes of the notes."""
    shared: int
    """Names and windows that other records contain as well. They are not searched for."""
    remaining: tuple[FileMatch, ...]
    """Files that still name or quote the patients, or cannot be read."""
    problems: tuple[str, ...] = ()
    """What the engines of the library still have."""
    outside: tuple[str, ...] = ()
    """Where copies may be that this command cannot reach."""

    @property
    def is_clean(self) -> bool:
        """Whether nothing of the patients is left where the command can look."""
        return not (self.remaining or self.problems)


class _Plan(BaseModel):
    """The content of the plan."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    patients: tuple[str, ...]
    documents: tuple[str, ...]


def find_plan(folder: Path) -> tuple[str, ...] | None:
    """Return the patients of a removal that was interrupted in this library, or None. Raises InputError."""
    plan = _read_plan(folder)
    return None if plan is None else plan.patients


def forget_patients(
    folder: Path,
    patients: Sequence[str],
    places: Places,
    reader: SystemUser,
    on_step: Callable[[str], None] = lambda step: None,
) -> ForgetReport:
    """Remove these patients, and search all files for them. After a kill, the same call continues.

    Raises InputError for an unknown patient, and if the removal of other patients was interrupted; LibraryBusy,
    StorageError and LibraryDamaged.
    """
    ids = tuple(dict.fromkeys(patients))
    outside = list_outside(folder, places)
    with LibraryStore.open(folder, write=True) as store:
        plan = _read_plan(folder)
        if plan is not None and set(plan.patients) != set(ids):
            raise InputError(
                "the removal of other patients was not finished in this library: first repeat `epicrisis patient "
                f"forget {show_library(folder)} {' '.join(plan.patients)}` with the same --runs and --folder"
            )
        if plan is None:
            on_step("reading the records")
            plan = _make_plan(store, folder, ids)
        strings = PatientStrings.load(folder / FOLDER / _STRINGS)
        logs = _open_logs(folder, places)
        _log_forgetting(logs, plan, reader, show_library(folder))
        on_step("cleaning runs, answers and logs")
        removal = _clean_places(folder, places, plan, strings)
        documents = sorted({*plan.documents, *find_documents(store, plan.patients)})
        remove_records(store, plan.patients, documents, strings.is_in, on_step)
        # A writer on object storage works in another folder than its readers, who have the cached replies.
        remove_parts(folder, REPLIES)
        changed = sum(log.forget(plan.patients) for log in logs)
        on_step("joining files")
        store.optimize(on_step=on_step)
    if (storage := load_object_storage(folder)) is not None:
        storage.remove_old_files(folder)
    if (database := _open_database(places)) is not None:
        on_step("writing the tables of the server anew")
        rewrite_tables(database)
    on_step("searching all files")
    report = _prove(folder, plan, strings, places, removal, changed, outside)
    if report.is_clean:
        shutil.rmtree(folder / FOLDER)
    return report


def _read_plan(folder: Path) -> _Plan | None:
    try:
        return _Plan.model_validate_json((folder / FOLDER / _PLAN).read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError:
        raise InputError(
            f"{folder / FOLDER / _PLAN} cannot be read: delete this folder, and repeat the command"
        ) from None


def list_outside(folder: Path, places: Places) -> tuple[str, ...]:
    """Return the places of possible copies out of reach of `forget_patients`. Nothing is changed.

    Raises LibraryError if this user may not rewrite the library, or the state of the server.
    """
    outside = ["backups and copies of these folders", "the files that the notes were read from"]
    with LibraryStore.open(folder) as store:
        outside += store.list_copies()
    if (database := _open_database(places)) is not None:
        outside += list_copies(database)
        outside.append("files that users sent to other machines with servers of this database")
    if is_remote(folder):
        outside.append("cached replies and access logs of other machines that read this library")
    return tuple(dict.fromkeys(outside))


def _open_database(places: Places) -> StateDatabase | None:
    """Return the database with the state of the server, or None if it is in a folder."""
    return None if places.server is None else open_state(places.server).database


def _clean_places(library: Path, places: Places, plan: _Plan, strings: PatientStrings) -> PlaceRemoval:
    """Remove what quotes the patients outside of the library, and the patients from the users of the library."""
    removal = PlaceRemoval()
    names = {*plan.patients, *strings.texts_of_names}
    if places.server is not None:
        state = open_state(places.server)
        if state.database is None:
            removal += clean_server_items(places.server, names, strings)
        else:
            removal += clean_server_tables(state.database, names, strings)
        state.users.forget_patients(plan.patients)
    UserStore(library / USERS_FILE).forget_patients(plan.patients)
    for place in places.all:
        removal += clean_place(place, names, strings)
    return removal


def _make_plan(store: LibraryStore, library: Path, patients: tuple[str, ...]) -> _Plan:
    """Write the plan and the strings to search for. Raises InputError for an unknown patient."""
    unknown = sorted(set(patients) - Roster(store).patients().keys() - read_identities(store.path).keys())
    if unknown:
        raise InputError(
            f"the library has no patient {', '.join(map(ascii, unknown))}: `epicrisis library patients` lists them. "
            "Patients that were forgotten are not listed any more"
        )
    documents = find_documents(store, patients)
    strings = _collect_strings(store, patients, documents)
    folder = library / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    strings.save(folder / _STRINGS)
    plan = _Plan(patients=patients, documents=tuple(documents))
    replace_file(folder / _PLAN, folder / f"{_PLAN}.new", [plan.model_dump_json().encode()])
    return plan


def _collect_strings(store: LibraryStore, patients: Sequence[str], documents: Sequence[str]) -> PatientStrings:
    """Return what only these patients' records contain."""
    names = [*patients, *documents]
    # An id that is too short to be searched for alone is found in JSON.
    for patient in patients:
        names += [f'"patient": {json.dumps(patient)}', f'"patient":{json.dumps(patient)}']
    identities = read_identities(store.path)
    others: list[str] = []
    for id_, identity in identities.items():
        values = [id_, *identity.names]
        for _, number in identity.numbers:
            values.append(number_without_system(number))
        (names if id_ in patients else others).extend(values)
    texts: list[str] = []
    for row in store.open_table().rows(_COLUMNS, sql_in("patient", patients)):
        texts += [row["text"], row["title"]]
        names += _list_metadata_names(row["metadata"])
    strings = PatientStrings.collect(texts, names)

    def read_others() -> Iterator[str]:
        condition = f"patient IS NULL OR NOT ({sql_in('patient', patients)})"
        for row in store.open_table().rows(_COLUMNS, condition):
            yield row["text"]
            yield f"{row['title']}\n{row['metadata']}\n{row['document_id']}\n{row['patient'] or ''}\n{row['source']}"

    return strings.without(read_others(), others)


def _list_metadata_names(metadata: str) -> list[str]:
    """Return the values of a note's metadata that identify the patient or the stay."""
    values = json.loads(metadata)
    return [str(values[key]) for key in _ENCOUNTERS if values.get(key)]


def _open_logs(folder: Path, places: Places) -> list[AccessLog]:
    """Return the access logs of the library and of the server. The library has one from now on."""
    logs = [AccessLog(folder / NAME)]
    if places.log is not None and places.log.is_file():
        logs.append(AccessLog(places.log))
    if places.server is not None:
        state = open_state(places.server)
        if state.database is not None or (places.server / NAME).is_file():
            logs.append(state.log)
    return logs


def _log_forgetting(logs: Sequence[AccessLog], plan: _Plan, reader: SystemUser, library: str) -> None:
    for log in logs:
        for patient in plan.patients:
            log.append(build_entry(reader.name, FORGET, library, patient, (), user_id=reader.id))


def _prove(
    folder: Path,
    plan: _Plan,
    strings: PatientStrings,
    places: Places,
    removal: PlaceRemoval,
    changed: int,
    outside: tuple[str, ...],
) -> ForgetReport:
    """Return the report after a search of all files and rows, and a look into the engines."""
    problems: list[str] = []
    if is_in_database(folder):
        problems += scan_tables(load_database_engine().find_database(folder), strings)
    if (database := _open_database(places)) is not None:
        problems += scan_tables(database, strings)
    with LibraryStore.open(folder) as store:
        table = store.open_table()
        if count := table.count(sql_in("patient", plan.patients)):
            problems.append(f"{table.name} still holds {count} passages")
        with open_journal(store.path) as journal:
            for start in range(0, len(plan.documents), 1000):
                if journal.hashes(plan.documents[start : start + 1000]):
                    problems.append("the journal still lists notes")
                    break
        # Compressed files cannot be searched as bytes, but nothing may be in them that the table does not have.
        problems += store.info().problems
        problems += [f"{show_library(folder)}: {problem}" for problem in find_remnants(store)]
    if read_identities(folder, plan.patients):
        problems.append("the list of patients still has an identity")
    searched = [folder, *places.all] if places.log is None else [folder, *places.all, places.log.parent]
    files = list_files(searched, left_out=(folder / FOLDER,))
    remaining = tuple(scan_files(files, strings))
    return ForgetReport(
        patients=len(plan.patients),
        documents=len(plan.documents),
        lines=removal.lines,
        files=tuple(map(str, removal.files)),
        log_entries=changed,
        scanned=len(files),
        names=len(strings.names),
        windows=len(strings.windows),
        shared=strings.shared,
        remaining=remaining,
        problems=tuple(problems),
        outside=outside,
    )
