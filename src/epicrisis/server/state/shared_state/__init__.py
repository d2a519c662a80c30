"""The state of a server in PostgreSQL, shared by several server processes."""
