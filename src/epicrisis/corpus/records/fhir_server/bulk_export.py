"""Export a FHIR server's records into a private folder of NDJSON files, and continue after an interruption.

    with FhirClient(address, signing) as client:
        report = export_records(client, ExportRequest(group="ward-3"), folder)

Bulk Data's `$export` is used if the server has it. Else patients are listed, and their resources searched by type.
Binaries named in documents are fetched one by one, because exports leave them out.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from epicrisis.corpus.records.fhir_server.client import FhirClient, FhirServerFailed, parse_object, retry_after
from epicrisis.system.local_only import open_private

RESOURCE_TYPES = (
    *("Patient", "Encounter", "DocumentReference", "DiagnosticReport", "Observation", "Composition", "Condition"),
    *("AllergyIntolerance", "MedicationRequest", "MedicationStatement", "MedicationAdministration", "Medication"),
    *("Procedure", "Immunization", "Practitioner", "PractitionerRole", "Organization"),
)
_BY_PATIENT = RESOURCE_TYPES[1:14]
_NO_EXPORT = (400, 404, 405, 406, 422, 501)
_STATE = "export.json"
_BINARIES = "Binary.ndjson"
_DOWNLOAD_TRIES = 5
_POLL_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """What to export: the patients of a group, else of the server; `since` is a time with an offset."""

    group: str = ""
    since: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """What was exported. `transaction_time` is the `since` of the next export; empty without Bulk Data."""

    files: int
    transaction_time: str = ""
    is_bulk: bool = True
    deleted_files: int = 0
    error_files: int = 0
    binaries: int = 0
    missing_binaries: int = 0


def export_folder(home: Path, base: str, request: ExportRequest) -> Path:
    """Return the folder of an export, the same for the same request, so that it can be continued."""
    words = json.dumps([base.rstrip("/"), asdict(request)])
    return home / "fhir-exports" / hashlib.sha256(words.encode()).hexdigest()[:16]


def export_records(
    client: FhirClient, request: ExportRequest, folder: Path, say: Callable[[str], None] = lambda line: None
) -> ExportReport:
    """Export into the folder (0700), which an interrupted export may have begun. Raises FhirServerFailed."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for private in (folder.parent, folder):
        os.chmod(private, 0o700)
    state = _read_state(folder)
    if not state:
        status_url = _kick_off(client, request)
        state = {"status_url": status_url}
        _write_state(folder, state)
    if state["status_url"]:
        if "manifest" not in state:
            state["manifest"] = _wait_for_manifest(client, str(state["status_url"]), folder, say)
            _write_state(folder, state)
        report = _download_manifest(client, state["manifest"], folder, say)
    else:
        say("the server has no bulk export: searching by patient")
        report = _search_records(client, request, folder)
    binaries, missing = _fetch_binaries(client, folder)
    return ExportReport(**{**asdict(report), "binaries": binaries, "missing_binaries": missing})


def release_export(client: FhirClient, folder: Path) -> None:
    """Tell the server that it may remove its files. Without an answer, the server keeps them until they expire."""
    if status_url := _read_state(folder).get("status_url", ""):
        try:
            client.request("DELETE", str(status_url))
        except FhirServerFailed:
            return


def remove_export(folder: Path) -> None:
    """Remove the files of an export from this machine."""
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def _kick_off(client: FhirClient, request: ExportRequest) -> str:
    """Return the address of the export's status, empty if the server has no export. Raises FhirServerFailed."""
    parameters = {"_outputFormat": "application/fhir+ndjson", "_type": ",".join(RESOURCE_TYPES)}
    if request.since:
        parameters["_since"] = request.since
    paths = [f"Group/{quote(request.group, safe='')}/$export"] if request.group else ["$export", "Patient/$export"]
    status = 0
    for path in paths:
        response = client.request("GET", f"{path}?{urlencode(parameters)}", {"Prefer": "respond-async"})
        status = response.status_code
        if status == 202:
            address = response.headers.get("Content-Location", "")
            if not address:
                raise FhirServerFailed(
                    f"{client.host}: began an export without naming its status; ask its administrator"
                )
            return client.locate(address)
    if status not in _NO_EXPORT:
        raise FhirServerFailed(f"{client.host}: refused the export with status {status}; check the address and scope")
    if request.group:
        raise FhirServerFailed(f"{client.host}: exports no group {request.group!a} (status {status}); check its id")
    return ""


def _wait_for_manifest(client: FhirClient, status_url: str, folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Return the manifest once the server has finished. Raises FhirServerFailed."""
    while True:
        response = client.request("GET", status_url, accept="application/json")
        if response.status_code == 200:
            return parse_object(response)
        if response.status_code != 202:
            (folder / _STATE).unlink(missing_ok=True)
            raise FhirServerFailed(
                f"{client.host}: the export failed or expired (status {response.status_code}); run the command again"
            )
        if progress := response.headers.get("X-Progress", ""):
            say(f"the server is exporting: {progress[:60]}")
        client.sleep(retry_after(response, _POLL_SECONDS))


def _download_manifest(
    client: FhirClient, manifest: dict[str, Any], folder: Path, say: Callable[[str], None]
) -> ExportReport:
    """Download the files of a manifest that are not here yet. Raises FhirServerFailed."""
    outputs = [item for item in manifest.get("output") or [] if isinstance(item, dict) and item.get("url")]
    needs_token = bool(manifest.get("requiresAccessToken"))
    for number, item in enumerate(outputs):
        kind = "".join(filter(str.isalnum, str(item.get("type"))))[:40]
        path = folder / f"{number:05}-{kind}.ndjson"
        if not path.exists():
            say(f"downloading file {number + 1} of {len(outputs)}")
            _download(client, str(item["url"]), path, needs_token)
    return ExportReport(
        files=len(outputs),
        transaction_time=str(manifest.get("transactionTime") or ""),
        deleted_files=len(manifest.get("deleted") or []),
        error_files=len(manifest.get("error") or []),
    )


def _download(client: FhirClient, url: str, path: Path, needs_token: bool) -> None:
    """Download a file, and continue where a connection broke off. Raises FhirServerFailed."""
    import httpx2

    url = client.locate(url)
    if needs_token and not client.is_own(url):
        raise FhirServerFailed(f"{client.host}: its files need the token at another host, which does not get it")
    part = path.with_suffix(".part")
    for attempt in range(_DOWNLOAD_TRIES):
        size = part.stat().st_size if part.exists() else 0
        headers = {"Accept": "application/fhir+ndjson", "Accept-Encoding": "identity"}
        if size:
            headers["Range"] = f"bytes={size}-"
        try:
            with client.stream(url, {**headers, **(client.authorize(url) if needs_token else {})}) as response:
                if response.status_code in (200, 206):
                    _write_stream(response, part, append=response.status_code == 206)
                    os.replace(part, path)
                    return
                if response.status_code == 416:
                    part.unlink(missing_ok=True)
                if response.status_code == 401:
                    client.forget_token()
                wait = retry_after(response, 2.0**attempt)
        except httpx2.TransportError:
            wait = 2.0**attempt
        if attempt + 1 < _DOWNLOAD_TRIES:
            client.sleep(wait)
    raise FhirServerFailed(f"{client.host}: a file of the export cannot be downloaded; run the same command again")


def _write_stream(response: Any, part: Path, *, append: bool) -> None:
    descriptor = open_private(part, os.O_WRONLY | (os.O_APPEND if append else os.O_TRUNC))
    with os.fdopen(descriptor, "ab" if append else "wb") as file:
        for piece in response.iter_raw():
            file.write(piece)


def _search_records(client: FhirClient, request: ExportRequest, folder: Path) -> ExportReport:
    """Search the patients, and the resources of each by type. Raises FhirServerFailed."""
    patients_file = folder / "00000-Patient.ndjson"
    if not patients_file.exists():
        _write_lines(patients_file, _search(client, "Patient?_count=200"))
    since = f"&_lastUpdated={quote('ge' + request.since)}" if request.since else ""
    files = 1
    with patients_file.open(encoding="utf-8") as lines:
        patients = [str(json.loads(line).get("id") or "") for line in lines]
    for number, patient in enumerate(filter(None, patients), 1):
        path = folder / f"{number:05}-records.ndjson"
        files += 1
        if not path.exists():
            _write_lines(path, _search_patient(client, patient, since))
    return ExportReport(files=files, is_bulk=False)


def _search_patient(client: FhirClient, patient: str, since: str) -> Iterator[dict[str, Any]]:
    for kind in _BY_PATIENT:
        yield from _search(client, f"{kind}?patient={quote(patient, safe='')}&_count=200{since}")


def _search(client: FhirClient, query: str) -> Iterator[dict[str, Any]]:
    """Yield the resources of a search, page by page. A type that the server does not have has none."""
    address = query
    addresses: set[str] = set()
    while address and address not in addresses:
        addresses.add(address)
        response = client.request("GET", address)
        if response.status_code in _NO_EXPORT and address == query and not query.startswith("Patient"):
            return
        if response.status_code != 200:
            raise FhirServerFailed(
                f"{client.host}: a search failed with status {response.status_code}; check the scope"
            )
        bundle = parse_object(response)
        for entry in bundle.get("entry") or []:
            resource = entry.get("resource") if isinstance(entry, dict) else None
            if isinstance(resource, dict) and resource.get("resourceType") != "OperationOutcome":
                yield resource
        links = [link for link in bundle.get("link") or [] if isinstance(link, dict) and link.get("relation") == "next"]
        address = client.locate(str(links[0].get("url"))) if links else ""


def _fetch_binaries(client: FhirClient, folder: Path) -> tuple[int, int]:
    """Fetch the Binaries that attachments of this server name and no file has. Return their number, and the missing."""
    path = folder / _BINARIES
    if path.exists():
        with path.open(encoding="utf-8") as lines:
            return sum(1 for _ in lines), 0
    binaries: dict[str, str] = {}
    for file in sorted(folder.glob("*.ndjson")):
        with file.open(encoding="utf-8") as lines:
            for line in lines:
                if '"url"' in line and "Binary/" in line:
                    _list_binaries(client, json.loads(line), binaries)
    missing = 0
    resources: list[dict[str, Any]] = []
    for number, address in binaries.items():
        response = client.request("GET", address)
        if response.status_code != 200:
            missing += 1
            continue
        kind = response.headers.get("Content-Type", "")
        if "fhir+json" in kind:
            resources.append(parse_object(response))
        else:
            data = base64.b64encode(response.content).decode()
            resources.append({"resourceType": "Binary", "id": number, "contentType": kind, "data": data})
    if resources:
        _write_lines(path, iter(resources))
    return len(resources), missing


def _list_binaries(client: FhirClient, value: Any, binaries: dict[str, str]) -> None:
    """Add the addresses of Binaries at this server that a resource names, by id."""
    if isinstance(value, dict):
        url = value.get("url")
        if isinstance(url, str) and "Binary/" in url and not value.get("data") and client.is_own(url):
            binaries[url.partition("Binary/")[2].partition("/")[0]] = url
        for inner in value.values():
            _list_binaries(client, inner, binaries)
    elif isinstance(value, list):
        for inner in value:
            _list_binaries(client, inner, binaries)


def _write_lines(path: Path, resources: Iterator[dict[str, Any]]) -> None:
    """Write a file of resources, which has its name only when it is complete."""
    part = path.with_suffix(".part")
    with os.fdopen(open_private(part, os.O_WRONLY | os.O_TRUNC), "w", encoding="utf-8") as file:
        for resource in resources:
            file.write(json.dumps(resource, ensure_ascii=False) + "\n")
    os.replace(part, path)


def _read_state(folder: Path) -> dict[str, Any]:
    try:
        state = json.loads((folder / _STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) and "status_url" in state else {}


def _write_state(folder: Path, state: dict[str, Any]) -> None:
    part = folder / f"{_STATE}.part"
    with os.fdopen(open_private(part, os.O_WRONLY | os.O_TRUNC), "w", encoding="utf-8") as file:
        json.dump(state, file)
    os.replace(part, folder / _STATE)
