"""The users of a server in PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping

from epicrisis.server.base.users import Caller, User, UserChange, UserStore, check_users
from epicrisis.server.state.shared_state.shared_database import StateDatabase


class UserTable(UserStore):
    """The users in the table `users`. Every look-up reads it, so a change is in force with the next request."""

    is_shared = True

    def __init__(self, database: StateDatabase) -> None:
        self._database = database

    def users(self) -> Mapping[str, User]:
        """Return the users by name. Raises StateUnavailable."""
        users: dict[str, User] = {}
        for name, content in self._database.rows("SELECT name, content FROM users ORDER BY name"):
            users[name] = User.model_validate_json(content)
        return users

    def has_users(self) -> bool:
        """Return whether there is a user."""
        return bool(self._database.rows("SELECT 1 FROM users LIMIT 1"))

    def find_hash(self, digest: str) -> Caller | None:
        """Return the caller with the key of this hash, or None. Keys are random, so an index may look hashes up."""
        return self._find("key_sha256", digest)

    async def _look_up(self, digest: str) -> Caller | None:
        return await self._database.call(self.find_hash, digest)

    def find_owner(self, owner: str) -> Caller | None:
        """Return the user with this owner id, with the rights of now, or None if there is none any more."""
        return self._find("owner", owner)

    def _find(self, column: str, value: str) -> Caller | None:
        for name, content in self._database.rows(f"SELECT name, content FROM users WHERE {column} = %s", value):
            return User.model_validate_json(content).as_caller(name)
        return None

    def _change(self, change: UserChange) -> None:
        with self._database.transact() as connection:
            connection.execute("LOCK TABLE users IN EXCLUSIVE MODE")
            users = check_users(change(self.users()))
            connection.execute("DELETE FROM users")
            for name, user in users.items():
                values = name, user.as_caller(name).owner, user.key_sha256, user.model_dump_json()
                connection.execute("INSERT INTO users VALUES (%s, %s, %s, %s)", values)
