"""Questions in other languages, and words that are written without blanks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from epicrisis import Document, Library
from epicrisis.library.word_index import analyze_words
from epicrisis.retrieval.question_language import find_language
from epicrisis.testing.encoders import HashingEncoder


@pytest.mark.parametrize(
    ("question", "language"),
    [
        ("Hilft Aspirin bei einem Herzinfarkt?", "German"),
        ("¿Reduce la aspirina la mortalidad después de un infarto?", "Spanish"),
        ("L'aspirine réduit-elle la mortalité après un infarctus ?", "French"),
        ("L'aspirina riduce la mortalità dopo un infarto?", "Italian"),
        ("Welke behandeling helpt bij een hartinfarct?", "Dutch"),
        ("阿司匹林能降低死亡率吗？", "Chinese or Japanese"),
        ("心筋梗塞にアスピリンは有効ですか", "Japanese"),
        ("แอสไพรินช่วยลดการเสียชีวิตหรือไม่", "Thai"),
        ("Does aspirin reduce mortality?", ""),
        ("aspirin mortality", ""),
        ("N348I mutations cause resistance to zidovudine (AZT).", ""),
        ("de novo AML in vivo", ""),
        ("", ""),
    ],
)
def test_language_of_a_question(question: str, language: str) -> None:
    assert find_language(question) == language


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Inhaled NO in neonates", ["inhal", "noabbr", "neonat"]),
        ("There is no effect as it is", ["effect"]),
        ("NO EFFECT", ["effect"]),
        ("死亡率", ["死亡", "亡率"]),
        ("率 aspirin", ["率", "aspirin"]),
    ],
)
def test_words_of_the_index(text: str, words: list[str]) -> None:
    assert analyze_words(text) == words


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    with Library.create(tmp_path_factory.mktemp("languages") / "library", encoder=HashingEncoder(64)) as made:
        made.add(
            Document("zh", "阿司匹林降低了心肌梗死后的死亡率。"),
            Document("th", "แอสไพรินช่วยลดการเสียชีวิต"),
            Document("no", "Inhaled NO improved oxygenation."),
            Document("en", "There was no change of oxygenation, as it is known."),
        )
        yield made


@pytest.mark.parametrize(("query", "found"), [("死亡率", "zh"), ("ลดการเสียชีวิต", "th"), ("Does NO help?", "no")])
def test_words_without_blanks_and_abbreviations_are_found(library: Library, query: str, found: str) -> None:
    ranking = library.search(query, k=4, by="bm25", other_names=False)
    assert [passage.document_id for passage in ranking.passages] == [found]


def test_search_says_what_it_does_not_read(library: Library) -> None:
    notes = library.search("Hilft Aspirin bei einem Herzinfarkt?", by="bm25", other_names=False).notes
    assert notes == ("the question seems to be German, and the search by words reads English: ask it in English too",)
    assert library.search("Does aspirin help?", by="bm25", other_names=False).notes == ()
