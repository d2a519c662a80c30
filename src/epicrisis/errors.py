"""One tree of errors. Each message says what is wrong and what to do; a user never sees a traceback for one of these.

EpicrisisError
├── UserError                     exit code 2: the input or the settings are wrong
│   ├── SettingsError             an unknown key, a value out of range
│   ├── InputError                a file that is missing, empty, not UTF-8, or broken at a line
│   ├── LibraryError              the folder is not a library one can use
│   │   ├── LibraryMissing
│   │   ├── LibraryDamaged        half-copied, or its parts out of step
│   │   ├── LibraryBusy           another writer holds it
│   │   └── EncoderMismatch       made by another encoder
│   ├── ModelMissing              not pulled, no such file, no such name
│   ├── ModelFileInvalid          the file is not a model, or its checksum is wrong
│   └── NetworkRefused            --local-only, and the host is not this machine
├── StorageError                  exit code 2: the disk is full, or cannot be written
├── ScopeViolation                exit code 2: a passage outside the scope reached a prompt; nothing was sent
├── BudgetExceeded                exit code 2: the next call could cost more than is left; it was not made
├── RunStopped                    exit code 2: nothing but failures, question after question
└── ChatError                     exit code 2: a call of a chat model failed; carries what it had cost
    ├── EndpointUnreachable       refused, reset, no such host                 (retryable)
    ├── EndpointTimeout           no answer in time                            (retryable)
    ├── EndpointBusy              429 or 5xx                                   (retryable)
    ├── EndpointRejected          401, 403, 404 or another 4xx
    ├── ReplyInvalid              HTML, malformed JSON, an empty answer        (retryable)
    ├── ReplyTruncated            the reply ended by length
    ├── ReplyWithheld             a content filter kept the reply back
    ├── NotCached                 replaying offline, and the cache has no reply to this
    └── ContextOverflow           the prompt does not fit the model's window
"""

from __future__ import annotations

from typing import ClassVar

from epicrisis.answers import Failure, Usage
from epicrisis.printable import printable


class EpicrisisError(Exception):
    """The root. `retryable`: the same call may succeed later. `usage`: what was spent before it failed.

    The message becomes one printable line, for it may name files, ids or replies of others.
    """

    retryable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, usage: Usage | None = None) -> None:
        super().__init__(printable(message))
        self.usage = usage or Usage()

    @property
    def message(self) -> str:
        return str(self)

    def as_failure(self) -> Failure:
        """The value that stands for this error in an answer or a partial."""
        return Failure(kind=type(self).__name__, message=self.message)


class UserError(EpicrisisError):
    """The input or the settings are wrong; the message says where and how to mend it."""

    exit_code: ClassVar[int] = 2


class SettingsError(UserError):
    """An unknown key or a value out of range."""


class InputError(UserError):
    """A file that is missing, empty, not UTF-8 or broken."""


class LibraryError(UserError):
    """The folder is not a library that can be used."""


class LibraryMissing(LibraryError):
    """There is no library at this place."""


class LibraryDamaged(LibraryError):
    """The library is half-copied or its parts are out of step."""


class LibraryBusy(LibraryError):
    """Another process is writing to the library."""


class EncoderMismatch(LibraryError):
    """The library was made by another encoder than the one at hand."""


class ModelMissing(UserError):
    """The model was not pulled, or no model of that name or path is known."""


class ModelFileInvalid(UserError):
    """The file is not a model, or not the one the catalogue pins."""


class NetworkRefused(UserError):
    """`--local-only` is on and something asked for a host that is not this machine."""


class StorageError(EpicrisisError):
    """The disk is full or cannot be written."""

    exit_code: ClassVar[int] = 2


class ScopeViolation(EpicrisisError):
    """A passage outside the question's scope was about to enter a prompt; nothing was sent."""

    exit_code: ClassVar[int] = 2


class BudgetExceeded(EpicrisisError):
    """The next call could have cost more than is left of the budget; it was not made. Ends a run, not a question."""

    exit_code: ClassVar[int] = 2


class RunStopped(EpicrisisError):
    """Question after question failed, so the rest was not asked."""

    exit_code: ClassVar[int] = 2


class ChatError(EpicrisisError):
    """A call of a chat model failed. `retry_after`: seconds to wait before the next try, where the endpoint says."""

    exit_code: ClassVar[int] = 2
    retry_after: float | None = None


class EndpointUnreachable(ChatError):
    """Connection refused or reset, or no such host."""

    retryable: ClassVar[bool] = True


class EndpointTimeout(ChatError):
    """No answer in time."""

    retryable: ClassVar[bool] = True


class EndpointBusy(ChatError):
    """429 or a server error."""

    retryable: ClassVar[bool] = True


class EndpointRejected(ChatError):
    """The endpoint refuses this request (key, model name, parameters): trying again changes nothing."""


class ReplyInvalid(ChatError):
    """The reply is not one: HTML, malformed JSON, no choices, an empty text."""

    retryable: ClassVar[bool] = True


class ReplyTruncated(ChatError):
    """The reply ended because the token limit was reached."""


class ReplyWithheld(ChatError):
    """A content filter kept the reply back; another draw of the same prompt may pass."""


class NotCached(ChatError):
    """Replaying offline: the cache has no reply to this request, and nothing may be sent."""


class ContextOverflow(ChatError):
    """The prompt does not fit the model's window."""
