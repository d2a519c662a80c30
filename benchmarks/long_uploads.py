"""How long the server's status takes to answer while one very long text is imported, and the memory of both.

    python benchmarks/long_uploads.py

Each text is sent to `epicrisis serve --upload` with the default encoder; the status is asked every 20 ms for a minute,
and then the import is cancelled. No person reads these texts: they only have to be long.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx2

PROGRAM = Path(sys.executable).with_name("epicrisis")
ADDRESS = "http://127.0.0.1:8791"
SECONDS = 60


def main() -> None:
    """Print a row for each text."""
    sentences = (f"Aspirin lowered the risk of stroke in {number:,} older adults. " for number in range(280_000))
    texts = {"words": "".join(sentences), "marks without a space": "!?#;" * 3_000_000, "one word": "x" * 12_000_000}
    print(
        "| text | MB | status p50, slowest (ms) | asked | memory of the server before, at most (MB) "
        "| memory of the import, at most (MB) | first progress after (s) | seconds | cancelled after (s) |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name, text in texts.items():
        folder = Path(tempfile.mkdtemp())
        try:
            print(f"| {name} | {len(text) / 1e6:.1f} | {measure(folder, text)} |", flush=True)
        finally:
            shutil.rmtree(folder)


def measure(folder: Path, text: str) -> str:
    """Return the cells of a text after its size."""
    paper = folder / "paper.txt"
    paper.write_text("Aspirin lowered the risk of stroke.", encoding="utf-8")
    subprocess.run([PROGRAM, "library", "add", folder / "lib", paper], check=True, capture_output=True)
    options = ["--port", ADDRESS.rpartition(":")[2], "--upload", "--folder", str(folder / "server")]
    command = [str(PROGRAM), "serve", str(folder / "lib"), *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            with httpx2.Client(base_url=ADDRESS, timeout=120) as client:
                return ask_status(client, server.pid, text)
        finally:
            server.terminate()


def ask_status(client: httpx2.Client, server: int, text: str) -> str:
    """Send the text, and return the cells."""
    wait_for(client)
    before = read_memory(server)
    sent = client.post("/api/v1/libraries/lib/documents", files=[("files", ("long.txt", text.encode()))])
    sent.raise_for_status()
    address = f"/api/v1/uploads/{sent.json()['id']}"
    waits, peak, imports, begun, started = [], before, 0, 0.0, time.monotonic()
    while time.monotonic() - started < SECONDS:
        asked = time.monotonic()
        status = client.get(address).json()
        waits.append(1000 * (time.monotonic() - asked))
        peak, imports = max(peak, read_memory(server)), max(imports, read_import_memory(server))
        if not begun and (status["progress"] or {}).get("file"):
            begun = time.monotonic() - started
        if status["state"] not in ("waiting", "running"):
            break
        time.sleep(0.02)
    seconds = time.monotonic() - started
    asked = time.monotonic()
    ended = client.post(f"{address}/cancel").json()["state"]
    cancelled = f"{time.monotonic() - asked:.1f}" if ended == "cancelled" else f"- ({ended})"
    waits.sort()
    return (
        f"{waits[len(waits) // 2]:.0f}, {waits[-1]:.0f} | {len(waits)} | {before}, {peak} | {imports} | {begun:.1f} "
        f"| {seconds:.0f} | {cancelled}"
    )


def wait_for(client: httpx2.Client) -> None:
    """Return once the server answers."""
    for _ in range(300):
        try:
            client.get("/api/v1/health")
        except httpx2.TransportError:
            time.sleep(0.2)
        else:
            return
    raise SystemExit("the server did not start")


def read_memory(process: int) -> int:
    """Return the resident megabytes of a process, or 0 once it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) // 1000


def read_import_memory(server: int) -> int:
    """Return the resident megabytes of the processes that the server started."""
    children = Path(f"/proc/{server}/task/{server}/children").read_text(encoding="ascii").split()
    return sum(read_memory(int(child)) for child in children)


if __name__ == "__main__":
    os.environ.setdefault("EPICRISIS_THREADS", "1")
    main()
