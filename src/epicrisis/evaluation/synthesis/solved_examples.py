"""Questions of a set solved by a chat model, to be shown as examples (context-retrieval study, sections 3.2, 4.2, 5.2).

    solved              the model under test solves the question by chain of thought without the answer; right solutions
                        are kept. There is one attempt: repeated until it is right, it would keep lucky guesses
    chain-of-thought    a model knows the right answer and writes the reasoning that leads to it, option by option
    tree-of-thought     the same as a discussion of three experts

A written solution is valid if it ends with the right choice and its reasoning concludes no other. Otherwise it is
requested again with another draw. The answer to an open question must contain the words of the known answer.

A question with options can become an open question: without them, with the text of the right one as the known answer.

`find_leaks` finds solved examples that are questions of a test set: a strategy that shows them would reveal the answer.
The rule is `retrieval.examples.is_same_question`, which also filters the examples in prompts.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import Field

from epicrisis.answering.reply_parsing import ANSWER_CHARACTERS, REASONING_CHARACTERS, REPLY_KEYS, AnswerFormat
from epicrisis.answering.strategy_context import PROMPTS as ANSWERING
from epicrisis.answering.structured_request import (
    SECOND_TRY_TEMPERATURE,
    JsonFormat,
    ModelClient,
    Unreadable,
    json_objects,
    text_schema,
)
from epicrisis.core.answers import Failure, Usage
from epicrisis.core.errors import InputError
from epicrisis.core.prompts import Prompt, render
from epicrisis.core.question_options import is_same_option
from epicrisis.core.serialization import to_json
from epicrisis.core.types import Question
from epicrisis.corpus.base.jsonl import find_json_fault
from epicrisis.evaluation.datasets.dataset import Dataset, sample_at_random
from epicrisis.evaluation.synthesis.example_documents import library_examples
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.retrieval.solved_questions import is_same_question, shingle_similarity, split_shingles
from epicrisis.system.concurrency import store_results
from epicrisis.system.jsonl_store import JsonlStore, StoredLine

PROMPTS = "epicrisis.evaluation.synthesis.prompts"

SolvingMethod: TypeAlias = Literal["solved", "chain-of-thought", "tree-of-thought"]
SolutionState: TypeAlias = Literal["kept", "wrong", "abstained", "unparsed"]
"""How the last attempt at a question ended. Only `kept` questions are examples."""
SkipReason: TypeAlias = Literal["no known answer", "of a patient", "asks for one of its options"]
"""Why a question is skipped: its answer is unknown, it is about a patient, or it needs its options."""

ATTEMPTS = 3
_REASONING_CHARACTERS: Mapping[SolvingMethod, int] = {
    "solved": REASONING_CHARACTERS,
    "chain-of-thought": 2500,
    "tree-of-thought": 4000,
}


_CONCLUDES = re.compile(r"(?i)\b(?:answer|correct|right)\b")

_WHICH_IS = re.compile(
    r"(?i)\b(w)hich (?:one )?of the following (is|are)(?= (?:the|most)\b)(?! the (?:least|exception)\b)"
)
"""A question for one thing, which can be asked without options."""
_OF_OPTIONS = re.compile(
    r"(?i)\b(?:(?:of|all|among|amongst|from) (?:the )?following|(?:which|one|all|any|none|each) of these|of the above|"
    r"all the above|which (?:statement|option|choice)s?|except(?! (?:for|that) \w))\b"
)
_OF_OTHERS = re.compile(r"(?i)\W*(?:all|any|both|none)(?:(?: of)?(?: the)? (?:above|these|following))?\W*")
"""An option that refers to others."""


@dataclass(frozen=True, slots=True)
class SelectedQuestions:
    """The questions of a set to solve, in its order, and the number of skipped ones."""

    name: str
    questions: tuple[Question, ...]
    left_aside: Mapping[SkipReason, int]


@dataclass(frozen=True, slots=True)
class Solution:
    """The content of a reply. `found` is False if the model gives no answer."""

    found: bool
    answer: str = ""
    choice: str | None = None
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class SolvedQuestion:
    """The result for one question: a state, with a solution if it is kept, or a failure, which is repeated later."""

    question: Question
    tries: int
    state: SolutionState | None = None
    solution: Solution | None = None
    failure: Failure | None = None
    usage: Usage = field(default_factory=Usage)
    """Of all attempts."""


def select_questions(dataset: Dataset, n: int | None, seed: int, *, openly: bool = False) -> SelectedQuestions:
    """Select the questions with a known answer and without a patient, or a random sample of `n` of them.

    With `openly`, all become open questions, except those that need their options. Raises InputError if there is none,
    or if there are fewer than `n`.
    """
    left_aside: Counter[SkipReason] = Counter()
    usable = []
    for question in dataset.questions:
        candidate = without_options(question) if openly else question
        options, gold = candidate.options, candidate.gold or ""
        if candidate.patient is not None:
            left_aside["of a patient"] += 1
        elif gold not in options if options else not _words(gold):
            left_aside["no known answer"] += 1
        elif openly and options:
            left_aside["asks for one of its options"] += 1
        else:
            usable.append(candidate)
    if not usable:
        condition = " and makes sense without its options" if openly else ""
        raise InputError(
            f"{dataset.name} has no question with a known answer that is of no patient{condition}: choose a set with "
            "known answers"
        )
    candidates = replace(dataset, questions=tuple(usable))
    selection = candidates if n is None else sample_at_random(candidates, n, seed)
    return SelectedQuestions(dataset.name, selection.questions, left_aside)


def without_options(question: Question) -> Question:
    """Return the question as an open one whose known answer is the text of the right option.

    "Which of the following is the ..." becomes "What is the ...", also with "are" and before "most"; all other words
    stay. A question whose words then still refer to options ("of the following", "all of the above", "except" and the
    like), or whose right option refers to others ("All of the above"), is returned unchanged.
    """
    text = _WHICH_IS.sub(lambda match: f"{match[1]}hat {match[2]}", question.text)
    gold = question.options.get(question.gold or "")
    if gold is None or _OF_OPTIONS.search(text) or _OF_OTHERS.fullmatch(gold):
        return question
    return replace(question, text=text, options={}, form="open", gold=gold)


def render_prompt(question: Question, how: SolvingMethod) -> Prompt:
    """Return the prompt for one question. That of `solved` is the strategy's own, so both share cached replies."""
    values = {"question": question.text, "options": question.options}
    if how == "solved":
        return render(ANSWERING, "chain_of_thought", **values)
    return render(PROMPTS, f"solve_{how.replace('-', '_')}", **values, gold=question.gold)


def _reply_format(question: Question, how: SolvingMethod) -> JsonFormat[Solution]:
    options, characters = question.options, _REASONING_CHARACTERS[how]
    answer_format = AnswerFormat(options, reasoning=True)
    # For `solved` this is exactly the request of the strategy.
    properties = {**answer_format.schema()["properties"], "reasoning": text_schema(characters)}

    def read(text: str) -> Solution:
        reply = answer_format.parse(text)
        if not reply.has_answer:
            return Solution(False)
        reasonings = (item["reasoning"] for item in json_objects(text, frozenset({"reasoning"})))
        reasoning = next((value for value in reasonings if isinstance(value, str)), "").strip()
        if not reasoning and json_objects(text, REPLY_KEYS):
            raise Unreadable("the reply has no reasoning")
        if fault := find_json_fault([reasoning, reply.text]):
            raise Unreadable(f"the reply {fault}")
        # A written reasoning must not conclude another choice.
        if how != "solved" and options and _concluded_choice(reasoning, options) not in (None, reply.choice):
            raise Unreadable("the reasoning comes to another choice than the reply states")
        return Solution(True, reply.text, reply.choice, reasoning)

    return JsonFormat(properties, characters + ANSWER_CHARACTERS, read)


def _concluded_choice(reasoning: str, options: Mapping[str, str]) -> str | None:
    """Return the last choice that the reasoning calls the answer, or None if it only weighs the options."""
    answer_format = AnswerFormat(options)
    for sentence in reversed(re.split(r"(?<=[.!?])\s+|\n+", reasoning)):
        if not _CONCLUDES.search(sentence):
            continue
        try:
            return answer_format.parse(sentence).choice
        except Unreadable:
            continue
    return None


def _classify(question: Question, solution: Solution | None) -> SolutionState:
    if solution is None:
        return "unparsed"
    if not solution.found:
        return "abstained"
    if question.options:
        right = is_same_option(question.options, solution.choice, question.gold)
    else:
        right = contains_answer(solution.answer, question.gold or "")
    return "kept" if right else "wrong"


def contains_answer(answer: str, gold: str) -> bool:
    """Return whether an answer contains the words of the known answer in a row, ignoring case and punctuation.

    A negation before them is not noticed, and synonyms are not known.
    """
    words, known = _words(answer), _words(gold)
    return any(words[i : i + len(known)] == known for i in range(len(words) - len(known) + 1))


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def solve_questions(
    questions: Iterable[Question], client: ModelClient, store: SolutionStore, how: SolvingMethod, tries: int = ATTEMPTS
) -> AsyncGenerator[SolvedQuestion, None]:
    """Solve the questions without a line, and yield each result once it is stored. Failures are not stored.

    `tries` is the number of attempts at a written solution; `solved` has one. Raises as `run_concurrently` does, and
    InputError if a question has changed since its line was written.
    """
    missing = [question for question in questions if not store.has(question)]

    async def solve(question: Question) -> SolvedQuestion:
        prompt, reply_format = render_prompt(question, how), _reply_format(question, how)
        usage, state, attempt_client = Usage(), _classify(question, None), client
        for number in range(1, 2 if how == "solved" else tries + 1):
            if number > 1:
                # Each attempt has two seeds, because an unreadable reply is requested once more.
                temperature = max(client.sampling.temperature, SECOND_TRY_TEMPERATURE)
                sampling, seed = replace(client.sampling, temperature=temperature), attempt_client.seed + 2
                attempt_client = replace(client, sampling=sampling, seed=seed)
            reply = await attempt_client.request(prompt, reply_format)
            usage += reply.usage
            if reply.failure is not None:
                return SolvedQuestion(question, number, failure=reply.failure, usage=usage)
            state = _classify(question, reply.value)
            if state == "kept":
                return SolvedQuestion(question, number, state, reply.value, usage=usage)
        return SolvedQuestion(question, number, state, usage=usage)

    return store_results(missing, solve, store.add, client.concurrency)


def recipe(client: ModelClient, how: SolvingMethod, tries: int = ATTEMPTS) -> dict[str, Any]:
    """Return the settings that decide the solutions, apart from the questions."""
    template = render_prompt(Question("", gold=""), how).template
    settings = {"how": how, "model": to_json(client.model_recipe), "prompt": template, "seed": client.seed}
    return settings if how == "solved" else {**settings, "tries": tries}


class _SolutionLine(StoredLine):
    recipe: dict[str, Any] = Field(alias="made")
    id: str
    set: str
    state: str
    asked: str
    """Digest of the question and the known answer."""
    how: str = ""
    model: str = ""
    tries: int = 0
    question: str = ""
    options: dict[str, str] = Field(default_factory=dict)
    choice: str | None = None
    reasoning: str = ""
    answer: str = ""
    form: str = ""
    usage: Usage = Usage()

    @property
    def identity(self) -> tuple[str, str]:
        return self.set, self.id


class SolutionStore(JsonlStore[_SolutionLine]):
    """The file of results of one or several sets. Raises InputError as `JsonlStore` does."""

    def __init__(self, path: Path, set_name: str, recipe: Mapping[str, Any]) -> None:
        self._set = set_name
        self.states: Counter[str] = Counter()
        """Lines of this set by their state."""
        super().__init__(path, _SolutionLine, recipe, content="solved questions")

    def remember(self, line: _SolutionLine) -> None:
        """Keep a line of this set and count its state."""
        if line.set == self._set:
            super().remember(line)
            self.states[line.state] += 1

    def has(self, question: Question) -> bool:
        """Return whether the question has a line. Raises InputError if it has changed since the line was written."""
        line = self.lines.get((self._set, question.id))
        if line is not None and line.asked != _digest(question):
            raise InputError(
                f"question {question.id} of {self._set} has changed since {self.path} was begun: choose another file "
                "with -o"
            )
        return line is not None

    def add(self, solved: SolvedQuestion) -> None:
        """Append a result. It is on the disk when this returns. Failures are not stored."""
        if solved.failure is not None:
            return
        question, solution = solved.question, solved.solution
        content: dict[str, Any] = {}
        if solution is not None:
            content = {
                "question": question.text,
                "options": dict(question.options),
                "choice": solution.choice,
                "reasoning": solution.reasoning,
                "answer": solution.answer,
                "form": question.form,
            }
        line = _SolutionLine(
            recipe=self.recipe,
            id=question.id,
            set=self._set,
            how=self.recipe["how"],
            model=self.recipe["model"].get("name", ""),
            state=solved.state or "",
            tries=solved.tries,
            usage=solved.usage,
            asked=_digest(question),
            **content,
        )
        self.append(line)


def _digest(question: Question) -> str:
    """Return 16 hexadecimal digits of a hash of the question and the known answer."""
    content = json.dumps([question.text, dict(question.options), question.gold], ensure_ascii=False)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


Shingle: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Leak:
    """An example that is a question of the set."""

    example: str
    question: str
    same_id: bool
    similarity: float
    """Similarity of the texts, 0 to 1."""


def find_leaks(library: LibraryStore, questions: Sequence[Question], leak_similarity: float) -> tuple[Leak, ...]:
    """Return the examples that are questions of the set, by example. Raises InputError as `library_examples` does."""
    examples = []
    for passage, example in library_examples(library):
        examples.append((example.id, example.text, str(passage.metadata.get("question_id", ""))))
    leaks = find_leaks_among(examples, questions, leak_similarity)
    return tuple(sorted(leaks, key=lambda leak: (leak.example, leak.question)))


def find_leaks_among(
    examples: Iterable[tuple[str, str, str]], questions: Sequence[Question], leak_similarity: float
) -> Iterator[Leak]:
    """Yield the leaks among examples (id, text, id of the question) in their order. `leak_similarity` is above 0."""
    frequencies: Counter[Shingle] = Counter()
    for question in questions:
        frequencies.update(_shingles(question.text))
    by_shingle: dict[Shingle, list[int]] = defaultdict(list)
    by_id: dict[str, list[int]] = defaultdict(list)
    for place, question in enumerate(questions):
        by_id[question.id].append(place)
        for shingle in _rarest_shingles(question.text, frequencies, leak_similarity):
            by_shingle[shingle].append(place)
    for name, text, question_id in examples:
        places = set(by_id.get(question_id, ()))
        for shingle in _rarest_shingles(text, frequencies, leak_similarity):
            places.update(by_shingle.get(shingle, ()))
        for place in sorted(places):
            question = questions[place]
            if is_same_question(question, text, question_id, leak_similarity):
                yield Leak(name, question.id, question.id == question_id, shingle_similarity(question.text, text))


def _rarest_shingles(text: str, frequencies: Mapping[Shingle, int], leak_similarity: float) -> list[Shingle]:
    """Return enough of the rarest shingles that a similar text has at least one of them."""
    rarest_first = sorted(_shingles(text), key=lambda shingle: (frequencies.get(shingle, 0), shingle))
    # Subtract a little, so that rounding does not lose a text of exactly this similarity.
    required = math.ceil(leak_similarity * len(rarest_first) - 1e-9)
    return rarest_first[: len(rarest_first) - required + 1]


def _shingles(text: str) -> set[Shingle]:
    """Return the shingles of a text. All texts without words are equal."""
    return split_shingles(text) or {()}
