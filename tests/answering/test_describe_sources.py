"""Study types in prompts (`describe_sources`): stated if asked for, and no byte of a prompt changes if not."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from epicrisis.answering.strategies.brief_context import brief_context
from epicrisis.answering.strategies.rag import rag
from epicrisis.core.types import Passage, Question
from epicrisis.settings.configuration import read_presets
from epicrisis.testing.chat import ScriptedModel
from tests.support.numbered_sentences import PASSAGES, claims, numbered_world
from tests.support.strategies import (
    OPEN_QUESTION,
    QUESTION,
    by_stage,
    items_of,
    maps,
    passages,
    per_part,
    quoting,
    reduces,
    run,
    said,
    world,
)

TYPES = ("Randomized Controlled Trial", "Review", "Case Reports", "")


def studies() -> list[Passage]:
    """Four passages, three of them of a known study type."""
    described: list[Passage] = []
    for passage, publication_type in zip(passages(4), TYPES, strict=True):
        types = [publication_type] if publication_type else []
        described.append(replace(passage, metadata={"publication_types": types}))
    return described


def ask(strategy: Any, question: Question, **more: Any) -> ScriptedModel:
    """Return the model after one question, with two findings for the reduce call."""
    model = ScriptedModel(
        by_stage(
            map=per_part({0: quoting(0, 1), 2: quoting(2, 1, "B")}),
            reduce=said(sources=[1], answer="It does.", choice="A"),
            rag=said(quotes=[{"doc": 1, "quote": "aspirin lowers risk number 0"}], answer="It does.", choice="A"),
        )
    )
    run(strategy, world(model, studies(), partition=2, **more), question)
    return model


@pytest.mark.parametrize(
    ("strategy", "question", "digest"),
    [
        (rag, QUESTION, "32a0ec101a89e10e"),
        (rag, OPEN_QUESTION, "01c809f3b9339e5f"),
        (brief_context, QUESTION, "43b31b4d88d506cd"),
        (brief_context, OPEN_QUESTION, "5d46438e08fba18e"),
    ],
)
def test_prompts_without_descriptions_are_those_before_the_setting_existed(
    strategy: Any, question: Question, digest: str
) -> None:
    """The digests are of the prompts of commit 64bd8252, for the same passages. Experiments depend on them."""
    contents: list[str] = []
    for request in ask(strategy, question, describe_sources=False).requests:
        contents += [message.content for message in request.messages]
    assert hashlib.sha256("\0".join(contents).encode()).hexdigest()[:16] == digest


def test_reduce_prompt_states_study_types_of_findings() -> None:
    model = ask(brief_context, QUESTION, describe_sources=True)
    assert items_of(maps(model)[0])[0].startswith("Title 0 (2015, randomised trial)\n")
    assert items_of(reduces(model)[0]) == [
        "Trial 0 says so. (option A, 2015, randomised trial)",
        "Trial 2 says so. (option B, 2015, case report)",
    ]
    plain = ask(brief_context, QUESTION, describe_sources=False)
    assert items_of(reduces(plain)[0]) == ["Trial 0 says so. (option A, 2015)", "Trial 2 says so. (option B, 2015)"]


def test_numbered_finding_names_each_study_type_once() -> None:
    trial = {"publication_types": ["Randomized Controlled Trial"]}
    found = [replace(passage, metadata=trial) for passage in PASSAGES]
    model = ScriptedModel(
        by_stage(
            map=said(finding="Both help.", sentences=[2, 4], choice=None), reduce=claims(("Yes.", [1]), choice="yes")
        )
    )
    run(brief_context, numbered_world(model, found, describe_sources=True))
    assert items_of(reduces(model)[0])[0].startswith("Both help. (2015, randomised trial)\n")


def test_presets_of_papers_leave_descriptions_out() -> None:
    for name, values in read_presets().items():
        assert values["describe_sources"] is False, name
