"""Replies that cannot be read and calls that are lost: every strategy counts them alike, and all cases are compared."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from epicrisis.answering.paper_prompts import GPT_35, TEXT
from epicrisis.answering.strategy import list_strategies
from epicrisis.core.answers import Answer, ModelCalled
from epicrisis.core.errors import ChatError, EndpointUnreachable, ReplyEmpty, ReplyTruncated, ReplyWithheld
from epicrisis.core.protocols import ChatRequest
from epicrisis.core.types import Examples, Passage, Question, Sentence, SentenceHit, SentenceRanking
from epicrisis.evaluation.analysis import statistics
from epicrisis.evaluation.analysis.conclusions import DIFFERENCE_TO
from epicrisis.evaluation.analysis.grouping import DIFFERENCE_BOUNDS, SHARE_COLUMN
from epicrisis.evaluation.analysis.run_comparison import compare_run_files
from epicrisis.evaluation.analysis.statistics import Difference, Interval, Mean
from epicrisis.pipeline.overrides import RunOverrides
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.pipeline.recording.runner import RecordStore
from epicrisis.retrieval.rankings import rank_in_order
from epicrisis.settings.settings import ROLES, Settings
from epicrisis.settings.tables import RefineSettings, VoteSettings
from epicrisis.testing.chat import ScriptedModel
from tests.support.position_biased_reader import hash_to_unit_interval
from tests.support.replies import fill
from tests.support.run_folders import recipe

OPTIONS = {"A": "yes", "B": "no"}
QUESTIONS = [
    Question(f"Does drug {i} help?", options=OPTIONS, form="choice", id=str(i), gold="AB"[i % 2]) for i in range(12)
]
TEXTS = [f"Trial {i} found that the drug lowers risk number {i} by {i} percent." for i in range(6)]
PASSAGES = [
    Passage(id=f"d{i}#0", document_id=f"d{i}", ordinal=0, start=0, end=len(text), text=text)
    for i, text in enumerate(TEXTS)
]
RANKING = rank_in_order(PASSAGES, "placed", {})
SENTENCES = SentenceRanking(
    tuple(SentenceHit(Sentence(passage, 0, passage.end), 1.0, rank) for rank, passage in enumerate(PASSAGES)),
    {"encoder": "scripted"},
)
LOST = {"EndpointUnreachable"}
TEXTS_WITHOUT_ANSWER = {
    "prose": "These documents describe several trials.",
    "refusal in words": "I'm sorry, but I cannot help with medical questions.",
    "broken JSON": '{"result": {"found": true, "choice"',
}
ERRORS: Mapping[str, type[ChatError]] = {
    "lost": EndpointUnreachable,
    "cut": ReplyTruncated,
    "withheld": ReplyWithheld,
    "empty": ReplyEmpty,
}
UNREADABLE = (*TEXTS_WITHOUT_ANSWER, "cut", "withheld", "empty")
ENDINGS = ("right", "wrong", "nothing", *UNREADABLE, "lost")
FEW = {
    "votes": {"n": 3},
    "refine": {"drafts": 2, "rounds": 1},
    "unverified": "keep",
    "partition": 2,
    "preflight": {"enabled": False},
}
VARIANTS: dict[str, tuple[str, Mapping[str, Any], Mapping[str, Any]]] = {
    **{strategy.name: (strategy.name, {}, {}) for strategy in list_strategies() if strategy.needs_model},
    "quotes": ("brief-context", {"citing": "quotes"}, {}),
    "confidence": ("brief-context", {"map_confidence": True}, {}),
    "isolated votes": ("brief-context", {"defence": {"isolated_votes": True}}, {}),
    "rotations": ("rag", {"rotations": 3}, {}),
    "route": ("rag", {"route": "brief-context"}, {}),
    "focused with route": ("focused", {"route": "brief-context"}, {}),
    "published": ("brief-context", {"citing": "quotes"}, {"paper_prompts": TEXT}),
    "as coded": ("brief-context", {"citing": "quotes"}, {"paper_prompts": GPT_35}),
    "as coded, closed book": ("closed-book", {"citing": "quotes"}, {"paper_prompts": GPT_35}),
}
"""Strategy, settings and overrides of each way to answer. Every strategy of the registry is one."""


def make_model(mixture: Mapping[str, float], seed: int) -> ScriptedModel:
    """Return a model whose replies are drawn from the mixture by the prompt, the sample and the seed."""

    def choose(request: ChatRequest) -> str:
        point = hash_to_unit_interval(seed, request.messages[-1].content, request.sample, request.seed)
        ends = list(itertools.accumulate(mixture.values()))
        return next(name for name, end in zip(mixture, ends, strict=True) if point * ends[-1] <= end)

    def script(request: ChatRequest) -> str:
        ending = choose(request)
        if ending in ERRORS:
            raise ERRORS[ending](ending)
        if ending in TEXTS_WITHOUT_ANSWER:
            return TEXTS_WITHOUT_ANSWER[ending]
        schema = request.schema or {"type": "object", "properties": {"answer_choice": {"type": "string"}}}
        letter = "A" if ending == "right" else "B"
        values: dict[str, Any] = {"found": ending != "nothing", "choice": letter, "answer_choice": letter}
        return json.dumps(fill(schema, values, "It is so."))

    def probabilities(request: ChatRequest) -> Mapping[str, float]:
        return {"right": {"A": 0.6}, "wrong": {"B": 0.6}}.get(choose(request), {})

    return ScriptedModel(script, probabilities=probabilities)


async def answer_all(variant: str, model: ScriptedModel) -> list[Answer]:
    strategy, changes, overrides = VARIANTS[variant]
    settings = Settings.model_validate({**FEW, **changes})
    treatment = RunOverrides(
        options={"strategy": strategy, "votes": VoteSettings(n=3), "refine": RefineSettings(drafts=2, rounds=1)},
        ranking=RANKING,
        preflight=False,
        sentences=SENTENCES,
        examples=Examples(()),
        **overrides,
    )
    async with Pipeline(settings, dict.fromkeys(ROLES, model)) as pipeline:
        return [await pipeline.answer(question, overrides=treatment) for question in QUESTIONS]


def record(path: Path, answers: list[Answer]) -> Path:
    store = RecordStore(path, recipe())
    for answer in answers:
        store.append_answer(answer)
    return path


def is_right(answer: Answer) -> bool:
    return answer.state == "answered" and answer.choice == answer.question.gold


def list_endings(answer: Answer) -> set[str]:
    return {event.finish_reason for event in answer.trace if isinstance(event, ModelCalled)}


def draw_mixture(seed: int) -> dict[str, float]:
    """Return shares of all endings. Some are left out, and calls are lost under every other seed."""
    generator = random.Random(seed)
    drawn = {name: generator.random() if generator.random() < 0.7 else 0.0 for name in ENDINGS}
    return {**drawn, "right": 1.0, "lost": 0.5 * (seed % 2)}


@pytest.fixture
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "RESAMPLES", 100)


@pytest.mark.slow
@pytest.mark.usefixtures("few_resamples")
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("variant", VARIANTS)
def test_printed_difference_of_any_replies_is_that_over_all_cases(variant: str, seed: int, tmp_path: Path) -> None:
    mixture = draw_mixture(seed)
    rag = asyncio.run(answer_all("rag", make_model(mixture, seed)))
    other = asyncio.run(answer_all(variant, make_model(mixture, seed + 100)))
    findings = compare_run_files([record(tmp_path / "rag.jsonl", rag), record(tmp_path / "other.jsonl", other)])
    runs, differences = findings.tables[0], findings.tables[-1]
    shares = [sum(map(is_right, answers)) / len(QUESTIONS) for answers in (rag, other)]
    printed = [share for share in runs.column(SHARE_COLUMN) if isinstance(share, Mean)]
    assert [mean.value for mean in printed] == pytest.approx(shares)
    assert [mean.n for mean in printed] == [len(QUESTIONS)] * 2
    (difference,) = differences.column(f"{DIFFERENCE_TO}the other")
    assert isinstance(difference, Difference)
    assert difference.n == len(QUESTIONS)
    assert difference.value == pytest.approx(shares[1] - shares[0])
    failed = [sum(answer.state == "failed" for answer in answers) / len(QUESTIONS) for answers in (rag, other)]
    if any(failed):
        (bounds,) = differences.column(DIFFERENCE_BOUNDS)
        assert isinstance(bounds, Interval)
        limits = [difference.value - failed[0], difference.value + failed[1]]
        assert [bounds.low, bounds.high] == pytest.approx(limits)
    else:
        assert DIFFERENCE_BOUNDS not in differences.columns


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("variant", VARIANTS)
def test_case_fails_only_if_a_call_was_lost(variant: str, seed: int) -> None:
    for answer in asyncio.run(answer_all(variant, make_model(draw_mixture(seed), seed))):
        is_lost = bool(list_endings(answer) & LOST)
        assert is_lost or answer.state != "failed", (answer.state, answer.failure)
        for part in answer.partials:
            assert part.state != "failed" or is_lost
        for vote in answer.votes:
            assert vote.state != "failed" or is_lost


@pytest.mark.slow
@pytest.mark.parametrize("ending", UNREADABLE)
@pytest.mark.parametrize("variant", VARIANTS)
def test_unreadable_replies_alone_are_unparsed_in_every_strategy(variant: str, ending: str) -> None:
    for answer in asyncio.run(answer_all(variant, make_model({ending: 1.0}, 0))):
        assert (answer.state, answer.choice) == ("unparsed", None)
        assert answer.failure is not None


@pytest.mark.parametrize("variant", VARIANTS)
def test_lost_calls_alone_fail_in_every_strategy(variant: str) -> None:
    for answer in asyncio.run(answer_all(variant, make_model({"lost": 1.0}, 0))):
        assert (answer.state, answer.choice) == ("failed", None)
