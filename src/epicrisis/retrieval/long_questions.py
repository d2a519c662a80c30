"""Questions longer than the encoder: what is handed to it instead, and what of the question it then does not see.

Nearly every question of MedQA is a vignette of more than MedCPT's 64 tokens and asks in its last sentence: cut at the
window, the search never sees it. Two remedies: that sentence first, or one search a segment, their rankings fused by
whoever searches. Pure; does not know what a sentence is (it is handed the function that tells) and fuses nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from epicrisis.protocols import Encoder
from epicrisis.types import CharacterSpan, LongQuestionPolicy

Sentences: TypeAlias = Callable[[str], Iterable[CharacterSpan]]
"""Offsets of a text's sentences, in order."""

_WORD = re.compile(r"\S+")
_CLOSING = "\"'”’»)]"


@dataclass(frozen=True, slots=True)
class Fit:
    """How much of a question the encoder reads, in content tokens."""

    tokens: int
    """Of the whole question."""
    window: int
    """What the encoder reads of one text."""
    remedy: LongQuestionPolicy
    """What was asked for; nothing was done where the question fits."""
    texts: int
    """How many texts stand for the question."""
    seen: int
    """Of `tokens`, those that some text shows to the encoder."""

    @property
    def cut(self) -> bool:
        """True when the question is longer than the window, whatever was done about it."""
        return self.tokens > self.window

    @property
    def unseen(self) -> int:
        """Tokens that dense search does not see."""
        return self.tokens - self.seen

    def notes(self) -> tuple[str, ...]:
        """For `Ranking.notes`: one line, none where the question fits."""
        if not self.cut:
            return ()
        done = {
            "cut": "cut at its end",
            "last-sentence-first": "last sentence first",
            "segments": f"searched in {self.texts} segments",
        }[self.remedy]
        lost = f"{self.unseen} tokens not seen by dense search" if self.unseen else "all of it seen by dense search"
        return (f"the question has {self.tokens} tokens, the encoder reads {self.window}: {done}, {lost}",)


def prepare(
    text: str, encoder: Encoder, sentences: Sentences, remedy: LongQuestionPolicy
) -> tuple[tuple[str, ...], Fit]:
    """The texts to encode for the question, at least one, and how it fits."""
    texts: tuple[str, ...] = (text,)
    if remedy == "last-sentence-first":
        texts = (last_sentence_first(text, encoder, sentences),)
    elif remedy == "segments":
        texts = segments(text, encoder, sentences)
    tokens, window = _count(text, encoder), encoder.max_query_tokens
    # Cut inside a word or at a full stop, a text can have a token more than its share of the whole.
    seen = min(tokens, sum(min(_count(part, encoder), window) for part in texts))
    return texts, Fit(tokens=tokens, window=window, remedy=remedy, texts=len(texts), seen=seen)


def cut_share(fits: Iterable[Fit]) -> tuple[int, int]:
    """(questions longer than the window, all questions)."""
    all_fits = list(fits)
    return sum(fit.cut for fit in all_fits), len(all_fits)


def last_sentence_first(text: str, encoder: Encoder, sentences: Sentences) -> str:
    """The question sentence, then the others from the beginning as far as they fit whole.

    The question sentence is the last one that ends with a question mark, else the last. A text that fits comes back as
    it is. A question sentence that is too long by itself comes alone.
    """
    if _fits(text, encoder):
        return text
    spans = list(sentences(text))
    if not spans:
        return text
    asked = next((n for n in reversed(range(len(spans))) if _asks(text, spans[n])), len(spans) - 1)
    order = [asked, *(n for n in range(len(spans)) if n != asked)]
    chosen = text[slice(*spans[asked])]
    for n in order[1:]:
        longer = f"{chosen} {text[slice(*spans[n])]}"
        if not _fits(longer, encoder):
            break
        chosen = longer
    return chosen


def segments(text: str, encoder: Encoder, sentences: Sentences) -> tuple[str, ...]:
    """The text in windows of whole sentences, each as full as it gets, in order; one window where it fits.

    A sentence that is too long by itself is cut between words. Only a single word longer than the window makes a
    segment that is longer. Nothing but white space between the segments is left out.
    """
    if _fits(text, encoder):
        return (text,)
    pieces = list(_pieces(text, encoder, sentences))
    if not pieces:
        return (text,)
    out: list[CharacterSpan] = [pieces[0]]
    for start, end in pieces[1:]:
        first = out[-1][0]
        if _fits(text[first:end], encoder):
            out[-1] = first, end
        else:
            out.append((start, end))
    return tuple(text[start:end] for start, end in out)


def _pieces(text: str, encoder: Encoder, sentences: Sentences) -> Iterator[CharacterSpan]:
    for start, end in sentences(text):
        if _fits(text[start:end], encoder):
            yield start, end
        else:
            yield from (word.span() for word in _WORD.finditer(text, start, end))


def _asks(text: str, span: CharacterSpan) -> bool:
    return text[slice(*span)].rstrip(_CLOSING).endswith("?")


def _fits(text: str, encoder: Encoder) -> bool:
    return _count(text, encoder) <= encoder.max_query_tokens


def _count(text: str, encoder: Encoder) -> int:
    spans: Sequence[CharacterSpan] = encoder.token_spans(text)
    return len(spans)
