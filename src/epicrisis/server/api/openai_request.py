"""The body of a chat completion: the conversation, the model, and which parameters are used, reported or refused.

A parameter that would change the answer is never ignored in silence: it is refused if the reply would have another
form, and otherwise named in the reply (`epicrisis.unused`). So is what is no text in messages before the last: clients
send the whole conversation again with each question.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from epicrisis.answering.follow_up import ConversationTurn
from epicrisis.core.errors import InputError
from epicrisis.server.api.housekeeping import asks_for_title, is_housekeeping
from epicrisis.server.base.http_errors import UnsupportedParameter
from epicrisis.server.base.request_body import RequestBody
from epicrisis.server.libraries.asked_questions import MAX_QUESTION_CHARACTERS, LibraryName, Options, PatientId
from epicrisis.server.libraries.caller_access import AccessReason
from epicrisis.server.libraries.resources import RequestSettings

MAX_HISTORY_CHARACTERS = 20_000
"""The newest part of a conversation that completes a question. Older messages are left out, which the reply says."""
MAX_MESSAGES = 500
REFUSED: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
    "moderation": (),
}
"""Parameters that ask for another form of reply, with the values that do not."""
_SAMPLING = """
min_p top_k top_a typical_p tfs_z repeat_penalty repetition_penalty repeat_last_n penalty_prompt
no_repeat_ngram_size length_penalty eta_cutoff epsilon_cutoff epsilon_decay mirostat mirostat_mode mirostat_tau
mirostat_eta dynatemp_range dynatemp_exponent xtc_probability xtc_threshold dry_multiplier dry_base
dry_allowed_length samplers dry_sequence_breakers dry_penalty_last_n top_n_sigma smoothing_factor
smoothing_curve min_tokens min_length n_predict num_predict num_ctx num_keep max_output_tokens max_new_tokens
max_length do_sample num_beams use_beam_search early_stopping best_of ignore_eos stop_token_ids
include_stop_str_in_output skip_special_tokens random_seed temp temperature_last frequency_penalty_range
presence_penalty_range typical tfs rep_pen thinking think enable_thinking thinking_budget reasoning
include_reasoning chat_template_kwargs chat_template options safe_prompt transforms truncate
"""
"""Parameters of samplers and reasoning that only some servers have."""
REPORTED: Mapping[str, tuple[Any, ...]] = {
    "temperature": (),
    "top_p": (1, 1.0),
    "max_tokens": (),
    "max_completion_tokens": (),
    "presence_penalty": (0, 0.0),
    "frequency_penalty": (0, 0.0),
    "seed": (),
    "stop": ([],),
    "reasoning_effort": (),
    "verbosity": (),
    **dict.fromkeys(_SAMPLING.split(), ()),
}
"""Parameters of a chat model that the settings of the server decide, with the values that change nothing."""
WITHOUT_EFFECT = frozenset(
    {
        "user",
        "metadata",
        "store",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "prompt_cache_options",
        "parallel_tool_calls",
        "keep_alive",
        "cache_prompt",
        "chat_id",
        "session_id",
    }
)
"""Parameters that change no answer."""


class ContentPart(BaseModel):
    """A part of a message."""

    model_config = ConfigDict(extra="allow", frozen=True)

    type: str
    text: str | None = None

    @property
    def is_text(self) -> bool:
        """Whether the part is text, in the words of any of OpenAI's interfaces."""
        return self.type in ("text", "input_text", "output_text") and self.text is not None

    @property
    def kind(self) -> str:
        """The part in one word."""
        return _PART_KINDS.get(self.type, "part that is no text")


_PART_KINDS = {
    "image_url": "image",
    "input_image": "image",
    "image": "image",
    "input_audio": "sound",
    "audio": "sound",
    "video_url": "video",
    "file": "file",
    "input_file": "file",
    "refusal": "refusal",
    "tool_use": "tool call",
    "tool_result": "tool result",
}


class ChatMessage(BaseModel):
    """A message of the conversation."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | Annotated[list[ContentPart], Field(fail_fast=True)] | None = None
    tool_calls: Any = None


class StreamOptions(BaseModel):
    """What a stream contains in addition to the answer."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    include_usage: bool = Field(False, description="End with the tokens of the answer.")


class ChatExtension(RequestBody):
    """What a question of epicrisis has and a chat has not. Clients send it as an extra field of the body."""

    library: LibraryName = None
    patient: PatientId = None
    options: Options = Field(None, description="Options of a multiple-choice question.")
    settings: RequestSettings = RequestSettings()
    break_glass: AccessReason = None


class ChatBody(RequestBody):
    """The body of a chat completion."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {
                    "model": "epicrisis/evidence",
                    "messages": [{"role": "user", "content": "Does aspirin lower the risk of pre-eclampsia?"}],
                }
            ]
        },
    )

    model: str = Field(min_length=1, max_length=400, description="One of GET /v1/models.")
    messages: Annotated[list[ChatMessage], Field(fail_fast=True)] = Field(
        min_length=1, max_length=MAX_MESSAGES, description="The conversation. The last message is the question."
    )
    stream: bool | None = Field(False, description="Send the answer in pieces, as server-sent events.")
    stream_options: StreamOptions | None = None
    epicrisis: ChatExtension = ChatExtension()


@dataclass(frozen=True, slots=True)
class Conversation:
    """The question of a conversation, and what was said before it."""

    question: str
    turns: tuple[ConversationTurn, ...] = ()
    unused: tuple[str, ...] = ()
    """Parameters and messages that did not influence the answer."""
    is_housekeeping: bool = False
    """Whether the client asks for a title, tags or the like."""


def read_conversation(body: ChatBody) -> Conversation:
    """Return the question with the conversation before it.

    Raises UnsupportedParameter, and InputError for a conversation that does not end in a question.
    """
    unused = check_parameters(body)
    turns: list[ConversationTurn] = []
    titles = False
    last = len(body.messages) - 1
    for place, message in enumerate(body.messages):
        if message.role in ("tool", "function"):
            if place == last:
                raise UnsupportedParameter(f"messages.{place}: there are no tools here, so no question can be of one")
            unused.append(f"the {message.role} message {place + 1}")
            continue
        text, left_out = read_text(message, place)
        if left_out and place == last:
            raise UnsupportedParameter(f"messages.{place}: only text is read, no image, sound or file")
        unused += left_out
        if message.role in ("system", "developer"):
            unused.append(f"the {message.role} message")
            titles = titles or asks_for_title(text)
        elif text:
            turns.append(ConversationTurn("user" if message.role == "user" else "assistant", text))
    if body.messages[-1].role != "user" or not turns or turns[-1].role != "user":
        raise InputError("the last message is not a question of the user: end the conversation with one")
    question = turns.pop().text
    housekeeping = titles or is_housekeeping(question)
    if len(question) > MAX_QUESTION_CHARACTERS and not housekeeping:
        raise InputError(f"the question has more than {MAX_QUESTION_CHARACTERS:,} characters: shorten it")
    newest = keep_newest(turns)
    if len(newest) < len(turns):
        unused.append(f"the first {len(turns) - len(newest)} messages")
    return Conversation(question, newest, tuple(dict.fromkeys(unused)), housekeeping)


def keep_newest(turns: list[ConversationTurn]) -> tuple[ConversationTurn, ...]:
    """Return the newest turns that have MAX_HISTORY_CHARACTERS together."""
    size = 0
    for count, turn in enumerate(reversed(turns)):
        size += len(turn.text)
        if size > MAX_HISTORY_CHARACTERS:
            return tuple(turns[len(turns) - count :])
    return tuple(turns)


def check_parameters(body: ChatBody) -> list[str]:
    """Return the parameters that did not influence the answer. Raises UnsupportedParameter for the others."""
    unused: list[str] = []
    for name, value in (body.model_extra or {}).items():
        if value is None or name in WITHOUT_EFFECT:
            continue
        if name in REFUSED:
            if value not in REFUSED[name]:
                raise UnsupportedParameter(f"{name}: a reply of this form is not possible here", name)
        elif name in REPORTED:
            if value not in REPORTED[name]:
                unused.append(name)
        else:
            raise UnsupportedParameter(f"{name[:60]!a} is no parameter of this endpoint", name[:60])
    return unused


def read_text(message: ChatMessage, place: int) -> tuple[str, list[str]]:
    """Return the text of a message, and what it has besides: images, sounds, files, calls of tools."""
    left_out = [f"the tool calls of message {place + 1}"] if message.tool_calls else []
    if message.content is None or isinstance(message.content, str):
        return (message.content or "").strip(), left_out
    texts = [part.text or "" for part in message.content if part.is_text]
    left_out += [f"the {part.kind} of message {place + 1}" for part in message.content if not part.is_text]
    return "\n".join(texts).strip(), left_out
