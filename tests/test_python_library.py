"""epicrisis.Library: a library that stays open, for scripts, asynchronous code and the models of a program."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

import epicrisis
from epicrisis import Document, EpicrisisError, Library
from epicrisis.api import build_question
from epicrisis.core.answers import Notice
from epicrisis.core.errors import InputError, LibraryError, LibraryMissing, NetworkRefused, SettingsError
from epicrisis.core.protocols import ChatRequest
from epicrisis.core.types import Question
from epicrisis.system.local_only import guard_network
from epicrisis.testing.chat import ScriptedModel
from epicrisis.testing.hashing_encoder import HashingEncoder
from epicrisis.testing.scorers import TermOverlapReranker
from epicrisis.testing.stores import MemoryStore

ASPIRIN = Document("pubmed:1", "Aspirin lowers the risk of preterm pre-eclampsia.", title="Aspirin <b>", date="2017")
ZINC = Document("pubmed:2", "Zinc shortens acute diarrhoea in children.", title="Zinc", date="2002")
GOUT = Document("note:1", "Colchicine was started for gout.", patient="anna", date="2150-01")
QUESTION = "Does aspirin prevent pre-eclampsia?"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Library.create(tmp_path / "library", encoder=HashingEncoder(64)) as library:
        assert library.add(ASPIRIN, ZINC).added == 2
    return tmp_path / "library"


def no_reply(request: ChatRequest) -> str:
    return '{"sentences": [], "claims": []}'


@pytest.mark.slow
def test_library_answers_questions_with_one_encoder_and_model(folder: Path) -> None:
    model = ScriptedModel(no_reply)
    cache = {"mode": "off"}
    with Library.open(folder, encoder=HashingEncoder(64), model=model, strategy="rag", cache=cache) as library:
        states = [library.ask(QUESTION, ["yes", "no"]).state for _ in range(2)]
        other = library.ask(QUESTION, ["yes", "no"], k=1)
        assert library.evidence(QUESTION, sentences=1).sentences[0].text == ASPIRIN.text
        assert [hit.passage.document_id for hit in library.search("zinc", k=1, by="bm25")] == ["pubmed:2"]
        reranked = library.search("diarrhoea", reranker=TermOverlapReranker())
    assert states == [other.state] * 2
    assert len(model.requests) >= 3
    assert "TermOverlapReranker" in reranked.retriever


def test_library_without_model_asks_for_evidence(folder: Path) -> None:
    with Library.open(folder, encoder=HashingEncoder(64)) as library:
        answer = library.ask(QUESTION)
    assert answer.strategy == "evidence"
    assert answer.citations[0].quotation == ASPIRIN.text


def test_asynchronous_twins_work_within_running_loop(folder: Path) -> None:
    async def ask() -> None:
        async with await Library.aopen(folder, encoder=HashingEncoder(64)) as library:
            answers = await asyncio.gather(*[library.aask(QUESTION) for _ in range(3)])
            assert {answer.citations[0].document_id for answer in answers} == {"pubmed:1"}
            # As in a notebook: a loop runs, and the call is synchronous.
            assert library.ask(QUESTION).state == "answered"
            assert (await library.aadd(Document("pubmed:3", "Folate prevents neural tube defects."))).added == 1
            assert (await library.asearch("folate", k=1)).document_ids == ("pubmed:3",)
            assert (await library.aevidence("folate", sentences=1)).sentences[0].passage.document_id == "pubmed:3"
            assert await library.apatients() == ()

    asyncio.run(ask())


def test_cancelled_question_stops_call_of_model(folder: Path) -> None:
    started, stopped = threading.Event(), threading.Event()

    class SlowModel(ScriptedModel):
        async def complete(self, request: ChatRequest, on_delta: object = None) -> object:  # type: ignore[override]
            started.set()
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                stopped.set()
                raise
            raise AssertionError("nobody waits an hour")

    async def ask() -> None:
        options = {"encoder": HashingEncoder(64), "model": SlowModel(no_reply), "strategy": "rag"}
        async with await Library.aopen(folder, **options) as library:
            task = asyncio.create_task(library.aask(QUESTION))
            await asyncio.to_thread(started.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.to_thread(stopped.wait)

    asyncio.run(ask())


def test_closed_library_and_wrong_arguments_are_one_line(folder: Path, tmp_path: Path) -> None:
    library = Library.open(folder)
    library.close()
    library.close()
    with pytest.raises(LibraryError, match=r"is closed: open it again"):
        library.ask(QUESTION)
    with pytest.raises(LibraryMissing, match="no library at"):
        Library.open(tmp_path / "nowhere")
    (tmp_path / "export.json").write_text("{}")
    with pytest.raises(LibraryMissing, match=r"is a file, not a library: add it to one with `epicrisis library"):
        Library.open(tmp_path / "export.json")
    with pytest.raises(LibraryError, match=r"is a library already: use Library\.open"):
        Library.create(folder, encoder=HashingEncoder(64))
    with pytest.raises(SettingsError, match="did you mean strategy"):
        Library.open(folder, stratgy="rag")
    with Library.open(folder, encoder=HashingEncoder(64)) as opened:
        with pytest.raises(InputError, match="nothing to add"):
            opened.add()
        with pytest.raises(InputError, match="lists the roles of --column"):
            opened.add(folder, columns={"patiënt": "x"})
        with pytest.raises(SettingsError, match="unknown setting kk"):
            opened.search("zinc", kk=3)


@pytest.mark.slow
def test_notes_added_to_open_library_forbid_remote_models(folder: Path) -> None:
    remote: dict[str, Any] = {
        "models": {"writer": {"name": "http://example.org/v1#m"}},
        "strategy": "rag",
        "cache": {"mode": "off"},
    }
    with Library.open(folder, encoder=HashingEncoder(64)) as library:
        with guard_network():
            assert library.ask(QUESTION, **remote).state == "failed", "it was asked, and example.org is no local host"
        assert library.add(GOUT, literature=True).added == 1
        assert [patient.id for patient in library.patients()] == ["anna"]
        with pytest.raises(SettingsError, match=r"holds patients' notes and example\.org is not this machine"):
            library.ask("What was started?", patient="anna", **remote)
        assert library.ask("What was started?", patient="anna").citations[0].quotation == GOUT.text


def test_guard_of_block_leaves_other_threads_alone() -> None:
    results = []

    def connect() -> None:
        with socket.socket() as connection, pytest.raises(OSError, match="refused"):
            connection.connect(("127.0.0.1", 1))
        results.append("not guarded")

    with guard_network():
        with socket.socket() as connection, pytest.raises(NetworkRefused):
            connection.connect(("192.0.2.1", 80))
        thread = threading.Thread(target=connect)
        thread.start()
        thread.join()
    assert results == ["not guarded"]


def test_store_of_program_counts_as_notes_and_is_named(tmp_path: Path) -> None:
    store, encoder = MemoryStore(), HashingEncoder(64)
    with Library.open(tmp_path, store=store, encoder=encoder) as library:
        report = library.add(ASPIRIN, GOUT)
        assert (report.added, library.add(ASPIRIN).unchanged) == (2, 1)
        answer = library.ask("What was started?", patient="anna", model=ScriptedModel(no_reply), strategy="rag")
        ranking = library.search("colchicine", k=5)
        assert [hit.passage.document_id for hit in ranking] == ["pubmed:1"]
        sentences = library.evidence("colchicine")
        with pytest.raises(SettingsError, match=r"may hold patients' notes and example\.org is not this machine"):
            library.ask(QUESTION, model="http://example.org/v1#m", strategy="rag")
        with pytest.raises(LibraryError, match="lists neither documents nor patients"):
            library.patients()
    notices = [event for event in answer.trace if isinstance(event, Notice)]
    unchecked = [notice.message for notice in notices if notice.kind == "unchecked"]
    assert any("the store MemoryStore of this program" in message for message in unchecked)
    assert any("the chat model scripted of this program" in message for message in unchecked)
    for value in (ranking, sentences):
        assert any("the store MemoryStore of this program" in note for note in value.notes)
        assert any(f"the encoder {encoder.fingerprint} of this program" in note for note in value.notes)
        assert not any("chat model" in note for note in value.notes)
    assert any("replies are not cached" in notice.message for notice in notices)


def test_report_of_addition_is_one_short_line_with_the_first_reason(folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.pdf"
    broken.write_bytes(b"no PDF")
    with Library.open(folder, encoder=HashingEncoder(64)) as library:
        report = library.add(ASPIRIN, broken)
    assert repr(report).startswith("<IngestReport: 0 documents added, 0 replaced, 1 unchanged, 1 skipped (")
    assert len(repr(report)) < 200
    assert "\n" not in repr(report)


@pytest.mark.slow
def test_values_draw_themselves_without_markup_of_documents(folder: Path) -> None:
    with Library.open(folder, encoder=HashingEncoder(64)) as library:
        values = (library.ask(QUESTION), library.search(QUESTION), library.evidence(QUESTION))
    for value in values:
        html, markdown = value._repr_html_(), value._repr_markdown_()
        assert "Aspirin &lt;b&gt;" in html
        assert "<b>" not in html
        assert "<script" not in html
        assert "src=" not in html
        assert "pubmed.ncbi.nlm.nih.gov/1/" in html
        assert r"Aspirin \<b\>" in markdown
        assert len(repr(value)) < 200
        assert "\n" not in repr(value)


def test_error_in_notebook_is_one_line() -> None:
    (line,) = EpicrisisError("first\nsecond\x1b[31m")._render_traceback_()
    assert line == "EpicrisisError: first second\ufffd[31m"


def test_import_loads_nothing_heavy() -> None:
    """Names are imported at first use."""
    import subprocess
    import sys

    code = "import sys, epicrisis; print([m for m in ('numpy', 'pydantic', 'lancedb', 'asyncio') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
    assert "Library" in dir(epicrisis)


@pytest.mark.slow
def test_library_lists_counts_and_removes_documents(tmp_path: Path) -> None:
    encoder = HashingEncoder(64)
    with Library.create(tmp_path / "lib", encoder=encoder) as library:
        assert (len(library), bool(library), library.documents()) == (0, True, ())
        library.add(ASPIRIN, Document("pubmed:2", "Aspirin harms children.", title="Aspirin in children"))
        assert [entry.id for entry in library.documents()] == ["pubmed:1", "pubmed:2"]
        # What is open reads the library as it is.
        assert len(library.search("aspirin", k=5)) == 2
        with pytest.raises(InputError, match="not in the library: nonsense"):
            library.remove("pubmed:2", "nonsense")
        assert [hit.passage.document_id for hit in library.search("aspirin", k=5)] == ["pubmed:1"]
        assert len(library) == 1


@pytest.mark.parametrize(
    ("options", "read"),
    [("yes,no", {"A": "yes", "B": "no"}), (" yes , no,maybe", {"A": "yes", "B": "no", "C": "maybe"}), (None, {})],
)
def test_options_in_one_text_are_split_at_commas(options: str | None, read: dict[str, str]) -> None:
    assert build_question("Does it help?", options).options == read


@pytest.mark.parametrize("options", ["yes", ["yes"], {"A": "yes"}])
def test_single_option_is_refused(options: str | list[str] | dict[str, str]) -> None:
    with pytest.raises(InputError, match="give at least two, such as yes,no"):
        build_question("Does it help?", options)


def test_rankings_have_a_length_and_items(tmp_path: Path) -> None:
    with Library.create(tmp_path / "lib", encoder=HashingEncoder(64)) as library:
        library.add(ASPIRIN)
        ranking, sentences = library.search("aspirin", k=3), library.evidence("Does aspirin help?")
    assert (len(ranking), ranking[0]) == (1, ranking.hits[0])
    assert (len(sentences), sentences[-1]) == (len(sentences.hits), sentences.hits[-1])


@pytest.mark.slow
def test_answer_prints_tabulates_and_saves_itself(tmp_path: Path) -> None:
    with Library.create(tmp_path / "lib", encoder=HashingEncoder(64)) as library:
        library.add(ASPIRIN)
        answer = library.ask("What does aspirin do?", since="1900", by="bm25", k=4)
    assert str(answer).startswith("Evidence: ")
    assert [row.document_id for row in answer.studies] == ["pubmed:1"]
    assert list(answer.to_dataframe()["document_id"]) == ["pubmed:1"]
    for name in ("answer.docx", "answer.md", "answer.html", "answer.json", "answer.ris"):
        answer.save(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 0
    with pytest.raises(InputError, match=r"name the file \.docx"):
        answer.save(tmp_path / "answer.jsonl")


def test_since_of_a_call_is_that_of_the_scope(tmp_path: Path) -> None:
    with Library.create(tmp_path / "lib", encoder=HashingEncoder(64)) as library:
        library.add(replace(ASPIRIN, date="2001"))
        assert len(library.search("aspirin", since="2002")) == 0
        assert len(library.search("aspirin", since="2000")) == 1


@pytest.mark.parametrize(("setting", "right"), [("stratgy", "strategy"), ("sinse", "since"), ("modell", "model")])
def test_misspelled_setting_names_the_right_one(tmp_path: Path, setting: str, right: str) -> None:
    with Library.create(tmp_path / "lib", encoder=HashingEncoder(64)) as library:
        library.add(ASPIRIN)
        with pytest.raises(SettingsError, match=f"did you mean {right}"):
            library.ask("Does aspirin help?", **{setting: "rag"})  # type: ignore[arg-type]


def test_date_that_nobody_knows_is_none(tmp_path: Path) -> None:
    with Library.create(tmp_path / "lib", encoder=HashingEncoder(64)) as library:
        library.add(
            *(Document(date, f"Fever {date}.", date=date, patient="p") for date in ("0001-01-01", "9999-12-31"))
        )
        (patient,) = library.patients()
    assert (patient.notes, patient.first, patient.last) == (2, None, None)


@pytest.mark.parametrize("patient", ["unknown", "-", "None", "0", "N/A", "urn:oid:1.2|UNKNOWN"])
def test_placeholder_of_a_patient_is_skipped(patient: str, tmp_path: Path) -> None:
    with Library.create(tmp_path / "lib", encoder=HashingEncoder(64)) as library:
        report = library.add(Document("note:1", "Fever.", patient=patient), GOUT)
        assert [patient.id for patient in library.patients()] == ["anna"]
    assert "placeholder" in report.reasons[0].reason


@pytest.mark.parametrize("name", ["Unknown", "Unknown Unknown", "UNKNOWN, Patient", "N/A", "-"])
def test_placeholder_of_a_name_is_none_and_contradicts_none(name: str, tmp_path: Path) -> None:
    with Library.create(tmp_path / "lib", encoder=HashingEncoder(64)) as library:
        library.add(replace(GOUT, metadata={"patient_name": name}))
        assert [patient.name for patient in library.patients()] == [None]
        library.add(replace(GOUT, id="note:2", metadata={"patient_name": "Anna Berg"}))
        assert [patient.name for patient in library.patients()] == ["Anna Berg"]


def test_whole_numbers_are_taken_as_text(tmp_path: Path) -> None:
    number: Any = 10083814
    year: Any = 2024
    query = "What was started for gout?"
    with Library.create(tmp_path / "lib", encoder=HashingEncoder(64)) as library:
        library.add(Document(number, GOUT.text, patient=number, date=year))
        (patient,) = library.patients()
        answers = [
            library.ask(query, patient=number),
            library.ask(Question(query, patient=number)),
        ]
        hits = [
            *library.search(query, patient=number, since=2024),
            *library.search(query, patient="10083814"),
        ]
        sentences = library.evidence(query, patient=number, since=None)
    assert (patient.id, patient.first) == ("10083814", "2024")
    assert {answer.patient for answer in answers} == {"10083814"}
    assert [hit.passage.document_id for hit in hits] == ["10083814"] * 2
    assert len(sentences) == 1


@pytest.mark.parametrize("fields", [{"patient": True}, {"date": 20.5}, {"title": None}, {"text": b"Fever."}])
def test_document_with_a_field_of_another_type_is_refused_in_one_line(fields: dict[str, Any], tmp_path: Path) -> None:
    document = Document(**{"id": "n", "text": "Fever.", "patient": "p", **fields})
    with Library.create(tmp_path / "lib", encoder=HashingEncoder(64)) as library:
        with pytest.raises(InputError, match=rf"^Document\.{next(iter(fields))} is .*must be text"):
            library.add(document)
        with pytest.raises(InputError, match=r"^patient is bool, and must be text"):
            library.ask("fever", patient=True)


class _Named:
    """An object that is no model."""

    name = "model"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda library, wrong: library.ask(wrong), "the question is int, and must be text"),
        (lambda library, wrong: library.ask(Question(wrong)), "the question is int, and must be text"),
        (lambda library, wrong: library.ask([wrong]), "the question is list, and must be text"),
        (lambda library, wrong: library.search(wrong), "the query is int, and must be text"),
        (lambda library, wrong: library.evidence(wrong), "the question is int, and must be text"),
        (lambda library, wrong: library.ask("Is it?", wrong), "options is int, and must be texts"),
        (lambda library, wrong: library.ask("Is it?", [None, "no"]), "an option is NoneType, and must be text"),
        (lambda library, wrong: library.ask("Is it?", model=wrong), "the chat model is int: .* method `complete`"),
        (lambda library, wrong: library.ask("Is it?", model=_Named()), "the chat model is _Named: "),
        (lambda library, wrong: library.ask("Is it?", model=_Named), "the chat model is the class _Named: "),
        (lambda library, wrong: library.search("gout", reranker=wrong), "the reranker is int: .* method `score`"),
        (lambda library, wrong: library.add(wrong), "a path is int, and must be text or a pathlib.Path"),
        (lambda library, wrong: library.add([GOUT]), r"list is no file, folder or Document: write add\(\*sources\)"),
        (lambda library, wrong: library.add(Document("n", "Fever.", metadata=wrong)), "Document.metadata is int"),
        (lambda library, wrong: library.add("a.csv", columns=wrong), "columns must be a dictionary of roles"),
        (lambda library, wrong: library.add("a.csv", time_format=wrong), "time_format is int, and must be text"),
        (lambda library, wrong: library.remove([wrong]), "an id is list, and must be text"),
        (lambda library, wrong: Library.open(wrong), "a path is int, and must be text or a pathlib.Path"),
        (lambda library, wrong: Library.create("x", encoder=wrong), "the encoder is int: .* `encode_passages`"),
        (lambda library, wrong: Library.create("x", splitter=wrong), "no splitter is called 5: tokens, medrag, whole"),
        (
            lambda library, wrong: Library.create("x", chunk_tokens=cast("Any", "5")),
            "chunk_tokens is str, and must be a whole number",
        ),
        (
            lambda library, wrong: Library.create("x", overlap=cast("Any", "5")),
            "overlap is str, and must be a whole number",
        ),
        (lambda library, wrong: epicrisis.ask(wrong, "Is it?"), "a path is int, and must be text or a pathlib.Path"),
    ],
)
def test_argument_of_a_wrong_type_is_refused_in_one_line(
    call: Callable[[Library, Any], Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with (
        Library.create(tmp_path / "lib", encoder=HashingEncoder(64)) as library,
        pytest.raises(InputError, match=f"^{message}") as caught,
    ):
        call(library, 5)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "x").exists()
