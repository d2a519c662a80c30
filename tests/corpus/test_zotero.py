"""Zotero's library: a database with Zotero's tables, and attached files."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from epicrisis.core.errors import InputError
from epicrisis.core.types import Document
from epicrisis.corpus.base.reader_base import FileRemark, Skipped
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.corpus.readers.zotero import list_attached_files, read_entries

TABLES = """
CREATE TABLE libraries (libraryID INTEGER PRIMARY KEY, type TEXT NOT NULL);
CREATE TABLE itemTypes (itemTypeID INTEGER PRIMARY KEY, typeName TEXT);
CREATE TABLE items (itemID INTEGER PRIMARY KEY, itemTypeID INT, libraryID INT DEFAULT 1, key TEXT);
CREATE TABLE deletedItems (itemID INTEGER PRIMARY KEY, dateDeleted TEXT);
CREATE TABLE fields (fieldID INTEGER PRIMARY KEY, fieldName TEXT);
CREATE TABLE itemDataValues (valueID INTEGER PRIMARY KEY, value UNIQUE);
CREATE TABLE itemData (itemID INT, fieldID INT, valueID INT, PRIMARY KEY (itemID, fieldID));
CREATE TABLE creators (creatorID INTEGER PRIMARY KEY, firstName TEXT, lastName TEXT, fieldMode INT);
CREATE TABLE creatorTypes (creatorTypeID INTEGER PRIMARY KEY, creatorType TEXT);
CREATE TABLE itemCreators (itemID INT, creatorID INT, creatorTypeID INT, orderIndex INT);
CREATE TABLE tags (tagID INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE itemTags (itemID INT, tagID INT, type INT);
CREATE TABLE itemAttachments (itemID INTEGER PRIMARY KEY, parentItemID INT, linkMode INT, contentType TEXT, path TEXT);
CREATE TABLE collections (collectionID INTEGER PRIMARY KEY, collectionName TEXT, parentCollectionID INT, libraryID INT,
key TEXT);
CREATE TABLE collectionItems (collectionID INT, itemID INT, orderIndex INT);
CREATE TABLE deletedCollections (collectionID INTEGER PRIMARY KEY, dateDeleted TEXT);
CREATE TABLE retractedItems (itemID INTEGER PRIMARY KEY, data TEXT, flag INT DEFAULT 0);
INSERT INTO libraries VALUES (1, 'user'), (2, 'feed');
INSERT INTO itemTypes VALUES (1, 'journalArticle'), (2, 'attachment'), (3, 'note'), (4, 'bookSection');
INSERT INTO creatorTypes VALUES (1, 'author'), (2, 'editor');
INSERT INTO creators VALUES (1, 'Jane', 'Doe', 0), (2, NULL, 'WHO', 1), (3, 'Max', 'Roe', 0);
INSERT INTO tags VALUES (1, 'aspirin');
"""


class ZoteroLibrary:
    """A data folder of Zotero that tests fill."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "zotero.sqlite"
        (folder / "storage").mkdir(parents=True)
        (folder / "styles").mkdir()
        (folder / "styles/apa.html").write_text("Not a document of the user.")
        self.database = sqlite3.connect(self.path, isolation_level=None)
        self.database.executescript(TABLES)

    def add(self, number: int, kind: int = 1, library: int = 1, **fields: str) -> None:
        """Add an item with the key KEY<number>."""
        self.database.execute("INSERT INTO items VALUES (?, ?, ?, ?)", (number, kind, library, f"KEY{number}"))
        for name, value in fields.items():
            self.database.execute("INSERT INTO fields(fieldName) VALUES (?)", (name,))
            self.database.execute("INSERT OR IGNORE INTO itemDataValues(value) VALUES (?)", (value,))
            self.database.execute(
                "INSERT INTO itemData SELECT ?, max(fieldID), (SELECT valueID FROM itemDataValues WHERE value = ?) "
                "FROM fields",
                (number, value),
            )

    def attach(self, number: int, parent: int | None, path: str, text: str | None) -> Path:
        """Attach a file with this text, which is missing if there is none."""
        self.add(number, kind=2)
        mode = 0 if path.startswith("storage:") else 2
        self.database.execute("INSERT INTO itemAttachments VALUES (?, ?, ?, '', ?)", (number, parent, mode, path))
        file = self.folder / "storage" / f"KEY{number}" / path.removeprefix("storage:")
        if text is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return file


@pytest.fixture
def zotero(tmp_path: Path) -> Iterator[ZoteroLibrary]:
    library = ZoteroLibrary(tmp_path / "Zotero")
    with closing(library.database):
        yield library


def documents(path: Path) -> dict[str, Document]:
    return {item.id: item for item in read_sources([path]) if isinstance(item, Document)}


def test_item_has_the_metadata_of_citations(zotero: ZoteroLibrary) -> None:
    zotero.add(
        1,
        title="Aspirin and <i>risk</i>",
        abstractNote="It lowered the risk.",
        date="2015-06-00 June 2015",
        publicationTitle="The Lancet",
        volume="385",
        pages="1-9",
        DOI="https://doi.org/10.1/abc",
        extra="PMID: 123\nPMCID: PMC7",
        language="en",
    )
    zotero.database.execute("INSERT INTO itemCreators VALUES (1, 2, 1, 1), (1, 1, 1, 0), (1, 3, 2, 2)")
    zotero.database.execute("INSERT INTO itemTags VALUES (1, 1, 0)")
    zotero.database.execute("INSERT INTO retractedItems VALUES (1, '{}', 0)")
    (entry,) = read_entries(zotero.path)
    assert (entry.key, entry.abstract, entry.date) == ("KEY1", "It lowered the risk.", "2015-06")
    assert entry.metadata == {
        "journal": "The Lancet",
        "volume": "385",
        "page_range": "1-9",
        "doi": "10.1/abc",
        "pmid": "123",
        "pmcid": "PMC7",
        "authors": ["Doe, Jane", "WHO"],
        "editors": ["Roe, Max"],
        "keywords": ["aspirin"],
        "reference_type": "article-journal",
        "language": ["en"],
        "retracted": True,
    }


@pytest.mark.parametrize("by_folder", [True, False])
def test_attached_files_carry_the_metadata_and_others_are_abstracts(zotero: ZoteroLibrary, by_folder: bool) -> None:
    zotero.add(1, title="With a page", abstractNote="Short.", DOI="10.1/page")
    zotero.attach(2, 1, "storage:page.html", "<p>Aspirin lowered the risk of stroke in the trial.</p>")
    zotero.add(3, title="Only an abstract", abstractNote="Zinc shortened colds.", DOI="10.1/abstract")
    zotero.add(4, title="File not synchronized", abstractNote="Iron helped.", DOI="10.1/missing")
    zotero.attach(5, 4, "storage:missing.pdf", None)
    zotero.add(6, title="Nothing to read")
    items = list(read_sources([zotero.folder if by_folder else zotero.path]))
    found = {item.id: item for item in items if isinstance(item, Document)}
    assert set(found) == {"file:storage/KEY2/page.html", "doi:10.1/abstract", "doi:10.1/missing"}
    page = found["file:storage/KEY2/page.html"]
    assert (page.title, page.metadata["doi"]) == ("With a page", "10.1/page")
    assert found["doi:10.1/missing"].text == "Iron helped."
    (remark,) = (item for item in items if isinstance(item, FileRemark))
    assert remark.count == 1
    assert not [item for item in items if isinstance(item, Skipped)]


def test_trash_and_feeds_are_left_out(zotero: ZoteroLibrary) -> None:
    zotero.add(1, title="Trash", abstractNote="Old.", DOI="10.1/trash")
    zotero.attach(2, 1, "storage:trash.html", "<p>Old.</p>")
    zotero.database.execute("INSERT INTO deletedItems VALUES (1, ''), (2, '')")
    zotero.add(3, library=2, title="Feed", abstractNote="News.", DOI="10.1/feed")
    zotero.add(4, title="Kept", abstractNote="New.", DOI="10.1/kept")
    assert list(documents(zotero.folder)) == ["doi:10.1/kept"]


def test_library_is_read_while_zotero_holds_its_lock(zotero: ZoteroLibrary) -> None:
    zotero.add(1, title="Kept", abstractNote="New.", DOI="10.1/kept")
    before = zotero.path.read_bytes()
    zotero.database.execute("PRAGMA locking_mode = EXCLUSIVE")
    zotero.database.execute("BEGIN EXCLUSIVE")
    with closing(sqlite3.connect(zotero.path, timeout=0)) as other, pytest.raises(sqlite3.OperationalError):
        other.execute("SELECT * FROM items")
    assert list(documents(zotero.folder)) == ["doi:10.1/kept"]
    assert zotero.path.read_bytes() == before


def test_linked_file_is_read_and_paths_outside_the_storage_are_not(zotero: ZoteroLibrary, tmp_path: Path) -> None:
    linked = tmp_path / "papers/linked.txt"
    linked.parent.mkdir()
    linked.write_text("Aspirin in a linked file.")
    (zotero.folder / "secret.txt").write_text("Private.")
    zotero.add(1, title="Linked", DOI="10.1/linked")
    zotero.attach(2, 1, str(linked), None)
    zotero.attach(3, 1, "storage:../../secret.txt", None)
    zotero.attach(4, 1, "attachments:relative.txt", None)
    assert list_attached_files(zotero.path) == [linked]
    (document,) = documents(zotero.path).values()
    assert (document.id, document.metadata["doi"]) == ("file:linked.txt", "10.1/linked")


def test_damaged_database_is_refused_with_a_cure(zotero: ZoteroLibrary) -> None:
    zotero.database.execute("DROP TABLE itemAttachments")
    with pytest.raises(InputError, match="close Zotero and try again"):
        read_sources([zotero.folder])


def test_database_without_table_of_retractions_is_read(zotero: ZoteroLibrary) -> None:
    zotero.database.execute("DROP TABLE retractedItems")
    zotero.add(1, title="Old Zotero", abstractNote="Text.")
    assert list(documents(zotero.folder)) == ["file:zotero.sqlite#KEY1"]


def _fill_collections(zotero: ZoteroLibrary) -> None:
    """Add trials with RCTs below, reviews with RCTs below, one in the trash, and a file without an item."""
    rows = ((1, "Trials", None), (2, "RCTs", 1), (3, "Reviews", None), (4, "RCTs", 3), (5, "Old", None))
    for number, name, parent in rows:
        zotero.database.execute("INSERT INTO collections VALUES (?, ?, ?, 1, '')", (number, name, parent))
        zotero.add(number, title=f"Title {number}", abstractNote=f"Abstract {number}.")
        zotero.database.execute("INSERT INTO collectionItems VALUES (?, ?, 0)", (number, number))
    zotero.database.execute("INSERT INTO deletedCollections VALUES (5, '')")
    zotero.attach(11, 1, "storage:one.txt", "The file of a trial.")
    zotero.attach(13, 3, "storage:three.txt", "The file of a review.")
    zotero.attach(14, None, "storage:alone.txt", "A file without an item.")
    zotero.database.execute("INSERT INTO collectionItems VALUES (1, 14, 1)")


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("trials", {"The file of a trial.", "A file without an item.", "Abstract 2."}),
        ("Trials/RCTs", {"Abstract 2."}),
        ("/reviews/rcts/", {"Abstract 4."}),
        ("Reviews", {"The file of a review.", "Abstract 4."}),
    ],
)
def test_collection_gives_its_items_and_those_below(zotero: ZoteroLibrary, name: str, texts: set[str]) -> None:
    _fill_collections(zotero)
    items = read_sources([zotero.folder], collection=name)
    assert {item.text for item in items if isinstance(item, Document)} == texts


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("RCTs", "several collections are called 'RCTs'; name one of: Reviews/RCTs, Trials/RCTs"),
        ("Old", "no collection is called 'Old'; name one of: Reviews, Reviews/RCTs, Trials, Trials/RCTs"),
    ],
)
def test_collection_that_is_not_one_is_refused_with_the_names(zotero: ZoteroLibrary, name: str, line: str) -> None:
    _fill_collections(zotero)
    with pytest.raises(InputError, match=line):
        read_sources([zotero.folder], collection=name)


def test_collection_without_zotero_is_refused(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("text")
    with pytest.raises(InputError, match="no source is Zotero's folder"):
        read_sources([tmp_path], collection="Trials")


def test_collections_that_contain_each_other_end(zotero: ZoteroLibrary) -> None:
    _fill_collections(zotero)
    zotero.database.execute("UPDATE collections SET parentCollectionID = 2 WHERE collectionID = 1")
    items = read_sources([zotero.folder], collection="Trials/RCTs")
    assert {item.text for item in items if isinstance(item, Document)} >= {"Abstract 2."}


def test_database_is_copied_again_if_it_changes_meanwhile(
    zotero: ZoteroLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    zotero.add(1, title="A", abstractNote="Before.")
    copies: list[Path] = []

    def copy_and_write(source: Path, target: Path) -> None:
        if not copies:
            zotero.add(2, title="B", abstractNote="Written during the copy.")
        copies.append(source)
        target.write_bytes(source.read_bytes())

    monkeypatch.setattr("epicrisis.corpus.readers.zotero.shutil.copyfile", copy_and_write)
    assert len(read_entries(zotero.path)) == 2
    assert len(copies) == 2


def test_database_that_computes_for_ever_is_refused(zotero: ZoteroLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epicrisis.corpus.readers.zotero.MAX_SECONDS", 0.2)
    zotero.database.executescript(
        "DROP TABLE tags; CREATE VIEW tags AS WITH RECURSIVE n(tagID) AS (SELECT 1 UNION ALL SELECT tagID + 1 FROM n) "
        "SELECT tagID, 'x' AS name FROM n; DROP TABLE itemTags; CREATE VIEW itemTags AS SELECT tagID, 1 AS itemID FROM "
        "tags;"
    )
    with pytest.raises(ValueError, match="cannot be read \\(interrupted\\)"):
        read_entries(zotero.path)
