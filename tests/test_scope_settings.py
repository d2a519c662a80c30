"""What a search may see, from settings to scope; the leak guard."""

from __future__ import annotations

import pytest

from epicrisis.core.errors import InputError, SettingsError
from epicrisis.core.types import Question, Scope
from epicrisis.pipeline.components import build_scope
from epicrisis.server.libraries.resources import RequestSettings
from epicrisis.settings.configuration import load_settings


def test_scope_settings_build_scope() -> None:
    settings = load_settings(
        {
            "scope": {
                "as_of": "2019-06",
                "since": "2015",
                "types": ["Review"],
                "journals": ["BMJ"],
                "without": ["retracted"],
                "hide": ["pubmed:1"],
            }
        }
    ).scope
    assert build_scope(settings, "anna") == Scope(
        patient="anna",
        as_of="2019-06",
        hidden=frozenset({"pubmed:1"}),
        since="2015",
        publication_types=frozenset({"Review"}),
        journals=frozenset({"BMJ"}),
        without_retracted=True,
    )
    assert build_scope(load_settings().scope) == Scope(without_retracted=True)
    assert build_scope(load_settings({"scope": {"include": ["retracted"]}}).scope) == Scope()
    assert build_scope(load_settings({"scope": {"without": []}}).scope) == Scope()


def test_gold_documents_can_be_hidden_from_question() -> None:
    question = Question("Why?", patient="anna", gold_documents=("pubmed:2",))
    guarded = load_settings({"scope": {"hide": ["pubmed:1"], "hide_gold": True}}).scope
    assert build_scope(guarded, question=question).hidden == {"pubmed:1", "pubmed:2"}
    assert build_scope(guarded, question=question).patient == "anna"
    assert build_scope(load_settings().scope, question=question).hidden == frozenset()


@pytest.mark.parametrize("scope", [{"as_of": "soon"}, {"since": "2015-13"}, {"without": ["errata"]}, {"hidden": ["x"]}])
def test_invalid_scope_settings_are_rejected(scope: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match=r"setting scope\.|unknown setting scope\."):
        load_settings({"scope": scope})


@pytest.mark.parametrize(("since", "as_of"), [("2018", "2016"), ("2016-03", "2016-02"), ("2016-03-02", "2016-03-01")])
def test_dates_that_hide_every_document_are_refused(since: str, as_of: str) -> None:
    message = f"since {since} is later than as_of {as_of}, which hides every document"
    with pytest.raises(SettingsError, match=message):
        load_settings({"scope": {"since": since, "as_of": as_of}})
    with pytest.raises(InputError, match=message):
        RequestSettings(since=since).apply(load_settings({"scope": {"as_of": as_of}}))


@pytest.mark.parametrize(("since", "as_of"), [("2016", "2016"), ("2016-03", "2016"), ("2016", "2016-02-01")])
def test_dates_that_leave_a_day_are_taken(since: str, as_of: str) -> None:
    scope = RequestSettings(since=since, as_of=as_of).apply(load_settings()).scope
    assert (scope.since, scope.as_of) == (since, as_of)
