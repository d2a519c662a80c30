"""The prompts of papers: BriefContext's by its text and by its notebooks, and those of the EHR study.

The wording is ours. What a prompt asks, shows and leaves out, and in which order, is theirs:
docs/design/paper-presets.md lists each fact with its source. Documents stand inside the fence, as in every prompt. The
notebooks' control tokens are left out, since prompts are chat messages here (errata C5).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from epicrisis.answering.reply_parsing import AnswerFormat, ParsedReply
from epicrisis.answering.stated_choice import ChoiceReader, read_free_reply
from epicrisis.answering.structured_request import EmptyReply, Unreadable, json_objects
from epicrisis.core.prompts import Prompt, check_scope, fence, fence_passages, fence_text, hash_prompts, render
from epicrisis.core.protocols import ANY_OBJECT
from epicrisis.core.types import Passage, Question, Scope

FOLDER = "epicrisis.answering.prompts.papers"
EXTRACT_CHARACTERS = 1000
"""Room for what a map call extracts under the prompts of the text, which state no limit."""
NOTEBOOK_TOKENS = 512
"""New tokens per call in the notebooks (errata C12). They set none for GPT-3.5."""
NO_INFORMATION = "no information detected"
"""The notebooks leave partial answers with this phrase out of the reduce call; no map prompt asks for it (C3)."""
_REASON_WORDS = ("expla", "reason", "justif", "rational")

Stage: TypeAlias = Literal["map", "rag", "reduce", "closed-book"]
PromptAndFormat: TypeAlias = "tuple[Prompt, AnswerFormat | NotebookReply]"
"""A prompt and the format of its reply."""


@dataclass(frozen=True, slots=True)
class NotebookReply:
    """The reply to a prompt of the notebooks: prose, or a JSON object whose keys no prompt names.

    No scorer was published (errata C11), so the choice is read as in other replies in a format of the model's choice.
    """

    options: Mapping[str, str]
    is_partial: bool
    """Whether the reply is a partial answer. It is passed on as it is, with or without a choice."""
    enforces_json: bool = False
    max_tokens: int = NOTEBOOK_TOKENS
    takes_first_reply: bool = True
    """A reply that was cut counts as it is, and nothing is requested again."""

    def schema(self) -> Mapping[str, Any] | None:
        """Return the JSON schema of any object, or None if no format is enforced."""
        return ANY_OBJECT if self.enforces_json else None

    def parse(self, text: str) -> ParsedReply:
        """Return the choice of a reply, with the text of a partial answer unchanged. Raises Unreadable."""
        text = text.strip()
        if not text:
            raise EmptyReply("the reply is empty")
        if self.is_partial and NO_INFORMATION in text.lower():
            return ParsedReply(has_answer=False)
        choice = self._read_choice(text) if self.options else None
        if self.is_partial:
            return ParsedReply(has_answer=True, text=text, choice=choice)
        if self.options and choice is None:
            if read_free_reply(text, self.options).state == "abstained":
                return ParsedReply(has_answer=False)
            raise Unreadable("the reply states no choice, or several")
        return ParsedReply(has_answer=True, text=". ".join(_list_values(text)) or text, choice=choice)

    def _read_choice(self, text: str) -> str | None:
        """Return the choice in the fields of a JSON object, else the one in the text."""
        reader = ChoiceReader(self.options)
        choices = set(filter(None, map(reader.read_words, _list_values(text, with_reasons=False))))
        if choices:
            return choices.pop() if len(choices) == 1 else None
        return read_free_reply(text, self.options).choice


def _list_values(text: str, *, with_reasons: bool = True) -> list[str]:
    """Return the texts in the first JSON object of a reply, or none for prose."""
    try:
        objects = json_objects(text, None)
    except Unreadable:
        objects = []
    values: list[str] = []
    for key, value in objects[0].items() if objects else ():
        if not with_reasons and any(word in key.lower() for word in _REASON_WORDS):
            continue
        if isinstance(value, str):
            values.append(value.strip())
        elif isinstance(value, Mapping):
            values += [f"{letter}. {option}" for letter, option in value.items()]
        elif value is not None:
            values.append(json.dumps(value, ensure_ascii=False))
    return values


@dataclass(frozen=True, slots=True)
class TextPrompts:
    """The prompts that the paper's text describes (Methods, ContextMap and ContextReduce).

    Instruction, question, then documents with labels. The map call extracts what is relevant or reports that there is
    nothing; the reduce call sees what was extracted, and no document. Only the map call may report nothing.
    """

    name: str = "text"

    def build_reading(
        self,
        question: Question,
        passages: Sequence[Passage],
        scope: Scope,
        stage: Literal["map", "rag"],
        about: Sequence[str] = (),
    ) -> PromptAndFormat:
        """Return the request that reads these passages. Raises ScopeViolation."""
        check_scope(passages, scope)
        documents = fence(list(map(_join_title, passages)), marks=[passage.marks for passage in passages])
        reply_format = AnswerFormat(question.options, may_abstain=False)
        if stage == "map":
            reply_format = AnswerFormat(
                question.options,
                text_field="finding",
                text_characters=EXTRACT_CHARACTERS,
                choice_may_be_null=True,
            )
        return self._render(f"text_{stage}", question, documents), reply_format

    def build_reduce(self, question: Question, findings: Sequence[str]) -> PromptAndFormat:
        """Return the request for a summary of the extracted texts."""
        extracted = fence(findings, "finding") if findings else ""
        return self._render("text_reduce", question, extracted), AnswerFormat(question.options, may_abstain=False)

    def build_closed_book(self, question: Question) -> PromptAndFormat:
        """Return the request with the question alone."""
        return self._render("text_rag", question, ""), AnswerFormat(question.options, may_abstain=False)

    def _render(self, template: str, question: Question, documents: str) -> Prompt:
        return render(FOLDER, template, question=question.text, options=question.options, documents=documents)


@dataclass(frozen=True, slots=True)
class NotebookPrompts:
    """The prompts of the notebooks for one family of models (errata C5).

    The question, the documents without labels, then the options and the request for a choice and one sentence. The
    reduce call sees the partial answers as they are, between the question and its repetition.
    """

    name: str
    json_stages: frozenset[Stage] = frozenset()
    """Stages whose prompt asks for JSON."""
    enforces_json: bool = False
    """Whether the request asks the endpoint for a JSON object, which the notebooks do for GPT-3.5 only."""
    has_system: bool = True
    repeats_question: bool = True
    """Whether the question follows the partial answers of the reduce prompt once more."""
    names_extraction: bool = True
    """Whether the role in the reduce prompt speaks of what was extracted, and not of documents."""

    def build_reading(
        self,
        question: Question,
        passages: Sequence[Passage],
        scope: Scope,
        stage: Literal["map", "rag"],
        about: Sequence[str] = (),
    ) -> PromptAndFormat:
        """Return the request that reads these passages. Raises ScopeViolation."""
        check_scope(passages, scope)
        return self._build("notebook_read", question, stage, fence_text("\n".join(map(_join_title, passages))))

    def build_reduce(self, question: Question, findings: Sequence[str]) -> PromptAndFormat:
        """Return the request that answers from the partial answers."""
        return self._build("notebook_reduce", question, "reduce", fence_text("\n\n".join(findings)))

    def build_closed_book(self, question: Question) -> PromptAndFormat:
        """Return the request with the question alone."""
        return self._build("notebook_read", question, "closed-book", "")

    def _build(self, template: str, question: Question, stage: Stage, documents: str) -> PromptAndFormat:
        prompt = render(
            FOLDER,
            template,
            question=question.text,
            options=list_options(question.options),
            documents=documents,
            as_json=stage in self.json_stages,
            has_system=self.has_system,
            repeats_question=self.repeats_question,
            names_extraction=self.names_extraction,
        )
        messages = tuple(message for message in prompt.messages if message.content)
        return replace(prompt, messages=messages), NotebookReply(
            question.options, is_partial=stage == "map", enforces_json=self.enforces_json
        )


@dataclass(frozen=True, slots=True)
class RecordPrompts:
    """The prompts of the EHR study (its Appendix C.3): the notes, then the question, and one short sentence.

    They serve answers from one prompt. The study reads no record in parts.
    """

    name: str = "ehr"

    def build_reading(
        self,
        question: Question,
        passages: Sequence[Passage],
        scope: Scope,
        stage: Literal["map", "rag"],
        about: Sequence[str] = (),
    ) -> PromptAndFormat:
        """Return the request that reads these notes, after the lines of `about`. Raises ScopeViolation."""
        return self._build(question, fence_passages(passages, scope), about)

    def build_closed_book(self, question: Question) -> PromptAndFormat:
        """Return the request with the question alone."""
        return self._build(question, "", ())

    def _build(self, question: Question, documents: str, about: Sequence[str]) -> PromptAndFormat:
        prompt = render(
            FOLDER,
            "record_read",
            question=question.text,
            options=question.options,
            documents=documents,
            about=about,
            is_extractive=question.form == "extractive" and bool(documents),
        )
        return prompt, AnswerFormat(question.options)


MapReducePrompts: TypeAlias = TextPrompts | NotebookPrompts
"""Prompts of a paper that reads documents in parts."""
PaperPrompts: TypeAlias = MapReducePrompts | RecordPrompts

TEXT, EHR = TextPrompts(), RecordPrompts()
GPT_35 = NotebookPrompts(
    "gpt-3.5",
    json_stages=frozenset({"map", "rag", "reduce", "closed-book"}),
    enforces_json=True,
    names_extraction=False,
)
MIXTRAL = NotebookPrompts("mixtral", json_stages=frozenset({"map"}), has_system=False)
LLAMA_2 = NotebookPrompts("llama-2", json_stages=frozenset({"map"}))
LLAMA_3 = NotebookPrompts("llama-3", repeats_question=False, names_extraction=False)


def describe_prompts(prompts: PaperPrompts) -> dict[str, str]:
    """Return the entry of a run's plan on these prompts: their name, and a hash of all prompt files."""
    return {"name": prompts.name, "hash": hash_prompts(FOLDER)}


def list_options(options: Mapping[str, str]) -> str:
    """Return the options on one line, as the notebooks show them: `A. yes, B. no or C. maybe`."""
    *others, last = [f"{letter}. {text}" for letter, text in options.items()] or [""]
    return f"{', '.join(others)} or {last}" if others else last


def _join_title(passage: Passage) -> str:
    """Return title and text on one line, as the notebooks join them, without date and id."""
    return f"{passage.title} {passage.text}" if passage.title else passage.text
