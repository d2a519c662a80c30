"""`epicrisis models`, `cache` and `settings`: what models there are, cached replies, and every setting."""

from __future__ import annotations

from math import isinf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from epicrisis.cli.command import Flags, command
from epicrisis.cli.options import CONFIG, LOCAL_ONLY, Json
from epicrisis.cli.progress import open_download_progress
from epicrisis.cli.terminal import say, show_json, show_report
from epicrisis.core.errors import InputError
from epicrisis.core.printable import shorten
from epicrisis.models.catalogue import HubFile, PinnedModel
from epicrisis.models.recommendations import ModelRecommendation, ModelUse, load_recommendations
from epicrisis.system.local_only import local_path

if TYPE_CHECKING:
    from epicrisis.models.chat.cache import ReplyCache

SHOWN_SOURCE = 90
"""Characters of a model's source that fit on a line; `--json` has it whole."""
SHOWN_MODELS = 4
"""How many recommendations fit on a screen."""
CacheOwner = Annotated[
    Path | None,
    Argument(metavar="[LIBRARY]", help="Library with the cache. Default: the cache shared by all libraries."),
]


@command(CONFIG, examples=["epicrisis models list --json"])
def list_models(*, flags: Flags, json: Json = False) -> None:
    """List the models of the catalogue: kind, size, licence, publisher, source, and whether they are installed."""
    from epicrisis.models.catalogue import load_catalogue
    from epicrisis.models.model_files import list_installed_models

    names = {model.name for model in list_installed_models(flags.settings().home)}
    rows: list[dict[str, Any]] = []
    for model in load_catalogue().values():
        row: dict[str, Any] = {
            "name": model.name,
            "kind": model.kind,
            "here": model.name in names,
            "bytes": model.bytes or None,
        }
        row |= {"pinned": not model.unpinned, "licence": model.licence, "description": model.description}
        row |= {"source": model.source, "publisher": model.publisher or _list_owners(model)}
        rows.append(row)
    if json:
        show_json(rows)
        return
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        state = "installed" if row["here"] else "not pulled"
        size = "unpinned" if row["bytes"] is None else f"{row['bytes'] / 1e6:.0f} MB"
        say(f"{row['name']:<{width}} {size:>10}  {state:<11} {row['kind']:<14} {row['licence']}")
        say(f"    {row['description']}")
        say(f"    {row['publisher']} ({shorten(row['source'], SHOWN_SOURCE)})")
    say("unpinned: downloaded from the hub in its current version; later downloads must have the same hashes")


def _say_note(text: str) -> None:
    say(f"note: {text}", err=True)


def _list_owners(model: PinnedModel) -> str:
    """Return the owners of the model's repositories on the hub."""
    repositories = [folder.repo for folder in model.unpinned]
    repositories += [file.source.repo for file in model.files if isinstance(file.source, HubFile)]
    return ", ".join(dict.fromkeys(name.partition("/")[0] for name in repositories))


@command(CONFIG, LOCAL_ONLY, examples=["epicrisis models pull minilm smollm2-135m"])
def pull(
    names: Annotated[list[str], Argument(help="Names from `epicrisis models list`.")],
    *,
    flags: Flags,
    json: Json = False,
) -> None:
    """Download models and check their sha256. Installed models are not downloaded again."""
    from epicrisis.models import model_files
    from epicrisis.models.catalogue import get_pinned_model, load_catalogue

    current = flags.settings()
    for name in names:
        get_pinned_model(name, load_catalogue())
    folders = {}
    with open_download_progress(quiet=json) as progress:
        for name in names:
            task = progress.add_task(name, total=None)

            def show(done: int, total: int, task: Any = task) -> None:
                progress.update(task, completed=done, total=total)

            target = model_files.pull_model(
                name, current.home, show, local_only=current.local_only, on_notice=_say_note
            )
            folders[name] = str(target)
    if json:
        show_json(folders)
        return
    for name, folder in folders.items():
        say(f"{name}: {folder}")


@command(examples=["epicrisis models recommend", "epicrisis models recommend --memory 24 --for judge --json"])
def recommend(
    memory: Annotated[
        float | None,
        Option(
            help="Memory for the model in GB. Default: that of the largest graphics card, else what is free.", min=0
        ),
    ] = None,
    use: Annotated[
        ModelUse, Option("--for", help="What the model is for: answers, judge, or tests of the program.")
    ] = "answers",
    json: Json = False,
) -> None:
    """List chat models that fit this machine: size, licence, measured accuracy and start command.

    Reads the memory of this machine and of NVIDIA cards, and contacts nothing.
    """
    from epicrisis.models.hardware import list_graphics_cards, measure_available_memory

    free, cards = measure_available_memory(), list_graphics_cards()
    largest = max((card.memory_bytes for card in cards), default=0)
    memory_gb = (largest or free) / 1e9 if memory is None else memory
    models = load_recommendations().select(use, memory_gb)
    if json:
        machine = {"free_bytes": None if isinf(free) else int(free), "cards": cards}
        sources = load_recommendations().sources
        shown_memory = None if isinf(memory_gb) else memory_gb
        show_json({"machine": machine, "memory_gb": shown_memory, "use": use, "models": models, "sources": sources})
        return
    for card in cards:
        say(f"{card.name}: {card.memory_bytes / 1e9:.0f} GB")
    if not cards:
        say("no NVIDIA card visible (others are not looked for)")
    say("memory of this machine: unknown" if isinf(free) else f"memory of this machine: {free / 1e9:.1f} GB free")
    if not models:
        say(f"no model for {use} is known to fit in {memory_gb:.1f} GB: an endpoint may run elsewhere (--model URL)")
        return
    fit = "" if isinf(memory_gb) else f" that fit in {memory_gb:.1f} GB"
    say(f"chat models for {use}{fit} with 8,192 tokens, largest first:")
    largest_models = models[:SHOWN_MODELS]
    marks: set[str] = set()
    for model in largest_models:
        _show_recommendation(model)
        marks |= {scores.source for scores in (model.published, model.also_published) if scores is not None}
    say("")
    for mark in sorted(marks):
        say(f"[{mark}] {load_recommendations().sources[mark]}")
    if len(models) > SHOWN_MODELS:
        say(f"{len(models) - SHOWN_MODELS} smaller models: --json")
    if not cards:
        say("Without a card large models are slow: one of 1.1 GB took 19 s a question here.")
    say("Published figures are of unquantised models and other tasks: measure a model on")
    say("your own questions before you rely on it (epicrisis evaluate, epicrisis probe).")


def _show_recommendation(model: ModelRecommendation) -> None:
    say("")
    say(f"{model.name}, {model.quantisation}: {model.file_gb:g} GB file, {model.licence}")
    say(f"    measured here: {model.measured}" if model.measured else "    not run here")
    for scores in (model.published, model.also_published):
        if scores is not None:
            say(f"    published [{scores.source}]: {scores}")
    if model.start:
        say(f"    {model.start}")
        say(f"    then {model.option}")
    else:
        say(f"    {load_recommendations().sources[model.sources[0]]}")


@command(CONFIG, examples=["epicrisis cache info ~/lib"])
def info(library: CacheOwner = None, *, flags: Flags, json: Json = False) -> None:
    """Show the file, number and size of the cached replies."""
    cache = _open_cache(library, flags)
    stats = cache.stats()
    cache.close()
    show_report(
        {"path": cache.path, "replies": stats.replies, "bytes": stats.bytes},
        [f"{stats.replies:,} replies in {cache.path}, {stats.bytes / 1e6:,.1f} MB"],
        json=json,
    )


@command(CONFIG, examples=["epicrisis cache clear ~/lib"])
def clear(library: CacheOwner = None, *, flags: Flags, json: Json = False) -> None:
    """Delete all cached replies and free their disk space. Questions asked again then need new calls."""
    cache = _open_cache(library, flags)
    deleted = cache.clear()
    cache.close()
    show_report({"path": cache.path, "deleted": deleted}, [f"deleted {deleted:,} replies from {cache.path}"], json=json)


def _open_cache(library: Path | None, flags: Flags) -> ReplyCache:
    from epicrisis.library.base.manifest import read_manifest
    from epicrisis.library.core.library_parts import REPLIES
    from epicrisis.models.chat.cache import ReplyCache

    current = flags.settings()
    if library is not None:
        library = local_path(library)
        read_manifest(library)
    return ReplyCache(current.cache.path or (library or current.home) / REPLIES)


@command(examples=["epicrisis settings", "epicrisis settings preflight"])
def settings(
    prefix: Annotated[str, Argument(help="Show only keys that begin with this text.")] = "", json: Json = False
) -> None:
    """List every setting: key, default, unit and meaning.

    Change one with --setting KEY=VALUE, in the settings file, or with an environment variable such as
    EPICRISIS_VOTES__N=20.
    """
    from epicrisis.settings.configuration import setting_rows

    rows = [row for row in setting_rows() if row.key.startswith(prefix)]
    if not rows:
        raise InputError(f"no setting begins with {prefix!r}: `epicrisis settings` lists all")
    if json:
        show_json([row._asdict() for row in rows])
        return
    for row in rows:
        unit = f" ({row.unit})" if row.unit else ""
        say(f"{row.key} = {row.default}{unit}")
        say(f"    {row.meaning}")
