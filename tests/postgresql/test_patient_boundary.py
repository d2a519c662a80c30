"""Row-level security keeps patients apart below the checks of this program: in SQL, as the role of the servers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import psycopg
import pytest

from epicrisis.core.errors import LibraryError
from epicrisis.core.types import Scope
from epicrisis.corpus.base.reader_base import PatientIdentity
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.core.patient_identities import record_identities
from epicrisis.library.core.patients import Roster, holds_patients
from epicrisis.library.postgresql import search
from epicrisis.library.postgresql.search import ScopeFilter
from epicrisis.system.remote_libraries import library_folder
from epicrisis.testing.stores import DIMENSIONS, build_stored_document
from tests.postgresql.conftest import LibraryDatabase, close_connections
from tests.support.postgresql_server import ADMIN, OWNER, READER, WRITER, PostgresqlServer

pytestmark = pytest.mark.postgresql

PATIENTS = [f"p{number:04}" for number in range(1001)]
SESSIONS = PATIENTS[::100][:10]
WAYS = {
    "by patient": "SELECT passages.text FROM targets JOIN passages USING (patient)",
    "by any other patient": "SELECT text FROM targets JOIN passages ON passages.patient IS DISTINCT FROM %(own)s "
    "AND passages.patient = targets.patient OR passages.patient = targets.patient",
    "by id": "SELECT text FROM targets JOIN passages ON passages.id = 'note ' || targets.patient || '#0'",
    "by document": "SELECT text FROM targets JOIN passages ON document_id = 'note ' || targets.patient",
    "by text": "SELECT text FROM targets JOIN passages ON text LIKE '%%secret ' || targets.patient || '.%%'",
    "by words": "SELECT text FROM targets JOIN passages ON words LIKE '%%' || targets.patient || '%%'",
    "by metadata": "SELECT metadata FROM targets JOIN passages ON metadata LIKE '%%' || targets.patient || '%%'",
    "by vector": "SELECT near.text FROM targets, LATERAL (SELECT text, patient FROM passages "
    "ORDER BY vector <-> ('[' || substr(targets.patient, 2)::int || ',1,0,0]')::halfvec LIMIT 3) AS near "
    "WHERE near.patient = targets.patient",
    "by document list": "SELECT id FROM targets JOIN documents ON id = 'note ' || targets.patient",
    "by list through a view": "SELECT id FROM targets JOIN everything USING (patient)",
}
"""Ways to read the notes of the patients in `targets`, none of whom the session names."""
ESCAPES = [
    "SET row_security = off; SELECT text FROM passages",
    "ALTER TABLE passages DISABLE ROW LEVEL SECURITY",
    "ALTER TABLE passages NO FORCE ROW LEVEL SECURITY",
    "CREATE POLICY mine ON passages USING (true)",
    "DROP POLICY patient_boundary ON passages",
    "ALTER TABLE passages OWNER TO CURRENT_USER",
    "SET ROLE epicrisis_writer",
    f"SET ROLE {OWNER}",
    f"SET ROLE {ADMIN}",
    f"SET SESSION AUTHORIZATION {ADMIN}",
    "ALTER ROLE CURRENT_USER BYPASSRLS",
    f"GRANT epicrisis_writer TO {READER}",
    "CREATE OR REPLACE FUNCTION current_patient() RETURNS text LANGUAGE sql AS $$ SELECT 'p0001' $$",
    "CREATE FUNCTION epicrisis.mine() RETURNS SETOF passages LANGUAGE sql SECURITY DEFINER AS 'TABLE passages'",
    "SELECT identity FROM patients",
    "SELECT * FROM marks",
    "SELECT * FROM new_words",
    "SELECT build_vector_index()",
    "SELECT drop_vector_index()",
    "SELECT bm25_dump_index('epicrisis.passages_words')",
    "SELECT bm25_dump_index('epicrisis.passages_words', '/tmp/words')",
    "SELECT bm25_summarize_index('epicrisis.passages_words')",
    "SELECT bm25_debug_pageviz('epicrisis.passages_words', '/tmp/words')",
    "COPY passages TO '/tmp/notes'",
    "COPY passages TO PROGRAM 'cat'",
    "SELECT pg_read_file('postgresql.conf')",
    "SELECT lo_export(1, '/tmp/x')",
    "TRUNCATE passages",
    "UPDATE passages SET patient = NULL",
    "INSERT INTO documents VALUES ('x', NULL, '', 0, NULL)",
    "DELETE FROM passages",
    "SELECT * FROM pg_statistic",
    "CREATE EXTENSION pageinspect",
]


@pytest.fixture(scope="module")
def ward(server: PostgresqlServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LibraryDatabase]:
    """A library with one note for each of PATIENTS, and 20 papers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EPICRISIS_HOME", str(tmp_path_factory.mktemp("home")))
        server.create_database("ward")
        ward = LibraryDatabase(server, "ward")
        documents = [build_stored_document(f"paper {number}", "aspirin lowers the risk") for number in range(20)]
        for number, patient in enumerate(PATIENTS):
            metadata = {"patient_name": f"Name of {patient}", "publication_types": ["Letter"]}
            text = f"aspirin was given: secret {patient}."
            documents.append(
                build_stored_document(
                    f"note {patient}", text, vectors=[[number, 1, 0, 0]], patient=patient, metadata=metadata
                )
            )
        with ward.create() as library:
            names = [PatientIdentity(patient, names=(f"Name of {patient}",)) for patient in PATIENTS]
            record_identities(library.path, names)
            library.add(documents)
            library.compact()
        yield ward
        close_connections()


def connect(ward: LibraryDatabase, user: str) -> psycopg.Connection[Any]:
    connection = ward.server.connect(ward.name, user)
    connection.execute("SET search_path = epicrisis, public")
    return connection


def read_others(connection: psycopg.Connection[Any], own: str, targets: list[str], way: str) -> int:
    """Return how many rows of the targets this way reads, in a transaction for the patient `own`."""
    with connection.transaction():
        connection.execute("SELECT set_config('epicrisis.patient', %s, true)", (f"p:{own}",))
        connection.execute("CREATE TEMP VIEW everything AS SELECT * FROM documents")
        with_targets = f"WITH targets AS MATERIALIZED (SELECT unnest(%(targets)s::text[]) AS patient) {WAYS[way]}"
        rows = connection.execute(with_targets.encode(), {"targets": targets, "own": own}).fetchall()
        connection.execute("DROP VIEW everything")
    return len(rows)


def test_100_000_reads_of_other_patients_return_no_row(ward: LibraryDatabase) -> None:
    attempts = rows = 0
    with connect(ward, READER) as connection:
        for own in SESSIONS:
            targets = [patient for patient in PATIENTS if patient != own]
            for way in WAYS:
                rows += read_others(connection, own, targets, way)
                attempts += len(targets)
    assert (attempts, rows) == (100_000, 0)


@pytest.mark.parametrize("way", WAYS)
def test_reads_of_other_patients_find_them_without_row_level_security(ward: LibraryDatabase, way: str) -> None:
    """The attempts can succeed: as a superuser each of them does, almost always."""
    with connect(ward, ADMIN) as connection:
        assert read_others(connection, PATIENTS[0], PATIENTS[1:], way) > 900


@pytest.mark.parametrize("way", ["by patient", "by id", "by document", "by text", "by words", "by document list"])
def test_patient_of_the_session_is_read(ward: LibraryDatabase, way: str) -> None:
    with connect(ward, READER) as connection:
        assert read_others(connection, "p0007", ["p0007"], way) == 1


def test_session_without_patient_sees_literature_alone(ward: LibraryDatabase) -> None:
    with connect(ward, READER) as connection:
        for value in ("", "p0007", "P:p0007", "p:", "p:p000", "p:p0007 ", "p:%", "p:' OR true --"):
            connection.execute("SELECT set_config('epicrisis.patient', %s, false)", (value,))
            for table in ("passages", "documents"):
                count = connection.execute(f"SELECT count(*), count(patient) FROM {table}".encode()).fetchone()
                assert count == (20, 0), (value, table)


@pytest.mark.parametrize("statement", ESCAPES)
def test_reader_cannot_escape(ward: LibraryDatabase, statement: str) -> None:
    with connect(ward, READER) as connection:
        connection.execute("SELECT set_config('epicrisis.patient', 'p:p0007', false)")
        with pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.FeatureNotSupported)):
            connection.execute(statement.encode())


def test_function_of_reader_sees_no_row_before_the_rule(ward: LibraryDatabase) -> None:
    """A cheap function in a condition runs after the rule, so its messages show no other patient."""
    notices: list[str] = []
    with connect(ward, READER) as connection:
        connection.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
        connection.execute(
            "CREATE FUNCTION pg_temp.leak(value text) RETURNS boolean LANGUAGE plpgsql COST 0.000001 AS "
            "$$ BEGIN RAISE NOTICE '%', value; RETURN true; END $$"
        )
        connection.execute("SELECT set_config('epicrisis.patient', 'p:p0007', false)")
        connection.execute("SELECT id FROM passages WHERE pg_temp.leak(text) AND pg_temp.leak(patient)")
    told = {notice for notice in notices if "secret" in notice or notice in PATIENTS}
    assert told == {"aspirin was given: secret p0007.", "p0007"}


def test_list_with_facets_names_no_other_patient(ward: LibraryDatabase) -> None:
    """The function runs with the rights of the owner, who sees every row."""
    letters = {"types": ["type:letter"]}
    with connect(ward, ADMIN) as connection:
        count = "SELECT count(*) FROM passages WHERE facets && %(types)s::text[]"
        assert connection.execute(count.encode(), letters).fetchone() == (len(PATIENTS),), "every note is a letter"
    with connect(ward, READER) as connection:
        query = "SELECT list_with_facets(%(types)s::text[], %(types)s::text[])"
        assert connection.execute(query.encode(), letters).fetchall() == []
        connection.execute("SELECT set_config('epicrisis.patient', 'p:p0007', false)")
        assert connection.execute(query.encode(), letters).fetchall() == [("note p0007#0",)]


def test_statistics_and_copies_show_no_other_patient(ward: LibraryDatabase) -> None:
    with connect(ward, READER) as connection:
        rows = connection.execute("SELECT * FROM pg_stats WHERE tablename IN ('passages', 'documents')").fetchall()
        assert rows == []
        with connection.cursor().copy("COPY (SELECT text FROM passages) TO STDOUT") as copy:
            assert sum("secret" in str(bytes(line)) for line in copy) == 0


def test_roles_of_servers_have_no_way_around_the_rule(ward: LibraryDatabase) -> None:
    with connect(ward, ADMIN) as connection:
        roles = connection.execute(
            "SELECT rolname FROM pg_roles WHERE rolname = ANY(%s) AND (rolsuper OR rolbypassrls OR rolcreaterole)",
            ([READER, "epicrisis_reader", WRITER, "epicrisis_writer", OWNER],),
        ).fetchall()
        assert roles == []
        rows = connection.execute(
            "SELECT relname, relrowsecurity AND relforcerowsecurity FROM pg_class "
            "WHERE relnamespace = 'epicrisis'::regnamespace AND relkind = 'r' "
            "AND has_table_privilege(%s, oid, 'SELECT')",
            (READER,),
        ).fetchall()
    tables = dict(rows)
    protected = {"passages", "documents", "origins"}
    assert tables == {**dict.fromkeys(protected, True), "library": False, "sources": False, "declared": False}


def test_rule_holds_where_checks_of_the_program_fail(ward: LibraryDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every filter of this program replaced by `true`, the role of the servers still reads one patient."""
    monkeypatch.setattr(search, "build_filter", lambda *arguments: ScopeFilter("true", {"retractions": []}))
    monkeypatch.setattr(Scope, "admits", lambda scope, passage: True)
    axis = np.eye(DIMENSIONS, dtype=np.float32)[0]
    scope = Scope(patient="p0007")
    visible = {"note p0007#0", *(f"paper {number}#0" for number in range(20))}
    reader = ward.read()
    assert {hit.id for hit in reader.search_words("aspirin secret", 2000, scope)} == visible
    assert {hit.id for hit in reader.search_vectors(axis, 2000, scope)} == visible
    assert [passage.id for passage in reader.fetch(["note p0007#0", "note p0008#0"], scope)] == ["note p0007#0"]
    assert len(ward.read(user=WRITER).search_words("aspirin secret", 2000, scope)) == 1021, "the filters were replaced"


def test_user_with_more_rights_searches_as_reader_where_granted(
    ward: LibraryDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    ward.server.execute("CREATE ROLE ward_lead LOGIN PASSWORD 'x' IN ROLE epicrisis_reader, epicrisis_writer")
    monkeypatch.setattr(search, "build_filter", lambda *arguments: ScopeFilter("true", {"retractions": []}))
    url = ward.url("ward_lead", password="x")
    assert len(LibraryStore.open(url).search_words("aspirin secret", 2000, Scope(patient="p0007"))) == 21


def test_reader_knows_the_patients_without_their_text(ward: LibraryDatabase) -> None:
    reader = ward.read()
    records = Roster(reader).patients()
    assert len(records) == len(PATIENTS)
    assert (records["p0007"].notes, records["p0007"].name) == (1, "Name of p0007")
    assert reader.count() == (1021, 1021)
    assert holds_patients(library_folder(ward.url(READER)))
    with connect(ward, READER) as connection:
        rows = connection.execute("SELECT list_patients()::text, list_identities()::text").fetchall()
    assert "secret" not in str(rows)


def test_creation_is_refused_while_everybody_may_print_an_index(
    server: PostgresqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.execute("CREATE DATABASE open_index", f"GRANT CREATE ON DATABASE open_index TO {OWNER}")
    server.execute("CREATE EXTENSION vector", "CREATE EXTENSION pg_textsearch", database="open_index")
    with pytest.raises(LibraryError, match=r"REVOKE EXECUTE ON FUNCTION .*bm25_dump_index.* FROM PUBLIC"):
        LibraryDatabase(server, "open_index").create()
