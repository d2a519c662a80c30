"""Where tests find the real data and the real models, and what happens where they are not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from epicrisis.models.pull import installed
from epicrisis.settings import load


def _missing(what: str) -> None:
    """A skip that says so; a failure where the run requires everything (`EPICRISIS_REQUIRE_ALL=1`, as in `.ci/run`)."""
    if os.environ.get("EPICRISIS_REQUIRE_ALL") == "1":
        pytest.fail(f"this run requires {what}")
    pytest.skip(f"needs {what}")


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real data."""
    named = os.environ.get("EPICRISIS_DATA")
    if not named or not Path(named).is_dir():
        _missing("the real data: set EPICRISIS_DATA to its folder")
    return Path(str(named)).resolve()


@pytest.fixture(scope="session")
def model_home() -> Path:
    """The folder of pulled models, with the embedded two in it."""
    home = load().home
    if not {"minilm", "smollm2-135m"} <= {model.name for model in installed(home)}:
        _missing("the embedded models: epicrisis models pull minilm smollm2-135m")
    return home
