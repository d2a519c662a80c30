"""LangChain's MapReduceDocumentsChain for questions, as `load_qa_chain` makes it. See `rivals.measured`.

pip install langchain-classic langchain-openai
"""

# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from langchain_classic.chains.question_answering import load_qa_chain
from langchain_core.callbacks import get_usage_metadata_callback
from langchain_core.documents import Document
from langchain_openai import ChatOpenAI

from rivals.measured import Answer, Job, run

warnings.simplefilter("ignore", DeprecationWarning)


@asynccontextmanager
async def prepared(job: Job) -> AsyncIterator[Answer]:
    """Answers by `abatch`. Its tokenizer would be fetched from the network: words are counted instead."""
    model = ChatOpenAI(
        model=job.model, base_url=job.url, api_key="none", custom_get_token_ids=lambda text: [0] * len(text.split())
    )
    chain = load_qa_chain(model, chain_type="map_reduce")
    documents = [Document(page_content=text) for text in job.parts]

    async def answer(questions: Sequence[str]) -> tuple[int, list[str]]:
        asked = [{"input_documents": documents, "question": question} for question in questions]
        with get_usage_metadata_callback() as counted:
            outputs = await chain.abatch(asked, config={"max_concurrency": job.limit})
        tokens = sum(usage["total_tokens"] for usage in counted.usage_metadata.values())
        return tokens, [output["output_text"] for output in outputs]

    yield answer


run(["langchain-classic", "langchain-openai", "openai"], "config max_concurrency", prepared)
