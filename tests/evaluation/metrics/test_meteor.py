"""Test METEOR against manual calculation, its formulas, and nltk with WordNet's synonyms."""

from __future__ import annotations

import io
import re
import shutil
import tarfile
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from nltk.stem.porter import PorterStemmer

from epicrisis.core.errors import InputError, ModelMissing
from epicrisis.evaluation.metrics.meteor import Meteor, find_wordnet, load_meteor, load_wordnet
from epicrisis.models.model_files import find_model
from epicrisis.settings.configuration import load_settings
from tests.evaluation.metrics.pairs import summaries

PLAIN = Meteor(None)

# One synset a line: part of speech, its words. Names and marks are as WordNet has them.
SYNSETS = (
    ("noun", ("hypertension", "high_blood_pressure")),
    ("noun", ("kidney",)),
    ("noun", ("doctor", "physician", "Dr.")),
    ("noun", ("man", "adult_male")),
    ("verb", ("reduce", "cut_down", "trim")),
    ("verb", ("take", "ingest")),
    ("adj", ("ill(p)", "sick")),
    ("adv", ("rapidly", "quickly")),
)


@pytest.fixture(scope="module")
def meteor_home() -> Path:
    """Return the home with the data of `evaluate`'s METEOR."""
    home = load_settings().home
    try:
        find_model("meteor-data", "lexicon", home)
    except ModelMissing as error:
        pytest.skip(str(error))
    return home


@pytest.fixture
def wordnet_folder(tmp_path: Path) -> Path:
    """Write a WordNet of eight synsets in the format of wndb."""
    for part, letter in (("noun", "n"), ("verb", "v"), ("adj", "a"), ("adv", "r")):
        data = "  1 This is the place of a licence.\n"
        index: dict[str, list[int]] = {}
        for words in (words for of, words in SYNSETS if of == part):
            for word in words:
                index.setdefault(word.partition("(")[0].lower(), []).append(len(data))
            text = " ".join(f"{word} 0" for word in words)
            frames = " 01 + 08 00" if part == "verb" else ""
            data += f"{len(data):08d} 03 {letter} {len(words):02x} {text} 000{frames} | it means something\n"
        (tmp_path / f"data.{part}").write_text(data)
        lines = [
            f"{word} {letter} {len(of)} 0 {len(of)} 0 {' '.join(f'{at:08d}' for at in of)}"
            for word, of in index.items()
        ]
        (tmp_path / f"index.{part}").write_text("  1 This is the place of a licence.\n" + "\n".join(lines) + "\n")
        irregular = {"noun": "men man\n", "verb": "took take\n"}.get(part, "")
        (tmp_path / f"{part}.exc").write_text(irregular)
    return tmp_path


def open_nltk_wordnet(folder: Path) -> Any:
    """Open the folder with nltk's reader. It has no `lexnames` and no WordNet to map from: synonyms need neither."""
    import nltk.data
    from nltk.corpus.reader.wordnet import WordNetCorpusReader

    class Reader(WordNetCorpusReader):  # type: ignore[misc]
        def open(self, file: str) -> Any:
            return (
                io.StringIO("".join(f"{i:02d} x 0\n" for i in range(45))) if file == "lexnames" else super().open(file)
            )

        def map_wn(self, version: str = "wordnet") -> None:
            return None

    nltk.data.path.append(str(folder))
    with pytest.warns(UserWarning, match="multilingual"):
        return Reader(str(folder), None)


def compute_by_formula(answer: str, gold: str, stages: Any) -> float:
    """Compute METEOR by Lavie and Agarwal (2007), section 2, with nltk's alignment.

    Each stage takes the answer's words from the last on, each with the last free one that it may be."""
    reply, right = (re.findall(r"\w+|[^\w\s]+", text.lower()) for text in (answer, gold))
    pairs: dict[int, int] = {}
    for same in stages:
        for i in reversed(range(len(reply))):
            if i not in pairs:
                free = [j for j in range(len(right)) if j not in pairs.values() and same(reply[i], right[j])]
                if free:
                    pairs[i] = free[-1]
    if not pairs:
        return 0.0
    precision, recall = len(pairs) / len(reply), len(pairs) / len(right)
    order = sorted(pairs.items())
    chunks = 1 + sum((b[0] - a[0], b[1] - a[1]) != (1, 1) for a, b in pairwise(order))
    mean = precision * recall / (0.9 * precision + 0.1 * recall)
    return mean * (1 - 0.5 * (chunks / len(pairs)) ** 3)


def equal(said: str, right: str) -> bool:
    return said == right


def stemmed(said: str, right: str) -> bool:
    return stem(said) == stem(right)


@cache
def stem(word: str) -> str:
    return str(PorterStemmer().stem(word))


def test_meteor_matches_manual_calculation() -> None:
    assert PLAIN.name == "meteor[exact+stem]"
    assert PLAIN.score("Acute pancreatitis", ["acute pancreatitis"]) == pytest.approx(1 - 0.5 / 2**3)
    assert PLAIN.score("Sepsis", ["sepsis"]) == pytest.approx(0.5), "one word is one chunk of one"
    # 3 of 4 and 3 of 5 words, in 2 chunks; `infections` by its stem.
    mean = (3 / 4) * (3 / 5) / (0.9 * 3 / 4 + 0.1 * 3 / 5)
    assert PLAIN.score("a urinary infections today", ["recurrent urinary infection with a"]) == pytest.approx(
        mean * (1 - 0.5 * (2 / 3) ** 3)
    )
    assert PLAIN.score("fever", ["cough"]) == PLAIN.score("", ["cough"]) == PLAIN.score("fever", [""]) == 0
    assert PLAIN.score("sepsis", ["cough", "sepsis"]) == 0.5
    with pytest.raises(ValueError, match="no right answer"):
        PLAIN.score("yes", [])


def test_meteor_matches_nltk_published_example() -> None:
    text = "It is a guide to action which ensures that the military always obeys the commands of the party"
    right = "It is a guide to action that ensures that the military will forever heed Party commands"
    assert round(PLAIN.score(text, [right]), 4) == 0.6944


@pytest.mark.long
@pytest.mark.data
def test_meteor_matches_formula_on_real_pairs(data_folder: Path) -> None:
    pairs, by_stem = summaries(data_folder), 0
    assert len(pairs) == 400
    for gold, answer in pairs:
        assert PLAIN.score(answer, [gold]) == pytest.approx(
            compute_by_formula(answer, gold, (equal, stemmed)), abs=1e-9
        )
        by_stem += compute_by_formula(answer, gold, (equal,)) != compute_by_formula(answer, gold, (equal, stemmed))
    assert by_stem > 50


def test_meteor_with_wordnet_counts_synonyms(wordnet_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WNSEARCHDIR", str(wordnet_folder))
    assert find_wordnet() == wordnet_folder
    meteor = load_meteor()
    assert meteor.name == "meteor[exact+stem+wordnet]"
    assert meteor.score("the physician took it", ["the doctor took it"]) == pytest.approx(1 - 0.5 / 4**3)
    assert PLAIN.score("the physician took it", ["the doctor took it"]) < 0.7
    assert meteor.score("sick", ["ill"]) == 0.5


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("hypertension", {"hypertension"}),
        ("Doctors", {"doctor", "physician", "Dr."}),
        ("men", {"man"}),
        ("took", {"take", "ingest"}),
        ("reduced", {"reduce", "trim"}),
        ("ill", {"ill", "sick"}),
        ("quickly", {"rapidly", "quickly"}),
        ("aspirin", set()),
    ],
)
def test_wordnet_synonyms_match_nltk_reader(wordnet_folder: Path, word: str, expected: set[str]) -> None:
    for reader in (load_wordnet(wordnet_folder), open_nltk_wordnet(wordnet_folder)):
        senses = reader.synsets(word)
        assert {lemma.name() for sense in senses for lemma in sense.lemmas() if "_" not in lemma.name()} == expected


def test_load_wordnet_from_damaged_folder_raises_input_error(
    wordnet_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (wordnet_folder / "index.noun").write_text("doctor n many\n")
    with pytest.raises(InputError, match="wordnet-base"):
        load_wordnet(wordnet_folder)
    (wordnet_folder / "data.noun").unlink()
    monkeypatch.setenv("WNSEARCHDIR", str(wordnet_folder))
    monkeypatch.setenv("NLTK_DATA", str(wordnet_folder))
    assert find_wordnet() != wordnet_folder


@pytest.mark.data
def test_meteor_with_wordnet_matches_nltk_on_real_pairs(data_folder: Path) -> None:
    from nltk.tokenize import wordpunct_tokenize
    from nltk.translate.meteor_score import meteor_score

    folder = find_wordnet()
    if folder is None:
        pytest.skip("WordNet is not here: install Debian's wordnet-base")
    meteor, reader, by_synonym = load_meteor(folder), open_nltk_wordnet(folder), 0
    for gold, answer in summaries(data_folder):
        score = meteor.score(answer, [gold])
        tokens = wordpunct_tokenize(gold), wordpunct_tokenize(answer)
        assert score == pytest.approx(meteor_score([tokens[0]], tokens[1], wordnet=reader), abs=1e-9)
        by_synonym += score != PLAIN.score(answer, [gold])
    assert by_synonym > 50


@pytest.mark.models
@pytest.mark.data
@pytest.mark.long
def test_meteor_of_evaluate_matches_nltk_called_as_evaluate_does(
    data_folder: Path, meteor_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 pairs: `single_meteor_score(word_tokenize(reference), word_tokenize(answer))` with nltk's own WordNet."""
    import nltk.data
    from nltk.tokenize import word_tokenize
    from nltk.translate.meteor_score import single_meteor_score

    meteor = load_meteor(home=meteor_home)
    assert meteor.name == "meteor[evaluate]"
    # The same files in the folders where nltk looks for them.
    source, corpora = meteor_home / "models" / "meteor-data", tmp_path / "corpora" / "wordnet"
    shutil.copytree(source / "punkt", tmp_path / "tokenizers" / "punkt_tab" / "english")
    corpora.mkdir(parents=True)
    with tarfile.open(source / "WNdb-3.0.tar.gz") as archive:
        archive.extractall(corpora, filter="data")
    for path in (*source.glob("*.exc"), *(corpora / "dict").iterdir()):
        shutil.copy(path, corpora / path.name)
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    reader, changed = open_nltk_wordnet(corpora), 0
    for gold, answer in summaries(data_folder)[:200]:
        reference = single_meteor_score(word_tokenize(gold), word_tokenize(answer), wordnet=reader)
        assert meteor.score(answer, [gold]) == pytest.approx(reference, abs=1e-9)
        changed += abs(reference - PLAIN.score(answer, [gold])) > 1e-9
    assert changed > 50


def test_meteor_without_its_data_keeps_the_name_of_its_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epicrisis.evaluation.metrics.meteor.find_wordnet", lambda: None)
    assert load_meteor(home=tmp_path).name == "meteor[exact+stem]"
