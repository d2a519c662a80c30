"""kill -9 at named and at random moments: nothing acknowledged is lost, nothing is there twice, the parts agree."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from epicrisis.errors import LibraryDamaged
from epicrisis.library.ingest import content_sha256
from epicrisis.library.library import Library
from epicrisis.library.words import version_of
from tests.library.corpus import Contents, add, contents, create, documents
from tests.library.crash_child import PHASES

COUNT = 48
LARGE = 160


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed library with version 0 of half of the corpus."""
    folder = tmp_path_factory.mktemp("base") / "library"
    with create(folder) as library:
        add(library, 0, COUNT // 2)
    return folder


@pytest.fixture(scope="module")
def unbroken(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Contents:
    """What the library holds after version 1 of the whole corpus was added without a kill."""
    folder = tmp_path_factory.mktemp("unbroken") / "library"
    shutil.copytree(base, folder)
    with Library.open(folder, write=True) as library:
        add(library, 1, COUNT)
        return contents(library)


class Killer:
    """Starts processes that die at a named moment."""

    def __init__(self, log: Path) -> None:
        self._log = log
        with log.open("w") as errors:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "tests.library.crash_child"],
                cwd=Path(__file__).parents[2],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def run(self, action: str, folder: Path, moment: str, passes: int, *, version: int = 1, count: int = COUNT) -> bool:
        """True where the process was killed, False where it came to its end before."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        acknowledged = folder.with_suffix(".acknowledged")
        arguments = [action, folder, acknowledged, version, count, moment, passes]
        self._server.stdin.write(json.dumps([str(each) for each in arguments]) + "\n")
        self._server.stdin.flush()
        code = int(self._server.stdout.readline())
        assert code in (0, -signal.SIGKILL), self._log.read_text()
        return code != 0

    def kill(self, action: str, folder: Path, moment: str, passes: int) -> None:
        assert self.run(action, folder, moment, passes), f"{moment} never came to pass"

    def close(self) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait(30)


@pytest.fixture(scope="module")
def killer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killer]:
    with closing(Killer(tmp_path_factory.mktemp("killer") / "errors.txt")) as one:
        yield one


def acknowledged(folder: Path) -> dict[str, str]:
    """The last hash acknowledged of each document."""
    path = folder.with_suffix(".acknowledged")
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return dict(json.loads(line) for line in lines)


def discrepancies(library: Library, promised: dict[str, str], version: int = 1) -> list[str]:
    """What is wrong with the library, in words: nothing may be lost, doubled, half there or out of step.

    A document may also be of the version last added: acknowledged by the library, killed before it was written down.
    """
    found = contents(library)
    newest = {document.id: content_sha256(document) for document in documents(version, LARGE)}
    promised = {each: newest[each] if found.hashes.get(each) == newest[each] else sha for each, sha in promised.items()}
    hashes = {passage_id: sha for passage_id, (_, sha) in found.table.items()}
    by_document: dict[str, set[str]] = {}
    for passage_id, sha in hashes.items():
        by_document.setdefault(passage_id.rsplit("#", 1)[0], set()).add(sha)
    ordinals = Counter(passage_id.rsplit("#", 1)[0] for passage_id in hashes)
    wrong = [f"{each} was acknowledged and is not there" for each in promised.items() - found.hashes.items()]
    wrong += [f"{each}: passages of two versions" for each, shas in by_document.items() if len(shas) > 1]
    wrong += [f"{each}: passages are missing" for each, n in ordinals.items() if f"{each}#{n - 1}" not in found.table]
    if found.rows != len(found.table):
        wrong.append("a passage is there twice")
    if found.words != sorted((passage_id, version_of(sha)) for passage_id, sha in hashes.items()):
        wrong.append("the word index holds other passages than the table")
    if found.hashes != {each: next(iter(shas)) for each, shas in by_document.items()}:
        wrong.append("the documents acknowledged are not those in the table")
    info = library.info()
    if info.open_batches:
        wrong.append(f"{info.open_batches} batches are still open")
    return wrong + list(info.problems)


@pytest.mark.parametrize("moment", PHASES)
def test_killed_at_a_moment(killer: Killer, moment: str, base: Path, unbroken: Contents, tmp_path: Path) -> None:
    folder = tmp_path / "library"
    shutil.copytree(base, folder)
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


def test_killed_again_and_again_without_a_pause(killer: Killer, base: Path, unbroken: Contents, tmp_path: Path) -> None:
    """The next process settles what the last one left, and is killed in turn; nobody looks in between."""
    folder = tmp_path / "library"
    shutil.copytree(base, folder)
    for moment in ("table-written", "words-added", "words-committed"):
        killer.kill("add", folder, moment, 0)
    with Library.open(folder, write=True) as library:
        assert discrepancies(library, acknowledged(folder)) == []
        add(library, 1, COUNT)
        assert contents(library) == unbroken


def test_killed_at_random(killer: Killer, base: Path, tmp_path: Path) -> None:
    folder = tmp_path / "library"
    shutil.copytree(base, folder)
    kills = 0
    for seed in range(1, 13):
        kills += killer.run("add", folder, "adding", seed, version=seed, count=LARGE)
        with Library.open(folder, write=True) as library:
            assert discrepancies(library, acknowledged(folder), seed) == []
        if kills == 6:
            break
    assert kills == 6
    assert acknowledged(folder)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_killed_while_compacting(killer: Killer, seed: int, base: Path, unbroken: Contents, tmp_path: Path) -> None:
    folder = tmp_path / "library"
    shutil.copytree(base, folder)
    killer.run("add", folder, "compacting", seed)
    with Library.open(folder, write=True) as library:
        assert discrepancies(library, acknowledged(folder)) == []
        assert contents(library) == unbroken


@pytest.mark.parametrize("moment", ["table-written", "words-committed", "words-added"])
def test_the_check_sees_what_recovery_mends(
    killer: Killer, moment: str, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "library"
    shutil.copytree(base, folder)
    killer.kill("add", folder, moment, 1)
    with monkeypatch.context() as patch:
        patch.setattr(Library, "_settle", lambda self: None)
        with Library.open(folder, write=True) as library:
            wrong = discrepancies(library, acknowledged(folder))
            assert "the documents acknowledged are not those in the table" in wrong
    with Library.open(folder, write=True) as library:
        assert discrepancies(library, acknowledged(folder)) == []


def test_the_check_sees_a_lost_document(base: Path, tmp_path: Path) -> None:
    folder = tmp_path / "library"
    shutil.copytree(base, folder)
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
def test_killed_while_it_is_repaired(killer: Killer, moment: str, base: Path, tmp_path: Path) -> None:
    folder = tmp_path / "library"
    shutil.copytree(base, folder)
    with Library.open(folder) as library:
        before = contents(library)
    killer.kill("repair", folder, moment, 0)
    with pytest.raises(LibraryDamaged, match="epicrisis library repair"):
        Library.open(folder, write=True)
    assert Library.repair(folder).problems == ()
    with Library.open(folder, write=True) as library:
        assert contents(library) == before
        assert discrepancies(library, before.hashes) == []
