"""Forget 100 of 1,000 generated patients, also after kills, and compare the other records before and after.

    python benchmarks/forget_patients.py FOLDER [PATIENTS] [FORGOTTEN]

Writes records of fictional patients to FOLDER, builds a library and the records of a run about each patient, and
removes some patients: once without a kill, and once killed in each phase and continued. Prints sizes, times, and what a
search of all files without the program still finds.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from epicrisis.core.types import Scope
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.core.patients import Roster
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.library.write.record_removal import find_documents
from epicrisis.operations.forgetting import forgetting
from epicrisis.operations.forgetting.forgetting import Places, forget_patients
from epicrisis.privacy.record_access import SystemUser
from epicrisis.testing.hashing_encoder import HashingEncoder

USER = SystemUser("benchmark", "uid:0")
KILLS: tuple[tuple[str, str], ...] = (
    ("forgetting", "_make_plan"),
    ("forgetting", "_log_forgetting"),
    ("forgetting", "clean_place"),
    ("forgetting", "remove_records"),
    ("store", "delete"),
    ("store", "purge"),
    ("store", "optimize"),
    ("forgetting", "_prove"),
)
"""Where the process is killed: before this function of the module or of the library."""


def build(folder: Path, patients: int) -> None:
    """Write records, library and answers."""
    from epicrisis.evaluation.synthesis.patient_records.record_folder import write_records

    write_records(folder / "records", patients, (4_000,), seed=0)
    encoder = HashingEncoder()
    with open_or_create(folder / "ward", encoder, "hash") as store:
        print(add_documents(store, read_sources([folder / "records" / "record" / "notes.csv"]), encoder))
        run = folder / "runs" / "ward"
        run.mkdir(parents=True)
        (run / "manifest.json").write_text("{}")
        with (run / "records.jsonl").open("w") as file:
            for patient in Roster(store).patients():
                passages = store.fetch_record(Scope(patient=patient))
                answer = {"patient": patient, "claims": [passage.text[:300] for passage in passages[:3]]}
                file.write(json.dumps({"key": patient, "answer": answer}) + "\n")
    shutil.rmtree(folder / "records")


def digest_others(folder: Path, patients: Sequence[str]) -> str:
    """Return a hash of the records of these patients, the searches in them, and their answers."""
    digest = hashlib.sha256()
    encoder = HashingEncoder()
    (vector,) = encoder.encode_queries(["pain and fever after surgery"])
    with LibraryStore.open(folder / "ward") as store:
        for patient in patients:
            scope = Scope(patient=patient)
            digest.update(repr(store.fetch_record(scope)).encode())
            digest.update(repr(store.search_vectors(vector, 10, scope)).encode())
    for line in (folder / "runs" / "ward" / "records.jsonl").read_text().splitlines():
        if json.loads(line)["key"] in patients:
            digest.update(line.encode())
    return digest.hexdigest()


def count_strings(folder: Path, strings: Sequence[str]) -> int:
    """Return the number of strings that any file below the folder contains."""
    content = b"\0".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())
    return sum(string.encode() in content for string in strings)


def remove(folder: Path, patients: Sequence[str], kill: tuple[str, str] | None = None) -> Any:
    """Forget the patients, or be killed on the way."""
    if kill is not None:
        owner = forgetting if kill[0] == "forgetting" else LibraryStore
        setattr(owner, kill[1], _stop)
    return forget_patients(folder / "ward", patients, Places((folder / "runs",)), USER)


def _stop(*arguments: Any, **options: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def measure(name: str, work: Callable[[], Any]) -> Any:
    """Return what `work` returns, and print its time."""
    start, cpu = time.monotonic(), time.process_time()
    value = work()
    print(f"{name}: {time.monotonic() - start:.1f} s, CPU {time.process_time() - cpu:.1f} s", flush=True)
    return value


def main(folder: Path, patients: int, count: int) -> None:
    """Run the benchmark."""
    measure("building", lambda: build(folder / "before", patients))
    with LibraryStore.open(folder / "before" / "ward") as store:
        ids = sorted(Roster(store).patients())
        forgotten, others = ids[:: len(ids) // count][:count], []
        others = [id_ for id_ in ids if id_ not in forgotten]
        strings = [*forgotten, *find_documents(store, forgotten)]
    size = sum(path.stat().st_size for path in (folder / "before").rglob("*") if path.is_file())
    print(f"{len(ids)} patients, {size / 1e6:.0f} MB; {len(forgotten)} are forgotten", flush=True)
    before = digest_others(folder / "before", others)
    print(f"strings in files before: {count_strings(folder / 'before', strings)} of {len(strings)}")
    for kill in (None, *KILLS):
        work = folder / "work"
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(folder / "before", work)
        if kill is not None:
            process = multiprocessing.get_context("spawn").Process(target=remove, args=(work, forgotten, kill))
            process.start()
            process.join()
            assert process.exitcode == -signal.SIGKILL, process.exitcode
        name = "without a kill" if kill is None else f"killed before {kill[1]}"
        report = measure(name, partial(remove, work, forgotten))
        left = count_strings(work, strings)
        same = digest_others(work, others) == before
        print(
            f"  clean {report.is_clean}, {report.documents} notes, {report.lines} lines, {report.scanned} files, "
            f"{report.names} names, {report.windows} windows, {report.shared} shared; strings left {left}, "
            f"others unchanged {same}",
            flush=True,
        )
        for match in report.remaining[:5]:
            print(f"    {match}")


if __name__ == "__main__":
    numbers = [int(text) for text in sys.argv[2:]]
    main(Path(sys.argv[1]), *(*numbers, *(1_000, 100)[len(numbers) :]))
