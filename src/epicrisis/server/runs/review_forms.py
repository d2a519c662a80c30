"""The forms of a blind review: the one that starts it, and the one of a question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from epicrisis.core.errors import InputError
from epicrisis.evaluation.grading.human_verdicts import CHOICES, CRITERIA, PreferredAnswer
from epicrisis.server.page.question_form import parse_form
from epicrisis.server.runs.review_answers import MAX_QUESTIONS

MAX_REMARK_CHARACTERS = 4_000
SKIP = "skip"
_MAX_SEED = 2**31 - 1


@dataclass(frozen=True, slots=True)
class StartForm:
    """The fields of the form that starts a review, as they were sent."""

    ours: str = ""
    rival: str = ""
    sample: str = ""
    seed: str = "0"
    criteria: Sequence[str] = ()
    reviewers: Sequence[str] = ()

    @classmethod
    def parse(cls, body: bytes) -> StartForm:
        """Return the fields of a body. Raises InputError for one that is no form."""
        fields = parse_form(body)
        last = {name: values[-1].strip() for name, values in fields.items()}
        return cls(
            ours=last.get("ours", ""),
            rival=last.get("rival", ""),
            sample=last.get("sample", ""),
            seed=last.get("seed", "") or "0",
            criteria=tuple(name for name in CRITERIA if name in fields.get("criterion", ())),
            reviewers=tuple(dict.fromkeys(fields.get("reviewer", ()))),
        )

    @property
    def sample_size(self) -> int | None:
        """The number of questions, or None for all. Raises InputError."""
        return None if not self.sample else _read_number("Questions", self.sample, 1, MAX_QUESTIONS)

    @property
    def seed_number(self) -> int:
        """The seed of the sample. Raises InputError."""
        return _read_number("Seed", self.seed, 0, _MAX_SEED)


@dataclass(frozen=True, slots=True)
class VerdictForm:
    """The fields of the form of a question, by the places on the page."""

    place: PreferredAnswer | None
    """The preferred place: 1, 2 or a tie. None: the question is skipped, or nothing was chosen yet."""
    is_skipped: bool
    criteria: Mapping[str, PreferredAnswer] = field(default_factory=dict)
    remark: str = ""

    @classmethod
    def parse(cls, body: bytes, criteria: Sequence[str]) -> VerdictForm:
        """Return the fields of a body. Raises InputError for an unknown choice and a remark that is too long."""
        fields = {name: values[-1] for name, values in parse_form(body).items()}
        word = fields.get("choice", "")
        remark = fields.get("remark", "").strip()
        if len(remark) > MAX_REMARK_CHARACTERS:
            raise InputError(f"a remark has up to {MAX_REMARK_CHARACTERS:,} characters: shorten it")
        choices: dict[str, PreferredAnswer] = {}
        for criterion in criteria:
            choice = _read_choice(fields.get(criterion, ""))
            if choice is not None:
                choices[criterion] = choice
        is_skipped = word == SKIP
        return cls(None if is_skipped else _read_choice(word), is_skipped, choices, remark)


def _read_choice(word: str) -> PreferredAnswer | None:
    for choice in CHOICES:
        if choice == word:
            return choice
    if word:
        raise InputError("the choice is none of those of the page: open the page again")
    return None


def _read_number(name: str, text: str, low: int, high: int) -> int:
    if text.isascii() and text.isdecimal() and len(text) < len(str(high)) + 1 and low <= int(text) <= high:
        return int(text)
    raise InputError(f"{name}: give a whole number from {low:,} to {high:,}")
