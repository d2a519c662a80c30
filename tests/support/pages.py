"""What the tests of the page share: a library of the demo's documents, a model that quotes, and reading of pages."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx2

from epicrisis.core.prompts import unfence
from epicrisis.core.protocols import ChatRequest
from epicrisis.core.types import Document
from epicrisis.reading.support import states_result
from epicrisis.testing.chat import ScriptedModel
from tests.support.replies import fill

DEMO = Path(__file__).parents[2] / "demo" / "documents.jsonl"
_SENTENCE = re.compile(r"[A-Z][^.]{30,400}\.(?= |$)")
_NUMBERED = re.compile(r"(?m)^\[s(\d+)\] (.+)$")
VOID = frozenset({"meta", "link", "br", "input", "img", "hr"})


def demo_documents() -> list[Document]:
    """Return the documents of the demo."""
    documents = []
    for line in DEMO.read_text(encoding="utf-8").splitlines():
        data = json.loads(line)
        documents.append(
            Document(
                data["id"],
                data["text"],
                title=data["title"],
                source=data["source"],
                date=data["date"],
                metadata=data["metadata"],
            )
        )
    return documents


def quoting_model(seed: int = 0) -> ScriptedModel:
    """Return a model that quotes one to three sentences of the documents it reads, or names a number, by the prompt.

    Its claim says what it quotes, or what the prompt repeats of it: a claim in other words would cite nothing.
    """
    quoted: dict[str, None] = {}

    def script(request: ChatRequest) -> str:
        prompt = request.messages[-1].content
        dice = random.Random(f"{seed}/{prompt}")
        quotes: list[dict[str, Any]] = []
        for number, text in enumerate(unfence(prompt), 1):
            # A cited aim or method would be replaced.
            sentences = [sentence for sentence in _SENTENCE.findall(text) if states_result(sentence)]
            if sentences and dice.random() < 0.6:
                quotes.append({"doc": number, "quote": dice.choice(sentences)})
        quotes = quotes[:3] or [{"doc": 1, "quote": "no words of it"}]
        claim = " ".join(quote["quote"] for quote in quotes)
        if "\n[finding 1] " in prompt:
            claim = next((quote for quote in quoted if quote in prompt), claim)
        quoted.update(dict.fromkeys(quote["quote"] for quote in quotes))
        values: dict[str, Any] = {"found": True, "quotes": quotes}
        if numbered := _NUMBERED.findall(prompt):
            chosen = sorted(dice.sample(numbered, min(3, len(numbered))), key=lambda pair: int(pair[0]))
            short = [
                pair
                for place, pair in enumerate(chosen)
                if len(" ".join(text for _, text in chosen[: place + 1])) < 240
            ]
            claim = " ".join(text for _, text in short or chosen[:1])
            values["sentences"] = [int(number) for number, _ in short or chosen[:1]]
        return json.dumps(fill(request.schema or {}, values, claim, dice.choice))

    return ScriptedModel(script)


@dataclass
class Element:
    """An element of a page: its name, attributes and the text in it."""

    name: str
    attributes: Mapping[str, str]
    text: str = ""

    @property
    def classes(self) -> list[str]:
        """Return the classes."""
        return self.attributes.get("class", "").split()


@dataclass
class Page(HTMLParser):
    """The elements of a page in order. Raises AssertionError for tags that do not match."""

    html: str
    elements: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._open: list[Element] = []
        self.feed(self.html)
        assert not self._open, [element.name for element in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open an element."""
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Add an element of SVG that closes itself."""
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        """Close the innermost element."""
        assert self._open, f"</{tag}> closes nothing"
        assert self._open[-1].name == tag, f"</{tag}> closes <{self._open[-1].name}>"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        """Add text to every open element."""
        for element in self._open:
            element.text += data

    def all(self, name: str, class_: str = "") -> list[Element]:
        """Return the elements of this name and class."""
        named = [element for element in self.elements if element.name == name]
        return [element for element in named if not class_ or class_ in element.classes]

    def one(self, name: str, class_: str = "") -> Element:
        """Return the only element of this name and class."""
        (element,) = self.all(name, class_)
        return element


async def ask(client: httpx2.AsyncClient, question: str, **fields: str) -> str:
    """Send the form without JavaScript, and return the address of the answer."""
    response = await client.post("/ask", data={"question": question, **fields})
    assert response.status_code == 303, response.text
    return str(response.headers["location"])


async def open_page(client: httpx2.AsyncClient, address: str) -> Page:
    """Return a page of the server, which must exist."""
    response = await client.get(address)
    assert response.status_code == 200, (address, response.text)
    return Page(response.text)


def texts_by_id(documents: Iterable[Document]) -> Mapping[str, str]:
    """Map document ids to texts."""
    return {document.id: document.text for document in documents}
