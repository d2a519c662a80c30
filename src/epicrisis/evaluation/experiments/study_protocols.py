"""The protocols of a BriefContext experiment: as its text says, as its notebooks do it, and corrected.

They differ in some rows of errata B and C, and in the prompts. docs/design/paper-presets.md lists each fact of the
paper and its notebooks, where it comes from, and the field that reproduces it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from epicrisis.answering.paper_prompts import GPT_35, LLAMA_2, LLAMA_3, MIXTRAL, TEXT, MapReducePrompts
from epicrisis.core.errors import InputError
from epicrisis.core.types import CountUnit, SearchMode
from epicrisis.evaluation.datasets.dataset import Dataset, sample_as_coded, sample_at_random
from epicrisis.evaluation.experiments.passage_source import WordStatistics
from epicrisis.settings.tables import PreflightSettings

_COMMON = (
    "The model and the library are ours under every protocol. A reply is counted as answered, abstained, unreadable or "
    "failed (C11, M1). A failed call is no partial answer (C4).",
    "A missing text is an error of the run (C7: the notebooks skip it, and later documents move up).",
)
_OLD_COMMON = (
    "The prompts, the length of replies and their parsing are ours under every protocol (errata C3, C5, C12, M1), as "
    "are the model and the library.",
    _COMMON[1],
)
PAPER_SETTINGS: Mapping[str, Any] = {
    "unverified": "keep",
    "not_in_library": "ask",
    "other_names": False,
    "keep_first": False,
    "citing": "quotes",
    "describe_sources": False,
    "facts": False,
}
"""Settings of the papers where the user names no others: every answer counts, and no prompt has what they lack."""
_PAPER_SETTINGS_NOTE = (
    "As in the paper, every question is asked in its own words, answers count without a verified quotation, and "
    "prompts have no numbers of sentences, no study types and no computed facts (unless the settings say otherwise)."
)
PLACEMENT_NOTES = (
    "If a question has several key documents, one is chosen by the seed and placed, and the others are left out; with "
    "--gold all, all are placed together (C8).",
)
"""Notes under the tables of experiments that place documents, under any protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyProtocol:
    """The choices in which the paper's text, its notebooks, and a sound study of the same question differ."""

    name: str
    sample: Literal["at-random", "as-coded"]
    n: int
    """Questions in the sample, or in each class."""
    partition: int | Literal["half"] | None
    """Documents per map call, or half of them; None: the number of the settings."""
    temperature: float | None
    """Temperature of every call; None: the one of the settings."""
    map_reads: Literal["placed", "retrieved"]
    """Ranking of BriefContext's map calls: the placed one, or the retrieved one at every place (C1)."""
    top_p: float | None = None
    """Nucleus sampling of every call (C12); None: not stated, so that of the settings."""
    prompts: MapReducePrompts | None = None
    """The prompts of rag, brief-context and closed-book (C5); None: ours."""
    word_statistics: WordStatistics = "library"
    """Where BM25 over found passages takes its statistics from (C6)."""
    gold: Literal["one", "all"] = "one"
    """Of several gold documents place one, drawn by the seed, or all together; the others are left out (C8)."""
    by: SearchMode = "dense"
    """Search that finds the distractors."""
    preflight: PreflightSettings = field(default_factory=PreflightSettings)
    """Preflight check of the arms with one; not `enabled`: it is never called (C2)."""
    count: CountUnit | None = None
    """Unit of k, of a part and of the check; None: the one of the settings."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings that the user's own ones override; empty: an experiment asks as `ask` does."""
    notes: tuple[str, ...] = ()
    """Notes under the tables."""

    def partition_size(self, k: int) -> int | None:
        """Return the documents per map call for `k` documents; None: the number of the settings."""
        return max(1, k // 2) if self.partition == "half" else self.partition

    def draw_sample(self, dataset: Dataset, seed: int, n: int | None = None) -> Dataset:
        """Return the sample of the questions, with `n` instead of the protocol's number.

        Raises InputError where the set has too few questions.
        """
        draw = sample_at_random if self.sample == "at-random" else sample_as_coded
        return draw(dataset, n or self.n, seed)

    def describe_sample(self, seed: int, n: int | None = None) -> dict[str, str | int]:
        """Return the sample's entry in the plan of a run."""
        return {"how": self.sample, "n": n or self.n, "seed": seed}


_PUBLISHED = StudyProtocol(
    name="published",
    sample="at-random",
    n=105,
    partition=4,
    temperature=None,
    map_reads="placed",
    prompts=TEXT,
    preflight=PreflightSettings(rule="paper"),
    count="documents",
    settings=PAPER_SETTINGS,
    notes=(
        "Protocol published: questions at random (105 unless another number was asked for; the text says 20 %, of "
        "500), 4 documents a map call (its example). The text states neither temperature nor top_p nor a limit of new "
        "tokens: the first two are those of the settings.",
        "Prompts by the text: instruction, question, labelled documents; a map call extracts what is relevant or "
        "reports that nothing is; the reduce call sees what was extracted and no document. Only map calls may report "
        "nothing: plain RAG, closed book and reduce are not offered to give no answer. No prompt is printed, so "
        "wording, the options in the prompts and the form of replies are ours.",
        _PAPER_SETTINGS_NOTE,
        *_COMMON,
    ),
)
_AS_CODED = StudyProtocol(
    name="as-coded",
    sample="as-coded",
    n=35,
    partition="half",
    temperature=0.2,
    map_reads="retrieved",
    top_p=0.1,
    prompts=GPT_35,
    word_statistics="candidates",
    preflight=PreflightSettings(enabled=False, n=3, threshold=0.3, depth=64),
    count="documents",
    settings=PAPER_SETTINGS,
)


def _describe_as_coded(name: str, sampling: str, family: str) -> tuple[str, ...]:
    return (
        f"Protocol {name}: as many questions of each class (B14; 35 unless another number was asked for; seed 0 draws "
        f"the notebooks' own), half of the documents a map call (C10), {sampling}.",
        f"Prompts of the notebooks for {family}: documents without labels, titles on the same line, no dates; the "
        "options after them; a choice and one sentence, and no way to report that nothing is relevant (C3). The reduce "
        "call sees the partial answers as they are. A reply that was cut counts as it is, and none is asked again. "
        "Ours: the wording, the fence around documents, and a sentence that documents are data.",
        "BriefContext reads the retrieved ranking at every place, as in the notebooks (C1): its places are one "
        "and the same prompt, so a flat curve says nothing.",
        "The preflight check is never called (C2), so an arm with it equals the arm without it. BM25 over found "
        "documents, in the arm fused and in a check of the settings, takes its statistics from them alone (C6).",
        _PAPER_SETTINGS_NOTE,
        *_COMMON,
    )


def _make_variant(
    name: str, prompts: MapReducePrompts, top_p: float | None, sampling: str, family: str
) -> StudyProtocol:
    return replace(_AS_CODED, name=name, prompts=prompts, top_p=top_p, notes=_describe_as_coded(name, sampling, family))


_RAW = "sent as chat messages (the notebooks put control tokens into one raw prompt, C5)"
_NO_TOP_P = "temperature 0.2, at most 512 new tokens; top_p, which they do not set, is that of the settings"
_ALL = (
    _PUBLISHED,
    _make_variant(
        "as-coded",
        GPT_35,
        0.1,
        "temperature 0.2, top_p 0.1, seed 0 unless another was asked for, any JSON object; they set no limit of new "
        "tokens: 512 here",
        "GPT-3.5",
    ),
    _make_variant(
        "as-coded-mixtral", MIXTRAL, 0.8, "temperature 0.2, top_p 0.8, at most 512 new tokens", f"Mixtral, {_RAW}"
    ),
    _make_variant("as-coded-llama-2", LLAMA_2, None, _NO_TOP_P, f"Llama 2, {_RAW}"),
    _make_variant("as-coded-llama-3", LLAMA_3, None, _NO_TOP_P, f"Llama 3, {_RAW}"),
    StudyProtocol(
        name="corrected",
        sample="at-random",
        n=105,
        partition=None,
        temperature=None,
        map_reads="placed",
        notes=(
            "Protocol corrected: questions at random, every arm reads the same ranking. Prompts, the form of replies, "
            "sampling and the documents of a map call are those of the settings, as users' questions are asked (errata "
            "C3, C5, C12). An answer without a verified quotation is an abstention unless unverified = keep.",
            *_COMMON,
        ),
    ),
)
PROTOCOLS: Mapping[str, StudyProtocol] = {protocol.name: protocol for protocol in _ALL}

_OLD_NOTES: Mapping[str, tuple[str, ...]] = {
    "published": (
        "Protocol published, in a run made before it had prompts of its own: questions at random (105 unless another "
        "number was asked for; the text says 20 %, of 500), 4 documents a map call (its example); its temperature is "
        "not stated and is that of the settings.",
        *_OLD_COMMON,
    ),
    "as-coded": (
        "Protocol as-coded, in a run made before it had the prompts, top_p and questions of the notebooks: as many "
        "questions of each class (B14; 35 unless another number was asked for), half of the documents a map call "
        "(C10), temperature 0.2; top_p (C12) is that of the settings.",
        "BriefContext reads the retrieved ranking at every place, as in the notebooks (C1): its places are one "
        "and the same prompt, so a flat curve says nothing.",
        "The preflight check is never called (C2), so an arm with it equals the arm without it, and its count of "
        "words (C6) has no effect.",
        *_OLD_COMMON,
    ),
}
"""Notes on runs of protocols that had our prompts then: their plans have no entry `prompts`."""


def describe_protocol(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the notes on the protocol of a run by the arguments of its plan; none for an unknown protocol."""
    name = str(arguments.get("protocol"))
    if name in _OLD_NOTES and "prompts" not in arguments:
        return _OLD_NOTES[name]
    protocol = PROTOCOLS.get(name)
    return protocol.notes if protocol else ()


def find_protocol(name: str) -> StudyProtocol:
    """Return the protocol with this name. Raises InputError for an unknown name."""
    if name not in PROTOCOLS:
        raise InputError(f"no protocol is called {name}: known are {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]
