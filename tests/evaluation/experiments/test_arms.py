"""Test protocols, samples, several gold documents, and cases from a real library."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from epicrisis.answering.paper_prompts import TEXT, describe_prompts
from epicrisis.core.errors import InputError
from epicrisis.core.types import Document, Question
from epicrisis.evaluation.datasets.dataset import Dataset, classes_by_gold
from epicrisis.evaluation.experiments import attention_bias, integration, positions
from epicrisis.evaluation.experiments.arms import ARMS, Study
from epicrisis.evaluation.experiments.passage_source import PassageSource, library_source, rank_candidates
from epicrisis.evaluation.experiments.study_protocols import PAPER_SETTINGS, PROTOCOLS, StudyProtocol, describe_protocol
from epicrisis.pipeline.components import LibrarySearch
from epicrisis.pipeline.recording.case import Case
from epicrisis.settings.settings import Settings
from epicrisis.testing.scorers import TermOverlapReranker
from tests.support.experiments import build_cases, evidence, key_of, passage, questions
from tests.support.hashed_encoder import opened_library

# -- protocols and samples --------------------------------------------------------------------------------------------


def test_protocols_differ_as_errata_state() -> None:
    published, coded, corrected = (PROTOCOLS[name] for name in ("published", "as-coded", "corrected"))
    families = [item for name, item in PROTOCOLS.items() if name.startswith("as-coded-")]
    assert list(PROTOCOLS) == ["published", "as-coded", *(item.name for item in families), "corrected"]
    assert [item.sample for item in (published, coded, corrected)] == ["at-random", "as-coded", "at-random"]
    assert (published.temperature, coded.temperature, corrected.temperature) == (None, 0.2, None)
    assert [coded.partition_size(k) for k in (1, 2, 8, 16)] == [1, 1, 4, 8]
    assert [published.partition_size(k) for k in (1, 8, 16)] == [4, 4, 4]
    assert corrected.partition_size(16) is None, "that of the settings"
    assert corrected.settings == {}, "as users' questions are asked"
    for item in (published, coded, *families):
        assert item.settings == PAPER_SETTINGS
    assert [item.map_reads for item in (published, coded, corrected)] == ["placed", "retrieved", "placed"]
    for item in PROTOCOLS.values():
        assert item.notes[0].startswith(f"Protocol {item.name}: ")
        assert any("ours under every protocol" in note for note in item.notes)
    assert [item.top_p for item in (published, coded, corrected)] == [None, 0.1, None]
    assert [(item.name, item.top_p) for item in families] == [
        ("as-coded-mixtral", 0.8),
        ("as-coded-llama-2", None),
        ("as-coded-llama-3", None),
    ]
    for item in families:
        same = replace(item, name="as-coded", top_p=0.1, prompts=coded.prompts, notes=coded.notes)
        assert same == coded, "a family changes prompts and top_p only"


def test_draw_sample_follows_protocol() -> None:
    sample = tuple(questions(400))
    dataset = Dataset("made-up", sample, classes_by_gold(sample))
    unbalanced = PROTOCOLS["published"].draw_sample(dataset, seed=3)
    balanced = PROTOCOLS["as-coded"].draw_sample(dataset, seed=3)
    assert len(unbalanced.questions) == len(balanced.questions) == 105
    assert [sum(q.gold == letter for q in balanced.questions) for letter in "ABC"] == [35, 35, 35]
    assert [sum(q.gold == letter for q in unbalanced.questions) for letter in "ABC"] != [35, 35, 35]
    assert len(PROTOCOLS["corrected"].draw_sample(dataset, 3, n=12).questions) == 12
    assert PROTOCOLS["as-coded"].describe_sample(3, 12) == {"how": "as-coded", "n": 12, "seed": 3}
    with pytest.raises(InputError, match="400 questions: draw between"):
        PROTOCOLS["corrected"].draw_sample(dataset, 3, n=401)


def test_sample_as_coded_equals_random_module_in_order_of_file() -> None:
    """The notebooks seed Python's generator and draw letter by letter."""
    asked = tuple(questions(400))
    dataset = Dataset("made-up", asked, classes_by_gold(asked))
    random.seed(0)
    expected: set[str] = set()
    for letter in "ABC":
        expected.update(random.sample([q.id for q in asked if q.gold == letter], 35))
    drawn = PROTOCOLS["as-coded"].draw_sample(dataset, seed=0)
    assert {question.id for question in drawn.questions} == expected
    assert {question.id for question in PROTOCOLS["as-coded"].draw_sample(dataset, seed=1).questions} != expected
    with pytest.raises(InputError, match="134 yes: draw between 1 and 133 a class"):
        PROTOCOLS["as-coded"].draw_sample(dataset, seed=0, n=200)


def test_describe_protocol_of_older_runs_does_not_claim_prompts_of_paper() -> None:
    """Their plans have no entry `prompts`."""
    for name in ("published", "as-coded"):
        old = describe_protocol({"protocol": name})
        new = describe_protocol({"protocol": name, "prompts": describe_prompts(PROTOCOLS[name].prompts or TEXT)})
        assert new == PROTOCOLS[name].notes
        assert old[0].startswith(f"Protocol {name}, in a run made before it had")
        assert any("The prompts, the length of replies" in note for note in old)
        assert not set(new[:2]) & set(old)
    assert describe_protocol({"protocol": "corrected"}) == PROTOCOLS["corrected"].notes
    assert describe_protocol({"protocol": "unknown"}) == describe_protocol({}) == ()


# -- several gold documents (errata C8) -------------------------------------------------------------------------------

TWO = replace(questions(1)[0], gold_documents=("gold:0", "doc:0:1"))


def evidence_of_two(question: Question) -> dict[str, tuple[object, ...]]:
    return {"gold:0": (key_of(question),), "doc:0:1": (passage("doc:0:1", "One."), passage("doc:0:1", "Two.", 1))}


def cases_of_two(protocol: StudyProtocol, seed: int = 0) -> tuple[Case, ...]:
    result = evidence(gold_passages=evidence_of_two)
    return build_cases(positions, [TWO], Study(result, protocol, seed=seed), ks=(8,), arms=("rag", "oracle"))


def test_placed_cases_with_one_of_several_gold_documents_exclude_the_others() -> None:
    observed = set()
    for seed in range(8):
        oracle, *placed = cases_of_two(PROTOCOLS["corrected"], seed)
        assert oracle.treatment.ranking is not None
        keys = oracle.treatment.ranking.ids
        observed.add(keys)
        for case in placed:
            assert case.treatment.ranking is not None
            ids = case.treatment.ranking.ids
            assert len({passage.document_id for passage in case.treatment.ranking.passages}) == 8
            assert set(ids) & {"gold:0#0", "doc:0:1#0", "doc:0:1#1"} == set(keys)
    assert observed == {("gold:0#0",), ("doc:0:1#0", "doc:0:1#1")}, "which one is drawn by the seed"


def test_placed_cases_with_all_gold_documents_keep_them_together() -> None:
    oracle, *placed = cases_of_two(replace(PROTOCOLS["corrected"], gold="all"))
    keys = ("gold:0#0", "doc:0:1#0", "doc:0:1#1")
    assert oracle.treatment.ranking is not None
    assert oracle.treatment.ranking.ids == keys
    starts = []
    for case in placed:
        assert case.treatment.ranking is not None
        ids = case.treatment.ranking.ids
        starts.append(ids.index(keys[0]))
        assert ids[starts[-1] : starts[-1] + 3] == keys
    assert starts == [0, 2, 3, 5, 6], "two documents of three passages among eight documents"


# -- a real library ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def library_search(tmp_path_factory: pytest.TempPathFactory) -> LibrarySearch:
    path = tmp_path_factory.mktemp("arms") / "library"
    sample = questions(5)
    documents = [Document(q.gold_documents[0], key_of(q).text) for q in sample]
    documents += [
        Document(f"doc:{q.id}:{j}", f"Study {j} saw disease {q.id} in {j} towns where drug {j} was sold.")
        for q in sample
        for j in range(12)
    ]
    return opened_library(path, documents)


def make_evidence(library_search: LibrarySearch, **settings: object) -> PassageSource:
    result = Settings.model_validate(settings)
    return library_source(library_search, result, "dense", reranker=("overlap", TermOverlapReranker()))


def test_library_source_scores_candidates_by_their_own_words(library_search: LibrarySearch) -> None:
    """Errata C6: the candidates alone decide, whatever else the library holds."""
    question = questions(5)[3]
    by_library = make_evidence(library_search)
    coded = library_source(library_search, Settings(), "dense", word_statistics="candidates")
    assert by_library.words is not None
    assert coded.words is not None
    found = coded.retrieve(question, 6)
    scored = coded.words(question, found.ids)
    assert scored == rank_candidates(question, found.passages)
    assert {name for name, _ in scored} == set(found.ids)
    fewer = dict(coded.words(question, found.ids[:3]))
    assert any(fewer[name] != dict(scored)[name] for name in fewer), "other candidates, other statistics"
    whole = dict(by_library.words(question, found.ids))
    part = dict(by_library.words(question, found.ids[:3]))
    assert all(part[name] == whole[name] for name in part), "the library's statistics stay"


def test_cases_have_prompts_and_sampling_of_protocol() -> None:
    for name, protocol in PROTOCOLS.items():
        study = Study(evidence(), protocol)
        for case in build_cases(positions, questions(1), study, ks=(8,), arms=("rag", "brief-context", "closed-book")):
            treatment = case.treatment
            assert (treatment.paper_prompts, treatment.top_p) == (protocol.prompts, protocol.top_p), name
    assert PROTOCOLS["corrected"].prompts is None


def test_cases_of_every_arm_are_built_from_real_library(library_search: LibrarySearch) -> None:
    sample = questions(5)
    study = Study(make_evidence(library_search), PROTOCOLS["corrected"])
    result = [
        *build_cases(positions, sample, study, ks=(8,), arms=tuple(ARMS)),
        *build_cases(attention_bias, sample, study, ks=(8,)),
    ]
    assert {case.condition["arm"] for case in result} == set(ARMS)
    for case in result:
        ranking = case.treatment.ranking
        if ranking is None:
            continue
        assert ranking.ids.count(f"{case.question.gold_documents[0]}#0") == 1
        assert len(set(ranking.ids)) == len(ranking.ids) == (1 if case.condition["arm"] == "oracle" else 8)
        if case.condition.get("distractors") == "random":
            assert ranking.ids[4] == f"{case.question.gold_documents[0]}#0"
    again = [
        *build_cases(positions, sample, study, ks=(8,), arms=tuple(ARMS)),
        *build_cases(attention_bias, sample, study, ks=(8,)),
    ]
    assert again == result


def test_cases_share_passages_in_memory(library_search: LibrarySearch) -> None:
    cases = build_cases(
        integration, {"set": questions(5)}, Study(make_evidence(library_search), PROTOCOLS["corrected"]), ks=(8,)
    )
    result = [item for case in cases if case.treatment.ranking for item in case.treatment.ranking.passages]
    assert len(cases) == 25
    assert len({id(item) for item in result}) == len({item.id for item in result}) < len(result) / 4


def test_cases_with_hidden_gold_document_raise_input_error(library_search: LibrarySearch) -> None:
    hidden = Study(make_evidence(library_search, scope={"hide_gold": True}), PROTOCOLS["corrected"])
    with pytest.raises(InputError, match="5 of 5 questions have gold documents that the library does not hold"):
        build_cases(positions, questions(5), hidden, ks=(8,))
