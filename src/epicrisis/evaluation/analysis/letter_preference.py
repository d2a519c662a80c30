"""Find models that nearly always choose the same letter, independently of the evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from epicrisis.core.printable import count_noun
from epicrisis.evaluation.runs.recorded_run import RecordedRun

LEAST_CHOICES = 20
"""Fewer choices say nothing about a preference."""
PREFERENCE = 0.9
"""The share of choices of one letter from which a run is remarked on."""
EXCESS = 0.2
"""How much more often the letter is chosen than right, at least."""


def describe_letter_preferences(runs: Sequence[RecordedRun]) -> Iterator[str]:
    """Yield a remark for each run in which one letter is chosen nearly always, and is right less often."""
    for run in runs:
        choices: Counter[str] = Counter()
        golds: Counter[str] = Counter()
        for record in run.records():
            question = record.answer.question
            if record.answer.choice is not None and question.gold is not None and question.options:
                choices[record.answer.choice] += 1
                golds[question.gold] += 1
        n = choices.total()
        if n < LEAST_CHOICES:
            continue
        letter, count = choices.most_common(1)[0]
        share, right = count / n, golds[letter] / n
        if share >= PREFERENCE and share - right >= EXCESS:
            yield (
                f"Warning: {run.name} chooses {letter} in {100 * share:.0f} % of {count_noun(n, 'choice')}, and "
                f"{letter} is right in {100 * right:.0f} %: it may follow the letter and not the evidence."
            )
