"""A server with uploads, for a test that kills it: python -m tests.support.upload_child FOLDER."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.work.upload_reception import UploadLimits
from tests.support import servers


async def serve(folder: Path) -> None:
    """Print the address, and serve until the process is killed."""
    resources = servers.open_resources(servers.open_existing(folder / "lib"))
    app = create_app(resources, ServerOptions(folder=folder / "server", uploads=UploadLimits(free_bytes=0)))
    async with servers.running(app) as address:
        sys.stdout.write(f"{address}\n")
        sys.stdout.flush()
        await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
