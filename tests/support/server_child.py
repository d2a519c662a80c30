"""A real server process for tests that kill or stop it: `python -m tests.support.server_child FOLDER SECONDS`.

Serves the library FOLDER/lib with a scripted chat model whose calls take SECONDS, as `epicrisis serve` does, and prints
the port. The server's folder is FOLDER/server.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from epicrisis.core.protocols import ChatReply, ChatRequest, DeltaCallback
from epicrisis.server import process
from epicrisis.server.app import ServerOptions, create_app
from epicrisis.testing.chat import ScriptedModel
from tests.support.patient_records import recorder
from tests.support.servers import open_existing, open_library, open_resources


class SlowModel:
    """A scripted chat model whose calls take a fixed time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._inner: ScriptedModel = recorder()
        self.name = self._inner.name
        self.count_tokens = self._inner.count_tokens
        self.capabilities = self._inner.capabilities
        self.fingerprint = self._inner.fingerprint
        self.aclose = self._inner.aclose

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        """Return the reply of the script, after a while."""
        await asyncio.sleep(self._seconds)
        return await self._inner.complete(request, on_delta)


async def serve(folder: Path, seconds: float, header_seconds: float) -> None:
    """Serve until a signal, as `epicrisis serve` does."""
    process.HEADER_SECONDS = header_seconds
    resources = open_resources(open_existing(folder / "lib", SlowModel(seconds), questions_at_once=1))
    app = create_app(resources, ServerOptions(folder=folder / "server"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sys.stdout.write(f"{listener.getsockname()[1]}\n")
        sys.stdout.flush()
        config = process.make_config(app, "127.0.0.1", 0, stop_seconds=30)
        await process.GracefulServer(config, app.state.questions).serve(sockets=[listener])


@contextmanager
def run_server(
    folder: Path, seconds: float = 0.0, header_seconds: float = 10.0
) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Give port and process of a server of four papers. It is killed at the end if it still runs."""
    if not (folder / "lib").exists():
        open_library(folder / "lib").pipeline.search.library.close()  # type: ignore[union-attr]
    command = [sys.executable, "-m", "tests.support.server_child", str(folder), str(seconds), str(header_seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            yield int(child.stdout.readline()), child
        finally:
            child.kill()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])))
