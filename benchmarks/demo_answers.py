"""Answers to the demo's 12 questions: right, abstained, wrong, and wrong without a warning, with tokens and seconds.

    epicrisis ask build/demo-library --file demo/questions.jsonl -o answers.jsonl --strategy focused --model NAME
    python benchmarks/demo_answers.py answers.jsonl...
    python benchmarks/demo_answers.py answers.jsonl --wrong q09 --texts

Prints one row for each file of answers, and below the table each answer that is not right, with its warnings.

* Right: the chosen option is the gold one. An open answer is right if it states every term of `OPEN_ANSWERS`. A person
  reads the open answers (`--texts`) and overrules with `--wrong ID` or `--right ID`.
* Verbatim: the answer cites at least one quotation, and every quotation is in the document that it names.
* Abstained: no answer, by the model or because it was not trusted. Failed answers are counted apart.
* Warning: something on the screen that tells a reader not to rely on this answer: it cites nothing, a quotation was not
  found, an article is marked (retracted), its own words speak against it (`report/answer_warnings.py`), a claim is not
  fully supported by its sentences, sources disagree, the model chose sentences by their position, or the confidence is
  below `--confidence`. A remark that every answer of the model has, such as "for demonstration only", is no warning.
* Key sentences: quotations from the document that answers the question.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from epicrisis.core.answers import Answer, Notice
from epicrisis.core.printable import printable
from epicrisis.pipeline.recording.answer_record import read_records
from epicrisis.report.answer_content import build_answer_content

OPEN_ANSWERS: Mapping[str, tuple[re.Pattern[str], ...]] = {
    "q09": (re.compile(r"\baspirin\b", re.I), re.compile(r"\bmagnesium sul(?:ph|f)ate\b", re.I)),
    "q10": (re.compile(r"\bdalteparin\b", re.I),),
    "q11": (re.compile(r"\b20 ?mg\b", re.I), re.compile(r"\b10(?: to |-|–)14 days\b", re.I)),
    "q12": (re.compile(r"\b15 hours\b", re.I),),
}
"""What a right answer to an open question states, by the id of the question."""
_WARNING_NOTICES = frozenset({"degenerate-choice"})

Outcome = Literal["right", "abstained", "wrong", "failed"]


@dataclass(frozen=True, slots=True)
class GradedAnswer:
    """One answer with its outcome and the warnings that a reader sees beside it."""

    answer: Answer
    outcome: Outcome
    warnings: tuple[str, ...]

    @property
    def is_verbatim(self) -> bool:
        """Whether the answer has quotations, all found in the documents that they name."""
        citations = self.answer.citations
        return bool(citations) and all(citation.verified for citation in citations)


def grade_answer(answer: Answer, overruled: Mapping[str, Outcome]) -> Outcome:
    """Return the outcome of an answer. A person's grade in `overruled`, by question id, wins over the rules."""
    if answer.state == "abstained":
        return "abstained"
    if answer.state != "answered":
        return "failed"
    question = answer.question
    if question.id in overruled:
        return overruled[question.id]
    if question.options:
        return "right" if answer.choice == question.gold else "wrong"
    if question.id not in OPEN_ANSWERS:
        raise SystemExit(f"{question.id}: the open question is not one of the demo's; add its terms to OPEN_ANSWERS")
    is_right = all(term.search(answer.text) for term in OPEN_ANSWERS[question.id])
    return "right" if is_right else "wrong"


def list_warnings(answer: Answer, least_confidence: float) -> tuple[str, ...]:
    """Return the reasons on the screen not to rely on this answer."""
    warnings = [*build_answer_content(answer).warnings, *_warn_of_sources(answer)]
    for claim in answer.claims:
        if claim.is_doubtful:
            warnings.append(f"{claim.support}: {claim.reason or claim.text}")
    if answer.conflicts:
        warnings.append("the sources disagree")
    for event in answer.trace:
        if isinstance(event, Notice) and event.kind in _WARNING_NOTICES:
            warnings.append(event.message)
    if answer.confidence is not None:
        calibrated = answer.confidence.calibrated
        value = answer.confidence.value if calibrated is None else calibrated
        if value < least_confidence:
            warnings.append(f"confidence {value:.2f}")
    return tuple(warnings)


def _warn_of_sources(answer: Answer) -> list[str]:
    warnings: list[str] = []
    for citation in answer.citations:
        if not citation.verified:
            warnings.append(f"quotation [{citation.number}] not found")
        if citation.marks:
            warnings.append(f"[{citation.number}] is marked {', '.join(citation.marks)}")
    return warnings


def grade_file(path: Path, overruled: Mapping[str, Outcome], least_confidence: float) -> list[GradedAnswer]:
    """Return the graded answers of a file, in its order."""
    graded: list[GradedAnswer] = []
    for record in read_records(path):
        answer = record.answer
        warnings = list_warnings(answer, least_confidence)
        graded.append(GradedAnswer(answer, grade_answer(answer, overruled), warnings))
    return graded


def format_row(name: str, graded: Sequence[GradedAnswer]) -> str:
    """Return the row of one file. Tokens and seconds are means of the questions."""
    counts: dict[str, int] = dict.fromkeys(("right", "abstained", "wrong", "failed"), 0)
    verbatim = warned = silent = cited = verified = key = prompt = completion = 0
    seconds = 0.0
    for item in graded:
        counts[item.outcome] += 1
        verbatim += item.outcome == "right" and item.is_verbatim
        warned += item.outcome == "right" and bool(item.warnings)
        silent += item.outcome == "wrong" and not item.warnings
        for citation in item.answer.citations:
            cited += 1
            verified += citation.verified
            key += citation.document_id in item.answer.question.gold_documents
        prompt += item.answer.usage.prompt_tokens
        completion += item.answer.usage.completion_tokens
        seconds += item.answer.usage.seconds
    n = len(graded)
    cells = (
        name,
        n,
        f"{counts['right']} ({verbatim})",
        warned,
        counts["abstained"],
        counts["wrong"],
        silent,
        counts["failed"],
        f"{verified}/{cited}",
        f"{key}/{cited}",
        f"{prompt / n:.0f}",
        f"{completion / n:.0f}",
        f"{seconds / n:.1f}",
    )
    return f"| {' | '.join(map(str, cells))} |"


def print_texts(graded: Sequence[GradedAnswer], every: bool) -> None:
    """Print the answers that are not right, or `every` answer, with the gold answer and the warnings."""
    for item in graded:
        if item.outcome == "right" and not every:
            continue
        question = item.answer.question
        answer = item.answer.withheld or item.answer
        choice = f"{answer.choice}. " if answer.choice else ""
        print(f"  {question.id} {item.outcome}: {choice}{printable(answer.text)}")
        print(f"      gold: {question.gold}; warnings: {printable('; '.join(item.warnings)) or 'none'}")


def main() -> None:
    """Print the table, and the answers below it."""
    parser = argparse.ArgumentParser(description="Grade answers to the demo's questions.")
    parser.add_argument("files", nargs="+", type=Path, help="files that `epicrisis ask --file` wrote")
    parser.add_argument("--right", nargs="+", default=[], metavar="ID", help="a person found these right")
    parser.add_argument("--wrong", nargs="+", default=[], metavar="ID", help="a person found these wrong")
    parser.add_argument("--confidence", type=float, default=0.5, help="a lower confidence is a warning (default: 0.5)")
    parser.add_argument("--texts", action="store_true", help="print the right answers as well")
    options = parser.parse_args()
    overruled: dict[str, Outcome] = {**dict.fromkeys(options.right, "right"), **dict.fromkeys(options.wrong, "wrong")}
    runs: dict[Path, list[GradedAnswer]] = {}
    for path in options.files:
        runs[path] = grade_file(path, overruled, options.confidence)
    print(
        "| answers | n | right (with verbatim quotations) | right with a warning | abstained | wrong "
        "| wrong without a warning | failed "
        "| quotations verbatim | from the key document | prompt tokens | completion tokens | seconds |"
    )
    print(f"|{'---|' * 13}")
    for path, graded in runs.items():
        print(format_row(path.stem, graded))
    for path, graded in runs.items():
        print(f"\n{path.stem}")
        print_texts(graded, options.texts)


if __name__ == "__main__":
    main()
