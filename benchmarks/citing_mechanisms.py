"""Copied quotations against sentence numbers: PubMedQA, k = 4, the key abstract at each of the four places in turn.

Both mechanisms read the same four abstracts in the same order. Resumable: started again, it asks only questions without
a record in the folder.

    EPICRISIS_DATA=... python benchmarks/citing_mechanisms.py FOLDER [MODEL [ARM...]]
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pubmedqa_answers import library_in

from epicrisis.core.answers import Citation
from epicrisis.core.types import Question, Scope
from epicrisis.corpus.readers.question_files import read_questions
from epicrisis.evaluation.experiments.placement import place_keys
from epicrisis.pipeline.overrides import RunOverrides
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.pipeline.question_evidence import build_context
from epicrisis.pipeline.recording.answer_record import RunRecord, read_records
from epicrisis.pipeline.recording.case import Case
from epicrisis.pipeline.recording.runner import RecordStore, answer_cases
from epicrisis.settings.configuration import load_settings

QUESTIONS = 40
K = 4
ARMS: dict[str, dict[str, object]] = {
    "quotes": {"strategy": "rag", "citing": "quotes"},
    "numbers": {"strategy": "rag", "citing": "numbers"},
    "focused-quotes": {"strategy": "focused", "citing": "quotes"},
    "focused-numbers": {"strategy": "focused", "citing": "numbers"},
}
HEADER = (
    "| model | arm | n | answered | abstained | failed | right | right by place of the key, 1st to 4th | citations "
    "| verbatim | from the key abstract | prompt tokens | completion tokens | seconds |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"
)


async def build_cases(pipeline: Pipeline, questions: Sequence[Question]) -> list[Case]:
    """Return one case per question: its own abstract among the three nearest others, at places 1, 2, 3, 4, 1, ..."""
    context = build_context(pipeline, lambda event: None, Scope())
    cases: list[Case] = []
    for question in questions:
        passages = (await context.retrieve(question)).passages
        key = question.gold_documents[0]
        keys = [passage for passage in passages if passage.document_id == key]
        if not keys:
            continue
        place = len(cases) % K
        ranking = place_keys(keys, passages, K, round(100 * place / (K - 1)), gold=question.gold_documents)
        cases.append(Case(question, {"place": place + 1}, RunOverrides(ranking=ranking)))
        if len(cases) == QUESTIONS:
            break
    return cases


def format_row(model: str, arm: str, records: Sequence[RunRecord]) -> str:
    """Return the row of one arm. Answers withheld for want of a verified quotation count as abstentions."""
    states = Counter(record.answer.state for record in records)
    right: Counter[int] = Counter()
    places: Counter[int] = Counter()
    citations: list[Citation] = []
    from_key = 0
    for record in records:
        answer, place = record.answer, int(record.condition["place"])
        places[place] += 1
        right[place] += answer.state == "answered" and answer.choice == answer.question.gold
        cited = (answer.withheld or answer).citations
        citations += cited
        from_key += sum(
            citation.document_id in answer.question.gold_documents for citation in cited if citation.verified
        )
    n = len(records)
    verified = sum(citation.verified for citation in citations)
    by_place = ", ".join(f"{right[place]}/{places[place]}" for place in sorted(places))
    usage = [record.answer.usage for record in records]
    failed = n - states["answered"] - states["abstained"]
    cells: list[object] = [model, arm, n, states["answered"], states["abstained"], failed, right.total(), by_place]
    cells += [len(citations), f"{verified}/{len(citations)}", f"{from_key}/{verified}"]
    cells += [
        f"{sum(row.prompt_tokens for row in usage) / n:.0f}",
        f"{sum(row.completion_tokens for row in usage) / n:.0f}",
    ]
    cells.append(f"{sum(row.seconds for row in usage) / n:.1f}")
    return f"| {' | '.join(map(str, cells))} |"


async def main() -> None:
    """Run every arm and print its row as soon as it is finished."""
    folder = Path(sys.argv[1])
    model = sys.argv[2] if len(sys.argv) > 2 else "qwen2.5-coder-0.5b"
    file = Path(os.environ["EPICRISIS_DATA"]) / "pubmedqa" / "ori_pqal.json"
    folder.mkdir(parents=True, exist_ok=True)
    library = library_in(folder, file)
    questions = [item for item in read_questions(file) if isinstance(item, Question)]
    print(HEADER, flush=True)
    for name in sys.argv[3:] or ARMS:
        settings = load_settings({**ARMS[name], "k": 16, "models": {"writer": {"name": model}}})
        path = folder / f"{Path(model).name}-{name}.jsonl"
        async with Pipeline.open(settings, library) as pipeline:
            records = RecordStore(path, pipeline.recipe())
            async for _ in answer_cases(pipeline, await build_cases(pipeline, questions), records):
                pass
        print(format_row(model, name, list(read_records(path))), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
