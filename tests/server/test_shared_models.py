"""Two libraries of one server: their encoder is loaded once, and their chat model has one limit and one budget."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from epicrisis.core.answers import Answer
from epicrisis.core.errors import BudgetExceeded
from epicrisis.core.protocols import Encoder
from epicrisis.core.types import Document, Question
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.server.libraries.resources import RequestSettings, Resources
from epicrisis.settings.settings import Settings
from tests.support.hostile import HostileServer

pytestmark = pytest.mark.models
QUESTIONS = ("Which drug was given for stroke?", "Which drug was given on the ward?")


@pytest.fixture
def folders(tmp_path: Path, encoder: Encoder) -> list[Path]:
    """Two libraries made with minilm."""
    paths = [tmp_path / "first", tmp_path / "second"]
    for number, path in enumerate(paths):
        with open_or_create(path, encoder, "minilm") as library:
            text = "Aspirin was given for stroke on the ward. Warfarin was stopped."
            add_documents(library, [Document(f"paper-{number}", text, title="Stroke")], encoder)
    return paths


def serve(model_home: Path, **changes: object) -> Settings:
    """Return settings of a server with the real models."""
    return Settings.model_validate({"home": model_home, "threads": 1, "strategy": "rag", "k": 2, **changes})


async def ask_each(settings: Settings, folders: list[Path]) -> list[Answer]:
    """Ask every library at the same time."""
    async with await Resources.open(settings, folders) as resources:
        pipelines = [library.with_settings(RequestSettings()) for library in resources.libraries.values()]
        answers = [pipeline.answer(Question(text)) for pipeline, text in zip(pipelines, QUESTIONS, strict=True)]
        return list(await asyncio.gather(*answers))


@pytest.mark.slow
def test_libraries_of_one_encoder_share_its_session(model_home: Path, folders: list[Path]) -> None:
    async def find_encoders() -> list[Encoder | None]:
        async with await Resources.open(serve(model_home, strategy="evidence"), folders) as resources:
            searches = [library.pipeline.search for library in resources.libraries.values()]
            return [search.retriever.encoder for search in searches if search is not None]

    first, second = asyncio.run(find_encoders())
    assert first is not None
    assert first is second


@pytest.mark.slow
def test_libraries_of_one_chat_model_share_its_places(model_home: Path, folders: list[Path]) -> None:
    with HostileServer(delay=0.2) as server:
        models = {"writer": {"name": f"{server.url}#hostile", "concurrency": 1}}
        answers = asyncio.run(ask_each(serve(model_home, models=models), folders))
        assert {answer.question.text for answer in answers} == set(QUESTIONS)
        assert server.ledger.healthy >= 2
        assert server.ledger.most_in_flight == 1


@pytest.mark.slow
def test_budget_that_one_library_has_spent_is_spent_for_the_other(model_home: Path, folders: list[Path]) -> None:
    async def spend(settings: Settings) -> None:
        """Ask the first library until its budget is spent, and then the second."""
        async with await Resources.open(settings, folders) as resources:
            first, second = (library.pipeline for library in resources.libraries.values())
            with pytest.raises(BudgetExceeded):
                await ask_until_failure(first)
            with pytest.raises(BudgetExceeded):
                await second.answer(Question(f"{QUESTIONS[0]} 99"))

    async def ask_until_failure(pipeline: Pipeline) -> None:
        for number in range(10, 60):
            await pipeline.answer(Question(f"{QUESTIONS[0]} {number}"))

    with HostileServer() as server:
        models = {"writer": {"name": f"{server.url}#hostile"}}
        asyncio.run(spend(serve(model_home, models=models, budget={"tokens": 2500}, cache={"mode": "off"})))
        assert server.ledger.healthy >= 2
