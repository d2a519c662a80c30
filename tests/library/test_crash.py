"""kill -9 at named and at random moments: nothing acknowledged is lost, nothing is there twice, the parts agree."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from epicrisis.errors import LibraryDamaged
from epicrisis.library.library import Library
from epicrisis.library.soundness import Parts
from tests.library.checking import acknowledged, discrepancies
from tests.library.conftest import Killer
from tests.library.corpus import COUNT, LARGE, Contents, add, contents, create
from tests.library.crash_child import PHASES


@pytest.fixture(scope="module")
def unbroken(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Contents:
    """What the library holds after version 1 of the whole corpus was added without a kill."""
    folder = tmp_path_factory.mktemp("unbroken") / "library"
    shutil.copytree(base, folder)
    with Library.open(folder, write=True) as library:
        add(library, 1, COUNT)
        return contents(library)


@pytest.mark.parametrize("moment", PHASES)
def test_killed_at_a_moment(killer: Killer, moment: str, folder: Path, unbroken: Contents) -> None:
    for passes in (0, 1, 2):
        killer.kill("add", folder, moment, passes)
        with Library.open(folder) as reader:
            assert reader.count()[0] >= COUNT // 2
        with Library.open(folder, write=True) as library:
            assert discrepancies(library, acknowledged(folder)) == []
    assert acknowledged(folder), "no batch was acknowledged before the kills: the test shows nothing"
    with Library.open(folder, write=True) as library:
        add(library, 1, COUNT)
        assert contents(library) == unbroken
        assert discrepancies(library, acknowledged(folder)) == []


def test_killed_again_and_again_without_a_pause(killer: Killer, folder: Path, unbroken: Contents) -> None:
    """The next process settles what the last one left, and is killed in turn; nobody looks in between."""
    for moment in ("table-written", "words-added", "words-committed"):
        killer.kill("add", folder, moment, 0)
    with Library.open(folder, write=True) as library:
        assert discrepancies(library, acknowledged(folder)) == []
        add(library, 1, COUNT)
        assert contents(library) == unbroken


def test_killed_at_random(killer: Killer, folder: Path) -> None:
    kills = 0
    promised: dict[str, str] = {}
    for seed in range(1, 13):
        kills += killer.run("add", folder, "adding", seed, version=seed, count=LARGE)
        promised |= acknowledged(folder)
        folder.with_suffix(".acknowledged").unlink(missing_ok=True)
        with Library.open(folder, write=True) as library:
            assert discrepancies(library, promised, seed) == []
            # Whatever was found must stay, written down or not.
            promised = contents(library).hashes
        if kills == 6:
            break
    assert kills == 6
    assert len(promised) > COUNT // 2, "no batch was acknowledged before the kills: the test shows nothing"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_killed_while_compacting(killer: Killer, seed: int, folder: Path, unbroken: Contents) -> None:
    killer.run("add", folder, "compacting", seed)
    with Library.open(folder, write=True) as library:
        assert discrepancies(library, acknowledged(folder)) == []
        assert contents(library) == unbroken


@pytest.mark.parametrize("moment", ["table-written", "words-committed", "words-added"])
def test_the_check_sees_what_recovery_mends(
    killer: Killer, moment: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killer.kill("add", folder, moment, 1)
    with monkeypatch.context() as patch:
        patch.setattr(Library, "_settle", lambda self: None)
        patch.setattr(Parts, "check_in_step", lambda self: None)
        with Library.open(folder, write=True) as library:
            wrong = discrepancies(library, acknowledged(folder))
            assert "the documents acknowledged are not those in the table" in wrong
    with Library.open(folder, write=True) as library:
        assert discrepancies(library, acknowledged(folder)) == []


def test_the_check_sees_a_lost_document(folder: Path) -> None:
    with Library.open(folder, write=True) as library:
        promised = dict(library.content_hashes(["doc:1", "doc:2"]))
        library.delete(["doc:1"])
        assert discrepancies(library, promised) == [f"{('doc:1', promised['doc:1'])} was acknowledged and is not there"]


@pytest.mark.parametrize(("moment", "passes"), [("manifest-written", 0), ("parts-built", 0), ("manifest-written", 1)])
def test_killed_while_it_is_made(killer: Killer, moment: str, passes: int, tmp_path: Path) -> None:
    folder = tmp_path / "library"
    killer.kill("create", folder, moment, passes)
    if passes == 0:
        with pytest.raises(LibraryDamaged, match="is being made"):
            Library.open(folder)
        create(folder).close()
    with Library.open(folder, write=True) as library:
        add(library, 0, 8)
        assert discrepancies(library, {}) == []
        assert library.count()[0] == 8


@pytest.mark.parametrize("moment", ["cleared", "words-committed", "rebuilt"])
def test_killed_while_it_is_repaired(killer: Killer, moment: str, folder: Path) -> None:
    with Library.open(folder) as library:
        before = contents(library)
    # The first clearing is of what an earlier repair left.
    killer.kill("repair", folder, moment, 1 if moment == "cleared" else 0)
    with pytest.raises(LibraryDamaged, match="epicrisis library repair"):
        Library.open(folder, write=True)
    assert Library.repair(folder).problems == ()
    with Library.open(folder, write=True) as library:
        assert contents(library) == before
        assert discrepancies(library, before.hashes) == []


def test_a_journal_without_its_last_writes_is_refused(killer: Killer, folder: Path) -> None:
    """SQLite's log beside the journal was not copied: adding now would put passages there twice."""
    killer.kill("add", folder, "journal-done", 2)
    (folder / "journal.sqlite-wal").unlink()
    with pytest.raises(LibraryDamaged, match="epicrisis library repair"):
        Library.open(folder, write=True)
    with Library.open(folder) as reader:
        assert reader.info().problems
    assert Library.repair(folder).problems == ()
    with Library.open(folder, write=True) as library:
        assert discrepancies(library, acknowledged(folder)) == []


# -- revisions and deletions -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["deletion-remembered", "journal-begun", "table-written", "words-added"])
def test_killed_among_revisions_and_deletions(killer: Killer, moment: str, folder: Path, tmp_path: Path) -> None:
    promised = _all_there(folder)
    for passes in (0, 2, 5):
        killer.kill("revise", folder, moment, passes)
        promised |= acknowledged(folder)
        with Library.open(folder, write=True) as library:
            assert broken_promises(library, promised, 1, COUNT) == []
    with _undisturbed(folder, tmp_path) as other, Library.open(folder, write=True) as library:
        assert library.sources() != [] or moment == "deletion-remembered"
        revise(library, 1, COUNT)
        revise(other, 1, COUNT)
        assert contents(library) == contents(other)
        assert contents(library).deleted


def _all_there(folder: Path) -> dict[str, str | None]:
    with Library.open(folder) as library:
        return dict(contents(library).hashes)


def _undisturbed(folder: Path, tmp_path: Path) -> Library:
    """A library that is the base's still, to do without a kill what was done with kills."""
    return Library.open(shutil.copytree(tmp_path.parent / "x" if False else folder, tmp_path / "other"), write=True)
