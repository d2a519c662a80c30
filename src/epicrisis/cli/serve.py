"""`epicrisis serve` and `mcp`: the API and the page, and a library that is offered to an assistant."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import re
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from epicrisis.cli.access import ServerFolder, server_folder
from epicrisis.cli.command import Flags, command
from epicrisis.cli.options import ANSWER, LibraryPath, parse_library
from epicrisis.cli.terminal import say
from epicrisis.core.errors import InputError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from epicrisis.core.answers import Notice
    from epicrisis.server.app import ServerOptions
    from epicrisis.server.identity.identity_provider import IdentityProvider
    from epicrisis.server.state.shared_state.shared_database import StateDatabase
    from epicrisis.settings.settings import Settings

_HOST_NAME = re.compile(r"[a-z0-9._-]+(:[0-9]{1,5})?|\[[0-9a-f:.]+\](:[0-9]{1,5})?|[0-9a-f.]*(:[0-9a-f.]*){2,}")
LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
Libraries = Annotated[
    list[Path],
    Argument(metavar="LIBRARY...", parser=parse_library, help="Folders of the libraries, postgresql://... or s3://..."),
]
Host = Annotated[
    str, Option("--host", help="Address to listen on. For other machines, TLS (or a proxy) and users are needed.")
]
Port = Annotated[int, Option("--port", min=1, max=65535, help="Port to listen on.")]
HostName = Annotated[
    list[str] | None,
    Option("--host-name", help="Name of the server in addresses of clients, with a port if needed (repeatable)."),
]
Certificate = Annotated[Path | None, Option("--tls-certificate", help="File of the TLS certificate chain (PEM).")]
PrivateKey = Annotated[Path | None, Option("--tls-key", help="File of the private key of the certificate (PEM).")]
BehindProxy = Annotated[
    bool, Option("--behind-proxy", help="A proxy in front of the server encrypts the connections of clients.")
]
Runs = Annotated[Path | None, Option("--runs", help="Folder of finished runs to list and open.")]
Upload = Annotated[
    bool,
    Option("--upload", help="Let administrators add files to libraries of literature. Without users, everybody may."),
]
ProviderFile = Annotated[
    Path | None,
    Option("--identity-provider", help="File of the identity provider. Default: identity-provider.json of --folder."),
]
KeepDays = Annotated[int, Option("--keep-days", min=1, help="Days for which answers of the page are kept.")]
MaxQuestions = Annotated[int, Option("--max-questions", min=1, help="Questions answered at the same time.")]


@command(
    *ANSWER,
    examples=[
        "epicrisis serve ~/lib --model http://127.0.0.1:8000/v1#qwen",
        "epicrisis serve postgresql://reader@db/ward --folder postgresql://server@db/ward",
        "epicrisis serve ~/lib ~/pubmed --port 8090 --host 0.0.0.0 --behind-proxy --host-name answers.example.org",
    ],
)
def serve(
    libraries: Libraries,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    host_name: HostName = None,
    tls_certificate: Certificate = None,
    tls_key: PrivateKey = None,
    behind_proxy: BehindProxy = False,
    folder: ServerFolder = None,
    identity_provider: ProviderFile = None,
    runs: Runs = None,
    upload: Upload = False,
    max_questions: MaxQuestions = 256,
    keep_days: KeepDays = 365,
    *,
    flags: Flags,
) -> None:
    """Serve a page to ask these libraries, and an API for programs, until Ctrl-C.

    Open http://127.0.0.1:8080 in a browser. Running questions finish before the server ends.

    Without --model and --strategy, answers are the sentences of the library that bear on the question. A library of
    patients' notes, and an address other than this machine, need users (`epicrisis users add`).
    """
    from epicrisis.server.api.guards import GuardOptions
    from epicrisis.server.app import ServerOptions
    from epicrisis.server.base.public_address import PublicAddress, split_port
    from epicrisis.server.state.state import open_state
    from epicrisis.server.work.upload_reception import UploadLimits
    from epicrisis.settings.configuration import check_settings, choose_strategy

    is_local = is_loopback(host)
    check_files(tls_certificate, tls_key)
    if not is_local and tls_certificate is None and not behind_proxy:
        raise InputError(
            f"--host {host}: connections from other machines must be encrypted: give --tls-certificate and --tls-key, "
            "or --behind-proxy if a proxy encrypts them"
        )
    if host in ("0.0.0.0", "::") and not host_name:
        raise InputError(f"--host {host}: give the name that clients use, with --host-name answers.example.org")
    if behind_proxy and is_local and not host_name:
        raise InputError("--behind-proxy: give the name that clients use, with --host-name answers.example.org")
    names = tuple(map(normalize_host, host_name or ([] if is_local else [host])))
    public = PublicAddress(names, behind_proxy, has_tls=tls_certificate is not None)
    hosts = LOOPBACK | {split_port(name)[0] for name in names}
    guard = GuardOptions(hosts, requires_key=not is_local or behind_proxy, address=public)
    settings, notices = choose_strategy(check_settings(flags.settings()))
    _check_port(host, port)
    place = server_folder(folder)
    database = open_state(place).database
    provider = find_provider(place, settings, identity_provider, database)
    options = ServerOptions(
        max_running=max_questions,
        folder=place,
        runs=runs,
        keep_days=keep_days,
        uploads=UploadLimits() if upload else None,
        guard=guard,
        provider=provider,
    )
    if database is not None and database.may_change_log():
        say(
            "note: this user of the database can change the access log: serve as a member of epicrisis_server", err=True
        )
    for notice in notices:
        say(f"note: {notice.message}", err=True)
    logging.getLogger("epicrisis.server").addHandler(logging.StreamHandler())
    asyncio.run(_serve(settings, notices, libraries, options, host, port, tls_certificate, tls_key))


def _check_port(host: str, port: int) -> None:
    """Raise InputError if the server could not listen there."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        socket.create_server(address[:2], family=family).close()
    except OSError as error:
        reason = "another program uses it" if error.errno == errno.EADDRINUSE else str(error.strerror or error)
        raise InputError(
            f"--host {host} --port {port}: {reason}; choose another port, such as --port {port + 1}"
        ) from error


def is_loopback(host: str) -> bool:
    """Return whether the address is reached from this machine only."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def normalize_host(host: str) -> str:
    """Return the name as a header Host has it: lower case, an IPv6 address in brackets, with the port if it has one.

    Raises InputError for an address with a scheme or a path.
    """
    name = host.strip().lower()
    if not _HOST_NAME.fullmatch(name):
        raise InputError(
            f"--host-name {host!a}: give the name alone, such as answers.example.org or answers.example.org:8443; the "
            "server needs a name of its own, without a path"
        )
    return f"[{name}]" if name.count(":") > 1 and not name.startswith("[") else name


def find_provider(
    folder: Path, settings: Settings, file: Path | None, database: StateDatabase | None
) -> IdentityProvider | None:
    """Return the identity provider that the file or else the server's folder names, or None.

    Raises SettingsError for wrong settings, or if local_only is on and the provider is another machine.
    """
    from epicrisis.server.identity.identity_provider import IdentityProvider
    from epicrisis.server.identity.identity_provider_settings import (
        PROVIDER_FILE,
        read_client_secret,
        read_provider_settings,
    )

    chosen = read_provider_settings(folder, file)
    if chosen is None:
        return None
    if settings.local_only and chosen.remote_host is not None:
        raise SettingsError(
            f"{PROVIDER_FILE}: local_only (--local-only) is on and {chosen.remote_host} is not this machine: name a "
            "provider on this machine, or turn local_only off"
        )
    return IdentityProvider(chosen, read_client_secret(chosen), database=database)


def check_files(certificate: Path | None, key: Path | None) -> None:
    """Raise InputError unless both files of TLS are given and exist, or none is given."""
    if (certificate is None) != (key is None):
        raise InputError("TLS needs both --tls-certificate and --tls-key: give the other one too")
    for path in (certificate, key):
        if path is not None and not path.is_file():
            raise InputError(f"there is no file {path}: name an existing PEM file")


async def _serve(
    settings: Settings,
    notices: Sequence[Notice],
    libraries: Sequence[Path],
    options: ServerOptions,
    host: str,
    port: int,
    certificate: Path | None,
    key: Path | None,
) -> None:
    """Serve until a signal stops the process. Running questions finish before it ends."""
    from epicrisis.server.app import create_app
    from epicrisis.server.libraries.resources import Resources
    from epicrisis.server.process import GracefulServer, make_config

    async with await Resources.open(settings, libraries, notices) as resources:
        app = create_app(resources, options)
        config = make_config(
            app,
            host,
            port,
            options.stop_seconds,
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )
        scheme = "http" if certificate is None else "https"
        public = options.guard.address
        clients = f", for clients https://{public.names[0]}" if public.behind_proxy else ""
        say(f"epicrisis serves {', '.join(resources.libraries)} on {scheme}://{host}:{port}{clients}")
        if options.provider is not None:
            say(f"users sign in at {options.provider.settings.issuer}; no question and no text is sent there")
        server = GracefulServer(config, app.state.questions)
        await server.serve()
    if not server.started:
        raise SettingsError(f"port {port} of {host} is not available: choose another with --port")


Patients = Annotated[
    list[str] | None,
    Option(
        "--patient",
        help="Let the assistant, and the provider of its model, read the record of this patient (id or number; "
        "repeatable). A library of notes needs it.",
    ),
]
LogFolder = Annotated[
    Path | None,
    Option(
        "--folder",
        help="Folder of the server, for its access log. Default: `server` in the data folder (EPICRISIS_HOME).",
    ),
]


@command(
    *ANSWER,
    examples=[
        "epicrisis mcp ~/lib --model http://127.0.0.1:8000/v1#qwen",
        "epicrisis mcp ~/ward --patient 10083814 --strategy evidence",
    ],
)
def mcp(library: LibraryPath, patient: Patients = None, folder: LogFolder = None, *, flags: Flags) -> None:
    """Serve a library to an assistant, through MCP on standard input and output.

    Name this command in the settings of the assistant. The tools are search, ask and evidence. Without --model and
    --strategy, ask gives the sentences of the library alone.
    """
    from epicrisis.server.state.state import state_folder
    from epicrisis.settings.configuration import check_settings, choose_strategy

    settings, notices = choose_strategy(check_settings(flags.settings()))
    place = settings.home / "server" if folder is None else state_folder(folder)
    asyncio.run(_serve_assistant(settings, notices, library, patient or (), place))


async def _serve_assistant(
    settings: Settings, notices: Sequence[Notice], library: Path, patients: Sequence[str], folder: Path
) -> None:
    """Serve until standard input ends."""
    from epicrisis.server.api.mcp_server import create_mcp_server, find_patients
    from epicrisis.server.base.private_folder import make_private_folder
    from epicrisis.server.libraries.asked_questions import Questions
    from epicrisis.server.libraries.reading import LibraryReader
    from epicrisis.server.libraries.resources import Resources
    from epicrisis.server.state.state import open_state

    async with await Resources.open(settings, [library], notices) as resources:
        library_to_serve = resources.default
        ids = find_patients(library_to_serve, patients)
        log = None
        if library_to_serve.holds_patients:
            make_private_folder(folder)
            log = open_state(folder).log
        server = create_mcp_server(Questions(resources, log=log), LibraryReader(resources, log), library_to_serve, ids)
        await server.run_stdio_async()
