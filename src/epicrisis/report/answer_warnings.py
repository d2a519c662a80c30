"""Reasons not to rely on a written answer, found in its own words and its quotations. No model is called.

    list_warnings(answer)  # ("Its quoted sentences do not name “propranolol”: read them.",)

These are no checks of support: an answer without a warning may be wrong. How many wrong answers have one:
benchmarks/RESULTS.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from epicrisis.answering.document_answers import denies_answer
from epicrisis.answering.strategy import writes_citations
from epicrisis.core.answers import Answer
from epicrisis.core.computed_values import COMPUTATION
from epicrisis.core.question_options import is_unanswerable
from epicrisis.reading.direction_rules import denies_effect, list_stems

_PLAIN_OPTION = re.compile(
    r"\W*(?:yes|no|maybe|uncertain|unclear|unknown|true|false|none|all|both|neither)\b", re.IGNORECASE
)
_YES = re.compile(r"\W*yes\b", re.IGNORECASE)
_BEFORE_SOURCE = re.compile(r" \((?:\d{4}\b|[^()]*\btrial\b).*$")
"""What a prompt adds to the title of a document: its year and type of study."""


def list_warnings(answer: Answer) -> Iterable[str]:
    """Yield the reasons not to rely on an answer, each as one sentence."""
    if answer.state != "answered" or not writes_citations(answer.strategy) or answer.model_outcome is not None:
        return
    computed = [claim for claim in answer.claims if claim.is_computed]
    words = [claim for claim in answer.claims if not claim.is_computed]
    for claim in words:
        if claim.checked_by == COMPUTATION:
            yield f"The chat model contradicts the computed answer: “{claim.text}” Read the entries and the notes."
    if computed and words and not any(claim.citations for claim in words):
        yield "The chat model's words cite nothing: do not rely on them."
        return
    if not answer.citations:
        yield (
            "It cites nothing: compare it with the nearest results that were read."
            if answer.nearest
            else "It cites nothing: do not rely on it."
        )
        return
    if _denies_chosen_option(answer):
        yield "It says that the documents do not answer the question, and yet it chose an option."
    if _leaves_option_unnamed(answer):
        yield f"Its quoted sentences do not name “{answer.question.options[answer.choice or '']}”: read them."
    if _affirms_beside_denial(answer):
        yield "It says yes, and a quoted sentence speaks of no effect, benefit or difference: read it."
    if _repeats_title(answer):
        yield "A claim only repeats the title of its source, which states nothing."


def _denies_chosen_option(answer: Answer) -> bool:
    """Return whether a claim denies an answer in the documents, against the choice."""
    if answer.choice is None or is_unanswerable(answer.choice, answer.question.options):
        return False
    return any(denies_answer(claim.text) for claim in answer.claims)


def _leaves_option_unnamed(answer: Answer) -> bool:
    """Return whether the quotations have fewer than half of the option's words. Yes, no and the like need none."""
    options = answer.question.options
    option = options.get(answer.choice or "", "")
    if _PLAIN_OPTION.match(option) or is_unanswerable(answer.choice, options):
        return False
    stems = list_stems(option)
    quoted = " ".join(citation.quotation for citation in answer.citations)
    return 2 * len(stems & list_stems(quoted)) < len(stems)


def _affirms_beside_denial(answer: Answer) -> bool:
    """Return whether the choice is `yes`, and a quotation denies an effect."""
    option = answer.question.options.get(answer.choice or "", "")
    if _YES.match(option) is None:
        return False
    return any(denies_effect(citation.quotation) for citation in answer.citations)


def _repeats_title(answer: Answer) -> bool:
    """Return whether a claim is the title of a document that it cites, with or without year and type of study."""
    titles = {citation.number: _simplify(citation.title) for citation in answer.citations}
    for claim in answer.claims:
        text = _simplify(_BEFORE_SOURCE.sub("", claim.text))
        if text and any(titles.get(number) == text for number in claim.citations):
            return True
    return False


def _simplify(text: str) -> str:
    """Return the text in lower case, with single blanks and without a full stop."""
    return " ".join(text.casefold().split()).rstrip(".")
