"""The model layer under load, against a server on this machine that answers after a fixed delay. The server is a
process of its own, so that what it costs is in no figure.

    PYTHONPATH=. python benchmarks/model_layer.py clients
    PYTHONPATH=. python benchmarks/model_layer.py partitions
    PYTHONPATH=. python benchmarks/model_layer.py rivals [langchain_chain=PYTHON] [paper_qa=PYTHON]...

`clients`: calls a second and CPU a call of our layers beside the bare OpenAI client, all in turn in each round.
`partitions`: the wall clock of one BriefContext question by the number of its partitions.
`rivals`: BriefContext beside map-reduce of other libraries. Each is a script of `rivals/` and runs in an environment of
its own, whose interpreter is named here; a script's docstring says what to install into it:

    python -m venv ENVIRONMENT && ENVIRONMENT/bin/pip install langchain-classic langchain-openai

Knows nothing of how good an answer is: the server's replies are made.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeAlias

from openai import AsyncOpenAI, DefaultAioHttpClient
from rivals.measured import Job, cpu_seconds

from epicrisis.answering.reply_parsing import AnswerFormat
from epicrisis.answering.strategies.brief_context import brief_context
from epicrisis.answering.strategy_context import Context
from epicrisis.core.answers import Event, Retrieved
from epicrisis.core.protocols import ChatModel, ChatRequest, Message
from epicrisis.core.types import Hit, Passage, Question, Ranking, Scope
from epicrisis.models.chat.cache import ReplyCache
from epicrisis.models.chat.endpoints.endpoint import parse_endpoint
from epicrisis.models.chat.layers import Budget
from epicrisis.models.chat.loading import add_layers, load_chat
from epicrisis.models.chat.openai_compatible import OpenAICompatibleModel
from epicrisis.settings.settings import AnswerOptions, BudgetSettings, ModelSettings
from tests.support.faults import read_prompt
from tests.support.hostile import HostileServer, ServerLog
from tests.support.replies import schema_reply

MODEL = "hostile"
ROUNDS = 3
EXTRACT = (
    "In the study the treated group did better than the control group by a third after one year of follow-up. " * 2
)
WORDS = ("patients", "treatment", "group", "risk", "study", "control", "trial", "dose", "baseline", "response", "serum")

Call: TypeAlias = Callable[[int], Awaitable[object]]


# -- the server -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Server:
    """A healthy server in a process of its own."""

    url: str
    pipe: Connection

    def ledger(self) -> ServerLog:
        """What it has done so far."""
        self.pipe.send(None)
        ledger: ServerLog = self.pipe.recv()
        return ledger


@contextmanager
def served(delay: float) -> Iterator[Server]:
    """A new server; `delay` in seconds before each reply."""
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=_serve, args=(theirs, delay), daemon=True)
    process.start()
    theirs.close()
    try:
        yield Server(ours.recv(), ours)
    finally:
        ours.close()
        process.join()


def _serve(pipe: Connection, delay: float) -> None:
    with HostileServer(_reply, delay=delay, model=MODEL) as server:
        pipe.send(server.url)
        while True:
            try:
                pipe.recv()
            except EOFError:
                return
            pipe.send(server.ledger)


def _reply(body: Mapping[str, Any]) -> str:
    """About as long in every form that is asked for: a schema's, paper-qa's, or running text."""
    if body.get("response_format"):
        return schema_reply(body)
    if "relevance_score" in read_prompt(body):
        return json.dumps({"summary": EXTRACT, "relevance_score": 8})
    return EXTRACT


# -- clients ----------------------------------------------------------------------------------------------------------


def _request(number: int) -> ChatRequest:
    """As large as a map call over four abstracts, and with its schema; each another."""
    text = " ".join(WORDS[i % len(WORDS)] for i in range(800))
    form = AnswerFormat({}, text_field="finding", documents=4)
    return ChatRequest((Message("user", f"{number}. {text}"),), max_tokens=form.max_tokens, schema=form.schema())


def _openai(client: AsyncOpenAI) -> Call:
    """The very body that our client sends, through the SDK's own method."""

    async def call(number: int) -> object:
        request = _request(number)
        return await client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": request.messages[0].content}],
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            top_p=request.top_p,
            seed=request.seed,
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "reply", "strict": True, "schema": dict(request.schema or {})},
            },
        )

    return call


def _ours(model: ChatModel) -> Call:
    return lambda number: model.complete(_request(number))


async def _driven(call: Call, numbers: Sequence[int], width: int) -> tuple[float, float]:
    """Wall clock and CPU seconds of these calls, `width` of them at once."""
    waiting = iter(numbers)

    async def worker() -> None:
        for number in waiting:
            await call(number)

    cpu, began = cpu_seconds(), time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(width):
            group.create_task(worker())
    return time.perf_counter() - began, cpu_seconds() - cpu


async def _clients(url: str, width: int, calls: int, folder: Path) -> dict[str, list[tuple[float, float]]]:
    """(wall clock, CPU seconds) of every round of each arm; the first round warms up and is not told."""
    plain = ModelSettings(name=f"{url}#{MODEL}", concurrency=width)
    limited = plain.model_copy(update={"requests_per_minute": 1e9, "tokens_per_minute": 1e12})
    cache = ReplyCache(folder / "replies.sqlite")
    bare = AsyncOpenAI(base_url=url, api_key="none", max_retries=0)
    aiohttp = AsyncOpenAI(base_url=url, api_key="none", max_retries=0, http_client=DefaultAioHttpClient())
    # Only to this machine each call has a connection of its own.
    far = OpenAICompatibleModel(replace(parse_endpoint(plain.name), local=False), concurrency=width)
    ours: dict[str, ChatModel] = {
        "ours, no layer": load_chat(plain, folder),
        "ours, no layer, as to another machine": far,
        "ours, turns and retries": add_layers(load_chat(plain, folder), plain),
        "ours, all but cache and record": add_layers(load_chat(limited, folder), limited, budget=_budget()),
        "ours, all with cache": add_layers(load_chat(limited, folder), limited, budget=_budget(), cache=cache),
        "ours, all with cache and record": add_layers(
            load_chat(limited, folder), limited, budget=_budget(), cache=cache, record=folder / "record.jsonl"
        ),
    }
    arms = {"openai": _openai(bare), "openai with aiohttp": _openai(aiohttp)}
    arms |= {name: _ours(model) for name, model in ours.items()}
    figures: dict[str, list[tuple[float, float]]] = {name: [] for name in [*arms, "ours, out of the cache"]}
    first = 0
    for _ in range(1 + ROUNDS):
        for name, call in arms.items():
            figures[name].append(await _driven(call, range(first, first + calls), width))
            if name == "ours, all with cache":
                again = await _driven(call, range(first, first + calls), width)
                figures["ours, out of the cache"].append(again)
            first += calls
    for closing in (bare.close(), aiohttp.close(), *(model.aclose() for model in ours.values())):
        await closing
    cache.close()
    return {name: rounds[1:] for name, rounds in figures.items()}


def _budget() -> Budget:
    return Budget(BudgetSettings(tokens=10**15, minutes=60))


def clients(delay: float, widths: Sequence[int], calls: int) -> None:
    """Prints a table for each width."""
    for width in widths:
        with served(delay) as server, tempfile.TemporaryDirectory() as folder:
            figures = asyncio.run(_clients(server.url, width, calls, Path(folder)))
            most = server.ledger().most_in_flight
        print(f"\n{width} at once (the server saw {most}), delay {delay} s, {calls} calls, median of {ROUNDS} rounds\n")
        print("| | calls a second | CPU ms a call | CPU against openai |\n|---|---|---|---|")
        for name, rounds in figures.items():
            a_second = statistics.median(calls / seconds for seconds, _ in rounds)
            cpu = statistics.median(1000 * cpu / calls for _, cpu in rounds)
            against = statistics.median(
                ours / theirs for (_, ours), (_, theirs) in zip(rounds, figures["openai"], strict=True)
            )
            print(f"| {name} | {a_second:,.0f} | {cpu:.2f} | {against:.2f} |")


# -- partitions -------------------------------------------------------------------------------------------------------


async def _question_seconds(url: str, partitions: int, concurrency: int) -> tuple[float, str]:
    """Median seconds from the ranking to the answer, after a warm-up, and the states."""
    settings = ModelSettings(name=f"{url}#{MODEL}", concurrency=concurrency)
    model = add_layers(load_chat(settings, Path()), settings)
    passages = [
        Passage(id=f"d{i}#0", document_id=f"d{i}", ordinal=0, start=0, end=len(text), text=text)
        for i, text in enumerate(documents(4 * partitions))
    ]
    ranking = Ranking(tuple(Hit(passage, 1.0, rank) for rank, passage in enumerate(passages)), "made")
    began = 0.0

    def emit(event: Event) -> None:
        nonlocal began
        if isinstance(event, Retrieved):
            began = time.perf_counter()

    async def retrieve(_: Question) -> Ranking:
        return ranking

    context = Context(
        options=AnswerOptions(citing="quotes", describe_sources=False),
        models=dict.fromkeys(("writer", "map", "reduce"), model),
        scope=Scope(),
        emit=emit,
        retrieve=retrieve,
    )
    seconds, states = [], set()
    for number in range(1 + ROUNDS):
        answer = await brief_context(Question(f"What is number {number}?"), context)
        seconds.append(time.perf_counter() - began)
        states.add(answer.state)
    await model.aclose()
    return statistics.median(seconds[1:]), ", ".join(sorted(states))


def partitions(delay: float, counts: Sequence[int], concurrency: int) -> None:
    """Prints the ratio to the delay for each number of partitions, and what it would be with nothing but delays."""
    print(f"\nconcurrency {concurrency}, delay {delay} s, median of {ROUNDS} questions\n")
    print("| partitions | delays | at least | states |\n|---|---|---|---|")
    for count in counts:
        with served(delay) as server:
            seconds, states = asyncio.run(_question_seconds(server.url, count, concurrency))
        least = -(-count // concurrency) + 1
        print(f"| {count} | {seconds / delay:.2f} | {least} | {states} |")


# -- rivals -----------------------------------------------------------------------------------------------------------


def documents(count: int) -> list[str]:
    """Made texts of an abstract's length, the same in every run."""
    draw = random.Random(0)
    return [f"Abstract {i}. " + " ".join(draw.choices(WORDS, k=200)) + "." for i in range(count)]


def _ran(python: str, script: str, job: Job, delay: float) -> dict[str, Any]:
    """What the script tells, and what its server saw of the questions after the warm-up."""
    command = [str(Path(python).absolute()), "-m", f"rivals.{script}"]
    with served(delay) as server:
        process = subprocess.Popen(
            command, cwd=Path(__file__).parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(asdict(replace(job, url=server.url))) + "\n")
        if not process.stdout.readline():
            raise SystemExit(f"{script} ended with code {process.wait()} before it was warm; its error stands above")
        before = server.ledger()
        process.stdin.write("\n")
        told: dict[str, Any] = json.loads(process.stdout.readline())
        process.wait()
        after = server.ledger()
    tokens = [entry.told_prompt_tokens + entry.told_completion_tokens for entry in (before, after)]
    return told | {
        "calls": after.calls - before.calls,
        "most": after.most_in_flight,
        "server_tokens": tokens[1] - tokens[0],
    }


def rivals(pythons: Mapping[str, str], delay: float, partition: int) -> None:
    """Prints many questions at once, the scripts in turn in each round, then one question with a low limit."""
    many = Job("", MODEL, documents(16), [f"What is number {i}?" for i in range(50)], partition, 64)
    runs: dict[str, list[dict[str, Any]]] = {script: [] for script in pythons}
    for _ in range(ROUNDS):
        for script, python in pythons.items():
            runs[script].append(_ran(python, script, many, delay))
    one = replace(many, questions=["What is one?"], limit=8)
    alone = {script: _ran(python, script, one, delay) for script, python in pythons.items()}
    print(f"\n16 documents, {partition} a map call; 50 questions at once, 64 calls asked for; delay {delay} s\n")
    print(
        "| | answered | seconds | calls a question | calls a second | CPU ms a call | most in flight (64 asked) "
        "| tokens counted / told | one question: most in flight (8 asked) |\n|---|---|---|---|---|---|---|---|---|"
    )
    for script, rounds in runs.items():
        seconds, cpu = (statistics.median(told[key] for told in rounds) for key in ("seconds", "cpu_seconds"))
        last = rounds[-1]
        calls, most = last["calls"], max(told["most"] for told in rounds)
        print(
            f"| {script} | {last['answered']} | {seconds:.2f} | {calls / len(many.questions):.1f} "
            f"| {calls / seconds:,.0f} | {1000 * cpu / calls:.2f} | {most} "
            f"| {last['tokens']:,} / {last['server_tokens']:,} | {alone[script]['most']} |"
        )
    print()
    for script, rounds in runs.items():
        print(f"{script}: {rounds[0]['versions']}; limit: {rounds[0]['setting']}")


def main() -> None:
    """Measures what is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("clients", "partitions", "rivals"))
    parser.add_argument("pythons", nargs="*", metavar="SCRIPT=PYTHON", help="of rivals: a script and its interpreter")
    parser.add_argument("--delay", type=float, help="seconds before each reply (0.1; of partitions 0.5)")
    parser.add_argument("--calls", type=int, default=1000, help="of clients: calls a round")
    parser.add_argument("--partition", type=int, default=1, help="of rivals: documents a map call")
    options = parser.parse_intermixed_args()
    if options.what == "clients":
        clients(options.delay or 0.1, (64, 256), options.calls)
    elif options.what == "partitions":
        partitions(options.delay or 0.5, (2, 4, 8, 16), concurrency=8)
    else:
        named = dict(text.split("=", 1) for text in options.pythons)
        rivals({"brief_context": sys.executable} | named, options.delay or 0.1, options.partition)


if __name__ == "__main__":
    main()
