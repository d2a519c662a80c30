"""A server with uploads and a slow encoder, for a test that kills it: python -m tests.support.upload_child FOLDER."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from epicrisis.protocols import Vectors
from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.upload_reception import UploadLimits
from epicrisis.testing.encoders import HashingEncoder
from tests.support import servers


class SlowEncoder(HashingEncoder):
    """Takes 20 ms for a passage."""

    def encode_passages(self, passages: Sequence[tuple[str, str]]) -> Vectors:
        """Return the vectors of the passages, after a while."""
        time.sleep(0.02 * len(passages))
        return super().encode_passages(passages)


async def serve(folder: Path) -> None:
    """Print the address, and serve until the process is killed."""
    vars(servers)["ENCODER"] = SlowEncoder(32, max_tokens=24)
    resources = servers.open_resources(servers.open_existing(folder / "lib"))
    app = create_app(resources, ServerOptions(folder=folder / "server", uploads=UploadLimits()))
    async with servers.running(app) as address:
        sys.stdout.write(f"{address}\n")
        sys.stdout.flush()
        await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
