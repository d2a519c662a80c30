"""The three protocols of a BriefContext experiment: as its text says, as its notebooks do it, and corrected.

They differ in some rows of errata B and C, not in the questions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from epicrisis.errors import InputError
from epicrisis.evaluation.datasets.dataset import Dataset, sample_at_random, sample_per_class
from epicrisis.settings import PreflightSettings
from epicrisis.types import CountUnit, SearchMode

_COMMON = (
    "The prompts, the length of replies and their parsing are ours under every protocol (errata C3, C5, C12, M1), as "
    "are the model and the library.",
    "A missing text is an error of the run (C7: the notebooks skip it, and later documents move up).",
)
PLACEMENT_NOTES = (
    "If a question has several key documents, one is chosen by the seed and placed, and the others are left out; with "
    "--gold all, all are placed together (C8).",
)
"""Notes under the tables of experiments that place documents, under any protocol."""


@dataclass(frozen=True, slots=True)
class StudyProtocol:
    """The choices in which the paper's text, its notebooks, and a sound study of the same question differ."""

    name: Literal["published", "as-coded", "corrected"]
    sample: Literal["at-random", "per-class"]
    n: int
    """Questions in the sample, or in each class."""
    partition: int | None
    """Documents per map call; None: half of them."""
    temperature: float | None
    """Temperature of every call; None: not stated, so the one of the settings."""
    map_reads: Literal["placed", "retrieved"]
    """Ranking of BriefContext's map calls: the placed one, or the retrieved one at every place (C1)."""
    gold: Literal["one", "all"] = "one"
    """Of several gold documents place one, drawn by the seed, or all together; the others are left out (C8)."""
    by: SearchMode = "dense"
    """Search that finds the distractors."""
    preflight: PreflightSettings = field(default_factory=PreflightSettings)
    """Preflight check of the arms with one; not `enabled`: it is never called (C2)."""
    count: CountUnit | None = None
    """Unit of k, of a part and of the check; None: the one of the settings."""
    notes: tuple[str, ...] = ()
    """Notes under the tables."""

    def partition_size(self, k: int) -> int:
        """Return the documents per map call for `k` documents."""
        return max(1, k // 2) if self.partition is None else self.partition

    def draw_sample(self, dataset: Dataset, seed: int, n: int | None = None) -> Dataset:
        """Return the sample of the questions, with `n` instead of the protocol's number.

        Raises InputError where the set has too few questions.
        """
        draw = sample_at_random if self.sample == "at-random" else sample_per_class
        return draw(dataset, n or self.n, seed)

    def describe_sample(self, seed: int, n: int | None = None) -> dict[str, str | int]:
        """Return the sample's entry in the plan of a run."""
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
            "500), 4 documents a map call (its example); its temperature is not stated and is that of the "
            "settings.",
            *_COMMON,
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
            "BriefContext reads the retrieved ranking at every place, as in the notebooks (C1): its places are one "
            "and the same prompt, so a flat curve says nothing.",
            "The preflight check is never called (C2), so an arm with it equals the arm without it, and its count of "
            "words (C6) has no effect.",
            *_COMMON,
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
            *_COMMON,
        ),
    ),
}


def find_protocol(name: str) -> StudyProtocol:
    """Return the protocol with this name. Raises InputError for an unknown name."""
    if name not in PROTOCOLS:
        raise InputError(f"no protocol is called {name}: known are {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]
