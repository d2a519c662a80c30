"""Forgetting patients: nothing of them is in any file, the others are unchanged, also after a kill in any phase."""

from __future__ import annotations

import gzip
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from epicrisis.core.errors import InputError
from epicrisis.core.types import Document, Scope
from epicrisis.corpus.base.reader_base import PatientIdentity
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.core.patient_identities import record_identities
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.operations.forgetting import forgetting as phases
from epicrisis.operations.forgetting.file_scan import list_files, scan_files
from epicrisis.operations.forgetting.forgetting import FOLDER, Places, forget_patients
from epicrisis.operations.forgetting.patient_strings import PatientStrings
from epicrisis.privacy.access_log import NAME, AccessLog, build_entry
from epicrisis.privacy.record_access import SystemUser
from epicrisis.server.base.users import USERS_FILE, UserStore
from epicrisis.testing.hashing_encoder import HashingEncoder

READER = SystemUser("maria", "uid:1000")
WORDS = "ankle basket cough dahlia elbow fever grape hinge iris jaundice knee lemon migraine nausea orchid"
PATIENTS = [f"8812{number:04d}" for number in range(12)]
FORGOTTEN = PATIENTS[:3]


def write_text(patient: str) -> str:
    """Return a note that nobody else has."""
    draws = random.Random(patient)
    return " ".join(f"{draws.choice(WORDS.split())}{draws.randrange(1000)}" for _ in range(60))


def build_ward(folder: Path, engine: str = "sqlite") -> Path:
    """Return a library with two notes of each patient, and a book."""
    encoder = HashingEncoder()
    documents = [
        Document("book:1", "Literature about hinge joints and lemons for everybody.", title="Book", source="book")
    ]
    for patient in PATIENTS:
        for number in range(2):
            id_ = f"note:{patient}:{number}"
            text = f"{write_text(patient)} visit {number}"
            documents.append(
                Document(id_, text, title=f"Note {number}", source="ward", date="2150-01-02", patient=patient)
            )
    if engine == "lance":
        LibraryStore.create(
            folder,
            encoder_fingerprint=encoder.fingerprint,
            encoder_name="hash",
            dimensions=encoder.dimensions,
            max_tokens=encoder.max_tokens,
            overlap=0,
            engine="lance",
        ).close()
    with open_or_create(folder, encoder, "hash") as store:
        add_documents(store, documents, encoder, literature=True)
        identities = [PatientIdentity(id_, names=(f"Given{id_} Family{id_}",)) for id_ in PATIENTS]
        record_identities(store.path, identities)
    return folder


def write_places(folder: Path) -> Places:
    """Write answers, a log, a job and a report that quote patients."""
    run, server = folder / "runs" / "ward", folder / "server"
    run.mkdir(parents=True)
    (run / "manifest.json").write_text("{}")
    lines = []
    for patient in PATIENTS:
        answer = {
            "patient": patient,
            "question": {"patient": patient, "text": "What hurts?"},
            "text": write_text(patient),
        }
        lines.append(json.dumps({"key": patient, "answer": answer}))
    (run / "records.jsonl").write_text("\n".join(lines) + "\n")
    (run / "report.html").write_text(f"<p>{write_text(FORGOTTEN[0])[:90]}</p>")
    with gzip.open(run / "trace.gz", "wt") as file:
        file.write(write_text(FORGOTTEN[1]))
    (folder / "log.jsonl").write_text(
        "".join(json.dumps({"prompt": write_text(patient)}) + "\n" for patient in PATIENTS)
    )
    answers, job = server / "answers" / "abc", server / "jobs" / "job1"
    for path in (answers, job):
        path.mkdir(parents=True)
    AccessLog(server / NAME).append(build_entry("otto", "ask", "ward", FORGOTTEN[0], [f"note:{FORGOTTEN[0]}:0"]))
    for patient in PATIENTS[:5]:
        (answers / f"{patient[-1]}.json").write_text(json.dumps({"answer": {"patient": patient}, "passages": []}))
    questions = [{"question": write_text(patient)[:50], "patient": patient} for patient in PATIENTS[:5]]
    (job / "job.json").write_text(json.dumps({"id": "job1", "body": {"questions": questions}}))
    return Places((folder / "runs", folder / "log.jsonl"), server)


def read_others(folder: Path) -> dict[str, list[tuple[str, str]]]:
    """Map each remaining patient to ids and texts of the record, and the hits of a search."""
    encoder = HashingEncoder()
    others = {}
    with LibraryStore.open(folder) as store:
        for patient in PATIENTS[3:]:
            scope = Scope(patient=patient)
            rows = [(passage.id, passage.text) for passage in store.fetch_record(scope)]
            query = write_text(patient)[:40]
            hits = store.search_vectors(encoder.encode_queries([query])[0], 5, scope)
            rows += [(hit.id, f"{hit.score:.3f}") for hit in hits]
            rows += sorted((hit.id, "") for hit in store.search_words(query, 5, scope))
            others[patient] = rows
    return others


def find_patients(folder: Path, patients: Sequence[str]) -> list[Path]:
    """Return the files below a folder that contain anything of these patients, searched without the program."""
    paths = []
    for path in folder.rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        for patient in patients:
            quotations = [write_text(patient)[start : start + 40].encode() for start in range(0, 200, 20)]
            if any(part in content for part in (patient.encode(), f"Family{patient}".encode(), *quotations)):
                paths.append(path)
    return paths


@pytest.mark.long
@pytest.mark.parametrize("engine", ["sqlite", "lance"])
def test_forgotten_patients_are_in_no_file_and_others_are_unchanged(engine: str, tmp_path: Path) -> None:
    ward = build_ward(tmp_path / "ward", engine)
    places = write_places(tmp_path)
    users = UserStore(ward / USERS_FILE)
    users.add("nurse", "patient-reader", (FORGOTTEN[0], PATIENTS[5], FORGOTTEN[2]))
    before = read_others(ward)
    report = forget_patients(ward, FORGOTTEN, places, READER)
    assert (report.remaining, report.problems) == ((), ())
    assert report.documents == 6
    assert find_patients(tmp_path, FORGOTTEN) == []
    assert users.users()["nurse"].patients == (PATIENTS[5],)
    assert read_others(ward) == before
    with LibraryStore.open(ward) as store:
        assert store.info().problems == ()
        assert [passage.id for passage in store.fetch(["book:1#0"], Scope())] == ["book:1#0"]
    records = (tmp_path / "runs" / "ward" / "records.jsonl").read_text().splitlines()
    assert [json.loads(line)["key"] for line in records] == PATIENTS[3:]
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == len(PATIENTS) - 3
    assert sorted(path.stem for path in (tmp_path / "server" / "answers" / "abc").iterdir()) == ["3", "4"]
    job = json.loads((tmp_path / "server" / "jobs" / "job1" / "job.json").read_text())
    assert [question["patient"] for question in job["body"]["questions"]] == PATIENTS[3:5]
    assert AccessLog(tmp_path / "server" / NAME).verify().fault is None
    assert not (ward / FOLDER).exists()


STEPS = (
    "_make_plan",
    "_log_forgetting",
    "clean_place",
    "find_documents",
    "remove_records",
    "_prove",
)
CHILD = """
import os, signal, sys
from pathlib import Path
from epicrisis.operations.forgetting import forgetting
from epicrisis.library.write import record_removal
from epicrisis.library.core.library_store import LibraryStore
from tests.forgetting.test_forgetting import FORGOTTEN, READER, Places
name, when = sys.argv[2], sys.argv[3]
owner = {"purge": LibraryStore, "delete": LibraryStore, "optimize": LibraryStore}.get(name, forgetting)
if name in ("forget_identities", "filter_lines"):
    owner = record_removal
original = getattr(owner, name)
def stop(*arguments, **options):
    if when == "after":
        original(*arguments, **options)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(owner, name, stop)
folder = Path(sys.argv[1])
places = Places((folder / "runs", folder / "log.jsonl"), folder / "server")
forgetting.forget_patients(folder / "ward", FORGOTTEN, places, READER)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "when"),
    [
        *((name, "before") for name in STEPS),
        ("_make_plan", "after"),
        ("delete", "after"),
        ("filter_lines", "after"),
        ("purge", "before"),
        ("optimize", "before"),
    ],
)
def test_killed_removal_continues(name: str, when: str, ward_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "all"
    shutil.copytree(ward_folder, folder)
    command = [sys.executable, "-c", CHILD, str(folder), name, when]
    killed = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert killed.returncode == -9, killed.stderr
    places = Places((folder / "runs", folder / "log.jsonl"), folder / "server")
    report = forget_patients(folder / "ward", FORGOTTEN, places, READER)
    assert report.is_clean
    assert find_patients(folder, FORGOTTEN) == []
    assert read_others(folder / "ward") == read_others(ward_folder / "ward")
    assert AccessLog(folder / "ward" / NAME).verify().fault is None


@pytest.fixture(scope="module")
def ward_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a library and places, to be copied."""
    folder = tmp_path_factory.mktemp("ward")
    build_ward(folder / "ward")
    write_places(folder)
    return folder


@pytest.mark.slow
def test_quotation_that_is_left_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ward = build_ward(tmp_path / "ward")
    (tmp_path / "notes").mkdir()
    table = tmp_path / "notes" / "table.csv"
    table.write_text(f"8812,{write_text(FORGOTTEN[0])[20:70]}\n")
    report = forget_patients(ward, FORGOTTEN, Places((tmp_path / "notes",)), READER)
    assert [match.path for match in report.remaining] == [table]
    assert (ward / FOLDER).exists()
    with pytest.raises(InputError, match="same --runs and --folder"):
        forget_patients(ward, [PATIENTS[5]], Places(), READER)
    table.unlink()
    assert forget_patients(ward, FORGOTTEN, Places((tmp_path / "notes",)), READER).is_clean


def test_name_and_sentence_of_another_record_are_kept(tmp_path: Path) -> None:
    ward = tmp_path / "ward"
    encoder = HashingEncoder()
    common = "The template of this hospital begins with the same long sentence."
    documents = [
        Document(
            "a",
            f"{common} Anna has gout in the left foot since many years.",
            title="",
            source="",
            date=None,
            patient="77000001",
        ),
        Document(
            "b",
            f"{common} Brother of 77000001, has no complaints at all.",
            title="",
            source="",
            date=None,
            patient="77000002",
        ),
    ]
    with open_or_create(ward, encoder, "hash") as store:
        add_documents(store, documents, encoder)
    report = forget_patients(ward, ["77000001"], Places(), READER)
    assert report.is_clean
    assert report.shared > 0
    with LibraryStore.open(ward) as store:
        assert "77000001" in store.fetch_record(Scope(patient="77000002"))[0].text


def test_strings_are_found_in_text_json_gzip_and_names_of_files(tmp_path: Path) -> None:
    strings = PatientStrings.collect([write_text("x")], ["Zoë Müller", "P-00012"])
    quotation = write_text("x")[30:90]
    (tmp_path / "plain.txt").write_text(quotation)
    with gzip.open(tmp_path / "packed.gz", "wt") as file:
        file.write(quotation)
    (tmp_path / "escaped.json").write_text(json.dumps({"name": "Zoë Müller"}))
    (tmp_path / "P-00012.csv").write_text("")
    (tmp_path / "other.txt").write_text("P-000123 and P-00012-7 are other patients")
    matches = scan_files(list_files([tmp_path]), strings)
    assert sorted(match.path.name for match in matches) == ["P-00012.csv", "escaped.json", "packed.gz", "plain.txt"]


def test_every_phase_is_covered() -> None:
    assert all(hasattr(phases, name) for name in STEPS)
