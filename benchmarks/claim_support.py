"""Support of claims: how often is the check right where it says `supported` or `contradicted`, and what does it catch?

    export EPICRISIS_DATA=... PYTHONPATH=.
    python benchmarks/claim_support.py words [--split train]
    python benchmarks/claim_support.py swaps
    python benchmarks/claim_support.py verifiers [--nli NAME] [--model NAME --check model] [-n CASES]

`words`: claims of SciFact with the three best sentences of each abstract that they cite, those of HealthVer with their
evidence, and claims made of the prompts of Evidence Inference in three wordings, one right and one wrong of each, with
the sentences that experts marked, and with the best-ranked sentence of the article. The thresholds were chosen on the
train splits of SciFact and Evidence Inference.

`swaps`: 300 right claims made of articles of Evidence Inference validation, each with the sentences that experts
marked, and the same claims with the direction, the sides, a number or the intervention swapped. Caught: the claim is
contradicted or doubtful, so that it is withheld.

`verifiers`: balanced accuracy over supported, contradicted and neutral on SciFact validation, of the released replies
of Med-V1 and of models named. A case that a model cannot check is in no class.

Intervals of shares are Wilson's, or a bootstrap over articles where one article has many claims.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import gzip
import json
import os
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from literature_retrieval import sentences_of

from epicrisis.answering.citations import build_citation
from epicrisis.answering.claim_support import GivenDocuments, check_answer, decide
from epicrisis.answering.verifiers import ChatVerifier, NliVerifier, read_med_v1
from epicrisis.core.answers import Answer, Claim, Quotation
from epicrisis.core.prompts import Prompt
from epicrisis.core.protocols import ChatReply, ChatRequest, Verifier
from epicrisis.core.types import ChatCheck, Passage, Question, Sentence
from epicrisis.corpus.base.chunking import find_sentences
from epicrisis.evaluation.analysis.statistics import estimate_mean, wilson
from epicrisis.library.engines.word_index import analyze_words
from epicrisis.models.pair_models import load_nli
from epicrisis.pipeline.components import open_models
from epicrisis.reading.directions import Effect
from epicrisis.reading.support import CitedSentence, check_claim
from epicrisis.retrieval.sentence_ranking import SentenceRanker
from epicrisis.settings.configuration import load_settings
from tests.support.balanced_accuracy import estimate_balanced_accuracy

SENTENCES = 3
NEUTRAL = "neutral"
LABELS = {
    "Supports": "supported",
    "SUPPORT": "supported",
    "Refutes": "contradicted",
    "CONTRADICT": "contradicted",
    "Neutral": NEUTRAL,
}
DIRECTIONS: dict[str, Effect] = {
    "significantly increased": "increased",
    "significantly decreased": "decreased",
    "no significant difference": "no-difference",
}
TURNED: Mapping[Effect, Effect] = {"increased": "decreased", "decreased": "increased"}
WORDINGS: tuple[Mapping[Effect, str], ...] = (
    {
        "increased": "{i} increases {o} compared with {c}.",
        "decreased": "{i} reduces {o} compared with {c}.",
        "no-difference": "There was no significant difference in {o} between {i} and {c}.",
    },
    {
        "increased": "{o} was higher with {i} than with {c}.",
        "decreased": "{o} was lower with {i} than with {c}.",
        "no-difference": "{o} did not differ between {i} and {c}.",
    },
    {"increased": "{i} increases {o}.", "decreased": "{i} reduces {o}.", "no-difference": "{i} does not affect {o}."},
)
SWAPPED_CLAIMS = 300
_NUMBER = re.compile(r"(?<![\d.])\d{1,3}(?:\.\d)? ?%")


@dataclass(frozen=True, slots=True)
class LabelledClaim:
    """A claim, the sentences that are cited for it, and the experts' label."""

    claim: str
    sentences: Sequence[CitedSentence]
    label: str
    cluster: str
    """The claim or article that other cases share."""


@dataclass(frozen=True, slots=True)
class TrialPrompt:
    """A prompt of Evidence Inference with its direction and the sentences that experts marked."""

    article: Passage
    parts: Mapping[str, str]
    """Outcome `o`, intervention `i` and comparator `c`."""
    direction: Effect
    marked: Sequence[Sentence]

    def state(self, wording: int, direction: Effect) -> str:
        """Return a claim with this direction."""
        return WORDINGS[wording][direction].format(**self.parts)

    def turn(self) -> TrialPrompt:
        """Return the prompt with the sides exchanged, and the same direction."""
        return replace(self, parts={**self.parts, "i": self.parts["c"], "c": self.parts["i"]})


def main() -> None:
    """Print the figures of one command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("words", "swaps", "verifiers"))
    parser.add_argument("--split", choices=("train", "validation"), default="validation")
    parser.add_argument("--nli", help="entailment model: a catalogue name or a folder")
    parser.add_argument("--model", help="chat model: a catalogue name, a file or a URL")
    parser.add_argument("--check", choices=get_args(ChatCheck), default="model", help="how the chat model is asked")
    parser.add_argument("-n", type=int, help="cases of the set")
    arguments = parser.parse_args()
    data = Path(os.environ["EPICRISIS_DATA"])
    if arguments.command == "words":
        print_words(data, arguments.split)
    elif arguments.command == "swaps":
        print_swaps(data)
    else:
        print_verifiers(data, arguments.nli, arguments.model, arguments.check, arguments.n)


def print_words(data: Path, split: str) -> None:
    """Print how often each word is said, and how often it is right."""
    sets = {f"SciFact {split}": load_scifact(data, split), "HealthVer dev": load_healthver(data)}
    for source in ("marked", "ranked"):
        sets[f"Evidence Inference {split}, {source} sentences"] = make_claims(data, split, source)
    for name, cases in sets.items():
        print(f"{name}: {len(cases)} claims, {len({case.cluster for case in cases})} clusters", dict(count(cases)))
        checks = [check_claim(case.claim, case.sentences) for case in cases]
        for word in ("supported", "contradicted"):
            marks = [
                (float(case.label == word), case.cluster)
                for case, check in zip(cases, checks, strict=True)
                if check.state == word
            ]
            print(f"  {word}: said of {len(marks)}, right {describe_share(marks)}")


def describe_share(marks: Sequence[tuple[float, str]]) -> str:
    """Return the share of right cases with Wilson's interval and the bootstrap's over clusters."""
    if not marks:
        return "-"
    right = int(sum(mark for mark, _ in marks))
    interval = wilson(right, len(marks))
    mean = estimate_mean([mark for mark, _ in marks], [cluster for _, cluster in marks])
    return (
        f"{right / len(marks):.3f} [{interval.low:.3f}, {interval.high:.3f}], over {len({c for _, c in marks})} "
        f"clusters [{mean.interval.low:.3f}, {mean.interval.high:.3f}]"
    )


def count(cases: Sequence[LabelledClaim]) -> Counter[str]:
    """Return the number of cases of each label."""
    return Counter(case.label for case in cases)


def print_swaps(data: Path) -> None:
    """Print the share of planted swaps that is caught, by kind, and the false alarms on the right claims."""
    chance = random.Random(0)
    prompts = [prompt for prompt in load_prompts(data, "validation") if prompt.marked]
    drawn = chance.sample([(prompt, wording) for prompt in prompts for wording in range(len(WORDINGS))], SWAPPED_CLAIMS)
    marks: dict[str, list[tuple[float, str]]] = {}
    for prompt, wording in drawn:
        for kind, claim in swap(prompt, wording, prompts, chance):
            marks.setdefault(kind, []).append((float(is_withheld(claim, prompt)), prompt.article.id))
    for kind, values in marks.items():
        print(f"{kind}: {len(values)} claims, withheld {describe_share(values)}")


def swap(
    prompt: TrialPrompt, wording: int, prompts: Sequence[TrialPrompt], chance: random.Random
) -> Iterator[tuple[str, str]]:
    """Yield the kind and the text of the right claim and of its swaps."""
    claim = prompt.state(wording, prompt.direction)
    yield "right", claim
    others = [direction for direction in WORDINGS[wording] if direction != prompt.direction]
    yield "direction", prompt.state(wording, chance.choice(others))
    if prompt.direction != "no-difference" and "{c}" in WORDINGS[wording][prompt.direction]:
        yield "sides", prompt.turn().state(wording, prompt.direction)
    numbers = _NUMBER.findall(" ".join(sentence.text for sentence in prompt.marked))
    if numbers:
        number = chance.choice(numbers)
        value = float(number.rstrip(" %"))
        yield "right with a number", f"{claim.rstrip('.')} ({number})."
        yield "number", f"{claim.rstrip('.')} ({value + chance.choice((3, 7, 11)):g} %)."
    stranger = chance.choice([other for other in prompts if other.article.id != prompt.article.id])
    foreign = replace(prompt, parts={**prompt.parts, "i": stranger.parts["i"]})
    yield "intervention", foreign.state(wording, prompt.direction)


def is_withheld(claim: str, prompt: TrialPrompt) -> bool:
    """Return whether the claim is doubtful beside the sentences that experts marked."""

    async def rank(_: str, k: int) -> list[Sentence]:
        return []

    citations = [
        build_citation(
            number, Quotation(prompt.article.id, sentence.text, sentence.start, sentence.end), prompt.article
        )
        for number, sentence in enumerate(prompt.marked, 1)
    ]
    numbers = tuple(citation.number for citation in citations)
    answer = Answer(
        question=Question("?"),
        strategy="rag",
        state="answered",
        text=claim,
        citations=tuple(citations),
        claims=(Claim(claim, numbers),),
    )
    documents = GivenDocuments((prompt.article,), (prompt.article,), rank, analyze_words, find_sentences)
    checked = asyncio.run(check_answer(answer, "rules", "mark", None, lambda event: None, documents))
    return checked.claims[0].is_doubtful


def make_claims(data: Path, split: str, source: str) -> list[LabelledClaim]:
    """Return of each prompt and wording one right claim, and one with another direction or exchanged sides."""
    chance = random.Random(0)
    ranker = SentenceRanker(None, find_sentences, analyze_words)
    cases: list[LabelledClaim] = []
    for prompt in load_prompts(data, split):
        sentences: Sequence[Sentence] = prompt.marked
        if source == "ranked":
            question = "What is the effect of {i} compared with {c} on {o}?".format(**prompt.parts)
            sentences = ranker.rank(question, [prompt.article], 1).sentences
        cited = [CitedSentence(sentence.text, "", prompt.article.text) for sentence in sentences]
        for wording, forms in enumerate(WORDINGS):
            wrong = [prompt.state(wording, direction) for direction in forms if direction != prompt.direction]
            if prompt.direction in TURNED and "{c}" in forms[prompt.direction]:
                wrong.append(prompt.turn().state(wording, prompt.direction))
            for claim, label in (
                (prompt.state(wording, prompt.direction), "supported"),
                (chance.choice(wrong), "contradicted"),
            ):
                cases.append(LabelledClaim(claim, cited, label, prompt.article.id))
    return cases


def load_prompts(data: Path, split: str) -> Iterator[TrialPrompt]:
    """Yield the prompts with a direction; that of most annotators counts."""
    with gzip.open(data / "evidence_inference" / f"{split}.jsonl.gz", "rt", encoding="utf-8") as file:
        for article in map(json.loads, file):
            yield from read_prompts(article)


def read_prompts(article: Mapping[str, Any]) -> Iterator[TrialPrompt]:
    """Yield the prompts of an article."""
    text = article["text"]
    passage = Passage(id=article["pmcid"], document_id=article["pmcid"], ordinal=0, start=0, end=len(text), text=text)
    places = list(find_sentences(text))
    for prompt in article["prompts"]:
        label = Counter(note["label"] for note in prompt["annotations"]).most_common(1)[0][0]
        notes = [note for note in prompt["annotations"] if note["label"] == label and note["end"] > note["start"]]
        if label not in DIRECTIONS or not notes:
            continue
        marked = [
            Sentence(passage, start, end)
            for start, end in places
            if any(2 * (min(end, note["end"]) - max(start, note["start"])) > end - start for note in notes)
        ]
        parts = {"o": prompt["outcome"], "i": prompt["intervention"], "c": prompt["comparator"]}
        yield TrialPrompt(passage, parts, DIRECTIONS[label], marked)


def load_healthver(data: Path) -> list[LabelledClaim]:
    """Return the pairs of HealthVer's development set."""
    cases: list[LabelledClaim] = []
    with (data / "healthver" / "dev.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            sentences = [CitedSentence(row["evidence"])]
            cases.append(LabelledClaim(row["claim"], sentences, LABELS[row["label"]], row["claim"]))
    return cases


def load_scifact(data: Path, split: str) -> list[LabelledClaim]:
    """Return each claim with each abstract it cites, and the three best sentences of that abstract."""
    abstracts: dict[str, Passage] = {}
    with gzip.open(data / "scifact" / "corpus.csv.gz", "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            text = " ".join(sentences_of(row["abstract"]))
            abstracts[row["doc_id"]] = Passage(
                id=row["doc_id"],
                document_id=row["doc_id"],
                ordinal=0,
                start=0,
                end=len(text),
                text=text,
                title=row["title"],
            )
    labels: dict[tuple[str, str], str] = {}
    with (data / "scifact" / f"claims_{split}.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            for document in re.findall(r"\d+", row["cited_doc_ids"]):
                labels.setdefault((row["claim"], document), NEUTRAL)
            if row["evidence_label"]:
                labels[row["claim"], row["evidence_doc_id"]] = LABELS[row["evidence_label"]]
    ranker = SentenceRanker(None, find_sentences, analyze_words)
    cases: list[LabelledClaim] = []
    for (claim, document), label in labels.items():
        passage = abstracts[document]
        sentences = ranker.rank(claim, [passage], SENTENCES).sentences
        cited = [CitedSentence(sentence.text, passage.title, passage.text) for sentence in sentences]
        cases.append(LabelledClaim(claim, cited, label, claim))
    return cases


def print_verifiers(data: Path, nli: str | None, model: str | None, check: ChatCheck, n: int | None) -> None:
    """Print the balanced accuracy of the released replies of Med-V1, of the rules, and of the models named."""
    cases = load_scifact(data, "validation")
    replies = read_released_replies(data)
    keys = [(_simplify(case.claim), _simplify(case.sentences[0].title)) for case in cases]
    print_accuracy("med-v1, released replies", cases, [replies[key] for key in keys])
    states: list[str] = [check_claim(case.claim, case.sentences).state for case in cases]
    print_accuracy("rules", cases, [NEUTRAL if state == "not-checked" else state for state in states])
    drawn = random.Random(0).sample(cases, min(len(cases), n)) if n else cases
    for verifier in open_verifiers(nli, model, check):
        print_accuracy(verifier.name, drawn, asyncio.run(verify(verifier, drawn)))


def read_released_replies(data: Path) -> dict[tuple[str, str], str]:
    """Return what Med-V1 replied, by claim and title."""
    states: dict[tuple[str, str], str] = {}
    with gzip.open(data / "med_v1" / "claim_source_example_output_file.jsonl.gz", "rt", encoding="utf-8") as file:
        for reply in map(json.loads, file):
            score = read_med_v1(reply["raw_output"], "med-v1")
            state = "supported" if score.supported else "contradicted" if score.contradicted else NEUTRAL
            states[_simplify(reply["claim"]), _simplify(reply["source"].split("\n", 1)[0])] = state
    return states


def _simplify(text: str) -> str:
    return " ".join(text.split())


def open_verifiers(nli: str | None, model: str | None, check: ChatCheck) -> list[Verifier]:
    """Return the verifiers that the options name."""
    verifiers: list[Verifier] = []
    if nli:
        verifiers.append(NliVerifier(load_nli(nli, load_settings({}).home), nli))
    if model:
        settings = load_settings({"models": {"writer": {"name": model}}})
        chat = open_models(settings, None)["writer"]

        async def send(_: Prompt, request: ChatRequest) -> ChatReply:
            return await chat.complete(request)

        verifiers.append(ChatVerifier(send, model, check=check))
    return verifiers


async def verify(verifier: Verifier, cases: Sequence[LabelledClaim]) -> list[str]:
    """Return the state of each claim; a claim that cannot be checked is in no class."""
    states: list[str] = []
    for case in cases:
        text = "\n".join(sentence.text for sentence in case.sentences)
        (score,) = await verifier.verify([(text, case.claim)])
        state = decide(Claim(case.claim), score, verifier.name)
        states.append("failed" if score.failure else NEUTRAL if state.support == "not-checked" else state.support)
    return states


def print_accuracy(name: str, cases: Sequence[LabelledClaim], states: Sequence[str]) -> None:
    """Print the balanced accuracy, and how often each word is right."""
    result = estimate_balanced_accuracy([case.label for case in cases], list(states), [case.cluster for case in cases])
    print(
        f"{name}: {len(cases)} pairs, balanced accuracy {result.value:.3f} "
        f"[{result.interval.low:.3f}, {result.interval.high:.3f}]"
    )
    for word in ("supported", "contradicted"):
        marks = [
            (float(case.label == word), case.cluster)
            for case, state in zip(cases, states, strict=True)
            if state == word
        ]
        print(f"  {word}: said of {len(marks)}, right {describe_share(marks)}")


if __name__ == "__main__":
    main()
