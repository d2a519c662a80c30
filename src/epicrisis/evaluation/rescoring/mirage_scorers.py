"""MIRAGE's two scorers as they are, faults included (errata M1): its published figures come from the earlier one.

Both look at a question's first reply alone, take what stands behind the last `"answer_choice": "`, try a fixed order of
patterns for a letter from A to D, and take **A** where none fits. They differ in an empty list of replies: the one of
early 2024 scores the reply of the question before it, in the sorted order of the keys; the present one scores it as
wrong. Knows neither options nor gold answers: a letter that is no option of the question is a wrong answer.

Facts from Teddy-XiongGZ/MIRAGE, `src/utils.py` at 224ebe9, `src/evaluate.py` at 224ebe9 and at ddf4a47.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from epicrisis.evaluation.rescoring.readings import Reading

_FIELD = '"answer_choice": "'
_DEFAULT = "A"
# In this order; each is looked for in the whole text before the next is tried.
_PATTERNS = (
    re.compile(r"^\s*([A-D])(?:$| or| and|/|,)"),
    re.compile(r"[Oo]ption ([A-D])"),
    re.compile(r":\s*([A-D])"),
    re.compile(r'^\s*([A-D])[.":]'),
)


def find_letter(reply: str) -> str | None:
    """The letter that MIRAGE's patterns find; `None` where it scores A for want of one."""
    said = reply.rpartition(_FIELD)[2].strip()
    return next((found[1] for pattern in _PATTERNS if (found := pattern.search(said))), None)


def read_like_head(replies: Iterable[Sequence[str]]) -> Iterator[Reading]:
    """The readings of the present scorer, in the order given; each item is one question's replies."""
    for outputs in replies:
        yield _scored(outputs[0]) if outputs else Reading("failed")


def read_like_early_2024(replies: Iterable[Sequence[str]]) -> Iterator[Reading]:
    """The readings of the scorer that made the published figures; the order must be that of the sorted keys.

    Where the very first question has no reply MIRAGE's program ends with an error; here its reading is `failed`.
    """
    before: str | None = None
    for outputs in replies:
        if outputs:
            before = outputs[0]
            yield _scored(before)
        elif before is None:
            yield Reading("failed")
        else:
            yield Reading("answered", find_letter(before) or _DEFAULT, by_default=True)


def _scored(reply: str) -> Reading:
    found = find_letter(reply)
    return Reading("answered", found or _DEFAULT, by_default=found is None)
