"""A library of three documents, by the encoder that needs no download."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from epicrisis import Document, Library
from epicrisis.testing.hashing_encoder import HashingEncoder

DOCUMENTS = (
    Document("pubmed:1", "Aspirin lowers the risk of preterm pre-eclampsia.", title="Aspirin", date="2017"),
    Document("pubmed:2", "Simvastatin lowers mortality in coronary disease.", title="Statins", date="1994"),
    Document("pubmed:3", "Zinc shortens acute diarrhoea in children.", title="Zinc", date="2002"),
    Document("pubmed:4", "Folate before conception prevents neural tube defects.", title="Folate", date="1991"),
)


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    with Library.create(tmp_path / "library", encoder=HashingEncoder(64)) as opened:
        opened.add(*DOCUMENTS)
        yield opened


@pytest.fixture
def ward(tmp_path: Path) -> Iterator[Library]:
    """The records of two patients."""
    with Library.create(tmp_path / "ward", encoder=HashingEncoder(64)) as opened:
        for patient in ("anna", "bert"):
            opened.add(Document(f"note:{patient}", f"Colchicine was given to {patient}.", patient=patient))
        yield opened
