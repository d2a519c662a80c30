"""One OpenAI-compatible endpoint on loopback for all programs of `benchmarks/first_fifteen_minutes.py`.

    python benchmarks/rivals/endpoint.py qwen2.5-coder-0.5b --port 8377 --folder build/fifteen

Chat completions are forwarded unchanged to llama.cpp, and their replies kept in `replies` of the folder. The same
request gets the same reply again, after `--seconds`: so every program waits equally long for each call, whatever else
the machine does. Embeddings of any model name come from all-MiniLM-L6-v2. Each request is one line of `requests.jsonl`:
path, seconds, status, and tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import xllamacpp
from aiohttp import web

from epicrisis.models.encoders import load_encoder
from epicrisis.models.model_files import find_model
from epicrisis.settings.configuration import load_settings


def start_llama(path: Path, name: str, threads: int) -> Any:
    """Start llama.cpp with one slot of 8,192 tokens and a prefix cache."""
    params = xllamacpp.CommonParams()
    params.model.path, params.model_alias = str(path), [name]
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.n_ctx, params.n_parallel, params.n_batch = 8192, 1, 256
    params.n_ubatch = 256
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.cpuparams.poll = params.cpuparams_batch.poll = 0
    params.cache_prompt, params.slot_prompt_similarity, params.cache_ram_mib = True, 0.0, 1024
    params.fit_params = params.ui = False
    params.verbosity, params.offline, params.use_jinja = 0, True, True
    params.endpoint_metrics = True
    server = xllamacpp.Server(params)
    server.handle_metrics()
    return server


class Endpoint:
    """The routes, and the log of their requests."""

    def __init__(self, addresses: Mapping[str, str], options: argparse.Namespace) -> None:
        self._addresses, self._log = addresses, options.folder / "requests.jsonl"
        self._replies, self._seconds = options.folder / "replies", options.seconds
        self._replies.mkdir(parents=True, exist_ok=True)
        self._tasks: dict[Path, asyncio.Task[tuple[int, str, bytes]]] = {}
        self._encoder = load_encoder("minilm", load_settings().home)

    async def forward(self, request: web.Request) -> web.StreamResponse:
        """Forward a request to llama.cpp; another model's name is answered as OpenAI answers it."""
        began = time.perf_counter()
        body = await request.read()
        asked = json.loads(body) if body else {}
        address = self._addresses.get(asked.get("model", next(iter(self._addresses))))
        if address is None:
            message = f"The model `{asked['model']}` does not exist or you do not have access to it."
            error = {"message": message, "type": "invalid_request_error", "param": None, "code": "model_not_found"}
            self._write(request, began, 404, {})
            return web.json_response({"error": error}, status=404)
        kept = self._replies / sha256(body).hexdigest()
        if kept.exists():
            return await self._send_again(request, kept, began)
        if not request.path.endswith("/chat/completions"):
            status, kind, text = await self._fetch(request.method, address + request.path, body)
            self._write(request, began, status, {})
            return web.Response(body=text, status=status, headers={"Content-Type": kind})
        # A client that gives up and asks again gets the reply to its first request.
        if kept not in self._tasks:
            self._tasks[kept] = asyncio.create_task(self._keep(address + request.path, body, kept))
        status, kind, text = await asyncio.shield(self._tasks[kept])
        self._write(request, began, status, _find_usage(text))
        return web.Response(body=text, status=status, headers={"Content-Type": kind})

    async def _keep(self, url: str, body: bytes, kept: Path) -> tuple[int, str, bytes]:
        status, kind, text = await self._fetch("POST", url, body)
        if status == 200:
            kept.write_bytes(kind.encode() + b"\n" + text)
        return status, kind, text

    async def _fetch(self, method: str, url: str, body: bytes) -> tuple[int, str, bytes]:
        headers = {"Content-Type": "application/json"}
        limit = aiohttp.ClientTimeout(None)
        async with (
            aiohttp.ClientSession(timeout=limit) as client,
            client.request(method, url, data=body, headers=headers) as reply,
        ):
            return reply.status, reply.headers["Content-Type"], await reply.read()

    async def _send_again(self, request: web.Request, kept: Path, began: float) -> web.StreamResponse:
        kind, _, text = kept.read_bytes().partition(b"\n")
        await asyncio.sleep(self._seconds)
        self._write(request, began, 200, _find_usage(text))
        return web.Response(body=text, headers={"Content-Type": kind.decode()})

    async def embed(self, request: web.Request) -> web.StreamResponse:
        """Return vectors of 384 dimensions, padded with zeros to the requested dimensions."""
        began = time.perf_counter()
        asked = await request.json()
        texts = [asked["input"]] if isinstance(asked["input"], str) else asked["input"]
        vectors = await asyncio.to_thread(self._encoder.encode_passages, [("", text) for text in texts])
        padded = np.zeros((len(texts), asked.get("dimensions") or vectors.shape[1]), "<f4")
        padded[:, : vectors.shape[1]] = vectors
        in_base64 = asked.get("encoding_format") == "base64"
        rows = [b64encode(row.tobytes()).decode() if in_base64 else row.tolist() for row in padded]
        data = [{"object": "embedding", "index": number, "embedding": row} for number, row in enumerate(rows)]
        usage = {"prompt_tokens": 0, "total_tokens": 0}
        self._write(request, began, 200, {"texts": len(texts)})
        return web.json_response({"object": "list", "data": data, "model": asked["model"], "usage": usage})

    def _write(self, request: web.Request, began: float, status: int, more: dict[str, Any]) -> None:
        line = {"path": request.path, "seconds": round(time.perf_counter() - began, 3), "status": status, **more}
        with self._log.open("a") as stream:
            stream.write(json.dumps(line) + "\n")


def _find_usage(text: bytes) -> dict[str, Any]:
    """Return the counts of tokens at the end of a reply, streamed or not."""
    for line in reversed(text.split(b"\n")):
        try:
            reply = json.loads(line.removeprefix(b"data: "))
        except ValueError:
            continue
        if counts := reply.get("usage"):
            return {key: counts[key] for key in ("prompt_tokens", "completion_tokens")}
        if timings := reply.get("timings"):
            read = timings["prompt_n"] + timings.get("cache_n", 0)
            return {"prompt_tokens": read, "completion_tokens": timings["predicted_n"]}
    return {}


def main() -> None:
    """Serve until it is stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="names of embedded chat models, as in `epicrisis models list`")
    parser.add_argument("--port", type=int, default=8377)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=1.0, help="time of a call whose reply is known")
    options = parser.parse_args()
    servers = {}
    for name in options.models:
        files = find_model(name, "chat", load_settings().home).files
        weights = next(path for file, path in files.items() if file.endswith(".gguf"))
        servers[name] = start_llama(weights, name, options.threads)
    endpoint = Endpoint({name: server.listening_address for name, server in servers.items()}, options)
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/v1/embeddings", endpoint.embed)
    app.router.add_route("*", "/{path:.*}", endpoint.forward)
    web.run_app(app, host="127.0.0.1", port=options.port, print=None)


if __name__ == "__main__":
    main()
