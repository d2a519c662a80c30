"""kill -9 at named and at random moments: nothing acknowledged is lost, nothing is there twice, the parts agree."""

from __future__ import annotations

import dataclasses
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from epicrisis.core.errors import LibraryDamaged
from epicrisis.library.core.journal import IngestedFile
from epicrisis.library.core.library_parts import LibraryParts
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.core.repair import repair_library
from epicrisis.library.engines.engine_choice import TableEngine, table_name
from epicrisis.library.engines.index_recall import IndexReport
from epicrisis.library.engines.vector_index import read_report
from tests.library.conftest import BOTH_ENGINES, Killer
from tests.support.crash_child import (
    PHASES,
    WITH_NEW_REPORT,
    WITH_OLD_REPORT,
    WITHIN_MOVE,
    WITHIN_OPTIMIZE,
    WITHOUT_REPORT,
)
from tests.support.library_checks import acknowledged, broken_promises, discrepancies
from tests.support.library_documents import COUNT, LARGE, SMALL, Contents, add, contents, create, revise


@pytest.fixture(scope="module")
def expected_contents(bases: Callable[[TableEngine], Path], tmp_path_factory: pytest.TempPathFactory) -> Contents:
    """Return the contents after version 1 of the whole corpus was added without a kill, the same with each engine."""
    folder = tmp_path_factory.mktemp("unbroken") / "library"
    shutil.copytree(bases("sqlite"), folder)
    with LibraryStore.open(folder, write=True) as library:
        add(library, 1, COUNT)
        return contents(library)


@pytest.mark.long
@BOTH_ENGINES
@pytest.mark.parametrize("moment", PHASES)
def test_add_killed_at_named_step_loses_nothing(
    killer: Killer, moment: str, engine: TableEngine, folder: Path, expected_contents: Contents
) -> None:
    if moment == {"sqlite": "table-not-synced", "lance": "table-not-committed"}[engine]:
        pytest.skip("a moment of the other engine")
    for passes in (0, 1, 2):
        killer.kill("add", folder, moment, passes)
        with LibraryStore.open(folder) as reader:
            assert reader.count()[0] >= COUNT // 2
        with LibraryStore.open(folder, write=True) as library:
            assert discrepancies(library, acknowledged(folder)) == []
    assert acknowledged(folder), "no batch was acknowledged before the kills: the test shows nothing"
    with LibraryStore.open(folder, write=True) as library:
        add(library, 1, COUNT)
        assert contents(library) == expected_contents
        assert discrepancies(library, acknowledged(folder)) == []


@pytest.mark.slow
@BOTH_ENGINES
def test_add_killed_repeatedly_is_settled_by_next_writer(
    killer: Killer, folder: Path, expected_contents: Contents
) -> None:
    """The next process settles what the last one left, and is killed in turn; nobody looks in between."""
    for moment in ("table-written", "words-added", "words-committed"):
        killer.kill("add", folder, moment, 0)
    with LibraryStore.open(folder, write=True) as library:
        assert discrepancies(library, acknowledged(folder)) == []
        add(library, 1, COUNT)
        assert contents(library) == expected_contents


@pytest.mark.long
@BOTH_ENGINES
def test_add_killed_at_random_loses_nothing(killer: Killer, folder: Path) -> None:
    kills = 0
    promised: dict[str, str] = {}
    for seed in range(1, 13):
        kills += killer.run("add", folder, "adding", seed, version=seed, count=LARGE)
        promised |= acknowledged(folder)
        folder.with_suffix(".acknowledged").unlink(missing_ok=True)
        with LibraryStore.open(folder, write=True) as library:
            assert discrepancies(library, promised, seed) == []
            # Whatever was found must stay, written down or not.
            promised = contents(library).hashes
        if kills == 6:
            break
    assert kills == 6
    assert len(promised) > COUNT // 2, "no batch was acknowledged before the kills: the test shows nothing"


@pytest.mark.slow
@BOTH_ENGINES
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_compact_killed_loses_nothing(killer: Killer, seed: int, folder: Path, expected_contents: Contents) -> None:
    killer.run("add", folder, "compacting", seed)
    with LibraryStore.open(folder, write=True) as library:
        assert discrepancies(library, acknowledged(folder)) == []
        assert contents(library) == expected_contents


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["table-written", "words-committed", "words-added"])
def test_discrepancies_without_recovery_are_reported(
    killer: Killer, moment: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killer.kill("add", folder, moment, 1)
    with monkeypatch.context() as patch:
        patch.setattr(LibraryStore, "_settle", lambda self: None)
        patch.setattr(LibraryParts, "check_in_step", lambda self: None)
        with LibraryStore.open(folder, write=True) as library:
            wrong = discrepancies(library, acknowledged(folder))
            assert "the documents acknowledged are not those in the table" in wrong
    with LibraryStore.open(folder, write=True) as library:
        assert discrepancies(library, acknowledged(folder)) == []


def test_discrepancies_lost_document_is_reported(folder: Path) -> None:
    with LibraryStore.open(folder, write=True) as library:
        promised = dict(library.content_hashes(["doc:1", "doc:2"]))
        library.delete(["doc:1"])
        assert discrepancies(library, promised) == [f"{('doc:1', promised['doc:1'])} was acknowledged and is not there"]


@pytest.mark.parametrize(("moment", "passes"), [("manifest-written", 0), ("parts-built", 0), ("manifest-written", 1)])
def test_create_killed_library_is_created_again(killer: Killer, moment: str, passes: int, tmp_path: Path) -> None:
    folder = tmp_path / "library"
    killer.kill("create", folder, moment, passes)
    if passes == 0:
        with pytest.raises(LibraryDamaged, match="is being created"):
            LibraryStore.open(folder)
        create(folder).close()
    with LibraryStore.open(folder, write=True) as library:
        add(library, 0, 8)
        assert discrepancies(library, {}) == []
        assert library.count()[0] == 8


@pytest.mark.parametrize("moment", ["cleared", "words-committed", "rebuilt"])
def test_repair_killed_is_completed_by_next_repair(killer: Killer, moment: str, folder: Path) -> None:
    with LibraryStore.open(folder) as library:
        before = contents(library)
    # The first clearing is of what an earlier repair left.
    killer.kill("repair", folder, moment, 1 if moment == "cleared" else 0)
    with pytest.raises(LibraryDamaged, match="epicrisis library repair"):
        LibraryStore.open(folder, write=True)
    assert repair_library(folder).problems == ()
    with LibraryStore.open(folder, write=True) as library:
        assert contents(library) == before
        assert discrepancies(library, before.hashes) == []


def test_open_journal_without_write_ahead_log_is_refused(killer: Killer, folder: Path) -> None:
    """SQLite's log beside the journal was not copied: adding now would put passages there twice."""
    killer.kill("add", folder, "journal-done", 2)
    (folder / "journal.sqlite-wal").unlink()
    with pytest.raises(LibraryDamaged, match="epicrisis library repair"):
        LibraryStore.open(folder, write=True)
    with LibraryStore.open(folder) as reader:
        assert reader.info().problems
    assert repair_library(folder).problems == ()
    with LibraryStore.open(folder, write=True) as library:
        assert discrepancies(library, acknowledged(folder)) == []


# -- revisions and deletions -------------------------------------------------------------------------------------------


@pytest.fixture
def undisturbed(base: Path, tmp_path: Path) -> Iterator[LibraryStore]:
    """Return a copy of `base` that is never killed."""
    with LibraryStore.open(shutil.copytree(base, tmp_path / "undisturbed"), write=True) as library:
        yield library


def _read_hashes(folder: Path) -> dict[str, str | None]:
    with LibraryStore.open(folder) as library:
        return dict(contents(library).hashes)


@pytest.mark.long
@BOTH_ENGINES
@pytest.mark.parametrize("moment", ["deletion-remembered", "journal-begun", "table-written", "words-added"])
def test_revise_killed_at_named_step_loses_nothing(
    killer: Killer, moment: str, folder: Path, undisturbed: LibraryStore
) -> None:
    promised = _read_hashes(folder)
    for passes in (0, 2, 4):
        killer.kill("revise", folder, moment, passes)
        promised |= acknowledged(folder)
        with LibraryStore.open(folder, write=True) as library:
            assert broken_promises(library, promised, 1, COUNT) == []
    revise(undisturbed, 1, COUNT)
    with LibraryStore.open(folder, write=True) as library:
        revise(library, 1, COUNT)
        assert contents(library) == contents(undisturbed)
        assert contents(library).deleted
        assert broken_promises(library, promised, 1, COUNT) == []


# -- the move to the other engine --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("moment", WITHIN_MOVE)
def test_move_killed_loses_nothing(killer: Killer, moment: str, folder: Path, large: None) -> None:
    with LibraryStore.open(folder) as library:
        before = contents(library)
    killer.kill("optimize", folder, moment, 0)
    assert (folder / "passages.lance").exists(), "nothing was copied before the kill: the test shows nothing"
    is_moved = moment == "sqlite-removed"
    assert table_name(folder) == ("passages.lance" if is_moved else "passages.sqlite")
    check_unchanged(folder, before)
    assert not (folder / ("passages.sqlite" if is_moved else "passages.lance")).exists()
    with LibraryStore.open(folder, write=True) as library:
        report = library.optimize(recall=1.0)
        assert report is not None
        assert contents(library) == before
        assert discrepancies(library, dict(before.hashes)) == []
    assert table_name(folder) == "passages.lance"
    assert not (folder / "passages.sqlite").exists()


# -- the vector index --------------------------------------------------------------------------------------------------


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat the corpus as a large library, as the killed processes do."""
    for module, name, value in SMALL:
        monkeypatch.setattr(module, name, value)


@pytest.fixture
def optimized(base: Path, tmp_path: Path, large: None) -> Path:
    folder = Path(shutil.copytree(base, tmp_path / "library"))
    with LibraryStore.open(folder, write=True) as library:
        report = library.optimize(recall=1.0)
    assert report is not None
    assert report.good
    return folder


def is_same_index(one: IndexReport | None, other: IndexReport | None) -> bool:
    assert one is not None
    assert other is not None
    return dataclasses.replace(one, measured="") == dataclasses.replace(other, measured="")


def check_unchanged(folder: Path, before: Contents) -> None:
    with LibraryStore.open(folder) as reader:
        assert contents(reader).results == before.results
    with LibraryStore.open(folder, write=True) as library:
        assert discrepancies(library, {}) == []
        assert contents(library) == before


@pytest.mark.long
@pytest.mark.parametrize("moment", [*WITH_OLD_REPORT, *WITHOUT_REPORT, *WITH_NEW_REPORT])
def test_optimize_killed_between_phases_loses_nothing(killer: Killer, moment: str, optimized: Path) -> None:
    with LibraryStore.open(optimized) as library:
        before, old = contents(library), library.info().index
    killer.kill("optimize", optimized, moment, 0)
    now = read_report(optimized)
    if moment in WITHOUT_REPORT:
        assert now is None, "nothing is said of an index that was not measured"
    else:
        assert is_same_index(now, old)
    check_unchanged(optimized, before)
    killer.kill("optimize", optimized, moment, 0)
    check_unchanged(optimized, before)
    with LibraryStore.open(optimized, write=True) as library:
        assert is_same_index(library.optimize(recall=1.0), old)
        assert contents(library) == before
        assert library.info().unindexed == 0


@pytest.mark.long
@pytest.mark.parametrize("moment", WITHIN_OPTIMIZE)
def test_optimize_killed_within_phase_loses_nothing(killer: Killer, moment: str, folder: Path, large: None) -> None:
    """A library without an index, killed and killed again."""
    with LibraryStore.open(folder) as library:
        before = contents(library)
    kills = 0
    for seed in range(1, 4):
        kills += killer.run("optimize", folder, moment, seed)
        check_unchanged(folder, before)
    assert kills or moment == "compacting"
    with LibraryStore.open(folder, write=True) as library:
        report = library.optimize(recall=1.0)
        assert report is not None
        assert report.good
        assert contents(library) == before


@pytest.mark.slow
def test_discrepancies_unfinished_optimize_is_reported(
    killer: Killer, optimized: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killer.kill("optimize", optimized, "index-built", 0)
    with monkeypatch.context() as patch:
        patch.setattr(LibraryStore, "_settle", lambda self: None)
        patch.setattr(LibraryParts, "check_in_step", lambda self: None)
        with LibraryStore.open(optimized, write=True) as library:
            assert discrepancies(library, {}) == ["1 batches are still open"]


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["table-written", "words-added"])
def test_broken_promises_of_revisions_are_reported(
    killer: Killer, moment: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    promised = _read_hashes(folder)
    killer.kill("revise", folder, moment, 3)
    promised |= acknowledged(folder)
    with monkeypatch.context() as patch:
        patch.setattr(LibraryStore, "_settle", lambda self: None)
        patch.setattr(LibraryParts, "check_in_step", lambda self: None)
        with LibraryStore.open(folder, write=True) as library:
            assert "the documents acknowledged are not those in the table" in broken_promises(
                library, promised, 1, COUNT
            )
    with LibraryStore.open(folder, write=True) as library:
        assert broken_promises(library, promised, 1, COUNT) == []
        # Nor does a lost document, a forgotten deletion or a file marked too early go unseen.
        present = next(entry for entry, digest in (promised | contents(library).hashes).items() if digest)
        library.delete([present])
        library.add_source(IngestedFile("0" * 64, "v1-2", 1, ""))
        with closing(sqlite3.connect(folder / "journal.sqlite")) as database, database:
            database.execute("DELETE FROM deleted")
        wrong = broken_promises(library, promised | {"doc:47": None}, 1, COUNT)
        assert any("neither as it was acknowledged" in entry for entry in wrong)
        assert any("was deleted, which is not remembered" in entry for entry in wrong)
        assert any(entry.startswith("v1-2 is remembered as added") for entry in wrong)


@pytest.mark.long
def test_revise_and_optimize_killed_at_random_match_undisturbed_library(
    killer: Killer, folder: Path, undisturbed: LibraryStore, large: None
) -> None:
    """Revisions, deletions and optimizing in turn; every version in the end as in the library that nobody killed."""
    kills: Counter[str] = Counter()
    promised = _read_hashes(folder)
    for version in range(1, 13):
        for number, action in enumerate(("revise", "optimize", "revise", "optimize", "revise")):
            moment = {"revise": "writing", "optimize": "optimizing"}[action]
            kills[action] += killer.run(action, folder, moment, 10 * version + number, version=version)
            promised |= acknowledged(folder)
            folder.with_suffix(".acknowledged").unlink(missing_ok=True)
            with LibraryStore.open(folder, write=True) as library:
                assert broken_promises(library, promised, version, COUNT) == []
                # Whatever was found must stay, written down or not.
                promised |= contents(library).hashes
        with LibraryStore.open(folder, write=True) as library:
            for writer in (library, undisturbed):
                revise(writer, version, COUNT)
            reports = [writer.optimize(recall=1.0) for writer in (library, undisturbed)]
            assert is_same_index(*reports)
            assert contents(library) == contents(undisturbed)
            promised |= dict.fromkeys(promised) | contents(library).hashes
        if kills.total() >= 20 and min(kills.values()) >= 6:
            break
    assert kills.total() >= 20
    assert min(kills.values()) >= 6
