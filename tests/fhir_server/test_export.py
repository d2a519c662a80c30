"""Exports of a FHIR server on loopback: tokens, polling, broken downloads, continuation, searches, and the command."""

from __future__ import annotations

import gzip
import json
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from joserfc.jwk import ECKey, RSAKey

from epicrisis.core.errors import InputError
from epicrisis.corpus.records.fhir_server.bulk_export import (
    ExportReport,
    ExportRequest,
    export_records,
    release_export,
    remove_export,
)
from epicrisis.corpus.records.fhir_server.client import FhirClient, FhirServerFailed, SigningKey, read_credentials
from tests.support.fhir_server import BINARY, FhirService, serve_fhir
from tests.support.loopback import run_in_thread

KEY = ECKey.generate_key("P-384", auto_kid=True)


@pytest.fixture
def service() -> Iterator[FhirService]:
    with serve_fhir(FhirService(KEY)) as running:
        yield running


def write_credentials(folder: Path, key: ECKey = KEY) -> Path:
    (folder / "key.json").write_text(json.dumps(key.as_dict(private=True)))
    path = folder / "client.json"
    path.write_text('{"client_id": "ward", "private_key": "key.json"}')
    for file in (path, folder / "key.json"):
        file.chmod(0o600)
    return path


def export(
    service: FhirService, folder: Path, signing: SigningKey, request: ExportRequest | None = None
) -> ExportReport:
    waits: list[float] = []
    with FhirClient(f"{service.url}/r4", signing, sleep=waits.append) as client:
        report = export_records(client, request or ExportRequest(), folder / "exports" / "one")
    (folder / "waits.json").write_text(json.dumps(waits))
    return report


def exported(folder: Path) -> list[dict[str, object]]:
    resources = []
    for path in sorted((folder / "exports" / "one").glob("*.ndjson")):
        resources += [json.loads(line) for line in path.read_text().splitlines()]
    return resources


def test_export_downloads_files_and_binaries_privately(tmp_path: Path, service: FhirService) -> None:
    """Also: the time to wait is the server's, and a busy server is asked again."""
    service.busy, service.has_errors = 1, True
    report = export(service, tmp_path, read_credentials(write_credentials(tmp_path)))
    assert (report.files, report.binaries, report.error_files) == (3, 1, 1)
    assert report.transaction_time == "2150-03-05T00:00:00Z"
    assert json.loads((tmp_path / "waits.json").read_text()) == [7, 3]
    kinds = [resource["resourceType"] for resource in exported(tmp_path)]
    assert kinds == ["Patient", "DocumentReference", "Observation", "Binary"]
    folder = tmp_path / "exports" / "one"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    remove_export(folder)
    assert not folder.exists()


def test_broken_download_continues_where_it_stopped(tmp_path: Path, service: FhirService) -> None:
    service.break_at = 30
    export(service, tmp_path, read_credentials(write_credentials(tmp_path)))
    assert ("GET", "/files/Patient", "bytes=30-") in service.requests
    assert exported(tmp_path)[0]["id"] == "p1"


def test_expired_token_is_fetched_again(tmp_path: Path, service: FhirService) -> None:
    service.expire_after = 3
    assert export(service, tmp_path, read_credentials(write_credentials(tmp_path))).files == 3
    assert service.tokens == 2


@pytest.mark.slow
def test_interrupted_export_continues_without_a_second_kick_off(tmp_path: Path, service: FhirService) -> None:
    """Killed while polling, then after the first file."""
    signing = read_credentials(write_credentials(tmp_path))

    def stop(_: float) -> None:
        raise KeyboardInterrupt

    folder = tmp_path / "exports" / "one"
    with FhirClient(f"{service.url}/r4", signing, sleep=stop) as client, pytest.raises(KeyboardInterrupt):
        export_records(client, ExportRequest(), folder)
    service.break_at = 30
    with FhirClient(f"{service.url}/r4", signing, sleep=stop) as client, pytest.raises(KeyboardInterrupt):
        export_records(client, ExportRequest(), folder)
    export(service, tmp_path, signing)
    assert service.count("/r4/$export") == 1
    assert len(exported(tmp_path)) == 4
    export(service, tmp_path, signing)
    assert service.count("/files/Observation") == 1


def test_server_without_export_is_searched_by_patient(tmp_path: Path, service: FhirService) -> None:
    service.is_bulk = False
    report = export(service, tmp_path, read_credentials(write_credentials(tmp_path)))
    assert not report.is_bulk
    assert [resource["resourceType"] for resource in exported(tmp_path)] == [
        *("Patient", "DocumentReference", "Observation", "Binary")
    ]
    assert service.count("/r4/Observation?patient=p1") == 1


def test_group_and_time_are_in_the_request(tmp_path: Path, service: FhirService) -> None:
    request = ExportRequest("ward 3", "2150-01-01T00:00:00Z")
    export(service, tmp_path, read_credentials(write_credentials(tmp_path)), request)
    (path,) = [path for _, path, _ in service.requests if "$export" in path]
    assert path.startswith("/r4/Group/ward%203/$export?")
    assert "_since=2150-01-01T00%3A00%3A00Z" in path


def test_released_export_is_deleted_at_the_server(tmp_path: Path, service: FhirService) -> None:
    signing = read_credentials(write_credentials(tmp_path))
    export(service, tmp_path, signing)
    with FhirClient(f"{service.url}/r4", signing) as client:
        release_export(client, tmp_path / "exports" / "one")
    assert ("DELETE", "/r4/status", "") in service.requests


def test_wrong_key_gives_one_line(tmp_path: Path, service: FhirService) -> None:
    other = read_credentials(write_credentials(tmp_path, ECKey.generate_key("P-384", auto_kid=True)))
    with pytest.raises(FhirServerFailed, match="refused the key of client 'ward'") as failure:
        export(service, tmp_path, other)
    assert "\n" not in str(failure.value)


def test_missing_credentials_are_named(tmp_path: Path, service: FhirService) -> None:
    with FhirClient(f"{service.url}/r4") as client, pytest.raises(FhirServerFailed, match="--fhir-credentials"):
        export_records(client, ExportRequest(), tmp_path / "exports" / "one")


@pytest.mark.parametrize(
    ("text", "mode", "reason"),
    [
        ('{"client_id": "ward", "private_key": "key.json"}', 0o644, "others can read it"),
        ('{"client_id": "ward"}', 0o600, "private_key"),
        ('{"client_id": "ward", "private_key": "none.json"}', 0o600, "No such file"),
        ('{"client_id": "ward", "private_key": "client.json"}', 0o600, "not a private key"),
        ('{"client_id": "ward", "private_key": "key.json", "algorithm": "HS256"}', 0o600, "ES384 or RS384"),
    ],
)
def test_bad_credentials_are_refused(tmp_path: Path, text: str, mode: int, reason: str) -> None:
    path = write_credentials(tmp_path)
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(InputError, match=reason):
        read_credentials(path)


UNUSABLE_KEYS = {
    "public key": KEY.as_pem(private=False).decode(),
    "wrong curve": ECKey.generate_key("P-256").as_pem(private=True).decode(),
    "RSA key": RSAKey.generate_key(2048).as_pem(private=True).decode(),
    "key of a curve that no one defines": json.dumps({**KEY.as_dict(private=True), "crv": "P-38"}),
    "encrypted key": KEY.as_pem(private=True, password="ward").decode(),
    "text": "no key",
    "JSON without a type": "{}",
}


@pytest.mark.parametrize("kind", UNUSABLE_KEYS)
def test_unusable_private_key_is_refused(tmp_path: Path, kind: str) -> None:
    path = write_credentials(tmp_path)
    (tmp_path / "key.json").write_text(UNUSABLE_KEYS[kind])
    with pytest.raises(InputError, match="not a private key for ES384"):
        read_credentials(path)


@pytest.mark.parametrize("address", ["ftp://a.example", "a.example/r4", "http://a.example/r4", "https://u:p@a.example"])
def test_unusable_address_is_refused(address: str) -> None:
    with pytest.raises(InputError, match="--fhir-server"):
        FhirClient(address)


def test_words_of_the_binary_are_exported(tmp_path: Path, service: FhirService) -> None:
    export(service, tmp_path, read_credentials(write_credentials(tmp_path)))
    import base64

    assert base64.b64decode(str(exported(tmp_path)[-1]["data"])) == BINARY


@pytest.mark.parametrize("kind", ["token", "status", "files", "next"])
def test_other_server_is_asked_only_if_the_user_named_it(tmp_path: Path, service: FhirService, kind: str) -> None:
    signing = read_credentials(write_credentials(tmp_path))
    with serve_fhir(FhirService(KEY)) as other:
        service.elsewhere, service.is_bulk = {kind: other.url}, kind != "next"
        with pytest.raises(FhirServerFailed, match=f"127.0.0.1:{other.url.rpartition(':')[2]}.*--fhir-origin"):
            export(service, tmp_path, signing)
        assert other.requests == []
        client = FhirClient(f"{service.url}/r4", signing, origins=[other.url])
        assert client.locate(f"{other.url}/a") == f"{other.url}/a"
        assert not client.is_own(f"{other.url}/a")


@pytest.mark.parametrize(
    "address",
    [
        *(
            "http://a.example/r4/Patient?page=2",
            "https://a.example:444/r4/",
            "//b.example/r4/",
            "https://u@a.example/r4/",
        ),
        *("https://a.example:x/r4/", "ftp://a.example/r4/", "https://a.example.b.example/", "https://[::1/r4/"),
    ],
)
def test_token_goes_to_own_scheme_host_and_port_alone(tmp_path: Path, address: str) -> None:
    client = FhirClient("https://A.example/r4", read_credentials(write_credentials(tmp_path)))
    assert client.is_own("https://a.example:443/r4/Patient?page=2")
    assert client.is_own("Patient?page=2")
    assert not client.is_own(address)
    assert client.authorize(address) == {}
    with pytest.raises(FhirServerFailed):
        client.request("DELETE", address)


@pytest.mark.parametrize("address", ["Patient?page=\x00", "Patient?page=\x7f", "Patient?" + "a" * 70_000])
def test_address_that_cannot_be_asked_gives_one_line(address: str) -> None:
    with FhirClient("https://a.example/r4") as client, pytest.raises(FhirServerFailed, match="cannot be asked"):
        client.request("GET", address)


@contextmanager
def answering(headers: dict[str, str], body: bytes) -> Iterator[tuple[str, list[str | None]]]:
    """Give the address of a server of one answer, and the cookies that it was sent."""
    cookies: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            cookies.append(self.headers.get("Cookie"))
            self.send_response(200)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with run_in_thread(server) as url:
        yield url, cookies


def test_response_that_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epicrisis.corpus.records.fhir_server.client.MAX_RESPONSE_BYTES", 2**20)
    with (
        answering({"Content-Encoding": "gzip"}, gzip.compress(b" " * 2**24)) as (url, _),
        FhirClient(url) as client,
        pytest.raises(FhirServerFailed, match="sends over 1 MB in one response"),
    ):
        client.get_json("Patient")


def test_cookies_of_the_server_are_not_sent_back() -> None:
    headers = {"Set-Cookie": "sid=1", "Content-Encoding": "gzip"}
    with answering(headers, gzip.compress(b"{}")) as (url, cookies), FhirClient(url) as client:
        assert client.get_json("Patient") == client.get_json("Patient") == {}
    assert cookies == [None, None]
