"""Where tests find the real data and the real models, and what happens where they are not."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import hypothesis
import pytest

from epicrisis.core.protocols import Encoder
from epicrisis.core.types import Question
from epicrisis.corpus.readers.question_files import read_questions
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.evaluation.datasets.load import FOLDER as DATASETS
from epicrisis.library.core.library_parts import REPLIES
from epicrisis.models.chat.endpoints import memory
from epicrisis.models.encoders import load_encoder
from epicrisis.models.model_files import list_installed_models
from epicrisis.settings.configuration import load_settings
from epicrisis.system.local_only import set_local_only
from tests.support import s3_server
from tests.support.open_libraries import close_libraries

if TYPE_CHECKING:
    from epicrisis.library.core.library_store import LibraryStore


# How long an example takes on a busy machine says nothing of the code.
hypothesis.settings.register_profile("no-clock", deadline=None)
hypothesis.settings.load_profile("no-clock")

_DATA = os.environ.get("EPICRISIS_DATA")
DATA_FOLDER = Path(_DATA).resolve() if _DATA else None
"""Tests get it from the fixture `data_folder`; the programs under test do not see the variable."""
_VARIABLES = {"EPICRISIS_DATA", "EPICRISIS_HOME", "EPICRISIS_THREADS", "EPICRISIS_REQUIRE_ALL"}
"""The user's other settings do not reach the tests."""
for _name in [name for name in os.environ if name.startswith("EPICRISIS_") and name not in _VARIABLES]:
    del os.environ[_name]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by what they need, and skip, saying so, those whose environment is missing.

    What needs models or data goes first: begun last, a slow file would leave all processes but one idle.
    """
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        for fixture, mark in (("data_folder", "data"), ("model_home", "models")):
            if fixture in fixtures:
                item.add_marker(mark)
    frameworks = ("langchain_core", "langchain_tests", "llama_index", "inspect_ai", "IPython")
    _skip_marked(items, "integrations", [name for name in frameworks if find_spec(name) is None])
    recognizers = ("faker", "presidio_analyzer", "symspellpy")
    _skip_marked(items, "deidentification", [name for name in recognizers if find_spec(name) is None])
    _skip_marked(items, "ray", [name for name in ("ray", "grpc") if find_spec(name) is None])
    _skip_marked(items, "s3", [] if s3_server.is_installed() else ["SeaweedFS", "boto3"])
    missing = [name for name in ("torch", "transformers", "sentence_transformers", "onnx") if find_spec(name) is None]
    _skip_marked(items, "torch", missing)
    slow = {item.path for item in items if item.get_closest_marker("models") or item.get_closest_marker("data")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    """Keep the garbage collector away from the modules of the tests, which live as long as the process."""
    gc.collect()
    gc.freeze()


def _skip_marked(items: list[pytest.Item], mark: str, missing: list[str]) -> None:
    skip = pytest.mark.skip(reason=f"needs {', '.join(missing)}: make test-{mark}")
    for item in items if missing else ():
        if item.get_closest_marker(mark):
            item.add_marker(skip)


def _missing(what: str) -> NoReturn:
    """A skip that says so; a failure where the run requires everything (`EPICRISIS_REQUIRE_ALL=1`, as in `.ci/run`)."""
    if os.environ.get("EPICRISIS_REQUIRE_ALL") == "1":
        pytest.fail(f"this run requires {what}")
    pytest.skip(f"needs {what}")


@pytest.fixture(autouse=True)
def _no_guard_left() -> Iterator[None]:
    """A library of notes holds its whole process to this machine; the next test begins without, and with none open."""
    yield
    close_libraries()
    set_local_only(False)


_NUMBERS = count()


@pytest.fixture(autouse=True, scope="session")
def _own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Tests and the processes they start have a home of their own, with links to the models and data sets.

    The user's settings file says where the models are, and nothing else of it reaches the tests.
    """
    users, home = load_settings().home, tmp_path_factory.mktemp("home")
    for name in ("models", DATASETS):
        if (users / name).is_dir():
            (home / name).symlink_to(users / name, target_is_directory=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EPICRISIS_HOME", str(home))
        patch.delenv("EPICRISIS_DATA", raising=False)
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("configuration")))
        yield home


@pytest.fixture(autouse=True)
def _nothing_learned(
    _own_home: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each test begins without what others asked or learned: their servers on loopback may have had the same port."""
    monkeypatch.setattr(memory, "FOLDER", str(tmp_path_factory.getbasetemp() / f"endpoints-{next(_NUMBERS)}"))
    for path in _own_home.glob(f"{REPLIES}*"):
        path.unlink()


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real data."""
    if DATA_FOLDER is None or not DATA_FOLDER.is_dir():
        _missing("the real data: set EPICRISIS_DATA to its folder")
    return DATA_FOLDER


@pytest.fixture(scope="session")
def model_home() -> Path:
    """The folder of pulled models, with the embedded two in it."""
    home = load_settings().home
    if not {"minilm", "smollm2-135m"} <= {model.name for model in list_installed_models(home)}:
        _missing("the embedded models: epicrisis models pull minilm smollm2-135m")
    return home


@pytest.fixture(scope="session")
def encoder(model_home: Path) -> Encoder:
    """The embedded encoder."""
    return load_encoder("minilm", model_home, load_settings().threads)


@pytest.fixture(scope="session")
def pubmedqa_library(tmp_path_factory: pytest.TempPathFactory, data_folder: Path, encoder: Encoder) -> LibraryStore:
    """The 1,000 PubMedQA abstracts: `CONTEXTS` alone, no title and no conclusion; read-only."""
    from epicrisis.library.core.library_store import LibraryStore
    from epicrisis.library.write.ingest import add_documents, open_or_create

    path = tmp_path_factory.mktemp("pubmedqa") / "library"
    with open_or_create(path, encoder, "minilm") as made:
        add_documents(made, read_sources([data_folder / "pubmedqa" / "ori_pqal.json"]), encoder)
    return LibraryStore.open(path)


@pytest.fixture(scope="session")
def pubmedqa_questions(data_folder: Path) -> list[Question]:
    """The 1,000 questions with their gold answers and documents."""
    return [item for item in read_questions(data_folder / "pubmedqa" / "ori_pqal.json") if isinstance(item, Question)]
