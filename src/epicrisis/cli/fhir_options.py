"""Records of a FHIR server for `epicrisis library add`: read the options, export into a private folder, remove it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from typer import Option

from epicrisis.cli.terminal import counted, say
from epicrisis.core.errors import InputError, NetworkRefused
from epicrisis.system.local_only import is_local

if TYPE_CHECKING:
    from epicrisis.corpus.fhir_server.export import ExportReport
    from epicrisis.settings.settings import Settings

_server = partial(Option, rich_help_panel="Records of a FHIR server")
FhirServer = Annotated[
    str, _server("--fhir-server", metavar="URL", help="Add the records that this FHIR server (R4, R5) exports.")
]
FhirCredentialsFile = Annotated[
    Path | None,
    _server(
        "--fhir-credentials",
        metavar="FILE",
        help="JSON with client_id and private_key (SMART Backend Services), which only you may read.",
    ),
]
FhirGroup = Annotated[str, _server("--fhir-group", metavar="ID", help="Export this group's patients, not all.")]
FhirSince = Annotated[
    str, _server("--fhir-since", metavar="TIME", help="Export what changed since 2026-03-01T00:00:00Z.")
]
FhirOrigins = Annotated[
    list[str] | None,
    _server("--fhir-origin", metavar="URL", help="Another server that this one may name for its files or tokens."),
]


@contextmanager
def exported_records(
    settings: Settings, server: str, credentials: Path | None, group: str, since: str, origins: Sequence[str] = ()
) -> Iterator[list[Path]]:
    """Yield the files of a server's records, removed after the block; nothing without a server.

    After a failure the files stay in the private folder, and the same command continues.

    Raises NetworkRefused under local_only if the server is another machine.
    """
    if not server:
        if credentials is not None or group or since or origins:
            raise InputError("--fhir-credentials, --fhir-group, --fhir-since and --fhir-origin need --fhir-server URL")
        yield []
        return
    from epicrisis.corpus.fhir_server.client import FhirClient, read_credentials
    from epicrisis.corpus.fhir_server.export import (
        ExportRequest,
        export_folder,
        export_records,
        release_export,
        remove_export,
    )

    hosts = [urlsplit(address).hostname or "missing" for address in (server, *origins)]
    if settings.local_only and not all(is_local(host) for host in hosts):
        raise NetworkRefused(
            "--fhir-server or --fhir-origin contacts another machine, and local_only (--local-only) is on: leave it "
            "out, or add files that were exported elsewhere"
        )
    signing = read_credentials(credentials) if credentials is not None else None
    request = ExportRequest(group, since)
    folder = export_folder(settings.home, server, request)
    with FhirClient(server, signing, origins=origins) as client:
        say(f"asking {client.host} for its records", err=True)
        report = export_records(client, request, folder, lambda line: say(line, err=True))
        release_export(client, folder)
    _say_report(report)
    files = [path for path in sorted(folder.glob("*.ndjson")) if path.stat().st_size]
    if not files:
        remove_export(folder)
        raise InputError("the FHIR server exported no records; check the group, the time and the client's scope")
    yield files
    remove_export(folder)


def _say_report(report: ExportReport) -> None:
    """Print the numbers of exported and of left out files."""
    binaries = f", {counted(report.binaries, 'attachment')}" if report.binaries else ""
    say(f"{counted(report.files, 'file')} exported{binaries}", err=True)
    if report.missing_binaries:
        say(f"note: {counted(report.missing_binaries, 'attachment')} could not be fetched", err=True)
    if report.error_files:
        say(f"note: the server reports errors in {counted(report.error_files, 'file')}, which are not read", err=True)
    if report.deleted_files:
        say(
            f"note: the server lists deleted resources in {counted(report.deleted_files, 'file')}; they stay in the "
            "library: delete them with epicrisis library delete",
            err=True,
        )
    if report.transaction_time:
        say(f"note: the next export can begin with --fhir-since {report.transaction_time}", err=True)
