"""What a reply says while it arrives: the text of each claim, the sentences it names, and the option it names.

Nothing of it is checked yet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from pydantic_core import from_json

from epicrisis.answering.reply_parsing import ANSWER, CLAIM_TEXT, AnswerFormat, TextStream
from epicrisis.core.answers import Quotation, TextDelta
from epicrisis.core.printable import replace_surrogates

_NAMED = re.compile(r'"sentences"\s*+:\s*+\[([^\]]{0,200}+)\]')
"""The numbers that a claim names. Within a text of JSON every quotation mark has a backslash before it."""
MAX_CHOICE_READINGS = 100
"""How often an incomplete reply is parsed for its choice. A reply that goes on for longer states it in no event."""


class ReplyStream:
    """Reads the reply to one call piece by piece. `clean` removes what a defence put into the prompt.

    `pydantic_core.from_json` parses an incomplete reply for the choice, from the piece that has the field's name on.
    The text comes from `TextStream`, which takes linear time and replaces half characters.
    """

    def __init__(
        self, stage: str, reply_format: object, clean: Callable[[str], str], offered: Sequence[Quotation] = ()
    ) -> None:
        """Read the reply to the call of a stage. Its claims name the `offered` sentences by their numbers, from 1."""
        form = reply_format if isinstance(reply_format, AnswerFormat) else AnswerFormat({})
        self._stage = stage
        self._clean = clean
        self._text = TextStream(CLAIM_TEXT if form.has_claims else ANSWER, repeat=form.has_claims)
        self._letters: dict[str, str] = {}
        for letter, words in form.options.items():
            self._letters.setdefault(words.strip() if form.by_words else letter, letter)
        self._offered = offered if form.has_claims else ()
        self._claims = 0
        self._named_until = 0
        self._received = ""
        self._readings = MAX_CHOICE_READINGS if form.options else 0

    def feed(self, piece: str) -> list[TextDelta]:
        """Return the new text by claim, and the sentences of a claim and the choice once they are complete."""
        deltas: list[TextDelta] = []
        for claim, text in self._text.feed_fields(piece):
            deltas.append(TextDelta(self._stage, self._clean(text), claim))
        self._received += piece if self._readings or self._offered else ""
        if self._offered and "]" in piece:
            deltas += self._read_named()
        if self._readings and '"choice"' in self._received:
            self._readings -= 1
            if choice := self._read_choice():
                self._readings = 0
                deltas.append(TextDelta(self._stage, "", choice=choice))
        return deltas

    def _read_named(self) -> Iterator[TextDelta]:
        """Yield the sentences of each claim whose numbers are complete. Numbers that were not offered are left out."""
        for named in _NAMED.finditer(self._received, self._named_until):
            self._named_until = named.end()
            numbers = dict.fromkeys(map(int, re.findall(r"[0-9]{1,4}", named[1])))
            quotations = tuple(self._offered[n - 1] for n in numbers if 0 < n <= len(self._offered))
            if quotations:
                yield TextDelta(self._stage, "", self._claims, quotations=quotations)
            self._claims += 1

    def _read_choice(self) -> str | None:
        """Return the letter of the option that the reply names, or None while the reply does not name one."""
        start = max(0, self._received.find("{"))
        try:
            # Without trailing strings, so that the choice is not taken for a shorter option.
            reply = from_json(replace_surrogates(self._received[start:]), allow_partial=True)
        except ValueError:
            return None
        result = reply.get("result", reply) if isinstance(reply, Mapping) else None
        choice = result.get("choice") if isinstance(result, Mapping) else None
        return self._letters.get(self._clean(choice).strip()) if isinstance(choice, str) else None
