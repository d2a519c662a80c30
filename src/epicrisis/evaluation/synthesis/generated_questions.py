"""Questions written by a model from your own documents, as MedQ was made (BriefContext, Methods).

Passages are drawn at random. For each, the model proposes one PICO question, its answer, and the sentence with the
answer, which must occur in the passage word for word. The question must name something of the passage. People accept or
reject the proposals. A line of the file is one passage, in the form of `corpus.questions.read_questions`, with a
`state`:

    proposed    people change it to accepted or rejected; only accepted questions are used
    left-out    the passage gave no question; the line has the reason
"""

from __future__ import annotations

import hashlib
import heapq
import re
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import Field

from epicrisis.answering.citations import locate
from epicrisis.answering.structured_request import (
    JsonFormat,
    ModelClient,
    Unreadable,
    object_schema,
    read_object,
    text_schema,
)
from epicrisis.core.answers import Failure, Quotation, Usage
from epicrisis.core.errors import InputError
from epicrisis.core.prompts import Prompt, fence_passages, format_passage, render
from epicrisis.core.serialization import to_json
from epicrisis.core.types import Document, Passage, Scope
from epicrisis.corpus.base.chunking import split_by_characters
from epicrisis.corpus.base.reader_base import Skipped, printable_path
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.library.base.manifest import NAME as MANIFEST
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.core.passage_lookup import sample_passages
from epicrisis.system.concurrency import store_results
from epicrisis.system.jsonl_store import JsonlStore, StoredLine

PROMPTS = "epicrisis.evaluation.synthesis.prompts"
CHARACTERS = 2000
"""Length of a file's passages; those of a library keep their length."""
ALIKE = 0.8
"""Share of common words, of all words of two questions, from which they are near-duplicates."""

RejectionReason: TypeAlias = Literal["nothing", "unparsed", "not-verbatim", "names-nothing"]
"""Why a passage gave no question: the model found none, or neither of two replies could be read, had a verbatim
quotation, or asked about something in the passage."""

_REPLY_FIELDS: Mapping[str, int] = {
    "quote": 400,
    "population": 120,
    "intervention": 120,
    "comparison": 120,
    "outcome": 120,
    "question": 300,
    "answer": 500,
}
"""Fields of a reply with their greatest length in characters."""
_PICO = ("population", "intervention", "comparison", "outcome")
_NOT_VERBATIM = "the quotation does not stand in the passage"
_NAMES_NOTHING = "the question names nothing of the passage"
_REASONS: Mapping[str, RejectionReason] = {_NOT_VERBATIM: "not-verbatim", _NAMES_NOTHING: "names-nothing"}
"""Reasons by the message of an unreadable reply; all other messages are `unparsed`."""
_WORD = re.compile(r"\w+")
_COMMON_WORDS = frozenset(
    _WORD.findall(
        "a an and any are as at be been by can for from had has have how if is its it more most no not of on or than "
        "the their these those to was were what when whose why will would adults group groups participants patients "
        "people subjects treatment"
    )
)
"""Words of any PICO question, apart from those of the prompt. They name nothing."""


@dataclass(frozen=True, slots=True)
class PassageSample:
    """Passages to write questions about, and unreadable sources."""

    passages: tuple[Passage, ...]
    skipped: tuple[Skipped, ...] = ()


@dataclass(frozen=True, slots=True)
class Proposal:
    """A model's question about one passage. `pico` holds population, intervention, comparison and outcome."""

    question: str
    answer: str
    pico: Mapping[str, str]
    quotation: Quotation


@dataclass(frozen=True, slots=True)
class GeneratedQuestion:
    """The result for one passage: a proposal, a reason why there is none, or a failure, which is repeated later."""

    passage: Passage
    proposal: Proposal | None = None
    reason: RejectionReason | None = None
    failure: Failure | None = None
    usage: Usage = field(default_factory=Usage)


def draw_passages(sources: Sequence[Path], n: int, seed: int, scope: Scope) -> PassageSample:
    """Draw `n` passages of one library, or of files and folders, at random.

    The sample has the smallest `sha256("<seed>:<id>")`, in this order, so a larger sample begins with a smaller one.
    Raises InputError for a library among other sources, and if the scope admits no passage.
    """
    libraries = [path for path in sources if (path / MANIFEST).is_file()]
    if libraries and len(sources) > 1:
        raise InputError(f"{libraries[0]} is a library: give only the library, or files and folders of documents")
    if libraries:
        with LibraryStore.open(libraries[0]) as library:
            sample = PassageSample(sample_passages(library, n, seed, scope))
    else:
        skipped: list[Skipped] = []

        def read_passages() -> Iterator[Passage]:
            ids: set[str] = set()
            for item in read_sources(sources):
                if isinstance(item, Skipped):
                    skipped.append(item)
                elif isinstance(item, Document) and item.id not in ids:
                    ids.add(item.id)
                    yield from split_by_characters(item, CHARACTERS, 0)

        def place(passage: Passage) -> bytes:
            return hashlib.sha256(f"{seed}:{passage.id}".encode()).digest()

        passages = heapq.nsmallest(n, (passage for passage in read_passages() if scope.admits(passage)), key=place)
        sample = PassageSample(tuple(passages), tuple(skipped))
    if not sample.passages:
        raise InputError(
            f"{', '.join(map(printable_path, sources))}: no passage to make a question of (patients' records are left "
            "aside): name documents with text"
        )
    return sample


def render_prompt(passage: Passage, scope: Scope) -> Prompt:
    """Return the prompt for one passage."""
    return render(PROMPTS, "pico", documents=fence_passages([passage], scope))


def _reply_format(passage: Passage) -> JsonFormat[Proposal | None]:
    texts = {name: text_schema(characters) for name, characters in _REPLY_FIELDS.items()}
    question = object_schema({"found": {"type": "boolean", "enum": [True]}, **texts})
    nothing = object_schema({"found": {"type": "boolean", "enum": [False]}})
    length = sum(_REPLY_FIELDS.values()) + 200
    return JsonFormat({"result": {"anyOf": [question, nothing]}}, length, lambda reply: _read_reply(reply, passage))


def _read_reply(reply: str, passage: Passage) -> Proposal | None:
    """Return the proposal, or None if the passage answers no such question. Raises Unreadable."""
    result = read_object(reply, "result")["result"]
    if not isinstance(result, Mapping) or not isinstance(result.get("found"), bool):
        raise Unreadable("the reply does not say whether it found a question")
    if not result["found"]:
        return None
    values: dict[str, str] = {}
    for name in _REPLY_FIELDS:
        text = result.get(name)
        if not isinstance(text, str) or not _WORD.search(text):
            raise Unreadable(f"the reply has no {name}")
        values[name] = text.strip()
    quotation = locate(values["quote"], passage)
    if not quotation.verified:
        raise Unreadable(_NOT_VERBATIM)
    if not (_words(values["question"]) - _prompt_words()) & _words(format_passage(passage)):
        raise Unreadable(_NAMES_NOTHING)
    return Proposal(values["question"], values["answer"], {name: values[name] for name in _PICO}, quotation)


@cache
def _prompt_words() -> frozenset[str]:
    """Return the words of a question that only repeats the prompt."""
    prompt = render(PROMPTS, "pico", documents="")
    return _COMMON_WORDS.union(*(_words(message.content) for message in prompt.messages))


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))


def generate_questions(
    passages: Sequence[Passage], client: ModelClient, store: QuestionStore, scope: Scope
) -> AsyncGenerator[GeneratedQuestion, None]:
    """Write questions about the passages without a line, and yield each result once it is stored.

    Failures are not stored. Raises as `run_concurrently` does.
    """
    missing = [passage for passage in passages if passage.id not in store.passages]

    async def generate(passage: Passage) -> GeneratedQuestion:
        reply = await client.request(render_prompt(passage, scope), _reply_format(passage))
        reason: RejectionReason | None = None
        if reply.unreadable is not None:
            reason = _REASONS.get(reply.unreadable, "unparsed")
        elif reply.value is None and reply.failure is None:
            reason = "nothing"
        return GeneratedQuestion(passage, reply.value, reason, reply.failure, reply.usage)

    return store_results(missing, generate, store.add, client.concurrency)


def recipe(client: ModelClient) -> dict[str, Any]:
    """Return the settings that decide the proposals, apart from the documents."""
    template = render(PROMPTS, "pico", documents="").template
    return {"model": to_json(client.model_recipe), "prompt": template, "seed": client.seed}


class _ProposalLine(StoredLine):
    recipe: dict[str, Any] = Field(alias="made")
    id: str
    state: str
    passage: str
    reason: str = ""
    text: str = ""
    gold: str = ""
    gold_documents: list[str] = Field(default_factory=list)
    population: str = ""
    intervention: str = ""
    comparison: str = ""
    outcome: str = ""
    quotation: str = ""
    start: int | None = None
    end: int | None = None
    usage: Usage = Usage()

    @property
    def identity(self) -> str:
        return self.passage

    def to_json(self) -> dict[str, Any]:
        """Return the line with the recipe at the end, because people read and edit the beginning."""
        line = super().to_json()
        line["made"] = line.pop("made")
        return line


class QuestionStore(JsonlStore[_ProposalLine]):
    """The file of proposals. Raises InputError as `JsonlStore` does."""

    def __init__(self, path: Path, recipe: Mapping[str, Any]) -> None:
        self.states: Counter[str] = Counter()
        """Lines by their state, or by the reason if the passage was left out."""
        super().__init__(path, _ProposalLine, recipe, content="proposed questions")

    def remember(self, line: _ProposalLine) -> None:
        """Keep the line and count its state."""
        super().remember(line)
        self.states[line.reason or line.state] += 1

    @property
    def passages(self) -> set[str]:
        """Ids of the passages with a line."""
        return set(map(str, self.lines))

    def add(self, question: GeneratedQuestion) -> None:
        """Append a result. It is on the disk when this returns. Failures are not stored."""
        if question.failure is not None:
            return
        passage, proposal = question.passage, question.proposal
        content: dict[str, Any] = {"state": "left-out", "reason": question.reason or ""}
        if proposal is not None:
            quotation = proposal.quotation
            content = {
                "state": "proposed",
                "text": proposal.question,
                "gold": proposal.answer,
                "gold_documents": [passage.document_id],
                "quotation": quotation.text,
                "start": quotation.start,
                "end": quotation.end,
                **proposal.pico,
            }
        id_ = f"pico-{hashlib.sha256(passage.id.encode()).hexdigest()[:12]}"
        line = _ProposalLine(recipe=self.recipe, id=id_, passage=passage.id, usage=question.usage, **content)
        self.append(line)

    def near_duplicates(self) -> list[tuple[str, str]]:
        """Return the ids of any two questions with nearly the same words, in the order of the file."""
        words = {line.id: _words(line.text) for line in self.lines.values() if line.text}
        pairs: list[tuple[str, str]] = []
        for first, second in combinations(words, 2):
            if len(words[first] & words[second]) >= ALIKE * len(words[first] | words[second]):
                pairs.append((first, second))
        return pairs
