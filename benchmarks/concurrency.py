"""A BriefContext question against a local server that answers after a fixed delay: all map calls together, then reduce.

Eight partitions should take two delays and little more; one after the other they would take nine.

    python benchmarks/concurrency.py
"""

from __future__ import annotations

import asyncio
import json
import statistics
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from epicrisis.answering.brief_context import brief_context
from epicrisis.answering.context import Context
from epicrisis.models.load import load_chat
from epicrisis.settings import ModelSettings
from epicrisis.types import Event, Hit, Passage, Question, Ranking, Retrieved, Scope

DELAY = 0.5
PARTITIONS = 8
RUNS = 5


class Delayed(BaseHTTPRequestHandler):
    """Answers every chat completion after the delay, streamed or whole."""

    protocol_version = "HTTP/1.1"
    # Head and body in one segment: sent apart, the second waits 40 ms for the client's delayed acknowledgement.
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """One model, as `/v1/models` lists it."""
        self._send(json.dumps({"object": "list", "data": [{"id": "delayed", "object": "model"}]}), "application/json")

    def do_POST(self) -> None:
        """A reply that found something, for map and reduce alike."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.path.endswith("/chat/completions"):
            self.send_error(404)
            return
        time.sleep(DELAY)
        schema = body["response_format"]["json_schema"]["schema"]["properties"]["result"]["anyOf"][0]["properties"]
        values = {
            "found": True,
            "quotes": [{"doc": 1, "quote": "words of this passage"}],
            "sources": [1],
            "finding": "A finding.",
            "answer": "An answer.",
        }
        text = json.dumps({"result": {key: values[key] for key in schema}})
        usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
        head = {"id": "1", "created": 0, "model": "delayed"}
        if body.get("stream"):
            delta = {**head, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": text}}]}
            end_choice = {"index": 0, "delta": {}, "finish_reason": "stop"}
            end = {**head, "object": "chat.completion.chunk", "choices": [end_choice], "usage": usage}
            rows = [f"data: {json.dumps(row)}\n\n" for row in (delta, end)]
            self._send("".join(rows) + "data: [DONE]\n\n", "text/event-stream")
        else:
            choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            whole = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
            self._send(json.dumps(whole), "application/json")

    def _send(self, text: str, kind: str) -> None:
        data = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


def ranking() -> Ranking:
    """As many passages as fill the partitions, four to each."""
    passages = [
        Passage(f"d{i}#0", f"d{i}", 0, 0, 34, f"Some words of this passage, number {i}.") for i in range(4 * PARTITIONS)
    ]
    return Ranking(tuple(Hit(passage, 1.0, rank) for rank, passage in enumerate(passages)), "made")


async def questions(url: str) -> list[tuple[float, str]]:
    """Seconds from the ranking to the answer and the answer's state, question by question, one client for all."""
    model = load_chat(ModelSettings(name=url, context_tokens=32_000), Path("/nonexistent"))
    began = 0.0

    def emit(event: Event) -> None:
        nonlocal began
        if isinstance(event, Retrieved):
            began = time.perf_counter()

    async def retrieve(_: Question) -> Ranking:
        return ranking()

    roles = dict.fromkeys(("writer", "map", "reduce"), model)
    context = Context(roles, Scope(), emit, retrieve, partition=4)
    results: list[tuple[float, str]] = []
    for number in range(RUNS + 1):
        answer = await brief_context(Question(f"What is number {number}?"), context)
        results.append((time.perf_counter() - began, answer.state))
    await model.aclose()
    return results[1:]


def main() -> None:
    """Prints one line: the ratio to the delay, the median of the runs after a warm-up."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Delayed)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    results = asyncio.run(questions(f"http://127.0.0.1:{server.server_address[1]}/v1#delayed"))
    states = {state for _, state in results}
    ratio = statistics.median(seconds for seconds, _ in results) / DELAY
    print(f"BriefContext, {PARTITIONS} partitions, delay L = {DELAY} s: {ratio:.3f} L (guide: under 2.1 L), {states}")
    server.shutdown()


if __name__ == "__main__":
    main()
