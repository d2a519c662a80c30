"""Support of claims: how well do word overlap, the rules, MiniLM and verifiers tell what sentences say of a claim?

    EPICRISIS_DATA=... python benchmarks/claim_support.py [--nli NAME] [--model NAME] [-n CASES]

HealthVer dev (claims about COVID-19, each with one piece of evidence) and SciFact train are for calibration, SciFact
validation is reported. Evidence in SciFact: the three sentences of a cited abstract that the product's ranking of
sentences selects for the claim, the same for all labels, so that nothing but the words tells the label. Thresholds
maximise the balanced accuracy of the calibration set. Labels: supported, contradicted, not addressed; chance is 0.333.
Intervals: bootstrap over claims. The precision of a rule is the share of the claims it finds that are not supported,
to compare with the share of all claims.

`--nli` and `--model` add an installed entailment model, or a chat model that reports log-probabilities. Both may take
hours on two cores; `-n` draws that many cases of each set.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import gzip
import os
import random
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import numpy as np
from literature_retrieval import sentences_of

from epicrisis.answering.support import UNSUPPORTED, ClaimEvidence, check_by_rules, decide
from epicrisis.answering.support_rules import SupportRule, apply_rules, word_overlap
from epicrisis.answering.verifiers import ChatVerifier, NliVerifier
from epicrisis.answers import Claim
from epicrisis.components import open_models
from epicrisis.configuration import load_settings
from epicrisis.corpus.chunking import find_sentences
from epicrisis.evaluation.analysis.balanced_accuracy import compare_balanced_accuracy, estimate_balanced_accuracy
from epicrisis.evaluation.analysis.statistics import wilson
from epicrisis.library.word_index import analyze_words
from epicrisis.models.encoders import load_encoder
from epicrisis.models.pair_models import load_nli
from epicrisis.prompts import Prompt
from epicrisis.protocols import ChatReply, ChatRequest, Encoder, Verifier
from epicrisis.retrieval.sentence_ranking import SentenceRanker
from epicrisis.types import Passage

SENTENCES = 3
LABELS = {
    "Supports": "supported",
    "SUPPORT": "supported",
    "Refutes": "contradicted",
    "CONTRADICT": "contradicted",
    "Neutral": "not-addressed",
}
REPORTED, CALIBRATION = "SciFact validation", ("HealthVer dev", "SciFact train")
CALIBRATED_ON = {"HealthVer dev": "HealthVer dev", "SciFact train": "SciFact train", REPORTED: "SciFact train"}


@dataclass(frozen=True, slots=True)
class LabelledClaim:
    """A claim, what is cited for it, and the experts' label."""

    claim: str
    evidence: ClaimEvidence
    label: str


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nli", help="entailment model: a catalogue name or a folder")
    parser.add_argument("--model", help="chat model: a catalogue name, a file or a URL")
    parser.add_argument("-n", type=int, help="cases of each set")
    arguments = parser.parse_args()
    data = Path(os.environ["EPICRISIS_DATA"])
    encoder = load_encoder("minilm", load_settings({}).home)
    sets = {"HealthVer dev": load_healthver(data)}
    for split in ("train", "validation"):
        sets[f"SciFact {split}"] = load_scifact(data, split, encoder)
    if arguments.n:
        sets = {name: random.Random(0).sample(cases, min(len(cases), arguments.n)) for name, cases in sets.items()}
    for name, cases in sets.items():
        print(f"{name}: {len(cases)} pairs, {len({case.claim for case in cases})} claims", dict(count_labels(cases)))
    print_rules(sets)
    predictions = {name: predict(cases, encoder) for name, cases in sets.items()}
    systems = fit_systems(sets, predictions)
    for verifier in open_verifiers(arguments.nli, arguments.model):
        for name, cases in sets.items():
            start = time.perf_counter()
            systems[name][verifier.name] = asyncio.run(verify(verifier, cases))
            print(f"{verifier.name}, {name}: {(time.perf_counter() - start) / len(cases):.2f} s a claim")
    print_accuracy(sets, systems)


def count_labels(cases: Sequence[LabelledClaim]) -> Counter[str]:
    """Return the number of cases of each label."""
    return Counter(case.label for case in cases)


def load_healthver(data: Path) -> list[LabelledClaim]:
    """Return the pairs of HealthVer's development set."""
    cases: list[LabelledClaim] = []
    with (data / "healthver" / "dev.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            evidence = ClaimEvidence(row["evidence"], "")
            cases.append(LabelledClaim(row["claim"], evidence, LABELS[row["label"]]))
    return cases


def load_scifact(data: Path, split: str, encoder: Encoder) -> list[LabelledClaim]:
    """Return each claim with each abstract it cites, and the best sentences of that abstract."""
    abstracts: dict[str, Passage] = {}
    with gzip.open(data / "scifact" / "corpus.csv.gz", "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            text = " ".join(sentences_of(row["abstract"]))
            abstracts[row["doc_id"]] = Passage(row["doc_id"], row["doc_id"], 0, 0, len(text), text, title=row["title"])
    labels: dict[tuple[str, str], str] = {}
    with (data / "scifact" / f"claims_{split}.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            for document in re.findall(r"\d+", row["cited_doc_ids"]):
                labels.setdefault((row["claim"], document), "not-addressed")
            if row["evidence_label"]:
                labels[row["claim"], row["evidence_doc_id"]] = LABELS[row["evidence_label"]]
    ranker = SentenceRanker(encoder, find_sentences, analyze_words)
    cases: list[LabelledClaim] = []
    for (claim, document), label in labels.items():
        passage = abstracts[document]
        sentences = ranker.rank(claim, [passage], SENTENCES).sentences
        text = "\n".join(sentence.text for sentence in sentences)
        cases.append(LabelledClaim(claim, ClaimEvidence(text, passage.title), label))
    return cases


def predict(cases: Sequence[LabelledClaim], encoder: Encoder) -> dict[str, list[float] | list[str]]:
    """Return the scores of overlap and cosine, and the states of the rules."""
    overlaps = [word_overlap(case.claim, case.evidence.sentences) for case in cases]
    claims = encoder.encode_queries([case.claim for case in cases])
    cosines: list[float] = []
    for vector, case in zip(claims, cases, strict=True):
        vectors = encoder.encode_passages([("", line) for line in case.evidence.sentences.splitlines()])
        cosines.append(float((vectors @ vector).max()))
    states: list[str] = []
    for case in cases:
        states.append(check_by_rules(Claim(case.claim), case.evidence).support)
    return {"overlap": overlaps, "cosine": cosines, "rules": states}


def fit_systems(
    sets: Mapping[str, Sequence[LabelledClaim]], predictions: Mapping[str, Mapping[str, Sequence[float | str]]]
) -> dict[str, dict[str, list[str]]]:
    """Return the predicted labels of each set by system, with thresholds from the calibration sets."""
    systems: dict[str, dict[str, list[str]]] = {name: {} for name in sets}
    for name in sets:
        source = CALIBRATED_ON[name]
        states = list(map(str, predictions[name]["rules"]))
        systems[name]["rules"] = ["supported" if state == "not-checked" else state for state in states]
        for score, title in (("overlap", "word overlap"), ("cosine", "MiniLM cosine")):
            for with_rules in (False, True):
                threshold = fit_threshold(sets[source], predictions[source], score, with_rules)
                system = f"rules, then {title}" if with_rules else title
                systems[name][system] = apply_threshold(predictions[name], score, threshold, with_rules)
                print(f"{name}: threshold of {system} {threshold:.3f}, from {source}")
    return systems


def apply_threshold(
    predictions: Mapping[str, Sequence[float | str]], score: str, threshold: float, with_rules: bool
) -> list[str]:
    """Return `supported` from the threshold on and `not-addressed` below, where the rules do not decide."""
    labels: list[str] = []
    for value, state in zip(predictions[score], predictions["rules"], strict=True):
        if with_rules and state != "not-checked":
            labels.append(str(state))
        else:
            labels.append("supported" if float(value) >= threshold else "not-addressed")
    return labels


def fit_threshold(
    cases: Sequence[LabelledClaim], predictions: Mapping[str, Sequence[float | str]], score: str, with_rules: bool
) -> float:
    """Return the threshold, of 200 quantiles, with the highest balanced accuracy."""
    truth = np.array([case.label for case in cases])
    best = (-1.0, 0.0)
    for threshold in np.unique(np.quantile(np.array(predictions[score], dtype=float), np.linspace(0, 1, 200))):
        right = np.array(apply_threshold(predictions, score, float(threshold), with_rules)) == truth
        value = float(np.mean([right[truth == label].mean() for label in np.unique(truth)]))
        best = max(best, (value, float(threshold)))
    return best[1]


def print_rules(sets: Mapping[str, Sequence[LabelledClaim]]) -> None:
    """Print how often each rule finds something, and how often it is right."""
    for name, cases in sets.items():
        n = len(cases)
        base = 1 - count_labels(cases)["supported"] / n
        print(f"{name}: not supported {base:.3f} of all, contradicted {count_labels(cases)['contradicted'] / n:.3f}")
        for rule in get_args(SupportRule):
            labels: list[str] = []
            for case in cases:
                if apply_rules(case.claim, case.evidence.sentences, case.evidence.context, (rule,)):
                    labels.append(case.label)
            print_precision(rule, labels)
        for state in sorted(UNSUPPORTED):
            labels = []
            for case in cases:
                if check_by_rules(Claim(case.claim), case.evidence).support == state:
                    labels.append(case.label)
            print_precision(f"marked {state}", labels)


def print_precision(name: str, labels: Sequence[str]) -> None:
    """Print the share of labels other than supported, with Wilson's interval."""
    right = len(labels) - labels.count("supported")
    interval, contradicted = wilson(right, len(labels)), labels.count("contradicted") / max(1, len(labels))
    print(
        f"  {name}: finds {len(labels)}, not supported {right / max(1, len(labels)):.3f} [{interval.low:.3f}, "
        f"{interval.high:.3f}], contradicted {contradicted:.3f}"
    )


def open_verifiers(nli: str | None, model: str | None) -> list[Verifier]:
    """Return the verifiers that the options name."""
    verifiers: list[Verifier] = []
    if nli:
        verifiers.append(NliVerifier(load_nli(nli, load_settings({}).home), nli))
    if model:
        settings = load_settings({"models": {"writer": {"name": model}}})
        chat = open_models(settings, None)["writer"]

        async def send(_: Prompt, request: ChatRequest) -> ChatReply:
            return await chat.complete(request)

        verifiers.append(ChatVerifier(send, model))
    return verifiers


async def verify(verifier: Verifier, cases: Sequence[LabelledClaim]) -> list[str]:
    """Return the state of each claim by rules and verifier; a claim that cannot be checked is in no label."""
    states: list[str] = []
    for case in cases:
        claim = check_by_rules(Claim(case.claim), case.evidence)
        (score,) = await verifier.verify([(case.evidence.sentences, case.claim)])
        state = decide(replace(claim), score, verifier.name).support
        # Partly supported: the verifier says supported, and a number or direction is missing.
        states.append("supported" if state == "partly-supported" else state)
    return states


def print_accuracy(
    sets: Mapping[str, Sequence[LabelledClaim]], systems: Mapping[str, Mapping[str, Sequence[str]]]
) -> None:
    """Print the balanced accuracy of every system, and its difference to word overlap."""
    for name, cases in sets.items():
        labels, clusters = [case.label for case in cases], [case.claim for case in cases]
        for system, states in systems[name].items():
            result = estimate_balanced_accuracy(labels, states, clusters)
            low, high = result.interval.low, result.interval.high
            line = f"{name}: {system} {result.value:.3f} [{low:.3f}, {high:.3f}]"
            if system != "word overlap":
                gain = compare_balanced_accuracy(labels, states, systems[name]["word overlap"], clusters)
                line += f", to word overlap {gain.value:+.3f} [{gain.interval.low:+.3f}, {gain.interval.high:+.3f}]"
            print(line)


if __name__ == "__main__":
    main()
