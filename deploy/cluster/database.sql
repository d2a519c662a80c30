-- Roles, extensions and rights, once for a new database. psql runs it as a superuser, with the passwords in the environment.
-- docs/deployment.md says what the roles may do.
\set ON_ERROR_STOP on
\getenv owner_password OWNER_PASSWORD
\getenv importer_password IMPORTER_PASSWORD
\getenv server_password SERVER_PASSWORD
CREATE ROLE epicrisis_reader;
CREATE ROLE epicrisis_writer;
CREATE ROLE epicrisis_server;
CREATE ROLE library_owner LOGIN PASSWORD :'owner_password';
CREATE ROLE importer LOGIN PASSWORD :'importer_password' IN ROLE epicrisis_writer;
CREATE ROLE ward_app LOGIN PASSWORD :'server_password' IN ROLE epicrisis_reader, epicrisis_server;
GRANT CREATE ON DATABASE hospital TO library_owner;
CREATE EXTENSION vector;
CREATE EXTENSION pg_textsearch;
REVOKE EXECUTE ON FUNCTION bm25_dump_index(text), bm25_dump_index(text, text), bm25_spill_index(text),
    bm25_force_merge(text), bm25_summarize_index(text), bm25_debug_pageviz(text, text) FROM PUBLIC;
