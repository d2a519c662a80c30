"""A LangChain retriever over a library (extra `langchain`).

retriever = LangChainRetriever(library=epicrisis.Library.open("~/lib"), k=4)
documents = retriever.invoke("aspirin in Lynch syndrome")
"""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from epicrisis.api import Library
from epicrisis.core.errors import ModelMissing
from epicrisis.core.types import Ranking
from epicrisis.integrations.metadata import describe_hit

try:
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
except ImportError as missing:
    raise ModelMissing('the retriever for LangChain needs its core: pip install "epicrisis[langchain]"') from missing


class LangChainRetriever(BaseRetriever):  # type: ignore[misc]
    """Returns the passages nearest to a query as LangChain documents, best first. The library stays open.

    Other fields than these raise pydantic's ValidationError.
    """

    model_config = ConfigDict(extra="forbid")

    library: Library
    k: int = 4
    patient: str | None = None
    """The patient whose record is searched. None: literature."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Further settings of the search, such as `{"by": "bm25"}`."""
    search_kwargs: dict[str, Any] = Field(default_factory=dict)
    """`k` and settings under the name of LangChain's vector stores. They win over `k` and `settings`."""

    def _get_relevant_documents(self, query: str, *, run_manager: Any, k: int | None = None) -> list[Document]:
        return _convert(self.library.search(query, patient=self.patient, **self._options(k)))

    async def _aget_relevant_documents(self, query: str, *, run_manager: Any, k: int | None = None) -> list[Document]:
        return _convert(await self.library.asearch(query, patient=self.patient, **self._options(k)))

    def _options(self, k: int | None) -> dict[str, Any]:
        """Return the settings. Passages are counted, as in other retrievers."""
        options = {"count": "passages", **self.settings, "k": self.k, **self.search_kwargs}
        return options if k is None else {**options, "k": k}


def _convert(ranking: Ranking) -> list[Document]:
    return [Document(hit.passage.text, id=hit.passage.id, metadata=describe_hit(hit)) for hit in ranking]
