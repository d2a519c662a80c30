"""Train the models of `epicrisis.reading`, and write their files and their model card.

    EPICRISIS_DATA=... python training/train_reader.py

Fifteen minutes on two cores. The same data, versions and machine give the same files.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import train_directions
import train_ranker
import train_relevance
import train_roles
from examples import TEMPLATES, Set, load_covid_qa, load_evidence_inference, load_own_words, load_scifact
from list_common_words import list_common_words
from train_ranker import Ranked, rank_within

import epicrisis
from epicrisis.evaluation.analysis.statistics import estimate_mean
from epicrisis.reading.directions import read_effect
from epicrisis.reading.ranker import load_ranker
from epicrisis.reading.roles import STATES_RESULTS

FOLDER = Path(epicrisis.__file__).parent / "reading" / "weights"
KS = (1, 3, 8)
UNLIKELY = 0.1
"""A lower probability that a document answers is counted as stopped, in the card."""


def main() -> None:
    """Train, write the files, measure on other articles, and write the card."""
    data = Path(os.environ["EPICRISIS_DATA"])
    FOLDER.mkdir(exist_ok=True)
    # The roles of sentences are features of the ranker, and the common words those of documents.
    train_roles.train(data).save(FOLDER / "roles.npz")
    (FOLDER / "common_words.txt").write_text("\n".join(list_common_words(data)) + "\n", "utf-8")
    train_ranker.train(list(train_ranker.list_training(data))).save(FOLDER / "evidence_ranker.npz")
    train_relevance.train(list(train_relevance.list_training(data))).save(FOLDER / "relevance.npz")
    train_directions.train(train_directions.load_marked(data, "train")).save(FOLDER / "directions.npz")
    write_card([*measure_ranker(data), *measure_directions(data), *measure_roles(data), *measure_relevance(data)])


def measure_ranker(data: Path) -> Iterable[str]:
    """Yield a row of the card for each set that did not train."""
    sets: dict[str, Set] = {}
    for template in TEMPLATES:
        form = template.format(i="I", c="C", o="O")
        sets[f'Evidence Inference validation, "{form}"'] = load_evidence_inference(data, "validation", 7, [template])
    sets["SciFact validation, within the abstract"] = load_scifact(data, "validation")
    sets["COVID-QA, 38 articles, within the article"] = load_covid_qa(data)[1]
    sets["Own words, abstracts of PubMedQA, within the abstract"] = load_own_words(data)[1]
    for name, split in sets.items():
        ranked = list(rank_within(split))
        places = [np.argsort(-load_ranker().score_rows(question.rows), kind="stable") for question in ranked]
        hits = [float(question.shown[order[:3]].any()) for question, order in zip(ranked, places, strict=True)]
        cells = [name, str(len(ranked)), format_mean(hits, ranked)]
        for k in KS:
            recalls = [recall(question, order[:k]) for question, order in zip(ranked, places, strict=True)]
            cells.append(format_mean(recalls, ranked))
        yield "| " + " | ".join(cells) + " |"


def recall(question: Ranked, order: npt.NDArray[np.int64]) -> float:
    """Return the share of the marked spans that one of these sentences shows."""
    return float(question.shown[order].any(axis=0).mean())


def measure_directions(data: Path) -> Iterable[str]:
    """Yield the accuracy of directions of marked passages, and that from the threshold on."""
    marked = train_directions.load_marked(data, "validation")
    pairs = [(prompt, read_effect(text, prompt.comparison)) for prompt in marked for text in prompt.texts]
    yield ""
    yield "| directions: marked passages of Evidence Inference validation | passages | right |"
    yield "|---|---|---|"
    for threshold in (0.0, 0.7, 0.8, 0.9, 0.95):
        said = [(prompt, effect) for prompt, effect in pairs if effect.probability >= threshold]
        right = [float(effect.direction == prompt.direction) for prompt, effect in said]
        mean = estimate_mean(right, [prompt.article for prompt, _ in said])
        name = "all" if not threshold else f"probability {threshold} or more"
        yield f"| {name} | {len(said)} | {mean.value:.3f} [{mean.interval.low:.3f}, {mean.interval.high:.3f}] |"


def measure_roles(data: Path) -> Iterable[str]:
    """Yield how often the words and the place of a sentence tell its role, and whether it states results."""
    yield ""
    yield "| roles by words and place | sentences | role right | called result or conclusion | of them right |"
    yield "|---|---|---|---|---|"
    for name, labelled in train_roles.load_roles(data, "validation").items():
        readings = [(one, train_roles.read_role(one)) for one in labelled]
        right = [float(role == one.role) for one, role in readings]
        called = [one for one, role in readings if role in STATES_RESULTS]
        stated = [float(one.role in STATES_RESULTS) for one in called]
        cells = (
            name,
            str(len(labelled)),
            format_clustered(right, [one.document for one in labelled]),
            str(len(called)),
            format_clustered(stated, [one.document for one in called]),
        )
        yield "| " + " | ".join(cells) + " |"


def measure_relevance(data: Path) -> Iterable[str]:
    """Yield how many questions are stopped with their document and without it."""
    yield ""
    yield f"| questions stopped, no document at {UNLIKELY} or more | searches | with their document | without it |"
    yield "|---|---|---|---|"
    for name, searches in train_relevance.list_measured(data):
        cells = [name, str(len(searches))]
        for is_there in (True, False):
            some = [searched for searched in searches if (searched.own is not None) == is_there]
            stopped = [float(train_relevance.judge(searched).max() < UNLIKELY) for searched in some]
            cells.append(format_clustered(stopped, [searched.document for searched in some]))
        yield "| " + " | ".join(cells) + " |"


def format_clustered(values: Sequence[float], documents: Sequence[str]) -> str:
    """Return the mean with its interval over documents."""
    mean = estimate_mean(values, documents)
    return f"{mean.value:.3f} [{mean.interval.low:.3f}, {mean.interval.high:.3f}]"


def format_mean(values: Sequence[float], ranked: Sequence[Ranked]) -> str:
    """Return the mean with its interval over documents."""
    return format_clustered(values, [question.document for question in ranked])


def write_card(lines: Iterable[str]) -> None:
    """Write the model card with the sizes and hashes of the files."""
    files = []
    for path in sorted((*FOLDER.glob("*.npz"), *FOLDER.glob("*.txt"))):
        content = path.read_bytes()
        files.append(f"| `{path.name}` | {len(content):,} | `{hashlib.sha256(content).hexdigest()}` |")
    template = (Path(__file__).parent / "model_card.md").read_text("utf-8")
    text = template.replace("{files}", "\n".join(files)).replace("{figures}", "\n".join(lines))
    (FOLDER / "MODEL_CARD.md").write_text(text, "utf-8")


if __name__ == "__main__":
    main()
