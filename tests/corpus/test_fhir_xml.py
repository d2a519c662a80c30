"""FHIR in XML, which is not read: named with the cure, and without ending the reading of other files."""

from __future__ import annotations

import codecs
from pathlib import Path

import pytest

from epicrisis.core.types import Document
from epicrisis.corpus.base.reader_base import Skipped
from epicrisis.corpus.readers.sources import detect_format, read_sources
from tests.support.ccda_documents import document, section

PATIENT = '<Patient xmlns="http://hl7.org/fhir"><id value="p1"/></Patient>'


@pytest.mark.parametrize(
    "data",
    [
        PATIENT.encode(),
        b'<?xml version="1.0"?>\n<!-- export -->' + PATIENT.encode(),
        codecs.BOM_UTF8 + PATIENT.encode(),
        PATIENT.encode("utf-16"),
    ],
)
def test_fhir_in_xml_is_named_with_its_cure_beside_other_files(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "patient.xml").write_bytes(data)
    (tmp_path / "summary.xml").write_text(document([section("Course", "Uneventful.")]), encoding="utf-8")
    items = list(read_sources([tmp_path]))
    assert [item.reason for item in items if isinstance(item, Skipped)] == [
        "FHIR in XML, which is not read; export it as JSON (`_format=json` in the address of a server's request)"
    ]
    assert len([item for item in items if isinstance(item, Document)]) == 1


def test_other_xml_is_no_fhir(tmp_path: Path) -> None:
    (tmp_path / "list.xml").write_text("<plist/>", encoding="utf-8")
    (tmp_path / "summary.xml").write_text(document([section("Course", "See http://hl7.org/fhir.")]), encoding="utf-8")
    assert detect_format(tmp_path / "list.xml") is None
    assert detect_format(tmp_path / "summary.xml") == "ccda"
