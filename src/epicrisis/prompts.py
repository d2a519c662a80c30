"""Strict rendering of prompt files, and the fence around documents.

Documents are data, never instructions. They stand between `<documents>` and `</documents>`, each behind its label
`[doc i]`, which says too where an article was retracted, doubted or corrected (`[doc i: RETRACTED]`). Inside, whatever
could pass for the fence, for a label or for a chat template's control token gets one backslash after its first
character, so a document can neither close the fence nor forge a turn; `unescape` takes the backslash away again,
exactly. The fence is fixed: a random one would break the endpoint's prefix cache.

This module knows no stage and no schema: the prompt files lie beside the code that fills them in.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from epicrisis.errors import ScopeViolation
from epicrisis.protocols import Message
from epicrisis.types import ArticleMark, Passage, Scope

if TYPE_CHECKING:
    from jinja2 import Environment, Template

MARK_LABELS: Mapping[ArticleMark, str] = {
    "retracted": "RETRACTED",
    "retraction-notice": "NOTICE OF A RETRACTION",
    "expression-of-concern": "EXPRESSION OF CONCERN",
    "corrected": "CORRECTED LATER",
}
"""How a label and the screen tell of a mark."""
MARKS_EXPLANATION = (
    "Capitals in a label say what became of an article since it appeared. Do not rely on a retracted one; where you "
    "use one that was doubted or corrected, say so."
)
"""Stands before the fence where a label in it has a mark."""
OPEN = "<documents>"
CLOSE = "</documents>"

# Anything a chat template may read as its own (`<|im_end|>`, `</s>`, `[INST]`, `<start_of_turn>`, `<eos>`, `<｜end｜>`)
# besides the fence and the labels: llama.cpp and others parse control tokens inside a message's text too. No marker
# holds another one's first character, so what `escape` adds is all that `unescape` finds.
_MARKERS = re.compile(
    r"""(?ix)
    (?P<opener>
        < (?= \\*+ (?: \| | ｜ | \s*+ (?:/\s*+)? (?:documents|s|SYS|bos|eos|pad|unk|(?:start|end)_of_turn) \s*+ > ) )
      | \[ (?= \\*+ \s*+ (?: (?:doc|finding|answer) \s*+ \d++ (?: \s?+ : [a-z ,]{0,99}+ )?+
                          | (?:/\s*+)? (?: INST | SYSTEM_PROMPT | (?=\w*TOOL_\w)\w++ | \w++(?<=\w_TOOLS) ) ) \s*+ \] )
    )
    (?P<escapes> \\*+ )
    """
)
_LABELS = re.compile(r"(?m)^\[(?:doc|finding|answer) \d+(?:: [A-Z ,]{1,80})?\] ")
_USER_PART = "\n=== user ===\n"


def escape(text: str) -> str:
    """The text with every marker made harmless. `unescape(escape(text)) == text` for every text."""
    return _MARKERS.sub(lambda found: f"{found['opener']}\\{found['escapes']}", text)


def unescape(text: str) -> str:
    """Takes back what `escape` put in; text that was never escaped loses nothing unless it looks escaped."""
    return _MARKERS.sub(lambda found: found["opener"] + found["escapes"][1:], text)


def fence(items: Iterable[str], label: str = "doc", marks: Sequence[Sequence[ArticleMark]] = ()) -> str:
    """The items behind `[label 1]`, `[label 2]`... inside the fence, each escaped.

    `marks` are those of each item, where there are some: they stand in the label (`[doc 2: RETRACTED]`), which is ours
    and which no document can forge.
    """
    rows = []
    for number, item in enumerate(items, 1):
        told = ", ".join(MARK_LABELS[mark] for mark in marks[number - 1]) if marks else ""
        rows.append(f"[{label} {number}{f': {told}' if told else ''}] {escape(item)}")
    about = [MARKS_EXPLANATION] if any(marks) else []
    return "\n".join((*about, OPEN, *rows, CLOSE))


def unfence(prompt: str) -> list[str]:
    """The items of the prompt's fence, as they were before; empty where there is no fence. The inverse of `fence`."""
    start, end = prompt.find(OPEN), prompt.rfind(CLOSE)
    if start < 0 or end < 0:
        return []
    body = prompt[start + len(OPEN) + 1 : end]
    return [unescape(item.removesuffix("\n")) for item in _LABELS.split(body)[1:]]


def fence_passages(passages: Sequence[Passage], scope: Scope) -> str:
    """Passages as `[doc i] title (date)` and text, in the order given.

    Raises ScopeViolation where one lies outside the scope: the second check of an access boundary.
    """
    for passage in passages:
        if not scope.admits(passage):
            raise ScopeViolation(
                f"passage {passage.id} lies outside the scope of this question; nothing was sent. "
                "Please report this: the search should have left it out."
            )
    return fence(map(format_passage, passages), marks=[passage.marks for passage in passages])


def format_passage(passage: Passage) -> str:
    """A passage as a model reads it: title and date on the first line where they are known, then the text."""
    head = f"{passage.title} ({passage.date})" if passage.title and passage.date else passage.title
    return f"{head}\n{passage.text}" if head else passage.text


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered prompt. `template` is the file's name and the first 12 hex digits of its hash."""

    messages: tuple[Message, ...]
    template: str

    @property
    def sha256(self) -> str:
        """Hash of what the model reads, role by role."""
        digest = hashlib.sha256()
        for message in self.messages:
            digest.update(f"{message.role}\0{message.content}\0".encode())
        return digest.hexdigest()


@cache
def _environment() -> Environment:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(undefined=StrictUndefined, autoescape=False, trim_blocks=True, lstrip_blocks=True)
    environment.filters["data"] = escape
    return environment


@cache
def _templates(package: str, name: str) -> tuple[Template, Template, str]:
    """System part, user part and short hash of a prompt file; compiled once, since compiling costs milliseconds."""
    text = resources.files(package).joinpath(f"{name}.jinja").read_text(encoding="utf-8")
    system, _, user = text.partition(_USER_PART)
    environment = _environment()
    parts = environment.from_string(system), environment.from_string(user)
    return *parts, hashlib.sha256(text.encode()).hexdigest()[:12]


def render(package: str, name: str, **variables: object) -> Prompt:
    """The prompt file `name` of `package`, filled in. A variable that is missing raises jinja2's UndefinedError.

    The file is split into its system and user part before it is filled in, so no value can move the border.
    """
    system, user, short_hash = _templates(package, name)
    return Prompt(
        messages=(
            Message("system", system.render(variables).strip()),
            Message("user", user.render(variables).strip()),
        ),
        template=f"{name}@{short_hash}",
    )


def hash_prompts(package: str) -> str:
    """One hash over all prompt files of a package: a run's recipe changes when any word of them does."""
    digest = hashlib.sha256()
    for file in sorted(resources.files(package).iterdir(), key=lambda file: file.name):
        if file.name.endswith(".jinja"):
            digest.update(f"{file.name}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()[:12]
