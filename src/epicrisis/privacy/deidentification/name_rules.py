"""Names of people in notes.

A name is found because it is registered for the patient, by the words around it (titles, credentials, labels,
relatives, verbs for people), or by lists of names. A name found once is found everywhere in the same texts.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from epicrisis.library.base.person_names import fold, is_common, name_words
from epicrisis.privacy.deidentification.common_words import COMMON_WORDS
from epicrisis.privacy.deidentification.eponyms import CLINICAL_NOUNS, EPONYMS, ORDINARY_WORDS
from epicrisis.privacy.deidentification.name_lists import WORD, read_name_lists
from epicrisis.privacy.deidentification.registered_names import RegisteredNames
from epicrisis.privacy.deidentification.unlisted_names import DOSE, find_unlisted_names, read_english_words

_LETTERS = r"[^\W\d_]"
_NAME = rf"{_LETTERS}[\w'\u2019\u02bc-]{{0,30}}"
_GAP = r"(?:[ \t]{1,2}|[ \t]{0,2}\n[ \t]{0,4})"
_INITIAL = rf"{_LETTERS}\.[ \t]{{0,2}}\n?"
_PARTICLE = (
    r"(?:van der|van den|van de|van|von|de la|de los|de|del|della|di|da|dos|el|al|bin|ibn|abu|le|la|st\.?|mac|mc|o)"
)
_RUN = (
    rf"(?:{_INITIAL}){{0,2}}(?:{_PARTICLE}\s)?{_NAME}"
    rf"(?:,?{_GAP}(?:{_INITIAL}{_NAME}|{_PARTICLE}\s+{_NAME}|{_NAME})){{0,3}}"
)
_TITLE_WORDS = "dr|drs|mr|mrs|ms|prof|rev|sgt|capt|hon"
_FULL_TITLES = "doctor|miss|mister|professor|reverend|pastor|rabbi|sister|nurse"
TITLE = re.compile(
    rf"(?<![^\W_])(?:(?:{_TITLE_WORDS})\.?|{_FULL_TITLES})[ \t]{{0,2}}(?:(?<=[. ])|\n[ \t]{{0,4}})"
    rf"(?=(?P<run>{_RUN}))",
    re.IGNORECASE,
)
CREDENTIAL = re.compile(
    r"(?<=[\w.])(?:,[ ]?|[ ])(?:M\.?D\.?|D\.?O\.?|R\.?N\.?|N\.?P\.?|P\.?A\.?(?:-C)?|Ph\.?[ ]?D\.?|MBBS|DPM|DDS"
    r"|DMD|PharmD|LCSW|MSW|LPN|CRNA"
    r"|CNM|FNP|ARNP|APRN|BSN|FACS|FACC|Jr\.?|Sr\.?|III)(?![^\W_])"
)
CONJOINED = re.compile(
    rf"(?<![^\W_])(?:drs|doctors)\.?\s{{1,2}}{_NAME}(?:,\s{_NAME}){{0,3}},?\s(?:and|&)\s"
    rf"(?=(?P<run>{_RUN}))",
    re.IGNORECASE,
)
LABEL = re.compile(
    r"(?<![^\W_])(?P<label>(?:(?:patient|pt|first|last|maiden|full)(?:'s|\.)? )?names?|patient|pt|attending"
    r"|resident|provider|physician|surgeon|assistant"
    r"|anesthesiologist|pcp|dictated by|transcribed by|(?:electronically |e-)?signed(?: by)?|signature|author"
    r"|authenticated by|verified by|reviewed by"
    r"|prepared by|referred by|referring(?: physician| provider)?|primary care(?: physician| provider)?|cc|dear"
    r"|from|to|seen by|discussed with|d/w"
    r"|spoke with|spoke to|per|emergency contact|next of kin|nok|contact|proxy|hcp|power of attorney|guardian"
    r"|guarantor|caregiver|informant"
    r"|accompanied by|social worker|case manager|interpreter|nurse|cardiologist|oncologist|neurologist"
    r"|consultant|radiologist|pathologist|seen with"
    r"|known as|called|aka|nee|alias|re|attn|attention"
    r"|by|with|including|contacted|phoned|paged|notified|informed|saw|met"
    r"|sees|surname|forename)"
    rf"(?P<colon>\s{{0,3}}[:=]\s{{0,4}}|\s{{1,3}}|\s-\s)(?=(?P<run>{_RUN}))",
    re.IGNORECASE,
)
RELATIVE = re.compile(
    r"(?<![^\W_])(?:wife|husband|spouse|partner|son|daughter|mother|father|mom|mum|dad|brother|sister|aunt"
    r"|uncle|cousin|niece|nephew|grandson"
    r"|granddaughter|grandmother|grandfather|fianc\u00e9e?|fiancee?|girlfriend|boyfriend|friend|neighbou?r"
    r"|roommate|stepson|stepdaughter|child|twin|caregiver"
    r"|guardian|boss|coworker|landlord|aide|sitter|teacher|coach)"
    rf"(?:,?\s{{1,2}}(?:is\s|named\s|called\s|whose name is\s)?\(?|\s?\(|:\s)(?=(?P<run>{_RUN}))",
    re.IGNORECASE,
)
DOES = re.compile(
    r"(?<=\w)\s(?:\((?:his |her |the )?(?:son|daughter|wife|husband"
    r"|mother|father|sister|brother|spouse|partner|friend|aunt"
    r"|uncle|niece|nephew|cousin|granddaughter|grandson|neighbor|caregiver|POA|HCP|NOK)\b"
    r"|states?|stated|reports?|reported|denies|denied|says|said|called|phoned|visited|asks|asked"
    r"|requests?|requested|lives|lived|agrees|agreed"
    r"|arrived|verbali[sz]ed|endorses|endorsed|complains|complained|presents|presented|underwent|was born"
    r"|was seen|was admitted|was discharged|is an?\b|is the"
    r"|will (?:bring|drive|return|pick)|drove|brought|wants|wanted|understands|understood|declined|refused|came"
    r"|returns|returned|has been|would like"
    r"|(?:was |is )?at (?:the )?bedside|has a history|tolerated|ambulated|(?:can|may) be reached)\b"
)
_MOST_BEFORE = 60
"""Characters that a name before a credential or a verb may take."""
_MOST_WORDS = 4
_STRONG_LABEL = re.compile(
    r"(?i)(?:.*names?|.*signed(?: by)?|.* by|spoke (?:with|to)|discussed with|d/w|surname|forename|nok"
    r"|next of kin|emergency contact|pcp|attn|aka|alias"
    r"|dear|seen with|known as)\Z"
)
_SPACED = re.compile(rf"{_LETTERS}(?:[ ]{_LETTERS}){{2,}}")
_WEAK_LABELS = frozenset(("from", "to", "per", "by", "with", "including", "re", "contact", "called", "name", "names"))
_FUNCTION_WORDS = "as at was is has had will to in on for of with who that by called said saw from"
_NOT_AFTER_TITLE = frozenset(_FUNCTION_WORDS.split())
_SUFFIX_WORDS = "md do rn np pa phd jr sr iii ii iv mbbs lpn msw lcsw pharmd dpm pac c"
_SUFFIXES = frozenset(_SUFFIX_WORDS.split())
_VERBS = frozenset(("will", "may", "can", "is", "was", "has", "had", "did", "does", "went", "came", "saw"))
_TITLES = frozenset(("dr", "drs", "mr", "mrs", "ms", "miss", "prof", "professor", "doctor", "mister"))
_PARTICLE_WORDS = "van der den de von la los del della di da dos el al bin ibn abu le st"
_PARTICLES = frozenset(_PARTICLE_WORDS.split())
_POSSESSIVES = ("'s", "\u2019s", "\u02bcs")
_MIN_MISSPELLED = 5
_MIN_LOWER = 4


@dataclass(frozen=True, slots=True)
class TextWord:
    """A word of a text."""

    text: str
    start: int
    end: int

    @property
    def plain(self) -> str:
        """The word in lower case, without a possessive."""
        plain = self.text.casefold()
        return plain[:-2] if plain[-2:] in _POSSESSIVES else plain

    @property
    def length(self) -> int:
        """The characters without a possessive."""
        return len(self.plain)


class NameFinder:
    """Finds names in the texts of one patient. `names` are those of the patient, `staff` those of authors."""

    def __init__(self, names: Sequence[str] = (), staff: Sequence[str] = ()) -> None:
        self._lists = read_name_lists()
        self.registered: set[str] = set()
        for name in (*names, *staff):
            for word in name_words(name):
                self.registered.update(part for part in (word, *word.split("-")) if len(part) > 1)
        self.registered -= {fold(particle) for particle in _PARTICLES}
        self._patient = {word for name in names for word in name_words(name) if len(word) >= _MIN_MISSPELLED}
        self._repeated: set[str] = set()
        self._glued = RegisteredNames(names)

    def learn(self, text: str) -> None:
        """Remember the names shown by the words around them, so that `find` finds them anywhere."""
        for word in self._find_by_context(text):
            plain = word.plain
            if len(plain) > 2 and plain not in ORDINARY_WORDS and plain not in CLINICAL_NOUNS:
                self._repeated.add(fold(plain))

    def find(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield start and end of each word that is part of a name. A word may come twice."""
        for word in self._find_by_context(text):
            yield word.start, word.start + word.length
        words = [TextWord(match[0], match.start(), match.end()) for match in WORD.finditer(text)]
        shouted = _find_shouted_lines(text)
        for number, word in enumerate(words):
            following = words[number + 1] if number + 1 < len(words) else None
            previous = words[number - 1] if number else None
            if self._is_registered(word, previous, following) or self._is_listed(
                text, word, previous, following, is_shouted=_lies_in(word.start, shouted)
            ):
                yield word.start, word.start + word.length
        yield from self._find_broken(text)
        yield from self._find_initials(text)
        yield from self._glued.find(text)
        yield from find_unlisted_names(text)

    def _find_by_context(self, text: str) -> Iterator[TextWord]:
        """Yield the words of names next to titles, labels and the like."""
        for match in chain(TITLE.finditer(text), CONJOINED.finditer(text)):
            yield from self._read_run(text, match.span("run"), is_title=True, is_strict=True)
        for match in LABEL.finditer(text):
            has_colon = ":" in match["colon"]
            is_strict = has_colon or bool(_STRONG_LABEL.match(match["label"]))
            is_weak = not has_colon and match["label"].casefold() in _WEAK_LABELS
            yield from self._read_run(text, match.span("run"), is_strict=is_strict, is_weak=is_weak)
        for match in RELATIVE.finditer(text):
            yield from self._read_run(text, match.span("run"))
        for pattern in (CREDENTIAL, DOES):
            for match in pattern.finditer(text):
                start = _find_run_start(text, match.start())
                yield from self._read_run(text, (start, match.start()), is_before=True, is_strict=pattern is CREDENTIAL)

    def _read_run(
        self,
        text: str,
        span: tuple[int, int],
        *,
        is_title: bool = False,
        is_strict: bool = False,
        is_before: bool = False,
        is_weak: bool = False,
    ) -> Iterator[TextWord]:
        """Yield the words of a possible name, up to the first that is none."""
        words = [TextWord(part[0], part.start(), part.end()) for part in WORD.finditer(text, *span)]
        if is_before:
            words = self._trim_front(words)
        words_before = 0
        is_complete = False
        for number, word in enumerate(words):
            plain = word.plain
            gap = text[words[number - 1].end : word.start] if number else ""
            if len(plain) == 1 and word.text.isupper():
                # `Smith, J.`: what follows the initials is another name, or none.
                is_complete = is_complete or (words_before > 0 and "," in gap)
                continue
            if plain in _PARTICLES or plain in _SUFFIXES or plain in _TITLES:
                continue
            if (is_complete or DOSE.match(text, word.end)) and not self._is_known(plain):
                return
            # The next line begins with another field, unless it goes on with a name.
            if "\n" in gap and not self._is_known(plain) and len(words) > 2:
                return
            if "," in gap and not self._is_in_lists(plain) and words_before > 1:
                return
            if is_weak and not words_before and not self._is_in_lists(plain):
                return
            if not self._may_be_name(text, word, words_before, is_title=is_title, is_strict=is_strict):
                return
            words_before += 1
            yield word

    def _trim_front(self, words: list[TextWord]) -> list[TextWord]:
        """Return the words from the last one that cannot be part of the name."""
        for number in range(len(words) - 1, -1, -1):
            word = words[number]
            is_lower = word.text[0].islower() and not self._is_in_lists(word.plain)
            if (word.plain in ORDINARY_WORDS and not is_common(word.text)) or (
                is_lower and word.plain not in _PARTICLES
            ):
                return words[number + 1 :]
        return words

    def _is_known(self, plain: str) -> bool:
        """Return whether a word is registered, or in the lists of names."""
        return self._is_in_lists(plain) or fold(plain) in self.registered

    def _is_in_lists(self, plain: str) -> bool:
        return plain in self._lists.first or plain in self._lists.last

    def _may_be_name(self, text: str, word: TextWord, words_before: int, *, is_title: bool, is_strict: bool) -> bool:
        plain = word.plain
        is_listed = self._is_in_lists(plain)
        if is_title and not words_before:
            is_word = word.text[0].islower() and not is_listed and plain in read_english_words()
            return plain not in _NOT_AFTER_TITLE and not is_word
        if plain in ORDINARY_WORDS:
            return word.text[0].isupper() and is_listed and (words_before > 0 or is_strict) and not text.isupper()
        is_soft = not (is_title or is_strict)
        if is_soft and not is_listed and plain in read_english_words():
            return False
        if word.text[0].islower():
            if is_soft and plain in COMMON_WORDS:
                return False
            return is_listed and len(plain) >= _MIN_LOWER - 1 and (is_title or is_strict or words_before == 0)
        if plain in EPONYMS and not words_before and not is_strict:
            following = WORD.search(text, word.end)
            return following is not None and following[0].casefold() not in CLINICAL_NOUNS and following[0][0].isupper()
        if is_listed or is_strict or words_before:
            return plain not in CLINICAL_NOUNS
        # A word in no list: with a capital inside a sentence, behind or before a soft cue.
        return word.text[0].isupper() and not word.text.isupper() and len(plain) > 2 and plain not in CLINICAL_NOUNS

    def _is_registered(self, word: TextWord, previous: TextWord | None, following: TextWord | None) -> bool:
        folded = fold(word.plain)
        parts = [fold(part) for part in re.split(r"[-'\u2019]", word.plain) if len(part) > 2]
        is_match = folded in self.registered or any(part in self.registered for part in parts)
        if is_match:
            if is_common(word.plain) or word.plain in ORDINARY_WORDS or len(folded) < _MIN_LOWER:
                is_beside = self._is_beside(previous, word) or self._is_beside(word, following)
                return (
                    word.text[0].isupper()
                    or self._is_neighbour(following)
                    or self._ends_name(previous, word)
                    or is_beside
                )
            return not (word.plain in EPONYMS and following is not None and following.text.casefold() in CLINICAL_NOUNS)
        if len(folded) >= _MIN_MISSPELLED and word.text[0].isupper() and word.plain not in ORDINARY_WORDS:
            return any(_is_one_edit(folded, name) for name in self._patient)
        return False

    def _ends_name(self, previous: TextWord | None, word: TextWord) -> bool:
        """Return whether a common word in lower case is the last name behind a first name (`anna strong`)."""
        is_next = previous is not None and word.start - previous.end == 1
        return is_next and self._is_neighbour(previous) and word.plain not in _VERBS

    def _is_beside(self, first: TextWord | None, second: TextWord | None) -> bool:
        """Return whether two different registered names follow each other, though both are words (`april strong`)."""
        if first is None or second is None or second.start - first.end != 1:
            return False
        return first.plain != second.plain and {fold(first.plain), fold(second.plain)} <= self.registered

    def _is_neighbour(self, word: TextWord | None) -> bool:
        return word is not None and fold(word.plain) in self.registered and not is_common(word.plain)

    def _is_listed(
        self, text: str, word: TextWord, previous: TextWord | None, following: TextWord | None, *, is_shouted: bool
    ) -> bool:
        """Return whether the lists of names, or a name found elsewhere, have the word here."""
        plain = word.plain
        if len(plain) < 3 or plain in ORDINARY_WORDS:
            return self._completes_name(text, word, previous, following)
        next_plain = following.text.casefold() if following is not None else ""
        is_eponym = EPONYMS.issuperset(plain.split("-")) and (
            next_plain in CLINICAL_NOUNS or fold(plain) not in self._repeated
        )
        is_repeated = fold(plain) in self._repeated
        is_thing = next_plain in CLINICAL_NOUNS and plain not in self._lists.first and not is_repeated
        if is_eponym or is_thing:
            return False
        if is_repeated:
            is_word = (plain in read_english_words() and not self._is_in_lists(plain)) or plain in COMMON_WORDS
            return word.text[0].isupper() or (len(plain) >= _MIN_LOWER and not is_word)
        if not word.text[0].isupper():
            return False
        is_first, is_last = plain in self._lists.first, plain in self._lists.last
        if not (is_first or is_last):
            return False
        is_abbreviation = word.text.isupper() and len(plain) <= _MIN_LOWER
        if not (is_shouted or is_abbreviation):
            return True
        return any(
            other is not None
            and other.plain not in ORDINARY_WORDS
            and (other.plain in self._lists.first or other.plain in self._lists.last)
            for other in (previous, following)
        )

    def _completes_name(self, text: str, word: TextWord, previous: TextWord | None, following: TextWord | None) -> bool:
        """Return whether an ordinary word with a capital is the other half of a name (`Mary Long`, `Will Kowalski`)."""
        if not (word.text[0].isupper() and len(word.plain) > 2) or word.text.isupper():
            return False
        is_first, is_last = word.plain in self._lists.first, word.plain in self._lists.last
        if is_last and previous is not None and text[previous.end : word.start] in (" ", "\n"):
            other = previous.plain
            if other in self._lists.first and other not in ORDINARY_WORDS and previous.text[0].isupper():
                return True
        if is_first and following is not None and text[word.end : following.start] in (" ", "\n"):
            other = following.plain
            return other in self._lists.last and other not in ORDINARY_WORDS | EPONYMS and following.text[0].isupper()
        return False

    def _find_broken(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield registered names divided by a line end (`Kowal-` / `ski`) or spaced (`S M I T H`)."""
        for match in BROKEN.finditer(text):
            joined = fold(match[1] + match[2])
            if joined in self.registered or joined in self._repeated:
                yield match.span()
        for match in _SPACED.finditer(text):
            if fold(match[0].replace(" ", "")) in self.registered:
                yield match.span()

    def _find_initials(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the initials next to registered or repeated names (`J. Smith`)."""
        for match in INITIAL.finditer(text):
            plain = (match["before"] or match["after"]).casefold()
            if fold(plain) in self.registered or fold(plain) in self._repeated:
                for group in ("first", "second", "last"):
                    if match[group]:
                        yield match.span(group)


BROKEN = re.compile(rf"({_LETTERS}{{2,20}})-[ \t]{{0,3}}\n[ \t]{{0,8}}({_LETTERS}{{2,20}})")
INITIAL = re.compile(
    rf"(?<![^\W_])(?P<first>[A-Z])\.?[ ](?:(?P<second>[A-Z])\.?[ ])?(?=(?P<after>{_LETTERS}[\w'-]{{2,30}}))"
    rf"|(?P<before>{_LETTERS}[\w'-]{{2,30}}),?[ ](?P<last>[A-Z])(?![^\W_]|['/:]|\.[A-Z])"
)


def _find_run_start(text: str, end: int) -> int:
    """Return the start of the words that end here with nothing but blanks and full stops of initials between them."""
    begin = max(0, end - _MOST_BEFORE)
    words = list(WORD.finditer(text, begin, end))
    start = end
    for word in reversed(words[-_MOST_WORDS:]):
        gap = text[word.end() : start]
        is_initial_gap = gap.strip() == "." and word.end() - word.start() == 1
        is_cut = word.start() == begin and begin > 0 and text[begin - 1].isalpha()
        if is_cut or (gap.strip() and not is_initial_gap) or gap.count("\n") > 1:
            break
        start = word.start()
    return start


def _find_shouted_lines(text: str) -> list[tuple[int, int]]:
    """Return start and end of the lines without a lower-case letter, in order."""
    lines: list[tuple[int, int]] = []
    place = 0
    for line in text.splitlines(keepends=True):
        if line.upper() == line:
            lines.append((place, place + len(line)))
        place += len(line)
    return lines


def _lies_in(offset: int, ranges: Sequence[tuple[int, int]]) -> bool:
    number = bisect_right(ranges, (offset, len(ranges) and ranges[-1][1])) - 1
    return number >= 0 and ranges[number][0] <= offset < ranges[number][1]


def _is_one_edit(word: str, name: str) -> bool:
    """Return whether one letter is missing, added, wrong, or two neighbours are exchanged."""
    if abs(len(word) - len(name)) > 1 or word[0] != name[0]:
        return False
    start = 0
    while start < min(len(word), len(name)) and word[start] == name[start]:
        start += 1
    end = 0
    while end < min(len(word), len(name)) - start and word[-1 - end] == name[-1 - end]:
        end += 1
    middle, other = word[start : len(word) - end], name[start : len(name) - end]
    return max(len(middle), len(other)) <= 1 or (len(middle) == 2 and middle == other[::-1])
