"""Long records: how fast they are added, searched and read whole, and what memory that takes.

    python benchmarks/record_search.py FOLDER [PATIENTS] [TOKENS] [ENCODER]

The records are generated, of words that mean nothing; tokens are those of the encoder's tokenizer, TOKENS a patient at
least. Without an encoder's name vectors are hashed words, so that the figures are those of the library alone.
"""

from __future__ import annotations

import random
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from epicrisis.core.protocols import Encoder
from epicrisis.core.types import Document, Scope
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.models.encoders import load_encoder
from epicrisis.retrieval.retriever import Retriever
from epicrisis.settings.configuration import load_settings
from epicrisis.testing.hashing_encoder import HashingEncoder

WORDS = 20_000
NOTE_WORDS = 1_500
SEARCHES = 300
SYLLABLES = [a + b for a in "bcdfglmnprstv" for b in ("a", "e", "i", "o", "u", "er", "on")]


def vocabulary() -> list[str]:
    draw = random.Random(0)
    return ["".join(draw.choices(SYLLABLES, k=draw.randint(1, 4))) for _ in range(WORDS)]


def notes(patients: int, tokens: int, encoder: Encoder) -> Iterator[Document]:
    """Each patient's notes, a week apart, until the record has so many tokens. Frequent words are frequent."""
    words = vocabulary()
    weights = [1 / (rank + 10) for rank in range(WORDS)]
    for patient in range(patients):
        draw, have, number = random.Random(patient), 0, 0
        while have < tokens:
            drawn = draw.choices(words, weights, k=NOTE_WORDS)
            text = " ".join(f"{word}." if place % 12 == 11 else word for place, word in enumerate(drawn))
            date = f"{2100 + number // 52}-{number // 4 % 12 + 1:02}-{number % 4 * 7 + 1:02}T08:00"
            have += len(encoder.token_spans(text))
            yield Document(f"note:{patient}-{number}", text, source="notes", date=date, patient=str(patient))
            number += 1


def timed(calls: int, call: Callable[[int], object]) -> str:
    """Milliseconds at the median and the 95th percentile, the first call left out."""
    call(0)
    spent = []
    for number in range(calls):
        begun = time.perf_counter()
        call(number)
        spent.append((time.perf_counter() - begun) * 1000)
    return f"p50 {statistics.median(spent):.1f} ms, p95 {statistics.quantiles(spent, n=20)[-1]:.1f} ms ({calls} calls)"


def main(folder: Path, patients: int, tokens: int, name: str | None) -> None:
    if name is None:
        encoder: Encoder = HashingEncoder(384, 512)
    else:
        encoder = load_encoder(name, load_settings().home, None)
    begun = time.perf_counter()
    with open_or_create(folder, encoder, name or "hashing", chunk_tokens=min(512, encoder.max_tokens)) as library:
        report = add_documents(library, notes(patients, tokens, encoder), encoder)
    seconds = time.perf_counter() - begun
    rate = patients * tokens / seconds
    say(f"{report.added} notes, {report.passages} passages in {seconds:.0f} s: {rate:.0f} tokens a second")
    words = vocabulary()

    def question(number: int) -> str:
        return " ".join(random.Random(-1 - number).choices(words[:2000], k=8))

    with LibraryStore.open(folder) as library:
        retriever = Retriever(library, encoder, fusion_times=2)

        def scope(number: int) -> Scope:
            return Scope(patient=str(number % patients))

        for by in ("dense", "bm25", "hybrid"):
            told = timed(SEARCHES, lambda n, by=by: retriever.rank(question(n), 15, by, scope(n)))  # type: ignore[misc]
            say(f"{by}, 15 chunks: {told}")
        say(f"hybrid, 5 notes: {timed(SEARCHES, lambda n: retriever.notes(question(n), 5, 'hybrid', scope(n)))}")
        say(f"record whole: {timed(SEARCHES // 3, lambda n: retriever.record(scope(n)))}")
    say(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    given = sys.argv[1:]
    patients, tokens = (int(given[place]) if given[place:] else usual for place, usual in ((1, 100), (2, 128_000)))
    main(Path(given[0]), patients, tokens, given[3] if given[3:] else None)
