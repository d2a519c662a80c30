"""paper-qa's gathering of evidence and answer, without its agent and without retrieval. See `rivals.measured`.

    pip install paper-qa

Every document is one text; all are read (`evidence_retrieval=False`), so that nothing is embedded.
"""

# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

# Else it asks the network for a list of prices.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm
from lmi import LiteLLMModel
from paperqa import Docs, Settings
from paperqa.types import Doc, Text

from rivals.measured import Answer, Job, run


@asynccontextmanager
async def prepared(job: Job) -> AsyncIterator[Answer]:
    """Answers by `Docs.aquery`; tokens as the sessions have them."""
    name = f"openai/{job.model}"
    # Else it logs a complaint with every call that it does not know the price.
    price = {"litellm_provider": "openai", "input_cost_per_token": 0, "output_cost_per_token": 0}
    litellm.register_model({job.model: price, name: price})
    endpoint = {"model": name, "api_base": job.url, "api_key": "none"}
    model = LiteLLMModel(name=name, config={"model_list": [{"model_name": name, "litellm_params": endpoint}]})
    settings = Settings(
        llm=name,
        summary_llm=name,
        embedding="sparse",
        parsing={"defer_embedding": True},
        answer={
            "evidence_retrieval": False,
            "answer_max_sources": len(job.parts),
            "max_concurrent_requests": job.limit,
        },
    )
    docs = Docs()
    for number, text in enumerate(job.parts):
        doc = Doc(docname=f"d{number}", dockey=f"d{number}", citation=f"Document {number}, 2020")
        await docs.aadd_texts([Text(text=text, name=f"d{number}", doc=doc)], doc, settings)

    async def answer(questions: Sequence[str]) -> tuple[int, list[str]]:
        asked = (docs.aquery(question, settings, llm_model=model, summary_llm_model=model) for question in questions)
        sessions = await asyncio.gather(*asked)
        tokens = sum(sum(counts) for session in sessions for counts in session.token_counts.values())
        return tokens, [session.raw_answer for session in sessions]

    yield answer


run(["paper-qa", "fhlmi", "litellm", "openai"], "answer.max_concurrent_requests", prepared)
