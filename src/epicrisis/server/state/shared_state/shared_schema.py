"""The tables of the state of a server in PostgreSQL, the rights of its role, and the steps between their versions.

A server process has the rights of SERVER: it reads users, reads and changes stored work, and only adds to the access
log. The owner of the schema adds and removes users and reads the access log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from psycopg import Connection

SERVER = "epicrisis_server"
"""The role of server processes. Users of the database get its rights as members."""
DEFAULT_SCHEMA = "epicrisis_server"

_TABLES = """
CREATE TABLE state(one boolean PRIMARY KEY DEFAULT true CHECK (one), version integer NOT NULL);
CREATE TABLE users(
    name text COLLATE "C" PRIMARY KEY, owner text NOT NULL, key_sha256 text NOT NULL UNIQUE, content text NOT NULL
);
CREATE INDEX users_owner ON users(owner);
CREATE TABLE items(
    kind text COLLATE "C", id text COLLATE "C", part text COLLATE "C", owner text COLLATE "C" NOT NULL DEFAULT '',
    state text NOT NULL DEFAULT '', at double precision NOT NULL DEFAULT extract(epoch FROM now()),
    content bytea NOT NULL, PRIMARY KEY (kind, id, part)
);
CREATE INDEX items_owner ON items(kind, owner, at);
CREATE INDEX items_running ON items(kind, id) WHERE state = 'running';
CREATE TABLE lines(
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, kind text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL, key text COLLATE "C", state text, content bytea NOT NULL
);
CREATE INDEX lines_item ON lines(kind, id, number);
CREATE UNIQUE INDEX lines_once ON lines(kind, id, key) WHERE state <> 'failed';
CREATE TABLE leases(
    kind text COLLATE "C", id text COLLATE "C", holder text NOT NULL, ends timestamptz NOT NULL, PRIMARY KEY (kind, id)
);
CREATE TABLE access_log(number bigint PRIMARY KEY, previous text NOT NULL, hash text NOT NULL, entry text NOT NULL);
CREATE FUNCTION check_access_entry() RETURNS trigger LANGUAGE plpgsql SET search_path = {schema}, pg_temp AS $$
DECLARE last_number bigint := 0; last_hash text := repeat('0', 64);
BEGIN
    IF TG_OP <> 'INSERT' THEN
        RAISE EXCEPTION 'entries of the access log are not changed';
    END IF;
    SELECT number, hash INTO last_number, last_hash FROM access_log ORDER BY number DESC LIMIT 1;
    IF NEW.number <> coalesce(last_number, 0) + 1 OR NEW.previous <> coalesce(last_hash, repeat('0', 64)) THEN
        RAISE EXCEPTION 'the entry does not follow the last one';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER access_entry BEFORE INSERT OR UPDATE OR DELETE ON access_log
    FOR EACH ROW EXECUTE FUNCTION check_access_entry();
CREATE TRIGGER access_log_whole BEFORE TRUNCATE ON access_log FOR EACH STATEMENT EXECUTE FUNCTION check_access_entry();
REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM PUBLIC;
"""
_SERVER_ACCESS = """
GRANT USAGE ON SCHEMA {schema} TO {server};
GRANT SELECT ON state, users TO {server};
GRANT SELECT, INSERT, UPDATE, DELETE ON items, leases TO {server};
GRANT SELECT, INSERT, DELETE ON lines TO {server};
GRANT SELECT (number, hash), INSERT ON access_log TO {server};
"""
MIGRATIONS: tuple[str, ...] = (_TABLES,)
"""The step to each version of the tables. The first creates them. A step is never changed after a release."""


def migrate(connection: Connection[object], schema: str, version: int) -> None:
    """Bring a schema from this version, 0 for an empty one, to the newest in the caller's transaction.

    `schema` is a quoted name; the connection's search path begins with it.
    """
    for step in MIGRATIONS[version:]:
        # The steps are constants of this module, and the value is a quoted name.
        connection.execute(step.format(schema=schema).encode())
    command = "INSERT INTO state(version) VALUES (%s) ON CONFLICT (one) DO UPDATE SET version = excluded.version"
    connection.execute(command, (len(MIGRATIONS),))


def grant_access(connection: Connection[object], schema: str) -> None:
    """Give the role SERVER its rights, if it exists. Only the owner of the schema can."""
    if connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (SERVER,)).fetchone():
        connection.execute(_SERVER_ACCESS.format(schema=schema, server=SERVER).encode())
