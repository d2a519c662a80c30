"""Check the parts of a cluster: databases, object storage, servers and model endpoints.

    checks = check_cluster([ClusterPart.parse("postgresql://ward_app@db/hospital")], settings)

Checks read no text and no question, and never show a password or key. The check of object storage writes and removes
one object. A check that could not be made is `unknown`, never `ok`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from epicrisis.errors import EpicrisisError
from epicrisis.operations.cluster_parts import ClusterCheck, ClusterPart
from epicrisis.remote_libraries import find_address

if TYPE_CHECKING:
    from epicrisis.settings import Settings


def check_cluster(parts: Sequence[ClusterPart], settings: Settings) -> Iterator[ClusterCheck]:
    """Yield the checks of these parts, and of the endpoints that the settings name. Contacts all of them."""
    from epicrisis.operations.model_checks import check_models
    from epicrisis.operations.server_checks import check_servers

    servers = [part for part in parts if part.url]
    for part in parts:
        if part.library is not None:
            yield from _check_library(part, len(servers))
    yield from check_servers(servers)
    yield from check_models(settings)


def _check_library(part: ClusterPart, servers: int) -> Iterator[ClusterCheck]:
    """Yield the checks of a library. An error of the library ends them with a problem, which says what to do."""
    assert part.library is not None
    address = find_address(part.library)
    try:
        if address is not None and address.scheme == "s3":
            from epicrisis.operations.storage_checks import check_storage

            yield from check_storage(part, address.url)
        else:
            from epicrisis.operations.database_checks import check_database

            yield from check_database(part, part.library, servers)
    except EpicrisisError as error:
        message = error.message.removeprefix(f"{part.name}: ")
        yield ClusterCheck(part.name, "library", "problem", message)
