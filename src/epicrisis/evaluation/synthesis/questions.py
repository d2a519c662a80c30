"""Questions made from one's own documents, as MedQ was made (BriefContext, Methods): a model proposes PICO questions
and their answers, people accept or reject them.

Passages are drawn at random; of each the model is asked for one question, its answer, and the sentence that it comes
from, which must stand in the passage word for word; and the question must name something that the passage names. A line
of the file is one passage, in the form that `corpus.questions.read_questions` reads, with its `state`:

    proposed    to be changed by people into accepted or rejected; questions count as such once they are accepted
    left-out    the passage gave no question, with the reason

Knows no answering.
"""

from __future__ import annotations

import hashlib
import heapq
import re
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, TypeAlias

from epicrisis.answering.citations import locate
from epicrisis.answering.structured_request import (
    JsonFormat,
    ModelClient,
    Unreadable,
    object_schema,
    read_object,
    text_schema,
)
from epicrisis.answers import Failure, Quotation, Usage
from epicrisis.corpus.chunking import split_by_characters
from epicrisis.corpus.reader_base import Skipped, printable_path
from epicrisis.corpus.readers import read_sources
from epicrisis.errors import InputError
from epicrisis.evaluation.runs.concurrency import run_concurrently
from epicrisis.evaluation.runs.jsonl_store import acquire_lock, append_line, read_lines
from epicrisis.library.library import Library
from epicrisis.library.manifest import NAME as MANIFEST
from epicrisis.library.passage_lookup import sample_passages
from epicrisis.prompts import Prompt, fence_passages, format_passage, render
from epicrisis.serialization import to_json
from epicrisis.types import Document, Passage, Scope

PROMPTS = "epicrisis.evaluation.grading.prompts"
CHARACTERS = 2000
"""Of a passage of a file; a library's passages are as they are."""
ALIKE = 0.8
"""Share of their words that two questions have in common, of all words of both, from which they are near-duplicates."""

ProposalState: TypeAlias = Literal["proposed", "accepted", "rejected", "left-out"]
RejectionReason: TypeAlias = Literal["nothing", "unparsed", "not-verbatim", "names-nothing"]
"""Why a passage gave no question: the model found none, or of two replies neither could be read, quoted verbatim, or
asked about anything that the passage names."""

_FIELDS: Mapping[str, int] = {
    "quote": 400,
    "population": 120,
    "intervention": 120,
    "comparison": 120,
    "outcome": 120,
    "question": 300,
    "answer": 500,
}
"""Of a reply, with the characters each may have at most."""
_PICO = ("population", "intervention", "comparison", "outcome")
_REASONS: Mapping[str, RejectionReason] = {
    "the quotation does not stand in the passage": "not-verbatim",
    "the question names nothing of the passage": "names-nothing",
}
"""By what makes a reply unreadable; all else is `unparsed`."""
_NOT_VERBATIM, _NAMES_NOTHING = _REASONS
_WORD = re.compile(r"\w+")
_COMMON = frozenset(
    _WORD.findall(
        "a an and any are as at be been by can for from had has have how if is its it more most no not of on or than "
        "the their these those to was were what when whose why will would adults group groups participants patients "
        "people subjects treatment"
    )
)
"""Words of any PICO question, beside those of the prompt that asks for one: they name nothing."""


@dataclass(frozen=True, slots=True)
class PassageSample:
    """Passages to make questions of, and what could not be read."""

    passages: tuple[Passage, ...]
    skipped: tuple[Skipped, ...] = ()


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a model wrote of one passage. `pico` holds population, intervention, comparison and outcome."""

    question: str
    answer: str
    pico: Mapping[str, str]
    quotation: Quotation


@dataclass(frozen=True, slots=True)
class GeneratedQuestion:
    """What came of one passage: a proposal, a reason why there is none, or a failure, which is asked again."""

    passage: Passage
    proposal: Proposal | None = None
    reason: RejectionReason | None = None
    failure: Failure | None = None
    usage: Usage = field(default_factory=Usage)


# -- drawing ----------------------------------------------------------------------------------------------------------


def draw_passages(sources: Sequence[Path], n: int, seed: int, scope: Scope) -> PassageSample:
    """`n` passages of one library, or of files and folders, at random: those whose `sha256("<seed>:<id>")` is least, in
    that order, so that a larger n begins with the passages of a smaller one. All where there are fewer.

    Raises InputError where a library stands beside other sources, or where there is no passage within the scope.
    """
    libraries = [path for path in sources if (path / MANIFEST).is_file()]
    if libraries and len(sources) > 1:
        raise InputError(f"{libraries[0]} is a library: name it alone, or name files and folders of documents")
    if libraries:
        with Library.open(libraries[0]) as library:
            drawn = PassageSample(sample_passages(library, n, seed, scope))
    else:
        skipped: list[Skipped] = []
        passages = (each for each in _passages(sources, skipped) if scope.admits(each))
        drawn = PassageSample(
            tuple(heapq.nsmallest(n, passages, key=lambda each: _place(seed, each.id))), tuple(skipped)
        )
    if not drawn.passages:
        raise InputError(
            f"{', '.join(map(printable_path, sources))}: no passage to make a question of (patients' records are left aside): "
            "name documents with text"
        )
    return drawn


def _passages(sources: Sequence[Path], skipped: list[Skipped]) -> Iterator[Passage]:
    seen: set[str] = set()
    for item in read_sources(sources):
        if isinstance(item, Skipped):
            skipped.append(item)
        elif isinstance(item, Document) and item.id not in seen:
            seen.add(item.id)
            yield from split_by_characters(item, CHARACTERS, 0)


def _place(seed: int, passage_id: str) -> bytes:
    return hashlib.sha256(f"{seed}:{passage_id}".encode()).digest()


# -- asking -----------------------------------------------------------------------------------------------------------


def render_prompt(passage: Passage, scope: Scope) -> Prompt:
    """The prompt for one passage."""
    return render(PROMPTS, "pico", documents=fence_passages([passage], scope))


def _form(passage: Passage) -> JsonFormat[Proposal | None]:
    found = {"found": {"type": "boolean", "enum": [True]}, **{name: text_schema(n) for name, n in _FIELDS.items()}}
    nothing = {"found": {"type": "boolean", "enum": [False]}}
    result = {"anyOf": [object_schema(found), object_schema(nothing)]}
    return JsonFormat({"result": result}, sum(_FIELDS.values()) + 200, lambda reply: _read(reply, passage))


def _read(reply: str, passage: Passage) -> Proposal | None:
    """`None` where the passage answers no such question. Raises Unreadable."""
    result = read_object(reply, "result")["result"]
    if not isinstance(result, Mapping) or not isinstance(result.get("found"), bool):
        raise Unreadable("the reply does not say whether it found a question")
    if not result["found"]:
        return None
    texts = {name: result.get(name) for name in _FIELDS}
    if missing := [name for name, text in texts.items() if not isinstance(text, str) or not _WORD.search(text)]:
        raise Unreadable(f"the reply has no {missing[0]}")
    values = {name: str(text).strip() for name, text in texts.items()}
    quotation = locate(values["quote"], passage)
    if not quotation.verified:
        raise Unreadable(_NOT_VERBATIM)
    if not (_words(values["question"]) - _of_the_form()) & _words(format_passage(passage)):
        raise Unreadable(_NAMES_NOTHING)
    return Proposal(values["question"], values["answer"], {name: values[name] for name in _PICO}, quotation)


@cache
def _of_the_form() -> frozenset[str]:
    """What a model may write that only repeats what it was asked for."""
    prompt = render(PROMPTS, "pico", documents="")
    return _COMMON.union(*(_words(message.content) for message in prompt.messages))


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))


async def _made(asker: ModelClient, passage: Passage, scope: Scope) -> GeneratedQuestion:
    said = await asker.request(render_prompt(passage, scope), _form(passage))
    reason: RejectionReason | None = None
    if said.unreadable is not None:
        reason = _REASONS.get(said.unreadable, "unparsed")
    elif said.value is None and said.failure is None:
        reason = "nothing"
    return GeneratedQuestion(passage, said.value, reason, said.failure, said.usage)


async def generate_questions(
    passages: Sequence[Passage], asker: ModelClient, file: QuestionStore, scope: Scope
) -> AsyncGenerator[GeneratedQuestion, None]:
    """What comes of the passages that have no line yet, each kept before it is yielded; failures are not kept. Raises
    as `worked_off` does."""
    left = [passage for passage in passages if passage.id not in file.passages]

    async def work(passage: Passage) -> GeneratedQuestion:
        return await _made(asker, passage, scope)

    # Left half-way it must end what it works on now, not when it is collected.
    async with aclosing(
        run_concurrently(left, work, file.append, lambda made: made.failure, asker.concurrency)
    ) as proposals:
        async for made in proposals:
            yield made


# -- the file ---------------------------------------------------------------------------------------------------------


def recipe(asker: ModelClient) -> dict[str, Any]:
    """What decides the proposals, beside the documents."""
    return {
        "model": to_json(asker.model_recipe),
        "prompt": render(PROMPTS, "pico", documents="").template,
        "seed": asker.seed,
    }


class QuestionStore:
    """The file of proposals, this process's to add to while the object lives. Raises InputError where it holds anything
    else, proposals made otherwise, or where another process is at work on it."""

    def __init__(self, path: Path, recipe: Mapping[str, Any]) -> None:
        self._path = path
        self._lock = acquire_lock(path)
        self._recipe = to_json(recipe)
        self.passages: set[str] = set()
        """Ids of those that were asked about."""
        self.states: Counter[str] = Counter()
        """Lines by their state, and of those left out by the reason."""
        self._texts: dict[str, str] = {}
        for line in read_lines(path):
            if line.value.get("made") != self._recipe or not {"id", "passage", "state"} <= line.value.keys():
                said = "was not made by this model, prompt and seed"
                raise InputError(f"{path}, line {line.number}, {said}: name another file with -o")
            self._note(line.value)

    def append(self, made: GeneratedQuestion) -> None:
        """Durable when it returns. A failure is left aside."""
        if made.failure is None:
            line = to_json(_line(made, self._recipe))
            append_line(self._path, line)
            self._note(line)

    def _note(self, line: Mapping[str, Any]) -> None:
        self.passages.add(str(line["passage"]))
        self.states[str(line.get("reason", line["state"]))] += 1
        if "text" in line:
            self._texts[str(line["id"])] = str(line["text"])

    def near_duplicates(self) -> list[tuple[str, str]]:
        """Ids of any two questions that say nearly the same, in the file's order."""
        words = {id_: _words(text) for id_, text in self._texts.items()}
        return [
            (first, second)
            for first, second in combinations(words, 2)
            if len(words[first] & words[second]) >= ALIKE * len(words[first] | words[second])
        ]


def _line(made: GeneratedQuestion, recipe: Mapping[str, Any]) -> dict[str, Any]:
    passage, proposal = made.passage, made.proposal
    told = {"passage": passage.id, "made": recipe, "usage": made.usage}
    id_ = f"pico-{hashlib.sha256(passage.id.encode()).hexdigest()[:12]}"
    if proposal is None:
        return {"id": id_, "state": "left-out", "reason": made.reason, **told}
    return {
        "id": id_,
        "state": "proposed",
        "text": proposal.question,
        "gold": proposal.answer,
        "gold_documents": [passage.document_id],
        **proposal.pico,
        "quotation": proposal.quotation.text,
        "start": proposal.quotation.start,
        "end": proposal.quotation.end,
        **told,
    }
