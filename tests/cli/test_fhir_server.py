"""`library add --fhir-server`: records of a server on loopback, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from joserfc.jwk import ECKey

from tests.cli.conftest import Run
from tests.support.fhir_server import FhirService, serve_fhir

KEY = ECKey.generate_key("P-384", auto_kid=True)


def write_credentials(folder: Path) -> Path:
    (folder / "key.json").write_text(json.dumps(KEY.as_dict(private=True)))
    path = folder / "client.json"
    path.write_text('{"client_id": "ward", "private_key": "key.json"}')
    for file in (path, folder / "key.json"):
        file.chmod(0o600)
    return path


@pytest.mark.slow
@pytest.mark.models
def test_records_of_a_server_are_notes_and_leave_no_files(tmp_path: Path, run: Run, model_home: Path) -> None:
    """Under --local-only too, because the server is this machine."""
    library = tmp_path / "library"
    with serve_fhir(FhirService(KEY, pending=0)) as service:
        arguments = ("--fhir-server", f"{service.url}/r4", "--fhir-credentials", write_credentials(tmp_path))
        result = run("library", "add", library, *arguments, "--local-only")
    assert result.exit_code == 0, result.stderr
    assert "the next export can begin with --fhir-since 2150-03-05T00:00:00Z" in result.stderr
    found = run("search", library, "--patient", "p1", "creatinine", "--json")
    assert "1.4 mg/dL" in found.stdout
    assert not list((model_home / "fhir-exports").iterdir())


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--fhir-server", "https://fhir.example.org/r4", "--local-only"), "contacts another machine"),
        (("--fhir-group", "g", "a.csv"), "need --fhir-server"),
        (("--fhir-server", "https://fhir.example.org/r4", "--watch"), "--watch takes folders alone"),
    ],
)
def test_unusable_options_are_refused(tmp_path: Path, run: Run, arguments: tuple[str, ...], reason: str) -> None:
    result = run("library", "add", tmp_path / "library", *arguments)
    assert (result.exit_code, reason in result.stderr) == (2, True)
    assert not (tmp_path / "library").exists()
