"""What `epicrisis library add` fetches: articles of PubMed and Europe PMC, and the records of a FHIR server."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from typer import Option

from epicrisis.cli.progress import open_progress
from epicrisis.cli.terminal import counted, say
from epicrisis.core.errors import InputError, NetworkRefused
from epicrisis.core.printable import quote_for_shell
from epicrisis.system.local_only import is_local

if TYPE_CHECKING:
    from epicrisis.corpus.base.reader_base import ReaderItem
    from epicrisis.corpus.literature.fetched_articles import ArticleRequest
    from epicrisis.corpus.records.fhir_server.bulk_export import ExportReport
    from epicrisis.settings.settings import Settings

_articles = partial(Option, rich_help_panel="Articles from PubMed and Europe PMC")
Pmids = Annotated[
    list[str] | None, _articles("--pmid", metavar="NUMBER", help="Add PubMed's record of this number (repeatable).")
]
Dois = Annotated[
    list[str] | None,
    _articles("--doi", metavar="DOI", help="Add the abstract of the article with this DOI (repeatable)."),
]
Searches = Annotated[
    list[str] | None,
    _articles("--search", metavar="QUERY", help="Add the most relevant results of a search in PubMed (repeatable)."),
]
Limit = Annotated[int, _articles(min=1, max=10_000, help="Maximum number of results of each search.")]
FullText = Annotated[
    bool, _articles("--full-text", help="Take open-access full texts in place of abstracts, where Europe PMC has them.")
]

_DOI = re.compile(r"10\.[0-9]{1,9}/[^\s\"<>\\]{1,300}")
_DOI_PREFIX = re.compile(r"(?:https?://(?:dx\.)?doi\.org/|doi:\s*)", re.IGNORECASE)
_PMID = re.compile(r"0*([1-9][0-9]{0,8})")
_PMID_PREFIX = re.compile(r"\bPMID\b:?", re.IGNORECASE)


def read_request(
    pmids: Iterable[str], dois: Iterable[str], searches: Iterable[str], limit: int, full_text: bool
) -> ArticleRequest | None:
    """Return the articles to fetch, or None. Raises InputError for a malformed number or DOI."""
    from epicrisis.corpus.literature.fetched_articles import ArticleRequest

    numbers: dict[str, None] = {}
    for text in pmids:
        for part in filter(None, re.split(r"[,;\s]+", _PMID_PREFIX.sub(" ", text))):
            match = _PMID.fullmatch(part)
            if match is None:
                raise InputError(f"--pmid {part}: a PMID is a number of at most nine digits, such as 12377809")
            numbers[match[1]] = None
    names: dict[str, None] = {}
    for text in dois:
        doi = _DOI_PREFIX.sub("", text.strip(), count=1)
        if not _DOI.fullmatch(doi):
            raise InputError(f"--doi {text}: a DOI begins with 10. and has a slash, such as 10.1056/NEJMoa1715274")
        names[doi] = None
    queries = tuple(dict.fromkeys(map(str.strip, searches)))
    if "" in queries:
        raise InputError("--search: the search is empty; write it as in PubMed: --search 'aspirin AND preeclampsia'")
    if not (numbers or names or queries):
        return None
    return ArticleRequest(tuple(numbers), tuple(names), queries, limit, full_text)


def fetch_items(settings: Settings, library: Path, request: ArticleRequest, *, quiet: bool) -> list[ReaderItem]:
    """Return the articles of a request. Prints to standard error which hosts are asked.

    Raises NetworkRefused under local_only, and InputError for a library of patients' notes: the choice of articles
    tells about the patient.
    """
    from epicrisis.corpus.literature.fetched_articles import fetch_articles, open_services
    from epicrisis.library.core.patients import holds_patients

    hosts = request.hosts(settings.literature)
    remote = [host for host in hosts if not is_local(host)]
    if settings.local_only and remote:
        raise NetworkRefused(
            f"--pmid, --doi and --search contact {' and '.join(remote)}, and local_only (--local-only) is on: leave it "
            "out, or add files that were downloaded elsewhere"
        )
    if holds_patients(library):
        raise InputError(
            f"{library} holds patients' notes, and what is fetched would tell the services about the patients: "
            "add the articles to a library of their own, and read both with --setting beside="
            f"{quote_for_shell(str(library.with_name('literature')))}"
        )
    parts = [
        counted(len(request.pmids), "PMID") if request.pmids else "",
        counted(len(request.dois), "DOI") if request.dois else "",
        f"{len(request.searches)} search{'' if len(request.searches) == 1 else 'es'}" if request.searches else "",
    ]
    say(f"asking {' and '.join(hosts)} for {', '.join(filter(None, parts))}", err=True)
    with open_services(settings) as services, open_progress(quiet=quiet, transient=True) as progress:
        task = progress.add_task("Fetching", total=None)
        fetched = fetch_articles(
            services, request, lambda done, total: progress.update(task, completed=done, total=total)
        )
    for note in fetched.notes:
        say(f"note: {note}", err=True)
    return fetched.items


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
    from epicrisis.corpus.records.fhir_server.bulk_export import (
        ExportRequest,
        export_folder,
        export_records,
        release_export,
        remove_export,
    )
    from epicrisis.corpus.records.fhir_server.client import FhirClient, read_credentials

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
