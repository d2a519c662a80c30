"""The retriever for LlamaIndex."""

from __future__ import annotations

import asyncio

import pytest

from epicrisis import EpicrisisError, Library

pytestmark = pytest.mark.integrations

try:
    from llama_index.core.llms import MockLLM
    from llama_index.core.query_engine import RetrieverQueryEngine
    from llama_index.core.schema import MetadataMode

    from epicrisis.integrations.llama_index import LlamaIndexRetriever
except (ImportError, EpicrisisError):
    # Skipped, saying so: tests/conftest.py.
    pass


def test_retriever_returns_scored_nodes_best_first(library: Library) -> None:
    retriever = LlamaIndexRetriever(library, k=2)
    nodes = retriever.retrieve("aspirin and pre-eclampsia")
    assert nodes[0].node.node_id == "pubmed:1#0"
    assert len(nodes) == 2
    assert nodes[0].score > nodes[1].score
    assert nodes[0].node.metadata["links"] == ["https://pubmed.ncbi.nlm.nih.gov/1/"]
    assert [node.node.node_id for node in asyncio.run(retriever.aretrieve("aspirin and pre-eclampsia"))] == [
        node.node.node_id for node in nodes
    ]


def test_query_engine_sends_text_title_and_date_of_passages(library: Library) -> None:
    engine = RetrieverQueryEngine.from_args(LlamaIndexRetriever(library, k=1, by="bm25"), llm=MockLLM())
    reply = engine.query("zinc")
    assert [node.node.ref_doc_id or node.node.metadata["document_id"] for node in reply.source_nodes] == ["pubmed:3"]
    text = reply.source_nodes[0].node.get_content(MetadataMode.LLM)
    assert "Zinc shortens acute diarrhoea in children." in text
    assert "date: 2002" in text
    assert "rank" not in text
    assert "Zinc shortens acute diarrhoea in children." in str(reply), "MockLLM repeats its prompt"


def test_retriever_of_patient_returns_no_other_record(ward: Library) -> None:
    nodes = LlamaIndexRetriever(ward, patient="bert").retrieve("colchicine")
    assert [node.node.metadata["patient"] for node in nodes] == ["bert"]
