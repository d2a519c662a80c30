"""Questions longer than the encoder's window: what to encode instead, and how much of the question is lost.

Nearly every question of MedQA is a vignette of more than MedCPT's 64 tokens with the question in its last sentence, so
a search that cuts it at the window never reads the question. There are two remedies: to move that sentence to the
front, or to search once per segment and fuse the rankings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from epicrisis.core.printable import count_noun
from epicrisis.core.protocols import Encoder
from epicrisis.core.types import CharacterSpan, LongQuestionPolicy

SentenceSplitter: TypeAlias = Callable[[str], Iterable[CharacterSpan]]
"""Return the offsets of a text's sentences, in order."""

_WORD = re.compile(r"\S+")
_CLOSING = "\"'”’»)]"


@dataclass(frozen=True, slots=True)
class QuestionFit:
    """How much of a question the encoder reads, in content tokens."""

    tokens: int
    """Of the question."""
    window: int
    remedy: LongQuestionPolicy
    """The remedy of the settings, which is not applied to a question that fits."""
    texts: int
    encoded: int
    """Tokens of the question that at least one text passes to the encoder."""

    @property
    def cut(self) -> bool:
        """True if the question is longer than the window, regardless of the remedy."""
        return self.tokens > self.window

    @property
    def lost(self) -> int:
        """Tokens that dense search does not read."""
        return self.tokens - self.encoded

    def notes(self) -> tuple[str, ...]:
        """Return one line for `Ranking.notes`; nothing for a question that fits."""
        if not self.cut:
            return ()
        remedies = {
            "cut": "cut at its end",
            "last-sentence-first": "last sentence first",
            "segments": f"searched in {self.texts} segments",
        }
        loss = (
            f"{count_noun(self.lost, 'token')} not seen by dense search"
            if self.lost
            else "all of it seen by dense search"
        )
        size = f"the question has {self.tokens} tokens, the encoder reads {self.window}"
        return (f"{size}: {remedies[self.remedy]}, {loss}",)


def fit_question(
    text: str, encoder: Encoder, sentences: SentenceSplitter, remedy: LongQuestionPolicy
) -> tuple[tuple[str, ...], QuestionFit]:
    """Return the texts to encode for a question, at least one, and how the question fits the window."""
    texts: tuple[str, ...] = (text,)
    if remedy == "last-sentence-first":
        texts = (move_question_first(text, encoder, sentences),)
    elif remedy == "segments":
        texts = split_segments(text, encoder, sentences)
    tokens, window = _count(text, encoder), encoder.max_query_tokens
    encoded = sum(min(_count(part, encoder), window) for part in texts)
    # A text cut inside a word or at a full stop can have one more token than its share of the question.
    encoded = min(tokens, encoded)
    return texts, QuestionFit(tokens=tokens, window=window, remedy=remedy, texts=len(texts), encoded=encoded)


def move_question_first(text: str, encoder: Encoder, sentences: SentenceSplitter) -> str:
    """Return the question sentence, then as many complete sentences from the beginning as fit the window.

    The question sentence is the last one that ends with a question mark, or else the last one. It is never cut.
    """
    if _fits(text, encoder):
        return text
    parts = [text[slice(*span)] for span in sentences(text)]
    if not parts:
        return text
    questions = [number for number, part in enumerate(parts) if part.rstrip(_CLOSING).endswith("?")]
    result = parts.pop(questions[-1] if questions else -1)
    for part in parts:
        longer = f"{result} {part}"
        if not _fits(longer, encoder):
            break
        result = longer
    return result


def split_segments(text: str, encoder: Encoder, sentences: SentenceSplitter) -> tuple[str, ...]:
    """Return the text in segments of complete sentences, each as long as the window allows.

    A sentence that exceeds the window is cut between words, and only a single word can make a longer segment. Nothing
    but white space between segments is left out.
    """
    if _fits(text, encoder):
        return (text,)
    pieces: list[CharacterSpan] = []
    for start, end in sentences(text):
        if _fits(text[start:end], encoder):
            pieces.append((start, end))
        else:
            pieces += map(re.Match.span, _WORD.finditer(text, start, end))
    spans: list[CharacterSpan] = []
    for start, end in pieces:
        if spans and _fits(text[spans[-1][0] : end], encoder):
            spans[-1] = spans[-1][0], end
        else:
            spans.append((start, end))
    return tuple(text[start:end] for start, end in spans) or (text,)


def _fits(text: str, encoder: Encoder) -> bool:
    return _count(text, encoder) <= encoder.max_query_tokens


def _count(text: str, encoder: Encoder) -> int:
    return len(encoder.token_spans(text))
