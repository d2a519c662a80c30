"""The nouns: what a scope admits, what dates mean, how usage adds up, and the JSON of every value."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.core.answers import (
    Answer,
    Answered,
    AnswerStarted,
    Citation,
    Draft,
    Drafted,
    Event,
    ExamplesFound,
    Failure,
    MapFinished,
    MapStarted,
    ModelCalled,
    Notice,
    PartialAnswer,
    PreflightChecked,
    Quotation,
    Retrieved,
    SentencesSelected,
    TextDelta,
    Usage,
    Vote,
    Voted,
)
from epicrisis.core.dates import last_day
from epicrisis.core.serialization import EVENT_NAMES, dump_json, to_json
from epicrisis.core.types import EvidenceSpan, Hit, Passage, Preflight, Question, Ranking, Scope


def passage(date: str | None = None, patient: str | None = None, document_id: str = "d") -> Passage:
    return Passage(
        id=f"{document_id}#0",
        document_id=document_id,
        ordinal=0,
        start=0,
        end=4,
        text="text",
        date=date,
        patient=patient,
    )


usages = st.builds(
    Usage,
    calls=st.integers(0, 9),
    failed_calls=st.integers(0, 9),
    prompt_tokens=st.integers(0, 9),
    cached_tokens=st.integers(0, 9),
    completion_tokens=st.integers(0, 9),
    seconds=st.integers(0, 9).map(float),
    cost=st.none() | st.integers(0, 9).map(float),
)


def test_usage_sum_adds_all_fields() -> None:
    one = Usage(
        calls=1,
        failed_calls=2,
        uncounted_calls=3,
        prompt_tokens=4,
        cached_tokens=5,
        completion_tokens=6,
        reasoning_tokens=7,
        seconds=8.0,
        cost=9.0,
        replayed_calls=10,
        replayed_tokens=11,
    )
    ten = Usage(
        calls=10,
        failed_calls=20,
        uncounted_calls=30,
        prompt_tokens=40,
        cached_tokens=50,
        completion_tokens=60,
        reasoning_tokens=70,
        seconds=80.0,
        cost=90.0,
        replayed_calls=100,
        replayed_tokens=110,
    )
    assert one + ten == Usage(
        calls=11,
        failed_calls=22,
        uncounted_calls=33,
        prompt_tokens=44,
        cached_tokens=55,
        completion_tokens=66,
        reasoning_tokens=77,
        seconds=88.0,
        cost=99.0,
        replayed_calls=110,
        replayed_tokens=121,
    )


@pytest.mark.slow
@given(usages, usages)
def test_usage_sum_with_unknown_cost_is_unknown(one: Usage, other: Usage) -> None:
    total = one + other
    assert total == other + one
    assert (total.cost is None) == (one.cost is None or other.cost is None)
    assert one + Usage() == one


@pytest.mark.parametrize(
    ("date", "day"),
    [
        ("2015", 20151231),
        ("2015-06", 20150630),
        ("2016-02", 20160229),
        ("2015-06-30", 20150630),
        ("2015-02-01", 20150201),
        ("0001-01-01", 10101),
        ("2015-06-30T10:11:12Z", 20150630),
        ("2015-06-30 10:11", 20150630),
    ],
)
def test_last_day_of_date(date: str, day: int) -> None:
    assert last_day(date) == day


@pytest.mark.parametrize(
    "date",
    [
        "",
        "15",
        "20150",
        "2015-",
        "2015-13",
        "2015-00",
        "2015-06-32",
        "2015-06-00",
        "2015-06-30-1",
        "2015/06",
        "June 2015",
        "-2015",
        "2015-6x",
        " 2015",
        "2015-06-301",
    ],
)
def test_invalid_date_is_rejected_with_name(date: str) -> None:
    with pytest.raises(ValueError, match=r"date|calendar") as error:
        last_day(date)
    assert repr(date) in str(error.value)


@given(st.dates(), st.dates())
def test_last_day_preserves_order(one: object, other: object) -> None:
    assert (last_day(str(one)) < last_day(str(other))) == (str(one) < str(other))


@pytest.mark.parametrize(
    ("scope", "seen", "admitted"),
    [
        (Scope(), passage(), True),
        (Scope(patient="p1"), passage(), True),
        (Scope(patient="p1"), passage(patient="p1"), True),
        (Scope(patient="p1"), passage(patient="p2"), False),
        (Scope(), passage(patient="p1"), False),
        (Scope(patient=""), passage(patient="p1"), False),
        (Scope(patient=None), passage(patient=""), False),
        (Scope(hidden=frozenset({"d"})), passage(), False),
        (Scope(hidden=frozenset({"d#0", "other"})), passage(), True),
        (Scope(patient="p1", hidden=frozenset({"d"})), passage(patient="p1"), False),
        (Scope(as_of="2015"), passage("2015"), True),
        (Scope(as_of="2015"), passage("2015-12-31"), True),
        (Scope(as_of="2015"), passage("2016-01-01"), False),
        (Scope(as_of="2015-06"), passage("2015-06-30"), True),
        (Scope(as_of="2015-06"), passage("2015-07"), False),
        (Scope(as_of="2015-06-29"), passage("2015-06-30"), False),
        (Scope(as_of="2015-06"), passage("2015"), False),
        (Scope(as_of="2015-06-15"), passage("2015-06"), False),
        (Scope(as_of="2015"), passage(), False),
        (Scope(patient="p1", as_of="2015"), passage("2014", patient="p2"), False),
        (Scope(patient="p1", as_of="2015"), passage("2016", patient="p1"), False),
    ],
)
def test_scope_admits_matching_documents(scope: Scope, seen: Passage, admitted: bool) -> None:
    assert scope.admits(seen) is admitted


PASSAGE = passage("2015", "p1")
RANKING = Ranking((Hit(PASSAGE, 0.5, 0),), "dense", {"k": 1})
VERDICT = Preflight(
    rankings_agree=True, value=0.5, n=3, threshold=0.2, depth=16, dense_top=("d#0",), bm25_top=("d#0",), reason="agree"
)
PARTIAL = PartialAnswer(
    partition=0,
    passages=("d#0",),
    state="relevant",
    text="text",
    choice="A",
    quotations=(Quotation("d#0", "text", 0, 4),),
)
ANSWER = Answer(
    question=Question("Why?", options={"A": "yes"}, form="choice"),
    strategy="rag",
    state="answered",
    citations=(
        Citation(
            number=1,
            passage_id="d#0",
            document_id="d",
            title="t",
            source="s",
            date=None,
            start=0,
            end=4,
            quotation="text",
            verified=True,
        ),
    ),
    partials=(PARTIAL,),
    trace=(MapFinished(PARTIAL), Notice("kind", "message")),
)
EVENTS: list[Event] = [
    Retrieved(RANKING),
    SentencesSelected((EvidenceSpan("d", 0, 4),)),
    PreflightChecked(VERDICT),
    MapStarted(0, ("d#0",)),
    ExamplesFound(("e1",), ("e2",), ("teacher",)),
    Voted(Vote(number=0, letter_order=("B", "A"), state="answered", choice="B", text="It is.")),
    Drafted(Draft(number=0, state="answered", text="It is.", rewards={"truthfulness": 0.5})),
    MapFinished(PARTIAL),
    AnswerStarted("reduce", 1),
    TextDelta("reduce", "piece"),
    ModelCalled(
        stage="reduce",
        model="model",
        prompt_sha256="00",
        template="reduce@00",
        seed=0,
        sample=0,
        finish_reason="stop",
        usage=Usage(cost=None),
        at=1.0,
    ),
    Notice("kind", "message"),
    Answered(ANSWER),
]


def test_events_have_unique_names() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(Event)) == set(EVENT_NAMES)
    assert len(set(EVENT_NAMES.values())) == len(EVENT_NAMES)
    for event in EVENTS:
        data = to_json(event)
        assert data["event"] == EVENT_NAMES[type(event)]
        assert list(data)[1:] == [field.name for field in dataclasses.fields(event)]
        assert json.loads(json.dumps(data, allow_nan=False)) == data


def test_to_json_converts_nested_values() -> None:
    data = to_json(ANSWER)
    assert data["question"]["options"] == {"A": "yes"}
    assert data["usage"]["cost"] == 0.0
    assert data["preflight"] is None
    assert data["citations"][0]["end"] == 4
    assert data["trace"][0]["event"] == "map-finished"
    (quotation,) = data["trace"][0]["partial"]["quotations"]
    assert (quotation["passage_id"], quotation["end"], quotation["verified"]) == ("d#0", 4, True)
    assert data["trace"][1] == {"event": "notice", "kind": "kind", "message": "message"}
    assert "event" not in data
    assert to_json(EVENTS[0])["ranking"]["hits"][0]["passage"]["metadata"] == {}


def test_dump_json_writes_what_to_json_returns() -> None:
    values = [
        ANSWER,
        *EVENTS,
        Scope(hidden=frozenset({"b", "a"})),
        {1: (Failure("K", "Größe"), None)},
        Path("a/b"),
        1.5,
    ]
    for value in values:
        assert dump_json(value) == json.dumps(to_json(value), ensure_ascii=False)
    with pytest.raises(TypeError, match="object has no form in JSON"):
        dump_json({"value": object()})


def test_to_json_converts_plain_values() -> None:
    assert to_json(Quotation("d#0", "words"))["verified"] is False
    assert to_json(Scope(hidden=frozenset({"b", "a"})))["hidden"] == ["a", "b"]
    assert to_json({1: (Failure("K", "m"), None)}) == {"1": [{"kind": "K", "message": "m"}, None]}
    assert to_json("text") == "text"


def test_ranking_returns_ids_and_passages_in_order() -> None:
    other = passage(document_id="c")
    ranking = Ranking((Hit(PASSAGE, 2.0, 0), Hit(other, 1.0, 1)), "dense")
    assert ranking.ids == ("d#0", "c#0")
    assert ranking.passages == (PASSAGE, other)


def test_value_types_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        PASSAGE.text = "other"  # type: ignore[misc]
    with pytest.raises((AttributeError, TypeError)):
        object.__setattr__(PASSAGE, "grown", 1)
