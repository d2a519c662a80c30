"""The three ways to run an experiment of BriefContext: as its text says, as its notebooks do, and as is right.

The rows of errata B and C in which they differ, and nothing of what is asked. Knows no model and no library.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from epicrisis.evaluation.datasets.dataset import Dataset
from epicrisis.evaluation.datasets.sampling import at_random, per_class
from epicrisis.settings import PreflightSettings
from epicrisis.types import CountUnit, SearchMode

_IN_ALL = (
    "The prompts, the length of replies and their reading are ours under every protocol (errata C3, C5, C12, M1); so "
    "are the model and the library.",
    "A missing text is an error of the run (C7: the notebooks skip it, and what follows moves up).",
)
PLACEMENT_NOTES = (
    "Of a question's several key documents one is placed, drawn by the seed, and the others stand nowhere, unless all "
    "were asked for: then they stand together (C8).",
)
"""For a reader of tables of experiments that place documents, by whatever protocol."""


@dataclass(frozen=True, slots=True)
class StudyProtocol:
    """What differs between the paper's text, its notebooks, and a sound study of the same thing."""

    name: Literal["published", "as-coded", "corrected"]
    sample: Literal["at-random", "per-class"]
    n: int
    """Questions of the sample, or questions of each class."""
    partition: int | None
    """Documents a map call; `None`: half of them."""
    temperature: float | None
    """Of every call; `None`: not stated, so what the settings say."""
    map_reads: Literal["placed", "retrieved"]
    """Which ranking BriefContext reads: the study's, or the one that was retrieved, whatever the study placed (C1)."""
    gold: Literal["one", "all"] = "one"
    """Of several gold documents: one, drawn by the seed, or all of them together; the rest stands nowhere (C8)."""
    by: SearchMode = "dense"
    """Search that finds the distractors."""
    preflight: PreflightSettings = field(default_factory=PreflightSettings)
    """The check before map-reduce, in the arms that have one; not `enabled`: it is called nowhere (C2)."""
    count: CountUnit | None = None
    """What k, a part and the check count; `None`: what the settings say."""
    notes: tuple[str, ...] = ()
    """For a reader of the tables."""

    def partition_of(self, k: int) -> int:
        """Documents a map call where k are read."""
        return max(1, k // 2) if self.partition is None else self.partition

    def drawn(self, dataset: Dataset, seed: int, n: int | None = None) -> Dataset:
        """The questions that are asked, `n` for another number. Raises InputError where there are not so many."""
        draw = at_random if self.sample == "at-random" else per_class
        return draw(dataset, n or self.n, seed)

    def sample_told(self, seed: int, n: int | None = None) -> dict[str, str | int]:
        """The sample as a run's plan tells it."""
        return {"how": self.sample, "n": n or self.n, "seed": seed}


PROTOCOLS: Mapping[str, StudyProtocol] = {
    "published": StudyProtocol(
        name="published",
        sample="at-random",
        n=105,
        partition=4,
        temperature=None,
        map_reads="placed",
        preflight=PreflightSettings(rule="paper"),
        count="documents",
        notes=(
            "Protocol published: questions at random (105 unless another number was asked for; the text says 20 %, of "
            "500), 4 documents a map call (its example); the temperature is not stated there and is that of the "
            "settings.",
            *_IN_ALL,
        ),
    ),
    "as-coded": StudyProtocol(
        name="as-coded",
        sample="per-class",
        n=35,
        partition=None,
        temperature=0.2,
        map_reads="retrieved",
        preflight=PreflightSettings(enabled=False, n=3, threshold=0.3, depth=64),
        count="documents",
        notes=(
            "Protocol as-coded: as many questions of each class (B14; 35 unless another number was asked for), half of "
            "the documents a map call (C10), temperature 0.2; top_p, which the notebooks set by model (C12: 0.1 "
            "for GPT-3.5, 0.8 for Mixtral), is that of the settings.",
            "BriefContext reads the retrieved ranking at every place, as in the notebooks (C1): its places are one and "
            "the same prompt, so that it is flat says nothing.",
            "The preflight check is called nowhere (C2), so an arm with it is the arm without it, and how it would "
            "count words (C6) plays no part.",
            *_IN_ALL,
        ),
    ),
    "corrected": StudyProtocol(
        name="corrected",
        sample="at-random",
        n=105,
        partition=4,
        temperature=0.0,
        map_reads="placed",
        notes=(
            "Protocol corrected: questions at random, 4 documents a map call, temperature 0, every arm reads the same "
            "ranking.",
            *_IN_ALL,
        ),
    ),
}
