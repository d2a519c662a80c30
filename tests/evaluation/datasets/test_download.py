"""Test the download of a question set from a real server on loopback."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from epicrisis.core.errors import InputError, NetworkRefused, StorageError
from epicrisis.evaluation.datasets.download import BLOCK, download_dataset, is_downloaded
from epicrisis.evaluation.datasets.load import load_dataset
from tests.evaluation.datasets.hosted import BODY, NAME, hosted
from tests.support.loopback import Endpoint, Scripted, serving


@pytest.fixture
def server() -> Iterator[Endpoint]:
    with serving() as endpoint:
        endpoint.script["/benchmark.json"] = [Scripted(BODY)]
        yield endpoint


def list_files(home: Path) -> list[str]:
    return [path.name for path in home.rglob("*") if path.is_file()]


@pytest.mark.parametrize("sha256", [None, hashlib.sha256(BODY.encode()).hexdigest()])
def test_download_dataset_fetches_file_once(server: Endpoint, tmp_path: Path, sha256: str | None) -> None:
    sets, home = hosted(server.url, tmp_path, sha256), tmp_path / "home"
    observed: list[tuple[str, int, int | None]] = []
    assert not is_downloaded(NAME, home, sets=sets)
    dataset = download_dataset(NAME, home, lambda *told: observed.append(told), sets=sets)
    assert observed == [("benchmark.json", len(BODY), len(BODY))]
    assert is_downloaded(NAME, home, sets=sets)
    assert [question.id for question in dataset.questions] == ["5c"]
    assert dataset.licence == "MIT"
    assert list_files(home) == ["benchmark.json"]
    assert download_dataset(NAME, home, sets=sets, local_only=True) == dataset == load_dataset(NAME, home, sets=sets)
    assert len(server.asked) == 1


def test_download_dataset_replaces_damaged_file(server: Endpoint, tmp_path: Path) -> None:
    sets, home = hosted(server.url, tmp_path), tmp_path / "home"
    download_dataset(NAME, home, sets=sets)
    (home / "datasets" / "mirage" / "benchmark.json").write_text(BODY[:40])
    assert len(download_dataset(NAME, home, sets=sets).questions) == 1
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    ("reply", "sha256", "said"),
    [
        (Scripted(BODY), "00", "is not the pinned file: expected sha256 00"),
        (Scripted(BODY.replace("Is it", "Was it")), None, "holds 1 question, not the pinned 1 question"),
        (Scripted(BODY[:40]), None, "not MIRAGE's benchmark.json"),
        (
            Scripted("", 404),
            None,
            r"cannot be fetched .*404.*elsewhere and put it at .*home/datasets/mirage/benchmark\.json",
        ),
    ],
)
def test_download_dataset_with_other_content_keeps_nothing(
    server: Endpoint, tmp_path: Path, reply: Scripted, sha256: str | None, said: str
) -> None:
    server.script["/benchmark.json"] = [reply]
    with pytest.raises(InputError, match=said):
        download_dataset(NAME, tmp_path / "home", sets=hosted(server.url, tmp_path, sha256))
    assert list_files(tmp_path / "home") == []


def test_download_dataset_reports_progress_of_large_file(server: Endpoint, tmp_path: Path) -> None:
    long = BODY + " " * (2 * BLOCK)
    server.script["/benchmark.json"] = [Scripted(long)]
    observed: list[int] = []
    download_dataset(
        NAME, tmp_path / "home", lambda file, done, total: observed.append(done), sets=hosted(server.url, tmp_path)
    )
    assert len(observed) >= 3
    assert observed == sorted(set(observed))
    assert observed[-1] == len(long)


def test_download_dataset_under_local_only_makes_no_request(server: Endpoint, tmp_path: Path) -> None:
    with pytest.raises(NetworkRefused, match="pull it once without that option"):
        download_dataset(NAME, tmp_path / "home", sets=hosted(server.url, tmp_path), local_only=True)
    assert server.asked == []


def test_download_dataset_from_unreachable_source_raises_input_error(tmp_path: Path) -> None:
    with serving() as gone:
        sets = hosted(gone.url, tmp_path)
    with pytest.raises(InputError, match=r"cannot be fetched .*check the network"):
        download_dataset(NAME, tmp_path / "home", sets=sets)
    with pytest.raises(InputError, match=r"no question set is called 'mirage'; known are mirage/bioasq"):
        download_dataset("mirage", tmp_path / "home", sets=sets)


def test_download_dataset_into_unwritable_folder_raises_storage_error(server: Endpoint, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "datasets").write_text("in the way")
    with pytest.raises(StorageError, match="cannot be written"):
        download_dataset(NAME, tmp_path / "home", sets=hosted(server.url, tmp_path))
