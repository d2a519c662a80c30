"""The tables of a library in PostgreSQL, their access rules, and the steps from one version of them to the next.

`passages`, `documents` and `origins` have row-level security: a role that may only read sees literature, and the notes
of the patient that the transaction has named in PATIENT_SETTING, whatever its queries say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from psycopg import Connection

READER, WRITER = "epicrisis_reader", "epicrisis_writer"
"""The roles that may read, and add and delete. Users of the database get these rights as their members."""
DEFAULT_SCHEMA = "epicrisis"
PATIENT_SETTING = "epicrisis.patient"
"""The setting of a transaction that names its patient, written `p:ID`. Without it there is no patient."""
MAX_DIMENSIONS = 4000
"""The most dimensions of vectors of half precision that pgvector indexes."""
WORD_INDEX, VECTOR_INDEX = "passages_words", "passages_vector"
WORD_TABLESPACE = "epicrisis_words"
"""The tablespace through which the server writes a new word index into its log, if the administrator has created it."""
_FILE = "pg_relation_filenode(to_regclass('passages_words'))"
_TIMELINE = "substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"
WORDS_LOST = (
    "words_changed IS NOT NULL OR CASE WHEN pg_is_in_recovery() "
    f"THEN words_timeline IS NOT NULL OR words_file IS DISTINCT FROM {_FILE} "
    f"ELSE words_file = {_FILE} AND words_timeline <> {_TIMELINE} END"
)
"""The condition of the table `library` in which the word index lacks words.

`words_changed` is set while the index must be built (see `PostgresqlLibrary.prepare_bulk`).
`words_file` is the file of the last index that was built. `words_timeline` is the timeline of the server that has this
file, or NULL if the file is in the log, so that standbys and restored backups have it too.
"""

MAX_NEW_PASSAGES = 2000
"""The most passages outside the word index after an addition. Their words are searched one by one, in `new_words`."""
MANY_NEW_WORDS = (
    "CASE WHEN new_passages > 0 THEN (SELECT count(*) FROM passages WHERE build > word_build) "
    f"> least({MAX_NEW_PASSAGES}, word_passages / 100) ELSE false END"
)
"""The condition of the table `library` in which the word index should be built anew.

The scores of new passages rest on other numbers of passages than those of the index, so they are one in a hundred.
"""
_DROP_ATTEMPTS = 300
"""How often a new word index tries to replace the old one, once a second."""
_VISIBLE = {
    "documents": "patient IS NULL OR patient = current_patient()",
    "passages": "patient IS NULL OR patient = current_patient()",
    "new_words": "patient IS NULL OR patient = current_patient()",
    "origins": "EXISTS (SELECT FROM documents WHERE documents.id = origins.id)",
}
"""What a reader sees of the tables with row-level security. Readers see `documents` through its own rule."""


def _drop_in_use(index: str) -> str:
    """Return statements of PL/pgSQL that drop an index that searches use, with a lock_timeout of half a second."""
    return f"""    -- New readers would wait behind a DROP that waits for old ones.
    FOR attempt IN 1..{{attempts}} LOOP
        BEGIN
            DROP INDEX IF EXISTS {index};
            EXIT;
        EXCEPTION WHEN lock_not_available THEN
            IF attempt = {{attempts}} THEN
                RAISE;
            END IF;
            PERFORM pg_sleep(1);
        END;
    END LOOP;
"""


_TABLES = """
CREATE TABLE library(
    one boolean PRIMARY KEY DEFAULT true CHECK (one), schema_version integer NOT NULL, manifest text NOT NULL,
    version bigint NOT NULL DEFAULT 0, documents bigint NOT NULL DEFAULT 0, passages bigint NOT NULL DEFAULT 0,
    notes bigint NOT NULL DEFAULT 0, deletions bigint NOT NULL DEFAULT 0, words_changed timestamptz, words_file oid,
    words_timeline text, word_build bigint NOT NULL DEFAULT 0, word_passages bigint NOT NULL DEFAULT 0,
    word_mean double precision NOT NULL DEFAULT 0, new_passages bigint NOT NULL DEFAULT 0, vector_report text
);
CREATE TABLE documents(
    id text COLLATE "C" PRIMARY KEY, patient text COLLATE "C", content_hash bytea NOT NULL, passages integer NOT NULL,
    revision text COLLATE "C"
);
CREATE TABLE passages(
    id text COLLATE "C" PRIMARY KEY, document_id text COLLATE "C" NOT NULL REFERENCES documents ON DELETE CASCADE,
    ordinal integer NOT NULL, "start" integer NOT NULL, "end" integer NOT NULL, text text NOT NULL, title text NOT NULL,
    source text NOT NULL, metadata text NOT NULL, date text COLLATE "C", patient text COLLATE "C",
    content_hash bytea NOT NULL, revision text COLLATE "C", last_day integer, facets text[] COLLATE "C" NOT NULL,
    words text NOT NULL, vector halfvec({dimensions}) NOT NULL, build bigint NOT NULL DEFAULT 0
);
CREATE INDEX passages_document ON passages(document_id);
CREATE INDEX passages_patient ON passages(patient);
CREATE INDEX passages_last_day ON passages(last_day);
CREATE INDEX passages_facets ON passages USING gin(facets);
CREATE INDEX passages_words ON passages USING bm25(words) WITH (text_config = 'pg_catalog.simple');
CREATE TABLE new_words(
    word text COLLATE "C", passage text COLLATE "C" REFERENCES passages ON DELETE CASCADE, patient text COLLATE "C",
    count integer NOT NULL, length integer NOT NULL, PRIMARY KEY (word, passage)
);
CREATE INDEX new_words_passage ON new_words(passage);
CREATE TABLE deleted(id text COLLATE "C" PRIMARY KEY, revision text COLLATE "C" NOT NULL);
CREATE TABLE sources(sha256 text PRIMARY KEY, name text NOT NULL, bytes bigint NOT NULL, added text NOT NULL);
CREATE TABLE origins(
    id text COLLATE "C" PRIMARY KEY REFERENCES documents ON DELETE CASCADE, path bytea NOT NULL, name text NOT NULL,
    sha256 text NOT NULL
);
CREATE INDEX origins_path ON origins USING hash(path);
CREATE INDEX origins_sha256 ON origins(sha256) WHERE name != '';
CREATE TABLE marks(
    target text COLLATE "C", source text COLLATE "C", mark text COLLATE "C", day integer,
    PRIMARY KEY (target, source, mark)
);
CREATE INDEX marks_source ON marks(source);
CREATE TABLE due(target text COLLATE "C" PRIMARY KEY);
CREATE TABLE patients(
    id text COLLATE "C" PRIMARY KEY, sequence bigint NOT NULL GENERATED ALWAYS AS IDENTITY, identity text NOT NULL
);
CREATE TABLE declared(what text PRIMARY KEY, at text NOT NULL);
"""
"""Some columns:

* `deletions` counts deletions on request. When it grows, every machine removes cached replies, which may quote
  documents.
* `build` is the number of the word index that takes a row in. Until then its words are in `new_words`.
* `vector_report` is the measurement of the index of vectors, see `vector_index.py`.
"""
_FUNCTIONS = f"""
CREATE FUNCTION contains(whole text, part text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT strpos(whole, part) > 0 $$;
CREATE FUNCTION current_patient() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN starts_with(current_setting('epicrisis.patient', true), 'p:')
        THEN substr(current_setting('epicrisis.patient', true), 3) END $$;
CREATE FUNCTION list_patients() RETURNS TABLE(
    patient text, notes bigint, dates text[], encounters text[], note_types json)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = {{schema}}, pg_temp AS $$
    WITH note AS MATERIALIZED (
        SELECT p.patient, p.date, (p.metadata::json -> 'encounter')::text AS encounter,
            (p.metadata::json -> 'note_type')::text AS note_type
        FROM passages p WHERE p.patient IS NOT NULL AND p.ordinal = 0
    ), record AS (
        SELECT note.patient, count(*) AS notes, array_agg(DISTINCT encounter) AS encounters
        FROM note GROUP BY note.patient
    ), period AS (
        SELECT range.patient, array_agg(first) || array_agg(last) AS dates FROM (
            SELECT note.patient, min(date) AS first, max(date) AS last FROM note GROUP BY note.patient, length(date)
        ) range GROUP BY range.patient
    ), kind AS (
        SELECT counted.patient, json_object_agg(note_type, notes) AS note_types FROM (
            SELECT note.patient, note_type, count(*) AS notes FROM note WHERE note_type IS NOT NULL
            GROUP BY note.patient, note_type
        ) counted GROUP BY counted.patient
    )
    SELECT patient, record.notes, period.dates, record.encounters, kind.note_types
    FROM record JOIN period USING (patient) LEFT JOIN kind USING (patient) $$;
CREATE FUNCTION list_identities() RETURNS TABLE(sequence bigint, id text, identity text)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = {{schema}}, pg_temp AS $$
    SELECT p.sequence, p.id, p.identity FROM patients p $$;
CREATE FUNCTION list_with_facets(first text[], second text[]) RETURNS SETOF text
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = {{schema}}, pg_temp AS $$
    SELECT id FROM passages WHERE facets && first AND facets && second AND ({_VISIBLE["passages"]}) $$;
CREATE FUNCTION list_new_words(words text[]) RETURNS SETOF new_words
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = {{schema}}, pg_temp AS $$
    SELECT * FROM new_words WHERE word = ANY(words) AND ({_VISIBLE["passages"]}) $$;
CREATE FUNCTION compute_new_mean() RETURNS double precision
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = {{schema}}, pg_temp AS $$
    SELECT sum(count)::float8 / count(DISTINCT passage) FROM new_words WHERE {_VISIBLE["passages"]} $$;
CREATE FUNCTION build_vector_index() RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = {{schema}}, {{extensions}}, pg_temp SET lock_timeout = '0' AS $$
BEGIN
    CREATE INDEX passages_vector_new ON passages USING hnsw(vector halfvec_ip_ops)
        WITH (m = 32, ef_construction = 128);
    PERFORM set_config('lock_timeout', '500ms', true);
{_drop_in_use("passages_vector")}    ALTER INDEX passages_vector_new RENAME TO passages_vector;
    UPDATE library SET vector_report = NULL;
END $$;
CREATE FUNCTION drop_vector_index() RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = {{schema}}, pg_temp
    AS $$ DROP INDEX IF EXISTS passages_vector $$;
CREATE FUNCTION rebuild_word_index() RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = {{schema}}, {{extensions}}, pg_temp SET default_tablespace = '' SET lock_timeout = '500ms' AS $$
DECLARE
    place oid := (SELECT oid FROM pg_tablespace WHERE spcname = '{WORD_TABLESPACE}'
        AND has_tablespace_privilege(oid, 'CREATE'));
    number bigint := (SELECT word_build + 1 FROM library);
    file oid;
    is_logged boolean;
BEGIN
    EXECUTE format('CREATE INDEX passages_words_new ON passages USING bm25(words) '
        'WITH (text_config = ''pg_catalog.simple'') WHERE build <= %s', number);
    IF place IS NOT NULL THEN
        ALTER INDEX passages_words_new SET TABLESPACE {WORD_TABLESPACE};
    END IF;
{_drop_in_use("passages_words")}    ALTER INDEX passages_words_new RENAME TO passages_words;
    DELETE FROM new_words;
    SELECT pg_relation_filenode(oid), reltablespace = place FROM pg_class WHERE oid = 'passages_words'::regclass
        INTO file, is_logged;
    UPDATE library SET words_changed = NULL, words_file = file, word_build = number, new_passages = 0,
        words_timeline = CASE WHEN is_logged THEN NULL ELSE {_TIMELINE} END,
        (word_passages, word_mean) = (SELECT count(*),
            coalesce(avg(1 + length(words) - length(replace(words, ' ', ''))), 0) FROM passages);
END $$;
CREATE FUNCTION drop_word_index() RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = {{schema}}, pg_temp
    AS $$ DROP INDEX IF EXISTS passages_words $$;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA {{schema}} FROM PUBLIC;
GRANT EXECUTE ON FUNCTION contains(text, text), current_patient() TO PUBLIC;
"""
"""Functions that see all rows run as the owner (SECURITY DEFINER), and have the condition of the rule themselves.

* `list_patients` lists the patients, a row for each, with values of the metadata as JSON, and without any text of the
  notes. Its `dates` are the first and the last of each length: among dates of one length, the order of text is that of
  time.
* `list_with_facets`: under row-level security the server uses an index only for operators that are "leakproof", which
  `&&` is not.
* `list_new_words`, `compute_new_mean`: readers may not read the table itself. EXPLAIN counts the rows that row-level
  security removes, which would tell whether another patient's note has a word.
* `build_vector_index` has twice pgvector's default links. With the defaults (16 and 64) recall@16 was 0.91 of a million
  synthetic passages, with these 0.999.
* `rebuild_word_index` puts a new word index into the place of the old one, in one transaction. pg_textsearch 0.6 writes
  nothing into the log of the server; moving an index to another tablespace does. It reads the condition of an index for
  each row that is inserted, not while it builds; then it holds for all rows.
"""
_BOUNDARY = """
ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
ALTER TABLE {table} FORCE ROW LEVEL SECURITY;
CREATE POLICY patient_boundary ON {table} FOR SELECT TO PUBLIC USING ({visible});
CREATE POLICY owner ON {table} FOR ALL TO CURRENT_USER USING (true) WITH CHECK (true);
"""
_INDEX_FUNCTIONS = (
    "bm25_dump_index",
    "bm25_spill_index",
    "bm25_force_merge",
    "bm25_summarize_index",
    "bm25_debug_pageviz",
)
_READER_ACCESS = """
GRANT USAGE ON SCHEMA {schema} TO {reader};
REVOKE ALL ON new_words FROM {reader};
GRANT SELECT ON library, documents, passages, sources, origins, declared TO {reader};
GRANT EXECUTE ON FUNCTION list_patients(), list_identities(), list_with_facets(text[], text[]), list_new_words(text[]),
    compute_new_mean() TO {reader};
"""
_WRITER_ACCESS = """
GRANT USAGE ON SCHEMA {schema} TO {writer};
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {writer};
GRANT MAINTAIN ON passages, documents TO {writer};
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO {writer};
"""
_WRITER_POLICY = """
CREATE POLICY writers ON {table} FOR ALL TO {writer} USING (true) WITH CHECK (true);
"""
MIGRATIONS: tuple[str, ...] = (_TABLES + _FUNCTIONS,)
"""The step to each version of the schema. The first creates it. A step is never changed after a release."""


def migrate(connection: Connection[object], schema: str, extensions: str, version: int, dimensions: int) -> int:
    """Upgrade a schema from `version` (0: empty) in the caller's transaction. Return the newest version.

    `schema` and `extensions` are quoted names; the connection's search path begins with the schema.
    """
    values = {"schema": schema, "extensions": extensions, "dimensions": dimensions, "attempts": _DROP_ATTEMPTS}
    for step in MIGRATIONS[version:]:
        # The steps are constants of this module, and the values are quoted names and a number.
        connection.execute(step.format(**values).encode())
    if version == 0:
        for table, visible in _VISIBLE.items():
            connection.execute(_BOUNDARY.format(table=table, visible=visible).encode())
    grant_access(connection, schema)
    return len(MIGRATIONS)


def find_open_index_functions(connection: Connection[object]) -> str:
    """Return the functions of pg_textsearch, with commas, by which everybody may print or change any index.

    They are for its developers, and show the words of all patients' notes.
    """
    query = (
        "SELECT coalesce(string_agg(proc.oid::regprocedure::text, ', '), '') FROM pg_proc proc, "
        "aclexplode(coalesce(proacl, acldefault('f', proowner))) AS rights "
        "WHERE proname = ANY(%s) AND rights.grantee = 0 AND rights.privilege_type = 'EXECUTE'"
    )
    row = connection.execute(query, (list(_INDEX_FUNCTIONS),)).fetchone()
    assert isinstance(row, tuple)
    return str(row[0])


def close_index_functions(connection: Connection[object]) -> str:
    """Revoke the functions of `find_open_index_functions`. Return the command if this user may not revoke them."""
    import psycopg

    if not (names := find_open_index_functions(connection)):
        return ""
    command = f"REVOKE EXECUTE ON FUNCTION {names} FROM PUBLIC"
    try:
        with connection.transaction():
            connection.execute(command.encode())
    except psycopg.errors.InsufficientPrivilege:
        return command
    # Without the right to revoke, the server only warns.
    return command if find_open_index_functions(connection) else ""


def drop_invalid_indexes(connection: Connection[object]) -> None:
    """Drop the unfinished indexes of passages that REINDEX CONCURRENTLY leaves when it is interrupted."""
    query = (
        "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = 'passages'::regclass AND NOT indisvalid "
        "AND starts_with(indexrelid::regclass::text, 'passages_')"
    )
    for row in connection.execute(query).fetchall():
        assert isinstance(row, tuple)
        connection.execute(f"DROP INDEX {row[0]}".encode())


def grant_access(connection: Connection[object], schema: str) -> None:
    """Give the roles READER and WRITER their rights, if they exist. Only the owner of the schema can."""
    rows = connection.execute("SELECT rolname FROM pg_roles WHERE rolname = ANY(%s)", ([READER, WRITER],)).fetchall()
    roles = {row[0] for row in rows}  # type: ignore[index]
    values = {"schema": schema, "reader": READER, "writer": WRITER}
    if READER in roles:
        connection.execute(_READER_ACCESS.format(**values).encode())
    if WRITER in roles:
        connection.execute(_WRITER_ACCESS.format(**values).encode())
        for table in _VISIBLE:
            # A change of a policy waits for long reads, and other reads wait behind it.
            query = "SELECT 1 FROM pg_policy WHERE polrelid = to_regclass(%s) AND polname = 'writers'"
            if connection.execute(query, (table,)).fetchone() is None:
                connection.execute(_WRITER_POLICY.format(table=table, **values).encode())
