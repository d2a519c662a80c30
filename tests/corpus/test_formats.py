"""A format is one object: its endings, its reader, and the sandbox follow from it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import epicrisis
from epicrisis.corpus.readers.formats import FORMATS
from epicrisis.corpus.readers.sources import FORMAT_BY_SUFFIX

EPUB = '''
"""Read the text of an EPUB book."""

import re
import zipfile

from epicrisis.core.types import Document


def read_document(path, name):
    with zipfile.ZipFile(path) as book:
        pages = [book.read(each).decode() for each in book.namelist() if each.endswith(".xhtml")]
    yield Document(f"file:{name}", " ".join(re.sub("<[^>]*>", " ", " ".join(pages)).split()))
'''
OBJECT = """    Format(
        name="epub",
        help="books",
        reader="epub.read_document",
        suffixes=(".epub",),
        in_sandbox=True,
        names_documents=True,
    ),
"""
READ = """
import sys
from pathlib import Path
from epicrisis.corpus import sandbox
from epicrisis.corpus.readers.sources import detect_format, read_sources
document, fingerprint = read_sources([Path(sys.argv[1])])
print(detect_format(Path(sys.argv[1])), document.id, document.text, sandbox._CHILD is not None)
"""


@pytest.mark.slow
def test_new_format_is_one_object_and_its_reader(tmp_path: Path) -> None:
    source, package = Path(epicrisis.__file__).parent, tmp_path / "src" / "epicrisis"
    package.mkdir(parents=True)
    for path in source.iterdir():
        if path.name != "corpus":
            (package / path.name).symlink_to(path)
    # The sandbox finds the package beside its own file, and the formats are changed.
    shutil.copytree(source / "corpus", package / "corpus", ignore=shutil.ignore_patterns("__pycache__"))
    formats = package / "corpus" / "readers" / "formats.py"
    text = formats.read_text(encoding="utf-8")
    formats.write_text(text.replace("_FORMATS = (\n", f"_FORMATS = (\n{OBJECT}", 1), encoding="utf-8")
    (package / "corpus" / "epub.py").write_text(EPUB, encoding="utf-8")
    with zipfile.ZipFile(tmp_path / "book.epub", "w") as book:
        book.writestr("one.xhtml", "<p>Aspirin thins the blood.</p>")
    done = subprocess.run(
        [sys.executable, "-c", READ, tmp_path / "book.epub"],
        env={"PYTHONPATH": str(tmp_path / "src"), "PATH": "", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "epub file:book.epub Aspirin thins the blood. True\n", done.stderr


def test_an_ending_belongs_to_one_format() -> None:
    endings = [suffix for each in FORMATS.values() for suffix in each.suffixes]
    assert len(endings) == len(set(endings))
    assert all(FORMAT_BY_SUFFIX[suffix] == each.name for each in FORMATS.values() for suffix in each.suffixes)
