"""Facts of earlier processes about an endpoint, which spare a question the time to learn them.

One small private file per endpoint and model in the home folder. Its name is a hash and it holds no address. A file
older than `MAX_AGE` does not count and is removed. `EndpointProbe` says when a remembered fact is asked for again.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from epicrisis.models.chat.endpoints.endpoint import Endpoint
from epicrisis.system.local_only import open_private

FOLDER = "endpoints"
MAX_AGE = timedelta(days=1)
MAX_BYTES = 1000
CountingMethod: TypeAlias = Literal["llama.cpp", "vllm", "estimate"]
"""How the tokens of a prompt are counted: at a path of the server, or by an upper bound of our own."""


class EndpointFacts(BaseModel):
    """What an endpoint reports of one model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    window: int | None = Field(ge=1)
    """The context window in tokens, None if the endpoint reports none."""
    counter: CountingMethod


class _Record(BaseModel):
    """The content of a file."""

    time: AwareDatetime
    facts: EndpointFacts


class EndpointMemory:
    """Keeps the facts of one endpoint in files below `home`. A file that cannot be read or written is no error."""

    def __init__(self, home: Path, endpoint: Endpoint) -> None:
        self._folder = home / FOLDER
        # Neither login nor key: they do not change what an endpoint reports, and they are secrets.
        self._address = [endpoint.kind, endpoint.base_url, endpoint.query.get("api-version")]

    def recall(self, model: str) -> EndpointFacts | None:
        """Return the facts of this model, or None if there are none younger than `MAX_AGE`."""
        try:
            with self._path(model).open("rb") as file:
                record = _Record.model_validate_json(file.read(MAX_BYTES))
        except (OSError, ValidationError):
            return None
        age = datetime.now(UTC) - record.time
        return record.facts if timedelta(0) <= age < MAX_AGE else None

    def store(self, model: str, facts: EndpointFacts) -> None:
        """Store the facts of this model, in one step, and remove files that no longer count."""
        path = self._path(model)
        content = _Record(time=datetime.now(UTC), facts=facts).model_dump_json().encode()
        temporary = path.with_suffix(f".{os.getpid()}")
        with suppress(OSError):
            descriptor = open_private(temporary, os.O_WRONLY | os.O_TRUNC)
            with open(descriptor, "wb") as file:
                file.write(content)
            temporary.replace(path)
            oldest = datetime.now(UTC).timestamp() - MAX_AGE.total_seconds()
            for other in self._folder.iterdir():
                if other.stat().st_mtime < oldest:
                    other.unlink(missing_ok=True)

    def forget(self, model: str) -> None:
        """Remove the facts of this model."""
        with suppress(OSError):
            self._path(model).unlink(missing_ok=True)

    def _path(self, model: str) -> Path:
        key = json.dumps([*self._address, model])
        return self._folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
