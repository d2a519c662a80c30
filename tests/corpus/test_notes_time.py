"""Times of notes: known forms, told formats, and formats that cannot be used."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.core.dates import last_day
from epicrisis.core.errors import InputError
from epicrisis.core.types import Document
from epicrisis.corpus.base.note_times import check_time_format, leave_out_no_date, parse_note_time


@pytest.mark.parametrize(
    ("given", "date"),
    [
        ("2150", "2150"),
        ("2150-03", "2150-03"),
        ("2150-3-4", "2150-03-04"),
        ("2150-03-04 00:00:00", "2150-03-04"),
        ("2150-03-04T10:30:59.123Z", "2150-03-04T10:30"),
        ("2150-03-04T23:30:00+02:00", "2150-03-04T23:30"),
        ("04-MAR-2150 9:05", "2150-03-04T09:05"),
        ("March 4, 2150", "2150-03-04"),
        ("4.3.2150", "2150-03-04"),
        ("215003041030", "2150-03-04T10:30"),
        ("2150/03/04", "2150-03-04"),
        ("03/04/2150", None),
        ("2150-02-30", None),
        ("2150-03-04 25:00", None),
        ("yesterday", None),
        ("4 Foo 2150", None),
        ("2150-13", None),
    ],
)
def test_note_time_is_parsed(given: str, date: str | None) -> None:
    read = parse_note_time(given)
    assert (read[0] if read else None) == date


@pytest.mark.parametrize(
    ("given", "born", "is_date"),
    [
        *(("1900-01-01", "", False), ("1900-01-01 00:00:00", "", False), ("1900-01-02", "", True), ("1900", "", True)),
        *(
            ("1950-02-01", "1950-02-03", False),
            ("1950-02-02T23:00", "1950-02-03", True),
            ("1950-02", "1950-02-03", True),
        ),
        *(("1948", "1950", False), ("1949-12-31", "1950", True), ("1949-12-30", "1950", False), ("1949", "soon", True)),
    ],
)
def test_note_time_of_databases_for_none_or_before_birth_is_none(given: str, born: str, is_date: bool) -> None:
    assert (parse_note_time(given, born=born) is not None) is is_date


@pytest.mark.parametrize(
    ("date", "patient", "expected"),
    [
        *(("9999-12-31", "p", None), ("0001", None, None), ("1900-01-01", "p", None), ("2150-03", "p", "2150-03")),
        *(("1900-01-01", None, "1900-01-01"), ("1798", None, "1798"), ("soon", "p", "soon"), (None, "p", None)),
    ],
)
def test_document_without_a_known_date_has_none(date: str | None, patient: str | None, expected: str | None) -> None:
    document = leave_out_no_date(Document("d", "Text", date=date, patient=patient))
    assert document.date == expected
    assert document.metadata == ({"time_given": date} if date and expected is None else {})


@pytest.mark.parametrize(
    ("given", "form", "read"),
    [
        ("03/04/2150 09:05", "%d/%m/%Y %H:%M", ("2150-04-03T09:05", "")),
        ("2150-03-04 10:30:00", "%d/%m/%Y", ("2150-03-04T10:30", "")),
        ("2150-03-04T10:30+01:00", "%d/%m/%Y", ("2150-03-04T10:30", "+01:00")),
        ("03/2150", "%m/%Y", ("2150-03", "")),
        ("year 2150", "year %Y", ("2150", "")),
        ("2150, 3.", "%Y, %d.", ("2150", "")),
        ("March/2150 10:30", "%B/%Y %H:%M", ("2150-03", "")),
        ("2150/063", "%Y/%j", ("2150-03-04", "")),
        ("04/03/2150 00:00:00", "%d/%m/%Y %H:%M:%S", ("2150-03-04", "")),
        ("04/03/2150 00:00:30", "%d/%m/%Y %H:%M:%S", ("2150-03-04T00:00", "")),
        ("04/03/2150 9", "%d/%m/%Y %H", ("2150-03-04T09", "")),
        ("04/03/2150 09:05 PM +0230", "%d/%m/%Y %I:%M %p %z", ("2150-03-04T21:05", "+02:30")),
        ("04/03/2150 21:05Z", "%d/%m/%Y %H:%M%z", ("2150-03-04T21:05", "+00:00")),
        ("31/02/2150", "%d/%m/%Y", None),
    ],
)
def test_note_time_with_format_is_parsed(given: str, form: str, read: tuple[str, str] | None) -> None:
    check_time_format(form)
    assert parse_note_time(given, form) == read
    assert read is None or last_day(read[0])


@pytest.mark.parametrize(
    ("form", "cure"),
    [
        ("%d/%d", "names %d more than once"),
        ("%Q/%Y", "%Q is none of %Y"),
        ("%-d/%m/%Y", "%- is none of"),
        ("%Y-%m-%", "% is none of"),
        ("%d/%m %H:%M", "no year"),
        ("%%Y", "no year"),
        ("%c", "%c is none of"),
        ("%Y %m %b %j %y %", "% is none of"),
        ("ISO", "no year"),
    ],
)
def test_invalid_time_format_is_rejected(form: str, cure: str) -> None:
    with pytest.raises(InputError) as raised:
        check_time_format(form)
    assert cure in raised.value.message
    assert "\n" not in raised.value.message


@given(st.text(alphabet="%YmdHMbjpzy/:[(\\\n é", max_size=10))
def test_any_time_format_is_rejected_or_usable(form: str) -> None:
    try:
        check_time_format(form)
    except InputError:
        return
    read = parse_note_time("04/03/2150", form)
    assert read is None or last_day(read[0])


@given(st.text(alphabet="0123456789-/:.T ZMarch+", max_size=20))
def test_parsed_note_time_is_valid_library_date(given: str) -> None:
    read = parse_note_time(given)
    assert read is None or last_day(read[0])
