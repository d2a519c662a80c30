"""The word index after a writer that was killed while tantivy merged segments."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from epicrisis.core.types import Passage
from epicrisis.library.base.passage_table import StoredPassage
from epicrisis.library.engines.word_index import WordIndex

BATCHES = 8
"""So many segments of one size are merged."""
DOCUMENTS = 10


def _passages(document_ids: Sequence[str], text: str) -> list[StoredPassage]:
    passages = []
    for document_id in document_ids:
        passage = Passage(id=f"{document_id}#0", document_id=document_id, ordinal=0, text=text, start=0, end=len(text))
        passages.append(StoredPassage(passage, text, None))
    return passages


def _write_and_die(folder: Path, deleted: str) -> None:
    """Write the batches, delete one document with the last of them, and die before they are merged."""
    index = WordIndex(folder, create=True)
    for batch in range(BATCHES):
        ids = [f"{batch}-{number}" for number in range(DOCUMENTS)]
        index.replace([deleted, *ids] if batch == BATCHES - 1 else ids, _passages(ids, "old"))
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(1, 5))
def test_first_replacement_after_kill_removes_old_passages(tmp_path: Path, batch: int) -> None:
    deleted, changed = f"{batch}-0", f"{batch}-1"
    command = [sys.executable, "-m", "tests.library.test_word_index", str(tmp_path), deleted]
    killed = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    index = WordIndex(tmp_path)
    index.replace([changed], _passages([changed], "new"))
    # Waits for the merges.
    index.close()
    index = WordIndex(tmp_path)
    assert index.count() == BATCHES * DOCUMENTS - 1
    assert len(index.entries([f"{changed}#0"])) == 1


if __name__ == "__main__":
    _write_and_die(Path(sys.argv[1]), sys.argv[2])
