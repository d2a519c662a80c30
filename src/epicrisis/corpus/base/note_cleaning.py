"""Clean the text of notes, remove text that a template or a system wrote into many of them, and find their sections.

Two kinds of boilerplate are removed, and nothing else; in doubt a text stays.

Footers are complete lines that systems write: signatures, pages, rules, dictation. After "electronically signed by"
only names, titles, dates and times may follow. A line that continues, "ADDENDUM: HER2 positive", stays.

Recurring texts are the same, word for word, in at least `MIN_NOTES` notes of at least `MIN_PATIENTS` patients, and in
at least the share `MIN_SHARE` of the file's notes of one type. A paragraph, or a line that is a sentence of its own,
can recur only if it addresses its reader ("you", "please call") or mentions the document ("this report",
"confidential"), is long, has no digit, no de-identification mark and none of the words of findings, and is under no
heading of findings: "The lungs are clear without effusion" is a template too, but a finding of each patient.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

MIN_NOTES = 20
MIN_PATIENTS = 10
MIN_SHARE = 0.5
MIN_CHARACTERS = 80
MAX_COUNTED_TEXTS = 100_000
"""Texts counted at once. Beyond it the rarest are dropped: counts are then too low, never too high."""

ParagraphHash: TypeAlias = bytes

_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ufeff]")
_LINE_END = re.compile("\r\n?|[\v\f\x85\u2028\u2029]")
_BLANK_RUN = re.compile(r"\n{3,}")
_PARAGRAPH = re.compile(r"\S[^\n]*(?:\n[^\n]*\S[^\n]*)*")
_SENTENCE = re.compile(r"[ \t]*[A-Z(*].*[.!?)*]")
_ADDRESSES = re.compile(
    r"\b(?:you|yours?|please|confidential(?:ity)?|dictated|transcribed|transcription|unauthorized|(?:no|not) reply"
    r"|this (?:report|note|document|dictation|message|letter|transmission|communication|summary)"
    r"|should be (?:directed|reported|addressed|referred|discussed|returned|destroyed))\b",
    re.IGNORECASE,
)
"""Words of an instruction, a disclaimer, or a legal statement; a recurring text must have one of them."""
_SPECIFIC = re.compile(
    r"\d|___|\[\*\*|\bpatient (?:is|was|has|had|will)\b"
    # What was done to the reader, found in the reader, or is taken by the reader.
    r"|(?<!if )\byou (?:are|were|have|had|also|came|received|underwent|presented|developed)\b"
    r"|\byour (?:[a-z-]+ ){1,5}(?:is|are|was|were|has|had|show|found|reveal)"
    r"|\b(?:tak(?:e|ing)(?! part| care)|start|stop|continue|resume|hold)\b",
    re.IGNORECASE,
)
_WORD = re.compile("[a-z]+")
_FINDING_WORDS = frozenset(
    """
    no not none nor never without deny denies denied negative positive normal abnormal clear stable intact
    unremarkable unchanged absent present within consistent suspicious acute chronic history mass left right
    """.split()  # noqa: SIM905
)
_FINDING_BEGINNINGS = (
    *("diagnos", "allerg", "pain", "symptom", "fever", "bleed", "infect", "mild", "moderate", "severe", "identif"),
    *("demonstrat", "cancer", "tumo", "lesion", "malignan", "metasta", "fractur", "smok", "tobacco", "asbestos"),
    *("alcohol", "expos", "medicat", "medicin", "prescri", "tablet", "dose", "drug"),
)
_FINDING_ENDINGS = ("oma", "omas", "itis", "emia", "osis", "ectomy", "opathy", "plasia", "plasty", "uria")
_NO_REPLY = re.compile(r"\b(?:do not|no) reply\b", re.IGNORECASE)
_FINDINGS_HEADING = re.compile(
    r"finding|diagnos|impression|history|\bhpi\b|illness|course|result|medication|assessment|exam|allerg|\blabs?\b"
    r"|laborator|imaging|studies|microbiolog|conclusion|wet read",
    re.IGNORECASE,
)
"""A heading of findings: no text below it recurs."""

_MAX_FOOTER_CHARACTERS = 300
"""A longer line is no footer, and would take long to match."""
_MARK = r"(?:_{2,30}(?!_)|\[\*\*[^\]\n]{0,60}\*\*\])"
"""A de-identification mark, which replaces a name or a date."""
_TITLE = (
    r"(?:(?:Dr|Prof|Mr|Mrs|Ms|Jr|Sr|Ph\.?D|Pharm\.?D|PA-C)\b\.?|(?:[A-Z]\.){1,4}|(?:MD|DO|RN|NP|PA|MBBS|FACS|FRCR|III?)\b"
    r"|(?i:attending|resident|fellow|physician|radiologist|pathologist|surgeon|nurse practitioner)\b)"
)
_NOT_A_NAME = (
    r"(?!(?i:addend\w*|amend\w*|correct\w*|note|please|call\w*|positive|negative|normal|abnormal|critical|acute|chronic"
    r"|severe|allerg\w*|no|not|see|plan|final|impression|findings?|diagnos[ei]s|result\w*|potassium|left|right"
    r"|\w+(?:oma|itis|emia|osis|ectomy|opathy|ism|tion|uria|orrhage|ture))\b)"
)
_NAME = rf"(?:(?:(?:van|von|de|der|la|di|al|el) ){{0,2}}{_NOT_A_NAME}[A-ZÀ-ÖØ-Þ](?:[^\W\d_]|['’-])*(?![\w:])|{_MARK})"
_PERSON = rf"(?:{_TITLE}[ ,]{{0,3}}){{0,4}}(?:{_NAME}(?:,? (?:{_TITLE}|{_NAME})){{0,3}})?(?:[ ,]{{1,3}}{_TITLE}){{0,4}}"
_MONTH = r"(?i:jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec)[a-z]{0,6}"
_DATE = (
    rf"(?:\d{{4}}-\d\d?-\d\d?|\d\d?(?:/\d\d?/|\.\d\d?\.|-\d\d?-)\d{{2,4}}"
    rf"|\d\d?[ -]{_MONTH}[ -]\d{{4}}|{_MONTH} \d\d?,? \d{{4}}|{_MARK})"
)
_TIME = r"(?:T?\d\d?:\d\d(?::\d\d)?(?: ?[AaPp]\.?[Mm]\b\.?)?(?: (?:[ECMP][SD]T|UTC|GMT)\b)?)"
_WHEN = rf"(?:[ ,]{{0,3}}(?:(?i:on|at):? )?(?:{_DATE}|{_TIME})){{0,3}}"
_BY = rf"{_PERSON}(?: and {_PERSON})?{_WHEN}"

_RECOGNITION_WORDS = (
    r"(?:dictated|created|generated|produced|prepared|transcribed|completed|typed|written|made|partially|partly|part|in"
    r"|or|entirely|fully|using|utilizing|with|by|through|via|from|the|a|an|aid|assistance|help|use|of|dragon|medical"
    r"|computer|computerized|electronic|electronically|automated|software|system|technology|program|dictation"
    r"|transcription|and|as|such|is|it|there|may|might|can|could|will|be|therefore|so|contain|contains|include|includes"
    r"|have|has|some|subject|to|inadvertent|unintended|unintentional|typographical|transcriptional|grammatical|grammar"
    r"|spelling|sound-alike|word|words|wording|recognition|voice|speech|substitutions?|errors?|mistakes?|despite"
    r"|careful|proofreading|review|result|due|that|were|been|for)"
)
_FOOTER_PATTERNS = {
    "signature": r"(?i:(?:electronically|digitally|e-)\s?signed|signed electronically|authenticated(?= by))"
    rf"{_WHEN}(?:(?: (?i:by))?:?[ \t]{{0,3}}{_BY})?\.?",
    "dictation": rf"(?i:dictated|transcribed)(?: (?i:(?:but|and) not read))?{_WHEN}"
    rf"(?: (?i:by):?[ \t]{{0,3}}{_BY})?\.?"
    r"|(?i:(?:dictated|transcribed) using (?:dragon|medical|voice|speech|recognition|dictation|software|[ -])+)\.?",
    "voice": r"(?i:this (?:note|report|document|dictation) (?:was|has been|may have been|is)"
    rf"(?:[ ,]{{1,3}}{_RECOGNITION_WORDS}){{1,12}}[ ,]{{1,3}}(?:voice|speech)[- ]recognition"
    rf"(?:[ ,;]{{1,3}}{_RECOGNITION_WORDS}){{0,30}})\.?",
    "page": r"(?i:page:? \d{1,4}(?: (?:of|/) \d{1,4})?)",
    "rule": rf"[_=*#~-]{{20,{_MAX_FOOTER_CHARACTERS}}}",
    "end": r"(?i:end of (?:report|note|document))\.?",
}
FOOTERS: Mapping[str, re.Pattern[str]] = {
    kind: re.compile(rf"^[ \t*]{{0,20}}(?=.{{1,{_MAX_FOOTER_CHARACTERS}}}$)(?:{pattern})[ \t*]{{0,20}}$", re.MULTILINE)
    for kind, pattern in _FOOTER_PATTERNS.items()
}


def clean_text(text: str) -> str:
    """Return the text without control characters, byte order marks and blanks at the ends of lines.

    Line ends become line feeds, several blank lines one. Everything else stays, including indents and marks of
    de-identification (`[**Name**]`, `___`). Cleaning twice changes nothing.
    """
    text = _CONTROL.sub("", _LINE_END.sub("\n", text))
    lines = map(str.rstrip, text.split("\n"))
    return _BLANK_RUN.sub("\n\n", "\n".join(lines)).strip("\n")


@dataclass(frozen=True, slots=True)
class RecurringText:
    """A recurring text, as written in the first note, and the number of notes that have it."""

    text: str
    notes: int
    notes_of_type: int


@dataclass(frozen=True, slots=True)
class RemovedText:
    """A text removed from one note: `kind` is `recurring` or a kind of footer; `key` identifies a recurring text."""

    kind: str
    text: str
    key: ParagraphHash = b""


@dataclass(slots=True)
class _TextCount:
    """The notes and patients with a text; no more patients are remembered than `MIN_PATIENTS`."""

    text: str
    note_type: str
    notes: int
    patients: set[str]


class RecurringTextCounter:
    """Count the texts of a file's notes in bounded memory: at most `limit` texts at once."""

    def __init__(self, limit: int = MAX_COUNTED_TEXTS) -> None:
        self._limit = limit
        self._counts: dict[ParagraphHash, _TextCount] = {}
        self._floor = 0
        self._notes: Counter[str] = Counter()

    def __len__(self) -> int:
        """Return the number of different texts that are counted at present."""
        return len(self._counts)

    def add(self, note_type: str, patient: str, text: str) -> None:
        """Count each text of one cleaned note once. Beyond the limit the rarest texts are dropped, to half of it."""
        limit = self._limit
        self._notes[note_type] += 1
        spans = {hash_paragraph(note_type, text[start:end]): (start, end) for start, end in _candidates(text)}
        for key, (start, end) in spans.items():
            count = self._counts.get(key)
            if count is None:
                self._counts[key] = _TextCount(text[start:end], note_type, 1, {patient})
            else:
                count.notes += 1
                if len(count.patients) < MIN_PATIENTS:
                    count.patients.add(patient)
        while len(self._counts) > limit:
            limit = self._limit // 2
            self._floor += 1
            self._counts = {key: count for key, count in self._counts.items() if count.notes > self._floor}

    def recurring(self) -> dict[ParagraphHash, RecurringText]:
        """Return the recurring texts by hash, in no particular order."""
        recurring = {}
        for key, count in self._counts.items():
            notes_of_type = self._notes[count.note_type]
            is_frequent = count.notes >= max(MIN_NOTES, MIN_SHARE * notes_of_type)
            if is_frequent and len(count.patients) >= MIN_PATIENTS:
                recurring[key] = RecurringText(count.text, count.notes, notes_of_type)
        return recurring


def hash_paragraph(note_type: str, text: str) -> ParagraphHash:
    """Return a hash of the note type and the words of a text, independent of its line breaks."""
    words = f"{note_type}\0{' '.join(text.split())}"
    return hashlib.blake2b(words.encode(), digest_size=16).digest()


def remove_boilerplate(
    note_type: str, text: str, recurring: Mapping[ParagraphHash, RecurringText]
) -> tuple[str, list[RemovedText]]:
    """Return the cleaned text without footers and recurring texts, cleaned again, and the removed texts in order."""
    spans: list[tuple[int, int, RemovedText]] = []
    if recurring:
        for start, end in _candidates(text):
            key = hash_paragraph(note_type, text[start:end])
            if key in recurring:
                spans.append((start, end, RemovedText("recurring", text[start:end], key)))
    for kind, pattern in FOOTERS.items():
        for match in pattern.finditer(text):
            spans.append((*match.span(), RemovedText(kind, match[0].strip())))
    if not spans:
        return text, []
    pieces, removed, position = [], [], 0
    for start, end, removal in sorted(spans, key=lambda span: (span[0], -span[1])):
        # A line within a removed paragraph starts before `position`.
        if start >= position:
            pieces.append(text[position:start])
            removed.append(removal)
            position = end
    return clean_text("".join((*pieces, text[position:]))), removed


def _candidates(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of paragraphs and single lines that may recur, none of a section of findings."""
    spans = []
    for paragraph in _PARAGRAPH.finditer(text):
        if _may_recur(paragraph[0]):
            spans.append(paragraph.span())
            continue
        start, previous = paragraph.start(), ""
        for line in paragraph[0].split("\n") if "\n" in paragraph[0] else ():
            # A line that continues the sentence of the previous line is no text of its own.
            begins = not previous or previous.endswith((".", ":", "!", "?"))
            if begins and _SENTENCE.fullmatch(line) and _may_recur(line):
                spans.append((start, start + len(line)))
            start, previous = start + len(line) + 1, line
    if not spans:
        return
    findings = [section for section in find_sections(text) if _FINDINGS_HEADING.search(str(section[2]))]
    for start, end in spans:
        if not any(int(first) < end and start < int(last) for first, last, _ in findings):
            yield start, end


def _may_recur(text: str) -> bool:
    folded = " ".join(text.split())
    if len(folded) < MIN_CHARACTERS or _SPECIFIC.search(folded) or not _ADDRESSES.search(folded):
        return False
    words = set(_WORD.findall(_NO_REPLY.sub("", folded).lower()))
    if not words.isdisjoint(_FINDING_WORDS):
        return False
    return not any(word.startswith(_FINDING_BEGINNINGS) or word.endswith(_FINDING_ENDINGS) for word in words)


def _split_names(text: str) -> frozenset[str]:
    return frozenset(" ".join(name.split()) for name in text.split(","))


KNOWN_HEADINGS = _split_names(
    """
    a/p, active issues, addendum, admission diagnoses, admission diagnosis, admission labs, admission medications,
    allergies, anesthesia, assessment, assessment & plan, assessment and plan, assessment and recommendations,
    assessment/plan, brief hospital course, chief complaint, chief complaints, chronic issues, clinical history,
    clinical indication, clinical information, comparison, complications, conclusion, conclusions, condition at
    discharge, condition on discharge, consultations, course in hospital, current medications, diagnoses, diagnosis,
    discharge condition, discharge diagnoses, discharge diagnosis, discharge disposition, discharge exam, discharge
    instructions, discharge labs, discharge medications, discharge plan, disposition, ed course, emergency department
    course, exam, examination, facility, family history, final diagnoses, final diagnosis, final report, findings,
    follow up, follow-up, follow-up instructions, followup, followup instructions, history, history of present illness,
    home medications, hospital course, hospital course by problem, hpi, imaging, immunizations, impression, indication,
    indications, infusions, instructions, interval history, laboratory data, laboratory results, labs, labs on
    admission, labs on discharge, major surgical or invasive procedure, medical history, medications, medications on
    admission, medications on discharge, medications prior to admission, microbiology, objective, operation, operations,
    operative findings, operative procedure, past medical history, past medical/surgical history, past surgical history,
    pertinent results, physical exam, physical examination, physical examination on admission, plan, postoperative
    diagnosis, preoperative diagnosis, present illness, primary diagnoses, primary diagnosis, principal diagnosis,
    procedure, procedures, reason for consultation, reason for exam, reason for examination, reason for this
    examination, reason for visit, recommendations, results, review of systems, secondary diagnoses, secondary
    diagnosis, social history, studies, subjective, subjective complaint, summary, surgical history, technique,
    transitional issues, vital signs, vitals, wet read
    """
)
"""Headings in small letters; any of them may have text after its colon, or be alone without one."""

_HEADING_LINE = re.compile(
    r"[ \t]*+(?P<title>[A-Za-z][A-Za-z /&'(),-]{1,58}[A-Za-z)])[ \t]*+(?P<colon>:?+)(?P<rest>[^\n]*+)"
)
_SMALL_WORDS = _split_names("a, an, and, at, by, for, from, in, of, on, or, the, to, with")
_MAX_WORDS = 7
_MIN_LETTERS = 5
"""Letters of any other heading: `BP:` and `NPO` are none."""


def find_sections(text: str, titles: Collection[str] = ()) -> list[list[int | str]]:
    """Return `[start, end, title]` of each section in order, without gaps from the first heading to the text's end.

    Lines that equal one of `titles`, which the note's source says, are headings too.
    """
    headings: list[tuple[int, str]] = []
    start, previous = 0, ""
    for line in text.split("\n"):
        title = line if line in titles else _find_heading(line, not previous.strip())
        if title:
            headings.append((start, title))
        start, previous = start + len(line) + 1, line
    ends = [*(start for start, _ in headings[1:]), len(text)]
    return [[start, end, title] for (start, title), end in zip(headings, ends, strict=False)]


def _find_heading(line: str, is_after_blank: bool) -> str:
    """Return the heading with which the line begins, or an empty string."""
    match = _HEADING_LINE.fullmatch(line)
    if match is None:
        return ""
    title, is_alone = " ".join(match["title"].split()), not match["rest"].strip()
    has_colon = bool(match["colon"])
    if title.lower() in KNOWN_HEADINGS and title[0].isupper() and (has_colon or (is_alone and is_after_blank)):
        return title
    if not is_alone or len(title.split()) > _MAX_WORDS or sum(map(str.isalpha, title)) < _MIN_LETTERS:
        return ""
    is_heading = title.isupper() and (has_colon or (is_after_blank and " " in title))
    if has_colon and title[0].isupper():
        words = [word for word in re.findall(r"[A-Za-z]+", title) if word not in _SMALL_WORDS]
        is_heading |= all(word[:1].isupper() for word in words)
    return title if is_heading else ""
