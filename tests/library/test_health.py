"""The health report: every fault is seen where it was planted, and none where it was not."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epicrisis.core.errors import LibraryBusy, LibraryDamaged
from epicrisis.core.serialization import to_json
from epicrisis.core.types import Document, Passage
from epicrisis.library.base.passage_table import StoredPassage
from epicrisis.library.core.journal import IngestedFile, Journal
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.core.patients import MIXED_NOTICE
from epicrisis.library.core.repair import repair_library
from epicrisis.library.engines.word_index import WordIndex
from epicrisis.library.write import health
from epicrisis.library.write.health import MIN_VECTORS, check_health
from epicrisis.library.write.health_report import Finding, HealthReport, Pairs, format_report
from epicrisis.library.write.ingest import add_documents
from tests.support.library_documents import add, contents, create, documents, encoder

DOCUMENTS = 64
LONG = " ".join(f"observation{n}" for n in range(80)) + "."
Rows = list[dict[str, Any]]


@pytest.fixture(scope="session")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("healthy") / "library"
    # The rows are changed below the library, which only LanceDB allows in every way.
    with create(folder, "lance") as library:
        add(library, 0, DOCUMENTS)
        library.add_source(IngestedFile("ab" * 32, "corpus.jsonl", 1234, "2026-01-02T03:04:05+00:00"))
    return folder


@pytest.fixture
def folder(healthy: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "library"
    shutil.copytree(healthy, copy)
    return copy


def run_check(folder: Path) -> HealthReport:
    with LibraryStore.open(folder) as library:
        return check_health(library)


def list_findings(report: HealthReport) -> dict[str, Finding | Pairs]:
    """Return the findings of the report that are not empty, by name."""
    every = (report.texts, report.rows, report.agreement)
    named = {field.name: getattr(part, field.name) for part in every for field in dataclasses.fields(part)}
    return {name: value for name, value in named.items() if isinstance(value, (Finding, Pairs)) and value.count}


def change_rows(folder: Path, change: Callable[[Rows], Rows | None], *, mend: bool = True) -> HealthReport:
    """Change the rows of the table below the library. `mend` repairs the other parts afterwards."""
    import lancedb
    import pyarrow as pa

    table: Any = lancedb.connect(str(folder)).open_table("passages")
    rows: Rows = sorted(table.search().to_list(), key=lambda row: (row["document_id"], row["ordinal"]))
    changed = change(rows)
    table.delete("true")
    new = [{**row, "vector": np.asarray(row["vector"], np.float16)} for row in (rows if changed is None else changed)]
    table.add(pa.Table.from_pylist(new, schema=table.schema))
    if mend:
        repair_library(folder)
    return run_check(folder)


def of(rows: Rows, document: str) -> Rows:
    return [row for row in rows if row["document_id"] == document]


def rewrite(row: dict[str, Any], text: str) -> None:
    row.update(text=text, end=row["start"] + len(text))


# -- a library that is well -------------------------------------------------------------------------------------------


@pytest.mark.long
def test_check_health_sound_library_has_no_findings(folder: Path) -> None:
    progress: list[tuple[int, int]] = []
    with LibraryStore.open(folder) as library:
        report = check_health(library, lambda read, of: progress.append((read, of)))
        assert library.count() == (report.contents.documents, report.contents.passages)
    assert report.problems == ()
    assert list_findings(report) == {}
    assert report.agreement.compared
    assert report.texts.compared == report.contents.passages > MIN_VECTORS
    assert progress[-1] == (report.contents.passages, report.contents.passages)
    undated = [f"doc:{n}" for n in range(0, DOCUMENTS, 4)]
    assert report.contents.undated.count == len(undated)
    assert set(report.contents.undated.first) < set(undated)
    assert report.contents.by_decade == {"2020s": DOCUMENTS - len(undated)}
    assert (report.contents.first_year, report.contents.last_year) == (2020, 2020)
    # Undated ones, and that notes and documents of no patient are mixed.
    assert len(report.notices) == 2
    assert report.notices[1] == MIXED_NOTICE
    assert f"{len(undated)} of {DOCUMENTS} documents without a date" in report.notices[0]


def test_check_health_empty_library_has_no_findings(tmp_path: Path) -> None:
    with create(tmp_path / "library") as library:
        report = check_health(library)
    assert (report.contents.documents, report.contents.passages) == (0, 0)
    assert (report.problems, report.notices, list_findings(report)) == ((), (), {})
    assert "0 documents, 0 passages" in "\n".join(format_report(report))


@pytest.mark.slow
def test_health_report_contains_no_texts_or_patients(folder: Path) -> None:
    def change(rows: Rows) -> None:
        rows[0]["vector"] = [0.0] * 16
        for row in rows:
            row["patient"] = "anna"

    report = change_rows(folder, change)
    lines = format_report(report)
    data = json.dumps(to_json(report))
    for output in (data, "\n".join(lines)):
        assert "ab" * 32 in output
        assert "hashing" in output
        assert "lancedb" in output
        for document in documents(0, DOCUMENTS):
            assert not any(word in output for word in (document.text.split(".")[0], "anna"))
    assert any(line.startswith("WRONG") and "doc:0#0" in line and "add the files again" in line for line in lines)
    assert "sound" not in "\n".join(lines)
    assert format_report(checked_again := dataclasses.replace(report, problems=()))[-1].startswith("sound")
    assert checked_again.rows == report.rows


@pytest.mark.slow
def test_format_report_removes_control_characters_from_ids(folder: Path) -> None:
    def change(rows: Rows) -> None:
        rows[0]["id"] = "\x1b[2Jdoc"

    report = change_rows(folder, change)
    assert report.rows.wrong_ids.first == ("\x1b[2Jdoc",)
    assert "\x1b" not in "".join(format_report(report))


# -- passages that are not as they must be ----------------------------------------------------------------------------


def _wrong_id(rows: Rows) -> None:
    of(rows, "doc:1")[0]["id"] = "doc:1#00"


def _twice(rows: Rows) -> Rows:
    return [*rows, of(rows, "doc:1")[0]]


def _gap(rows: Rows) -> Rows:
    return [row for row in rows if row["id"] != "doc:2#0"]


def _later_gap(rows: Rows) -> None:
    row = of(rows, "doc:2")[-1]
    row.update(ordinal=row["ordinal"] + 3, id=f"doc:2#{row['ordinal'] + 3}")


def _end(rows: Rows) -> None:
    of(rows, "doc:1")[0]["end"] += 1


def _start(rows: Rows) -> None:
    row = of(rows, "doc:1")[0]
    row.update(start=-1, end=len(row["text"]) - 1)


def _zeros(rows: Rows) -> None:
    of(rows, "doc:1")[0]["vector"] = [0.0] * 16


def _infinite(rows: Rows) -> None:
    of(rows, "doc:1")[0]["vector"][3] = float("inf")


def _long(rows: Rows) -> None:
    row = of(rows, "doc:1")[0]
    row["vector"] = [3 * number for number in row["vector"]]


def _empty(rows: Rows) -> None:
    rewrite(of(rows, "doc:1")[0], "[Not Available].")


def _markup(rows: Rows) -> None:
    rewrite(of(rows, "doc:1")[0], "Naïve &lt;i&gt; cells.")


def _markup_in_title(rows: Rows) -> None:
    for row in of(rows, "doc:1"):
        row["title"] = "H<sub>2</sub>O"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "name", "first"),
    [
        (_wrong_id, "wrong_ids", "doc:1#00"),
        (_twice, "repeated_ids", "doc:1#0"),
        (_gap, "broken", "doc:2"),
        (_later_gap, "broken", "doc:2"),
        (_end, "offsets", "doc:1#0"),
        (_start, "offsets", "doc:1#0"),
        (_zeros, "no_vector", "doc:1#0"),
        (_infinite, "no_vector", "doc:1#0"),
        (_long, "odd_vector", "doc:1#0"),
        (_empty, "empty", "doc:1#0"),
        (_markup, "markup", "doc:1#0"),
        (_markup_in_title, "markup", "doc:1#0"),
    ],
)
def test_check_health_single_fault_gives_single_finding(
    change: Callable[[Rows], Rows | None], name: str, first: str, folder: Path
) -> None:
    report = change_rows(folder, change)
    assert list_findings(report) == {name: Finding(1, (first,))}
    messages = report.notices if name in ("odd_vector", "empty", "markup") else report.problems
    assert any(first in sentence for sentence in messages)
    assert bool(report.problems) == (messages is report.problems)


@pytest.mark.slow
def test_check_health_passages_of_two_versions_are_broken(folder: Path) -> None:
    def change(rows: Rows) -> None:
        of(rows, "doc:2")[-1]["content_hash"] = b"x" * 16

    report = change_rows(folder, change)
    assert report.rows.broken == Finding(1, ("doc:2",))
    assert {name for name in list_findings(report) if not name.endswith("in_journal")} == {"broken"}


@pytest.mark.slow
def test_check_health_many_faults_names_first_five(folder: Path) -> None:
    def change(rows: Rows) -> None:
        for row in rows:
            row["end"] += 1

    report = change_rows(folder, change)
    assert report.rows.offsets.count == report.contents.passages
    assert len(report.rows.offsets.first) == 5
    assert "..." in report.problems[0]


# -- texts that repeat ------------------------------------------------------------------------------------------------


def _copy_document(rows: Rows, text: str) -> Rows:
    """Give doc:1 the text LONG and add copy:1 with `text`, the same title and the same date."""
    copies = [{**row, "document_id": "copy:1", "id": f"copy:1#{row['ordinal']}"} for row in of(rows, "doc:1")]
    rewrite(of(rows, "doc:1")[0], LONG)
    rewrite(copies[0], text)
    for row in copies[1:]:
        rewrite(row, f"{row['id']} is about something else altogether, number {row['ordinal']}")
    return [*rows, *copies]


@pytest.mark.slow
def test_check_health_identical_passages_are_repeated(folder: Path) -> None:
    report = change_rows(folder, lambda rows: _copy_document(rows, LONG))
    pair = report.texts.repeated.first[0]
    assert sorted(pair) == ["copy:1#0", "doc:1#0"]
    assert list_findings(report) == {"repeated": Pairs(1, (pair,)), "near": Pairs(1, (pair,))}
    assert report.problems == ()
    assert sum("copy:1#0" in notice for notice in report.notices) == 2


@pytest.mark.slow
def test_check_health_similar_passages_are_near(folder: Path) -> None:
    report = change_rows(folder, lambda rows: _copy_document(rows, LONG.replace("observation79", "nothing")))
    assert set(list_findings(report)) == {"near"}
    assert sorted(report.texts.near.first[0]) == ["copy:1#0", "doc:1#0"]


@pytest.mark.slow
def test_check_health_identical_texts_with_other_titles_are_near(folder: Path) -> None:
    def change(rows: Rows) -> Rows:
        rows = _copy_document(rows, LONG)
        rows[-1].update(title="Another study")
        for row in of(rows, "copy:1"):
            row["title"] = "Another study"
        return rows

    assert set(list_findings(change_rows(folder, change))) == {"near"}


@pytest.mark.slow
def test_check_health_repeats_within_document_are_ignored(folder: Path) -> None:
    def change(rows: Rows) -> None:
        for row in of(rows, "doc:2"):
            rewrite(row, LONG)

    with LibraryStore.open(folder) as library:
        assert len(library.open_table().passages_of(["doc:2"])) > 1
    assert list_findings(change_rows(folder, change)) == {}


@pytest.mark.slow
def test_check_health_large_library_reports_sample(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passages = run_check(folder).contents.passages
    monkeypatch.setattr(health, "NEAR_LIMIT", passages // 2)
    report = change_rows(folder, lambda rows: _copy_document(rows, LONG))
    assert passages // 4 < report.texts.compared < passages * 3 // 4
    assert report.texts.repeated.count == 1
    monkeypatch.setattr(health, "NEAR_LIMIT", 1)
    report = run_check(folder)
    assert report.texts.compared <= 2
    # Said even where nothing was found in it.
    assert any("a sample" in notice for notice in report.notices)


def test_near_duplicate_sample_selects_similar_texts_together() -> None:
    dice = np.random.default_rng(3)
    texts = []
    for _ in range(600):
        texts.append([f"clinical{word}" for word in dice.integers(0, 900, 80)])
    changed = [[*words[:40], "different", *words[41:]] for words in texts]
    chosen = [health._is_in_sample(" ".join(words), 0.25) for words in texts]
    changed_chosen = [health._is_in_sample(" ".join(words), 0.25) for words in changed]
    assert 0.15 < np.mean(chosen) < 0.35
    both = sum(first and second for first, second in zip(chosen, changed_chosen, strict=True))
    assert both > 0.9 * sum(chosen)


# -- parts that disagree ----------------------------------------------------------------------------------------------


def replace_words(folder: Path, documents: list[str], passages: list[StoredPassage]) -> HealthReport:
    words = WordIndex(folder)
    words.replace(documents, passages)
    words.close()
    return run_check(folder)


def make_passage(id: str, digest: str = "00" * 16) -> StoredPassage:
    document, _, ordinal = id.rpartition("#")
    return StoredPassage(
        Passage(id=id, document_id=document, ordinal=int(ordinal), start=0, end=7, text="aspirin"), digest
    )


@pytest.mark.slow
def test_check_health_word_entry_without_passage_is_found_and_repaired(folder: Path) -> None:
    report = replace_words(folder, [], [make_passage("nobody#0")])
    assert list_findings(report) == {"only_in_words": Finding(1, ("nobody#0",))}
    assert any("library repair" in problem and "nobody#0" in problem for problem in report.problems)
    assert repair_library(folder).problems == ()
    assert list_findings(run_check(folder)) == {}


@pytest.mark.slow
def test_word_index_entries_are_read_in_pieces(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epicrisis.library.engines.word_index._PIECE", 10)
    with LibraryStore.open(folder) as library:
        everything = contents(library).words
        words = WordIndex(folder)
        pieces = list(words.all_entries())
        some = sorted(words.entries(["doc:1#0", "doc:2#0", "nobody#0"]))
    assert len(pieces) > len(everything) // 10
    assert sorted(entry for piece in pieces for entry in piece) == everything
    assert [id for id, _ in some] == ["doc:1#0", "doc:2#0"]
    assert set(some) < set(everything)


@pytest.mark.slow
def test_check_health_passage_without_word_entry_is_found(folder: Path) -> None:
    report = replace_words(folder, ["doc:4"], [])
    with LibraryStore.open(folder) as library:
        lost = [stored.passage.id for stored in library.open_table().passages_of(["doc:4"])]
    assert set(list_findings(report)) == {"not_in_words"}
    assert sorted(report.agreement.not_in_words.first) == sorted(lost)


def test_check_health_equal_counts_with_other_entries_are_found(folder: Path) -> None:
    """The counts agree."""
    with LibraryStore.open(folder) as library:
        remaining = [stored for stored in library.open_table().passages_of(["doc:2"]) if stored.passage.ordinal]
    report = replace_words(folder, ["doc:2"], [*remaining, make_passage("nobody#0")])
    assert list_findings(report) == {
        "not_in_words": Finding(1, ("doc:2#0",)),
        "only_in_words": Finding(1, ("nobody#0",)),
    }


@pytest.mark.slow
def test_check_health_outdated_and_repeated_entries_are_found(folder: Path) -> None:
    with LibraryStore.open(folder) as library:
        stored = {passage.passage.id: passage for passage in library.open_table().passages_of(["doc:2"])}
    old = dataclasses.replace(stored["doc:2#0"], content_hash="00" * 16)
    others = [passage for id, passage in stored.items() if id != "doc:2#0"]
    report = replace_words(folder, ["doc:2"], [*others, old])
    assert list_findings(report) == {
        "not_in_words": Finding(1, ("doc:2#0",)),
        "only_in_words": Finding(1, ("doc:2#0",)),
    }
    report = replace_words(folder, ["doc:2"], [*stored.values(), stored["doc:2#0"]])
    assert list_findings(report) == {"only_in_words": Finding(1, ("doc:2#0",))}


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("DELETE FROM documents WHERE id = 'doc:3'", {"not_in_journal": Finding(1, ("doc:3",))}),
        (
            "UPDATE documents SET passages = passages + 1 WHERE id = 'doc:3'",
            {"only_in_journal": Finding(1, ("doc:3",))},
        ),
        (
            "INSERT INTO documents VALUES ('lost', x'00', 1, NULL)",
            {"only_in_journal": Finding(1, ("lost",))},
        ),
        (
            "UPDATE documents SET content_hash = x'00' WHERE id = 'doc:3'",
            {"only_in_journal": Finding(1, ("doc:3",)), "not_in_journal": Finding(1, ("doc:3",))},
        ),
    ],
)
def test_check_health_journal_disagreement_is_found(statement: str, expected: dict[str, Finding], folder: Path) -> None:
    with closing(sqlite3.connect(folder / "journal.sqlite")) as database, database:
        database.execute(statement)
    report = run_check(folder)
    assert list_findings(report) == expected
    assert any("library repair" in problem for problem in report.problems)


def test_check_health_documents_lost_from_table_are_found(folder: Path) -> None:
    """Whole documents: no ordinal is missing, only the other parts know."""
    with LibraryStore.open(folder) as library:
        lost = [stored.passage.id for stored in library.open_table().passages_of(["doc:2"])]
    report = change_rows(folder, lambda rows: [row for row in rows if row["document_id"] != "doc:2"], mend=False)
    assert set(list_findings(report)) == {"only_in_journal", "only_in_words"}
    assert report.agreement.only_in_journal.first == ("doc:2",)
    assert sorted(report.agreement.only_in_words.first) == sorted(lost)


def test_check_health_open_batch_skips_comparison(folder: Path) -> None:
    with closing(Journal(folder)) as journal:
        journal.begin(["doc:1"])
    replace_words(folder, ["doc:4"], [])
    report = run_check(folder)
    assert not report.agreement.compared
    assert (list_findings(report), report.problems) == ({}, ())
    assert "a writer is at work, or was stopped" in report.notices[0]


def test_check_health_concurrent_write_skips_comparison(folder: Path) -> None:
    """The report is of the passages as they were; of the other parts it says nothing."""
    with LibraryStore.open(folder) as reader, LibraryStore.open(folder, write=True) as writer:
        before = reader.count()

        def write(read: int, passages: int) -> None:
            writer.delete(["doc:1"])

        report = check_health(reader, write)
        assert reader.count()[0] == before[0] - 1
    assert (report.contents.documents, report.contents.passages) == before
    assert not report.agreement.compared
    assert report.problems == ()


@pytest.mark.slow
def test_check_health_files_removed_by_writer_raises_library_busy(folder: Path) -> None:
    def spoil(read: int, passages: int) -> None:
        for path in (folder / "passages.lance" / "data").iterdir():
            path.unlink()

    def change(rows: Rows) -> None:
        rows[0]["vector"] = [9.0] * 16

    change_rows(folder, change)
    with LibraryStore.open(folder) as reader, closing(Journal(folder)) as other:

        def write_and_spoil(read: int, passages: int) -> None:
            other.begin([])
            spoil(read, passages)

        with pytest.raises(LibraryBusy, match="check it again"):
            check_health(reader, write_and_spoil)


def test_check_health_missing_files_raises_library_damaged(folder: Path) -> None:
    with LibraryStore.open(folder) as reader:
        for path in (folder / "passages.lance" / "data").iterdir():
            path.unlink()
        with pytest.raises(LibraryDamaged):
            check_health(reader)


# -- what there is ----------------------------------------------------------------------------------------------------


def test_check_health_reports_sources_years_and_retractions(folder: Path) -> None:
    dates = ["1989-12", "1990", "1999-01-02", None]
    new = [
        Document(
            f"new:{n}",
            f"Study number {n} of other things.",
            source="PubMed",
            date=date,
            metadata={"retracted": True} if n == 1 else {},
        )
        for n, date in enumerate(dates)
    ]
    with LibraryStore.open(folder, write=True) as library:
        add_documents(library, new, encoder())
        library.delete(["doc:1"], {"doc:1": "2"})
        report = check_health(library)
    assert report.contents.by_source == {"": DOCUMENTS - 1, "PubMed": 4}
    assert list(report.contents.by_decade.items())[:2] == [("1980s", 1), ("1990s", 2)]
    assert report.contents.first_year == 1989
    assert report.contents.retracted == Finding(1, ("new:1",))
    assert report.contents.deleted == 1
    assert (report.problems, list_findings(report)) == ((), {})
    text = "\n".join(format_report(report))
    assert "1989 to 2020 (1980s 1, 1990s 2, 2020s" in text
    assert "PubMed 4" in text
    assert "corpus.jsonl, 1,234 bytes, sha256 abab" in text


@pytest.mark.slow
def test_check_health_many_sources_are_grouped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_SOURCES", 3)

    def change(rows: Rows) -> None:
        for row in rows:
            row["source"] = row["document_id"]

    report = change_rows(folder, change)
    assert len(report.contents.by_source) == 4
    assert report.contents.by_source[health.OTHERS] == DOCUMENTS - 3
