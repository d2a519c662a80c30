"""Temporary folders of killed processes go when the next one is made; those in use stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from filelock import FileLock

from epicrisis.corpus.articles.pubmed import read_files
from epicrisis.evaluation.datasets.download import download_dataset
from epicrisis.evaluation.synthesis.patient_records.record_folder import write_records
from epicrisis.system.temporary_folders import TemporaryFolder, remove_abandoned_folders
from tests.evaluation.datasets.hosted import BODY, NAME, hosted
from tests.support.loopback import Scripted, serving
from tests.support.pubmed_xml import article, article_set

_KILLED = """
import os, signal, sys
from pathlib import Path
from epicrisis.system.temporary_folders import TemporaryFolder
scratch = TemporaryFolder(sys.argv[1], Path(sys.argv[2]))
(scratch.path / "part").write_text("half")
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(prefix: str, place: Path) -> Path:
    """Returns the folder that a killed process left behind."""
    done = subprocess.run([sys.executable, "-c", _KILLED, prefix, str(place)], check=False)
    assert done.returncode == -signal.SIGKILL
    (left,) = place.glob(f"{prefix}*")
    return left


def test_folder_of_killed_process_is_removed(tmp_path: Path) -> None:
    left = killed("epicrisis-a-", tmp_path)
    with TemporaryFolder("epicrisis-b-", tmp_path):
        assert left.exists()
    with TemporaryFolder("epicrisis-a-", tmp_path) as mine:
        assert not left.exists()
        assert mine.stat().st_mode & 0o777 == 0o700
        with TemporaryFolder("epicrisis-a-", tmp_path):
            assert mine.exists()
    assert list(tmp_path.iterdir()) == []


def test_folder_without_lock_is_kept(tmp_path: Path) -> None:
    young, old = tmp_path / "epicrisis-a-1", tmp_path / "epicrisis-a-2"
    for folder in (young, old):
        folder.mkdir()
    os.utime(old, (time.time() - 3600,) * 2)
    remove_abandoned_folders("epicrisis-a-", tmp_path)
    assert list(tmp_path.iterdir()) == [young]


def test_records_replace_partial_file_of_killed_process(tmp_path: Path) -> None:
    killed(".records-", tmp_path)
    write_records(tmp_path, patients=1, tokens=[4000], questions_each=1)
    assert {path.name for path in tmp_path.iterdir()} == {"README.md", "questions.jsonl", "record"}


@pytest.mark.slow
def test_parallel_reading_removes_files_of_killed_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    killed("epicrisis-pubmed-", place)
    for number in (1, 2):
        (tmp_path / f"{number}.xml").write_text(article_set([article(number)]))
    assert len(list(read_files([tmp_path / "1.xml", tmp_path / "2.xml"], workers=2))) == 4
    assert list(place.iterdir()) == []


def test_download_removes_folder_of_killed_download(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "datasets" / "mirage"
    folder.mkdir(parents=True)
    killed(".download-", folder)
    with serving() as endpoint:
        endpoint.script["/benchmark.json"] = [Scripted(BODY)]
        download_dataset(NAME, tmp_path / "home", sets=hosted(endpoint.url, tmp_path))
    assert [path.name for path in folder.iterdir()] == ["benchmark.json"]


def test_folder_that_another_process_removes_at_once_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the creation of a folder and its lock, another process may take it for abandoned."""
    made: list[Path] = []

    def make(prefix: str, dir: Path) -> str:
        path = tmp_path / f"{prefix}{len(made)}"
        path.mkdir()
        made.append(path)
        if len(made) == 1:
            thief.append(FileLock(path / ".in-use", timeout=0, thread_local=False))
            thief[0].acquire()
        return str(path)

    thief: list[FileLock] = []
    monkeypatch.setattr("epicrisis.system.temporary_folders.tempfile.mkdtemp", make)
    with TemporaryFolder("x-", tmp_path) as folder:
        assert folder == made[1]
    thief[0].release()
