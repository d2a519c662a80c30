"""Check the parts of a cluster: databases, object storage, servers, Ray and model endpoints.

    checks = check_cluster([ClusterPart.parse("postgresql://ward_app@db/hospital")], settings, tables)

Checks read no text and no question, and never show a password or key. The check of object storage writes and removes
one object. A check that could not be made is `unknown`, never `ok`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from epicrisis.core.errors import EpicrisisError
from epicrisis.operations.cluster_parts import ClusterCheck, ClusterPart, ServerTables

if TYPE_CHECKING:
    from epicrisis.settings.settings import Settings


def check_cluster(
    parts: Sequence[ClusterPart], settings: Settings, tables: ServerTables | None = None
) -> Iterator[ClusterCheck]:
    """Yield the checks of these parts, and of the endpoints that the settings name. Contacts all of them.

    `tables` are those of servers, which a database of libraries may have too.
    """
    from epicrisis.operations.model_checks import check_models
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
            from epicrisis.operations.ray_checks import check_ray

            yield from check_ray(part)
        elif part.name.startswith("s3:"):
            from epicrisis.operations.storage_checks import check_storage

            yield from check_storage(part, part.name)
        else:
            from epicrisis.operations.database_checks import check_database

            yield from check_database(part, part.library, servers, tables)
    except EpicrisisError as error:
        topic = "nodes" if part.library is None else "library"
        yield ClusterCheck(part.name, topic, "problem", error.message.removeprefix(f"{part.name}: "))
