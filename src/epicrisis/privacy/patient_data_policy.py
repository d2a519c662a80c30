"""Decide whether patient data may leave this machine, and the place of cached replies about it.

If a library holds patients' notes, nothing but this machine may be contacted, unless remote use was allowed once for
the library's folder. Its replies are cached inside the library or not at all, as they quote the notes. All code that
opens a library or the answers of a run asks here first. `privacy` has the network guard behind `local_only`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from epicrisis.core.errors import SettingsError
from epicrisis.library.base.remote_consent import allow_remote, read_remote
from epicrisis.library.core.library_parts import REPLIES
from epicrisis.library.core.patients import holds_patients
from epicrisis.models.cluster import ClusterAddress
from epicrisis.settings.settings import Settings
from epicrisis.system.local_only import local_path, set_local_only
from epicrisis.system.telemetry import check_local_only

_REFUSED_NOTES = (
    "the nodes of {} would read patients' notes: use --on local, or give --allow-remote once for this library"
)


def protect_patient_data(settings: Settings, *libraries: Path | str | None) -> Settings:
    """Return the settings in force for these libraries and those named in the settings.

    If one of them holds patients' notes, `local_only` is turned on, and the network guard of this process with it,
    unless the library's folder allows remote use. `allow_remote` records that permission in the folder. Raises
    SettingsError if the settings name another machine without permission, and the errors of reading the folders.
    """
    if settings.local_only:
        # Libraries on object storage are read from here on.
        _turn_local_only_on()
    if settings.store is not None and libraries:
        settings = _protect_own_store(settings)
    return _protect_folders(settings, _folders_with_notes(settings, libraries))


def protect_run_folder(settings: Settings, folder: Path, patients: bool) -> Settings:
    """Return the settings in force for a run's folder or pairs of answers. `patients`: some are about patient records.

    The permission is recorded for this folder: a library's permission to answer elsewhere does not let others read the
    answers. Raises SettingsError if the settings ask for de-identification, which covers questions only.
    """
    if patients and settings.deidentify is not None:
        raise SettingsError(
            "setting deidentify: it covers questions, not answers that are graded: leave it out, and name a model on "
            "this machine"
        )
    return _protect_folders(settings, [folder] if patients else [])


def list_remote_hosts(settings: Settings, *libraries: Path | str | None) -> list[str]:
    """Return the other machines that may receive patients' notes of these libraries under these settings."""
    if settings.local_only or not _folders_with_notes(settings, libraries):
        return []
    return sorted({host for _, host in settings.remote_hosts()})


def check_cluster(settings: Settings, library: Path, cluster: ClusterAddress) -> None:
    """Raise SettingsError if documents may not leave this machine for this cluster, whose nodes read their text."""
    if not cluster.is_remote:
        return
    if settings.local_only:
        raise SettingsError(f"--local-only is on, and the nodes of {cluster} would read the documents: use --on local")
    if holds_patients(library):
        refuse_note(settings, library, cluster)


def refuse_note(settings: Settings, library: Path, cluster: ClusterAddress) -> None:
    """Raise SettingsError unless a patient's note may leave this machine for this cluster."""
    if cluster.is_remote and not _allows_notes(settings, library):
        raise SettingsError(_REFUSED_NOTES.format(cluster))


def record_cluster(settings: Settings, library: Path, cluster: ClusterAddress | None) -> None:
    """Record in the library that this cluster may receive its notes, if `allow_remote` permitted it."""
    if cluster is not None and cluster.is_remote and settings.allow_remote and holds_patients(library):
        allow_remote(library, [cluster.host])


def _allows_notes(settings: Settings, library: Path) -> bool:
    return settings.allow_remote or read_remote(library).allowed


def reply_cache_path(settings: Settings, library: Path | None) -> Path:
    """Return the path of the reply cache: in the library, or with the models without one, unless the settings name it.

    Raises SettingsError if replies about patients' notes would be stored outside their library.
    """
    inside = None if library is None else library / REPLIES
    path = settings.cache.path or inside or settings.home / REPLIES
    if library is not None and path != inside and holds_patients(library):
        raise SettingsError(
            "the library holds patients' notes, so replies are cached inside it or not at all: leave out cache.path, "
            "or set cache.mode to off"
        )
    return path


def _turn_local_only_on() -> None:
    """Turn the network guard on. Raises SettingsError if telemetry is sent to another machine."""
    check_local_only()
    set_local_only(True)


def _protect_own_store(settings: Settings) -> Settings:
    """Return the settings for a store of another package, which cannot say whether it holds patients' notes."""
    if settings.allow_remote:
        return settings
    for key, host in settings.remote_hosts():
        raise SettingsError(
            f"setting {key}: the store {settings.store} may hold patients' notes and {host} is not this machine: name "
            "something on this machine, or give --allow-remote"
        )
    _turn_local_only_on()
    return settings.model_copy(update={"local_only": True})


def _folders_with_notes(settings: Settings, libraries: Iterable[Path | str | None]) -> list[Path]:
    paths = (*libraries, *settings.fuse, *settings.beside, settings.examples.library)
    folders = dict.fromkeys(local_path(path) for path in paths if path is not None)
    return list(filter(holds_patients, folders))


def _protect_folders(settings: Settings, folders: Sequence[Path]) -> Settings:
    hosts = dict(settings.remote_hosts())
    for folder in folders:
        if settings.allow_remote or (hosts and not settings.local_only and read_remote(folder).allowed):
            allow_remote(folder, hosts.values())
    protected = [folder for folder in folders if not read_remote(folder).allowed]
    if protected and hosts and not settings.local_only:
        key, host = next(iter(hosts.items()))
        raise SettingsError(
            f"setting {key}: {protected[0]} holds patients' notes and {host} is not this machine: name something on "
            "this machine, or give --allow-remote once for this folder"
        )
    if not (settings.local_only or protected):
        return settings
    _turn_local_only_on()
    return settings.model_copy(update={"local_only": True})
