"""Words of passages that were added after the last build of the word index."""

from __future__ import annotations

import random
from pathlib import Path

import psycopg
import pytest

from epicrisis.core.protocols import StoredDocument
from epicrisis.core.types import Scope
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.engines.word_index import round_length
from epicrisis.library.postgresql import search
from epicrisis.testing.stores import DIMENSIONS, build_stored_document
from tests.postgresql.conftest import LibraryDatabase, close_connections
from tests.support.postgresql_server import READER, WRITER

pytestmark = pytest.mark.postgresql
PASSAGES = 600


def write_documents(first: int, last: int, *, patient: str | None = None) -> list[StoredDocument]:
    """Return documents with these numbers, of 5 to 400 words that occur about as often as in a language."""
    documents = []
    for number in range(first, last):
        chance = random.Random(number)
        words = [f"word{int(500 ** chance.random())}" for _ in range(chance.randrange(5, 400))]
        documents.append(build_stored_document(f"d{number}", " ".join(words), patient=patient))
    return documents


def write_questions() -> list[str]:
    chance = random.Random(1)
    questions = []
    for _ in range(30):
        questions.append(" ".join(f"word{int(500 ** chance.random())}" for _ in range(5)))
    return questions


def read_index_file(database: LibraryDatabase) -> object:
    with database.server.connect(database.name) as connection:
        return connection.execute("SELECT pg_relation_filenode('epicrisis.passages_words')").fetchone()


def count_new_words(database: LibraryDatabase) -> object:
    with database.server.connect(database.name) as connection:
        return connection.execute("SELECT count(*) FROM epicrisis.new_words").fetchone()


@pytest.mark.parametrize("way", ["exact", "through the index"])
@pytest.mark.parametrize("built", [0, PASSAGES - 6])
def test_new_passages_rank_as_in_tantivy(
    database: LibraryDatabase, tmp_path: Path, way: str, built: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All passages are new, or one in a hundred: then the index has the scores of the others by its own numbers."""
    if way != "exact":
        monkeypatch.setattr(search, "EXACT_WORD_PASSAGES", -1)
    folder = LibraryStore.create(
        tmp_path / "library",
        encoder_fingerprint="check",
        encoder_name="check",
        dimensions=DIMENSIONS,
        max_tokens=64,
        overlap=8,
    )
    with folder, database.create() as library:
        documents = write_documents(0, PASSAGES)
        folder.add(documents)
        if built:
            library.add(documents[:built])
            library.compact()
        library.add(documents[built:])
        assert count_new_words(database) != (0,)
        for question in write_questions():
            expected = {hit.id: hit.score for hit in folder.search_words(question, PASSAGES, Scope())}
            actual = {hit.id: hit.score for hit in library.search_words(question, PASSAGES, Scope())}
            assert actual.keys() == expected.keys()
            relative, absolute = (0.02, 0.01) if built else (0.0, 0.002)
            assert actual == pytest.approx(expected, rel=relative, abs=absolute)
        # A new passage has the score that it has in the index after the next build, by the same numbers of passages.
        if built:
            question = write_questions()[0]
            new = {hit.id: hit.score for hit in library.search_words(question, 99, Scope(), ["d599#0", "d598#0"])}
            library.optimize()
            indexed = {hit.id: hit.score for hit in library.search_words(question, 99, Scope(), ["d599#0", "d598#0"])}
            assert new == pytest.approx(indexed, abs=0.002)


def test_small_addition_leaves_the_index_and_survives_a_crash(database: LibraryDatabase) -> None:
    with database.create() as library:
        library.add(write_documents(0, 300))
        library.compact()
        before = read_index_file(database)
        library.add([build_stored_document("new", "zolpidem word3")])
        library.compact()
        assert read_index_file(database) == before
    database.server.stop("immediate")
    database.server.start()
    close_connections()
    reader = database.read()
    assert [hit.id for hit in reader.search_words("zolpidem", 3, Scope())] == ["new#0"]
    assert "new#0" in [hit.id for hit in reader.search_words("word3", 400, Scope())]
    assert [hit.id for hit in reader.search_words("zolpidem", 3, Scope(), ["new#0", "d1#0"])] == ["new#0"]
    assert reader.search_words("zolpidem", 3, Scope(hidden=frozenset({"new"}))) == ()
    with LibraryStore.open(database.url(WRITER), write=True) as library:
        library.add([build_stored_document("new", "melatonin", version="2")])
        assert library.search_words("zolpidem", 3, Scope()) == ()
        library.delete(["new"])
        assert library.search_words("melatonin", 3, Scope()) == ()
    assert count_new_words(database) == (0,)


def test_large_addition_and_optimize_build_the_index(database: LibraryDatabase) -> None:
    with database.create() as library:
        library.add(write_documents(0, 300))
        library.compact()
        before = read_index_file(database)
        library.add(write_documents(300, 304))
        library.compact()
        after = read_index_file(database)
        assert after != before
        assert count_new_words(database) == (0,)
        library.add([build_stored_document("new", "zolpidem")])
        library.compact()
        assert read_index_file(database) == after
        library.optimize()
        assert read_index_file(database) != after
        assert count_new_words(database) == (0,)
        assert [hit.id for hit in library.search_words("zolpidem", 3, Scope())] == ["new#0"]


def test_new_words_of_other_patients_cannot_be_read(database: LibraryDatabase) -> None:
    with database.create() as library:
        library.add(write_documents(0, 20))
        library.compact()
        library.add(write_documents(20, 25, patient="anna"))
    query = "SELECT DISTINCT patient FROM epicrisis.list_new_words('{word1}')"
    plans = []
    with database.server.connect(database.name, READER) as connection:
        assert connection.execute(query).fetchall() == []
        for word in ("word1", "nowhere"):
            # The numbers of rows, also of those that the rule removes. Each plan also says how long it took.
            listing = f"SELECT * FROM epicrisis.list_new_words('{{{word}}}')"
            explained = connection.execute(f"EXPLAIN (ANALYZE, TIMING off, SUMMARY off, BUFFERS off) {listing}")
            plans.append("".join(line for (line,) in explained).replace(word, ""))
        connection.execute("SELECT set_config('epicrisis.patient', 'p:anna', false)")
        assert connection.execute(query).fetchall() == [("anna",)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("EXPLAIN (ANALYZE) SELECT * FROM epicrisis.new_words WHERE word = 'word1'")
    assert plans[0] == plans[1]
    reader = database.read()
    assert reader.search_words("word1", 30, Scope(hidden=frozenset(f"d{number}" for number in range(20)))) == ()
    own = reader.search_words("word1", 30, Scope(patient="anna"))
    assert {hit.id for hit in own} > {"d20#0"}


@pytest.mark.parametrize(("words", "length"), [(3, 3), (24, 24), (39, 39), (41, 40), (57, 56), (1000, 984)])
def test_length_is_rounded_as_in_a_byte(words: int, length: int) -> None:
    assert round_length(words) == length


def test_rounded_lengths_are_those_of_a_byte() -> None:
    assert len({round_length(words) for words in range(2_000_000)}) < 256
    assert [words for words in range(120) if round_length(words) == words][40:] == [
        *range(40, 56, 2),
        *range(56, 88, 4),
        *range(88, 120, 8),
    ]
