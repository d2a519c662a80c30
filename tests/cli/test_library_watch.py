"""`epicrisis library add --watch`, as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run

CODE = (
    "import sys; from epicrisis.cli import library_watch; library_watch.SCAN_SECONDS = 0.05\n"
    "from epicrisis.cli.program import app; app(sys.argv[1:], prog_name='epicrisis')\n"
)


@pytest.mark.long
@pytest.mark.models
def test_watch_adds_what_appears_survives_bad_files_and_ends_with_a_summary(
    tmp_path: Path, run: Run, model_home: Path
) -> None:
    inbox, library = tmp_path / "inbox", tmp_path / "library"
    inbox.mkdir()
    (inbox / "first.txt").write_text("Aspirin.")
    command = [sys.executable, "-c", CODE, "library", "add", str(library), "--watch", str(inbox)]
    environment = {**os.environ, "EPICRISIS_HOME": str(model_home)}
    with subprocess.Popen(
        command, text=True, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None

        def wait_for(part: str) -> str:
            assert process.stderr is not None
            for line in process.stderr:
                if part in line:
                    return line
            raise AssertionError(f"the process ended without {part!r}")

        wait_for("first.txt: 1 document added")
        (inbox / "bad.xyz").write_text("Nothing to read.")
        wait_for("bad.xyz: 0 documents added, 1 skipped")
        (inbox / "deep").mkdir()
        (inbox / "deep/second.md").write_text("# Zinc\n\nZinc shortens colds.")
        wait_for("second.md: 1 document added")
        (inbox / "first.txt").write_text("Aspirin and more.")
        wait_for("first.txt: 0 documents added, 1 replaced")
        (inbox / "deep/second.md").unlink()
        (inbox / "third.txt").write_text("Iron.")
        wait_for("third.txt: 1 document added")
        (inbox / "latin.txt").write_bytes("Müller hat Übelkeit und Fieber.".encode("cp1252"))
        wait_for("note: 1 file read as cp1252")
        words = library / "words"
        words.rename(tmp_path / "words")
        (inbox / "late.txt").write_text("Vitamin K.")
        wait_for("warning: 1 file not added:")
        (tmp_path / "words").rename(words)
        wait_for("late.txt: 1 document added")
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    lines = output.splitlines()
    assert lines[0] == "stopped watching: 5 documents added, 1 replaced, 1 skipped"
    assert lines[1].startswith("1 file no longer there; their documents stay")
    assert '"documents": 5' in run("library", "info", library, "--json").stdout


@pytest.mark.parametrize(("sources", "part"), [([], "nothing to add"), (["missing"], "is not a folder")])
def test_watch_without_a_folder_is_refused(sources: list[str], part: str, run: Run, tmp_path: Path) -> None:
    result = run("library", "add", tmp_path / "library", "--watch", *(tmp_path / name for name in sources))
    assert result.exit_code == 2
    assert part in result.stderr
    assert not (tmp_path / "library").exists()
