"""The choice that a free reply states, or that it states none: never a default letter (errata M1, P2).

A reply states its choice in a JSON field, or in words ("the answer is B", "Answer: no"), or it is one. A letter that is
only weighed ("option A is wrong") is not stated. One letter is an answer; two different ones are `unparsed`, and so is
none, unless the reply says that there is no answer: that is `abstained`. Blank text is `failed`: nothing came back. So
is the message of a content filter or of a broken connection in a reply's place.
Knows no gold answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from epicrisis.evaluation.rescoring.readings import Reading
from epicrisis.question_options import first_same_option

_EDGES = "()[]{}\"'*_.,:;\\ \t\r\n"

# The field of a reply, also of one that is broken JSON: a text, a list of texts, or a bare word.
_FIELD = re.compile(
    r"""(?:["'](?:answer_choice|choice)["']|\banswer_choice)\s*:\s*
    (?: "((?:[^"\\]|\\.)*)" | '((?:[^'\\]|\\.)*)' | \[([^\[\]]*)\] | ([^\W\d_]+) )""",
    re.VERBOSE,
)
_NOT_FOUND = re.compile(r'"found"\s*:\s*false\b')

# What follows is read to the line's end or as far as an option may be long, and looked through again: a line may state
# more than once.
_CUE = re.compile(
    r"""(?ix)
    (?: \banswer\b (?:\s+(?:choice|option))? (?:\s+(?:to|for)\s+(?:this|the)\s+question)?
      | \b(?:choice|option)\b
    ) [\s*_"')]* (?: \b(?:is|would\ be|should\ be|must\ be)\b | : | = ) [\s:*_]*
    (?=(.{0,500}))
    """
)
_CHOSEN = re.compile(
    r"(?i)\b(?:choose|chose|select|selected|pick|picked)[\s:*_]+(?=(.{0,500}))|\\boxed\{(?:\\text\{)?(?=(.{0,500}))"
)
_VERDICT = re.compile(
    r"(?i:\b(?:option|choice|answer)\s+)?(?<![\w'])([A-Z])[)\"'*]*\s+is\s+(?:therefore\s+|thus\s+)?(?:the\s+)?"
    r"(?:correct|right|best)(?:\s+(?:answer|choice|option)\b|\s*[.,;\n]|\s*$)"
)

_LETTERED = re.compile(
    r"(?:(?i:most\s+likely|likely|probably|therefore|clearly|definitely)[\s,:]++)?"
    r"(?:(?i:the\s+)?(?i:option|choice|answer|letter|statement)\b[\s:]*+)?"
    r"[(\[{\"'*_\s]*+(?:([A-Z])(?![\w'’])|([a-z])(?=\)))(.*)",
    re.DOTALL,
)
_ANOTHER = re.compile(
    r"[\])}\"'*_]*+\s*+(?:,|/|&|\+|\band\b|\bor\b)[\s,]*+(?i:and|or|option|\s)*+[(\[\"'*]*+([A-Z])(?![\w'’])"
)
# What tells a letter that is a choice from the first one of some words: "B cells", "D-dimer", "A patient".
_ENDS = re.compile(
    r"[)\]}\"'*_]+|[\s\\]*(?:$|[.,:;/&+(\n]|[-–—]\s|(?:and|or|is|because|since|as|due|based|for|which|with)\b)"
)

_OTHER_HEAD = re.compile(r"^[a-z][).:]+\s+")
_HEAD = re.compile(r"[(*]*([A-Z])[)*]*[).:]")

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

# What a program writes in a reply's place when its call failed, at the beginning of it.
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


def read(reply: str, options: Mapping[str, str]) -> Reading:
    """What the reply states, as one of the options' letters; option texts count as their letter."""
    if not re.search(r"\w", reply):
        return Reading("failed")
    fields = list(_fields(reply))
    if not fields and (_ERROR.match(reply) or _ERROR_OBJECT.match(reply)):
        return Reading("failed")
    if fields:
        return _one(fields, options) or Reading("unparsed")
    if _NOT_FOUND.search(reply):
        return Reading("abstained")
    return _one(_statements(reply), options) or _lines(reply, options) or Reading("unparsed")


def _one(statements: Iterable[str], options: Mapping[str, str]) -> Reading | None:
    """The one letter that is stated, or that two are; else that none is to be had; else nothing."""
    meant = {_meant(words, options) for words in statements} - {None}
    letters = {first_same_option(options, each) for each in meant if each}
    if letters:
        return Reading("answered", letters.pop()) if len(letters) == 1 else Reading("unparsed")
    return Reading("abstained") if meant else None


def _fields(reply: str) -> Iterator[str]:
    for text, quoted, texts, word in _FIELD.findall(reply):
        if texts:
            yield from re.findall(r"[^\s\"',][^\"',]*", texts)
        else:
            yield text or quoted or word


def _statements(reply: str) -> Iterator[str]:
    for pattern in (_CUE, _CHOSEN, _VERDICT):
        for found in pattern.finditer(reply):
            yield next(words for words in found.groups() if words is not None)


def _meant(words: str, options: Mapping[str, str]) -> str | None:
    """The letter of these few words, empty where they abstain, `None` where they are neither."""
    words, plain = words.strip(), _plain(words)
    if plain.upper() in options:
        return plain.upper()
    texts = {letter: _plain(text) for letter, text in options.items()}
    # "E. None of the above" of four options is no fifth one.
    abstains = bool(_ABSTAINS.match(_OTHER_HEAD.sub("", plain)))
    begun = [
        letter
        for letter, text in texts.items()
        if len(text) > 1 and _begins(plain, text) and (plain == text or not abstains or _ABSTAINS.match(text))
    ]
    if begun:
        longest = max(len(texts[letter]) for letter in begun)
        begun = [letter for letter in begun if len(texts[letter]) == longest]
        return begun[0] if len({first_same_option(options, letter) for letter in begun}) == 1 else None
    found = _LETTERED.match(words)
    if found and (letter := (found[1] or found[2]).upper()) in texts:
        own = _begins(_plain(found[3].lstrip("-–— ")), texts[letter])
        if own or _ENDS.match(found[3]):
            return letter if own or not _contradicted(letter, found[3], texts) else None
    return "" if abstains else None


def _contradicted(letter: str, rest: str, texts: Mapping[str, str]) -> bool:
    """Whether what follows the letter is another letter, or another option's text."""
    another = _ANOTHER.match(rest)
    if another and another[1] in texts:
        return another[1] != letter
    return _plain(rest.lstrip("-–—)]:. ")) in set(texts.values()) - {texts[letter]}


def _lines(reply: str, options: Mapping[str, str]) -> Reading | None:
    """A reply that is itself the choice, or whose first or last line is: `B`, `B. no`, `no`.

    Also one that begins so and goes on with its reasons, where no other line begins with another letter.
    """
    lines = [line.strip() for line in reply.splitlines() if re.search(r"\w", line)]
    short = [line for line in (lines[0], lines[-1]) if _is_choice(line, options)]
    if short:
        return _one(short, options)
    heads = [found[1] if (found := _HEAD.match(line)) and found[1] in options else "" for line in lines]
    if heads[0] and set(heads) <= {heads[0], ""}:
        return Reading("answered", heads[0])
    return _one([lines[0]], {letter: text for letter, text in options.items() if _opens(lines[0], text)})


def _is_choice(line: str, options: Mapping[str, str]) -> bool:
    """Whether the line is a letter, an option's text, or both."""
    head, _, rest = _plain(line).partition(" ")
    texts = {letter: _plain(text) for letter, text in options.items()}
    whole = _plain(line) in {*texts.values(), *(letter.casefold() for letter in options)}
    return whole or texts.get(_plain(head).upper()) == _plain(rest)


def _opens(line: str, text: str) -> bool:
    """Whether the line begins with the option's text and a stop: `No, because ...`."""
    rest = _plain(line)[len(_plain(text)) :]
    return _begins(_plain(line), _plain(text)) and rest[:1] in tuple(".,;:!")


def _begins(words: str, text: str) -> bool:
    return bool(text) and words.startswith(text) and not words[len(text) : len(text) + 1].isalnum()


def _plain(words: str) -> str:
    return words.strip(_EDGES).casefold()
