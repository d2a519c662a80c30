"""What BriefContext makes the embedded model compute, beside plain RAG over the same passages: tokens sent, tokens
computed (sent less those the server took from its cache, by its own count), and seconds.

Every question begins with a cold cache in every arm: a new server.

    EPICRISIS_DATA=... python benchmarks/prefix_cache.py FOLDER [--model NAME] [--questions N] [-k 8 16] [--check]
    EPICRISIS_DATA=... python benchmarks/prefix_cache.py FOLDER --prefix-cache off --check

Questions of MedQA whose cases are long, over whole abstracts of up to 300 words, found by BM25: what all map prompts
begin with is then at least a fifth of each. Resumable: what has a row in the folder is not run again. `--check` ends
with an error where BriefContext computes more than 1.15 times what plain RAG does, as it does without the prefix cache,
or where the prompts share less. Says nothing of quality.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from epicrisis.answering.map_reduce import map_reduce
from epicrisis.answering.strategies.rag import rag
from epicrisis.answering.strategy_context import Context
from epicrisis.core.answers import Answer, Event, ModelCalled, Usage
from epicrisis.core.types import Document, Question, Ranking, Scope
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.models.chat.embedded import EmbeddedModel
from epicrisis.models.model_files import find_model
from epicrisis.retrieval.retriever import Retriever
from epicrisis.settings.configuration import load_settings
from epicrisis.settings.settings import AnswerOptions
from epicrisis.testing.hashing_encoder import HashingEncoder

MOST = 1.15
LEAST_SHARED = 0.2
LEAST_WORDS = 220
"""Of a question."""
MOST_WORDS = 300
"""Of an abstract."""
PARTITIONS = (2, 8)


@dataclass(frozen=True, slots=True)
class Row:
    """One question in one arm. `shared`: the part of the map prompts that all of them begin with; 0 for plain RAG.
    `parts`: how many map calls found something."""

    key: str
    arm: str
    sent: int
    computed: int
    reduce_sent: int
    reduce_computed: int
    written: int
    seconds: float
    """From the question to its answer, the model loaded already."""
    state: str
    shared: float
    parts: int


def long_questions(n: int) -> list[Question]:
    """The first of MIRAGE's MedQA whose cases have LEAST_WORDS."""
    file = Path(os.environ["EPICRISIS_DATA"]) / "mirage" / "benchmark.json"
    rows = json.loads(file.read_text(encoding="utf-8"))["medqa"]
    long = (row for _, row in sorted(rows.items()) if len(row["question"].split()) >= LEAST_WORDS)
    return [Question(row["question"], options=row["options"], form="choice") for row in itertools.islice(long, n)]


def library_in(folder: Path) -> LibraryStore:
    """The abstracts, whole, for searching by words alone."""
    encoder = HashingEncoder()
    library = open_or_create(folder / "library", encoder, "hashing", splitter="whole")
    if not library.count()[0]:
        add_documents(library, abstracts(Path(os.environ["EPICRISIS_DATA"])), encoder)
    return library


def abstracts(data: Path) -> Iterator[Document]:
    """Those with a PMID and MOST_WORDS, in the order of the file; of two with one PMID the first."""
    seen = set()
    with gzip.open(data / "abstracts" / "abstracts.jsonl.gz", "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            if row["pmid"] and row["pmid"] not in seen and len(row["text"].split()) <= MOST_WORDS:
                seen.add(row["pmid"])
                yield Document(f"pubmed:{row['pmid']}", row["text"], title=row["title"], source="pubmed")


def arms(k: int, *, cached: bool) -> Iterator[tuple[str, int]]:
    """Name and number of partitions (0: plain RAG, to which a cold prefix cache is none)."""
    yield f"k={k} rag", 0
    for count in PARTITIONS:
        yield f"k={k} M={count}" + ("" if cached else ", no prefix cache"), count


async def one(
    options: argparse.Namespace, home: Path, question: Question, ranking: Ranking, label: str, count: int
) -> Row:
    """The question, answered by a model that has read nothing before."""
    calls: list[ModelCalled] = []

    def emit(event: Event) -> None:
        if isinstance(event, ModelCalled):
            calls.append(event)

    async def retrieve(_: Question) -> Ranking:
        return ranking

    file = find_model(options.model, "chat", home).files["model.gguf"]
    model = EmbeddedModel(file, options.model, prefix_cache=options.prefix_cache == "on")
    try:
        await model.capabilities()
        context = Context(
            models=dict.fromkeys(("writer", "map", "reduce"), model),
            scope=Scope(),
            emit=emit,
            retrieve=retrieve,
            options=AnswerOptions(
                citing="quotes",
                describe_sources=False,
                partition=-(-len(ranking.passages) // count) if count else len(ranking.passages),
            ),
        )
        started = time.monotonic()
        answer = await (map_reduce(question, context, ranking.passages) if count else rag(question, context))
        seconds = time.monotonic() - started
    finally:
        await model.aclose()
    return row_of(question, label, answer, calls, seconds)


def row_of(question: Question, arm: str, answer: Answer, calls: list[ModelCalled], seconds: float) -> Row:
    total = sum((call.usage for call in calls), Usage())
    maps = [call.usage for call in calls if call.stage.startswith("map ")]
    last = sum((call.usage for call in calls if call.stage == "reduce"), Usage())
    # The first map call finds nothing in the cache; what the others find there is what they share with it.
    shared = statistics.fmean(usage.cached_tokens / usage.prompt_tokens for usage in maps[1:]) if maps[1:] else 0.0
    return Row(
        key=question.key,
        arm=arm,
        sent=total.prompt_tokens,
        computed=total.prompt_tokens - total.cached_tokens,
        reduce_sent=last.prompt_tokens,
        reduce_computed=last.prompt_tokens - last.cached_tokens,
        written=total.completion_tokens,
        seconds=seconds,
        state=answer.state,
        shared=shared,
        parts=sum(partial.state == "relevant" for partial in answer.partials),
    )


async def measure(options: argparse.Namespace, output: Path) -> list[Row]:
    """All rows, those of an earlier run included."""
    rows = [Row(**json.loads(line)) for line in output.read_text().splitlines()] if output.exists() else []
    done = {(row.key, row.arm) for row in rows}
    home = load_settings({}).home
    library = library_in(options.folder)
    retriever = Retriever(library, None)
    try:
        for question in long_questions(options.questions):
            ranking = retriever.rank(question.text, max(options.k), "bm25", Scope())
            for k in options.k:
                for label, count in arms(k, cached=options.prefix_cache == "on"):
                    if (question.key, label) in done:
                        continue
                    row = await one(options, home, question, Ranking(ranking.hits[:k], "bm25"), label, count)
                    rows.append(row)
                    with output.open("a") as out:
                        out.write(json.dumps(asdict(row)) + "\n")
                    print(row, file=sys.stderr, flush=True)
    finally:
        library.close()
    return rows


def table(rows: list[Row], options: argparse.Namespace) -> tuple[list[str], list[str]]:
    """The lines of a table of means a question, and what does not hold."""
    head = ("arm", "n", "sent", "of it reduce", "x RAG", "computed", "of it reduce", "x RAG", "shared", "written", "s")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    wrong = []
    cached = options.prefix_cache == "on"
    for k in options.k:
        plain = {row.key: row for row in rows if row.arm == f"k={k} rag"}
        for label, count in arms(k, cached=cached):
            found = [row for row in rows if row.arm == label]
            base = [plain[row.key] for row in found]
            sent, computed = (total(found, name) / total(base, name) for name in ("sent", "computed"))
            shared = statistics.fmean(row.shared for row in found)
            cells = (
                label,
                len(found),
                f"{mean(found, 'sent'):.0f}",
                f"{mean(found, 'reduce_sent'):.0f}",
                f"{sent:.2f}",
                f"{mean(found, 'computed'):.0f}",
                f"{mean(found, 'reduce_computed'):.0f}",
                f"{computed:.2f}",
                f"{shared:.0%}" if count and cached else "",
                f"{mean(found, 'written'):.0f}",
                f"{mean(found, 'seconds'):.1f}",
            )
            lines.append(f"| {' | '.join(map(str, cells))} |")
            if not count:
                continue
            if cached and shared < LEAST_SHARED:
                wrong.append(f"{label}: the prompts share {shared:.0%} of a map prompt, too little to show anything")
            if computed > MOST:
                wrong.append(f"{label} computes {computed:.2f} times what plain RAG does, more than {MOST}")
    return lines, wrong


def mean(rows: list[Row], name: str) -> float:
    return statistics.fmean(getattr(row, name) for row in rows)


def total(rows: list[Row], name: str) -> float:
    return float(sum(getattr(row, name) for row in rows))


def main() -> None:
    """Measures, prints the table, and checks it where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default="qwen2.5-coder-0.5b")
    parser.add_argument("--questions", type=int, default=10)
    parser.add_argument("-k", type=int, nargs="+", default=[8, 16])
    parser.add_argument("--prefix-cache", choices=("on", "off"), default="on")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    rows = asyncio.run(measure(options, options.folder / f"{options.model}.jsonl"))
    lines, wrong = table(rows, options)
    print(f"{options.model}, {options.questions} questions")
    print("\n".join(lines))
    if options.check and wrong:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()
