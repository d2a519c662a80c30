"""Read Zotero's library on this machine: items with their metadata, and the files attached to them.

Zotero keeps its database locked while it runs, so a copy is read. Nothing is written, and no network is used. Items in
the trash and of feeds are left out.

    entries = read_entries(Path("Zotero/zotero.sqlite"), collection="Trials/Aspirin")
"""

from __future__ import annotations

import re
import shutil
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from epicrisis.corpus.base.markup import remove_markup
from epicrisis.corpus.base.reader_base import os_error_reason
from epicrisis.corpus.base.retraction_wording import find_retraction, merge_marks
from epicrisis.corpus.base.text_quality import is_empty
from epicrisis.corpus.references.reference_entries import ReferenceEntry
from epicrisis.system.temporary_folders import TemporaryFolder

DATABASE = "zotero.sqlite"
"""The file in Zotero's data folder, such as `~/Zotero`. The folder `storage` beside it holds the attached files."""
MAX_SECONDS = 120
"""The longest time for reading the database. One with 10,000 items takes a second."""
_STEPS_PER_LOOK = 100_000
_MAGIC = b"SQLite format 3\0"
_STORED, _LINKED = "storage:", "attachments:"
_PRESENT = (
    "itemID NOT IN (SELECT itemID FROM deletedItems) AND libraryID NOT IN (SELECT libraryID FROM libraries WHERE "
    "type = 'feed')"
)
_ITEMS = (
    f"SELECT itemID, key, typeName FROM items JOIN itemTypes USING (itemTypeID) WHERE {_PRESENT} AND typeName NOT IN "
    "('attachment', 'note', 'annotation') ORDER BY itemID"
)
_FIELDS = (
    "SELECT itemID, fieldName, value FROM itemData JOIN fields USING (fieldID) JOIN itemDataValues USING (valueID)"
)
_CREATORS = (
    "SELECT itemID, creatorType, firstName, lastName, fieldMode FROM itemCreators JOIN creators USING (creatorID) JOIN "
    "creatorTypes USING (creatorTypeID) ORDER BY itemID, orderIndex"
)
_TAGS = "SELECT itemID, name FROM itemTags JOIN tags USING (tagID)"
_ATTACHMENTS = (
    f"SELECT itemID, parentItemID, key, path FROM itemAttachments JOIN items USING (itemID) WHERE {_PRESENT} AND path "
    "IS NOT NULL ORDER BY itemID"
)
_COLLECTIONS = (
    "SELECT collectionID, collectionName, parentCollectionID FROM collections WHERE libraryID NOT IN (SELECT libraryID "
    "FROM libraries WHERE type = 'feed') ORDER BY collectionID"
)
_MAX_COLLECTIONS = 20
_COPY_ATTEMPTS = 5
_TYPES = {
    "journalArticle": "article-journal",
    "preprint": "article",
    "book": "book",
    "bookSection": "chapter",
    "report": "report",
    "thesis": "thesis",
    "conferencePaper": "paper-conference",
    "webpage": "webpage",
}
_FIELD_NAMES = {
    "journalAbbreviation": "journal_abbreviation",
    "volume": "volume",
    "issue": "issue",
    "pages": "page_range",
    "bookTitle": "book",
    "edition": "edition",
    "publisher": "publisher",
    "place": "publisher_place",
    "ISBN": "isbn",
    "ISSN": "issn",
    "url": "url",
}
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
_EXTRA = re.compile(r"^\s{0,9}(PMID|PMCID|DOI):\s{0,9}(\S{1,200})", re.MULTILINE)


def is_zotero(path: Path) -> bool:
    """Return whether the file is Zotero's database. Raises OSError."""
    if path.name != DATABASE:
        return False
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def read_entries(path: Path, collection: str = "") -> list[ReferenceEntry]:
    """Return the items of the database, or of one collection, with the paths of their files.

    Raises ValueError with the reason.
    """
    with _open_copy(path) as database:
        chosen = _select_items(database, collection)
        attachments: dict[int, list[str]] = defaultdict(list)
        for _, parent, file in _list_attachments(path, database):
            if parent is not None:
                attachments[parent].append(str(file))
        fields: dict[int, dict[str, str]] = defaultdict(dict)
        for item, name, value in database.execute(_FIELDS):
            fields[item][name] = str(value)
        creators: dict[int, list[tuple[str, str]]] = defaultdict(list)
        for item, kind, first, last, mode in database.execute(_CREATORS):
            creators[item].append((kind, (last or "") if mode == 1 else ", ".join(filter(None, (last, first)))))
        tags: dict[int, list[str]] = defaultdict(list)
        for item, name in database.execute(_TAGS):
            tags[item].append(name)
        retracted = _read_ids(database, "SELECT itemID FROM retractedItems")
        entries = []
        for item, key, kind in database.execute(_ITEMS):
            if chosen is not None and item not in chosen:
                continue
            metadata = _build_metadata(kind, fields[item], creators[item], tags[item])
            if item in retracted:
                metadata["retracted"] = True
            title = remove_markup(fields[item].get("title", ""))
            abstract = remove_markup(fields[item].get("abstractNote", ""))
            metadata = merge_marks(metadata, find_retraction(title, abstract, (), [fields[item].get("extra", "")]))
            entries.append(
                ReferenceEntry(
                    key=key,
                    title=title,
                    abstract="" if is_empty(abstract) else abstract,
                    date=_read_date(fields[item].get("date", "")),
                    metadata=metadata,
                    files=tuple(attachments[item]),
                )
            )
        return entries


def list_attached_files(path: Path, collection: str = "") -> list[Path]:
    """Return the files of the items, or of those of one collection, that are on this machine.

    Raises ValueError with the reason.
    """
    with _open_copy(path) as database:
        chosen = _select_items(database, collection)
        files: dict[Path, None] = {}
        for attachment, parent, file in _list_attachments(path, database):
            if chosen is None or (attachment if parent is None else parent) in chosen:
                files[file] = None
    return [file for file in files if file.is_file()]


@contextmanager
def _open_copy(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a private copy of the database, with its journal. Raises ValueError for a damaged or foreign file."""
    folder = TemporaryFolder("epicrisis-zotero-")
    try:
        _copy_database(path, folder.path)
        with closing(sqlite3.connect(folder.path / path.name)) as database:
            # A view of a foreign file could compute for ever.
            deadline = time.monotonic() + MAX_SECONDS
            database.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_PER_LOOK)
            yield database
    except OSError as error:
        raise ValueError(f"{os_error_reason(error)}; check the file and its permissions") from error
    except sqlite3.Error as error:
        raise ValueError(f"Zotero's database cannot be read ({error}); close Zotero and try again") from error
    finally:
        folder.close()


def _copy_database(path: Path, folder: Path) -> None:
    """Copy the database and its journal, again if Zotero wrote meanwhile. Raises OSError, and ValueError after five."""
    sources = [path.with_name(path.name + suffix) for suffix in ("", "-journal", "-wal")]
    for _ in range(_COPY_ATTEMPTS):
        before = list(map(_state, sources))
        for source in sources:
            (folder / source.name).unlink(missing_ok=True)
            if source.is_file():
                shutil.copyfile(source, folder / source.name)
        if before == list(map(_state, sources)):
            return
    raise ValueError("Zotero is writing to its database; wait until it has finished and try again")


def _state(path: Path) -> tuple[int, int] | None:
    """Return size and time of a file, which change when it is written, or None without one."""
    if not path.is_file():
        return None
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _select_items(database: sqlite3.Connection, collection: str) -> set[int] | None:
    """Return the items of a collection and of those below it, or None for all items if there is no name.

    Raises ValueError for a name of no collection, or of several.
    """
    if not collection:
        return None
    deleted = _read_ids(database, "SELECT collectionID FROM deletedCollections")
    rows = [row for row in database.execute(_COLLECTIONS) if row[0] not in deleted]
    names = {number: (str(name), parent) for number, name, parent in rows}
    paths = {number: _collection_path(number, names) for number in names}
    path_end = collection.strip("/").casefold()
    matches = [number for number, path in paths.items() if f"/{path.casefold()}".endswith(f"/{path_end}")]
    exact = [number for number in matches if paths[number].casefold() == path_end]
    matches = exact or matches
    if len(matches) != 1:
        listed = sorted(paths[number] for number in matches) or sorted(paths.values())
        others = f" and {len(listed) - _MAX_COLLECTIONS:,} more" if len(listed) > _MAX_COLLECTIONS else ""
        problem = "several collections are" if matches else "no collection is"
        raise ValueError(
            f"{problem} called {collection!r}; name one of: {', '.join(listed[:_MAX_COLLECTIONS]) or '(none)'}{others}"
        )
    below = set(matches)
    for number in names:
        if not below.isdisjoint(_collection_ancestors(number, names)):
            below.add(number)
    links = database.execute("SELECT collectionID, itemID FROM collectionItems")
    return {item for number, item in links if number in below}


def _collection_ancestors(number: int | None, names: dict[int, tuple[str, int | None]]) -> list[int]:
    """Return the collection and those above it, from below. A damaged database may have a cycle."""
    ancestors: list[int] = []
    while number in names and number not in ancestors:
        ancestors.append(number)
        number = names[number][1]
    return ancestors


def _collection_path(number: int, names: dict[int, tuple[str, int | None]]) -> str:
    """Return the names from the top down, joined by slashes."""
    return "/".join(names[ancestor][0] for ancestor in reversed(_collection_ancestors(number, names)))


def _list_attachments(path: Path, database: sqlite3.Connection) -> Iterator[tuple[int, int | None, Path]]:
    """Yield the number of each attached file, that of its item, and its path.

    Files in a folder that only Zotero's settings name are left out.
    """
    for attachment, parent, key, place in database.execute(_ATTACHMENTS):
        name = str(place)
        if name.startswith(_STORED):
            name = name.removeprefix(_STORED)
            # A synchronized group library is written by others, so nothing outside the item's folder is read.
            if Path(name).name == name:
                yield attachment, parent, path.parent / "storage" / key / name
        elif not name.startswith(_LINKED) and Path(name).is_absolute():
            yield attachment, parent, Path(name)


def _read_ids(database: sqlite3.Connection, query: str) -> set[int]:
    """Return the ids in a table that old databases do not have."""
    try:
        return {row[0] for row in database.execute(query)}
    except sqlite3.OperationalError:
        return set()


def _build_metadata(
    kind: str, fields: dict[str, str], creators: list[tuple[str, str]], tags: list[str]
) -> dict[str, Any]:
    metadata: dict[str, Any] = {ours: fields[name] for name, ours in _FIELD_NAMES.items() if fields.get(name)}
    extra = dict(_EXTRA.findall(fields.get("extra", "")))
    doi = fields.get("DOI") or extra.get("DOI", "")
    metadata |= {
        "journal": fields.get("publicationTitle", ""),
        "doi": re.sub(r"^(?:https?://(?:dx\.)?doi\.org/|doi:\s?)", "", doi.strip(), flags=re.IGNORECASE),
        "pmid": extra.get("PMID", ""),
        "pmcid": extra.get("PMCID", ""),
        "authors": [name for role, name in creators if role != "editor" and name],
        "editors": [name for role, name in creators if role == "editor" and name],
        "keywords": tags,
        "reference_type": _TYPES.get(kind, ""),
        "language": [fields["language"]] if fields.get("language") else [],
    }
    return {name: value for name, value in metadata.items() if value}


def _read_date(value: str) -> str | None:
    """Return the ISO date at the beginning of Zotero's date (`2015-06-00 June 2015`), as exact as it is."""
    match = _DATE.match(value)
    if match is None or match[1] == "0000":
        return None
    return "-".join(part for part in match.groups() if part != "00")
