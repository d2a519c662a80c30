"""Questions of a set solved by a chat model, to be shown as examples (the context-retrieval study, sections 3.2, 4.2
and 5.2), and the file that keeps what came of each.

    solved              the model to be tested solves the question by chain of thought and is not told the answer; right
                        ones are kept, once and for all: asked until it is right, it would keep lucky guesses
    chain-of-thought    a model is told the right answer and writes the reasoning that leads to it, option by option
    tree-of-thought     the same as a discussion of three experts

Of the last two an entry is valid where the choice that it ends with is the right one and its reasoning comes to no
other; else it is asked for again, as another draw. Of an open question the words of the known answer must stand in the
answer. Knows no library, no encoder and no screen.

A question with options can be asked openly: without them, the right one's text its known answer (section 5.2).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

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
from epicrisis.answers import Failure, Usage
from epicrisis.corpus.json_checks import find_json_fault
from epicrisis.errors import InputError
from epicrisis.evaluation.datasets.dataset import Dataset
from epicrisis.evaluation.datasets.sampling import sample_at_random
from epicrisis.evaluation.runs.concurrency import run_concurrently
from epicrisis.evaluation.runs.jsonl_store import acquire_lock, append_line, read_lines
from epicrisis.prompts import Prompt, render
from epicrisis.question_options import is_same_option
from epicrisis.serialization import to_json
from epicrisis.types import Question

PROMPTS = "epicrisis.evaluation.grading.prompts"

SolvingMethod: TypeAlias = Literal["solved", "chain-of-thought", "tree-of-thought"]
SolutionState: TypeAlias = Literal["kept", "wrong", "abstained", "unparsed"]
"""How the last try of a question ended; only what is `kept` is an example."""
SkipReason: TypeAlias = Literal["no known answer", "of a patient", "asks for one of its options"]
"""Why a question is not asked: it could not be checked, must not be shown to others, or is none without its options."""

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
"""Asks for one thing: so it is asked as well without options."""
_OF_OPTIONS = re.compile(
    r"(?i)\b(?:(?:of|all|among|amongst|from) (?:the )?following|(?:which|one|all|any|none|each) of these|of the above|"
    r"all the above|which (?:statement|option|choice)s?|except(?! (?:for|that) \w))\b"
)
_OF_OTHERS = re.compile(r"(?i)\W*(?:all|any|both|none)(?:(?: of)?(?: the)? (?:above|these|following))?\W*")
"""An option that is others."""


@dataclass(frozen=True, slots=True)
class SelectedQuestions:
    """The questions of a set that are to be solved, in its order, and how many were left aside."""

    name: str
    questions: tuple[Question, ...]
    left_aside: Mapping[SkipReason, int]


@dataclass(frozen=True, slots=True)
class Solution:
    """What a reply says. `found` is False where the model gives no answer."""

    found: bool
    answer: str = ""
    choice: str | None = None
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class SolvedQuestion:
    """What came of one question: a state, with a solution where it is kept; or a failure, which is asked again."""

    question: Question
    tries: int
    state: SolutionState | None = None
    solution: Solution | None = None
    failure: Failure | None = None
    usage: Usage = field(default_factory=Usage)
    """Of all tries."""


def select_questions(dataset: Dataset, n: int | None, seed: int, *, openly: bool = False) -> SelectedQuestions:
    """Those with a known answer and of no patient; with `n` so many of them, drawn by the seed (`datasets.sampling`).

    `openly` all are asked without options, but for those that make no sense so. Raises InputError where there are none,
    or fewer than `n`.
    """
    read = [without_options(each) if openly else each for each in dataset.questions]
    left_aside = Counter(reason for question in read if (reason := _reason(question, openly)))
    fit = replace(dataset, questions=tuple(each for each in read if _reason(each, openly) is None))
    if not fit.questions:
        sense = " and makes sense without its options" if openly else ""
        raise InputError(
            f"{dataset.name} has no question with a known answer that is of no patient{sense}: name a set that tells "
            "the right letters or texts"
        )
    return SelectedQuestions(dataset.name, (fit if n is None else sample_at_random(fit, n, seed)).questions, left_aside)


def without_options(question: Question) -> Question:
    """The question without its options, the right one's text its known answer; itself where it cannot be asked so.

    "Which of the following is the ..." becomes "What is the ...", and so with "are" and before "most"; all other words
    stay. It can be asked so where its words then point to no options ("of the following", "all of the above", "except"
    and the like) and the right one is not others of them ("All of the above").
    """
    text = _WHICH_IS.sub(lambda found: f"{found[1]}hat {found[2]}", question.text)
    gold = question.options.get(question.gold or "")
    if gold is None or _OF_OPTIONS.search(text) or _OF_OTHERS.fullmatch(gold):
        return question
    return replace(question, text=text, options={}, form="open", gold=gold)


def _reason(question: Question, openly: bool) -> SkipReason | None:
    if question.patient is not None:
        return "of a patient"
    known = question.gold in question.options if question.options else bool(_words(question.gold or ""))
    if not known:
        return "no known answer"
    return "asks for one of its options" if openly and question.options else None


# -- asking -----------------------------------------------------------------------------------------------------------


def render_prompt(question: Question, how: SolvingMethod) -> Prompt:
    """The prompt for one question; that of `solved` is the strategy's own, so both share their kept replies."""
    asked = {"question": question.text, "options": question.options}
    if how == "solved":
        return render(ANSWERING, "chain_of_thought", **asked)
    return render(PROMPTS, f"solve_{how.replace('-', '_')}", **asked, gold=question.gold)


def _form(question: Question, how: SolvingMethod) -> JsonFormat[Solution]:
    form = AnswerFormat(question.options, reasoning=True)
    characters = _REASONING_CHARACTERS[how]
    # Of `solved` the same request as the strategy's, to the letter.
    properties = {**form.schema()["properties"], "reasoning": text_schema(characters)}
    return JsonFormat(properties, characters + ANSWER_CHARACTERS, lambda reply: _read(reply, form, how != "solved"))


def _read(text: str, form: AnswerFormat, concludes: bool) -> Solution:
    """With `concludes` the reasoning must come to no other choice than the reply states. Raises Unreadable."""
    reply = form.read(text)
    if not reply.found:
        return Solution(False)
    said = [each["reasoning"] for each in json_objects(text, frozenset({"reasoning"}))]
    reasoning = next((each.strip() for each in said if isinstance(each, str)), "")
    if not reasoning and json_objects(text, REPLY_KEYS):
        raise Unreadable("the reply has no reasoning")
    if wrong := find_json_fault([reasoning, reply.text]):
        raise Unreadable(f"the reply {wrong}")
    if concludes and form.options and _concluded(reasoning, form.options) not in (None, reply.choice):
        raise Unreadable("the reasoning comes to another choice than the reply states")
    return Solution(True, reply.text, reply.choice, reasoning)


def _concluded(reasoning: str, options: Mapping[str, str]) -> str | None:
    """The last choice that the reasoning says is the answer; `None` where it says it of none, and only weighs them."""
    form = AnswerFormat(options)
    sentences = re.split(r"(?<=[.!?])\s+|\n+", reasoning)
    for sentence in reversed([each for each in sentences if _CONCLUDES.search(each)]):
        try:
            return form.read(sentence).choice
        except Unreadable:
            continue
    return None


def _state(question: Question, solution: Solution | None) -> SolutionState:
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
    """Whether the words of the known answer stand in this one, all of them one after the other, whatever case and
    punctuation. A negation before them is not seen, other words for the same are not known."""
    said, known = _words(answer), _words(gold)
    return any(said[i : i + len(known)] == known for i in range(len(said) - len(known) + 1))


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


async def _solved(asker: ModelClient, question: Question, how: SolvingMethod, tries: int) -> SolvedQuestion:
    prompt, form = render_prompt(question, how), _form(question, how)
    usage, state = Usage(), _state(question, None)
    for number in range(1, tries + 1):
        said = await _drawn(asker, number).request(prompt, form)
        usage += said.usage
        if said.failure is not None:
            return SolvedQuestion(question, number, failure=said.failure, usage=usage)
        state = _state(question, said.value)
        if state == "kept":
            return SolvedQuestion(question, number, state, said.value, usage=usage)
    return SolvedQuestion(question, number, state, usage=usage)


def _drawn(asker: ModelClient, number: int) -> ModelClient:
    """The model as it draws for this try, from 1. Each has two seeds: an unreadable reply is asked for once more."""
    if number == 1:
        return asker
    hotter = max(asker.sampling.temperature, SECOND_TRY_TEMPERATURE)
    sampling = replace(asker.sampling, temperature=hotter)
    return replace(asker, sampling=sampling, seed=asker.seed + 2 * (number - 1))


async def solve_questions(
    questions: Iterable[Question], asker: ModelClient, file: SolutionStore, how: SolvingMethod, tries: int = ATTEMPTS
) -> AsyncGenerator[SolvedQuestion, None]:
    """What comes of the questions that have no line yet, each kept before it is yielded; failures are not kept.

    `tries` are those of a written solution; `solved` has one. Raises as `worked_off` does, and InputError where a
    question was asked in other words before.
    """
    left = [question for question in questions if not file.has(question)]

    async def work(question: Question) -> SolvedQuestion:
        return await _solved(asker, question, how, 1 if how == "solved" else tries)

    # Left half-way it must end what it works on now, not when it is collected.
    async with aclosing(
        run_concurrently(left, work, file.append, lambda each: each.failure, asker.concurrency)
    ) as ended:
        async for each in ended:
            yield each


# -- the file ---------------------------------------------------------------------------------------------------------


def recipe(asker: ModelClient, how: SolvingMethod, tries: int = ATTEMPTS) -> dict[str, Any]:
    """What decides the solutions, beside the questions."""
    template = render_prompt(Question("", gold=""), how).template
    told = {"how": how, "model": to_json(asker.model_recipe), "prompt": template, "seed": asker.seed}
    return told if how == "solved" else {**told, "tries": tries}


class SolutionStore:
    """The file of what came of each question, this process's to add to while the object lives; it may hold several
    sets. Raises InputError where it holds anything else, solutions made otherwise, or where another process is at work
    on it."""

    def __init__(self, path: Path, set_name: str, recipe: Mapping[str, Any]) -> None:
        self._path = path
        self._lock = acquire_lock(path)
        self._set = set_name
        self._recipe = recipe
        self._asked: dict[str, str] = {}
        self.states: Counter[str] = Counter()
        """Lines of this set by their state."""
        for line in read_lines(path):
            if line.value.get("made") != recipe or not {"id", "set", "asked", "state"} <= line.value.keys():
                said = "was not made so, by this model, prompt and seed"
                raise InputError(f"{path}, line {line.number}, {said}: name another file with -o")
            self._note(line.value)

    def has(self, question: Question) -> bool:
        """Whether the question has a line. Raises InputError where that one asked something else."""
        asked = self._asked.get(question.id)
        if asked not in (None, _digest(question)):
            raise InputError(
                f"question {question.id} of {self._set} has changed since {self._path} was begun: name another file "
                "with -o"
            )
        return asked is not None

    def append(self, solved: SolvedQuestion) -> None:
        """Durable when it returns. A failure is left aside."""
        if solved.failure is None:
            line = to_json(self._line(solved))
            append_line(self._path, line)
            self._note(line)

    def _note(self, line: Mapping[str, Any]) -> None:
        if line["set"] == self._set:
            self._asked[str(line["id"])] = str(line["asked"])
            self.states[str(line["state"])] += 1

    def _line(self, solved: SolvedQuestion) -> dict[str, Any]:
        question, solution = solved.question, solved.solution
        line = {
            "id": question.id,
            "set": self._set,
            "how": self._recipe["how"],
            "model": self._recipe["model"].get("name", ""),
            "state": solved.state,
            "tries": solved.tries,
        }
        if solution is not None:
            asked = {"question": question.text, "options": question.options, "choice": solution.choice}
            line |= {**asked, "reasoning": solution.reasoning, "answer": solution.answer, "form": question.form}
        return {**line, "usage": solved.usage, "asked": _digest(question), "made": self._recipe}


def _digest(question: Question) -> str:
    """16 digits of the SHA-256 of what is asked and what is right."""
    told = json.dumps([question.text, dict(question.options), question.gold], ensure_ascii=False)
    return hashlib.sha256(told.encode()).hexdigest()[:16]
