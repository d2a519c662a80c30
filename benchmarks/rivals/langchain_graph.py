"""LangGraph's map-reduce by `Send`, as LangChain's documentation has it today. See `rivals.measured`.

pip install langgraph langchain-openai
"""

# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import operator
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypedDict

from langchain_core.callbacks import get_usage_metadata_callback
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from rivals.measured import Answer, Job, run

MAP = "What of the following document bears on the question? Question: {question}\n\nDocument: {document}"
REDUCE = "Answer the question from these extracts. Question: {question}\n\nExtracts:\n\n{extracts}"


class _State(TypedDict):
    question: str
    extracts: Annotated[list[str], operator.add]
    answer: str


class _Part(TypedDict):
    question: str
    document: str


def _graph(model: ChatOpenAI, documents: Sequence[str]) -> Any:
    def parts(state: _State) -> list[Send]:
        return [Send("read", {"question": state["question"], "document": document}) for document in documents]

    async def read(part: _Part) -> dict[str, Any]:
        reply = await model.ainvoke(MAP.format(**part))
        return {"extracts": [reply.text]}

    async def sum_up(state: _State) -> dict[str, Any]:
        extracts = "\n\n".join(state["extracts"])
        reply = await model.ainvoke(REDUCE.format(question=state["question"], extracts=extracts))
        return {"answer": reply.text}

    graph = StateGraph(_State)
    graph.add_node("read", read)
    graph.add_node("sum_up", sum_up)
    graph.add_conditional_edges(START, parts, ["read"])
    graph.add_edge("read", "sum_up")
    graph.add_edge("sum_up", END)
    return graph.compile()


@asynccontextmanager
async def prepared(job: Job) -> AsyncIterator[Answer]:
    """Answers by `abatch`."""
    graph = _graph(ChatOpenAI(model=job.model, base_url=job.url, api_key="none"), job.parts)

    async def answer(questions: Sequence[str]) -> tuple[int, list[str]]:
        asked = [{"question": question} for question in questions]
        with get_usage_metadata_callback() as counted:
            states = await graph.abatch(asked, config={"max_concurrency": job.limit})
        tokens = sum(usage["total_tokens"] for usage in counted.usage_metadata.values())
        return tokens, [state["answer"] for state in states]

    yield answer


run(["langgraph", "langchain-openai", "openai"], "config max_concurrency", prepared)
