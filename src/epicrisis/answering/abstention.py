"""When an answer is withheld: the model gave one, and nothing that it quoted shows it.

Small models write quotations that stand in no document. Such an answer is the model's own opinion, whatever was
retrieved, so the question ends as an abstention that shows what the model answered.
"""

from __future__ import annotations

from dataclasses import replace

from epicrisis.answers import Answer, WithheldAnswer
from epicrisis.question_options import is_unanswerable


def withhold_unverified(answer: Answer) -> Answer:
    """Return the answer as an abstention where none of its quotations stands in the documents, else as it is.

    The answer is one from documents. What the model answered is kept under `withheld`, with the reason. An option that
    says that the record does not tell is kept as it is: no words of a record show what it leaves out.
    """
    if answer.state != "answered" or any(citation.verified for citation in answer.citations):
        return answer
    if says_untold(answer):
        return answer
    n = len(answer.citations)
    if not n:
        reason = "it quotes no document"
    elif n == 1:
        reason = "its only quotation does not stand in the document it names"
    else:
        reason = f"none of its {n} quotations stands in the document it names"
    withheld = WithheldAnswer(answer.text, reason, answer.choice, answer.citations)
    return replace(answer, state="abstained", text="", choice=None, citations=(), withheld=withheld)


def says_untold(answer: Answer) -> bool:
    """Return whether the answer chose an option that says that the record does not tell."""
    return answer.choice is not None and is_unanswerable(answer.choice, answer.question.options)
