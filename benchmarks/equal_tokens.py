"""The experiment `focused` with a reader whose blind spot is known: what each way of reading puts before it, and where.

    EPICRISIS_DATA=... PYTHONPATH=. python benchmarks/equal_tokens.py SET FOLDER [--questions N] [--prompt-tokens N ...]

SET is `evidence-inference/validation`, `pubmedqa` or `med-evidence`. The library and the run are made in FOLDER; the
same command continues them. `epicrisis report FOLDER/run` draws them.

The reader (`tests/support`) answers rightly if it reads a sentence with the answer, and else says that the
documents do not answer. It reads an item of a prompt with a probability that depends only on its place and the number
of items: 0.95 at both ends, down to 0.35 in the middle of 16 or more. So its figures say what a prompt contains and in
which place, and nothing about the skill of a model. The sentences with the answer are

* Evidence Inference: those that share more than half with a span that experts marked; one suffices;
* PubMedQA: those of the results section of the question's own abstract; one suffices;
* MedEvidence: the last sentence of the abstract of every relevant study; all are needed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from epicrisis.core.types import Document, Question
from epicrisis.corpus.base.chunking import find_sentences
from epicrisis.evaluation.analysis.table_text import format_table
from epicrisis.evaluation.datasets.load import load_dataset
from epicrisis.evaluation.experiments.definition import Grid, Request
from epicrisis.evaluation.experiments.planning import add_set_documents, plan_experiment
from epicrisis.evaluation.experiments.registry import find_experiment
from epicrisis.evaluation.experiments.run_findings import read_findings
from epicrisis.evaluation.runs.run_folder import Run
from epicrisis.pipeline.components import open_library_search
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.pipeline.recording.runner import answer_cases
from epicrisis.settings.configuration import load_settings
from epicrisis.settings.settings import ROLES, Settings
from tests.support.position_biased_reader import KeyPassage, position_biased_reader, u_curve

NAME = "position-biased-reader"
MIN_CHARACTERS = 30
"""Shorter sentences are no key: a finding could not quote them recognisably."""
RESULTS = ("RESULT", "FINDING")


def main() -> None:
    """Make the library, answer the questions, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", choices=("evidence-inference/validation", "pubmedqa", "med-evidence"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--questions", type=int)
    parser.add_argument("--prompt-tokens", type=int, nargs="*", default=())
    parser.add_argument("--arm", nargs="*", default=())
    arguments = parser.parse_args()
    data = Path(os.environ["EPICRISIS_DATA"])
    settings = load_settings(
        {
            "strategy": "rag",
            "citing": "quotes",
            "unverified": "keep",
            "cache": {"mode": "off"},
            "models": {"writer": {"name": NAME}},
        }
    )
    grid = Grid(arms=tuple(arguments.arm), prompt_tokens=tuple(arguments.prompt_tokens))
    dataset = load_dataset(arguments.set, settings.home, data)
    n = min(arguments.questions or len(dataset.questions), len(dataset.questions))
    request = Request(sets=(arguments.set,), data=data, questions=n, grid=grid)
    start = time.perf_counter()
    add_set_documents(arguments.folder / "library", request.sets, settings, data)
    print(f"library: {time.perf_counter() - start:.0f} s", flush=True)
    keys = {question.text: tuple(find_keys(question, dataset.documents)) for question in dataset.questions}
    without = sum(not question_keys for question_keys in keys.values())
    print(f"{without} of {len(keys)} questions have no sentence with the answer", flush=True)
    asyncio.run(answer(settings, arguments.folder, request, keys))
    (findings,) = read_findings([arguments.folder / "run"])
    for table in findings.tables:
        print(format_table(table), end="\n\n")
    print("\n".join(findings.conclusions))


async def answer(
    settings: Settings, folder: Path, request: Request, keys: Mapping[str, tuple[KeyPassage, ...]]
) -> None:
    """Answer the cases that have no record yet."""
    reader = position_biased_reader(keys, u_curve())
    with open_library_search(settings, folder / "library") as search:
        async with Pipeline(settings, dict.fromkeys(ROLES, reader), search) as pipeline:
            start = time.perf_counter()
            plan, cases = plan_experiment(find_experiment("focused"), request, settings, pipeline)
            print(f"{len(cases)} cases: {time.perf_counter() - start:.0f} s", flush=True)
            start = time.perf_counter()
            with Run.open(folder / "run", plan, cases) as run:
                async for _ in answer_cases(pipeline, cases, run.records):
                    pass
                run.close()
            print(f"answers: {time.perf_counter() - start:.0f} s", flush=True)


def find_keys(question: Question, documents: Mapping[str, Document]) -> Iterator[KeyPassage]:
    """Yield the keys of a question, each of one or more sentences with the answer."""
    gold = question.gold or ""
    if question.evidence:
        for text in sorted(list_marked_sentences(question, documents)):
            yield KeyPassage(text, gold)
        return
    sources = [documents[id_] for id_ in question.gold_documents]
    if all("labels" in source.metadata for source in sources):
        for source in sources:
            for text in list_results(source):
                yield KeyPassage(text, gold)
        return
    last = [list_sentences(source.text)[-1] for source in sources]
    if last:
        yield KeyPassage(last[0], gold, also_needs=tuple(last[1:]))


def list_marked_sentences(question: Question, documents: Mapping[str, Document]) -> set[str]:
    """Return the sentences that share more than half of the shorter one with a marked span."""
    texts: set[str] = set()
    for span in question.evidence:
        text = documents[span.document_id].text
        for start, end in find_sentences(text):
            shared = min(end, span.end) - max(start, span.start)
            is_long = end - start >= MIN_CHARACTERS
            if is_long and shared > min(end - start, span.end - span.start) / 2:
                texts.add(text[start:end].strip())
    return texts


def list_results(document: Document) -> list[str]:
    """Return the sentences of the results section of a PubMedQA abstract, or of all sections if none is labelled."""
    labels = list(map(str, document.metadata["labels"]))
    paragraphs = document.text.split("\n")
    chosen: list[str] = []
    for label, paragraph in zip(labels, paragraphs, strict=False):
        if any(word in label.upper() for word in RESULTS):
            chosen += list_sentences(paragraph)
    return chosen or list_sentences(document.text)


def list_sentences(text: str) -> list[str]:
    """Return the sentences of a text that are long enough for a key, or the whole text without one."""
    sentences = [text[start:end].strip() for start, end in find_sentences(text)]
    return [sentence for sentence in sentences if len(sentence) >= MIN_CHARACTERS] or [text]


if __name__ == "__main__":
    main()
