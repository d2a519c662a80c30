"""Read the texts of attachments: their data, a Binary of the export, or a file next to it. Nothing is fetched.

A Binary or a file that documents of two patients name, or that says itself whose it is, is read for its patient alone.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import unquote

from epicrisis.corpus import sandbox
from epicrisis.corpus.base.patient_numbers import StatedPerson
from epicrisis.corpus.base.reader_base import PatientIdentity, read_limited, real_path
from epicrisis.corpus.documents.embedded_files import EmbeddedText, detect_embedded, read_embedded
from epicrisis.corpus.records.ccda.clinical_documents import ClinicalDocument, describe_missing_text
from epicrisis.corpus.records.fhir.export_index import ExportIndex
from epicrisis.corpus.records.fhir.fhir_references import (
    FhirReferences,
    find_contained,
    find_patient,
    find_server,
    split_address,
)
from epicrisis.corpus.records.fhir.fhir_resources import Resource, list_objects

MAX_FILE_BYTES = 128 * 1024 * 1024
"""Limit of a file beside the export."""
_PREFERRED = ("text", "html", "ccda", "rtf", "docx", "odt", "pdf")
"""The formats of one document from the best to the worst: those that lose nothing come first."""
_TEXT_TYPES = ("text/", "application/xhtml+xml", "application/xml", "application/hl7")
_RECORD_SUFFIXES = (".csv", ".tsv", ".json", ".ndjson", ".jsonl", ".gz", ".hl7", ".sqlite", ".db")
"""Endings of files with the data of many patients."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{1,20}:")
_WORD = re.compile(r"\w+")
_NOT_BASE64 = re.compile(r"[^A-Za-z0-9+/=_-]")
_NOT_FETCHED = "its text is at an address, and nothing is fetched; export it with the attachments' data"
_NO_BINARY = "its text is in a Binary that is not in the export; export the Binary resources with it"
_TWO_OWNERS = "its text is also that of another patient's document, so it may be either's; export it again"


@dataclass(frozen=True, slots=True)
class ExportFile:
    """A file of the export. Files that attachments name must be below `root`, and none of `sources`."""

    path: Path
    number: int
    root: Path
    sources: Collection[Path]


@dataclass(frozen=True, slots=True)
class AttachmentTexts:
    """The best text of the attachments of a document, its format, and remarks on the others."""

    text: str
    headings: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    clinical: tuple[bytes, ...] = ()
    """Digests of the C-CDA documents among the attachments, see `ExportIndex.read_text`."""


@dataclass(frozen=True, slots=True)
class AttachmentReader:
    """Reads the attachments of the resources of one file."""

    index: ExportIndex
    references: FhirReferences
    file: ExportFile

    def find_key(self, url: str) -> str:
        """Return `Binary/<id>` or `file:<path>` for the address of an attachment, or an empty string."""
        kind, resource_id = self.references.addresses.get(url) or split_address(url.partition("?")[0])
        if url.startswith("urn:"):
            kind, resource_id = self.references.addresses.get(url, ("Binary", url.rpartition(":")[2]))
        if kind == "Binary" and resource_id:
            return f"Binary/{resource_id}"
        path = find_file(url, self.file.path.parent)
        return f"file:{path}" if path else ""

    def read_best(self, resource: Resource, attachments: Sequence[Resource], patient: str) -> AttachmentTexts:
        """Return the best text of attachments that are one document in several formats.

        Raises ValueError with the reasons if none of them can be read.
        """
        texts: list[tuple[str, EmbeddedText]] = []
        reasons: list[str] = []
        clinical: list[bytes] = []
        for attachment in attachments:
            try:
                data, content_type = self._load(resource, attachment, patient)
                format = detect_embedded(data, content_type)
                if format == "ccda":
                    clinical.append(self._store_clinical_document(data, patient))
                texts.append((format, self._read(data, content_type, patient)))
            except ValueError as error:
                reasons.append(str(error))
        if not texts:
            raise ValueError("; ".join(dict.fromkeys(reasons)) or "has no attachment; export it with its content")
        best, remarks = _choose_best(texts)
        remarks += [f"1 attachment not read beside one that was read: {reason}" for reason in dict.fromkeys(reasons)]
        return AttachmentTexts(best.text, best.headings, tuple(remarks), tuple(clinical))

    def _load(self, resource: Resource, attachment: Resource, patient: str) -> tuple[bytes, str]:
        """Return the data of an attachment and its declared type. Raises ValueError with the reason."""
        content_type, url = str(attachment.get("contentType") or ""), str(attachment.get("url") or "")
        if attachment.get("data") is not None:
            return decode_data(str(attachment["data"]), content_type), content_type
        contained = find_contained(resource, url)
        key = "" if contained else self.find_key(url)
        if key:
            if self.index.list_owners(key) - {patient}:
                raise ValueError(_TWO_OWNERS)
            if key.startswith("file:"):
                return self._load_file(Path(key.removeprefix("file:"))), content_type
            contained = self.index.read_binary(key.removeprefix("Binary/"))
            if contained is None:
                raise ValueError(_NO_BINARY)
            self._check_owner(contained, url, patient)
        if contained is None:
            raise ValueError(_NOT_FETCHED if url else "its attachment has neither data nor an address")
        data = contained.get("data") or contained.get("content")
        if contained.get("resourceType") not in (None, "Binary") or data is None:
            raise ValueError("its attachment is a resource without data; export it with its data")
        content_type = str(contained.get("contentType") or content_type)
        return decode_data(str(data), content_type), content_type

    def _check_owner(self, binary: Resource, url: str, patient: str) -> None:
        """Raise ValueError if a Binary is of another server, or says that it is of another patient."""
        server = find_server(url, "Binary")
        origin = find_server(str(binary.get("fullUrl") or ""), "Binary") or self.references.servers.get("Patient", "")
        if server and origin and server != origin:
            raise ValueError(_NO_BINARY)
        context = binary.get("securityContext")
        address = str(context.get("reference") or "") if isinstance(context, dict) else ""
        if "Patient/" in address or address.startswith("urn:"):
            owner = ""
            try:
                owner = find_patient({"subject": context}, self.references)
            except ValueError:
                owner = "" if address.startswith("urn:") else address
            if owner and owner != patient:
                raise ValueError("its Binary is another patient's; export it again")

    def _load_file(self, path: Path) -> bytes:
        """Return the content of a file that an attachment names. Raises ValueError with the reason."""
        if not path.is_relative_to(self.file.root):
            raise ValueError("its attachment is outside the folder of the export; copy the file into it")
        if path in self.file.sources or path.name.lower().endswith(_RECORD_SUFFIXES):
            raise ValueError("its attachment is a file of records, not one document; export it again")
        if not os.path.isfile(path):
            raise ValueError("its attachment is a file that is not there; copy it into the folder of the export")
        return read_limited(path, MAX_FILE_BYTES)

    def _read(self, data: bytes, content_type: str, patient: str) -> EmbeddedText:
        """Return the text of a file. Raises ValueError with the reason."""
        if detect_embedded(data, content_type) == "text":
            # Text needs no parser, and therefore no child process.
            text = read_embedded(data, content_type)
            if "\0" in text.text:
                raise ValueError("its text has NUL characters: it is no text")
            return text
        if detect_embedded(data, content_type) == "ccda":
            stored = self.index.read_text(self._store_clinical_document(data, patient)) or {}
            if not stored["text"].strip():
                raise ValueError(describe_missing_text(stored["remarks"]))
        else:
            digest = hashlib.sha256(content_type.encode() + b"\0" + data).digest()
            stored = self.index.read_text(digest) or {}
            if not stored:
                text = sandbox.read_embedded(data, content_type)
                self.index.add_text(digest, asdict(text))
                return text
        return EmbeddedText(stored["text"], tuple(stored["headings"]), tuple(stored["remarks"]))

    def _store_clinical_document(self, data: bytes, patient: str) -> bytes:
        """Store the C-CDA document of a file in the index and return its digest.

        Raises ValueError if there is not one, or if its header shows that it is another patient's.
        """
        digest = hashlib.sha256(f"ccda\0{patient}\0".encode() + data).digest()
        if self.index.read_text(digest) is None:
            documents = [ClinicalDocument.from_json(values) for values in sandbox.read_clinical_documents(data)]
            identity = self.references.people.get(patient, PatientIdentity(patient))
            if any(_is_other(person, identity) for document in documents for person in document.patients):
                raise ValueError("its C-CDA document is another patient's, as its header says; export it again")
            if len(documents) > 1:
                raise ValueError(f"holds {len(documents)} documents; save each as a file of its own")
            self.index.add_text(digest, asdict(documents[0]))
        return digest


def _choose_best(texts: Sequence[tuple[str, EmbeddedText]]) -> tuple[EmbeddedText, list[str]]:
    """Return the best text of the forms (format, text) of one document, and remarks on the others."""
    if len(texts) == 1:
        return texts[0][1], list(texts[0][1].remarks)
    # A line such as "see the attached letter" is not the document.
    most = max(_count_words(text.text) for _, text in texts)
    complete = [item for item in texts if 2 * _count_words(item[1].text) >= most]
    _, best = min(complete, key=lambda item: _PREFERRED.index(item[0]) if item[0] in _PREFERRED else 99)
    words = set(_WORD.findall(best.text.lower()))
    remarks = list(best.remarks)
    for format, text in texts:
        if text is not best and not words.issuperset(_WORD.findall(text.text.lower())):
            remarks.append(f"1 attachment ({format}) not read, which has words that the one read does not have")
    return best, remarks


def find_file(url: str, folder: Path) -> Path | None:
    """Return the path that an address relative to a folder means, or None for another address."""
    words = unquote(url)
    if not words or words.startswith(("#", "/", "\\")) or _SCHEME.match(words) or "\0" in words:
        return None
    return real_path(folder / words)


def list_attachments(resource: Resource) -> list[Resource]:
    """Return the attachments of a DocumentReference or of the forms of a DiagnosticReport."""
    if resource.get("resourceType") == "DiagnosticReport":
        return list_objects(resource.get("presentedForm"))
    return [content["attachment"] for content in resource["content"] if content.get("attachment")]


def decode_data(data: str, content_type: str) -> bytes:
    """Return the bytes of base64, also of its other alphabet or without padding; or a text that is none.

    Raises ValueError with the reason.
    """
    packed = "".join(data.split())
    strange = _NOT_BASE64.search(packed)
    # Base64 has no spaces within lines; a text has.
    if strange or " " in data.strip():
        if content_type and not content_type.lower().startswith(_TEXT_TYPES):
            raise ValueError("its data is not base64; export it again")
        return data.encode()
    packed = packed.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        decoded = base64.b64decode(packed + "=" * (-len(packed) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError("its data is not base64, or breaks off; export it again") from error
    if not decoded:
        raise ValueError("its data is empty; export it again")
    return decoded


def _is_other(patient: StatedPerson, identity: PatientIdentity) -> bool:
    """Return whether birth dates differ, or, without them, names without a common word and no common number."""
    born, other = _digits(patient.born)[:8], _digits(identity.born)[:8]
    if born and other:
        return not (born.startswith(other) or other.startswith(born))
    values = {value for _, value in identity.numbers}
    if any(value in values for _, value in patient.numbers):
        return False
    words = set(_WORD.findall(" ".join(patient.names).lower()))
    return bool(words and identity.names) and words.isdisjoint(_WORD.findall(" ".join(identity.names).lower()))


def _digits(text: str) -> str:
    return "".join(filter(str.isdigit, text))


def _count_words(text: str) -> int:
    return len(_WORD.findall(text))
