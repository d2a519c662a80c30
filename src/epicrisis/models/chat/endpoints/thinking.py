"""Thinking kept apart from the answer where an endpoint writes both into one text. Pure; knows no wire."""

from __future__ import annotations

import re
from dataclasses import dataclass

THINKING_MARKS = ("<think>", "<thinking>", "<reasoning>", "<thought>")
_LONE_END = "</think>"
_LONGEST_MARK = max(map(len, THINKING_MARKS))
_BLANKS = re.compile(r"\s*+")


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """What a piece of text adds. `void`: the answer so far was thinking after all, and `answer` begins it anew."""

    answer: str = ""
    thinking: str = ""
    void: bool = False


class ThinkingSplitter:
    """Takes a text piece by piece. Thinking is what stands between marks (`<think>...</think>`) before all else, once
    or several times in a row (Bedrock); blanks after it are no part of the answer.

    `expected`: of a model that is known to think, a lone `</think>` ends thinking too: templates put the opening mark
    into the prompt.
    """

    def __init__(self, *, expected: bool = False) -> None:
        self._expected = expected
        self._held = ""
        """Read, but not yet known to be one or the other."""
        self._end = ""
        """The mark that ends the thinking we are in."""
        self._answering = False
        self._thought = False
        self._answer = ""

    def feed(self, piece: str) -> ThinkingDelta:
        """What of the text so far can be told by now."""
        if self._answering:
            return self._continue(piece)
        text, at = self._held + piece, 0
        thinking: list[str] = []
        while True:
            if self._end:
                end = text.find(self._end, at)
                if end < 0:
                    tail = text[max(at, len(text) - len(self._end)) :]
                    cut = len(text) - _overlap(tail, self._end)
                    self._held = text[cut:]
                    return ThinkingDelta(thinking="".join((*thinking, text[at:cut])))
                thinking.append(text[at:end])
                at, self._end = end + len(self._end), ""
            start = _after_blanks(text, at)
            mark = next((mark for mark in THINKING_MARKS if text.startswith(mark, start)), None)
            if mark is None:
                self._held = text[at:]
                begun = text[start : start + _LONGEST_MARK]
                if any(mark.startswith(begun) for mark in THINKING_MARKS):
                    return ThinkingDelta(thinking="".join(thinking))
                return self._begin("".join(thinking))
            at, self._end, self._thought = start + len(mark), mark.replace("<", "</"), True

    def finish(self) -> ThinkingDelta:
        """What was held back; thinking that nobody ended stays thinking."""
        held, self._held = self._held, ""
        if self._end:
            return ThinkingDelta(thinking=held)
        return ThinkingDelta(answer=held.lstrip() if self._thought else held)

    def _begin(self, thinking: str) -> ThinkingDelta:
        self._answering = True
        held, self._held = self._held, ""
        begun = self._continue(held.lstrip() if self._thought else held)
        return ThinkingDelta(begun.answer, thinking + begun.thinking, begun.void)

    def _continue(self, piece: str) -> ThinkingDelta:
        if not self._expected or self._thought:
            return ThinkingDelta(answer=piece)
        before = len(self._answer)
        self._answer += piece
        at = self._answer.find(_LONE_END, max(0, before - len(_LONE_END)))
        if at < 0:
            return ThinkingDelta(answer=piece)
        self._thought, self._answering, self._held = True, False, self._answer[at + len(_LONE_END) :]
        rest = self.feed("")
        return ThinkingDelta(rest.answer, self._answer[:at] + rest.thinking, void=True)


def _after_blanks(text: str, at: int) -> int:
    blanks = _BLANKS.match(text, at)
    return blanks.end() if blanks else at


def _overlap(text: str, mark: str) -> int:
    """How many of the text's last characters may begin the mark."""
    return next((size for size in range(min(len(text), len(mark) - 1), 0, -1) if mark.startswith(text[-size:])), 0)


def split_thinking(text: str, *, expected: bool = False) -> tuple[str, str]:
    """(answer, thinking) of a whole text."""
    splitter = ThinkingSplitter(expected=expected)
    first, last = splitter.feed(text), splitter.finish()
    return first.answer + last.answer, first.thinking + last.thinking
