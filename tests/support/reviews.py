"""Two runs of the same questions over a real library, and a review of them on a server with users."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from fastapi import FastAPI

from epicrisis.core.prompts import unfence
from epicrisis.core.protocols import ChatRequest
from epicrisis.core.types import Document, Question
from epicrisis.evaluation.runs.run_folder import Run, RunPlan
from epicrisis.pipeline.recording.case import Case
from epicrisis.pipeline.recording.runner import answer_cases
from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.base.item_folder import ItemFolder
from epicrisis.server.base.users import USERS_FILE, Role, UserStore
from epicrisis.server.runs.reviews import BlindReview, ReviewStore
from epicrisis.server.state.state import REVIEWS_FOLDER
from epicrisis.testing.chat import ScriptedModel
from tests.support.pages import Element, Page, demo_documents
from tests.support.replies import fill
from tests.support.servers import connect, open_library, open_resources

OURS, RIVAL = "ward-parts-2026", "ward-whole-2025"
"""Names of the runs, which no reviewer may see."""
STRATEGIES = {OURS: "brief-context", RIVAL: "rag"}
SECRETS = (OURS, RIVAL, *STRATEGIES.values(), "BriefContext", "scripted", "seconds", "strategy", "parts of", "swapped")
"""Words that a reviewer's page must not hold."""
TEXTS = (
    "Does low-dose aspirin lower the risk of preterm pre-eclampsia?",
    "Does zinc shorten acute diarrhoea in children?",
    "Do statins lower mortality in coronary disease?",
    "Does vitamin D prevent fractures in older adults?",
    "Does metformin help in gestational diabetes?",
    "Is early mobilisation after stroke beneficial?",
)
OPTIONS = {"A": "yes", "B": "no"}


WORDS = {OURS: "Treatment lowers the risk in this trial.", RIVAL: "The drug works for these patients."}
"""What the model of each run says, so that a test knows whose answer it reads."""


def make_model(words: str) -> ScriptedModel:
    """Return a model that says these words and names the first two sentences that it reads, in an order of its own."""

    def script(request: ChatRequest) -> str:
        # The marks of the fence differ from call to call.
        dice = random.Random("/".join((words, *unfence(request.messages[-1].content))))
        values = {"found": True, "sentences": dice.sample((1, 2), 2)}
        return json.dumps(fill(request.schema or {}, values, words, dice.choice))

    return ScriptedModel(script)


def list_questions(texts: Sequence[str] = TEXTS, patient: str | None = None) -> list[Question]:
    """Return a question with options for each text."""
    return [Question(text, options=OPTIONS, form="choice", id=str(i), patient=patient) for i, text in enumerate(texts)]


def answer_run(
    folder: Path,
    library: Path,
    questions: Sequence[Question],
    strategy: str,
    words: str,
    *,
    documents: Sequence[Document] | None = None,
) -> None:
    """Answer the questions by a strategy over a library of these documents, and write the run."""
    settings: dict[str, Any] = {
        "preflight": {"enabled": False},
        "k": 8,
        "partition": 4,
        "unverified": "keep",
        "check": "off",
    }
    settings["strategy"] = strategy
    opened = open_library(library, make_model(words), documents or demo_documents(), **settings)
    pipeline = opened.pipeline
    recipe = {**pipeline.recipe(), "models": {"writer": {"name": f"scripted-{strategy}-model"}}}
    dataset = {"name": "own", "sha256": "5" * 64, "n": len(questions), "licence": ""}
    plan = RunPlan("evaluate", {"guard": "none"}, recipe, dataset, {"how": "all"}, 0)
    cases = [Case(question) for question in questions]

    async def answer() -> None:
        with Run.open(folder, plan, cases) as run:
            async for _ in answer_cases(pipeline, cases, run.records):
                pass

    asyncio.run(answer())


def make_two_runs(parent: Path, questions: Sequence[Question] | None = None) -> Path:
    """Write both runs below a folder, and return it."""
    runs = parent / "runs"
    for name, strategy in STRATEGIES.items():
        answer_run(runs / name, parent / f"lib-{strategy}", questions or list_questions(), strategy, WORDS[name])
    return runs


def make_app(parent: Path, runs: Path) -> FastAPI:
    """Return the application over these runs, with its folder below `parent`. A second one is a restart."""
    number = len(list(parent.glob("lib-server*")))
    place = parent / f"lib-server-{number}"
    options = ServerOptions(folder=parent / "server", runs=runs)
    return create_app(open_resources(open_library(place)), options)


def add_users(parent: Path, **roles: Role) -> dict[str, str]:
    """Add users, and return their keys by name."""
    users = UserStore(parent / "server" / USERS_FILE)
    return {name: users.add(name, role) for name, role in roles.items()}


@dataclass
class Reviewer:
    """A client of the application with the key of a user, without scripts."""

    app: FastAPI
    key: str | None = None
    pages: dict[str, str] = field(default_factory=dict)
    """Every page that was read, by address."""

    async def send(self, method: str, address: str, **data: Any) -> httpx2.Response:
        """Send a request, and keep its page."""
        headers = {} if self.key is None else {"authorization": f"Bearer {self.key}"}
        async with connect(self.app, headers=headers) as client:
            response = await client.request(method, address, **data)
        self.pages[f"{method} {address}"] = f"{response.headers}\n{response.text}"
        return response

    def get(self, address: str) -> httpx2.Response:
        """Return a page."""
        return asyncio.run(self.send("GET", address))

    def post(self, address: str, **fields: Any) -> httpx2.Response:
        """Send a form."""
        return asyncio.run(self.send("POST", address, data=fields))

    def open(self, address: str) -> Page:
        """Return a page that must exist."""
        response = self.get(address)
        assert response.status_code == 200, (address, response.text)
        return Page(response.text)

    def start(self, **fields: Any) -> str:
        """Start a review of both runs, and return its address."""
        response = self.post("/reviews", **{"ours": OURS, "rival": RIVAL, **fields})
        assert response.status_code == 303, response.text
        return str(response.headers["location"])


def open_review(parent: Path, address: str) -> BlindReview:
    """Return the stored review of an address."""
    return ReviewStore(ItemFolder(parent / "server" / REVIEWS_FOLDER)).find(address.rpartition("/")[2])


def read_halves(page: Page) -> list[str]:
    """Return the words of both answers of a question's page."""
    return [" ".join(half.text.split()) for half in page.all("section", "half")]


def find_button(page: Page, value: str) -> Element:
    """Return the button of the form that sends this choice."""
    return next(button for button in page.all("button") if button.attributes.get("value") == value)


def find_leaks(text: str, words: Sequence[str]) -> list[str]:
    """Return the words that a page gives away, whatever their case. Parts of longer words are none."""
    return [word for word in words if re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE)]
