"""PubMedQA questions, k = 8, answered by a real model: plain RAG, BriefContext and focused, with tokens and seconds.

`map-reduce` is BriefContext without its preflight, so that every question is read in parts. The arms `...-kept` count
answers without a verified quotation; they read the same replies, out of the cache.

Says that the machinery is real, and nothing of quality: the models are small and the sample smaller. Resumable: killed
and started again it asks only what has no record in the folder.

    EPICRISIS_DATA=... python benchmarks/pubmedqa_answers.py FOLDER [MODEL [N [ARM...]]]
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from pathlib import Path

from epicrisis.core.types import Question
from epicrisis.corpus.readers.question_files import read_questions
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.models.encoders import load_encoder
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.pipeline.recording.runner import RecordStore, answer_questions
from epicrisis.settings.configuration import load_settings
from epicrisis.settings.settings import Settings

QUESTIONS = 30
K = 8
ARMS: dict[str, dict[str, object]] = {
    "rag": {"strategy": "rag", "citing": "quotes"},
    "rag-unverified-kept": {"strategy": "rag", "citing": "quotes", "unverified": "keep"},
    "map-reduce": {"strategy": "brief-context", "citing": "quotes", "preflight": {"enabled": False}},
    "brief-context": {"strategy": "brief-context", "citing": "quotes"},
    "focused": {"strategy": "focused", "citing": "numbers", "sentences": 5},
    "brief-context-unverified-kept": {"strategy": "brief-context", "citing": "quotes", "unverified": "keep"},
}


def library_in(folder: Path, file: Path) -> Path:
    """The library of all 1,000 abstracts, made if it is not there."""
    path = folder / "library"
    if not (path / "manifest.json").exists():
        encoder = load_encoder("minilm", load_settings().home)
        with open_or_create(path, encoder, "minilm") as made:
            add_documents(made, read_sources([file]), encoder)
    return path


async def run(settings: Settings, library: Path, questions: list[Question], output: Path) -> None:
    """Records every question that has no record yet."""
    async with Pipeline.open(settings, library) as pipeline:
        records = RecordStore(output, pipeline.recipe())
        async for _ in answer_questions(pipeline, questions, records):
            pass


def summary(name: str, output: Path) -> str:
    """One row: states, right ones, tokens and seconds a question."""
    answers = [json.loads(line)["answer"] for line in output.read_text(encoding="utf-8").splitlines()]
    states = Counter(answer["state"] for answer in answers)
    right = sum(answer["state"] == "answered" and answer["choice"] == answer["question"]["gold"] for answer in answers)
    withheld = [answer for answer in answers if answer["withheld"]]
    withheld_right = sum(answer["withheld"]["choice"] == answer["question"]["gold"] for answer in withheld)
    cited = [citation for answer in answers for citation in (answer["withheld"] or answer)["citations"]]
    verified = sum(citation["verified"] for citation in cited)
    n = len(answers)
    usage = [answer["usage"] for answer in answers]
    prompt, cached, completion = (
        sum(row[f"{kind}_tokens"] for row in usage) / n for kind in ("prompt", "cached", "completion")
    )
    seconds = sum(row["seconds"] for row in usage) / n
    counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    kept_back = f"{len(withheld)} ({withheld_right})"
    cells = (name, n, counts, right, kept_back, f"{verified}/{len(cited)}", f"{prompt:.0f} ({cached:.0f})")
    return f"| {' | '.join(map(str, cells))} | {completion:.0f} | {seconds:.1f} |"


def main() -> None:
    """Runs every arm and prints the table."""
    folder = Path(sys.argv[1])
    model = sys.argv[2] if len(sys.argv) > 2 else "smollm2-135m"
    file = Path(os.environ["EPICRISIS_DATA"]) / "pubmedqa" / "ori_pqal.json"
    folder.mkdir(parents=True, exist_ok=True)
    library = library_in(folder, file)
    n = int(sys.argv[3]) if len(sys.argv) > 3 else QUESTIONS
    questions = [item for item in read_questions(file) if isinstance(item, Question)][:n]
    rows = []
    for name in sys.argv[4:] or ARMS:
        settings = load_settings({**ARMS[name], "k": K, "models": {"writer": {"name": model}}})
        output = folder / f"{Path(model).name}-{name}.jsonl"
        asyncio.run(run(settings, library, questions, output))
        rows.append(summary(name, output))
    print(f"{model}, {n} questions, k = {K}")
    print(
        "| arm | n | states | right | withheld (would be right) | quotations verified | prompt tokens (cached) "
        "| completion tokens | seconds |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
