"""Parsers in a child process: a file that hangs, swells or crashes one is skipped, and the next one is read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from epicrisis.core.types import Document
from epicrisis.corpus import sandbox
from epicrisis.corpus.base.reader_base import Skipped
from epicrisis.corpus.documents import html, pdf
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.system.process_limits import set_soft_limit
from tests.corpus.test_pages import _file, made_pdf

GIB = 1024**3


@pytest.fixture(autouse=True)
def _new_child() -> Iterator[None]:
    """Start each test without a child, and leave none with a test's limits."""
    sandbox._CHILD.end()
    yield
    sandbox._CHILD.end()


@pytest.fixture(scope="module")
def slow_pdf() -> bytes:
    """A PDF whose page takes long to read."""
    return pdf_that_unpacks_to(192 * 1024**2)


def pdf_that_unpacks_to(size: int) -> bytes:
    """A PDF of a few kB: a page whose content unpacks, twice, to `size` bytes, and keeps PDFium busy for seconds."""
    packer = zlib.compressobj(9)
    piece = b"(a) Tj " * 150_000
    pieces = [packer.compress(piece) for _ in range(size // len(piece))]
    packed = zlib.compress(b"".join([*pieces, packer.flush()]), 9)
    content = b"<< /Length %d /Filter [/FlateDecode /FlateDecode] >>\nstream\n%s\nendstream" % (len(packed), packed)
    page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R >>"
    pages = b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>"
    return _file([b"<< /Type /Catalog /Pages 2 0 R >>", pages, page, content], b"/Root 1 0 R")


def pdf_of_repeated_pages(levels: int) -> bytes:
    """A PDF whose page tree names one page 10 ** levels times."""
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>"]
    for level in range(levels):
        kids = b" ".join([b"%d 0 R" % (level + 3)] * 10)
        objects.append(b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, 10 ** (levels - level)))
    objects.append(b"<< /Type /Page /MediaBox [0 0 9 9] >>")
    return _file(objects, b"/Root 1 0 R")


def put(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def reason_of(kind: str, path: Path) -> str:
    (item,) = sandbox.read_file(kind, path, path.name)
    assert isinstance(item, Skipped)
    assert (item.path, item.where) == (str(path), "")
    assert "\n" not in item.reason
    return item.reason


def while_it_reads(act: Callable[[int], None]) -> threading.Thread:
    """Act on the child, by its process id, a second after it was started."""

    def wait() -> None:
        deadline = time.monotonic() + 30
        while sandbox._CHILD._process is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(1)
        process = sandbox._CHILD._process
        assert process is not None
        act(process.pid)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@pytest.mark.slow
def test_child_process_returns_same_items_as_reader(tmp_path: Path) -> None:
    paper = put(tmp_path, "a.pdf", made_pdf([["Café – one."], ["Two."]], "The title"))
    page = put(tmp_path, "b.html", "<title>T</title><p>10<sup>9</sup> naïve \U0001f600".encode())
    assert list(sandbox.read_file("pdf", paper, "x/a.pdf")) == list(pdf.read_document(paper, "x/a.pdf"))
    assert list(sandbox.read_file("html", page, "x/b.html")) == list(html.read_document(page, "x/b.html"))
    assert list(sandbox.read_file("pdf", tmp_path / "none", "none")) == list(
        pdf.read_document(tmp_path / "none", "none")
    )
    assert sandbox.page_text(b"<p>one<p>two") == "one\ntwo"
    with pytest.raises(ValueError, match="names an unknown encoding"):
        sandbox.page_text(b"<meta charset=klingon>x")


@pytest.mark.long
def test_one_child_process_reads_all_files(tmp_path: Path) -> None:
    path = put(tmp_path, "a.html", b"<p>x")
    # The parent may be large: that is no reason to replace the child.
    held = bytearray(600 * 1024**2)
    held[::4096] = b"x" * len(held[::4096])
    list(sandbox.read_file("html", path, "a.html"))
    assert sandbox._CHILD._process is not None
    first = sandbox._CHILD._process.pid
    list(sandbox.read_file("html", path, "a.html"))
    assert sandbox._CHILD._process.pid == first


@pytest.mark.long
def test_file_over_time_limit_is_skipped_and_rest_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow_pdf: bytes
) -> None:
    monkeypatch.setattr(sandbox, "SECONDS", 1)
    put(tmp_path, "a.pdf", made_pdf([["First."]]))
    slow = put(tmp_path, "b.pdf", slow_pdf)
    put(tmp_path, "c.html", b"<p>Third.")
    assert slow.stat().st_size < 10_000
    items = list(read_sources([tmp_path]))
    assert [item.text for item in items if isinstance(item, Document)] == ["First.", "Third."]
    (skipped,) = (item for item in items if isinstance(item, Skipped))
    assert skipped.path == str(slow)
    assert skipped.reason == ("its parser took longer than 1 s and was stopped; split the file, or save it as text")


@pytest.mark.slow
def test_file_whose_parser_waits_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a busy machine: the limit is one of processor time."""
    list(sandbox.read_file("html", put(tmp_path, "a.html", b"<p>First."), "a.html"))
    monkeypatch.setattr(sandbox, "SECONDS", 1)
    path = tmp_path / "b.html"
    os.mkfifo(path)
    writer = threading.Timer(1.5, path.write_bytes, (b"<p>Second.",))
    writer.start()
    (document,) = sandbox.read_file("html", path, "b.html")
    writer.join()
    assert isinstance(document, Document)
    assert document.text == "Second."
    monkeypatch.setattr(sandbox, "WAITING", 1)
    (skipped,) = sandbox.read_file("html", path, "b.html")
    assert isinstance(skipped, Skipped)
    assert "took longer than 1 s" in skipped.reason


@pytest.mark.long
@pytest.mark.skipif(sys.platform == "darwin", reason="macOS does not limit the address space")
def test_file_over_memory_limit_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow_pdf: bytes) -> None:
    page = put(tmp_path, "a.html", b"<p>text</p>\n" * 1_000_000)
    monkeypatch.setattr(sandbox, "MEMORY", GIB // 4)
    # lexbor says so, PDFium and Python do not return: in every case it is this file alone.
    reason = reason_of("html", page)
    assert "memory" in reason or "rejects" in reason
    reason = reason_of("pdf", put(tmp_path, "b.pdf", slow_pdf))
    assert "memory" in reason or reason.startswith("no text on any page")
    (item,) = sandbox.read_file("html", put(tmp_path, "c.html", b"<p>x"), "c.html")
    assert isinstance(item, Document)


@pytest.mark.long
def test_file_with_growing_nested_headings_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each section repeats the titles around it: 14 MB of XML are 1.7 GB of text."""
    monkeypatch.setattr(sandbox, "MEMORY", GIB)
    sections = b"".join(b"<sec><title>%s</title><p>x</p>" % (b"t" * 60_000) for _ in range(240))
    article = b"<article><body>%s%s</body></article>" % (sections, b"</sec>" * 240)
    assert "memory" in reason_of("nxml", put(tmp_path, "a.nxml", article))


@pytest.mark.long
@pytest.mark.parametrize("sent", [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL])
def test_crash_of_parser_skips_one_file(tmp_path: Path, sent: signal.Signals, slow_pdf: bytes) -> None:
    slow = put(tmp_path, "a.pdf", slow_pdf)
    thread = while_it_reads(lambda pid: os.kill(pid, sent))
    reason = reason_of("pdf", slow)
    thread.join()
    assert reason.startswith(f"its parser crashed ({sent.name}), or ran out of memory; save the file as text")
    (item,) = sandbox.read_file("html", put(tmp_path, "b.html", b"<p>x"), "b.html")
    assert isinstance(item, Document)


@pytest.mark.slow
def test_dead_child_process_is_restarted(tmp_path: Path) -> None:
    path = put(tmp_path, "a.html", b"<p>x")
    list(sandbox.read_file("html", path, "a.html"))
    assert sandbox._CHILD._process is not None
    sandbox._CHILD._process.kill()
    sandbox._CHILD._process.wait()
    (item,) = sandbox.read_file("html", path, "a.html")
    assert isinstance(item, Document)


@pytest.mark.slow
def test_pdf_with_repeated_page_references_is_skipped(tmp_path: Path) -> None:
    path = put(tmp_path, "a.pdf", pdf_of_repeated_pages(6))
    assert path.stat().st_size < 1100
    assert reason_of("pdf", path) == "1,000,000 pages, and the limit is 100,000; split it"


@pytest.mark.slow
def test_interrupt_ends_reading_and_child_process(tmp_path: Path, slow_pdf: bytes) -> None:
    path = put(tmp_path, "a.pdf", slow_pdf)
    code = (
        "import signal, sys; from pathlib import Path; from epicrisis.corpus import sandbox\n"
        # A shell starts its background jobs with Ctrl-C ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "sandbox._CHILD._send(b'', b''); print(sandbox._CHILD._process.pid, flush=True)\n"
        "list(sandbox.read_file('pdf', Path(sys.argv[1]), 'a.pdf'))"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    time.sleep(1)
    parent.send_signal(signal.SIGINT)
    _, complaint = parent.communicate(timeout=30)
    assert b"KeyboardInterrupt" in complaint
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/limits").exists(), reason="needs /proc")
def test_child_process_does_not_inherit_the_limit_of_processor_time() -> None:
    """It reads file after file, and the limit of an import is one of the time for a file."""
    set_soft_limit("RLIMIT_CPU", 100_000)
    try:
        assert sandbox.page_text(b"<p>x") == "x"
    finally:
        set_soft_limit("RLIMIT_CPU", None)
    assert sandbox._CHILD._process is not None
    lines = Path(f"/proc/{sandbox._CHILD._process.pid}/limits").read_text(encoding="ascii").splitlines()
    (line,) = (line for line in lines if line.startswith("Max cpu time"))
    assert "100000" not in line


@pytest.mark.slow
def test_child_process_has_no_api_keys_and_no_local_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "selectolax.py", b"raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    assert sandbox.page_text(b"<p>x") == "x"
    assert sandbox._CHILD._process is not None
    environment = Path(f"/proc/{sandbox._CHILD._process.pid}/environ")
    if environment.exists():
        assert b"secret" not in environment.read_bytes()
