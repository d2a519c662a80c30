"""Every erratum that code or documentation cites is defined in docs/reference/errata.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CITATION = re.compile(r"\berrata\s+((?:[BCEMP]\d{1,2}(?:\s*(?:,|and|to)\s*)?)+)")
CODE = re.compile(r"[BCEMP]\d{1,2}")
DEFINITION = re.compile(r"^\| ([BCEMP]\d{1,2}) \|", re.MULTILINE)


def cited_codes(text: str) -> set[str]:
    """Return the codes cited in a text, also over line breaks."""
    codes: set[str] = set()
    for citation in CITATION.findall(re.sub(r"\s+", " ", text)):
        codes.update(CODE.findall(citation))
    return codes


def citing_files() -> list[Path]:
    folders = (ROOT / "src", ROOT / "docs", ROOT / "benchmarks")
    files = [ROOT / "README.md"]
    for folder in folders:
        files.extend(path for path in sorted(folder.rglob("*")) if path.suffix in {".py", ".md", ".toml", ".jinja"})
    return files


@pytest.mark.slow
def test_cited_errata_are_defined() -> None:
    defined = set(DEFINITION.findall((ROOT / "docs" / "reference" / "errata.md").read_text(encoding="utf-8")))
    undefined: dict[str, set[str]] = {}
    citations = 0
    for path in citing_files():
        codes = cited_codes(path.read_text(encoding="utf-8"))
        citations += len(codes)
        if codes - defined:
            undefined[str(path.relative_to(ROOT))] = codes - defined
    assert citations > 50
    assert undefined == {}


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("a drop (errata B2).", {"B2"}),
        ("see errata M1, P2 and E4: three", {"M1", "P2", "E4"}),
        ("errata\n    E10", {"E10"}),
        ("errata of the papers, B2", set()),
    ],
)
def test_cited_codes_in_text_are_recognised(text: str, codes: set[str]) -> None:
    assert cited_codes(text) == codes
