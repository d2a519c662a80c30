"""Notes as text to be read: cleaned; and without what a template or a system wrote into many of them.

Taken for boilerplate, and never anything else: lines that systems write (signatures, pages, rules, dictation), and
texts that recur word for word over the notes of one type. A text recurs when it stands in at least `NOTES` notes of at
least `PATIENTS` patients and in at least the share `SHARE` of the file's notes of that type. A paragraph, or a line
that is a sentence of its own, can recur only if it speaks to its reader ("you", "please call") or of the document
("this report", "confidential"), is long, holds no digit, no de-identification mark and none of the words that findings
are told with, and stands under no heading of findings: "The lungs are clear without effusion" is a template too, and a
finding of each patient; and in an export of one disease every note may tell of the same tumor. In doubt a text stays.

Does not know where notes come from nor what is done with what was taken out.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from epicrisis.corpus.note_footers import FOOTERS
from epicrisis.corpus.note_sections import find_sections

MIN_NOTES = 20
MIN_PATIENTS = 10
MIN_SHARE = 0.5
MIN_CHARACTERS = 80
"""Characters of a text that can recur, white space folded."""
MAX_COUNTED_TEXTS = 100_000
"""Texts counted at once. Where there are more, the rarest are forgotten: counts are then too low, never too high."""

ParagraphHash: TypeAlias = bytes

_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ufeff]")
_LINE_END = re.compile("\r\n?|[\v\f\x85\u2028\u2029]")
_BLANK_RUN = re.compile(r"\n{3,}")
_PARAGRAPH = re.compile(r"\S[^\n]*(?:\n[^\n]*\S[^\n]*)*")
_SENTENCE = re.compile(r"[ \t]*[A-Z(*].*[.!?)*]")
_SAYS = re.compile(
    r"\b(?:you|yours?|please|confidential(?:ity)?|dictated|transcribed|transcription|unauthorized|(?:no|not) reply"
    r"|this (?:report|note|document|dictation|message|letter|transmission|communication|summary)"
    r"|should be (?:directed|reported|addressed|referred|discussed|returned|destroyed))\b",
    re.IGNORECASE,
)
"""What a text must say to be taken for an instruction, a disclaimer, or a statement of law or of a system."""
_NEVER = re.compile(
    r"\d|___|\[\*\*|\bpatient (?:is|was|has|had|will)\b"
    # What was done with or found in the reader, and what it takes.
    r"|(?<!if )\byou (?:are|were|have|had|also|came|received|underwent|presented|developed)\b"
    r"|\byour (?:[a-z-]+ ){1,5}(?:is|are|was|were|has|had|show|found|reveal)"
    r"|\b(?:tak(?:e|ing)(?! part| care)|start|stop|continue|resume|hold)\b",
    re.IGNORECASE,
)
_WORD = re.compile("[a-z]+")
_TOLD_WITH = frozenset(
    re.findall(
        r"\w+",
        """
        no not none nor never without deny denies denied negative positive normal abnormal clear stable intact
        unremarkable unchanged absent present within consistent suspicious acute chronic history mass left right
        """,
    )
)
_TOLD_WITH_LIKE = (
    "diagnos",
    "allerg",
    "pain",
    "symptom",
    "fever",
    "bleed",
    "infect",
    "mild",
    "moderate",
    "severe",
    "identif",
    "demonstrat",
    "cancer",
    "tumo",
    "lesion",
    "malignan",
    "metasta",
    "fractur",
    "smok",
    "tobacco",
    "asbestos",
    "alcohol",
    "expos",
    "medicat",
    "medicin",
    "prescri",
    "tablet",
    "dose",
    "drug",
)
_TOLD_WITH_ENDING = ("oma", "omas", "itis", "emia", "osis", "ectomy", "opathy", "plasia", "plasty", "uria")
"""Words, and beginnings and ends of words, of findings."""
_NO_REPLY = re.compile(r"\b(?:do not|no) reply\b", re.IGNORECASE)
_FINDINGS = re.compile(
    r"finding|diagnos|impression|history|\bhpi\b|illness|course|result|medication|assessment|exam|allerg|\blabs?\b"
    r"|laborator|imaging|studies|microbiolog|conclusion|wet read",
    re.IGNORECASE,
)
"""In a heading: nothing below it recurs."""


def clean_text(text: str) -> str:
    """The text with line feeds as line ends, without control characters and byte order marks, without blanks at the
    ends of lines, with one blank line for several, and none at its ends. All else stays, indents and the marks of
    de-identification (`[**Name**]`, `___`) among it. Cleaned twice is cleaned once."""
    text = _CONTROL.sub("", _LINE_END.sub("\n", text))
    return _BLANK_RUN.sub("\n\n", "\n".join(line.rstrip() for line in text.split("\n"))).strip("\n")


@dataclass(frozen=True, slots=True)
class RecurringText:
    """A text that recurs: as it stood in the first note that had it, and in how many it was counted."""

    text: str
    notes: int
    of: int
    """Notes of that type in the file."""


@dataclass(frozen=True, slots=True)
class RemovedText:
    """What was taken out of one note: `kind` is `recurring` or a footer's name; `key` that of a recurring text."""

    kind: str
    text: str
    key: ParagraphHash = b""


@dataclass(slots=True)
class _Count:
    """How often a text was met; of patients no more are kept than are asked for."""

    text: str
    notes: int
    patients: frozenset[str]


class RecurringTextCounter:
    """What recurs over the notes of a file, counted in bounded memory: at most `limit` texts at once."""

    def __init__(self, limit: int = MAX_COUNTED_TEXTS) -> None:
        self._limit = limit
        self._texts: dict[ParagraphHash, _Count] = {}
        self._floor = 0
        self._types: dict[ParagraphHash, str] = {}
        self._notes: Counter[str] = Counter()

    def add(self, note_type: str, patient: str, text: str) -> None:
        """Counts the texts of one cleaned note, each once."""
        self._notes[note_type] += 1
        met = {hash_paragraph(note_type, text[start:end]): (start, end) for start, end in _candidates(text)}
        for key, (start, end) in met.items():
            count = self._texts.get(key)
            if count is None:
                self._texts[key] = _Count(text[start:end], 1, frozenset((patient,)))
                self._types[key] = note_type
            else:
                count.notes += 1
                if len(count.patients) < MIN_PATIENTS:
                    count.patients |= {patient}
        if len(self._texts) > self._limit:
            self._forget()

    def recurring(self) -> dict[ParagraphHash, RecurringText]:
        """The texts that recur, in no order."""
        return {
            key: RecurringText(count.text, count.notes, of)
            for key, count in self._texts.items()
            if count.notes >= max(MIN_NOTES, MIN_SHARE * (of := self._notes[self._types[key]]))
            and len(count.patients) >= MIN_PATIENTS
        }

    def _forget(self) -> None:
        while len(self._texts) > self._limit // 2:
            self._floor += 1
            self._texts = {key: count for key, count in self._texts.items() if count.notes > self._floor}
        self._types = {key: self._types[key] for key in self._texts}


def hash_paragraph(note_type: str, text: str) -> ParagraphHash:
    """What a text is counted by: its note type and its words; how its lines are broken does not matter."""
    words = f"{note_type}\0{' '.join(text.split())}"
    return hashlib.blake2b(words.encode(), digest_size=16).digest()


def remove_boilerplate(
    note_type: str, text: str, recurring: Mapping[ParagraphHash, RecurringText]
) -> tuple[str, list[RemovedText]]:
    """The cleaned text without footers and recurring texts, cleaned again; and what was taken out, in its order."""
    spans: list[tuple[int, int, RemovedText]] = []
    if recurring:
        for start, end in _candidates(text):
            key = hash_paragraph(note_type, text[start:end])
            if key in recurring:
                spans.append((start, end, RemovedText("recurring", text[start:end], key)))
    for name, pattern in FOOTERS.items():
        spans += [(*found.span(), RemovedText(name, found[0].strip())) for found in pattern.finditer(text)]
    if not spans:
        return text, []
    kept, taken, place = [], [], 0
    for start, end, what in sorted(spans, key=lambda span: (span[0], -span[1])):
        # A line of a paragraph that goes as a whole.
        if start >= place:
            kept.append(text[place:start])
            taken.append(what)
            place = end
    return clean_text("".join((*kept, text[place:]))), taken


def _candidates(text: str) -> Iterator[tuple[int, int]]:
    """Paragraphs that may recur, and of the others the lines that may; none of a section of findings."""
    spans = list(_spans(text))
    told = [
        (int(start), int(end))
        for start, end, title in (find_sections(text) if spans else ())
        if _FINDINGS.search(str(title))
    ]
    for start, end in spans:
        if not any(first < end and start < last for first, last in told):
            yield start, end


def _spans(text: str) -> Iterator[tuple[int, int]]:
    for paragraph in _PARAGRAPH.finditer(text):
        if _may_recur(paragraph[0]):
            yield paragraph.span()
        elif "\n" in paragraph[0]:
            start, before = paragraph.start(), ""
            for line in paragraph[0].split("\n"):
                # A line of a sentence that began before it or goes on behind it is no text of its own.
                begins = not before or before.endswith((".", ":", "!", "?"))
                if begins and _SENTENCE.fullmatch(line) and _may_recur(line):
                    yield start, start + len(line)
                start, before = start + len(line) + 1, line


def _may_recur(text: str) -> bool:
    folded = " ".join(text.split())
    if len(folded) < MIN_CHARACTERS or _NEVER.search(folded) or not _SAYS.search(folded):
        return False
    words = set(_WORD.findall(_NO_REPLY.sub("", folded).lower()))
    return words.isdisjoint(_TOLD_WITH) and not any(
        word.startswith(_TOLD_WITH_LIKE) or word.endswith(_TOLD_WITH_ENDING) for word in words
    )
