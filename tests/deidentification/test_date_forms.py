"""Dates keep their form when they move, and move back to what they were."""

from __future__ import annotations

import pytest

from epicrisis.privacy.deidentification.date_forms import find_dates, shift_date


def move(text: str, days: int) -> str:
    (written,) = find_dates(text)
    return shift_date(text, written, days)


@pytest.mark.parametrize(
    ("text", "moved"),
    [
        ("2019-03-04", "2019-04-03"),
        ("20190304", "20190403"),
        ("03/04/2019", "04/03/2019"),
        ("3/4/19", "4/3/19"),
        ("14.03.2019", "13.04.2019"),
        ("March 4, 2019", "April 3, 2019"),
        ("MAR 4, 2019", "APR 3, 2019"),
        ("4th of March 2019", "3rd of April 2019"),
        ("04-Mar-2019", "03-Apr-2019"),
        ("March 2019", "April 2019"),
        ("03/2019", "04/2019"),
        ("12/31/1999", "01/30/2000"),
    ],
)
def test_shift_keeps_the_form_and_can_be_undone(text: str, moved: str) -> None:
    assert move(text, 30) == moved
    assert move(moved, -30) == text


@pytest.mark.parametrize("text", ["5/5 strength", "1/2 tab", "BP 120/80", "L4-5", "in 2019", "2/30/2020", "1.2.3.4"])
def test_text_without_a_date_has_none(text: str) -> None:
    assert find_dates(text) == []


def test_interval_between_dates_is_kept_across_a_leap_day() -> None:
    from datetime import date

    first, second = date(2020, 2, 27), date(2020, 3, 2)
    moved = [date.fromisoformat(move(day.isoformat(), -57)) for day in (first, second)]
    assert moved[1] - moved[0] == second - first


@pytest.mark.parametrize(
    ("text", "dates"),
    [
        ("Drain removed 5/2, sutures 3/14.", ["5/2", "3/14"]),
        ("Cultures 05/02 without growth", ["05/02"]),
        ("afebrile 5/6-5/9", ["5/9"]),
        ("CT 3/4 shows no change", ["3/4"]),
    ],
)
def test_day_and_month_alone_are_a_date_if_they_can_be_no_share(text: str, dates: list[str]) -> None:
    assert [text[written.start : written.end] for written in find_dates(text)] == dates


@pytest.mark.parametrize(
    "text",
    [
        "Strength is 3/4 in the legs", "pain 7/10", "murmur 2/6", "BiPAP 12/5, then 10/5", "Apgars 8/9", "L5/4 disc",
        "pupils 5/4 mm", "Percocet 5/325", "insulin 70/30", "vision 20/20", "Hgb 10/3", "it grew in 2/2 bottles",
        "for 7/3 days", "GCS 3/15",
    ],
)  # fmt: skip
def test_share_score_and_setting_are_no_dates(text: str) -> None:
    assert find_dates(text) == []


def test_day_without_year_moves_only_behind_a_word_for_dates() -> None:
    text = "Seen on 3/14 with strength 4/5."
    (written,) = find_dates(text)
    assert text[written.start : written.end] == "3/14"
