"""Reader of replies in a format of the model's choice, such as the replies that a study published.

Such a reply states its choice in a JSON field or in words, or it consists of the choice. The choice itself is read by
`ChoiceReader`. This module recognises what our own format makes explicit: abstentions and failed calls.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from epicrisis.answering.stated_choice import ChoiceReader
from epicrisis.types import AnswerState

# The choice field of a reply, even of broken JSON: a text, a list of texts, or a bare word.
_FIELD = re.compile(
    r"""(?:["'](?:answer_choice|choice)["']|\banswer_choice)\s*:\s*
    (?: "((?:[^"\\]|\\.)*)" | '((?:[^'\\]|\\.)*)' | \[([^\[\]]*)\] | ([^\W\d_]+) )""",
    re.VERBOSE,
)
_FOUND_NOTHING = re.compile(r'"found"\s*:\s*false\b')

_REPLY_CUE = re.compile(
    r"(?i)\b(?:answer|choice|option)\b[^\n.:=]{0,40}?(?:\b(?:is|would be|should be|must be)\b|:|=)[\s:*_]*"
    r"([^\n]{0,500})"
)
"""The words after `the answer is`."""
_CUE_VARIANT = re.compile(
    r"(?i)[\"']?\b(answer|choice|option)(?:\s+(?:to|for)\s+(?:this|the)\s+question)?(?:[\"'](?=\s*:))?"
)
"""`"answer"` and `answer to this question`, which `ChoiceReader` reads as `answer`."""
_OPENING = re.compile(r"[^.,;:!]{2,}(?=[.,;:!])")
"""The words before the first punctuation mark: `No, because ...`."""
_FOREIGN_LETTER = re.compile(r"^[a-z][).:]+\s+")
"""A letter before an abstention: `E. None of the above` of four options is no fifth option."""
_ABSTAINS = re.compile(
    r"""(?ix)
    (?: none | null | nil | n/?a | unknown | unclear | uncertain | undetermined | undeterminable | indeterminate
      | indeterminable | inconclusive | insufficient | inadequate | unspecified | unanswerable | undecided
      | (?:more|further|additional)\ (?:information|data|evidence|research|stud(?:y|ies))
      | (?:a\ )?lack\ of\ (?:information|data|evidence) | missing\ (?:information|data|evidence)
      | neither (?=\s+of\b|\W*$)
      | (?:i\ am|i['’]m)?\ ?(?:not\ sure|unsure) | it['’]s\ (?:unclear|unknown|uncertain)
      | there\ is\ (?:insufficient|inadequate|not\ enough)
      | (?:(?:the|this)\ )?question\ (?:cannot|can\ not|can['’]t|is\ (?:unanswerable|unclear|incomplete)|incomplete)
      | (?:there\ (?:is|are)\ )?no\s+(?:\w+\s+){0,2}?
        (?:answer|option|choice|information|evidence|data|mention|documents?|conclusion)
      | (?:(?:it|this|that|(?:the\ )?(?:correct\ )?answer)\ (?:is\ )?)?
        not\s+(?:enough|sufficient|clear|known|given|specified|mentioned|provided|stated|found|available|possible|listed
                |supported|addressed|among|discussed|explicitly|directly|applicable|determin\w+|answerable|in\ the)
      | (?:(?:it|this|that|which|(?:the\ )?(?:correct\ )?answer|i|we)\ )?(?:(?:is|am|are)\ )?
        (?:cannot|can\ not|can['’]t|could\ not|unable|impossible|unknown|unclear|uncertain)
      | (?:i|we)\ (?:do\ not|don['’]t)\ (?:know|have)
      | (?:the\ )?(?:(?:given|provided|relevant|available|current|existing)\ )?
        (?:documents?|information|evidence|data|literature|studies|passages?|context)
        \ (?:(?:is|are|do|does|did|was|were)\ )?(?:not|insufficient|inconclusive|inadequate|unavailable|lacking|unclear)
    )\b"""
)

# The message of a program whose call failed, at the beginning of the reply.
_ERROR = re.compile(
    r"""(?ix)
    \W*+ (?:
        (?:[a-z]\w*\.){0,4} (?:[a-z]{1,40})? (?:error|exception|timeout) (?:\ code)? \s? [:(]
      | (?:the\ )? (?:response|prompt|request|output|content|completion)\ was\ (?:filtered|blocked|flagged)
      | content[ _-]?filter
      | (?:request|connection|read|gateway)\ (?:timed\ out|time-?out|error|aborted|reset|refused|broken)
      | https?connectionpool\( | [45]\d\d\ (?:client|server)\ error
      | (?:[45]\d\d\ )? (?:bad\ gateway|service\ (?:is\ )?(?:temporarily\ )?unavailable|internal\ server\ error
                       |gateway\ time-?out|too\ many\ requests)
      | rate\ limit\ (?:reached|exceeded) | this\ model['’]s\ maximum\ context\ length
      | (?:the\ server|that\ model)\ (?:is|had|was)\ (?:currently\ )?(?:an\ error|overloaded)
      | (?:the\ )?(?:api|server|endpoint)\ returned\ (?:an?\ )?(?:empty|error)
      | (?:doctype\ )?html \s*+ [>\n]
    )"""
)
_ERROR_OBJECT = re.compile(r"""\s*+\{\s*+["']error["']\s*+:""")
_REPLY_EDGES = "()[]{}\"'*_.,:;\\ \t\r\n"


@dataclass(frozen=True, slots=True)
class FreeReply:
    """What a reply states. `choice` is a letter if the state is `answered`, else None."""

    state: AnswerState
    choice: str | None = None


def read_free_reply(reply: str, options: Mapping[str, str]) -> FreeReply:
    """Return the choice that a reply states, as the letter of one of the options.

    The state is `failed` for an empty reply and for the error message of a failed call, `abstained` for a reply that
    says that there is no answer, and `unparsed` for a reply with no choice or with two different ones.
    """
    if not re.search(r"\w", reply):
        return FreeReply("failed")
    reader = ChoiceReader(options)
    values: list[str] = []
    for text, quoted, texts, word in _FIELD.findall(reply):
        values += re.findall(r"[^\s\"',][^\"',]*", texts) if texts else [text or quoted or word]
    if values:
        choices = set(filter(None, map(reader.read_words, values)))
        return _conclude(choices, abstains=any(map(_abstains, values)))
    if _ERROR.match(reply) or _ERROR_OBJECT.match(reply):
        return FreeReply("failed")
    if _FOUND_NOTHING.search(reply):
        return FreeReply("abstained")
    lines = [line for line in reply.splitlines() if re.search(r"\w", line)]
    prose = _CUE_VARIANT.sub(r"\1", reply)
    choices = reader.read_prose(prose) or reader.read_prose(lines[-1])
    opening = _OPENING.match(lines[0].strip())
    if not choices and opening and (choice := reader.read_words(opening[0])):
        choices = {choice}
    statements = [*_REPLY_CUE.findall(reply), lines[0], lines[-1]]
    return _conclude(choices, abstains=any(map(_abstains, statements)))


def _conclude(choices: set[str], *, abstains: bool) -> FreeReply:
    if len(choices) == 1:
        return FreeReply("answered", choices.pop())
    return FreeReply("abstained" if abstains and not choices else "unparsed")


def _abstains(words: str) -> bool:
    """Return whether these words say that there is no answer."""
    return bool(_ABSTAINS.match(_FOREIGN_LETTER.sub("", words.strip(_REPLY_EDGES).casefold())))
