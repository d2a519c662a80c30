"""Serve a question set of one question on loopback."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from epicrisis.evaluation.datasets.dataset import Dataset
from epicrisis.evaluation.datasets.load import PinnedSet, parse_catalogue
from epicrisis.evaluation.datasets.pinned_readers import read_mirage

NAME = "mirage/bioasq"
BODY = json.dumps(
    {"bioasq": {"5c": {"question": "Is it?", "options": {"A": "yes", "B": "no"}, "answer": "B", "PMID": [7]}}}
)


def hosted(url: str, tmp_path: Path, sha256: str | None = None) -> Mapping[str, PinnedSet]:
    """Return a catalogue with one set, whose file is `benchmark.json` at `url`."""
    path = tmp_path / "as-pinned.json"
    path.write_text(BODY)
    rows = Dataset(NAME, read_mirage(path, "bioasq"), {}).sha256
    text = f'sha256 = "{sha256}"' if sha256 else ""
    return parse_catalogue(
        f'[[files]]\npath = "mirage/benchmark.json"\nurl = "{url}/benchmark.json"\nlicence = "MIT"\n{text}\n'
        f'[[sets]]\nname = "{NAME}"\ndescription = "one question"\nfiles = ["mirage/benchmark.json"]\n'
        f'count = 1\nsha256 = "{rows}"\n'
    )
