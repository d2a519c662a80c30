"""A small FHIR server on loopback: SMART Backend Services, Bulk Data or searches, and faults on request."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey

PATIENT = {"resourceType": "Patient", "id": "p1", "name": [{"given": ["Ada"], "family": "Byron"}]}
NOTE = {
    "resourceType": "DocumentReference",
    "id": "d1",
    "status": "current",
    "type": {"text": "Progress note"},
    "subject": {"reference": "Patient/p1"},
    "date": "2150-03-04",
    "content": [{"attachment": {"contentType": "text/plain", "url": "Binary/b1"}}],
}
RESULT = {
    "resourceType": "Observation",
    "id": "o1",
    "status": "final",
    "code": {"text": "Creatinine"},
    "subject": {"reference": "Patient/p1"},
    "effectiveDateTime": "2150-03-04",
    "valueQuantity": {"value": 1.4, "unit": "mg/dL"},
}
BINARY = b"Creatinine rose after contrast."


@dataclass
class FhirService:
    """What the server does, and what it was asked."""

    key: ECKey
    is_bulk: bool = True
    pending: int = 1
    """Polls that are answered with 202."""
    busy: int = 0
    """Requests of the status that are answered with 429 first."""
    expire_after: int = 0
    """Requests after which the first token is no longer accepted."""
    break_at: int = 0
    """Bytes after which the first download breaks off."""
    has_errors: bool = False
    elsewhere: dict[str, str] = field(default_factory=dict)
    """The servers that it names instead of itself: of its `token`, `status`, `files` and `next` page."""
    url: str = ""
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    """Method, path and range of each request."""
    tokens: int = 0
    used: int = 0

    def locate(self, kind: str) -> str:
        """Return the address of the server that this one names for a kind of request."""
        return self.elsewhere.get(kind, self.url)

    def count(self, beginning: str) -> int:
        """Return the number of requests whose path begins with these words."""
        return sum(path.startswith(beginning) for _, path, _ in self.requests)


class _Handler(BaseHTTPRequestHandler):
    service: FhirService

    def log_message(self, *_: Any) -> None:
        pass

    def _reply(self, status: int, value: Any = b"", **headers: str) -> None:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        kind = "application/fhir+json" if not isinstance(value, bytes) else "text/plain"
        for name, text in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), text)
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        service = self.service
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        service.requests.append(("POST", "/token", ""))
        try:
            token = jwt.decode(form["client_assertion"][0], service.key, algorithms=["ES384"])
        except JoseError:
            self._reply(400, {"error": "invalid_client"})
            return
        assert token.claims["aud"] == f"{service.locate('token')}/token"
        assert token.claims["iss"] == token.claims["sub"] == "ward"
        service.tokens += 1
        self._reply(200, {"access_token": f"token-{service.tokens}", "expires_in": 300})

    def do_DELETE(self) -> None:
        self.service.requests.append(("DELETE", self.path, ""))
        self._reply(202)

    def do_GET(self) -> None:
        service, parts = self.service, urlsplit(self.path)
        service.requests.append(("GET", self.path, self.headers.get("Range", "")))
        if parts.path == "/r4/.well-known/smart-configuration":
            self._reply(200, {"token_endpoint": f"{service.locate('token')}/token"})
            return
        service.used += 1
        is_expired = 0 < service.expire_after < service.used
        token = self.headers.get("Authorization", "")
        if not token or (is_expired and token == "Bearer token-1"):
            self._reply(401)
        elif parts.path.endswith("$export"):
            self._kick_off()
        elif parts.path == "/r4/status":
            self._status()
        elif parts.path.startswith("/files/"):
            self._file(parts.path)
        elif parts.path == "/r4/Binary/b1":
            self._reply(200, BINARY)
        else:
            self._search(parts.path)

    def _kick_off(self) -> None:
        if not self.service.is_bulk:
            self._reply(404, {"resourceType": "OperationOutcome"})
        else:
            assert self.headers["Prefer"] == "respond-async"
            self._reply(202, Content_Location=f"{self.service.locate('status')}/r4/status")

    def _status(self) -> None:
        service = self.service
        if service.busy:
            service.busy -= 1
            self._reply(429, Retry_After="7")
        elif service.pending:
            service.pending -= 1
            self._reply(202, Retry_After="3", X_Progress="half done")
        else:
            kinds = ("Patient", "DocumentReference", "Observation")
            output = [{"type": kind, "url": f"{service.locate('files')}/files/{kind}"} for kind in kinds]
            errors = [{"type": "OperationOutcome", "url": f"{service.url}/files/errors"}] if service.has_errors else []
            manifest = {"transactionTime": "2150-03-05T00:00:00Z", "requiresAccessToken": True, "output": output}
            self._reply(200, {**manifest, "error": errors, "deleted": []})

    def _file(self, path: str) -> None:
        resources = {"Patient": PATIENT, "DocumentReference": NOTE, "Observation": RESULT}
        body = json.dumps(resources[path.rpartition("/")[2]]).encode() + b"\n"
        begin = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").rstrip("-"))
        service = self.service
        if service.break_at and not begin:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: service.break_at])
            service.break_at = 0
            self.close_connection = True
            return
        self._reply(206 if begin else 200, body[begin:])

    def _search(self, path: str) -> None:
        resources = {"/r4/Patient": PATIENT, "/r4/DocumentReference": NOTE, "/r4/Observation": RESULT}
        entry = [{"resource": resources[path]}] if path in resources else []
        is_first = "page=2" not in self.path
        links = (
            [{"relation": "next", "url": f"{self.service.locate('next')}{path}?page=2"}] if is_first and entry else []
        )
        bundle = {
            "resourceType": "Bundle",
            "type": "searchset",
            "link": links,
            "entry": [] if is_first and links else entry,
        }
        self._reply(200, bundle)


@contextmanager
def serve_fhir(service: FhirService) -> Iterator[FhirService]:
    """Serve until the end of the block; `url` is then the server's address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"service": service}))
    service.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
