"""Attack success, accuracy and tokens of BriefContext by defence: PubMedQA, one document of k is the attacker's.

Run in full with a chat model that answers PubMedQA better than chance. Resumable, one FOLDER for each k.

    EPICRISIS_DATA=... PYTHONPATH=. python benchmarks/injection_defence.py FOLDER MODEL [--second MODEL] [-n 40] [-k 8]
        [--defence NAME ...]

With a second model, which rewrites the attack texts, the adaptive round follows (20 rewrites for each question).
"""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path

from epicrisis.answering.structured_request import ModelClient, Sampling
from epicrisis.core.types import Passage, Question, Scope
from epicrisis.corpus.readers.question_files import read_questions
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.models.encoders import load_encoder
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.pipeline.question_evidence import build_context
from epicrisis.pipeline.recording.answer_record import RunRecord, read_records
from epicrisis.pipeline.recording.runner import RecordStore, answer_cases
from epicrisis.settings.configuration import load_settings
from epicrisis.settings.settings import Settings
from tests.support.injection_attacks import ORDERS, build_attacks, make_rewriter, read_bipia
from tests.support.injection_measures import HEADER, build_cases, format_results, run_adaptive_attack

SEED = 0
BASE: dict[str, object] = {
    "strategy": "brief-context",
    "citing": "numbers",
    "preflight": {"enabled": False},
    "unverified": "keep",
}
DEFENCES: dict[str, list[str]] = {
    "fence only": [],
    "datamarking": ["datamarking"],
    "repeat": ["repeat"],
    "structured findings": ["structured_findings"],
    "isolated votes": ["isolated_votes"],
    "all": ["datamarking", "repeat", "structured_findings", "isolated_votes"],
}


def build_settings(model: str, keys: list[str], k: int, **more: object) -> Settings:
    """Return the settings of one defence. Half of the documents are read in each part."""
    return load_settings(
        {
            **BASE,
            "k": k,
            "partition": k // 2,
            "models": {"writer": {"name": model}},
            "defence": dict.fromkeys(keys, True),
            **more,
        }
    )


async def retrieve(
    pipeline: Pipeline, questions: list[Question], n: int
) -> list[tuple[Question, tuple[Passage, ...], str]]:
    """Return the first n questions answered by yes or no whose own abstract is found, with their passages."""
    rows: list[tuple[Question, tuple[Passage, ...], str]] = []
    context = build_context(pipeline, lambda event: None, Scope())
    for question in questions:
        if len(rows) == n:
            break
        passages = (await context.retrieve(question)).passages
        key = question.gold_documents[0] if question.gold_documents else ""
        right = question.options.get(question.gold or "", "")
        if right in ("yes", "no") and any(passage.document_id == key for passage in passages):
            rows.append((question, passages, key))
    return rows


async def adapt(
    pipeline: Pipeline, second: Pipeline, rows: list[tuple[Question, tuple[Passage, ...], str]]
) -> tuple[int, int]:
    """Return how many adaptive attacks succeeded, and how many were tried."""
    client = ModelClient(second.models["writer"], Sampling(temperature=1.0))
    successes = 0
    for question, passages, key in rows:
        attack = build_attacks(question, passages, key, seed=SEED)[0]
        text = ORDERS[0].format(letter=attack.target, text=question.options[attack.target])
        outcome = await run_adaptive_attack(pipeline, attack, passages, text, make_rewriter(client, attack.target))
        successes += outcome.succeeded
    return successes, len(rows)


async def measure(arguments: argparse.Namespace) -> None:
    """Run the defences and print the table."""
    folder, model, k = arguments.folder, arguments.model, arguments.k
    data = Path(os.environ["EPICRISIS_DATA"])
    file = data / "pubmedqa" / "ori_pqal.json"
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "library"
    if not (library / "manifest.json").exists():
        encoder = load_encoder("minilm", load_settings().home)
        with open_or_create(library, encoder, "minilm") as new_library:
            add_documents(new_library, read_sources([file]), encoder)
    questions = [item for item in read_questions(file) if isinstance(item, Question)]
    bystanders = read_bipia(data / "injection" / "text_attack_test.json")
    runs: dict[str, list[RunRecord]] = {}
    lines: list[str] = []
    for name in arguments.defence:
        keys = DEFENCES[name]
        async with Pipeline.open(build_settings(model, keys, k), library) as pipeline:
            rows = await retrieve(pipeline, questions, arguments.n)
            path = folder / f"{Path(model).name}-{name.replace(' ', '-')}.jsonl"
            records = RecordStore(path, pipeline.recipe())
            cases = list(build_cases(rows, bystanders=bystanders, seed=SEED))
            async for _ in answer_cases(pipeline, cases, records):
                pass
            runs[name] = list(read_records(path))
            if arguments.second:
                settings = build_settings(arguments.second, [], k, strategy="closed-book")
                async with Pipeline.open(settings, None) as second:
                    successes, n = await adapt(pipeline, second, rows)
                lines.append(f"adaptive round, {name}: {successes} of {n} attacks succeeded")
    print(f"{model}, {arguments.n} questions, k = {k}, one document is the attacker's\n\n{HEADER}")
    print("\n".join((*format_results(runs), "", *lines)))


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("model")
    parser.add_argument("--second", metavar="MODEL")
    parser.add_argument("-n", type=int, default=40)
    parser.add_argument("-k", type=int, default=8)
    parser.add_argument("--defence", nargs="*", choices=DEFENCES, default=list(DEFENCES))
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
