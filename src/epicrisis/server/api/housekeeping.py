"""Requests that chat clients send for themselves: a title, tags or follow-up questions of a conversation.

They are no medical questions, so they get a reply without a search, a chat model and a stored answer: the beginning of
the first question as the title, and empty lists. Clients can send them to another model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from epicrisis.answering.follow_up import ConversationTurn
from epicrisis.core.printable import shorten

MAX_TITLE = 60
HINT = (
    "This request of the chat client asked for a title, tags or the like of the conversation, so nothing was searched. "
    "Name another model for such requests in the client: the task model of Open WebUI, titleModel of LibreChat."
)
_TASK = re.compile(r"\s*#{1,4}\s*Task\b", re.IGNORECASE)
_TASK_PARTS = re.compile(r"#{1,4}\s*(?:Output|Chat History)|<chat_history>|\bJSON\b", re.IGNORECASE)
"""The form of Open WebUI's prompts."""
_MAX_INSTRUCTION = 1500
_WISH = re.compile(
    r"\b(?:generate|create|write|provide|give|suggest|summari[sz]e|name|come up with)\b[^.?!]{0,100}?"
    r"\b(?:titles?|names?|tags?|follow-?up questions?|emojis?|search queries|headings?|subject lines?)\b"
    r"|\bsummari[sz]e (?:the|our|this) (?:\w{1,12} )?(?:conversation|chat|dialogue)\b",
    re.IGNORECASE,
)
_SUBJECT = re.compile(
    r"\b(?:conversation|chat(?: history)?|session|thread|dialogue|discussion|messages?)\b", re.IGNORECASE
)
_FORM = re.compile(
    r"\bonly (?:return|respond|reply|output|write|the title)|\b(?:return|respond|reply|output) (?:with )?only\b"
    r"|\b(?:\d{1,2}|two|three|four|five|six|seven|eight|ten)(?: ?(?:to|or|-) ?\w{1,6})?[- ](?:words?|characters?)\b"
    r"|\bJSON\b|title case|no punctuation|do not use quot"
    r"|without (?:any )?(?:lead-in|punctuation|quotes|quotation marks|explanation)",
    re.IGNORECASE,
)
_INSTRUCTION = re.compile(
    r"\b(?:title|tag|topic) (?:generator|writer)\b|\bonly (?:a |the )?(?:\w{1,12} ){0,2}title\b|\btitle only\b"
    r"|\bthe title should be\b"
    r"|\bgenerate an? (?:\w{1,12} ){0,2}title (?:based on the first|(?:for|of) (?:the|this) (?:chat|con|thr))",
    re.IGNORECASE,
)
"""A system message of clients that have the title written by a call of its own."""
_EMOJI = re.compile(r"\b(?:fitting|suitable|matching|single|one) emojis?\b", re.IGNORECASE)
_KEYS = re.compile(r"[\"'](title|tags|follow_ups|queries|text|prompt|emoji|name)[\"']\s*:")
_LISTS = ("tags", "follow_ups", "queries")
_FIRST_QUESTION = re.compile(
    r"^[ |>*]{0,8}(?:user|human|question)\*{0,2}[ \t]{0,3}:\s{0,3}([^\s][^\n]*)", re.IGNORECASE | re.MULTILINE
)


def is_housekeeping(message: str) -> bool:
    """Return whether a client asks about the conversation itself, in a form for programs."""
    if _EMOJI.search(message[:_MAX_INSTRUCTION]):
        return True
    if _TASK.match(message) and _TASK_PARTS.search(message):
        return True
    # The instruction stands before the conversation, or behind it.
    return any(
        _WISH.search(part) and _SUBJECT.search(part) and _FORM.search(part)
        for part in (message[:_MAX_INSTRUCTION], message[-_MAX_INSTRUCTION:])
    )


def asks_for_title(instruction: str) -> bool:
    """Return whether a system message says that the reply is the title of the conversation."""
    return _INSTRUCTION.search(instruction[:_MAX_INSTRUCTION]) is not None


def answer_housekeeping(message: str, turns: Sequence[ConversationTurn]) -> str:
    """Return the reply: JSON with the member that the request names, or else a title."""
    key = _KEYS.search(message)
    questions = [turn.text for turn in turns if turn.role == "user"]
    first = _FIRST_QUESTION.search(message)
    if not (first or is_housekeeping(message)):
        # The system message asks for the title.
        return shorten(re.sub(r"[<>*_`#]", "", message), MAX_TITLE)
    words = first[1] if first else questions[0] if questions else "Medical question"
    title = shorten(re.sub(r"[<>*_`#]", "", words), MAX_TITLE)
    if key is None and _EMOJI.search(message):
        return "💬"
    if key is None:
        wish = _WISH.search(message)
        is_title = wish is None or re.search(r"title|name|heading|subject|summar", wish[0], re.IGNORECASE)
        return title if is_title else ""
    if key[1] in _LISTS:
        return json.dumps({key[1]: []})
    return json.dumps({key[1]: title if key[1] in ("title", "name") else ""}, ensure_ascii=False)


def describe_housekeeping(unused: Sequence[str]) -> dict[str, Any]:
    """Return the field `epicrisis` of such a reply."""
    return {"state": "housekeeping", "hint": HINT, "unused": list(unused), "model_calls": 0}
