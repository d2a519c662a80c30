"""Complete a follow-up question from the conversation before it, for a search."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from epicrisis.answering.structured_request import (
    JsonFormat,
    ModelClient,
    StructuredReply,
    Unreadable,
    read_object,
    text_schema,
)
from epicrisis.core.prompts import fence, render

PROMPTS = "epicrisis.answering.prompts.follow_up"
QUESTION_CHARACTERS = 1_000
"""The longest completed question. A longer last message gets its own length in addition."""
_ENGLISH = """
about according after again against also among because been before being between both compared concerning could does
doing done during each from given have having instead into less likely many might more most much only other over
patient patients rather regarding same should since some such than that their them then there these they this those
through under until upon used using versus were what when where whether which while whom whose will with within
without would
"""
FUNCTION_WORDS = frozenset(_ENGLISH.split())
"""Words that a completed question may add: they name no drug, disease or study."""
MIN_WORD_LETTERS = 4
MAX_ENDING = 3
"""Letters by which an inflected word may be longer."""
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class ConversationTurn:
    """A message before the question."""

    role: Literal["user", "assistant"]
    text: str


async def complete_question(
    client: ModelClient, turns: Sequence[ConversationTurn], question: str
) -> StructuredReply[str]:
    """Return the question with what it refers to put in, or why there is none. The turns are fenced as data.

    A reply that does not keep to the conversation is unreadable. Raises BudgetExceeded.
    """

    def read(reply: str) -> str:
        completed = _read_question(reply)
        if not keeps_to_conversation(completed, turns, question):
            raise Unreadable("the completed question is not about the conversation")
        return completed

    messages = fence(f"{turn.role}: {turn.text}" for turn in turns)
    prompt = render(PROMPTS, "complete", messages=messages, question=question)
    limit = QUESTION_CHARACTERS + len(question)
    return await client.request(prompt, JsonFormat({"question": text_schema(limit)}, limit, read))


def keeps_to_conversation(completed: str, turns: Sequence[ConversationTurn], question: str) -> bool:
    """Return whether the completed question keeps the subject of the last one, and adds nothing that was not said.

    At least half of the longer words of the last question must be in it. Its own longer words and numbers must be in
    the conversation, or FUNCTION_WORDS. Inflections of a word count as the word.
    """
    question_words = list_words(question)
    conversation_words = question_words.union(*(list_words(turn.text) for turn in turns))
    words = list_words(completed)
    n_kept = sum(has_word(words, word) for word in question_words)
    return 2 * n_kept >= len(question_words) and all(has_word(conversation_words, word) for word in words)


def has_word(words: Collection[str], word: str) -> bool:
    """Return whether the word, or an inflection of it, is among the words. Numbers are the same only if equal."""
    if word in words or word.isdecimal():
        return word in words
    for other in words:
        shorter, longer = sorted((word, other), key=len)
        if longer.startswith(shorter) and len(longer) - len(shorter) <= MAX_ENDING and not shorter.isdecimal():
            return True
    return False


def list_words(text: str) -> frozenset[str]:
    """Return the numbers and the longer words of a text in lower case, without FUNCTION_WORDS."""
    words: set[str] = set()
    for word in _WORD.findall(text.casefold()):
        if word.isdecimal() or (len(word) >= MIN_WORD_LETTERS and word not in FUNCTION_WORDS):
            words.add(word)
    return frozenset(words)


def _read_question(reply: str) -> str:
    value = read_object(reply, "question")["question"]
    if not isinstance(value, str) or not value.strip():
        raise Unreadable("the reply has no question")
    return " ".join(value.split())
