"""JSON lines: the good ones are kept, the broken ones are named."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.core.types import Document
from epicrisis.corpus.base import jsonl
from epicrisis.corpus.base.jsonl import find_json_fault
from epicrisis.corpus.base.reader_base import FileFingerprint, FileRemark, Skipped
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.corpus.records.fhir.fhir_resources import has_fhir_lines, read_entries

GOOD = b'{"id": "a", "text": "Aspirin."}'


def _read(folder: Path, content: bytes, name: str = "lines.jsonl") -> list[Document | Skipped]:
    path = folder / name
    path.write_bytes(content)
    return list(jsonl.read_documents(path))


def test_jsonl_fields_fill_document(tmp_path: Path) -> None:
    line = {
        "id": 7,
        "text": " Fever.\r\nChills. ",
        "title": "Note",
        "source": "ward",
        "date": "2015-06",
        "patient": 12,
        "note_type": "discharge",
        "metadata": {"section": "history", "note_type": "hidden by the line's own"},
    }
    assert _read(tmp_path, json.dumps(line).encode()) == [
        Document(
            id="7",
            text=" Fever.\r\nChills. ",
            title="Note",
            source="ward",
            date="2015-06",
            patient="12",
            metadata={"section": "history", "note_type": "discharge"},
        )
    ]


def test_jsonl_date_that_nobody_knows_is_none(tmp_path: Path) -> None:
    (document,) = _read(tmp_path, b'{"id": "a", "text": "Fever.", "date": "9999-12-31", "patient": "p"}')
    assert isinstance(document, Document)
    assert (document.date, document.metadata) == (None, {"time_given": "9999-12-31"})


@pytest.mark.parametrize(
    ("keys", "id", "metadata"),
    [
        ({"id": 0}, "0", {}),
        ({"_id": "x"}, "x", {}),
        ({"pmid": 12377809}, "pubmed:12377809", {}),
        ({"id": None, "pmid": "5"}, "pubmed:5", {}),
        ({"id": "x", "pmid": "5"}, "x", {"pmid": "5"}),
    ],
)
def test_document_id_comes_from_first_available_field(
    tmp_path: Path, keys: dict[str, object], id: str, metadata: dict[str, object]
) -> None:
    (document,) = _read(tmp_path, json.dumps({**keys, "text": "t"}).encode())
    assert isinstance(document, Document)
    assert (document.id, document.metadata) == (id, metadata)


def test_null_and_empty_values_are_absent(tmp_path: Path) -> None:
    (document,) = _read(tmp_path, b'{"id": 1, "text": "t", "title": null, "source": null, "date": "", "patient": null}')
    assert document == Document(id="1", text="t", metadata={})


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"nope", "not JSON: Expecting value at character 1"),
        (b'{"id": 1', "not JSON: Expecting ',' delimiter at character 9"),
        (b"[1]", "not a JSON object; each line must be one, with id and text"),
        (b'{"text": "t"}', "id: Field required"),
        (b'{"id": "", "text": " "}', "id: empty; text: empty"),
        (b'{"id": true, "text": "t"}', "id: Input should be a valid string"),
        (b'{"id": 1.5, "text": 5}', "id: Input should be a valid string; text: Input should be a valid string"),
        (b'{"pmid": true, "text": "t"}', "id: Field required"),
        (b'{"id": 1}', "text: Field required"),
        (b'{"id": 1, "text": "t", "date": "June"}', "date: not a date of the form YYYY, YYYY-MM or YYYY-MM-DD"),
        (b'{"id": 1, "text": "t", "date": 20150630}', "date: not a date of the form YYYY, YYYY-MM or YYYY-MM-DD"),
        (
            b'{"id": 1, "text": "t", "patient": " "}',
            "patient: empty or a placeholder; name the patient, or leave it out for literature",
        ),
        (b'{"id": 1, "text": "t", "metadata": [1]}', "metadata: Input should be a valid dictionary"),
        (b'{"id": 1, "text": "a\\u0000b"}', "contains a NUL character"),
        (b'{"id": 1, "text": "t", "\\ud800": 1}', "contains half of a surrogate pair, which is not a character"),
        (b'{"id": 1, "text": "t", "score": NaN}', "holds a number that is not finite"),
        (b'{"id": 1, "text": "t", "score": 1e999}', "holds a number that is not finite"),
        (b'{"id": 1, "text": "t", "x": ' + b"[" * 40 + b"]" * 40 + b"}", "nested deeper than 32 levels"),
        (b"[" * 100_000, "JSON that cannot be read: a number is too long, or the nesting too deep"),
        (b'{"id": ' + b"9" * 5000 + b"}", "JSON that cannot be read: a number is too long, or the nesting too deep"),
        (b'{"id": 1, "text": "na\xefve"}', "not UTF-8 at byte 22; save the file as UTF-8"),
    ],
)
def test_malformed_line_is_reported_and_others_are_kept(tmp_path: Path, line: bytes, reason: str) -> None:
    first, broken, last = _read(tmp_path, GOOD + b"\n" + line + b"\n" + GOOD.replace(b'"a"', b'"b"'))
    assert isinstance(first, Document)
    assert isinstance(last, Document)
    assert (first.id, last.id) == ("a", "b")
    cure = "" if ";" in reason else "; correct the line"
    assert broken == Skipped(str(tmp_path / "lines.jsonl"), "line 2", reason + cure)


def test_skip_reason_contains_no_document_text(tmp_path: Path) -> None:
    lines = [
        b'{"id": 1, "text": "t", "date": "SECRET"}',
        b'{"id": "SECRET"}',
        b'{"id": 1, "text": ["SECRET"]}',
        b"SECRET",
    ]
    skipped = _read(tmp_path, b"\n".join(lines))
    assert [type(item) for item in skipped] == [Skipped] * 4
    assert "SECRET" not in str(skipped)


def test_unexpected_keys_become_metadata(tmp_path: Path) -> None:
    extra = {"model_config": 1, "model_extra": 2, "__class__": 3, "__pydantic_extra__": 4, "_x": 5, "self": 6}
    (document,) = _read(tmp_path, json.dumps({"id": 1, "text": "t", **extra}).encode())
    assert document == Document(id="1", text="t", metadata=extra)


def test_blank_lines_and_byte_order_mark_are_ignored(tmp_path: Path) -> None:
    items = _read(tmp_path, b"\xef\xbb\xbf" + GOOD + b"\r\n\r\n  \nnope\n")
    assert isinstance(items[0], Document)
    assert isinstance(items[1], Skipped)
    assert items[1].where == "line 4"


def test_only_line_feed_ends_line(tmp_path: Path) -> None:
    (document,) = _read(tmp_path, '{"id": 1, "text": "a\u2028b\u0085c"}'.encode())
    assert isinstance(document, Document)
    assert document.text == "a\u2028b\u0085c"


def test_file_of_blank_lines_is_reported(tmp_path: Path) -> None:
    for content in (b"\n \n", gzip.compress(b"")):
        assert [item.reason for item in _read(tmp_path, content) if isinstance(item, Skipped)] == [
            "has only blank lines"
        ]


def test_gzip_is_detected_by_content(tmp_path: Path) -> None:
    for content, name in ((gzip.compress(GOOD), "a.jsonl"), (GOOD, "b.jsonl.gz"), (gzip.compress(GOOD), "c.jsonl.gz")):
        (document,) = _read(tmp_path, content, name)
        assert isinstance(document, Document)
        assert document.id == "a"


def _cut(packed: bytes) -> bytes:
    return packed[: len(packed) // 2]


def _checksum(packed: bytes) -> bytes:
    return packed[:-8] + b"\0" * 8


@pytest.mark.slow
@pytest.mark.parametrize("damage", [_cut, _checksum])
def test_truncated_gzip_gives_lines_before_damage(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    lines = [json.dumps({"id": i, "text": f"{i * 7919 % 1009} {i * 104729 % 4001}"}) for i in range(20_000)]
    *documents, last = _read(tmp_path, damage(gzip.compress("\n".join(lines).encode() + b"\n")), "x.jsonl.gz")
    good = [item for item in documents if isinstance(item, Document)]
    assert [document.id for document in good] == [str(i) for i in range(len(good))]
    assert len(good) > 1000
    assert isinstance(last, Skipped)
    assert last.where == f"after line {len(good)}"
    assert "the file breaks off (" in last.reason
    assert last.reason.endswith("fetch it again or recreate it")


@pytest.mark.slow
def test_corrupt_gzip_is_reported_as_incomplete(tmp_path: Path) -> None:
    packed = gzip.compress(b"".join(b'{"id": %d, "text": "%d"}\n' % (i, i * 7919 % 1009) for i in range(20_000)))
    half = len(packed) // 2
    items = _read(tmp_path, packed[:half] + b"\xff" * half, "x.jsonl.gz")
    assert [item.id for item in items[:1000] if isinstance(item, Document)] == [str(i) for i in range(1000)]
    assert isinstance(items[-1], Skipped)
    assert "the file breaks off (" in items[-1].reason


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@given(_JSON)
def test_valid_values_can_be_written_as_strict_json(value: object) -> None:
    try:
        strict = json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except ValueError:
        assert find_json_fault(value) is not None
    else:
        assert (find_json_fault(value) is None) == (b"\\u0000" not in strict.replace(b"\\\\", b""))


@pytest.mark.long
@pytest.mark.data
def test_real_abstracts_are_all_read(data_folder: Path) -> None:
    items = list(jsonl.read_documents(data_folder / "bioasq" / "passages.jsonl.gz"))
    assert len(items) == 41_310
    assert all(isinstance(item, Document) and item.id.startswith("pubmed:") for item in items)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("name", ["lines.jsonl", "lines.jsonl.gz"])
def test_jsonl_of_other_programs_is_read_and_named(tmp_path: Path, encoding: str, name: str) -> None:
    text = "".join(json.dumps({"id": id_, "text": "Zoë’s fever."}, ensure_ascii=False) + "\r\n" for id_ in "ab")
    data = text.encode(encoding)
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    *documents, remark, fingerprint = read_sources([tmp_path])
    assert [item.text for item in documents if isinstance(item, Document)] == ["Zoë’s fever."] * 2
    assert isinstance(remark, FileRemark)
    assert remark.text == f"read as {encoding}, not as UTF-8"
    assert isinstance(fingerprint, FileFingerprint)


def test_fhir_lines_in_utf_16_are_read(tmp_path: Path) -> None:
    path = tmp_path / "notes.ndjson"
    path.write_bytes(json.dumps({"resourceType": "Patient", "id": "1"}).encode("utf-16"))
    assert has_fhir_lines(path)
    (entry,) = read_entries(path)
    assert (entry.resource, entry.line) == ({"resourceType": "Patient", "id": "1"}, None)
