"""How a case ended, finer than its state: an empty reply, a refusal and a wrong answer are three things (errata E2).

What is said here rests on the record alone. Knows no metric and no judge.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

from epicrisis.evaluation.runs.record import RunRecord

Ending: TypeAlias = Literal["answered", "abstained", "empty", "refused", "unparsed", "over-window", "failed"]
"""`empty`: nothing came back; `refused`: withheld by the endpoint, or refused in words; `over-window`: the prompt was
longer than the model reads, so nothing was asked. Only `answered` is measured; the others are counted."""
ENDINGS: tuple[Ending, ...] = get_args(Ending)

_KINDS: Mapping[str, Ending] = {"ContextOverflow": "over-window", "EmptyReply": "empty", "ReplyWithheld": "refused"}

# At the very beginning of the answer alone, and of a speaker who says `I`: "cannot be excluded" is an answer, and so is
# "I cannot find it in the notes", which abstains.
_REFUSAL = re.compile(
    r"""(?ix) ^ \W*
    (?: (?:i['’]?m\s+(?:really\s+|very\s+)?sorry|i\s+am\s+sorry|sorry|i\s+apologi[sz]e|unfortunately) \b [\s,.:;]*
        (?:but\s+)? )?
    (?: as\s+an?\s+(?:\w+\s+)?(?:ai|artificial\s+intelligence|(?:large\s+)?language\s+model)\b
      | i\s+(?:can(?:no|['’])t | can\s+not | am\s+(?:unable|not\s+(?:able|allowed|permitted))\s+to
               | (?:will|must)\s+not | won['’]t)
        \s+(?:help|assist|comply|(?:provide|give|offer)\s+(?:you\s+)?(?:with\s+)?(?:any\s+)?(?:medical|clinical)\s+advice
            |(?:answer|discuss|fulfil?l)\s+(?:this|that|your|such)\b)
      | i\s+(?:must|have\s+to)\s+(?:decline|refuse)\b
    )"""
)


def classify_ending(record: RunRecord) -> Ending:
    """How the case of this record ended.

    An open or extractive answer that begins by refusing ("I'm sorry, but I cannot help with ...", "As an AI ...") is
    `refused`; a refusal in other words, or further on in an answer, is not seen.
    """
    answer = record.answer
    state, text = answer.state, answer.text
    kind = "" if answer.failure is None else answer.failure.kind
    if state != "answered" and kind in _KINDS:
        return _KINDS[kind]
    if answer.withheld is not None:
        # A refusal quotes nothing, and so is withheld from the reader.
        text = answer.withheld.text
    said = state in ("answered", "unparsed") or answer.withheld is not None
    if not answer.question.options and said and is_refusal(text):
        return "refused"
    if state == "answered":
        return "answered" if text.strip() or answer.choice is not None else "empty"
    found: Ending = next(each for each in ENDINGS if each == state)
    return found


def is_refusal(text: str) -> bool:
    """Whether the text begins by refusing to answer."""
    return _REFUSAL.match(text) is not None
