"""The checks of texts, by hand and on real abstracts."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.corpus.base.text_quality import NearDuplicateFinder, has_markup, is_empty

WORDS = [f"word{n}" for n in range(400)]


def text_of(dice: random.Random, words: int = 150) -> str:
    return " ".join(dice.choice(WORDS) for _ in range(words))


def edited(text: str, edits: int, dice: random.Random) -> str:
    words = text.split()
    for place in dice.sample(range(len(words)), edits):
        words[place] = "changed"
    return " ".join(words)


def similarity(one: str, other: str) -> float:
    """Jaccard of the five-word shingles, exact."""
    a, b = ({tuple(words[n : n + 5]) for n in range(len(words) - 4)} for words in (one.split(), other.split()))
    return len(a & b) / len(a | b)


def pairs(*texts: str) -> list[tuple[str, str]]:
    found = NearDuplicateFinder()
    for number, text in enumerate(texts):
        found.add(str(number), text)
    return list(found.pairs())


@pytest.mark.parametrize("text", ["", " \n", "...", "—", "[Not Available].", "No abstract available", "___"])
def test_empty_texts_are_flagged(text: str) -> None:
    assert is_empty(text)


@pytest.mark.parametrize("text", ["a", "7", "Aspirin.", "The drug is not available.", "é", "아"])
def test_meaningful_texts_are_not_flagged(text: str) -> None:
    assert not is_empty(text)


@pytest.mark.parametrize(
    "text",
    [
        "10<sup>9</sup>/L",
        "5-HT<inf>2</inf> receptors",
        "<jats:p>Aims",
        "x<br/>y",
        'see <xref ref-type="bibr" rid="B1">1</xref>',
        "<mml:math><mml:mi>x</mml:mi>",
        "p &lt; 0.05",
        "A &amp;amp; B",
        "5&#x2032; and 3&#8242;",
        "2.5 &mgr;g",
        "&NA; Despite",
        r"\usepackage{amsmath} x",
        r"raised $$ {\text{Pa}} $$",
        'xmlns:mml="x"',
    ],
)
def test_leftover_markup_is_flagged(text: str) -> None:
    assert has_markup(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "p < 0.05 and q > 3",
        "<5 mg or >10 mg",
        "<or = 5 lesions compared with patients with > 6",
        "if a<b and b>c",
        "R&D; A&E; AT&T; Q&A",
        "Smith & Jones; others",
        r"a\b and C:\text",
        "~50% (n=3); #5; e[GABA]",
        "IL-6<IL-8>IL-10",
    ],
)
def test_signs_without_markup_are_not_flagged(text: str) -> None:
    assert not has_markup(text)


@pytest.mark.slow
@given(st.text(alphabet="<>&;#\\abp {}/=\"'\n", max_size=400))
def test_text_check_accepts_any_text(text: str) -> None:
    assert not has_markup(text.replace("<", "").replace("&", "").replace("\\", ""))
    assert has_markup(text + "<sup>2</sup>")


@pytest.mark.slow
def test_text_check_of_long_hostile_text_takes_linear_time() -> None:
    for piece in ("<a ", "&amp;", "&", "<", "\\text", "<a <a b"):
        assert has_markup(piece * 50_000) == (piece == "&amp;")
    assert not is_empty("-" * 200_000 + "not available" + "-" * 200_000 + "x")
    assert is_empty("-" * 200_000 + "not available" + "-" * 200_000)


def test_copies_except_case_and_punctuation_are_detected() -> None:
    text = text_of(random.Random(1))
    assert pairs(text, "something else entirely, word after word", text.upper().replace(" ", ",\n")) == [("0", "2")]
    assert pairs("Two words.", "two words", "two other words") == [("0", "1")]


def test_later_copies_are_reported_once() -> None:
    text = text_of(random.Random(1))
    assert pairs(*[text] * 5) == [("0", str(n)) for n in range(1, 5)]


def test_texts_without_words_form_no_pairs() -> None:
    assert pairs() == []
    assert pairs("", "...", "", "a") == []


@pytest.mark.slow
def test_near_copies_are_detected() -> None:
    dice = random.Random(3)
    found = NearDuplicateFinder()
    near: dict[str, float] = {}
    for number in range(600):
        text = text_of(dice)
        copy = edited(text, dice.choice([1, 2, 8, 15]), dice)
        near[f"{number}b"] = similarity(text, copy)
        found.add(f"{number}a", text)
        found.add(f"{number}b", copy)
    pairs = {later: first for first, later in found.pairs()}
    assert all(first == later.replace("b", "a") for later, first in pairs.items())
    sure = [later for later, alike in near.items() if alike >= 0.9]
    assert len(sure) > 100
    assert sum(later in pairs for later in sure) / len(sure) > 0.97
    assert sum(near[later] >= 0.7 for later in pairs) / len(pairs) > 0.97
    assert found.not_compared == 0


def test_large_group_is_counted_without_comparison() -> None:
    """Texts with the same two thirds share a band here and there, and are not near."""
    dice = random.Random(4)
    head = text_of(dice, 300)
    found = NearDuplicateFinder()
    for number in range(60):
        found.add(str(number), f"{head} {text_of(dice, 150)}")
    assert list(found.pairs()) == []
    assert found.not_compared > 0


def test_texts_can_be_added_after_query() -> None:
    found = NearDuplicateFinder()
    found.add("a", "some few words of text")
    assert list(found.pairs()) == []
    found.add("b", "some few words of text")
    assert list(found.pairs()) == [("a", "b")]


@pytest.mark.long
@pytest.mark.data
def test_real_abstracts_are_not_flagged(data_folder: Path) -> None:
    with gzip.open(data_folder / "abstracts" / "abstracts.jsonl.gz", "rt") as file:
        texts = [json.loads(line)["text"] for line in file]
    assert sum(map(is_empty, texts)) == 0
    assert sum(map(has_markup, texts)) == 45
    dice = random.Random(5)
    found = NearDuplicateFinder()
    for number, text in enumerate(texts[:4000]):
        found.add(f"{number}", text)
    long = [number for number in range(4000) if len(texts[number].split()) > 100]
    copied = dice.sample(long, 300)
    for number in copied:
        found.add(f"copy {number}", edited(texts[number], 2, dice))
    pairs = {later: first for first, later in found.pairs()}
    assert sum(pairs.get(f"copy {number}") == str(number) for number in copied) / len(copied) > 0.97
    assert sum(not later.startswith("copy") for later in pairs) < 5
