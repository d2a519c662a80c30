"""The retriever for LangChain, with LangChain's own standard tests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from epicrisis import EpicrisisError, Library

pytestmark = pytest.mark.integrations

try:
    from langchain_core.runnables import RunnableLambda
    from langchain_tests.integration_tests import RetrieversIntegrationTests

    from epicrisis.integrations.langchain import LangChainRetriever
except (ImportError, EpicrisisError):
    # Skipped, saying so: tests/conftest.py.
    RetrieversIntegrationTests = object

if TYPE_CHECKING:
    from langchain_core.documents import Document


class TestStandard(RetrieversIntegrationTests):  # type: ignore[misc]
    @pytest.fixture(autouse=True)
    def _open(self, library: Library) -> None:
        self._library = library

    @property
    def retriever_constructor(self) -> type[Any]:
        return LangChainRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"library": self._library}

    @property
    def retriever_query_example(self) -> str:
        return "aspirin in pregnancy"


def test_retriever_in_chain_returns_passages_with_their_source(library: Library) -> None:
    def first_source(documents: list[Document]) -> tuple[str, str, str]:
        metadata = documents[0].metadata
        return documents[0].page_content, metadata["document_id"], metadata["links"][0]

    chain = LangChainRetriever(library=library, k=1, settings={"by": "bm25"}) | RunnableLambda(first_source)
    expected = (
        "Aspirin lowers the risk of preterm pre-eclampsia.",
        "pubmed:1",
        "https://pubmed.ncbi.nlm.nih.gov/1/",
    )
    assert chain.invoke("aspirin") == expected
    assert asyncio.run(chain.ainvoke("aspirin")) == expected


def test_retriever_of_patient_returns_no_other_record(ward: Library) -> None:
    found = LangChainRetriever(library=ward, patient="anna").invoke("colchicine")
    assert [document.metadata["patient"] for document in found] == ["anna"]
    with pytest.raises(EpicrisisError, match="select a patient"):
        LangChainRetriever(library=ward).invoke("colchicine")


def test_search_kwargs_are_those_of_vector_stores(library: Library) -> None:
    retriever = LangChainRetriever(library=library, k=3, search_kwargs={"k": 1, "by": "bm25"})
    assert len(retriever.invoke("aspirin")) == 1
    with pytest.raises(EpicrisisError, match="unknown setting filter"):
        LangChainRetriever(library=library, search_kwargs={"filter": {"year": 2020}}).invoke("aspirin")
    with pytest.raises(ValueError, match="search_type"):
        LangChainRetriever(library=library, search_type="mmr")
