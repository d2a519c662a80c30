"""A claim that its sentences do not say is marked, removed or withheld, as the settings say."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from epicrisis.core.answers import Answer, ModelCalled
from epicrisis.core.errors import ModelMissing
from epicrisis.core.protocols import ChatRequest
from epicrisis.core.types import Document, Hit, Passage, Question, Ranking, Sentence, SentenceHit, SentenceRanking
from epicrisis.pipeline.overrides import RunOverrides
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.pipeline.question_evidence import QuestionEvidence
from epicrisis.settings.settings import ROLES, ModelsByRole, ModelSettings, Settings
from epicrisis.testing.chat import ScriptedModel
from tests.cli.conftest import Run
from tests.support.hostile import HostileServer
from tests.support.patient_records import library
from tests.support.scorers import TermOverlapVerifier

QUESTION = "Does aspirin prevent stroke?"
SENTENCE = "Aspirin lowered the risk of stroke by 9 % in adults."
WRONG = "Aspirin lowered the risk of stroke by 12 %."
FLAGS = ("--by", "bm25", "--setting", "cache.mode=off", "--strategy", "rag", "--setting", "citing=quotes")
REASON = "its sentences do not say 12 %"

PASSAGE = Passage(
    id="a#0",
    document_id="a",
    ordinal=0,
    start=0,
    end=len(SENTENCE),
    text=SENTENCE,
    title="Aspirin for primary prevention",
)


@pytest.fixture
def trials(tmp_path: Path) -> Path:
    with library(tmp_path / "trials", [Document("a", SENTENCE, title="Aspirin for primary prevention")]) as store:
        return store.path


def reply(claim: str) -> str:
    quotes = [{"doc": 1, "quote": SENTENCE}]
    return json.dumps({"result": {"found": True, "quotes": quotes, "answer": claim}})


def ask(run: Run, trials: Path, claim: str, *flags: str) -> Any:
    flags = (*FLAGS, "--json", *flags)
    with HostileServer(lambda body: reply(claim)) as server:
        result = run("ask", trials, QUESTION, *flags, "--model", server.url)
    assert result.exit_code == 0
    return json.loads(result.stdout)


def test_ask_marks_number_that_is_not_in_the_sentence(run: Run, trials: Path) -> None:
    answer = ask(run, trials, WRONG, "--setting", "unsupported=mark")
    (claim,) = answer["claims"]
    assert answer["state"] == "answered"
    assert (claim["support"], claim["reason"], claim["checked_by"]) == ("not-checked", REASON, "rules")


def test_ask_leaves_other_claims_unchecked(run: Run, trials: Path) -> None:
    (claim,) = ask(run, trials, "Aspirin is worth its price.")["claims"]
    assert (claim["support"], claim["checked_by"]) == ("not-checked", "")


def test_ask_with_check_off_marks_nothing(run: Run, trials: Path) -> None:
    (claim,) = ask(run, trials, WRONG, "--setting", "check=off")["claims"]
    assert (claim["support"], claim["reason"]) == ("not-checked", "")


def test_ask_withholds_answer_whose_only_claim_is_doubtful(run: Run, trials: Path) -> None:
    answer = ask(run, trials, WRONG)
    assert (answer["state"], answer["text"]) == ("abstained", "")
    assert answer["withheld"]["reason"] == f"its only claim is not supported: {REASON}"


def test_ask_with_check_nli_without_model_names_the_setting(run: Run, trials: Path) -> None:
    result = run("ask", trials, QUESTION, "--setting", "check=nli")
    assert result.exit_code == 2
    assert "name one with check_model" in result.stderr
    assert "Traceback" not in result.stderr


def test_open_pipeline_with_missing_entailment_model_is_refused(trials: Path) -> None:
    models = ModelsByRole(writer=ModelSettings(name="http://127.0.0.1:9/v1#none"))
    settings = Settings(strategy="rag", by="bm25", check="nli", check_model="no-such-model", models=models)
    with pytest.raises(ModelMissing, match="no-such-model"):
        Pipeline.open(settings, trials)


def answer_with(settings: Settings, models: Mapping[str, ScriptedModel], **components: Any) -> Answer:
    passage = Passage(id="a#0", document_id="a", ordinal=0, start=0, end=len(SENTENCE), text=SENTENCE, title="Aspirin")
    overrides = RunOverrides(ranking=Ranking((Hit(passage, 1.0, 0),), "dense"))
    pipeline = Pipeline(settings, models, **components)
    return asyncio.run(pipeline.answer(Question(QUESTION), overrides=overrides))


def test_nli_check_of_pipeline_decides_claims() -> None:
    settings = Settings(strategy="rag", check="nli", check_model="term-overlap", citing="quotes")
    for claim, state, support in (
        ("Aspirin lowered stroke in adults.", "answered", "supported"),
        ("Zebras graze at dawn.", "abstained", "not-checked"),
    ):
        models = dict.fromkeys(ROLES, ScriptedModel(lambda _, claim=claim: reply(claim)))  # type: ignore[misc]
        answer = answer_with(settings, models, verifier=TermOverlapVerifier())
        assert (answer.state, answer.claims[0].support, answer.claims[0].checked_by) == (state, support, "term-overlap")


def test_confidence_has_the_share_of_supported_claims() -> None:
    claims = [
        {"text": text, "sentences": [1]} for text in ("Aspirin lowered stroke in adults.", "Zebras graze at dawn.")
    ]
    models = dict.fromkeys(ROLES, ScriptedModel(lambda _: json.dumps({"result": {"found": True, "claims": claims}})))
    settings = Settings(strategy="rag", check="nli", check_model="term-overlap", citing="numbers", unverified="keep")
    select = SentenceRanking((SentenceHit(Sentence(PASSAGE, 0, len(SENTENCE)), 1.0, 0),), {"encoder": "given"})

    async def select_sentences(*_: Any) -> SentenceRanking:
        return select

    pipeline = Pipeline(settings, models, verifier=TermOverlapVerifier())
    overrides = RunOverrides(ranking=Ranking((Hit(PASSAGE, 1.0, 0),), "dense"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(QuestionEvidence, "select_sentences", select_sentences)
        answer = asyncio.run(pipeline.answer(Question(QUESTION), overrides=overrides))
    assert [claim.support for claim in answer.claims] == ["supported"]
    assert [claim.support for claim in answer.withheld_claims] == ["not-checked"]
    assert answer.confidence is not None
    assert (answer.confidence.components, answer.confidence.value) == ({"claims": 0.5}, 0.5)


@pytest.mark.slow
def test_ask_shows_the_share_of_supported_claims_as_confidence(run: Run, trials: Path) -> None:
    mark = ("--setting", "unsupported=mark")
    answer = ask(run, trials, WRONG, *mark)
    assert answer["confidence"] == {"value": 0.0, "components": {"claims": 0.0}, "calibrated": None}
    assert ask(run, trials, "Aspirin is worth its price.")["confidence"] is None
    with HostileServer(lambda body: reply(WRONG)) as server:
        flags = (*FLAGS, *mark, "--model", server.url)
        shown = run("ask", trials, QUESTION, *flags).stdout
    assert "Confidence 0.00 from share of supported claims 0.00" in shown


@pytest.mark.parametrize("has_judge", [True, False])
def test_model_check_asks_the_judge_if_there_is_one(has_judge: bool) -> None:
    def silent(request: ChatRequest) -> Mapping[str, float]:
        return {"A": 0.1, "B": 0.8, "C": 0.1}

    writer = ScriptedModel(lambda _: reply("Aspirin is cheap."), name="writer", probabilities=silent)
    judge = ScriptedModel(lambda _: "", name="judge", probabilities=silent)
    models = {**dict.fromkeys(ROLES, writer), **({"judge": judge} if has_judge else {})}
    answer = answer_with(Settings(strategy="rag", check="model", citing="quotes"), models)
    assert answer.state == "abstained"
    assert answer.withheld is not None
    assert answer.withheld.reason == "its only claim is not supported: its sentences do not say so"
    calls = [(event.stage, event.model) for event in answer.trace if isinstance(event, ModelCalled)]
    assert calls == [("rag", "writer"), ("check", "judge" if has_judge else "writer")]
    assert answer.usage.calls == 2


def test_settings_of_check_have_judge_role_only_with_its_model() -> None:
    judge = ModelsByRole(judge=ModelSettings(name="smollm2-135m"))
    assert "judge" not in Settings(models=judge).roles
    assert "judge" not in Settings(check="model").roles
    assert "judge" in Settings(check="model", models=judge).roles


def test_recipe_contains_check_and_its_prompts_only_for_a_model() -> None:
    models = dict.fromkeys(ROLES, ScriptedModel(lambda _: ""))
    plain = Pipeline(Settings(), models).recipe()
    assert plain["settings"]["check"] == "rules"
    assert "check_prompts" not in plain
    recipe = Pipeline(Settings(check="model", unsupported="mark"), models).recipe()
    assert (recipe["settings"]["check"], recipe["settings"]["unsupported"]) == ("model", "mark")
    assert len(recipe["check_prompts"]) == 12
