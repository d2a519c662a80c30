"""Files of a hub of models: Hugging Face's, or the mirror that `HF_ENDPOINT` names.

`huggingface_hub` downloads them: a broken connection is resumed, `HF_TOKEN` opens gated models, and the cache is shared
with other programs (`HF_HUB_CACHE`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from epicrisis.core.errors import ModelFileInvalid, ModelMissing
from epicrisis.models.catalogue import HubFile, HubFolder, PinnedFile
from epicrisis.system.local_only import silence_dependency_logs, strip_secrets

DEFAULT_HUB = "https://huggingface.co"
LISTING_SECONDS = 60.0


def get_hub_url() -> str:
    """Return the hub's address, without a slash at its end."""
    return (os.environ.get("HF_ENDPOINT") or DEFAULT_HUB).rstrip("/")


def list_hub_files(folder: HubFolder) -> tuple[PinnedFile, ...]:
    """Return the folder's files at the commit its revision means now. The hub hashes only large files.

    Raise ModelMissing if the hub cannot be reached or lacks a file, ModelFileInvalid if one is outside the folder.
    """
    from huggingface_hub import HfApi

    with _map_errors(folder.repo):
        hub = HfApi(endpoint=get_hub_url(), library_name="epicrisis")
        try:
            listing = hub.model_info(
                folder.repo, revision=folder.revision, files_metadata=True, timeout=LISTING_SECONDS
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _make_reply_error() from error
    files: list[PinnedFile] = []
    for entry in listing.siblings or ():
        if any(fnmatchcase(entry.rfilename, pattern) for pattern in folder.take):
            if entry.size is None or listing.sha is None:
                raise _make_reply_error()
            source = HubFile(folder.repo, listing.sha, entry.rfilename)
            sha256 = entry.lfs.sha256 if entry.lfs is not None else ""
            files.append(PinnedFile(folder.into + entry.rfilename, entry.size, sha256, source))
    names = [file.path.removeprefix(folder.into) for file in files]
    for pattern in folder.take:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ModelMissing(f"{folder.repo} has no {pattern} at {folder.revision}: the repository has changed")
    for name in names:
        if ".." in name.split("/") or name.startswith("/"):
            raise ModelFileInvalid(f"{folder.repo} lists a file outside its folder ({name}): nothing was fetched")
    return tuple(files)


def fetch_hub_file(file: HubFile, on_progress: Callable[[int], None], *, again: bool = False) -> Path:
    """Return the path of the file in the shared cache, and download it if it is missing there, or `again`.

    `on_progress` gets the bytes so far. Raise ModelMissing if the hub cannot be reached or lacks the file, and OSError
    for errors of the disk.
    """
    from huggingface_hub import hf_hub_download

    class Progress:
        """What the client calls in place of a progress bar."""

        def __init__(self, *_: Any, initial: int = 0, **__: Any) -> None:
            self.size = initial

        def __enter__(self) -> Progress:
            return self

        def __exit__(self, *_: object) -> None:
            """Leave the display to the caller."""

        def update(self, size: int = 1) -> None:
            self.size += size
            on_progress(self.size)

        def update_transfer(self, size: int = 1) -> None:
            """Ignore bytes on the network: written bytes count."""

        def set_postfix_str(self, *_: Any, **__: Any) -> None:
            """Ignore speeds."""

        set_transfer_postfix_str = set_postfix_str

    with _map_errors(f"{file.path} of {file.repo}"):
        path: str = hf_hub_download(
            file.repo,
            file.path,
            revision=file.revision,
            endpoint=get_hub_url(),
            library_name="epicrisis",
            force_download=again,
            tqdm_class=Progress,
        )
    return Path(path)


def _make_reply_error() -> ModelMissing:
    return ModelMissing(f"{strip_secrets(get_hub_url())} did not send a hub's reply: check HF_ENDPOINT")


@contextmanager
def _map_errors(subject: str) -> Iterator[None]:
    """Raise ModelMissing with a cure for the errors of the hub's client. Errors of the disk stay OSError."""
    import httpx2
    from huggingface_hub import errors

    silence_dependency_logs()
    hub = strip_secrets(get_hub_url())
    try:
        yield
    except errors.GatedRepoError:
        raise ModelMissing(f"{subject} is gated: accept its terms at {hub}, and set HF_TOKEN to your token") from None
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        cure = "if it is not public, set HF_TOKEN" if status in (401, 403) else "check the repository and its revision"
        raise ModelMissing(f"{hub} answered {status} for {subject}: {cure}") from error
    except errors.FileMetadataError as error:
        raise _make_reply_error() from error
    except (httpx2.HTTPError, errors.XetDownloadError, OSError, RuntimeError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        if isinstance(error.__cause__, errors.FileMetadataError):
            raise _make_reply_error() from error
        reason = str(error.__cause__ or error).partition("\n")[0]
        raise ModelMissing(
            f"{subject} cannot be fetched from {hub} ({reason}): check the network and run the same command again, or "
            "set HF_ENDPOINT to a mirror"
        ) from error
