"""Measurers: each computes one or more metrics of an answer, and loads its network or word net when it is made.

The five-point rubric (EHR study, 3.4) grades correctness, completeness and faithfulness against the reference as
published, and faithfulness against the notes in the prompt (errata E4). The descriptions of the points are ours, as the
study prints none. One request asks for the three grades. The prompt holds each text as fenced data, without citations
and author.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from epicrisis.answering.structured_request import JsonFormat, ModelClient, Unreadable, read_object, text_schema
from epicrisis.core.errors import InputError
from epicrisis.core.prompts import Prompt, fence, fence_passages, render
from epicrisis.core.protocols import NliModel
from epicrisis.core.types import Passage, Scope
from epicrisis.evaluation.grading.grader import PROMPTS, Grade, Grader
from epicrisis.evaluation.grading.measurements import Measurement, Measurer, check_shares
from epicrisis.evaluation.grading.scored_answers import NoteTexts, ScoredAnswer
from epicrisis.evaluation.metrics.neural import Unscored
from epicrisis.system.local_only import strip_secrets

FAITHFUL_TO_NOTES = "faithful-to-notes"
ASPECTS = ("correctness", "completeness", "faithfulness")
LOWEST, HIGHEST = 1, 5
_REASON_CHARACTERS = 600
_POINTS = range(LOWEST, HIGHEST + 1)


def short_model_name(name: str) -> str:
    """Return a model's name in metrics: the model of an endpoint, or the name of a file.

    An endpoint without a model name has its host, port and path: its address does not tell which model it serves, and
    two endpoints must not share a name.
    """
    address, _, model = name.partition("#")
    if model:
        return model.rpartition("/")[2] or model
    if "://" in address:
        return address.partition("://")[2].rpartition("@")[2].rstrip("/").removesuffix("/v1")
    return address.rstrip("/").rpartition("/")[2] or name


def check_model_names(kind: str, models: Sequence[str]) -> None:
    """Raise InputError if two of these models have one short name, and so would share a file and a column."""
    by_name: dict[str, str] = {}
    for model in models:
        name = short_model_name(model)
        if by_name.setdefault(name, model) != model:
            both = f"{strip_secrets(by_name[name])} and {strip_secrets(model)}"
            raise InputError(f"two {kind} have the short name {name} ({both}): give one of them another (URL#NAME)")


def metric_name(name: str, model: str) -> str:
    """Return the name of a model's metric, such as `judge-correctness[MODEL]`."""
    return f"{name}[{short_model_name(model)}]"


def word_measurer() -> Measurer:
    """Return the measurer of exact match and token F1."""
    from epicrisis.evaluation.metrics.text import exact_match, token_f1

    def values(answer: ScoredAnswer) -> dict[str, float]:
        texts = answer.answer, answer.references
        return {"exact-match": exact_match(*texts), "token-f1": token_f1(*texts)}

    return _local_measurer("words", ("exact-match", "token-f1"), values)


def number_measurer() -> Measurer:
    """Return the measurer of equal quantities in the answer and the reference: F1, precision and recall.

    With several references, the best counts. A reference without a number has no value, an answer without one has no
    precision.
    """
    from epicrisis.evaluation.metrics.numbers import score_numbers

    def values(answer: ScoredAnswer) -> dict[str, float] | Unscored:
        score = score_numbers(answer.answer, answer.references)
        if score is None:
            return Unscored("the right answer has no number")
        shares = {"numbers-f1": score.f1, "numbers-recall": score.recall}
        return shares if score.precision is None else {**shares, "numbers-precision": score.precision}

    return _local_measurer("numbers", ("numbers-f1", "numbers-precision", "numbers-recall"), values)


def meteor_measurer(home: Path | None = None) -> Measurer:
    """Return the measurer of METEOR: that of `evaluate` if its data is in `home`, else with the installed stages.

    Raises ModelMissing without nltk.
    """
    from epicrisis.evaluation.metrics.meteor import load_meteor

    scorer = load_meteor(home=home)

    def values(answer: ScoredAnswer) -> dict[str, float]:
        return {scorer.name: scorer.score(answer.answer, answer.references)}

    return _local_measurer(scorer.name, (scorer.name,), values)


def entailment_measurer(name: str, home: Path, threads: int | None = None) -> Measurer:
    """Return the measurer of entailment by the NLI model of this catalogue name or folder.

    Raises ModelMissing or ModelFileInvalid.
    """
    from epicrisis.models.pair_models import load_nli

    return entailment_measurer_for(load_nli(name, home, threads), name)


def entailment_measurer_for(model: NliModel, name: str) -> Measurer:
    """Return the measurer of entailment: the reference is the premise, the answer the hypothesis.

    With several references, the best counts.
    """
    from epicrisis.evaluation.metrics.neural import score_entailment

    metrics = metric_name("nli-entailment", name), metric_name("nli-non-contradiction", name)

    def values(answer: ScoredAnswer) -> dict[str, float] | Unscored:
        best = [0.0, 0.0]
        for score in score_entailment(model, list(product(answer.references, (answer.answer,)))):
            if isinstance(score, Unscored):
                return score
            best = [max(best[0], score.entailment), max(best[1], score.non_contradiction)]
        return dict(zip(metrics, best, strict=True))

    return _local_measurer(f"nli {short_model_name(name)}", metrics, values, {"model": name})


def bertscore_measurer(name: str, home: Path, threads: int | None = None) -> Measurer:
    """Return the measurer of BERTScore's F1 by the token vectors of this encoder. With several references, the best
    counts. Raises ModelMissing or ModelFileInvalid."""
    from epicrisis.evaluation.metrics.neural import bertscore_name, compute_bert_scores
    from epicrisis.models.encoders import load_token_encoder

    encoder = load_token_encoder(name, home, threads)
    metric = bertscore_name(encoder)

    def values(answer: ScoredAnswer) -> dict[str, float] | Unscored:
        # A mean of cosines may be negative if nothing is alike.
        best = 0.0
        for score in compute_bert_scores(encoder, list(product(answer.references, (answer.answer,)))):
            if isinstance(score, Unscored):
                return score
            best = max(best, score.f1)
        return {metric: best}

    return _local_measurer(metric, (metric,), values, {"model": name})


def _local_measurer(
    name: str,
    metrics: tuple[str, ...],
    values: Callable[[ScoredAnswer], Mapping[str, float] | Unscored],
    settings: Mapping[str, Any] | None = None,
) -> Measurer:
    """Return a measurer that computes its values on this machine. An answer without values has the reason."""

    async def measure(answer: ScoredAnswer) -> Measurement:
        shares = values(answer)
        if isinstance(shares, Unscored):
            return Measurement(key=answer.key, digest=answer.digest, state="unparsed", reason=shares.reason)
        return Measurement(key=answer.key, digest=answer.digest, state="judged", values=check_shares(shares))

    return Measurer(name, metrics, measure, settings or {})


def render_prompt(question: str, reference: str, answer: str) -> Prompt:
    """Return the prompt for one answer: the three texts in one fence, in this order."""
    return render(PROMPTS, "rubric", documents=fence([question, reference, answer]))


def render_notes_prompt(question: str, answer: str, notes: Sequence[Passage], scope: Scope) -> Prompt:
    """Return the prompt for one answer and the notes it is based on.

    The notes come first, so that prompts about one record share their beginning. Raises ScopeViolation for a note
    outside the scope.
    """
    fenced = fence_passages(notes, scope)
    return render(PROMPTS, "rubric_notes", notes=fenced, judged=fence([question, answer], "answer"))


def _rubric_format(aspects: Sequence[str]) -> JsonFormat[tuple[Mapping[str, float], str]]:
    """Return the format of a reply with a reason and a whole number, with or without quotes, for each aspect.

    Grades are read as shares, 0 for the lowest and 1 for the highest.
    """

    def read(reply: str) -> tuple[Mapping[str, float], str]:
        value = read_object(reply, aspects[-1])
        shares: dict[str, float] = {}
        for aspect in aspects:
            grade = str(value.get(aspect)).strip()
            if grade not in map(str, _POINTS):
                raise Unreadable(f"{aspect} is no whole number from {LOWEST} to {HIGHEST}")
            shares[aspect] = (int(grade) - LOWEST) / (HIGHEST - LOWEST)
        return shares, str(value.get("reason", ""))

    point = {"type": "integer", "enum": list(_POINTS)}
    schema = {"reason": text_schema(_REASON_CHARACTERS), **dict.fromkeys(aspects, point)}
    return JsonFormat(schema, _REASON_CHARACTERS + 40 * len(aspects), read)


FORMAT = _rubric_format(ASPECTS)
NOTES_FORMAT = _rubric_format(ASPECTS[-1:])


def rubric_grader(client: ModelClient) -> Grader[Mapping[str, float]]:
    """Return the model as a grader by the rubric. Its grades are shares by aspect."""
    return Grader(client, render_prompt("", "", "").template, FORMAT, checks_window=True)


def notes_grader(client: ModelClient) -> Grader[Mapping[str, float]]:
    """Return the model as a grader of faithfulness to notes. Notes that do not fit its window are never cut."""
    template = render_notes_prompt("", "", (), Scope()).template
    return Grader(client, template, NOTES_FORMAT, checks_window=True)


def rubric_measurer(client: ModelClient) -> Measurer:
    """Return the measurer of the five-point rubric against the first reference."""
    grader = rubric_grader(client)
    metrics = {aspect: metric_name(f"judge-{aspect}", grader.model) for aspect in ASPECTS}

    async def measure(answer: ScoredAnswer) -> Measurement:
        grade = await grader.grade(render_prompt(answer.question, answer.references[0], answer.answer))
        return _measurement(answer, grade, metrics)

    name = f"judge {short_model_name(grader.model)}"
    return Measurer(name, tuple(metrics.values()), measure, grader.recipe, client.concurrency)


def notes_measurer(client: ModelClient, notes: NoteTexts) -> Measurer:
    """Return the measurer of faithfulness to the notes that the answer cites, or else to all notes of its prompt."""
    grader = notes_grader(client)
    metrics = {"faithfulness": metric_name(f"judge-{FAITHFUL_TO_NOTES}", grader.model)}

    async def measure(answer: ScoredAnswer) -> Measurement:
        shown, passages = ("cited", answer.cited) if answer.cited else ("given", answer.given)
        if not passages:
            return Measurement(
                key=answer.key, digest=answer.digest, state="unparsed", reason="the prompt of the answer held no notes"
            )
        texts = notes.read(passages, answer.patient)
        prompt = render_notes_prompt(answer.question, answer.answer, texts, Scope(patient=answer.patient))
        return _measurement(answer, await grader.grade(prompt), metrics, shown)

    name = f"judge-notes {short_model_name(grader.model)}"
    settings = {**grader.recipe, "library": notes.library}
    return Measurer(name, tuple(metrics.values()), measure, settings, client.concurrency)


def _measurement(
    answer: ScoredAnswer, grade: Grade[Mapping[str, float]], metrics: Mapping[str, str], shown: str = ""
) -> Measurement:
    values = {metrics[aspect]: share for aspect, share in (grade.value or {}).items()}
    return Measurement(
        key=answer.key,
        digest=answer.digest,
        state=grade.state,
        values=values,
        reason=grade.reason,
        shown=shown,
        failure=grade.failure,
        usage=grade.usage,
    )
