"""`epicrisis cache`: the replies that were kept, and how to be rid of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from epicrisis.cli.common import show_json, translated
from epicrisis.cli.options import Config, Json
from epicrisis.cli.terminal import say

if TYPE_CHECKING:
    from epicrisis.models.chat.layers.cache import ReplyCache

Library = Annotated[
    Path | None, typer.Argument(help="The library whose replies are meant; without one, those kept among the models.")
]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    group = typer.Typer(no_args_is_help=True, help="Replies of models that were kept, so that none is paid for twice.")
    group.command(epilog="Example: epicrisis cache info ~/lib")(info)
    group.command(epilog="Example: epicrisis cache clear ~/lib")(clear)
    app.add_typer(group, name="cache")


@translated
def info(library: Library = None, config: Config = None, json: Json = False) -> None:
    """Show where kept replies lie, how many there are, and how large."""
    cache = _cache(library, config)
    stats = cache.stats()
    cache.close()
    if json:
        show_json({"path": cache.path, "replies": stats.replies, "bytes": stats.bytes})
    else:
        say(f"{stats.replies:,} replies in {cache.path}, {stats.bytes / 1e6:,.1f} MB")


@translated
def clear(library: Library = None, config: Config = None, json: Json = False) -> None:
    """Delete all kept replies, off the disk too. They only save calls."""
    cache = _cache(library, config)
    gone = cache.clear()
    cache.close()
    if json:
        show_json({"path": cache.path, "deleted": gone})
    else:
        say(f"deleted {gone:,} replies from {cache.path}")


def _cache(library: Path | None, config: Path | None) -> ReplyCache:
    from epicrisis.configuration import load_settings
    from epicrisis.library.library_folder import REPLIES
    from epicrisis.library.manifest import read_manifest
    from epicrisis.models.chat.layers.cache import ReplyCache
    from epicrisis.privacy import local_path

    settings = load_settings({}, config)
    if library is not None:
        library = local_path(library)
        read_manifest(library)
    return ReplyCache(settings.cache.path or (library or settings.home) / REPLIES)
