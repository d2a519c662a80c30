"""Verifiers of claims: a model of natural language inference, or a chat model's next token or score."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from epicrisis.answering.strategy_context import Context
from epicrisis.core.errors import ChatError, ContextOverflow
from epicrisis.core.prompts import Prompt, fence, render
from epicrisis.core.protocols import ChatReply, ChatRequest, NliModel, SupportScore
from epicrisis.core.types import ChatCheck

PROMPTS = "epicrisis.answering.prompts.check"
STAGE = "check"
SUPPORTED, SILENT, CONTRADICTED = "A", "B", "C"
LETTERS = (SUPPORTED, SILENT, CONTRADICTED)
YES_NO = ("Yes", "No")
MED_V1_TOKENS = 1024
_SCORE = re.compile(r"<score>\s{0,9}(-?[012])\s{0,9}</score>")
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


Send = Callable[[Prompt, ChatRequest], Awaitable[ChatReply]]
"""Send a request to a chat model. Raises ChatError."""


@dataclass(frozen=True, slots=True)
class ChatVerifier:
    """Asks a chat model whether sentences support a claim, in one of three ways.

    * `model`: any model names one letter, and its log-probabilities are read.
    * `minicheck`: MiniCheck (Tang et al. 2024) says yes or no, and its log-probabilities are read. It knows no
      contradiction.
    * `med-v1`: Med-V1 writes its reasons and a score from -2 (contradiction) to 2 (agreement).

    A failed call, a reply without its score, and a model that reports no probabilities are failures of the pair.
    """

    send: Send
    name: str
    seed: int = 0
    check: ChatCheck = "model"

    async def verify(self, pairs: Sequence[tuple[str, str]]) -> list[SupportScore]:
        return list(await asyncio.gather(*(self._score(*pair) for pair in pairs)))

    async def _score(self, sentences: str, claim: str) -> SupportScore:
        if self.check == "med-v1":
            return await self._read_score(render(PROMPTS, "med_v1", claim=claim, document=sentences))
        if self.check == "minicheck":
            return await self._read_options(render(PROMPTS, "minicheck", claim=claim, document=sentences), YES_NO)
        documents = fence(sentences.splitlines())
        return await self._read_options(render(PROMPTS, "support", claim=claim, documents=documents), LETTERS)

    async def _read_score(self, prompt: Prompt) -> SupportScore:
        request = ChatRequest(prompt.messages, max_tokens=MED_V1_TOKENS, seed=self.seed)
        try:
            reply = await self.send(prompt, request)
        except ChatError as error:
            return SupportScore(failure=error.message)
        return read_med_v1(reply.text, self.name)

    async def _read_options(self, prompt: Prompt, options: tuple[str, ...]) -> SupportScore:
        """Return the probabilities of the options; the first says supported, a third contradicted."""
        request = ChatRequest(prompt.messages, max_tokens=1, seed=self.seed, options=options)
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
        supported, *_, last = (math.exp(logprobs.values.get(option, -math.inf)) for option in options)
        return SupportScore(supported, last if options == LETTERS else 0.0)


def read_med_v1(reply: str, name: str) -> SupportScore:
    """Return the score of a reply of Med-V1. 1 and 2 are support, -1 and -2 contradiction, partial or strong."""
    scores = _SCORE.findall(reply)
    if not scores:
        return SupportScore(failure=f"{name} wrote no score: check = med-v1 needs a Med-V1 model")
    score = int(scores[-1])
    return SupportScore(float(score > 0), float(score < 0))


def make_chat_verifier(context: Context, role: str, check: ChatCheck = "model") -> ChatVerifier:
    """Return the verifier of a role's chat model. Its calls are part of the question's trace, usage and deadline."""

    async def send(prompt: Prompt, request: ChatRequest) -> ChatReply:
        return await context.call_model(role, STAGE, prompt, request)

    return ChatVerifier(send, context.models[role].name, context.options.seed, check)
