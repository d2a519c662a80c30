"""Long questions: the question sentence first, segments, and what is told of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.core.protocols import Encoder
from epicrisis.core.types import LongQuestionPolicy
from epicrisis.corpus.base.chunking import find_sentences
from epicrisis.retrieval.long_questions import QuestionFit, fit_question, move_question_first, split_segments
from epicrisis.testing.hashing_encoder import HashingEncoder

VIGNETTE = (
    "A 23-year-old woman has burning on urination. It began a day ago. She drinks much water. Her pulse is 80/min. "
    "Which of the following is the best treatment?"
)
VIGNETTES = st.lists(
    st.lists(st.sampled_from(["fever", "BP 120/80", "a", "(left)", "naïve", "x" * 30]), max_size=12).map(" ".join),
    max_size=8,
).map(lambda parts: "".join(f"{part}{'?' if len(part) % 5 == 0 else '.'} " for part in parts))
REMEDIES: tuple[LongQuestionPolicy, ...] = ("cut", "last-sentence-first", "segments")


def tokens(text: str) -> int:
    return len(HashingEncoder().token_spans(text))


def reading(window: int) -> HashingEncoder:
    return HashingEncoder(max_tokens=window)


@pytest.mark.parametrize("remedy", REMEDIES)
@pytest.mark.parametrize("text", ["", "  ", "Does aspirin prevent stroke?", VIGNETTE])
def test_query_within_window_is_unchanged(text: str, remedy: LongQuestionPolicy) -> None:
    texts, fit = fit_question(text, reading(tokens(VIGNETTE)), find_sentences, remedy)
    assert texts == (text,)
    assert (fit.cut, fit.lost, fit.notes()) == (False, 0, ())


def test_query_starts_with_question_then_whole_sentences() -> None:
    found = move_question_first(VIGNETTE, reading(27), find_sentences)
    assert found.startswith("Which of the following is the best treatment? A 23-year-old woman has burning on ")
    assert found.endswith(" on urination. It began a day ago.")
    assert tokens(found) == 27
    assert move_question_first(VIGNETTE, reading(26), find_sentences).endswith("urination.")
    assert move_question_first(VIGNETTE, reading(9), find_sentences) == "Which of the following is the best treatment?"


def test_query_with_long_question_has_only_question() -> None:
    assert move_question_first(VIGNETTE, reading(3), find_sentences) == "Which of the following is the best treatment?"


def test_question_before_findings_is_detected() -> None:
    text = "He coughs at night. What is the diagnosis?\nHemoglobin: 12 g/dL\nLeukocytes: 9,000"
    assert move_question_first(text, reading(12), find_sentences) == "What is the diagnosis? He coughs at night."
    assert move_question_first("One two. Three four. Five six.", reading(4), find_sentences) == "Five six."


def test_segments_are_windows_of_whole_sentences() -> None:
    assert split_segments("A b can. Do eat. If so go in. Joe knew.", reading(8), find_sentences) == (
        "A b can. Do eat.",
        "If so go in. Joe knew.",
    )


def test_segment_with_long_sentence_is_split_between_words() -> None:
    assert split_segments("a b c d e f go. He is.", reading(3), find_sentences) == ("a b c", "d e f", "go.", "He is.")
    assert split_segments("a b-c-d-e f", reading(3), find_sentences) == ("a", "b-c-d-e", "f")


@pytest.mark.slow
@given(VIGNETTES, st.integers(1, 20))
def test_segments_keep_all_text_and_fit(text: str, window: int) -> None:
    encoder = reading(window)
    found = split_segments(text, encoder, find_sentences)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(tokens(part) <= window or " " not in part for part in found)


@pytest.mark.slow
@given(VIGNETTES, st.integers(1, 20))
def test_last_sentence_first_adds_no_text_and_fits(text: str, window: int) -> None:
    found = move_question_first(text, reading(window), find_sentences)
    parts = [text[start:end] for start, end in find_sentences(text)]
    assert found == text or any(found.startswith(part) for part in parts)
    assert tokens(found) <= window or found in parts
    if tokens(text) > window and any(part.endswith("?") for part in parts):
        assert found.startswith([part for part in parts if part.endswith("?")][-1])


@pytest.mark.slow
@given(VIGNETTES, st.integers(1, 20), st.sampled_from(REMEDIES))
def test_question_fit_counts_encoded_tokens(text: str, window: int, remedy: LongQuestionPolicy) -> None:
    texts, fit = fit_question(text, reading(window), find_sentences, remedy)
    assert fit.tokens == tokens(text)
    assert len(texts) == fit.texts >= 1
    assert fit.encoded == sum(min(tokens(part), window) for part in texts) <= fit.tokens
    assert len(fit.notes()) == (fit.tokens > window)


@pytest.mark.parametrize(
    ("fit", "note"),
    [
        (QuestionFit(180, 62, "cut", 1, 62), "cut at its end, 118 tokens not seen by dense search"),
        (
            QuestionFit(180, 62, "last-sentence-first", 1, 60),
            "last sentence first, 120 tokens not seen by dense search",
        ),
        (QuestionFit(180, 62, "segments", 4, 180), "searched in 4 segments, all of it seen by dense search"),
        (QuestionFit(180, 62, "segments", 4, 170), "searched in 4 segments, 10 tokens not seen by dense search"),
    ],
)
def test_fit_note_names_policy(fit: QuestionFit, note: str) -> None:
    assert fit.notes() == (f"the question has 180 tokens, the encoder reads 62: {note}",)


class _Reads62(HashingEncoder):
    """The real tokenizer behind MedCPT's window: 64 tokens, two of them special."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__(max_tokens=62)
        self._encoder = encoder

    def token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        return self._encoder.token_spans(text)


@pytest.mark.long
@pytest.mark.data
@pytest.mark.models
def test_medqa_share_matches_errata(data_folder: Path, encoder: Encoder) -> None:
    entries = json.loads((data_folder / "mirage" / "benchmark.json").read_text())["medqa"].values()
    questions: Sequence[str] = [entry["question"] for entry in entries]
    over_55_words = sum(len(question.split()) > 55 for question in questions)
    assert round(100 * over_55_words / len(questions)) == 94
    narrow = _Reads62(encoder)
    prepared = [fit_question(question, narrow, find_sentences, "last-sentence-first") for question in questions]
    assert (sum(fit.cut for _, fit in prepared), len(prepared)) == (1236, 1273)
    assert sum("?" in first for (first,), _ in prepared) / len(prepared) > 0.95
    assert all(fit_question(question, narrow, find_sentences, "segments")[1].lost == 0 for question in questions[:100])
