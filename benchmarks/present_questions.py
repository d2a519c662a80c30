"""Questions about the present of a patient: whether the sentence shown first is current or outdated. No chat model.

    python benchmarks/present_questions.py FOLDER [--list]

Eight fictional records of 71 notes, in which doses, values and circumstances change, with 40 questions about the
present and 16 others, were written by hand by a writer who knew nothing of the program. Parts of sentences are marked
as current or outdated.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from epicrisis import Library
from epicrisis.core.types import Question
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.settings.configuration import load_settings

RECORDS = Path(__file__).with_suffix("")


def find_first(sentences: Sequence[str], parts: Sequence[str]) -> int:
    """Return the place of the first sentence with one of the parts, or the number of sentences."""
    return next((n for n, text in enumerate(sentences) if any(part in text for part in parts)), len(sentences))


async def read_places(library: Path) -> list[tuple[dict[str, Any], list[str]]]:
    """Return each question with the sentences that are shown, in order."""
    rows = [json.loads(line) for line in (RECORDS / "questions.jsonl").read_text("utf-8").splitlines()]
    shown: list[tuple[dict[str, Any], list[str]]] = []
    async with Pipeline.open(load_settings({"strategy": "evidence"}), library) as pipeline:
        for number, row in enumerate(rows):
            answer = await pipeline.answer(Question(row["question"], id=str(number), patient=row["patient"]))
            cited = sorted(answer.citations, key=lambda citation: citation.number)
            shown.append((row, [citation.quotation for citation in cited]))
    return shown


def main() -> None:
    """Print how often what is asked for stands first, and before anything outdated."""
    library = Path(sys.argv[1])
    if not library.exists():
        with Library.create(library) as made:
            made.add(RECORDS / "notes.jsonl")
    counts = {False: Counter[str](), True: Counter[str]()}
    for row, sentences in asyncio.run(read_places(library)):
        current, outdated = find_first(sentences, row["current"]), find_first(sentences, row["outdated"])
        count = counts[bool(row.get("control"))]
        count["questions"] += 1
        count["first"] += current == 0 and bool(sentences)
        count["among three"] += current < min(3, len(sentences))
        count["outdated before it"] += outdated < current
        if outdated < current and "--list" in sys.argv:
            print(row["question"], "|", sentences[0])
    for is_control, count in counts.items():
        print("others" if is_control else "about the present", dict(count))


if __name__ == "__main__":
    main()
