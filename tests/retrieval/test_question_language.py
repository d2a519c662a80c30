"""Questions in other languages, and words that are written without blanks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from epicrisis import Document, Library
from epicrisis.core.protocols import Encoder
from epicrisis.core.types import Scope
from epicrisis.library.engines.word_index import analyze_words
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.models.catalogue import reads_english_only
from epicrisis.pipeline.components import open_library_search
from epicrisis.retrieval.question_language import find_document_language, find_language
from epicrisis.settings.configuration import load_settings
from epicrisis.testing.hashing_encoder import HashingEncoder


@pytest.mark.parametrize(
    ("question", "language"),
    [
        ("Hilft Aspirin bei einem Herzinfarkt?", "German"),
        ("¿Reduce la aspirina la mortalidad después de un infarto?", "Spanish"),
        ("L'aspirine réduit-elle la mortalité après un infarctus ?", "French"),
        ("L'aspirina riduce la mortalità dopo un infarto?", "Italian"),
        ("Welke behandeling helpt bij een hartinfarct?", "Dutch"),
        ("Verringert Apixaban das Schlaganfallrisiko?", "German"),
        ("La metformina riduce il peso?", "Italian"),
        ("Vermindert vitamine D het vallen?", "Dutch"),
        ("La metformine diminue le poids ?", "French"),
        ("A metformina melhora a glicemia e reduz o peso?", "Portuguese"),
        ("阿司匹林能降低死亡率吗？", "Chinese or Japanese"),
        ("心筋梗塞にアスピリンは有効ですか", "Japanese"),
        ("แอสไพรินช่วยลดการเสียชีวิตหรือไม่", "Thai"),
        ("Does aspirin reduce mortality?", ""),
        ("aspirin mortality", ""),
        ("N348I mutations cause resistance to zidovudine (AZT).", ""),
        ("de novo AML in vivo", ""),
        ("DER activity assay", ""),
        ("", ""),
    ],
)
def test_language_of_a_question(question: str, language: str) -> None:
    assert find_language(question) == language


TEXTS = {
    "German": "Wir untersuchten, ob Aspirin die Sterblichkeit nach einem Infarkt senkt. Nach einem Jahr war sie mit "
    "12 Prozent in der behandelten Gruppe geringer.",
    "Spanish": "El objetivo fue evaluar la eficacia de la metformina en los pacientes con diabetes. La glucosa bajó.",
    "Danish or Norwegian": "Vi undersøgte om aspirin nedsætter dødeligheden hos patienter, der er ældre end 60 år, og "
    "den var lavere i gruppen, som ikke fik placebo.",
    "Turkish": "Bu çalışmada metforminin etkisi araştırıldı ve bir yıl sonra kan şekeri daha düşük bulundu.",
    "Greek": "Σκοπός της μελέτης ήταν η αξιολόγηση της μετφορμίνης σε ασθενείς με διαβήτη.",
    "Korean": "심근경색 후 사망률에 대한 아스피린의 효과를 평가하였다.",
}
ENGLISH = "Aspirin lowered mortality after myocardial infarction, and there was no harm in the groups. "


@pytest.mark.parametrize(
    ("text", "language"),
    [
        *((text, language) for language, text in TEXTS.items()),
        (ENGLISH * 6 + TEXTS["German"] * 20, "German"),
        (ENGLISH * 20 + TEXTS["German"], ""),
        ("Seen by Dr. de la Cruz and Dr. van der Berg at the Hospital de la Santa Creu. Plan: aspirin.", ""),
        ("Der p 1 activity (D. pteronyssinus) and de novo HER2; TNF-α, IL-1β", ""),
        ("HbA1c 7.2 %, Na 140, K 4.1, en face", ""),
        ("", ""),
    ],
)
def test_language_of_a_document(text: str, language: str) -> None:
    assert find_document_language(text) == language


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Inhaled NO in neonates", ["inhal", "noabbr", "neonat"]),
        ("There is no effect as it is", ["effect"]),
        ("NO EFFECT", ["effect"]),
        ("THERE IS NO", []),
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


@pytest.mark.parametrize(
    ("encoder", "named"), [("minilm", "minilm"), ("qwen3-embedding-0.6b", ""), ("folder/of/an-encoder", "")]
)
def test_encoders_that_read_english_only_are_named(encoder: str, named: str) -> None:
    assert (encoder if reads_english_only(encoder) else "") == named


@pytest.mark.parametrize(
    ("encoder_name", "languages", "line"),
    [
        (
            "minilm",
            ("German", "German", "Korean"),
            "3 documents seem not to be English (2 German, 1 Korean), and the encoder minilm and the search by words "
            "read English: searches may miss them; a library with an encoder of many languages finds them by meaning",
        ),
        (
            "minilm",
            ("Korean",),
            "1 document seems not to be English (1 Korean), and the encoder minilm reads English: searches may miss "
            "them; a library with an encoder of many languages finds them by meaning",
        ),
        (
            "qwen3-embedding-0.6b",
            ("Spanish",),
            "1 document seems not to be English (1 Spanish), and the search by words reads English: it finds their "
            "words only as they are written",
        ),
        ("qwen3-embedding-0.6b", ("Korean",), None),
        ("minilm", (), None),
    ],
)
def test_addition_counts_documents_that_are_not_read(
    tmp_path: Path, encoder_name: str, languages: tuple[str, ...], line: str | None
) -> None:
    encoder = HashingEncoder(64)
    documents = [Document(f"d{number}", f"{number}. {TEXTS[name]}") for number, name in enumerate(languages)]
    with open_or_create(tmp_path / "library", encoder, encoder_name) as made:
        report = add_documents(made, [Document("en", ENGLISH), *documents], encoder)
        again = add_documents(made, documents, encoder)
    assert report.remarks == (() if line is None else (line,))
    assert again.remarks == ()


def test_search_with_the_default_encoder_names_it(tmp_path: Path, encoder: Encoder, model_home: Path) -> None:
    with open_or_create(tmp_path / "library", encoder, "minilm") as made:
        add_documents(made, [Document("en", "Aspirin lowers mortality.")], encoder)
    with open_library_search(load_settings({"home": model_home}), tmp_path / "library") as search:
        notes = search.retriever.rank("Hilft Aspirin bei einem Herzinfarkt?", 3, "hybrid", Scope()).notes
    assert any("the encoder minilm and the search by words read English" in note for note in notes)


def test_search_says_what_it_does_not_read(library: Library) -> None:
    notes = library.search("Hilft Aspirin bei einem Herzinfarkt?", by="bm25", other_names=False).notes
    assert notes == ("the question seems to be German, and the search by words reads English: ask it in English too",)
    assert library.search("Does aspirin help?", by="bm25", other_names=False).notes == ()
