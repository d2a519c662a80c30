"""The access log: edits are detected, kills and many writers leave a whole chain, and names can be taken out of it."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from epicrisis.core.errors import InputError, StorageError
from epicrisis.privacy.access_log import FORGET, NAME, AccessLog, build_entry

EDITS = 1_000
ENTRIES = 40


def write_log(folder: Path, entries: int = ENTRIES) -> AccessLog:
    """Return a log of several users and patients."""
    log = AccessLog(folder / NAME)
    for number in range(entries):
        user = f"user{number % 3}"
        log.append(build_entry(user, "ask", "ward", str(number % 5), [f"note:{number}"], user_id=f"uid:{number % 3}"))
    return log


def edit(draws: random.Random, lines: Sequence[bytes]) -> bytes:
    """Return the file after one random edit: change, delete, insert, swap or truncate."""
    content = list(lines)
    kind = draws.choice(("change", "delete", "insert", "swap", "truncate", "truncate bytes"))
    first, second = draws.sample(range(len(content)), 2)
    whole = b"".join(content)
    if kind == "change":
        place = draws.randrange(len(whole))
        other = draws.choice([byte for byte in range(256) if byte != whole[place]])
        return whole[:place] + bytes([other]) + whole[place + 1 :]
    if kind == "truncate bytes":
        return whole[: draws.randrange(len(whole))]
    if kind == "delete":
        del content[first]
    elif kind == "insert":
        content.insert(first, content[second])
    elif kind == "swap":
        content[first], content[second] = content[second], content[first]
    else:
        del content[draws.randrange(len(content)) :]
    return b"".join(content)


@pytest.mark.long
def test_every_random_edit_is_detected(tmp_path: Path) -> None:
    log = write_log(tmp_path)
    assert log.verify().fault is None
    lines = log.path.read_bytes().splitlines(keepends=True)
    draws = random.Random(21)
    undetected = []
    for number in range(EDITS):
        content = edit(draws, lines)
        log.path.write_bytes(content)
        if log.verify().fault is None:
            undetected.append(number)
    assert undetected == []


def test_half_a_line_of_killed_process_is_no_fault_and_is_removed(tmp_path: Path) -> None:
    log = write_log(tmp_path, 3)
    with log.path.open("ab") as file:
        file.write(b'{"number": 4, "at": "2026')
    result = log.verify()
    assert (result.entries, result.fault, result.incomplete) == (3, None, True)
    log.append(build_entry("maria", "ask", "ward", "7", []))
    result = log.verify()
    assert (result.entries, result.fault, result.incomplete) == (4, None, False)


@pytest.mark.parametrize("damage", ["shortened", "without head", "other head"])
def test_damaged_log_is_not_continued(damage: str, tmp_path: Path) -> None:
    log = write_log(tmp_path, 4)
    head = log.path.with_suffix(".head")
    if damage == "shortened":
        log.path.write_bytes(b"".join(log.path.read_bytes().splitlines(keepends=True)[:3]))
    elif damage == "without head":
        head.unlink()
    else:
        head.write_text(json.dumps({"number": 4, "hash": "0" * 64}))
    assert log.verify().fault is not None
    with pytest.raises(StorageError, match="nothing was read"):
        log.append(build_entry("maria", "ask", "ward", "7", []))


WRITER = """
import sys
from pathlib import Path
from epicrisis.privacy.access_log import AccessLog, build_entry
log = AccessLog(Path(sys.argv[1]))
print("ready", flush=True)
number = 0
while number != int(sys.argv[2]):
    log.append(build_entry(sys.argv[3], "ask", "ward", "7", [f"note:{number}"]))
    number += 1
"""


def start_writer(path: Path, entries: int, user: str) -> subprocess.Popen[bytes]:
    """Return a process that writes entries, -1: until it is killed."""
    command = [sys.executable, "-c", WRITER, str(path), str(entries), user]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


@pytest.mark.long
def test_entries_of_many_processes_form_one_chain(tmp_path: Path) -> None:
    path = tmp_path / NAME
    processes = [start_writer(path, 25, f"user{number}") for number in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    result = AccessLog(path).verify()
    assert (result.entries, result.fault) == (100, None)


@pytest.mark.long
def test_killed_writers_leave_a_verifiable_log(tmp_path: Path) -> None:
    path = tmp_path / NAME
    draws = random.Random(7)
    for number in range(6):
        process = start_writer(path, -1, f"user{number}")
        time.sleep(draws.uniform(0.01, 0.15))
        process.kill()
        process.wait()
        if path.exists():
            assert AccessLog(path).verify().fault is None
    AccessLog(path).append(build_entry("maria", "ask", "ward", "7", []))
    assert AccessLog(path).verify().fault is None


def forget(log: AccessLog, patient: str) -> int:
    """Forget a patient, as `epicrisis patient forget` does."""
    log.append(build_entry("maria", FORGET, "ward", patient, []))
    return log.forget([patient])


def test_forgotten_patient_is_not_named_and_chain_is_whole(tmp_path: Path) -> None:
    log = AccessLog(tmp_path / NAME)
    head = ""
    for patient, document in (("anna-1", "note:anna:1"), ("bert-2", "note:bert:1"), ("anna-1", "note:anna:2")):
        log.append(build_entry("maria", "ask", "ward", patient, [document], "anna-1 collapsed"))
        head = head or log.verify().head
    assert forget(log, "anna-1") == 2
    log.append(build_entry("maria", "ask", "ward", "bert-2", ["note:bert:1"], "an emergency"))
    content = log.path.read_text()
    assert "note:anna" not in content
    assert content.count("anna-1") == 1, "the reason of the entry about bert is not this patient's"
    assert "note:bert:1" in content
    result = log.verify(head)
    assert (result.fault, result.removed, result.entries) == (None, 2, 5)
    subject = log.pseudonym("anna-1")
    assert [entry["action"] for entry in log.entries() if entry["subject"] == subject] == ["ask", "ask", FORGET]


def test_patient_read_before_key_was_deleted_is_forgotten_and_chain_is_whole(tmp_path: Path) -> None:
    log = AccessLog(tmp_path / NAME)
    for patient in ("anna-1", "bert-2", "anna-1"):
        log.append(build_entry("maria", "ask", "ward", patient, [f"note:{patient}"]))
    log.path.with_suffix(".key").unlink()
    log.append(build_entry("maria", "ask", "ward", "anna-1", []))
    assert forget(log, "anna-1") == 3
    assert "anna-1" not in log.path.read_text()
    result = log.verify()
    assert (result.fault, result.removed, result.entries) == (None, 3, 6)


def test_removed_log_with_its_head_is_told_from_a_log_that_never_was(tmp_path: Path) -> None:
    log = write_log(tmp_path, 3)
    log.path.unlink()
    with pytest.raises(InputError, match=r"was removed: access\.head states its end"):
        log.verify()


def test_names_taken_out_without_entry_of_forgetting_are_detected(tmp_path: Path) -> None:
    log = write_log(tmp_path, 6)
    log.forget(["3"])
    assert "forgotten" in str(log.verify().fault)


def test_id_that_is_no_text_has_a_pseudonym(tmp_path: Path) -> None:
    log = AccessLog(tmp_path / NAME)
    log.append(build_entry("otto", "ask", "ward", "1\0\ud800", ["note:1"]))
    assert log.verify().fault is None


def test_restored_copy_of_log_with_its_neighbours_is_continued(tmp_path: Path) -> None:
    write_log(tmp_path / "a", 3)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    copy = AccessLog(tmp_path / "b" / NAME)
    asyncio.run(copy.record("maria", "ask", "ward", "7", []))
    assert copy.verify().fault is None
