"""The rule on unverified answers: an answer is withheld if no quotation of it is in the documents.

Small models write quotations that are in no document. Such an answer is the model's own opinion, so the question ends
as an abstention, which shows the model's answer.
"""

from __future__ import annotations

from dataclasses import replace

from epicrisis.answers import Answer, WithheldAnswer
from epicrisis.question_options import is_unanswerable


def withhold_unverified(answer: Answer) -> Answer:
    """Return an answer from documents unchanged if a quotation is verified, else as an abstention.

    The abstention holds the model's answer under `withheld`, with the reason. An answer with an option like "the record
    does not say" is unchanged, because no words of a record can show it.
    """
    if answer.state != "answered" or any(citation.verified for citation in answer.citations):
        return answer
    if chose_unanswerable(answer):
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


def chose_unanswerable(answer: Answer) -> bool:
    """Return whether the answer chose an option like "the record does not say"."""
    return answer.choice is not None and is_unanswerable(answer.choice, answer.question.options)
