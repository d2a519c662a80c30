"""The date of a publication, from the many forms that publishers and reference managers write."""

from __future__ import annotations

import pytest

from epicrisis.core.dates import find_publication_date


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("2015", "2015"),
        ("2015/6", "2015-06"),
        ("2015-06-30T10:30:00Z", "2015-06-30"),
        ("2015/06/30/", "2015-06-30"),
        ("June 2015", "2015-06"),
        ("March 4, 2012", "2012-03-04"),
        ("4 Mar 2012", "2012-03-04"),
        ("2012 Mar 4", "2012-03-04"),
        ("2012 Mar", "2012-03"),
        ("2012 Mar-Apr", "2012"),
        ("2012 Feb 30", "2012"),
        ("03/04/2012", "2012"),
        ("Spring 2014", "2014"),
        ("2015-2016", "2015"),
        ("2015-13-01", "2015"),
        ("2015-02-30", "2015-02"),
        ("0000", None),
        ("PMC1234567", None),
        ("in press", None),
    ],
)
def test_publication_date_is_as_exact_as_the_text_and_the_calendar(text: str, date: str | None) -> None:
    assert find_publication_date(text) == date
