"""Thinking kept apart from the answer where an endpoint writes both into one text. Pure; knows no wire."""

from __future__ import annotations

from dataclasses import dataclass

THINKING_MARKS = ("<think>", "<thinking>", "<reasoning>", "<thought>")
_LONE_END = "</think>"


@dataclass(frozen=True, slots=True)
class Parts:
    """What a piece of text adds. `void`: the answer so far was thinking after all, and `answer` begins it anew."""

    answer: str = ""
    thinking: str = ""
    void: bool = False


class Splitter:
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

    def feed(self, piece: str) -> Parts:
        """What of the text so far can be told by now."""
        if self._answering:
            return self._continue(piece)
        self._held += piece
        thinking = ""
        while True:
            if self._end:
                inside, found, rest = self._held.partition(self._end)
                if not found:
                    kept = _overlap(self._held, self._end)
                    cut = len(self._held) - kept
                    thinking, self._held = thinking + self._held[:cut], self._held[cut:]
                    return Parts(thinking=thinking)
                thinking, self._held, self._end = thinking + inside, rest, ""
            start = self._held.lstrip()
            mark = next((mark for mark in THINKING_MARKS if start.startswith(mark)), None)
            if mark is None:
                if any(mark.startswith(start) for mark in THINKING_MARKS):
                    return Parts(thinking=thinking)
                return self._begin(thinking)
            self._held, self._end, self._thought = start.removeprefix(mark), mark.replace("<", "</"), True

    def finish(self) -> Parts:
        """What was held back; thinking that nobody ended stays thinking."""
        held, self._held = self._held, ""
        if self._end:
            return Parts(thinking=held)
        return Parts(answer=held.lstrip() if self._thought else held)

    def _begin(self, thinking: str) -> Parts:
        self._answering = True
        held, self._held = self._held, ""
        begun = self._continue(held.lstrip() if self._thought else held)
        return Parts(begun.answer, thinking + begun.thinking, begun.void)

    def _continue(self, piece: str) -> Parts:
        if not self._expected or self._thought:
            return Parts(answer=piece)
        before = len(self._answer)
        self._answer += piece
        at = self._answer.find(_LONE_END, max(0, before - len(_LONE_END)))
        if at < 0:
            return Parts(answer=piece)
        self._thought, self._answering, self._held = True, False, self._answer[at + len(_LONE_END) :]
        rest = self.feed("")
        return Parts(rest.answer, self._answer[:at] + rest.thinking, void=True)


def _overlap(text: str, mark: str) -> int:
    """How many of the text's last characters may begin the mark."""
    return next((size for size in range(min(len(text), len(mark) - 1), 0, -1) if mark.startswith(text[-size:])), 0)


def split(text: str, *, expected: bool = False) -> tuple[str, str]:
    """(answer, thinking) of a whole text."""
    splitter = Splitter(expected=expected)
    first, last = splitter.feed(text), splitter.finish()
    return first.answer + last.answer, first.thinking + last.thinking
