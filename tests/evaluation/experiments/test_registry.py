"""Test the registry of experiments and the plans that it makes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from epicrisis.answering.paper_prompts import FOLDER
from epicrisis.core.errors import InputError
from epicrisis.core.prompts import hash_prompts
from epicrisis.core.types import Document
from epicrisis.evaluation.analysis.published import load_published
from epicrisis.evaluation.experiments import integration, probe
from epicrisis.evaluation.experiments.arms import Study
from epicrisis.evaluation.experiments.definition import CaseInputs, Grid, Request
from epicrisis.evaluation.experiments.planning import EVALUATE, describe_sample, plan_experiment
from epicrisis.evaluation.experiments.record_cases import load_record_sets
from epicrisis.evaluation.experiments.registry import find_experiment, load_experiments
from epicrisis.evaluation.experiments.study_protocols import PROTOCOLS, find_protocol
from epicrisis.evaluation.runs.run_folder import RunPlan
from epicrisis.pipeline.components import LibrarySearch
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.pipeline.recording.case import Case
from epicrisis.settings.settings import ROLES, ScopeSettings, Settings
from epicrisis.testing.chat import ScriptedModel
from tests.support.experiments import evidence, passage, questions
from tests.support.hashed_encoder import opened_library

CORRECTED = PROTOCOLS["corrected"]


def test_experiments_are_found_by_name_with_published_tables() -> None:
    for name, experiment in load_experiments().items():
        assert experiment.name == name
        assert find_experiment(name) is experiment
        assert set(experiment.published) <= set(load_published())
    assert EVALUATE not in load_experiments()
    with pytest.raises(InputError, match="no experiment is called nonsense: known are positions, integration"):
        find_experiment("nonsense")
    with pytest.raises(
        InputError, match="no protocol is called nonsense: known are published, as-coded, as-coded-mixtral"
    ):
        find_protocol("nonsense")


def test_integration_with_several_k_raises_input_error() -> None:
    """Two in one run would be averaged under the name of the first."""
    study = Study(evidence(), CORRECTED)
    build, inputs = integration.EXPERIMENT.cases, CaseInputs({"mirage/bioasq": questions(2)}, study, Grid(), Settings())
    cases = build(replace(inputs, grid=Grid(("rag", "brief-context"), (8,))))
    assert {case.condition["k"] for case in cases} == {8}
    with pytest.raises(InputError, match="integration reads one k: give -k once"):
        build(replace(inputs, grid=Grid(integration.ARMS, (8, 16))))


def test_describe_sample_states_number_of_drawn_questions() -> None:
    """Those of the library itself are drawn by no protocol, so not by 105 of it nor by class."""
    own = describe_sample(("cloze",), PROTOCOLS["as-coded"], Request(), whole_sets=False)
    assert own == {"how": "at-random", "n": probe.N, "seed": 0}
    assert describe_sample(("cloze",), CORRECTED, Request(questions=7, draw=3), whole_sets=False) == {
        **own,
        "n": 7,
        "seed": 3,
    }
    assert describe_sample(("mirage/pubmedqa",), CORRECTED, Request(), whole_sets=False) == {**own, "n": 105}
    assert describe_sample(("medq",), CORRECTED, Request(), whole_sets=True) == {"how": "all"}


# -- over a library ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def library_search(tmp_path_factory: pytest.TempPathFactory) -> LibrarySearch:
    path = tmp_path_factory.mktemp("studies") / "library"
    text = "In the trial of drug {0}x the risk was lower in {1} patients of the whole town."
    documents = [Document(f"d{i}", text.format(i, 10 + i)) for i in range(24)]
    return opened_library(path, documents)


def make_pipeline(library_search: LibrarySearch, settings: Settings) -> Pipeline:
    return Pipeline(settings, dict.fromkeys(ROLES, ScriptedModel(lambda request: "")), library_search)


@pytest.mark.parametrize(("gold", "there"), [("one", 1), ("all", 2)])
def test_plan_experiment_places_one_or_all_gold_documents(
    tmp_path: Path, library_search: LibrarySearch, gold: str, there: int
) -> None:
    """Errata C8: both are to be had, and the plan says which it was."""
    path = tmp_path / "set.jsonl"
    row = {
        "id": "q",
        "text": "Does drug 3x help?",
        "options": ["yes", "no"],
        "gold": "A",
        "gold_documents": ["d3", "d4"],
    }
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    request = Request(sets=(str(path),), questions=1, gold="one" if gold == "one" else "all", grid=Grid(("rag",), (8,)))
    settings = Settings()
    plan, cases = plan_experiment(
        find_experiment("positions"), request, settings, make_pipeline(library_search, settings)
    )
    assert plan.arguments.get("gold", "one") == gold
    for case in cases:
        assert case.treatment.ranking is not None
        documents = [passage.document_id for passage in case.treatment.ranking.passages]
        assert len(documents) == 8
        assert len({"d3", "d4"} & {*documents}) == there


@pytest.mark.parametrize("protocol", [name for name in PROTOCOLS if name.startswith("as-coded")])
def test_load_record_sets_refuses_protocol_of_another_study(protocol: str) -> None:
    with pytest.raises(InputError, match=f"ehr has no protocol {protocol}, .*: use published or corrected"):
        load_record_sets(find_experiment("ehr"), Request(protocol=protocol))


def plan_two_questions(
    tmp_path: Path, library_search: LibrarySearch, protocol: str, **values: Any
) -> tuple[RunPlan, tuple[Case, ...]]:
    path = tmp_path / "set.jsonl"
    rows = []
    for letter, document in (("A", "d3"), ("B", "d4")):
        text = f"Does drug {document} help?"
        rows.append(
            {"id": letter, "text": text, "options": ["yes", "no"], "gold": letter, "gold_documents": [document]}
        )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    request = Request(sets=(str(path),), questions=1, protocol=protocol, grid=Grid(("rag",), (8,)))
    # As the command does, unless a setting says otherwise.
    settings = Settings.model_validate({"citing": "quotes", **values})
    return plan_experiment(find_experiment("positions"), request, settings, make_pipeline(library_search, settings))


def test_plan_experiment_names_prompts_of_paper(tmp_path: Path, library_search: LibrarySearch) -> None:
    """The recipe, which other runs share, does not change."""
    coded, cases = plan_two_questions(tmp_path, library_search, "as-coded-mixtral")
    corrected, _ = plan_two_questions(tmp_path, library_search, "corrected")
    assert coded.arguments["prompts"] == {"name": "mixtral", "hash": hash_prompts(FOLDER)}
    assert "prompts" not in corrected.arguments
    assert coded.recipe == corrected.recipe
    assert coded.sample == {"how": "as-coded", "n": 1, "seed": 0}
    assert {(case.treatment.temperature, case.treatment.top_p) for case in cases} == {(0.2, 0.8)}


@pytest.mark.parametrize(
    "values", [{"citing": "numbers"}, {"map_confidence": True}, {"defence": {"isolated_votes": True}}]
)
def test_plan_experiment_with_prompts_of_paper_refuses_settings_without_effect(
    tmp_path: Path, library_search: LibrarySearch, values: dict[str, Any]
) -> None:
    with pytest.raises(InputError, match=r"protocol published has the prompts of the paper, which know no .*: leave"):
        plan_two_questions(tmp_path, library_search, "published", **values)
    plan_two_questions(tmp_path, library_search, "corrected", **values)


def test_context_length_cases_at_k_one_read_key_document_alone(tmp_path: Path) -> None:
    """By passages a key document of two among one: context length reads it alone, positions refuses. By documents it is
    one."""
    halves = tuple(passage("gold:0", f"Half {i}.", i) for i in range(2))
    two = evidence(gold_passages=lambda question: {"gold:0": halves}, count="passages")
    inputs = CaseInputs({"own": questions(1)}, Study(two, CORRECTED), Grid(("rag",), (1,), (0,)), Settings())
    (case,) = find_experiment("context-length").cases(inputs)
    assert case.treatment.ranking is not None
    assert [item.id for item in case.treatment.ranking.passages] == ["gold:0#0", "gold:0#1"]
    with pytest.raises(InputError, match="2 key passages do not fit among 1"):
        find_experiment("positions").cases(inputs)


@pytest.mark.parametrize("name", ["integration", "cost", "open-ended"])
def test_plan_experiment_without_placement_refuses_gold_option(library_search: LibrarySearch, name: str) -> None:
    settings = Settings()
    with pytest.raises(InputError, match=f"{name} places no document: leave --gold out"):
        plan_experiment(find_experiment(name), Request(gold="all"), settings, make_pipeline(library_search, settings))


def test_probe_questions_respect_scope(library_search: LibrarySearch) -> None:
    settings = Settings(scope=ScopeSettings(hide=[f"d{i}" for i in range(12)]))
    request = Request(questions=5, grid=Grid(("rag",), (4,)))
    plan, cases = plan_experiment(find_experiment("probe"), request, settings, make_pipeline(library_search, settings))
    assert plan.sample == {"how": "at-random", "n": 5, "seed": 0}
    assert plan.dataset["n"] == len({case.question.id for case in cases}) == 5
    assert not {f"d{i}" for i in range(12)} & {name for case in cases for name in case.question.gold_documents}
