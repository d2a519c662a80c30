"""Sessions of browsers, and the rights with which background jobs of the identity provider's users go on.

A session is in the memory of the server, or in its database. The cookie has a random id, and neither a key nor a token
nor a name.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from epicrisis.server.base.users import Caller

if TYPE_CHECKING:
    from epicrisis.server.state.shared_state.shared_database import StateDatabase
    from epicrisis.server.state.shared_state.shared_sessions import SharedMap

KEY_SESSION_MINUTES = 10 * 60
"""How long a browser stays signed in with a key: a long shift."""
JOB_RIGHTS_SECONDS = 24 * 60 * 60.0
"""How long a job goes on with the rights of its owner's last sign-in or access token."""
MAX_SESSIONS = 10_000
"""Sessions in memory. The oldest one ends first."""
_ID_BYTES = 32
T = TypeVar("T")


class ExpiringMap(Generic[T]):
    """Keeps values for some seconds, and up to `MAX_SESSIONS` of them."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._values: OrderedDict[str, tuple[float, T]] = OrderedDict()

    def set(self, key: str, value: T) -> None:
        """Keep the value under the key from now on."""
        self._values.pop(key, None)
        self._values[key] = (self._clock() + self._seconds, value)
        while len(self._values) > MAX_SESSIONS:
            self._values.popitem(last=False)

    def get(self, key: str) -> T | None:
        """Return the value, or None if there is none any more."""
        end, value = self._values.get(key, (0.0, None))
        if value is not None and self._clock() >= end:
            del self._values[key]
            return None
        return value

    def values(self) -> list[T]:
        """Return the values that have not expired, the latest last."""
        now = self._clock()
        return [value for end, value in self._values.values() if now < end]

    def remove(self, key: str) -> None:
        """Forget the value."""
        self._values.pop(key, None)


class Sessions:
    """The signed-in users of one server process, whose restart ends all sessions, or of all processes on a database."""

    def __init__(
        self, minutes: int, clock: Callable[[], float] = time.monotonic, database: StateDatabase | None = None
    ) -> None:
        self.seconds = minutes * 60
        self._database = database
        self._callers: ExpiringMap[Caller] | SharedMap
        self._owners: ExpiringMap[Caller] | SharedMap
        if database is None:
            self._callers = ExpiringMap[Caller](minutes * 60.0, clock)
            self._owners = ExpiringMap[Caller](JOB_RIGHTS_SECONDS, clock)
        else:
            from epicrisis.server.state.shared_state.shared_sessions import SharedMap

            self._callers = SharedMap(database, "session", minutes * 60.0)
            self._owners = SharedMap(database, "rights", JOB_RIGHTS_SECONDS)

    def start(self, caller: Caller) -> str:
        """Start a session, and return the value of its cookie."""
        id_ = secrets.token_urlsafe(_ID_BYTES)
        self._callers.set(id_, caller)
        if not caller.key_sha256:
            self.keep_rights(caller)
        return id_

    async def identify(self, cookie: str) -> Caller | None:
        """Return what `find` returns, without holding up other requests."""
        return self.find(cookie) if self._database is None else await self._database.call(self.find, cookie)

    def find(self, cookie: str) -> Caller | None:
        """Return the user of a cookie, as signed in. None: it is forged, or the session has ended."""
        return self._callers.get(cookie)

    def end(self, cookie: str) -> None:
        """End the session of a cookie, if there is one."""
        self._callers.remove(cookie)

    def keep_rights(self, caller: Caller) -> None:
        """Keep these rights for the jobs of this user."""
        self._owners.set(caller.owner, caller)

    def find_owner(self, owner: str) -> Caller | None:
        """Return the user with this owner id who signed in or sent a token within a day."""
        return self._owners.get(owner)

    def list_owners(self) -> list[Caller]:
        """Return the users who signed in or sent a token within a day."""
        return self._owners.values()
