"""Each kind of fact is described once, and read from the formats that its description says."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

import epicrisis
from epicrisis.core.fact_kinds import KINDS, LASTING_KINDS, VALUE_KINDS, FactKind, RecordFormat

READERS: dict[RecordFormat, str] = {
    "fhir": "fhir/*.py",
    "ccda": "ccda/*.py",
    "hl7": "hl7/*.py",
    "omop": "facts/omop.py",
    "mimic": "facts/mimic.py",
}


def test_every_kind_is_described() -> None:
    assert sorted(KINDS) == sorted(get_args(FactKind))
    assert LASTING_KINDS == ("problem", "allergy", "medication")
    assert sorted(VALUE_KINDS) == ["laboratory", "observation", "vital-sign"]


@pytest.mark.parametrize("format", READERS)
def test_reader_serves_all_kinds_but_those_that_name_it(format: RecordFormat) -> None:
    folder = Path(epicrisis.__file__).parent / "corpus" / "records"
    source = "".join(path.read_text(encoding="utf-8") for path in folder.glob(READERS[format]))
    served = {name for name in KINDS if f'"{name}"' in source}
    assert served == {name for name, kind in KINDS.items() if format not in kind.not_read_from}
