"""What a reply must look like, and reading what came back.

A reply is JSON where the endpoint can be held to a schema; the reader takes prose and fenced JSON as well. Two
different stated choices are no choice: the reply is unreadable, never a default letter (errata M1, P2).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from epicrisis.answering.structured_request import EmptyReply, Unreadable, json_objects, object_schema
from epicrisis.printable import replace_surrogates
from epicrisis.question_options import first_same_option

ANSWER_CHARACTERS = 500
FINDING_CHARACTERS = 180
QUOTE_CHARACTERS = 240
MAX_QUOTES = 3
MAX_SOURCES = 3
"""Findings that a summing up may name."""
REASONING_CHARACTERS = 1500

_LETTER = r"\s*(?:option\s*)?[*(\"'`\[]*([A-Z])\b(?!\w|')"
# "The answer is B" and "B is correct" state. "Option B" names, which counts where nothing is stated, no other option is
# named, and nothing is said of this one or against it: a finding may weigh options ("option A is wrong").
_CUE = r"(?<!wrong )(?<!incorrect )\b(?:answer|choice|option)\b[\s*_]*+(?:\bis\b|\bwould be\b|=|:)[\s:*_]*+"
_STATED = re.compile(f"(?i){_CUE}{_LETTER}")
_STATED_WORDS = re.compile(f"(?i){_CUE}([^.,;:\n]+)")
_CORRECT = re.compile(
    r"(?<![\w'])([A-Z])[)\"'*]* is (?:therefore |thus )?(?:the )?(?:correct|right|best)"
    r"(?: (?:answer|choice|option)\b|\s*[.,;\n]|\s*$)"
)
_OPTION = rf"\b(?:answer|choice|option)\b{_LETTER}"
_NAMED = re.compile(f"(?i){_OPTION}")
_WEIGHED = re.compile(
    rf"""(?ix)
    \b(?:not|no|nor|neither|than|of|out|unlike|without|exclud\w+|reject\w*|eliminat\w+|against|wrong|incorrect)\s+
        (?:the\s+)? {_OPTION}
    | {_OPTION} [)\]"'*]*\s+ (?:\w+n['’]t | is | was | be | would | could | can | cannot | may | might | must | should
        | will | does | did | has | had | seems | appears | states | says | suggests | describes | refers | means)\b
    """
)
# "A or B", "A/B", "A, B", "A and C" state two. "A, because B is wrong" and "A, and B is wrong" state one.
# `A or possibly B`, `A (or B)`, `A | B`, `A as well as B` state two.
_ANOTHER = re.compile(
    r"""(?x)
    [)\]"'*_.]*+ \s*+ (?:
        [,(–—-]?+ \s*+ (?: / | & | \+ | \| | \bor\b | \band/or\b | \bplus\b | \bas\ well\ as\b | \balong\ with\b )
            [\s(\["'*]*+ (?:(?:possibly|perhaps|maybe|probably|also)\s++)?+ (?:[oO]ption\s++)?+ ([A-Z]) (?![\w'’])
      | [,(–—-]?+ \s*+ \b(?:possibly|perhaps|maybe)\s++ (?:[oO]ption\s++)?+ ([A-Z]) (?![\w'’])
      | ,?+ \s*+ \band\b [\s(\["'*]*+ (?:[oO]ption\s++)?+ ([A-Z]) (?![\w'’])
            (?!\s(?:is|was|does|did|has|had|would|can)\b)
      | [,;] [\s(\["'*]*+ ([A-Z]) (?= [)\]"'*]*+ \s*+ (?: $ | [.,;:/&+\n] | and\b | or\b ) )
    )
    """
)
_ANOTHER_BEFORE = re.compile(r"(?<![\w'])([A-Z])[)\"'*]*\s?(?:/|&|,|\bor\b|\band\b)\s?$")
# `The answer is B, and A, C and D are wrong` states one.
_JUDGED = re.compile(
    r"(?:,?+\s*+(?:and\s++|or\s++)?+[A-Z](?![\w'’]))?+"
    r"[)\]\"'*_]*+\s*+(?:both\s++|all\s++)?(?:is|are|was|were|can|could|would|do|does|did|has|have|had|fail|may|might)\b"
    r"(?!\s++(?:both\s++|all\s++)?(?:correct|right|true|possible|plausible|appropriate|acceptable|reasonable)\b)"
)
_THING = re.compile(
    r"(?i)\b(?:vitamin|hepatitis|factor|type|group|class|stage|grade|influenza|protein|interferon|coenzyme)\s$"
)
"""Stands before a letter that is part of a name: `vitamin D is the best`."""
_MARKED = re.compile(
    r"(?:\\boxed\{(?:\\(?:text|textbf|mathrm|mathbf)\{)?+|<(?:final_)?answer>|<choice>)[\s(*]*+([A-Z])(?![\w'’])"
)
"""The letter in `\\boxed{B}` or `<answer>B</answer>`."""
_LABELLED = re.compile(
    r"(?:(?:the\s++)?(?:final\s++|correct\s++)?(?:option|choice|answer)\s*+(?:is\b|:)?\s*+)?+(\w)"
    r"(?:\s*+[-–—(,]\s*+|\s++)?(?P<rest>.*)",
    re.DOTALL,
)
"""`Option B`, `Answer: B`, `B - no`, `B (no)`, in small letters."""
_BETWEEN = re.compile(r"[)\]\"'*_.:,;\s(–—-]*+(?:(?:or|and)\s++)?+")
_LISTED = re.compile(
    r"(?i:(?:both|either|options?|choices?|answers?)\s++){0,2}+[(\[\"'*]*+([A-Z])(?![\w'’])(?P<rest>[^A-Za-z]*+"
    r"(?:[A-Z](?![\w'’])[^A-Za-z]*+|(?:and|or|plus|also|possibly|maybe|perhaps|as|well|along|with|option)\b[^A-Za-z]*+)++"
    r"(?:\bare\b.*)?)",
    re.DOTALL,
)
"""A text that is a list of letters: `A or B`, `both A and B are correct`."""
_LINE = re.compile(r"[^\n]*+")
MOST_PLACES = 50
"""Quotations, or findings, that a reply may name. Few are asked for, and not every endpoint keeps to the schema."""
REPLY_KEYS = frozenset({"result", "found", "choice", "answer"})
_EDGES = "()[]\"'*. \n"


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """What a reply says. `quotes` are (number of the document, words), `sources` the numbers of findings."""

    found: bool
    text: str = ""
    choice: str | None = None
    quotes: tuple[tuple[int, str], ...] = ()
    sources: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """What is asked of a reply, and so its schema and its greatest length."""

    options: Mapping[str, str]
    text_field: str = "answer"
    text_characters: int = ANSWER_CHARACTERS
    documents: int = 0
    """Documents that may be quoted; 0: no quotes are asked for."""
    sources: int = 0
    """Findings that may be named; 0: none are asked for."""
    reasoning: bool = False
    choice_may_be_null: bool = False

    def schema(self) -> dict[str, Any]:
        """JSON schema: `result` is either found with all its fields, or not found with none."""
        found: dict[str, Any] = {"found": {"type": "boolean", "enum": [True]}}
        if self.documents:
            quote = object_schema(
                {
                    "doc": {"type": "integer", "enum": list(range(1, self.documents + 1))},
                    "quote": {"type": "string", "minLength": 1, "maxLength": QUOTE_CHARACTERS},
                }
            )
            found["quotes"] = {"type": "array", "minItems": 1, "maxItems": MAX_QUOTES, "items": quote}
        if self.sources:
            number = {"type": "integer", "enum": list(range(1, self.sources + 1))}
            found["sources"] = {"type": "array", "minItems": 1, "maxItems": MAX_SOURCES, "items": number}
        found[self.text_field] = {"type": "string", "minLength": 1, "maxLength": self.text_characters}
        if self.options:
            letters: list[str | None] = list(self.options)
            found["choice"] = {"enum": [*letters, None]} if self.choice_may_be_null else {"enum": letters}
        result = {"anyOf": [object_schema(found), object_schema({"found": {"type": "boolean", "enum": [False]}})]}
        if not self.reasoning:
            return object_schema({"result": result})
        reasoning = {"type": "string", "minLength": 1, "maxLength": REASONING_CHARACTERS}
        return object_schema({"reasoning": reasoning, "result": result})

    @property
    def max_tokens(self) -> int:
        """Room for the longest reply the schema allows, at two characters a token and some JSON around."""
        characters = self.text_characters + (REASONING_CHARACTERS if self.reasoning else 0)
        characters += MAX_QUOTES * (QUOTE_CHARACTERS + 30) if self.documents else 0
        return characters // 2 + 100

    def read(self, text: str) -> ParsedReply:
        """What the reply says. Raises Unreadable."""
        replies = [self._from_json(found) for found in json_objects(text, REPLY_KEYS)]
        if len({(reply.found, reply.choice) for reply in replies}) > 1:
            raise Unreadable("the reply holds several answers that differ")
        return replies[0] if replies else self._from_prose(text)

    def _from_json(self, data: Mapping[str, Any]) -> ParsedReply:
        result = data.get("result", data)
        if not isinstance(result, Mapping):
            raise Unreadable("the reply's result is not an object")
        found = result.get("found", True)
        if found is False:
            return ParsedReply(found=False)
        if found is not True:
            raise Unreadable("the reply does not say whether it found an answer")
        text = result.get(self.text_field)
        if not isinstance(text, str) or not re.search(r"\w", text):
            raise Unreadable(f"the reply has no {self.text_field}")
        choice = None
        if self.options:
            if "choice" not in result:
                raise Unreadable("the reply states no choice")
            choice = self._choice(result["choice"])
            stated = self._letters(_STATED, text) | self._letters(_CORRECT, text) | self._whole_text(text)
            stated |= self._in_words(text)
            if choice is not None and stated - {choice}:
                raise Unreadable(f"the reply states different choices: {', '.join(sorted(stated | {choice}))}")
            if choice is None and not self.choice_may_be_null:
                return ParsedReply(found=False, text=text)
        return ParsedReply(True, text.strip(), choice, self._quotes(result), self._sources(result))

    def _choice(self, value: object) -> str | None:
        """The letter; a letter with its text, or an option's text alone, counts as its letter."""
        if value is None or (isinstance(value, str) and value.strip().lower() in ("", "null", "none")):
            return None
        if not isinstance(value, str):
            raise Unreadable("the choice is neither a letter nor null")
        letter = self._letter(value)
        if letter is None:
            raise Unreadable("the choice is none of the options")
        return first_same_option(self.options, letter)

    def _letter(self, text: str) -> str | None:
        """The option that these few words are: `B`, `(B) no`, `B: no`, or `no`. A letter goes before an option of the
        same text (blood group A). A letter with another option's text is none, nor is a text of two options that differ
        in capitals alone; of options with one text the first is meant."""
        text = text.replace("**", "")
        cleaned = text.strip(_EDGES).lower()
        texts = {letter: option.strip(_EDGES).lower() for letter, option in self.options.items()}
        letters = {letter.lower(): letter for letter in self.options}
        if cleaned in letters:
            return letters[cleaned]
        same = [letter for letter, option in texts.items() if option == cleaned]
        if same:
            return same[0] if len({first_same_option(self.options, letter) for letter in same}) == 1 else None
        head, separator, rest = _split_letter(cleaned)
        letter = letters.get(head) if separator else None
        labelled = _LABELLED.fullmatch(cleaned)
        if letter is None and labelled and labelled[1] in letters:
            only = letters[labelled[1]]
            return only if labelled["rest"].strip(_EDGES) in ("", texts[only]) else None
        if letter is None or (rest != texts[letter] and rest in texts.values()):
            return None
        return None if self._others(letter, _split_letter(text.strip(_EDGES))[2]) else letter

    def _whole_text(self, text: str) -> set[str]:
        """Return the letters that a text states which is an option, or which begins with one or its letter.

        `C. difficile was found` begins with a name.
        """
        text = text.strip(_EDGES)
        head, separator, rest = _split_letter(text)
        others = self._others(head, rest) if separator and head in self.options else set()
        if separator == "." and head in self.options and rest[:1].islower() and not others:
            return {head} if self._begins_with(rest, head) else set()
        if alone := self._letter(text):
            return {first_same_option(self.options, alone)}
        return {head} | others if separator and head in self.options else self._several(text)

    def _begins_with(self, text: str, letter: str) -> bool:
        option = self.options[letter].strip(_EDGES).lower()
        return bool(option) and text[: len(option)].lower() == option

    def _several(self, text: str) -> set[str]:
        """Return the options that a text consists of: `A or B`, `both A and B are correct`, `no - maybe`."""
        texts = {letter: option.strip(_EDGES).lower() for letter, option in self.options.items()}
        if listed := _LISTED.fullmatch(text):
            others = self._others(listed[1], listed["rest"])
            return {listed[1]} | others if others and listed[1] in self.options else set()
        for letter, option in texts.items():
            if self._begins_with(text, letter):
                rest = text[len(option) :]
                between = _BETWEEN.match(rest)
                remainder = rest[between.end() if between else 0 :].strip(_EDGES).lower()
                if remainder != option and remainder in texts.values():
                    return {letter} | {other for other, each in texts.items() if each == remainder}
        return set()

    def _in_words(self, text: str) -> set[str]:
        """Return the options that `the answer is` stands before, by their letter or text."""
        letters = {self._letter(words) for words in _STATED_WORDS.findall(text)} - {None}
        return {first_same_option(self.options, letter) for letter in letters if letter}

    def _others(self, letter: str, rest: str) -> set[str]:
        """Return the options that stand beside this one in the rest of its line: "or B", "/B", ", B", " - higher".

        The option's own text may come first. Another option's text counts where nothing else follows it.
        """
        line = _LINE.match(rest)
        rest = line[0] if line else ""
        texts = {other: option.strip(_EDGES).lower() for other, option in self.options.items()}
        begin = _BETWEEN.match(rest)
        at = begin.end() if begin else 0
        own = rest[at : at + len(texts[letter])].lower() == texts[letter] and bool(texts[letter])
        at = at + len(texts[letter]) if own else 0
        letters = set()
        while another := _ANOTHER.match(rest, at):
            letters.add(another[another.lastindex or 0])
            at = another.end(another.lastindex or 0)
        if letters and _JUDGED.match(rest, at):
            return set()
        between = _BETWEEN.match(rest, at)
        remainder = rest[between.end() if between else at :].strip(_EDGES).lower()
        letters |= {other for other, option in texts.items() if option and option == remainder}
        own_text = first_same_option(self.options, letter)
        return {other for other in letters & set(self.options) if first_same_option(self.options, other) != own_text}

    def _letters(self, pattern: re.Pattern[str], text: str) -> set[str]:
        """Return the options that the pattern finds, with those that are named in one breath with them."""
        texts = {option.strip(_EDGES).lower() for option in self.options.values() if len(option.strip(_EDGES)) > 1}
        letters = set()
        for match in pattern.finditer(text):
            letter = match[match.lastindex or 0]
            begin = match.start(match.lastindex or 0)
            words = _STATED_WORDS.match(text, match.start()) if pattern is _STATED else None
            if words and words[1].strip(_EDGES).lower() in texts:
                # `The answer is A and B`, where that is an option's text.
                continue
            if letter in self.options and not _THING.search(text[max(0, begin - 20) : begin]):
                line = _LINE.match(text, match.end())
                letters |= {letter} | self._others(letter, line[0] if line else "")
                before = _ANOTHER_BEFORE.search(text[max(0, match.start() - 20) : match.start()])
                if before and pattern is _CORRECT:
                    letters |= {before[1]} & set(self.options)
        return {first_same_option(self.options, letter) for letter in letters}

    def _quotes(self, result: Mapping[str, Any]) -> tuple[tuple[int, str], ...]:
        raw = result.get("quotes", [])
        if isinstance(raw, Sequence) and len(raw) > MOST_PLACES and not isinstance(raw, str):
            raise Unreadable(f"the reply quotes {len(raw)} places, more than {MOST_PLACES}")
        rows = [row for row in raw if isinstance(row, Mapping)] if isinstance(raw, Sequence) else []
        pairs = [(row.get("doc"), row.get("quote")) for row in rows]
        return tuple(
            dict.fromkeys(
                (doc, quote.strip())
                for doc, quote in pairs
                if type(doc) is int and 1 <= doc <= self.documents and isinstance(quote, str) and quote.strip()
            )
        )

    def _sources(self, result: Mapping[str, Any]) -> tuple[int, ...]:
        raw = result.get("sources", [])
        numbers = raw if isinstance(raw, Sequence) else []
        return tuple(dict.fromkeys(n for n in numbers if type(n) is int and 1 <= n <= self.sources))

    def _from_prose(self, text: str) -> ParsedReply:
        """A reply without JSON: its stated choice, or for an open question the text itself."""
        stripped = text.strip()
        if not stripped:
            raise EmptyReply("the reply is empty")
        in_brackets = bool(self.options) and re.fullmatch(r"\[\s*+[A-Z]\s*+\]", stripped)
        broken = stripped.startswith(("{", "[", "```")) and not in_brackets
        if not re.search(r"\w", stripped) or broken or re.search(r'\{\s*"', stripped):
            raise Unreadable("the reply is broken JSON")
        if not self.options:
            return ParsedReply(True, stripped)
        stated = self._stated(stripped)
        if len(stated) != 1:
            raise Unreadable(f"the reply states {len(stated) or 'no'} choices")
        return ParsedReply(True, stripped, stated.pop())

    def _stated(self, text: str) -> set[str]:
        """The letters that a prose reply states; where it states none, the one that it is, or that it names."""
        stated = self._in_words(text) | self._letters(_STATED, text) | self._letters(_CORRECT, text)
        stated |= self._letters(_MARKED, text)
        if stated:
            return stated
        if alone := self._letter(text):
            return {first_same_option(self.options, alone)}
        if several := self._several(text):
            return several
        named = self._letters(_NAMED, text)
        plain = self._letters(_NAMED, _WEIGHED.sub("", text))
        return named if len(named) > 1 else plain


_STRING = re.compile(
    r'(?:[^"\\]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\u[dD][89abAB][0-9a-fA-F]{2}(?=\\u[0-9a-fA-F]{4}|\\[^u]|[^\\])(?:\\u[dD][c-fC-F][0-9a-fA-F]{2})?+|\\[^u])*+'
)
"""The whole characters of a JSON string. The first half of a surrogate pair waits until what follows it is there."""


class TextStream:
    """Picks one string field out of a JSON reply while it streams; prose passes as it is."""

    def __init__(self, text_field: str) -> None:
        self._start = re.compile(rf'"{re.escape(text_field)}"\s*:\s*"')
        self._seen = ""
        self._shown = 0
        self._at: int | None = None
        """Where in the reply the part of the field begins that was not shown yet."""

    def feed(self, piece: str) -> str:
        """The new text of the field that this piece brought; empty while the field has not begun, or is over."""
        self._seen += piece
        if self._at is None:
            begun = self._seen.lstrip()
            if not begun.startswith(("{", "`")):
                new, self._shown = begun[self._shown :], max(self._shown, len(begun))
                return new
            start = self._start.search(self._seen)
            if start is None:
                return ""
            self._at = start.end()
        raw = _STRING.match(self._seen, self._at)
        if raw is None:
            return ""
        try:
            text = json.loads(f'"{replace_surrogates(raw[0])}"', strict=False)
        except ValueError:
            return ""
        self._at = raw.end()
        return str(text)


def _split_letter(text: str) -> tuple[str, str, str]:
    """`b) no` as `b`, `)` and `no`; a text that does not begin so has an empty separator."""
    found = re.match(r"(\w+)([).:])\s+(.*)", text, re.DOTALL)
    return (found[1], found[2], found[3]) if found else (text, "", "")
