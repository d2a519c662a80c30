"""The process of a Ray cluster on this machine alone.

    python -m epicrisis.models.local_cluster PORT CORES BYTES FOLDER

It listens for one client, and ends with all processes of the cluster when its standard input is closed, which the
system does even when the client is killed. See `cluster`.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Start the cluster, print a line when the client can connect, and wait for the end of the input."""
    from ray.util.client.server.server import init_and_serve

    port, cores, object_store_bytes, folder = sys.argv[1:]
    # The server ends with the last reference to it.
    server = init_and_serve(
        "127.0.0.1",
        int(port),
        address="local",
        num_cpus=int(cores),
        object_store_memory=int(object_store_bytes),
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
        _temp_dir=folder,
    )
    os.write(1, b"ready\n")
    sys.stdin.read()
    del server


if __name__ == "__main__":
    main()
