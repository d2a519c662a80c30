"""Replace the identifiers in texts about one patient, and restore them in a reply.

deidentifier = Deidentifier(key, PatientIdentifiers("p7", names=("Anna Muster",), numbers=("4711",)))
replaced = deidentifier.replace(["Anna Muster was seen on 3/4/2019."])
replaced.texts            # ("Clara Bowers was seen on 1/12/2019.",)
replaced.restore(reply)   # the reply with the original names, dates and numbers
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain

from epicrisis.privacy.deidentification.date_forms import find_dates, shift_date
from epicrisis.privacy.deidentification.employers import find_employers
from epicrisis.privacy.deidentification.name_lists import WORD
from epicrisis.privacy.deidentification.name_rules import NameFinder
from epicrisis.privacy.deidentification.patterns import find_patterns
from epicrisis.privacy.deidentification.presidio import find_with_presidio
from epicrisis.privacy.deidentification.spans import Identifier, IdentifierKind, merge_identifiers
from epicrisis.privacy.deidentification.surrogates import Surrogates, match_case
from epicrisis.privacy.deidentification.unlisted_names import find_unlisted_places

RECOGNIZER_VERSION = "6"
"""Changes whenever the recognizers do: a measurement is valid for one version only."""
_MIN_NUMBER = 4
"""Characters of a record number that is looked for without a label."""
_LONG_NUMBER = 6
"""Digits of a record number that is looked for inside words."""
_START = r"(?:(?<![^\W_])|(?<=\\[nrt]))"
"""Where a word begins, also behind a line end in JSON."""
_END = r"(?![^\W_])"
_CAPITAL = re.compile(r"[A-Z]")
_POSSESSIVE_END = re.compile(r"['\u2019]s\Z")
_NO_OWNED = re.compile(
    r"[ ]?(?:[^\w\s]|\Z|\n)|[ ](?:and|as|at|because|but|during|for|from|full|in|last|on|or|part|saying|since|so|the"
    r"|then|today|until|when|where|while|who|with|yesterday)(?![^\W_])"
)
"""What follows a possessive that is a name itself, and not what somebody has: `works at Bellamy's and`."""
_ALNUM = re.compile(r"[^\W_]+")
_BLANKS = re.compile(r"-[ \t]*\n[ \t]*|[ \n]")


@dataclass(frozen=True, slots=True)
class PatientIdentifiers:
    """What is registered of a patient and of the authors of the notes."""

    patient: str = ""
    """The id. Empty for texts about nobody."""
    names: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    """Record numbers, without their systems."""
    staff: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplacedTexts:
    """Texts with surrogates, and what restores the originals in a reply to them."""

    texts: tuple[str, ...]
    counts: Mapping[IdentifierKind, int]
    """The number of replaced identifiers of each kind."""
    _surrogates: Surrogates
    _names: Mapping[str, Mapping[str, str]] = field(repr=False)
    """Surrogate of a word of a name in lower case -> its letter case -> the original."""
    _exact: Mapping[str, str] = field(repr=False)
    """Any other surrogate -> the original."""

    def restore(self, text: str) -> str:
        """Return the text with the originals in place of surrogates, and with its dates moved back."""
        dates: list[tuple[int, int, str]] = []
        for source_date in find_dates(text):
            surrogate = text[source_date.start : source_date.end]
            if source_date.is_bare and surrogate not in self._exact:
                # Two numbers that stood beside a word such as BiPAP in the prompt, and stand alone in the reply.
                continue
            original = self._exact.get(surrogate) or shift_date(text, source_date, -self._surrogates.days)
            dates.append((source_date.start, source_date.end, original))
        pieces: list[str] = []
        place = 0
        for start, end, original in dates:
            pieces += [self._restore_words(text[place:start]), original]
            place = end
        pieces.append(self._restore_words(text[place:]))
        return "".join(pieces)

    def _restore_words(self, text: str) -> str:
        pattern = self._pattern()
        if pattern is None:
            return text
        return pattern.sub(self._restore_match, text)

    def _restore_match(self, match: re.Match[str]) -> str:
        word = match["word"]
        if word in self._exact:
            original = self._exact[word]
        else:
            cases = self._names[word.casefold()]
            original = cases.get(_case_of(word)) or match_case(next(iter(cases.values())), word)
        before, after = match["before"], match["after"]
        if word.casefold() in self._names:
            before = _CAPITAL.sub(self._restore_initial, before)
            after = _CAPITAL.sub(self._restore_initial, after)
        return f"{before}{original}{after}"

    def _restore_initial(self, match: re.Match[str]) -> str:
        return self._surrogates.initial(match[0], -1)

    def _pattern(self) -> re.Pattern[str] | None:
        if not (self._names or self._exact):
            return None
        ordered = sorted(self._exact, key=len, reverse=True)
        words = [re.escape(word) + (_END if word[-1].isalnum() else "") for word in ordered]
        names = "|".join(sorted(map(re.escape, self._names), key=len, reverse=True))
        if names:
            words.append(f"(?i:{names}){_END}")
        alternatives = "|".join(words)
        return re.compile(
            rf"{_START}(?P<before>(?:[A-Z]\.?[ ]){{0,2}})(?P<word>{alternatives})(?P<after>(?:,?[ ][A-Z](?![^\W_]|'))?)"
        )


class Deidentifier:
    """Replaces the identifiers in texts about one patient. The same identifier always has the same surrogate."""

    def __init__(self, key: bytes, patient: PatientIdentifiers, avoid: Set[str] = frozenset()) -> None:
        self._finder = NameFinder(patient.names, patient.staff)
        self._surrogates = Surrogates(key, patient.patient, avoid | self._finder.registered)
        self._lock = threading.Lock()
        self._numbers = _compile_numbers((*patient.numbers, patient.patient))

    @property
    def days(self) -> int:
        """The days by which every date of the patient moves."""
        return self._surrogates.days

    @property
    def pseudonym(self) -> str:
        """An id in place of the patient's. Without the library's key it cannot be traced back."""
        return self._surrogates.pseudonym

    def learn(self, text: str) -> None:
        """Remember the names in a text of the same record, so that every repetition is found."""
        self._finder.learn(text)

    def find(self, text: str) -> list[Identifier]:
        """Return the identifiers of a text, in order, without overlaps."""
        return merge_identifiers(self._find_all(text))

    def _find_all(self, text: str) -> Iterator[Identifier]:
        for source_date in find_dates(text):
            yield Identifier(source_date.start, source_date.end, "date")
        for match in self._numbers.finditer(text) if self._numbers else ():
            yield Identifier(*_extend_to_word(text, *match.span()), "record-number")
        is_name = bytearray(len(text))
        for start, end in self._finder.find(text):
            is_name[start:end] = b"\1" * (end - start)
            yield Identifier(start, end, "name")
        for start, end in chain(find_unlisted_places(text), find_employers(text)):
            # A full name is no place, so that its words have the same surrogates as elsewhere.
            stop = start + len(_POSSESSIVE_END.sub("", text[start:end]))
            is_possessive_name = stop < end and _NO_OWNED.match(text, end) is not None
            if is_possessive_name or any(text[i].isalnum() and not is_name[i] for i in range(start, stop)):
                yield Identifier(start, end, "place")
        yield from find_patterns(text)
        yield from find_with_presidio(text)

    def replace(self, texts: Sequence[str]) -> ReplacedTexts:
        """Return the texts with surrogates. Names found in one of them are found in all."""
        # The calls of a question run in several threads.
        with self._lock:
            for text in texts:
                self._finder.learn(text)
            replacer = _Replacer(self._surrogates, texts)
            replaced = tuple(replacer.replace(text, self.find(text)) for text in texts)
        return ReplacedTexts(replaced, replacer.counts, self._surrogates, replacer.names, replacer.exact)


class _Replacer:
    """Replaces the identifiers of the texts of one request."""

    def __init__(self, surrogates: Surrogates, texts: Sequence[str]) -> None:
        self.counts: Counter[IdentifierKind] = Counter()
        self.names: dict[str, dict[str, str]] = {}
        self.exact: dict[str, str] = {}
        self._surrogates = surrogates
        self._texts = texts
        words: set[str] = set()
        for text in texts:
            words.update(match[0].casefold() for match in WORD.finditer(text))
        surrogates.avoid(words)

    def replace(self, text: str, identifiers: Sequence[Identifier]) -> str:
        pieces: list[str] = []
        place = 0
        for identifier in identifiers:
            original = text[identifier.start : identifier.end]
            self.counts[identifier.kind] += 1
            pieces += [text[place : identifier.start], self._replace_one(identifier.kind, original)]
            place = identifier.end
        pieces.append(text[place:])
        return "".join(pieces)

    def _replace_one(self, kind: IdentifierKind, original: str) -> str:
        if kind == "name":
            return self._replace_name(original)
        if kind == "date":
            dates = find_dates(original) or find_dates(f"on {original}")
            if len(dates) == 1:
                (source_date,) = dates
                surrogate = shift_date(
                    original if source_date.start == 0 else f"on {original}", source_date, self._surrogates.days
                )
                self.exact[surrogate] = original
                return surrogate
        surrogate = self._surrogates.code(kind, original, self._is_free)
        self.exact[surrogate] = original
        return surrogate

    def _is_free(self, surrogate: str) -> bool:
        return surrogate not in self.exact and all(surrogate not in text for text in self._texts)

    def _replace_name(self, original: str) -> str:
        if len(original) == 1:
            return self._surrogates.initial(original) if original.isascii() and original.isupper() else original
        if _BLANKS.search(original):
            joined = _BLANKS.sub("", original)
            surrogate = match_case(self._surrogates.name(joined.casefold()), joined)
            self._remember(surrogate, joined)
            # As divided as the original, so that quotations are exact.
            divided = f"{surrogate[:3]}-\n{surrogate[3:]}" if "\n" in original else " ".join(surrogate)
            self.exact[divided] = original
            return divided
        surrogate = match_case(self._surrogates.name(original.casefold()), original)
        self._remember(surrogate, original)
        return surrogate

    def _remember(self, surrogate: str, original: str) -> None:
        self.names.setdefault(surrogate.casefold(), {})[_case_of(surrogate)] = original


def _case_of(word: str) -> str:
    if word.isupper():
        return "upper"
    return "lower" if word.islower() else "title"


def _extend_to_word(text: str, start: int, end: int) -> tuple[int, int]:
    """Return start and end with the letters that are glued to a number, as in `55120001A`."""
    while start > 0 and text[start - 1].isalpha():
        start -= 1
    while end < len(text) and text[end].isalpha():
        end += 1
    return start, end


def _compile_numbers(numbers: Sequence[str]) -> re.Pattern[str] | None:
    """Return a pattern of these record numbers, with any separators and leading zeros, or None without one.

    A long number is found between letters too, as in `55120001A`, and so are the digits of one with letters.
    """
    short: set[str] = set()
    long: set[str] = set()
    for number in numbers:
        for characters in ("".join(_ALNUM.findall(number)), "".join(filter(str.isdecimal, number))):
            digits = sum(map(str.isdecimal, characters))
            if len(characters) < _MIN_NUMBER or not digits:
                continue
            pattern = "0{0,6}" + r"[-./ \u2010-\u2013_]?".join(map(re.escape, characters.lstrip("0") or characters))
            if digits >= _LONG_NUMBER:
                long.add(pattern)
            elif len(characters) == len("".join(_ALNUM.findall(number))):
                short.add(pattern)
    alternatives: list[str] = []
    if long:
        alternatives.append(rf"(?<!\d)(?:{'|'.join(sorted(long, key=len, reverse=True))})(?!\d)")
    if short:
        alternatives.append(rf"(?<![^\W_])(?:{'|'.join(sorted(short, key=len, reverse=True))})(?![^\W_])")
    return re.compile("|".join(alternatives), re.IGNORECASE) if alternatives else None
