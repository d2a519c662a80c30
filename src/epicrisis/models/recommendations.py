"""Chat models by memory and use, as `recommendations.toml` lists them: measured here, or published elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal, TypeAlias

ModelUse: TypeAlias = Literal["answers", "judge", "tests"]


@dataclass(frozen=True, slots=True)
class PublishedScores:
    """Accuracies in % of the unquantised model, by the authors of `source`. None: not published there."""

    source: str
    medqa: float | None = None
    pubmedqa: float | None = None
    mmlu_medical: float | None = None

    def __str__(self) -> str:
        figures: list[str] = []
        for title, figure in (("MedQA", self.medqa), ("PubMedQA", self.pubmedqa), ("medical MMLU", self.mmlu_medical)):
            if figure is not None:
                figures.append(f"{title} {figure:g} %")
        return ", ".join(figures)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRecommendation:
    """A chat model that may be worth a try. Sizes are in GB of 10^9 bytes."""

    name: str
    uses: tuple[ModelUse, ...]
    quantisation: str
    file_gb: float
    needs_gb: float
    """Memory with a context of 8,192 tokens."""
    licence: str
    start: str = ""
    """The command that downloads or serves it."""
    option: str = ""
    """The option that names it then."""
    measured: str = ""
    """What it got right in a measurement of this project; empty if it was not run here."""
    published: PublishedScores | None = None
    also_published: PublishedScores | None = None
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RecommendationList:
    """All models, by growing need of memory, and the sources by their marks."""

    models: tuple[ModelRecommendation, ...]
    sources: Mapping[str, str]

    def select(self, use: ModelUse, memory_gb: float) -> list[ModelRecommendation]:
        """Return the models for this use that fit in the memory, largest first."""
        models = [model for model in self.models if use in model.uses and model.needs_gb <= memory_gb]
        return models[::-1]


@cache
def load_recommendations() -> RecommendationList:
    """Return the installed list. Raise TypeError for an unknown or missing key."""
    import tomllib

    text = resources.files("epicrisis.models").joinpath("recommendations.toml").read_text("utf-8")
    tables = tomllib.loads(text)
    models: list[ModelRecommendation] = []
    for table in tables["models"]:
        fields: dict[str, Any] = dict(table)
        for key in ("published", "also_published"):
            if key in fields:
                fields[key] = PublishedScores(**fields[key])
        fields["uses"], fields["sources"] = tuple(fields["uses"]), tuple(fields.get("sources", ()))
        models.append(ModelRecommendation(**fields))
    return RecommendationList(tuple(models), tables["sources"])
