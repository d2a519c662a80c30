"""Read the role of each sentence of a document: aim, background, method, result or conclusion.

    rows = classify_roles(["We compared A with B.", "Pain fell (p = 0.01)."])
    rows[1, ROLES.index("result")]    # 0.97

The words and the place of a sentence decide, by a logistic regression that is trained on the sections of abstracts and
trial reports. `name_role` reads a heading.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from epicrisis.reading.text_classifier import TextClassifier

SentenceRole: TypeAlias = Literal["aim", "background", "method", "result", "conclusion"]
ROLES: tuple[SentenceRole, ...] = ("aim", "background", "method", "result", "conclusion")
STATES_RESULTS: frozenset[SentenceRole] = frozenset({"result", "conclusion"})
"""The roles of sentences that state what a study found."""
SHORT_DOCUMENT = 60
"""Fewer sentences are an abstract."""
_HEADINGS: Mapping[SentenceRole, re.Pattern[str]] = {
    "conclusion": re.compile(r"conclu|interpretation|implication", re.IGNORECASE),
    "result": re.compile(r"result|finding|data synthesis", re.IGNORECASE),
    "method": re.compile(
        r"method|design|setting|patients|participants|material|subjects|interventions?$|measure|population|"
        r"data (?:source|extract|collect)|study selection|statistic|procedure|randomi|recruit|eligib|sample|analys",
        re.IGNORECASE,
    ),
    "aim": re.compile(r"objective|\baims?\b|purpose|hypothes", re.IGNORECASE),
    "background": re.compile(r"background|introduction|context|rationale", re.IGNORECASE),
}
_TOKEN = re.compile(r"[a-z]+|[<>=≤≥%±]|\d+(?:\.\d+)?")
_DIGIT = re.compile(r"\d")


def name_role(heading: str) -> SentenceRole | None:
    """Return the one role that a heading names. None for none and for two: `Methods and results`."""
    roles = [role for role, pattern in _HEADINGS.items() if pattern.search(heading)]
    return roles[0] if len(roles) == 1 else None


def classify_roles(sentences: Sequence[str]) -> npt.NDArray[np.float32]:
    """Return the probability of each of ROLES for each sentence of a document `(n, 5)`, by words and places."""
    count = len(sentences)
    return classify_places([(sentence, index, count) for index, sentence in enumerate(sentences)])


def classify_places(places: Sequence[tuple[str, int, int]]) -> npt.NDArray[np.float32]:
    """Return the probability of each of ROLES `(n, 5)` for sentences with their places in documents of that length."""
    if not places:
        return np.zeros((0, len(ROLES)), dtype=np.float32)
    classifier = _load_classifier()
    columns = [classifier.classes.index(role) for role in ROLES]
    words = [mask_numbers(sentence) for sentence, _, _ in places]
    return classifier.predict(words, [describe_place(*place) for place in places])[:, columns]


def mask_numbers(sentence: str) -> list[str]:
    """Return the words and signs of a sentence in lower case, with `0` for each number."""
    return ["0" if token[0].isdigit() else token for token in _TOKEN.findall(sentence.lower())]


def describe_place(sentence: str, index: int, count: int) -> list[float]:
    """Return what is known of a sentence of a document beside its words."""
    place = index / max(1, count - 1)
    is_short = count < SHORT_DOCUMENT
    ends = (index == 0, place < 0.1, place > 0.9, index == count - 1)
    return [
        place,
        place**2,
        *map(float, ends),
        min(1.5, len(sentence) / 200),
        float(_DIGIT.search(sentence) is not None),
        float(is_short),
        place * is_short,
        place**2 * is_short,
    ]


@cache
def _load_classifier() -> TextClassifier:
    return TextClassifier.from_bytes((files(__package__) / "weights" / "roles.npz").read_bytes())
