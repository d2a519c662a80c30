"""Read files that are embedded in records as bytes: PDF, RTF and other office files, HTML, and text.

    text = read_embedded(data, "application/pdf")

The beginning of the data decides on its format, because the declared type is often wrong. Call this only in the child
process of `sandbox`, except for plain text; elsewhere call `sandbox.read_embedded`.
"""

from __future__ import annotations

import codecs
import io
import re
import zipfile
from dataclasses import dataclass

from epicrisis.core.types import Document
from epicrisis.corpus.base.encodings import decode_text
from epicrisis.corpus.base.reader_base import FileRemark, OmittedText, Skipped
from epicrisis.corpus.documents import html, office, pdf

_PICTURES = (
    (b"\x89PNG", "PNG"),
    (b"\xff\xd8\xff", "JPEG"),
    (b"GIF8", "GIF"),
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
    (b"BM", "BMP"),
)
_OLD_OFFICE = b"\xd0\xcf\x11\xe0"
_PAGE = re.compile(
    rb"\s*(?:<\?xml[^>]{0,200}>\s*)?(?:<!--[^>]{0,2000}-->\s*)?<(?:!doctype\s+html|html|head|body|div|p|table|span)\b",
    re.IGNORECASE,
)
_TAG = re.compile(rb"<[A-Za-z!?/]")
_XML = re.compile(rb"\s{0,100}<\?xml\b")
_FHIR = re.compile(rb"\s{0,100}\{[^{}]{0,1000}\"resourceType\"")
_CLINICAL_DOCUMENT = re.compile(rb"<(?:\w+:)?ClinicalDocument[\s>]")
_OFFICE_FOLDERS = {"word/": "docx", "ppt/": "pptx"}
_BEGINNING_BYTES = 4096


@dataclass(frozen=True, slots=True)
class EmbeddedText:
    """The text of an embedded file. Each of `headings` is a line of it that begins a section."""

    text: str
    headings: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    """What was not read, or read with doubt: `2 pages without text: ...`."""


def read_embedded(data: bytes, content_type: str = "") -> EmbeddedText:
    """Return the text of a file. Raises ValueError with the reason if it is none of the formats, or has no text."""
    format = detect_embedded(data, content_type)
    if format in ("pdf", "docx", "pptx", "odt", "odp", "rtf"):
        return _read_file(data, format)
    if format == "html":
        result = EmbeddedText(html.page_text(data))
    elif format == "text":
        result = EmbeddedText(_decode(data, content_type))
    elif format == "ccda":
        raise ValueError("a C-CDA document within another; save it as a file of its own")
    else:
        raise ValueError(f"{format}, which is not read; export its text, or save it as PDF")
    if not result.text.strip():
        raise ValueError("holds no text")
    return result


def detect_embedded(data: bytes, content_type: str = "") -> str:
    """Return `pdf`, `rtf`, `docx`, `pptx`, `odt`, `odp`, `html`, `ccda` or `text`, else the name of what it is."""
    beginning = data[:_BEGINNING_BYTES]
    if format := _detect_by_magic(data, content_type):
        return format
    without_nul = beginning.replace(b"\0", b"")
    if _CLINICAL_DOCUMENT.search(without_nul):
        return "ccda"
    kind = content_type.partition(";")[0].strip().lower()
    is_page = kind in ("text/html", "application/xhtml+xml") and _TAG.search(data.replace(b"\0", b""))
    if is_page or _PAGE.match(without_nul.removeprefix(b"\xef\xbb\xbf")):
        return "html"
    if _XML.match(without_nul.removeprefix(b"\xef\xbb\xbf")):
        return "XML of an unknown kind"
    if _FHIR.match(without_nul):
        return "a FHIR resource within a resource"
    if kind.startswith(("image/", "audio/", "video/")):
        return f"a file of the type {kind}"
    is_declared = "charset=" in content_type or beginning.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return "text" if is_declared or b"\0" not in beginning else "a binary file"


def _detect_by_magic(data: bytes, content_type: str) -> str:
    """Return the format that the first bytes show, or an empty string."""
    beginning = data[:1024]
    for magic, picture in _PICTURES:
        if beginning.startswith(magic) and not content_type.startswith("text/"):
            return f"a picture ({picture})"
    if b"%PDF-" in beginning:
        return "pdf"
    if beginning.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{\\rtf"):
        return "rtf"
    if beginning.startswith(_OLD_OFFICE):
        return "a Word file of the old format"
    return _detect_package(data) if beginning.startswith(b"PK\x03\x04") else ""


def _detect_package(data: bytes) -> str:
    """Return the format of a ZIP file."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as package:
            names = package.namelist()
            if "mimetype" in names and package.getinfo("mimetype").file_size < 100:
                kind = package.read("mimetype").decode("ascii", "replace").rpartition(".")[2]
                return {"text": "odt", "presentation": "odp"}.get(kind, "a ZIP file")
    except (zipfile.BadZipFile, OSError, NotImplementedError, RuntimeError):
        return "a broken ZIP file"
    for folder, format in _OFFICE_FOLDERS.items():
        if any(name.startswith(folder) for name in names):
            return format
    return "a ZIP file"


def _read_file(data: bytes, format: str) -> EmbeddedText:
    """Return the text of a PDF or office file. Raises ValueError with the reason."""
    name = f"attachment.{format}"
    items = pdf.read_pdf(data, name) if format == "pdf" else office.read_office(data, name)
    text = ""
    headings: tuple[str, ...] = ()
    remarks: list[str] = []
    for item in items:
        if isinstance(item, Skipped):
            raise ValueError(item.reason)  # noqa: TRY004 - a file without text is no wrong type
        if isinstance(item, Document):
            text = item.text
            titles = (str(section[2]) for section in item.metadata.get("sections", ()))
            headings = tuple(dict.fromkeys(titles))
        elif isinstance(item, FileRemark):
            remarks.append(f"{item.count} {item.noun}{'' if item.count == 1 else 's'} {item.text}")
        elif isinstance(item, OmittedText):
            remarks.append(f"{len(item.texts)} running lines of pages left out")
    return EmbeddedText(text, headings, tuple(remarks))


def _decode(data: bytes, content_type: str) -> str:
    """Return text as UTF-8 if it is, else in the declared encoding, else in the one that its bytes show.

    Text of other encodings is UTF-8 by chance only if it is ASCII, NUL and escape characters aside. Raises ValueError.
    """
    charset = content_type.partition("charset=")[2].partition(";")[0].strip(" \"'")
    candidates = [charset] if charset else []
    if not (b"\0" in data or b"\x1b" in data or data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))):
        candidates.insert(0, "utf-8-sig")
    for candidate in candidates:
        try:
            # As in browsers: text declared as Latin-1 is Windows-1252.
            encoding = html.text_encoding(candidate)
            return data.decode("cp1252" if encoding == "iso8859-1" else encoding)
        except (UnicodeDecodeError, LookupError):
            continue
    return decode_text(data)[0]
