"""Check the parts of a cluster: databases, object storage, servers, Ray and model endpoints.

    checks = check_cluster([ClusterPart.parse("postgresql://ward_app@db/hospital")], settings, tables)

Checks read no text and no question, and never show a password or key. The check of object storage writes and removes
one object. A check that could not be made is `unknown`, never `ok`.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from epicrisis.core.errors import EpicrisisError, ModelMissing, SettingsError
from epicrisis.core.printable import count_noun, printable
from epicrisis.library.object_storage import shared_version, writer_lease
from epicrisis.library.object_storage.object_store import ConditionFailed, ObjectStore
from epicrisis.models.cluster import join_cluster, parse_cluster
from epicrisis.operations.cluster_parts import ClusterCheck, ClusterPart, ServerTables
from epicrisis.system.local_only import strip_secrets

if TYPE_CHECKING:
    from epicrisis.settings.settings import ModelSettings, Settings


def check_cluster(
    parts: Sequence[ClusterPart], settings: Settings, tables: ServerTables | None = None
) -> Iterator[ClusterCheck]:
    """Yield the checks of these parts, and of the endpoints that the settings name. Contacts all of them.

    `tables` are those of servers, which a database of libraries may have too.
    """
    from epicrisis.operations.server_checks import check_servers

    servers = [part for part in parts if part.url.startswith("http")]
    for part in parts:
        if part not in servers:
            yield from _check_part(part, len(servers), tables)
    yield from check_servers(servers)
    yield from check_models(settings)


def _check_part(part: ClusterPart, servers: int, tables: ServerTables | None) -> Iterator[ClusterCheck]:
    """Yield the checks of a library or a cluster of Ray. An error ends them with a problem and its cure."""
    try:
        if part.library is None:
            yield from check_ray(part)
        elif part.name.startswith("s3:"):
            yield from check_storage(part, part.name)
        else:
            from epicrisis.operations.database_checks import check_database

            yield from check_database(part, part.library, servers, tables)
    except EpicrisisError as error:
        topic = "nodes" if part.library is None else "library"
        yield ClusterCheck(part.name, topic, "problem", error.message.removeprefix(f"{part.name}: "))


def check_ray(part: ClusterPart) -> Iterator[ClusterCheck]:
    """Yield the checks of a cluster. Raise ClusterError, or ModelMissing without the extra `ray`."""
    with join_cluster(parse_cluster(part.url)) as ray:
        nodes: list[dict[str, Any]] = ray.nodes()
        alive = [node for node in nodes if node["Alive"]]
        resources = [node["Resources"] for node in alive]
    cores = int(sum(row.get("CPU", 0) for row in resources))
    cards = int(sum(row.get("GPU", 0) for row in resources))
    message = f"{count_noun(len(alive), 'node')} with {count_noun(cores, 'core')} and {count_noun(cards, 'GPU')}"
    yield ClusterCheck(part.name, "nodes", "ok", message)
    if dead := len(nodes) - len(alive):
        message = (
            f"{count_noun(dead, 'node')} left or died since the cluster started: start new ones if they are missed"
        )
        yield ClusterCheck(part.name, "nodes", "note", message)


_PROBE = "doctor-{}"


def check_storage(part: ClusterPart, url: str) -> Iterator[ClusterCheck]:
    """Yield the checks of a library on object storage.

    Raise LibraryError, SettingsError or StorageError if it cannot be reached.
    """
    objects = ObjectStore(url)
    stored = objects.read(shared_version.NAME)
    if stored is None:
        message = f"no library is there: check the URL, or create one with `epicrisis library add {part.name} FILES`"
        yield ClusterCheck(part.name, "library", "problem", message)
        return
    version = shared_version.parse_version(stored.data, part.name)
    names = set(objects.list_names(shared_version.FOLDER))
    missing = sorted({file.key for file in version.files.values()} - names)
    if missing:
        message = f"{count_noun(len(missing), 'object')} of the library missing: restore the folder from a backup"
        yield ClusterCheck(part.name, "library", "problem", message)
    else:
        size = sum(file.bytes for file in version.files.values()) / 1e6
        message = f"version {version.number}, {count_noun(len(version.files), 'object')}, {size:.1f} MB, all present"
        yield ClusterCheck(part.name, "library", "ok", message)
    yield _check_lease(part, objects)
    yield _check_conditions(part, objects)


def _check_lease(part: ClusterPart, objects: ObjectStore) -> ClusterCheck:
    stored = objects.read(writer_lease.NAME)
    if stored is None:
        return ClusterCheck(part.name, "writer", "ok", "nobody is writing")
    try:
        record: Any = json.loads(stored.data)
        active, host, seconds = bool(record["active"]), str(record["host"]), float(record["seconds"])
    except (ValueError, KeyError, TypeError):
        message = f"{writer_lease.NAME} cannot be read: make sure that nobody writes, then remove this object"
        return ClusterCheck(part.name, "writer", "problem", message)
    if not active:
        return ClusterCheck(part.name, "writer", "ok", "nobody is writing")
    if stored.age < seconds:
        return ClusterCheck(part.name, "writer", "ok", f"a process on {host} is writing")
    message = f"a process on {host} stopped without an end: run its command again, which continues"
    return ClusterCheck(part.name, "writer", "note", message)


def _check_conditions(part: ClusterPart, objects: ObjectStore) -> ClusterCheck:
    """Write an object twice under conditions that the second write does not meet, and remove it."""
    name = _PROBE.format(secrets.token_hex(8))
    topic = "conditional writes"
    try:
        objects.create(name, b"1")
    except SettingsError:
        return ClusterCheck(part.name, topic, "unknown", "this key may not write: run the check with that of a writer")
    ignored = []
    try:
        with suppress(ConditionFailed):
            objects.create(name, b"2")
            ignored.append("If-None-Match")
        with suppress(ConditionFailed):
            objects.replace(name, b"3", '"00000000000000000000000000000000"')
            ignored.append("If-Match")
    finally:
        objects.delete([name])
    if ignored:
        message = f"{objects.host} ignores {' and '.join(ignored)}, so two writers can destroy the library: use another"
        return ClusterCheck(part.name, topic, "problem", f"{message} server")
    return ClusterCheck(part.name, topic, "ok", "the server keeps the conditions")


_TIMEOUT_SECONDS = 10.0


def check_models(settings: Settings) -> Iterator[ClusterCheck]:
    """Yield a check of each endpoint that the settings name. Sends no prompt."""
    models: dict[str, ModelSettings] = {}
    for role in settings.roles:
        for model in settings.model_for(role).endpoints:
            if "://" in model.name:
                models.setdefault(model.name, model)
    for model in models.values():
        yield _check_model(model)


def _check_model(model: ModelSettings) -> ClusterCheck:
    import httpx2

    from epicrisis.models.chat.endpoints.endpoint import parse_endpoint, require_key

    part = strip_secrets(model.name)
    try:
        endpoint = parse_endpoint(model.name)
        key = require_key(model)
    except (ModelMissing, SettingsError) as error:
        return ClusterCheck(part, "model", "problem", error.message)
    if endpoint.kind != "openai":
        message = f"{endpoint.kind} lists no models: `epicrisis ask` with a short question tests it"
        return ClusterCheck(part, "model", "unknown", message)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        reply = httpx2.get(
            f"{endpoint.base_url}/models",
            headers=headers,
            params=dict(endpoint.query),
            auth=endpoint.login,
            timeout=_TIMEOUT_SECONDS,
        )
        if reply.status_code in (401, 403):
            return ClusterCheck(part, "model", "problem", "refuses the key: check api_key_file or the variable")
        body: Any = reply.raise_for_status().json()
        names = [str(row["id"]) for row in body["data"]]
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, KeyError, TypeError) as error:
        message = f"does not answer at /models ({type(error).__name__}): check that the model server runs, and the URL"
        return ClusterCheck(part, "model", "problem", message)
    listed = printable(", ".join(names[:5]))
    if endpoint.model is not None and endpoint.model not in names:
        message = f"does not list {endpoint.model}, but {listed or 'nothing'}: correct the part of the URL after #"
        return ClusterCheck(part, "model", "problem", message)
    return ClusterCheck(part, "model", "ok", f"answers, with {listed}")
