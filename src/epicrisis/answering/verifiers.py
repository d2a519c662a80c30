"""Verifiers of claims: a model of natural language inference, or a chat model's next token."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from epicrisis.answering.strategy_context import Context
from epicrisis.errors import ChatError, ContextOverflow
from epicrisis.prompts import Prompt, fence, render
from epicrisis.protocols import ChatReply, ChatRequest, NliModel, SupportScore

PROMPTS = "epicrisis.answering.prompts.check"
STAGE = "check"
SUPPORTED, SILENT, CONTRADICTED = "A", "B", "C"
LETTERS = (SUPPORTED, SILENT, CONTRADICTED)
LOW_MASS = 0.5
"""Below this share of the probability on the letters, the model was likely to write something else."""


@dataclass(frozen=True, slots=True)
class NliVerifier:
    """Takes entailment for support. A pair beyond the model's window is a failure."""

    model: NliModel
    name: str

    async def verify(self, pairs: Sequence[tuple[str, str]]) -> list[SupportScore]:
        return await asyncio.to_thread(self._score, pairs)

    def _score(self, pairs: Sequence[tuple[str, str]]) -> list[SupportScore]:
        if not pairs:
            return []
        try:
            rows = self.model.probabilities(pairs).astype(float).tolist()
        except ContextOverflow as error:
            if len(pairs) == 1:
                return [SupportScore(failure=str(error))]
            # The model refuses all pairs if one exceeds its window.
            middle = len(pairs) // 2
            return self._score(pairs[:middle]) + self._score(pairs[middle:])
        scores: list[SupportScore] = []
        for entailment, _, contradiction in rows:
            scores.append(SupportScore(entailment, contradiction))
        return scores


@dataclass(frozen=True, slots=True)
class ChatVerifier:
    """Asks a chat model for one letter: the sentences state the claim, do not say, or contradict it.

    Reads the log-probabilities of the letters, so a decision costs one token. A failed call, and a model that reports
    no probabilities, are failures of the pair.
    """

    send: Callable[[Prompt, ChatRequest], Awaitable[ChatReply]]
    name: str
    seed: int = 0

    async def verify(self, pairs: Sequence[tuple[str, str]]) -> list[SupportScore]:
        return list(await asyncio.gather(*map(self._score, pairs)))

    async def _score(self, pair: tuple[str, str]) -> SupportScore:
        sentences, claim = pair
        documents = fence(sentences.splitlines())
        prompt = render(PROMPTS, "support", claim=claim, documents=documents)
        request = ChatRequest(prompt.messages, max_tokens=1, seed=self.seed, options=LETTERS)
        try:
            reply = await self.send(prompt, request)
        except ChatError as error:
            return SupportScore(failure=error.message)
        logprobs = reply.option_logprobs
        if logprobs is None or not logprobs.values:
            message = f"{self.name} reports no probability for a letter: check with a model that reports them"
            return SupportScore(failure=message)
        if logprobs.mass < LOW_MASS:
            return SupportScore(failure=f"{self.name} was about to write something else than a letter")
        supported, contradicted = (math.exp(logprobs.values.get(key, -math.inf)) for key in (SUPPORTED, CONTRADICTED))
        return SupportScore(supported, contradicted)


def make_chat_verifier(context: Context, role: str) -> ChatVerifier:
    """Return the verifier of a role's chat model. Its calls are part of the question's trace, usage and deadline."""

    async def send(prompt: Prompt, request: ChatRequest) -> ChatReply:
        return await context.call_model(role, STAGE, prompt, request)

    return ChatVerifier(send, context.models[role].name, context.seed)
