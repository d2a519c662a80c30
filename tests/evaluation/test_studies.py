"""The table of experiments: what each asks, and what a plan says of it."""

from __future__ import annotations

import pytest

from epicrisis.errors import InputError
from epicrisis.evaluation.evaluating import NAME as EVALUATE
from epicrisis.evaluation.experiments import integration, probe
from epicrisis.evaluation.experiments.arms import Study
from epicrisis.evaluation.experiments.protocol import PROTOCOLS
from epicrisis.evaluation.studies import EXPERIMENTS, Grid, Request, _sample, experiment, protocol_of
from epicrisis.evaluation.tables.published import published
from epicrisis.settings import Settings
from tests.evaluation.experiments.world import evidence, questions

CORRECTED = PROTOCOLS["corrected"]


def test_every_experiment_is_called_by_its_name_and_stands_beside_what_is_printed() -> None:
    for name, each in EXPERIMENTS.items():
        assert experiment(name) is each
        assert set(each.published) <= set(published())
    assert EVALUATE not in EXPERIMENTS
    with pytest.raises(InputError, match="no experiment is called nonsense: known are positions, integration"):
        experiment("nonsense")
    with pytest.raises(InputError, match="no protocol is called nonsense: known are published, as-coded, corrected"):
        protocol_of("nonsense")


def test_integration_reads_one_k() -> None:
    """Two in one run would be averaged under the name of the first."""
    study = Study(evidence(), CORRECTED)
    make, asked = EXPERIMENTS["integration"].make, {"mirage/bioasq": questions(2)}
    made = make(asked, study, Grid(("rag", "brief-context"), (8,)), Settings())
    assert {case.condition["k"] for case in made} == {8}
    with pytest.raises(InputError, match="integration reads one k: give -k once"):
        make(asked, study, Grid(integration.ARMS, (8, 16)), Settings())


def test_a_plan_says_how_many_questions_were_drawn() -> None:
    """Those of the library itself are drawn by no protocol, so not by 105 of it nor by class."""
    own = _sample(("cloze",), PROTOCOLS["as-coded"], Request(), whole=False)
    assert own == {"how": "at-random", "n": probe.N, "seed": 0}
    assert _sample(("cloze",), CORRECTED, Request(questions=7, draw=3), whole=False) == {**own, "n": 7, "seed": 3}
    assert _sample(("mirage/pubmedqa",), CORRECTED, Request(), whole=False) == {**own, "n": 105}
    assert _sample(("medq",), CORRECTED, Request(), whole=True) == {"how": "all"}
