"""A LlamaIndex retriever over a library (extra `llama-index`).

retriever = LlamaIndexRetriever(epicrisis.Library.open("~/lib"), k=4)
nodes = retriever.retrieve("aspirin in Lynch syndrome")
"""

from __future__ import annotations

from typing import Any

from epicrisis.api import Library
from epicrisis.core.errors import ModelMissing
from epicrisis.core.types import Ranking
from epicrisis.integrations.metadata import describe_hit

try:
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
except ImportError as missing:
    raise ModelMissing('the retriever for LlamaIndex needs its core: pip install "epicrisis[llama-index]"') from missing


class LlamaIndexRetriever(BaseRetriever):  # type: ignore[misc]
    """Returns the passages nearest to a query as scored nodes, best first. The library stays open."""

    def __init__(self, library: Library, k: int = 4, *, patient: str | None = None, **settings: Any) -> None:
        """Search with these settings. `patient` is the one whose record is searched, None for literature."""
        super().__init__()
        self._library = library
        self._patient = patient
        # Passages are counted, as in other retrievers.
        self._options = {"count": "passages", **settings, "k": k}

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return _convert(self._library.search(query_bundle.query_str, patient=self._patient, **self._options))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return _convert(await self._library.asearch(query_bundle.query_str, patient=self._patient, **self._options))


def _convert(ranking: Ranking) -> list[NodeWithScore]:
    nodes: list[NodeWithScore] = []
    for hit in ranking:
        metadata = describe_hit(hit)
        node = TextNode(
            id_=hit.passage.id,
            text=hit.passage.text,
            metadata=metadata,
            # A model is told the source, and an embedding only the text.
            excluded_llm_metadata_keys=sorted(metadata.keys() - {"title", "date", "marks"}),
            excluded_embed_metadata_keys=sorted(metadata),
        )
        nodes.append(NodeWithScore(node=node, score=float(hit.score)))
    return nodes
