"""The tree of errors. Each message names the problem and its cure; users see no traceback for these errors.

EpicrisisError
├── UserError                     exit code 2: wrong input or settings
│   ├── SettingsError             an unknown key, or a value out of range
│   ├── InputError                a file that is missing, empty, not UTF-8, or malformed
│   ├── LibraryError              the folder is not a usable library
│   │   ├── LibraryMissing
│   │   ├── LibraryDamaged        incomplete, or with inconsistent parts
│   │   ├── LibraryBusy           another process is writing to it
│   │   └── EncoderMismatch       created with another encoder
│   ├── ModelMissing              not downloaded, no such file, or no such name
│   ├── ModelFileInvalid          not a model file, or with a wrong checksum
│   └── NetworkRefused            --local-only, and the host is not this machine
├── StorageError                  exit code 2: the disk is full or not writable
├── ScopeViolation                exit code 2: a passage outside the scope reached a prompt; nothing was sent
├── BudgetExceeded                exit code 2: the next call might exceed the budget; it was not made
├── RunStopped                    exit code 2: too many questions failed in a row
├── ClusterError                  exit code 2: a cluster cannot be joined, or was lost
└── ChatError                     exit code 2: a call of a chat model failed; contains its usage
    ├── EndpointUnreachable       refused, reset, no such host                 (retryable)
    ├── EndpointTimeout           no answer in time                            (retryable)
    ├── EndpointBusy              429 or 5xx                                   (retryable)
    ├── EndpointRejected          401, 403, 404 or another 4xx
    ├── ReplyInvalid              HTML, malformed JSON, a broken stream        (retryable)
    │   └── ReplyEmpty            the model answers without a text             (retryable)
    │       └── ReplyMisplaced    the endpoint sends the answer as something else
    ├── ReplyTruncated            the reply reached the token limit
    ├── ReplyWithheld             a content filter blocked the reply
    ├── NotCached                 offline replay, and the cache has no such reply
    └── ContextOverflow           the prompt exceeds the model's context window
"""

from __future__ import annotations

from typing import ClassVar

from epicrisis.core.answers import Failure, Usage
from epicrisis.core.printable import printable


class EpicrisisError(Exception):
    """The base of all errors. `retryable`: the same call may succeed later. `usage`: usage before the failure.

    The message becomes one printable line, as it may contain file names, ids or replies from outside.
    """

    retryable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1

    def __init_subclass__(cls, exit_code: int | None = None, retryable: bool | None = None) -> None:
        cls.exit_code = cls.exit_code if exit_code is None else exit_code
        cls.retryable = cls.retryable if retryable is None else retryable

    def __init__(self, message: str, *, usage: Usage | None = None) -> None:
        super().__init__(printable(message))
        self.usage = usage or Usage()

    @property
    def message(self) -> str:
        """The message as one printable line."""
        return str(self)

    def _render_traceback_(self) -> list[str]:
        """Return the message alone: IPython shows it in place of a traceback."""
        return [f"{type(self).__name__}: {self.message}"]

    def as_failure(self) -> Failure:
        """Return this error as a value for an answer or a map result."""
        return Failure(kind=type(self).__name__, message=self.message)


class UserError(EpicrisisError, exit_code=2):
    """The input or the settings are wrong. The message says where, and how to correct it."""


class SettingsError(UserError):
    """A setting has an unknown key or a value out of range."""


class InputError(UserError):
    """A file is missing, empty, not UTF-8, or malformed; or a question cannot be asked like this."""


class LibraryError(UserError):
    """The folder is not a usable library."""


class LibraryMissing(LibraryError):
    """There is no library in this folder."""


class LibraryDamaged(LibraryError):
    """The library is incomplete, or its parts are inconsistent."""


class LibraryBusy(LibraryError):
    """Another process is writing to the library."""


class EncoderMismatch(LibraryError):
    """The library was created with another encoder than the selected one."""


class ModelMissing(UserError):
    """The model was not downloaded, or its name or path is unknown."""


class ModelFileInvalid(UserError):
    """The file is not a model, or differs from the one in the catalogue."""


class NetworkRefused(UserError):
    """`--local-only` is on, and a connection to another machine was attempted."""


class StorageError(EpicrisisError, exit_code=2):
    """The disk is full or not writable."""


class ScopeViolation(EpicrisisError, exit_code=2):
    """A passage outside the scope of the question reached a prompt. Nothing was sent."""


class BudgetExceeded(EpicrisisError, exit_code=2):
    """The next call might have exceeded the budget and was not made. Ends a run, not only a question."""


class RunStopped(EpicrisisError, exit_code=2):
    """Too many questions failed in a row, so the remaining ones were not asked."""


class ClusterError(EpicrisisError, exit_code=2):
    """A cluster cannot be started or joined, was lost, or its nodes cannot do the work."""


class ChatError(EpicrisisError, exit_code=2):
    """A call of a chat model failed. `retry_after`: seconds to wait before a retry, if the endpoint gives them."""

    retry_after: float | None = None


class EndpointUnreachable(ChatError, retryable=True):
    """The connection was refused or reset, or the host does not exist."""


class EndpointTimeout(ChatError, retryable=True):
    """The endpoint did not answer in time."""


class EndpointBusy(ChatError, retryable=True):
    """The endpoint returned 429 or a server error."""


class EndpointRejected(ChatError):
    """The endpoint rejects this request (key, model name, parameters). Retrying does not help.

    `rejects_all`: it rejects every request, as with a wrong key. `rejects_key`: it does not accept the key (401).
    """

    rejects_all = False
    rejects_key = False


class ReplyInvalid(ChatError, retryable=True):
    """The reply is unusable: HTML, malformed JSON or no choices."""


class ReplyEmpty(ReplyInvalid):
    """The model answered without a text, each time it was asked."""


class ReplyMisplaced(ReplyEmpty, retryable=False):
    """The endpoint sends the answer as thinking or as the call of a tool. Its own settings are at fault."""


class ReplyTruncated(ChatError):
    """The reply ended at the token limit."""


class ReplyWithheld(ChatError):
    """A content filter blocked the reply. Another sample of the same prompt may pass."""


class NotCached(ChatError):
    """The cache has no reply to this request, and offline replay must not send it."""


class ContextOverflow(ChatError):
    """The prompt exceeds the context window of the model."""
