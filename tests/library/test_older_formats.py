"""Libraries that version 0.1.0 wrote: read, searched, added to and copied without encoding a passage again."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from epicrisis.core.errors import LibraryDamaged
from epicrisis.core.types import Scope
from epicrisis.library.copying import copy_library
from epicrisis.library.health import check_health
from epicrisis.library.library import LibraryStore
from epicrisis.library.manifest import FORMAT, NAME
from epicrisis.testing.stores import build_stored_document
from tests.support.old_libraries import unpack

OLD_FORMAT = 2


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    return unpack(tmp_path) / "papers"


@pytest.fixture
def ward(tmp_path: Path) -> Path:
    return unpack(tmp_path) / "ward"


def read_format(folder: Path) -> int:
    return int(json.loads((folder / NAME).read_text(encoding="utf-8"))["format"])


def read_vectors(library: LibraryStore, *documents: str) -> dict[str, list[float]]:
    vectors = library.vectors_of(documents)
    return {text: [float(value) for value in vector] for (_, text), vector in vectors.items()}


def test_library_of_0_1_0_is_read_and_searched(papers: Path) -> None:
    assert read_format(papers) == OLD_FORMAT
    with LibraryStore.open(papers) as library:
        assert library.count() == (3, 3)
        assert [hit.id for hit in library.search_words("diarrhoea", 5, Scope())] == ["c#0"]
        (passage,) = library.fetch(["c#0"], Scope())
        assert (passage.text, str(passage.date)) == ("Zinc shortens acute and persistent diarrhoea.", "2003")
        vectors = library.vectors_of(["a"])
        (vector,) = vectors.values()
        assert library.search_vectors(np.asarray(vector), 1, Scope())[0].id == "a#0"
        assert check_health(library).problems == ()


def test_library_of_0_1_0_keeps_patients_apart(ward: Path) -> None:
    with LibraryStore.open(ward) as library:
        assert library.search_words("aspirin", 5, Scope()) == ()
        assert [hit.id for hit in library.search_words("aspirin", 5, Scope(patient="7"))] == ["n1#0"]
        assert library.search_words("aspirin", 5, Scope(patient="8")) == ()
        assert [passage.id for passage in library.fetch_record(Scope(patient="8"))] == ["n2#0"]


@pytest.mark.slow
def test_library_of_0_1_0_is_changed_and_stays_sound(papers: Path) -> None:
    with LibraryStore.open(papers, write=True) as library:
        before = read_vectors(library, "a", "b")
        vector = np.full((1, library.manifest.dimensions), 384**-0.5, dtype=np.float32)
        library.add([dataclasses.replace(build_stored_document("new", "a trial of warfarin"), vectors=vector)])
        library.delete(["b"])
        library.optimize()
    with LibraryStore.open(papers) as library:
        assert library.count() == (3, 3)
        assert [hit.id for hit in library.search_words("warfarin", 5, Scope())] == ["new#0"]
        assert library.search_words("simvastatin", 5, Scope()) == ()
        assert read_vectors(library, "a").items() <= before.items()
        assert check_health(library).problems == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["papers", "ward"])
def test_copy_of_a_0_1_0_library_has_the_newest_format_and_the_same_vectors(name: str, tmp_path: Path) -> None:
    source = unpack(tmp_path) / name
    report = copy_library(source, tmp_path / "copy")
    assert read_format(tmp_path / "copy") == FORMAT > OLD_FORMAT
    with LibraryStore.open(source) as old, LibraryStore.open(tmp_path / "copy") as new:
        documents = ["a", "b", "c", "n1", "n2"]
        assert read_vectors(old, *documents) == read_vectors(new, *documents)
        assert report.documents == new.count()[0] > 0
        assert check_health(new).problems == ()


def test_library_of_a_newer_format_names_the_cure(papers: Path) -> None:
    manifest = json.loads((papers / NAME).read_text(encoding="utf-8"))
    (papers / NAME).write_text(json.dumps({**manifest, "format": FORMAT + 1}), encoding="utf-8")
    with pytest.raises(LibraryDamaged, match="install a newer epicrisis"):
        LibraryStore.open(papers)
