"""Collect what a server says about its own answer: further pages, failures, deleted resources, lists of files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from epicrisis.corpus.base.reader_base import DeletedDocument, FileRemark
from epicrisis.corpus.records.fhir.export_index import ExportIndex
from epicrisis.corpus.records.fhir.fhir_references import TEXT_KINDS, name_note, split_address
from epicrisis.corpus.records.fhir.fhir_resources import DELETION, MANIFEST, Resource, list_objects

_CODE = re.compile(r"[a-z-]{1,40}")
"""A code of an issue, or of a type in small letters. Texts of issues may have patients' data."""
_TYPE = re.compile(r"[A-Za-z]{1,40}")
_NEXT_PAGE = "whose next page is not among the files; export all pages"
_MERGED = (
    "that another one replaced (Patient.link): their records stay apart, so ask about each, or export the merged record"
)
_FAILURE = "reported by the server in OperationOutcome ({}): the export may be incomplete"


@dataclass(frozen=True, slots=True)
class ServerReports:
    """What the bundles, outcomes and manifests of an export say."""

    pages: set[str] = field(default_factory=set)
    next_pages: dict[str, str] = field(default_factory=dict)
    """By address: the name of the file with the page before."""
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By the name of the file and the code of the issue."""
    deletions: list[Resource] = field(default_factory=list)
    merged: dict[str, str] = field(default_factory=dict)
    """By the id of a patient that another one replaced: the name of the file that says so."""
    expected: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By the name of the manifest and the type: the number of files with this type."""

    def add(self, resource: Resource, name: str) -> None:
        """Add a resource of the file with this name."""
        kind = resource.get("resourceType")
        if kind == "Bundle":
            self._add_pages(resource, name)
        elif kind == "OperationOutcome":
            for issue in list_objects(resource.get("issue")):
                if issue.get("severity") in ("error", "fatal"):
                    code = str(issue.get("code") or "")
                    self.failures[name, code if _CODE.fullmatch(code) else "unknown"] += 1
        elif kind == DELETION and resource.get("target") in TEXT_KINDS:
            self.deletions.append(resource)
        elif kind == "Patient":
            self._add_links(resource, name)
        elif kind == MANIFEST:
            for file in list_objects(resource.get("output")):
                if _TYPE.fullmatch(str(file.get("type"))):
                    self.expected[name, str(file["type"])] += 1

    def _add_pages(self, bundle: Resource, name: str) -> None:
        for link in list_objects(bundle.get("link")):
            if link.get("relation") == "self":
                self.pages.add(str(link.get("url")))
            elif link.get("relation") == "next":
                self.next_pages[str(link.get("url"))] = name

    def _add_links(self, patient: Resource, name: str) -> None:
        for link in list_objects(patient.get("link")):
            for other in list_objects(link.get("other")):
                _, other_id = split_address(str(other.get("reference") or ""))
                ids = {"replaced-by": patient.get("id"), "replaces": other_id}
                if replaced := ids.get(str(link.get("type"))):
                    self.merged.setdefault(str(replaced), name)

    def list_deletions(self, index: ExportIndex) -> Iterator[DeletedDocument]:
        """Yield the notes of deleted resources, unless the export has a later version of the resource."""
        for resource in self.deletions:
            target = str(resource["target"])
            if not index.is_outdated(f"{target}/{resource['id']}", resource):
                note_id = name_note({"resourceType": target, "id": resource["id"]})
                yield DeletedDocument(f"note:{note_id}", any_patient=True)

    def list_remarks(self, files: Iterable[Mapping[str, int]]) -> Iterator[FileRemark]:
        """Yield what the export lacks. `files`: the number of resources by type, for each file."""
        for address, name in self.next_pages.items():
            if address not in self.pages:
                yield FileRemark(name, "page", _NEXT_PAGE)
        for (name, code), count in sorted(self.failures.items()):
            yield FileRemark(name, "error", _FAILURE.format(code), count)
        for name, count in Counter(self.merged.values()).items():
            yield FileRemark(name, "patient", _MERGED, count)
        holding: Counter[str] = Counter()
        for kinds in files:
            holding.update(kinds.keys())
        for (name, kind), count in sorted(self.expected.items()):
            if holding[kind] < count:
                words = f"of type {kind} in the manifest not among the files; download all files of the export"
                yield FileRemark(name, "file", words, count - holding[kind])
