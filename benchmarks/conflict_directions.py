"""Do the rules of the conflict ledger read the right direction, and do they see where studies disagree?

    EPICRISIS_DATA=... python benchmarks/conflict_directions.py evidence-inference [--split train]
    EPICRISIS_DATA=... python benchmarks/conflict_directions.py choices
    EPICRISIS_DATA=... python benchmarks/conflict_directions.py med-evidence

`evidence-inference`: for each prompt (outcome, intervention, comparator) the direction read from the spans that experts
marked, against their label. The rules were written on the train split only; the default split is validation. A prompt
whose spans the rules cannot read counts as wrong.

`choices`: the strategy `evidence` with a search by words over the validation articles, and the options increased,
decreased and no difference. What it chooses, against the label.

`med-evidence`: no chat model. Each relevant source takes the direction of its best sentence, where it is sure, or the
likeliest. The majority is the conclusion; a tie is `uncertain effect`, and no direction at all `insufficient data`. A
question is flagged as a conflict by the share of its sources outside the largest group, which is compared with the
published `source_concordance`. Nothing was tuned on this set. Intervals: bootstrap over articles or reviews.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from epicrisis import Library
from epicrisis.core.types import Document, Passage
from epicrisis.corpus.base.chunking import find_sentences
from epicrisis.evaluation.analysis.statistics import estimate_mean, paired_difference
from epicrisis.library.engines.word_index import analyze_words
from epicrisis.reading.comparisons import Comparison, read_comparison
from epicrisis.reading.direction_rules import Direction, find_direction
from epicrisis.reading.directions import find_effect, read_effect
from epicrisis.retrieval.sentence_ranking import SentenceRanker
from epicrisis.testing.hashing_encoder import HashingEncoder

RESAMPLES = 10_000
LABELS: dict[str, Direction] = {
    "significantly increased": "increased",
    "significantly decreased": "decreased",
    "no significant difference": "no-difference",
}
FORMS = ("What is the effect of {i} compared with {c} on {o}?", "How does {i} change {o}?", "Does {i} reduce {o}?")
OPTIONS = ("increased", "decreased", "no difference")
CONCLUSIONS: dict[Direction, str] = {"increased": "higher", "decreased": "lower", "no-difference": "no difference"}

Sampled = npt.NDArray[np.int64]


def main() -> None:
    """Print the figures of one set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", choices=("evidence-inference", "choices", "med-evidence"))
    parser.add_argument("--split", choices=("train", "validation"), default="validation")
    arguments = parser.parse_args()
    data = Path(os.environ["EPICRISIS_DATA"])
    if arguments.set == "evidence-inference":
        measure_directions(data / "evidence_inference" / f"{arguments.split}.jsonl.gz")
    elif arguments.set == "choices":
        measure_choices(data / "evidence_inference" / f"{arguments.split}.jsonl.gz")
    else:
        measure_conclusions(data / "med_evidence" / "development.jsonl.gz")


def measure_directions(path: Path) -> None:
    """Print accuracy and balanced accuracy of the directions of marked spans."""
    golds: list[str] = []
    guesses: list[str] = []
    clusters: list[str] = []
    for article in read_lines(path):
        for prompt in article["prompts"]:
            labels = Counter(LABELS[mark["label"]] for mark in prompt["annotations"] if mark["label"] in LABELS)
            spans = [article["text"][mark["start"] : mark["end"]] for mark in prompt["annotations"]]
            if not labels or not any(spans):
                continue
            comparison = Comparison(prompt["outcome"], prompt["intervention"], prompt["comparator"])
            found = [find_direction(span, comparison) for span in dict.fromkeys(filter(None, spans))]
            golds.append(labels.most_common(1)[0][0])
            guesses.append(take_majority(found)[0])
            clusters.append(article["pmcid"])
    print_table(golds, guesses)
    print_accuracy("rules", golds, guesses, clusters)
    print_accuracy("majority class", golds, [Counter(golds).most_common(1)[0][0]] * len(golds), clusters)
    readable = [index for index, guess in enumerate(guesses) if guess != "none"]
    right = [float(golds[index] == guesses[index]) for index in readable]
    mean = estimate_mean(right, [clusters[index] for index in readable])
    print(f"where the rules read a direction, n = {mean.n}: accuracy {describe(mean.value, mean.interval)}")


def measure_choices(path: Path) -> None:
    """Print how often the evidence of a library chooses among the directions, and how often it is right."""
    articles = list(read_lines(path))
    letters = {"increased": "A", "decreased": "B", "no-difference": "C"}
    with (
        TemporaryDirectory() as folder,
        Library.create(Path(folder) / "library", encoder=HashingEncoder(64)) as library,
    ):
        library.add(*(Document(article["pmcid"], article["text"]) for article in articles))
        for form in FORMS:
            right, clusters, n = [], [], 0
            for article in articles:
                for prompt in article["prompts"]:
                    label = Counter(note["label"] for note in prompt["annotations"]).most_common(1)[0][0]
                    question = form.format(i=prompt["intervention"], c=prompt["comparator"], o=prompt["outcome"])
                    answer = library.ask(question, OPTIONS, strategy="evidence", by="bm25")
                    n += 1
                    if answer.choice is not None:
                        right.append(float(answer.choice == letters[LABELS[label]]))
                        clusters.append(article["pmcid"])
            mean = estimate_mean(right, clusters)
            print(f"{form}: {len(right)} of {n} chosen, right {describe(mean.value, mean.interval)}")


def measure_conclusions(path: Path) -> None:
    """Print how often the majority of the sources is the conclusion of the review, and how conflicts are seen."""
    rows = list(read_lines(path))
    golds = [row["answer"] for row in rows]
    clusters = [row["original_review"] for row in rows]
    concordance = np.array([row["source_concordance"] for row in rows], dtype=float)
    majority = Counter(golds).most_common(1)[0][0]
    print_accuracy("majority class", golds, [majority] * len(golds), clusters)
    ranker = SentenceRanker(None, find_sentences, analyze_words)

    def read_said(question: str, passage: Passage) -> Direction:
        (best,) = ranker.rank(question, [passage], 1).sentences
        effect = find_effect(question, best.text, passage.title)
        return "none" if effect is None else effect.direction

    def read_likeliest(question: str, passage: Passage) -> Direction:
        (best,) = ranker.rank(question, [passage], 1).sentences
        return read_effect(best.text, read_comparison(question)).direction

    readers: dict[str, Callable[[str, Passage], Direction]] = {
        "said of the best sentence, as epicrisis shows it": read_said,
        "likeliest of the best sentence, sure or not": read_likeliest,
    }
    for name, reader in readers.items():
        conclusions: list[str] = []
        scores: list[float] = []
        for row in rows:
            directions: list[Direction] = []
            for source in row["relevant_sources"]:
                if source in row["sources"]:
                    directions.append(reader(row["question"], make_passage(row["sources"][source])))
            conclusions.append(conclude(directions))
            scores.append(disagreement(directions))
        print(f"\n{name}")
        print_table(golds, conclusions)
        print_accuracy(name, golds, conclusions, clusters)
        right = {index: float(golds[index] == conclusion) for index, conclusion in enumerate(conclusions)}
        by_majority = {index: float(gold == majority) for index, gold in enumerate(golds)}
        difference = paired_difference(right, by_majority, dict(enumerate(clusters)))
        print(f"against the majority class: {describe(difference.value, difference.interval)}, p = {difference.p:.3f}")
        disagrees = (concordance > 0) & (concordance < 1)
        print_flags("some sources disagree with the review", concordance < 1, scores, clusters)
        print_flags("some sources agree with the review and some do not", disagrees, scores, clusters)
        several = np.array([len(row["relevant_sources"]) > 1 for row in rows])
        chosen = list(map(int, np.flatnonzero(several)))
        print_flags(
            "the same, two or more sources",
            disagrees[chosen],
            [scores[index] for index in chosen],
            [clusters[index] for index in chosen],
        )


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a compressed file."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def make_passage(source: dict[str, Any]) -> Passage:
    """Return a source as a passage."""
    text = source["content"]
    name = source["article_id"]
    return Passage(
        id=f"{name}#0", document_id=name, ordinal=0, start=0, end=len(text), text=text, title=source["title"]
    )


def take_majority(directions: Sequence[Direction]) -> tuple[Direction, ...]:
    """Return the most frequent directions without `none`, in order; `none` if there is no other."""
    counts = Counter(direction for direction in directions if direction != "none")
    most = max(counts.values(), default=0)
    return tuple(direction for direction, count in counts.items() if count == most) or ("none",)


def conclude(directions: Sequence[Direction]) -> str:
    """Return the conclusion of the sources in the words of MedEvidence."""
    leaders = take_majority(directions)
    if len(leaders) > 1:
        return "uncertain effect"
    return CONCLUSIONS.get(leaders[0], "insufficient data")


def disagreement(directions: Sequence[Direction]) -> float:
    """Return the share of the readable sources outside the largest group."""
    counts = Counter(direction for direction in directions if direction != "none")
    return 1 - max(counts.values()) / sum(counts.values()) if counts else 0.0


def print_table(golds: Sequence[str], guesses: Sequence[str]) -> None:
    """Print how often each label was read as each."""
    names = sorted(set(golds))
    others = sorted(set(guesses) - set(names))
    pairs = Counter(zip(golds, guesses, strict=True))
    print("label -> read as", *names, *others, sep=" | ")
    for gold in names:
        print(gold, *(pairs[gold, guess] for guess in [*names, *others]), sep=" | ")


def print_accuracy(name: str, golds: Sequence[str], guesses: Sequence[str], clusters: Sequence[str]) -> None:
    """Print accuracy and balanced accuracy (mean recall over the labels), with intervals."""
    gold, guess = np.array(golds), np.array(guesses)

    def balanced(chosen: Sampled) -> float:
        recalls: list[float] = []
        for label in set(golds):
            of_label = chosen[gold[chosen] == label]
            if len(of_label):
                recalls.append(float((guess[of_label] == label).mean()))
        return float(np.mean(recalls))

    mean = estimate_mean(list(map(float, gold == guess)), clusters)
    print(f"{name}: accuracy {describe(mean.value, mean.interval)}", end=", ")
    print(f"balanced accuracy {bootstrap(balanced, clusters)}, n = {len(golds)}, {len(set(clusters))} clusters")


def print_flags(name: str, truth: npt.NDArray[np.bool_], scores: Sequence[float], clusters: Sequence[str]) -> None:
    """Print the area under the ROC curve of the disagreement, and the balanced accuracy of any disagreement."""
    values = np.array(scores)

    def area(chosen: Sampled) -> float:
        yes, no = values[chosen][truth[chosen]], values[chosen][~truth[chosen]]
        if not len(yes) or not len(no):
            return float("nan")
        higher = (yes[:, None] > no[None, :]).mean()
        return float(higher + 0.5 * (yes[:, None] == no[None, :]).mean())

    def balanced(chosen: Sampled) -> float:
        flagged, real = values[chosen] > 0, truth[chosen]
        if real.all() or not real.any():
            return float("nan")
        return float((flagged[real].mean() + (~flagged[~real]).mean()) / 2)

    print(f"conflict ({name}, {int(truth.sum())} of {len(truth)}): AUC {bootstrap(area, clusters)}", end=", ")
    print(f"balanced accuracy {bootstrap(balanced, clusters)}")


def bootstrap(measure: Callable[[Sampled], float], clusters: Sequence[str]) -> str:
    """Return a figure with its percentile interval; whole clusters are drawn."""
    members: dict[str, list[int]] = {}
    for index, cluster in enumerate(clusters):
        members.setdefault(cluster, []).append(index)
    groups = [np.array(group) for group in members.values()]
    generator = np.random.default_rng(0)
    values: list[float] = []
    for _ in range(RESAMPLES):
        drawn = generator.integers(len(groups), size=len(groups))
        values.append(measure(np.concatenate([groups[number] for number in drawn])))
    low, high = np.nanpercentile(values, [2.5, 97.5])
    return f"{measure(np.arange(len(clusters))):.3f} [{low:.3f}, {high:.3f}]"


def describe(value: float, interval: Any) -> str:
    """Return a figure with its interval."""
    return f"{value:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


if __name__ == "__main__":
    main()
