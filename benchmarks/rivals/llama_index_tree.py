"""LlamaIndex's `TreeSummarize` with `use_async`: chunks of the documents side by side, then their replies.
See `rivals.measured`.

    pip install llama-index-core llama-index-llms-openai-like

It packs documents into chunks of one size, the replies too. A chunk is made as large as the longest part, so that it
reads about one at a time. It has no setting for calls at once; `run_jobs(workers=)` bounds the questions.
"""

# mypy: disable-error-code="import-not-found"

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from llama_index.core.async_utils import run_jobs
from llama_index.core.callbacks import CallbackManager, TokenCountingHandler
from llama_index.core.indices.prompt_helper import PromptHelper
from llama_index.core.response_synthesizers import TreeSummarize
from llama_index.core.utils import get_tokenizer
from llama_index.llms.openai_like import OpenAILike

from rivals.measured import Answer, Job, run


@asynccontextmanager
async def prepared(job: Job) -> AsyncIterator[Answer]:
    """Answers by `aget_response`; tokens as its TokenCountingHandler has them."""
    counter = TokenCountingHandler()
    model = OpenAILike(
        model=job.model,
        api_base=job.url,
        api_key="none",
        is_chat_model=True,
        context_window=32_000,
        callback_manager=CallbackManager([counter]),
    )
    largest = max(len(get_tokenizer()(text)) for text in job.parts)
    helper = PromptHelper(context_window=32_000, num_output=256, chunk_overlap_ratio=0, chunk_size_limit=largest)
    tree = TreeSummarize(llm=model, prompt_helper=helper, use_async=True)

    async def answer(questions: Sequence[str]) -> tuple[int, list[str]]:
        counter.reset_counts()
        jobs = [tree.aget_response(question, job.parts) for question in questions]
        texts = await run_jobs(jobs, workers=job.limit)
        return counter.total_llm_token_count, [str(text) for text in texts]

    yield answer


run(
    ["llama-index-core", "llama-index-llms-openai-like", "openai"],
    "none for calls; run_jobs(workers=) for questions",
    prepared,
)
