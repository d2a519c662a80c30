"""The format of an answer: what a reply must look like, and what it says.

The reader also accepts prose and JSON between other words. Two different choices make a reply unreadable; there is
never a default letter (errata M1, P2).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from epicrisis.answering.stated_choice import ChoiceReader
from epicrisis.answering.structured_request import EmptyReply, Unreadable, json_objects, object_schema, text_schema
from epicrisis.core.printable import replace_surrogates

ANSWER = "answer"
"""The field with the text of an answer."""
CLAIM_TEXT = "text"
"""The field with the text of each claim."""
ANSWER_CHARACTERS = 500
FINDING_CHARACTERS = 180
QUOTE_CHARACTERS = 240
MAX_QUOTES = 3
MAX_SOURCES = 3
MAX_CLAIMS = 3
CLAIM_CHARACTERS = 240
MAX_NAMED = 3
"""Sentences that one claim or finding may name."""
REASONING_CHARACTERS = 1500
RATIONALE_CHARACTERS = 240
MAX_CONFIDENCE = 5
"""The confidence of a finding is a whole number from 0 to this (LLM x MapReduce, Zhou et al. 2024, section 3.2)."""
MAX_QUOTES_READ = 50
"""Quotations, claims or numbers that a reply may hold. Some endpoints do not enforce the schema."""
REPLY_KEYS = frozenset({"result", "found", "choice", "answer"})
_CONFIDENCE = re.compile(rf"\s*+([0-9](?:\.[0-9])?)(?:\s*+(?:/|of)\s*+{MAX_CONFIDENCE})?\s*+")
_SENTENCE_NUMBER = re.compile(r"\[?s?([0-9]{1,4})\]?")
_SENTENCE_MARKER = re.compile(r"(?<!\s)\s*+\[\s*+s[0-9]++(?:\s*+[,;]\s*+s?[0-9]++)*+\s*+\]")


@dataclass(frozen=True, slots=True)
class StatedClaim:
    """A claim or finding of a reply, with the numbers of the sentences that it names."""

    text: str
    sentences: tuple[int, ...] = ()
    """From 1, each once, in the order of the reply. All of them were offered."""
    not_offered: int = 0
    """How many other numbers the claim named. They are ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedReply:
    """What a reply says."""

    has_answer: bool
    text: str = ""
    choice: str | None = None
    quotes: tuple[tuple[int, str], ...] = ()
    """Each with the number of its document."""
    sources: tuple[int, ...] = ()
    """Numbers of findings."""
    claims: tuple[StatedClaim, ...] = ()
    """The sentences of the text, or the finding, if the reply names numbers of sentences."""
    rationale: str = ""
    """Why the documents say so, if the format asks for it."""
    confidence: float | None = None
    """From 0 to MAX_CONFIDENCE, by the reply. None if the format does not ask for it, or the reply does not say."""


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """The format of a reply that answers a question or reports a finding."""

    options: Mapping[str, str]
    _: KW_ONLY
    text_field: str = ANSWER
    text_characters: int = ANSWER_CHARACTERS
    documents: int = 0
    """Number of documents to quote from; 0 for a reply without quotations."""
    sources: int = 0
    """Number of findings to choose from; 0 for a reply without sources."""
    reasoning: bool = False
    choice_may_be_null: bool = False
    sentences: int = 0
    """Number of sentences to name. If it is not 0, an answer is a list of claims, and each claim, or a finding, names
    sentences."""
    with_confidence: bool = False
    """Whether a reply gives a rationale and a confidence as well."""
    may_abstain: bool = True
    """Whether the format offers to find no answer. A reply that finds none all the same is read as an abstention."""

    @property
    def has_claims(self) -> bool:
        """Whether the text of a reply is a list of claims."""
        return self.sentences > 0 and self.text_field == ANSWER

    @property
    def by_words(self) -> bool:
        """Whether a reply names its option by the words: prompts with numbered sentences show no letters.

        Small models contradict their own claims when they have to name a letter (docs/design/prompts.md).
        """
        return self.sentences > 0

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema: `result` has either `found` true and all other fields, or only `found` false.

        Without `may_abstain` it has `found` true and all other fields.
        """
        fields: dict[str, Any] = {"found": {"type": "boolean", "enum": [True]}}
        if self.documents:
            document = {"type": "integer", "enum": list(range(1, self.documents + 1))}
            quote = object_schema({"doc": document, "quote": text_schema(QUOTE_CHARACTERS)})
            fields["quotes"] = {"type": "array", "minItems": 1, "maxItems": MAX_QUOTES, "items": quote}
        if self.sources:
            number = {"type": "integer", "enum": list(range(1, self.sources + 1))}
            fields["sources"] = {"type": "array", "minItems": 1, "maxItems": MAX_SOURCES, "items": number}
        if self.with_confidence:
            if self.sentences and not self.has_claims:
                fields["sentences"] = numbers_schema(self.sentences)
            fields["rationale"] = text_schema(RATIONALE_CHARACTERS)
        if self.has_claims:
            claim = {CLAIM_TEXT: text_schema(CLAIM_CHARACTERS), "sentences": numbers_schema(self.sentences)}
            items = object_schema(claim)
            fields["claims"] = {"type": "array", "minItems": 1, "maxItems": MAX_CLAIMS, "items": items}
        else:
            fields[self.text_field] = text_schema(self.text_characters)
            if self.sentences:
                fields.setdefault("sentences", numbers_schema(self.sentences))
        if self.options:
            choices: list[str | None] = list(dict.fromkeys(self.options.values() if self.by_words else self.options))
            fields["choice"] = {"enum": [*choices, None]} if self.choice_may_be_null else {"enum": choices}
        if self.with_confidence:
            fields["confidence"] = {"type": "integer", "enum": list(range(MAX_CONFIDENCE + 1))}
        return self._complete_schema(object_schema(fields))

    def _complete_schema(self, result: dict[str, Any]) -> dict[str, Any]:
        """Return the schema of a reply from the one of a result with an answer."""
        if self.may_abstain:
            result = {"anyOf": [result, object_schema({"found": {"type": "boolean", "enum": [False]}})]}
        if not self.reasoning:
            return object_schema({"result": result})
        return object_schema({"reasoning": text_schema(REASONING_CHARACTERS), "result": result})

    @property
    def max_tokens(self) -> int:
        """Room for the longest reply of the schema: two characters per token, plus the JSON punctuation."""
        characters = self.text_characters + (REASONING_CHARACTERS if self.reasoning else 0)
        if self.has_claims:
            characters = MAX_CLAIMS * (CLAIM_CHARACTERS + 60)
        elif self.sentences:
            characters += 60
        characters += MAX_QUOTES * (QUOTE_CHARACTERS + 30) if self.documents else 0
        characters += RATIONALE_CHARACTERS + 40 if self.with_confidence else 0
        return characters // 2 + 100

    def parse(self, text: str) -> ParsedReply:
        """Return what a reply says. Raises Unreadable."""
        keys = REPLY_KEYS | {"claims"} if self.has_claims else REPLY_KEYS
        replies = list(map(self._read_json, json_objects(text, keys)))
        for reply in replies:
            if (reply.has_answer, reply.choice) != (replies[0].has_answer, replies[0].choice):
                raise Unreadable("the reply contains several answers that differ")
        if replies:
            return replies[0]
        # In prose a reply says its choice, or for an open question the text itself is the answer.
        text = text.strip()
        if not text:
            raise EmptyReply("the reply is empty")
        in_brackets = bool(self.options) and re.fullmatch(r"\[\s*+[A-Z]\s*+\]", text)
        begins_like_json = text.startswith(("{", "[", "```")) and not in_brackets
        if begins_like_json or not re.search(r"\w", text) or re.search(r'\{\s*"', text):
            raise Unreadable("the reply is broken JSON")
        if not self.options:
            return ParsedReply(has_answer=True, text=text)
        choices = ChoiceReader(self.options).read_prose(text)
        if len(choices) != 1:
            raise Unreadable(f"the reply states {len(choices) or 'no'} choices")
        return ParsedReply(has_answer=True, text=text, choice=choices.pop())

    def _read_json(self, data: Mapping[str, Any]) -> ParsedReply:
        result = data.get("result", data)
        if not isinstance(result, Mapping):
            raise Unreadable("the reply's result is not an object")
        has_answer = result.get("found", True)
        if has_answer is False:
            return ParsedReply(has_answer=False)
        if has_answer is not True:
            raise Unreadable("the reply does not say whether it found an answer")
        claims = self._read_claims(result) if self.sentences else ()
        text = " ".join(claim.text for claim in claims) if self.sentences else result.get(self.text_field)
        if not isinstance(text, str) or not re.search(r"\w", text):
            raise Unreadable(f"the reply has no {'claim' if self.has_claims else self.text_field}")
        choice = self._read_choice(result, text) if self.options else None
        if self.options and choice is None and not self.choice_may_be_null:
            return ParsedReply(has_answer=False, text=text)
        values = result.get("sources")
        numbers = [_number(value, self.sources) for value in values] if isinstance(values, Sequence) else []
        sources = dict.fromkeys(filter(None, numbers))
        quotes = self._read_quotes(result.get("quotes"))
        rationale = result.get("rationale") if self.with_confidence else None
        return ParsedReply(
            has_answer=True,
            text=text.strip(),
            choice=choice,
            quotes=quotes,
            sources=tuple(sources),
            claims=claims,
            rationale=rationale.strip() if isinstance(rationale, str) else "",
            confidence=_read_confidence(result.get("confidence")) if self.with_confidence else None,
        )

    def _read_claims(self, result: Mapping[str, Any]) -> tuple[StatedClaim, ...]:
        """Return the claims of a reply, or its finding as one. Claims with the same text count as one."""
        rows: object = result.get("claims")
        if not self.has_claims:
            rows = [{CLAIM_TEXT: result.get(self.text_field), "sentences": result.get("sentences")}]
        if not isinstance(rows, Sequence) or isinstance(rows, str):
            return ()
        if len(rows) > MAX_QUOTES_READ:
            raise Unreadable(f"the reply makes {len(rows)} claims, more than {MAX_QUOTES_READ}")
        claims: dict[str, StatedClaim] = {}
        for row in rows:
            text = row.get(CLAIM_TEXT) if isinstance(row, Mapping) else None
            text = _SENTENCE_MARKER.sub("", text).strip() if isinstance(text, str) else ""
            if not re.search(r"\w", text):
                continue
            numbers, not_offered = read_sentence_numbers(row.get("sentences"), self.sentences)
            if text in claims:
                numbers = tuple(dict.fromkeys((*claims[text].sentences, *numbers)))
                not_offered += claims[text].not_offered
            claims[text] = StatedClaim(text, numbers, not_offered)
        return tuple(claims.values())

    def _read_quotes(self, rows: object) -> tuple[tuple[int, str], ...]:
        if not isinstance(rows, Sequence) or isinstance(rows, str):
            return ()
        if len(rows) > MAX_QUOTES_READ:
            raise Unreadable(f"the reply quotes {len(rows)} places, more than {MAX_QUOTES_READ}")
        quotes: dict[tuple[int, str], None] = {}
        for row in rows:
            if isinstance(row, Mapping):
                document, quote = _number(row.get("doc"), self.documents), row.get("quote")
                if document is not None and isinstance(quote, str) and quote.strip():
                    quotes[document, quote.strip()] = None
        return tuple(quotes)

    def _read_choice(self, result: Mapping[str, Any], text: str) -> str | None:
        """Return the letter of the reply's choice, or None for null. Raises Unreadable if its text states another."""
        if "choice" not in result:
            raise Unreadable("the reply states no choice")
        value = result["choice"]
        if self.by_words and isinstance(value, str) and value.strip():
            # As they stand, because the words of an option may be "none", or the letter of another option.
            for letter, words in self.options.items():
                if value.strip() == words.strip():
                    return self._refuse_other_choices(letter, text)
        if value is None or (isinstance(value, str) and value.strip().lower() in ("", "null", "none")):
            return None
        if not isinstance(value, str):
            raise Unreadable("the choice is neither a letter nor null")
        reader = ChoiceReader(self.options)
        choice = reader.read_words(value)
        if choice is None:
            raise Unreadable("the choice is none of the options")
        return self._refuse_other_choices(choice, text)

    def _refuse_other_choices(self, choice: str, text: str) -> str:
        """Return the choice. Raises Unreadable if the text states another."""
        choices = ChoiceReader(self.options).read_answer(text) | {choice}
        if len(choices) > 1:
            raise Unreadable(f"the reply states different choices: {', '.join(sorted(choices))}")
        return choice


def numbers_schema(maximum: int) -> dict[str, Any]:
    """Return the JSON schema of the numbers of one to MAX_NAMED sentences."""
    number = {"type": "integer", "enum": list(range(1, maximum + 1))}
    return {"type": "array", "minItems": 1, "maxItems": MAX_NAMED, "items": number}


def read_sentence_numbers(values: object, maximum: int) -> tuple[tuple[int, ...], int]:
    """Return the numbers from 1 to `maximum`, each once, and how many other values there are.

    A number may be written as text (`s7`). Raises Unreadable for more values than a reply may hold.
    """
    if isinstance(values, (int, str)):
        values = [values]
    if not isinstance(values, Sequence):
        return (), 0
    if len(values) > MAX_QUOTES_READ:
        raise Unreadable(f"the reply names {len(values)} sentences, more than {MAX_QUOTES_READ}")
    numbers: dict[int, None] = {}
    not_offered = 0
    for value in values:
        match = _SENTENCE_NUMBER.fullmatch(value.strip().lower()) if isinstance(value, str) else None
        number = _number(int(match[1]) if match else value, maximum)
        if number is None:
            not_offered += 1
        else:
            numbers[number] = None
    return tuple(numbers), not_offered


def _number(value: object, maximum: int) -> int | None:
    """Return the value if it is a whole number from 1 to `maximum`, else None."""
    return value if type(value) is int and 1 <= value <= maximum else None


def _read_confidence(value: object) -> float | None:
    """Return a number from 0 to MAX_CONFIDENCE, which may be written as text (`4/5`), else None."""
    match = _CONFIDENCE.fullmatch(value) if isinstance(value, str) else None
    number = float(match[1]) if match else value
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 <= number <= MAX_CONFIDENCE:
        return None
    return float(number)


_STRING = re.compile(
    r'(?:[^"\\]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\u[dD][89abAB][0-9a-fA-F]{2}(?=\\u[0-9a-fA-F]{4}|\\[^u]|[^\\])(?:\\u[dD][c-fC-F][0-9a-fA-F]{2})?+|\\[^u])*+'
)
"""Complete characters of a JSON string. Half of a surrogate pair is left for the next piece."""


class TextStream:
    """Extracts one string field from a JSON reply while it arrives. A reply in prose passes unchanged.

    With `repeat`, the field may occur several times (the texts of claims), and a blank separates the texts.
    """

    def __init__(self, text_field: str, *, repeat: bool = False) -> None:
        self._start = re.compile(rf'"{re.escape(text_field)}"\s*:\s*"')
        self._repeat = repeat
        self._received = ""
        self._emitted = 0
        self._at: int | None = None
        """Offset in the reply after the part of the field that was returned."""
        self._searched = 0
        """Offset in the reply after the last complete field."""
        self._field = 0
        """Number of complete fields."""

    def feed(self, piece: str) -> str:
        """Return the new text of the field; empty before the field begins and after it ends."""
        return "".join(text for _, text in self.feed_fields(piece))

    def feed_fields(self, piece: str) -> list[tuple[int, str]]:
        """Return the new text with the number of its field, from 0. A piece can end one field and begin the next."""
        self._received += piece
        texts = [(self._field, self._read_next())]
        while self._repeat and self._at is not None and self._received.startswith('"', self._at):
            self._searched, self._at = self._at + 1, None
            self._field += 1
            texts.append((self._field, self._read_next()))
        return [(field, text) for field, text in texts if text]

    def _read_next(self) -> str:
        """Return the new text up to the end of the field."""
        separator = ""
        if self._at is None:
            text = self._received.lstrip()
            if not text.startswith(("{", "`")):
                new_text = text[self._emitted :]
                self._emitted = max(self._emitted, len(text))
                return new_text
            start = self._start.search(self._received, self._searched)
            if start is None:
                return ""
            self._at = start.end()
            separator = " " if self._searched else ""
        raw = _STRING.match(self._received, self._at)
        if raw is None:
            return separator
        try:
            text = json.loads(f'"{replace_surrogates(raw[0])}"', strict=False)
        except ValueError:
            return separator
        self._at = raw.end()
        return separator + str(text)
