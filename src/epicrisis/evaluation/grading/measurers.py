"""The measurers: each makes one or more metrics of an answer, and says all that decides its values.

Whatever a metric needs (a network, a word net) is loaded when its measurer is made, and not before. Knows no file.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from epicrisis.answering.structured_request import ModelClient, StructuredReply
from epicrisis.errors import InputError
from epicrisis.evaluation.grading.answer_notes import NoteTexts
from epicrisis.evaluation.grading.grader import GradeState
from epicrisis.evaluation.grading.measurements import Measurement, check_shares
from epicrisis.evaluation.grading.rubric import ASPECTS, RubricGrades, grade, grade_against_notes, recipe
from epicrisis.evaluation.grading.scored_answers import ScoredAnswer
from epicrisis.evaluation.metrics.unscored import Unscored
from epicrisis.privacy import strip_secrets
from epicrisis.protocols import NliModel
from epicrisis.types import Scope

MeasureFunction: TypeAlias = Callable[[ScoredAnswer], Coroutine[Any, Any, Measurement]]

JUDGED_NOTES = "faithful-to-notes"


@dataclass(frozen=True, slots=True)
class Measurer:
    """Something that measures answers."""

    name: str
    """Names its file."""
    metrics: tuple[str, ...]
    """The names of its values, in order."""
    measure: MeasureFunction
    recipe: Mapping[str, Any] = field(default_factory=dict)
    """What decides the values, beside the answer."""
    at_once: int = 1
    """Answers measured together."""

    @property
    def model(self) -> str | None:
        """Return the whole name of the model that measures, with its address; None where none does."""
        return recipe_model(self.recipe)

    @property
    def told(self) -> dict[str, Any]:
        """The recipe as its file keeps it."""
        return {"measurer": self.name, "metrics": list(self.metrics), **self.recipe}


def recipe_model(recipe: Mapping[str, Any]) -> str | None:
    """Return the whole name of the model that a recipe tells of; None where it tells of none."""
    rubric_measurer = recipe.get("judge")
    name = rubric_measurer.get("name") if isinstance(rubric_measurer, Mapping) else recipe.get("model")
    return None if name is None else str(name)


def short_model_name(name: str) -> str:
    """Return a model as a metric's name has it: an endpoint's by its model's name, a file by its own.

    An endpoint whose model nobody named has its host, port and path: what it serves is not told by its address, and
    two of them must not share a name.
    """
    address, _, model = name.partition("#")
    if model:
        return model.rpartition("/")[2] or model
    if "://" in address:
        return address.partition("://")[2].rpartition("@")[2].rstrip("/").removesuffix("/v1")
    return address.rstrip("/").rpartition("/")[2] or name


def check_model_names(which: str, models: Sequence[str]) -> None:
    """Raise InputError where two of these models would go by one name, and so share a file and a column."""
    by_name: dict[str, str] = {}
    for model in models:
        name = short_model_name(model)
        if by_name.setdefault(name, model) != model:
            both = f"{strip_secrets(by_name[name])} and {strip_secrets(model)}"
            raise InputError(f"two {which} go by the name {name} ({both}): give one another name (URL#NAME)")


def metric_name(name: str, model: str) -> str:
    """`rubric_measurer-correctness[MODEL]`."""
    return f"{name}[{short_model_name(model)}]"


# -- arithmetic and networks ------------------------------------------------------------------------------------------


def word_measurer() -> Measurer:
    """Exact match and token F1."""
    from epicrisis.evaluation.metrics.text import exact_match, token_f1

    def values(response: ScoredAnswer) -> dict[str, float]:
        said = response.answer, response.references
        return {"exact-match": exact_match(*said), "token-f1": token_f1(*said)}

    return _plain("words", ("exact-match", "token-f1"), values)


def entailment_measurer(name: str, home: Path, threads: int | None = None) -> Measurer:
    """By the model of that catalogue name, or in that folder. Raises ModelMissing or ModelFileInvalid."""
    from epicrisis.models.nli import load_nli

    return entailment_measurer_for(load_nli(name, home, threads), name)


def entailment_measurer_for(model: NliModel, name: str) -> Measurer:
    """The reference as premise, the answer as hypothesis; of several right answers the best counts."""
    from epicrisis.evaluation.metrics.entailment import score_entailment

    metrics = metric_name("nli-entailment", name), metric_name("nli-non-contradiction", name)

    def values(response: ScoredAnswer) -> dict[str, float] | Unscored:
        found = score_entailment(model, [(reference, response.answer) for reference in response.references])
        if lacking := [each for each in found if isinstance(each, Unscored)]:
            return lacking[0]
        scored = [each for each in found if not isinstance(each, Unscored)]
        best = max(each.entailment for each in scored), max(each.non_contradiction for each in scored)
        return dict(zip(metrics, best, strict=True))

    return _plain(f"nli {short_model_name(name)}", metrics, values, {"model": name})


def number_measurer() -> Measurer:
    """Measure whether answer and right answer state the same quantities: F1, precision and recall.

    The best over several right answers; a right answer without a number has no value, an answer without one no
    precision.
    """
    from epicrisis.evaluation.metrics.numbers import score_numbers

    def values(response: ScoredAnswer) -> dict[str, float] | Unscored:
        score = score_numbers(response.answer, response.references)
        if score is None:
            return Unscored("the right answer has no number")
        shares = {"numbers-f1": score.f1, "numbers-recall": score.recall}
        return shares if score.precision is None else {**shares, "numbers-precision": score.precision}

    return _plain("numbers", ("numbers-f1", "numbers-precision", "numbers-recall"), values)


def meteor_measurer() -> Measurer:
    """METEOR with the stages that are at hand. Raises ModelMissing without nltk."""
    from epicrisis.evaluation.metrics.meteor import load_meteor

    scorer = load_meteor()
    return _plain(scorer.name, (scorer.name,), lambda each: {scorer.name: scorer.score(each.answer, each.references)})


def _plain(
    name: str,
    metrics: tuple[str, ...],
    values: Callable[[ScoredAnswer], Mapping[str, float] | Unscored],
    recipe: Mapping[str, Any] | None = None,
) -> Measurer:
    """Of what is computed at once. What has no value, as a text longer than a network's window, is told why."""

    async def measure(response: ScoredAnswer) -> Measurement:
        found = values(response)
        if isinstance(found, Unscored):
            return Measurement(response.key, response.of, "unparsed", reason=found.reason)
        return Measurement(response.key, response.of, "judged", check_shares(found))

    return Measurer(name, metrics, measure, recipe or {})


def bertscore_measurer(name: str, home: Path, threads: int | None = None) -> Measurer:
    """F1 of the token vectors of this encoder; of several right answers the best counts. Raises ModelMissing or
    ModelFileInvalid."""
    from epicrisis.evaluation.metrics.bertscore import bertscore_name, compute_bert_scores
    from epicrisis.models.token_vectors import load_token_encoder

    encoder = load_token_encoder(name, home, threads)
    named = bertscore_name(encoder)

    def values(response: ScoredAnswer) -> dict[str, float] | Unscored:
        found = compute_bert_scores(encoder, [(reference, response.answer) for reference in response.references])
        if lacking := [each for each in found if isinstance(each, Unscored)]:
            return lacking[0]
        # A mean of cosines may lie below 0, where nothing is alike at all.
        return {named: max(0.0, *(each.f1 for each in found if not isinstance(each, Unscored)))}

    return _plain(named, (named,), values, {"model": name})


# -- judges -----------------------------------------------------------------------------------------------------------


def rubric_measurer(asker: ModelClient) -> Measurer:
    """The five-point rubric against the reference; of several right answers the first is shown."""
    name = str(asker.model_recipe["name"])
    metrics = {aspect: metric_name(f"judge-{aspect}", name) for aspect in ASPECTS}

    async def measure(response: ScoredAnswer) -> Measurement:
        said = await grade(asker, response.question, response.references[0], response.answer)
        return _graded(response, said, metrics)

    return Measurer(
        f"judge {short_model_name(name)}", tuple(metrics.values()), measure, recipe(asker), asker.concurrency
    )


def notes_measurer(asker: ModelClient, notes: NoteTexts) -> Measurer:
    """Faithfulness to the notes: those that the answer cites, else those that it was given."""
    name = str(asker.model_recipe["name"])
    metrics = {"faithfulness": metric_name(f"judge-{JUDGED_NOTES}", name)}

    async def measure(response: ScoredAnswer) -> Measurement:
        shown, passages = ("cited", response.cited) if response.cited else ("given", response.given)
        if not passages:
            return Measurement(response.key, response.of, "unparsed", reason="the answer was given no notes")
        read = notes.read(passages, response.patient)
        scope = Scope(patient=response.patient)
        return _graded(
            response, await grade_against_notes(asker, response.question, response.answer, read, scope), metrics, shown
        )

    made = {**recipe(asker, against_notes=True), "library": notes.told}
    return Measurer(f"judge-notes {short_model_name(name)}", tuple(metrics.values()), measure, made, asker.concurrency)


def _graded(
    response: ScoredAnswer, said: StructuredReply[RubricGrades], metrics: Mapping[str, str], shown: str = ""
) -> Measurement:
    if said.value is None:
        state: GradeState = "failed" if said.failure else "unparsed"
        return Measurement(
            response.key,
            response.of,
            state,
            reason=said.unreadable or "",
            shown=shown,
            failure=said.failure,
            usage=said.usage,
        )
    values = {metrics[aspect]: share for aspect, share in said.value.shares.items()}
    return Measurement(response.key, response.of, "judged", values, said.value.reason, shown, usage=said.usage)
