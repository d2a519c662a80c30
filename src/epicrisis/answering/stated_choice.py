"""Readers of the choice that a text states: the letter of an option, its text, or both.

Two different choices are no choice, and there is never a default letter (errata M1, P2). A reply in a format of the
model's choice, such as the replies that a study published, may also abstain or be the message of a failed call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from epicrisis.core.question_options import first_same_option
from epicrisis.core.types import AnswerState

_EDGES = "()[]\"'*. \n"
_LETTER = r"\s*(?:option\s*)?[*(\"'`\[]*([A-Z])\b(?!\w|')"
# "The answer is B" and "B is correct" state a choice. "Option B" only mentions one, which counts if nothing is stated,
# no other option is mentioned, and the sentence does not discuss the option ("option A is wrong").
_CUE = r"(?<!wrong )(?<!incorrect )\b(?:answer|choice|option)\b[\s*_]*+(?:\bis\b|\bwould be\b|=|:)[\s:*_]*+"
_STATED = re.compile(f"(?i){_CUE}{_LETTER}")
_STATED_WORDS = re.compile(f"(?i){_CUE}([^.,;:\n]+)")
_CORRECT = re.compile(
    r"(?<![\w'])([A-Z])[)\"'*]* is (?:therefore |thus )?(?:the )?(?:correct|right|best)"
    r"(?: (?:answer|choice|option)\b|\s*[.,;\n]|\s*$)"
)
_OPTION = rf"\b(?:answer|choice|option)\b{_LETTER}"
_MENTIONED = re.compile(f"(?i){_OPTION}")
_DISCUSSED = re.compile(
    rf"""(?ix)
    \b(?:not|no|nor|neither|than|of|out|unlike|without|exclud\w+|reject\w*|eliminat\w+|against|wrong|incorrect)\s+
        (?:the\s+)? {_OPTION}
    | {_OPTION} [)\]"'*]*\s+ (?:\w+n['’]t | is | was | be | would | could | can | cannot | may | might | must | should
        | will | does | did | has | had | seems | appears | states | says | suggests | describes | refers | means)\b
    """
)
# "A or B", "A/B", "A, B", "A (or B)", "A as well as C" state two choices. "A, because B is wrong" states one.
_ANOTHER = re.compile(
    r"""(?x)
    [)\]"'*_.]*+ \s*+ (?:
        [,(–—-]?+ \s*+ (?: / | & | \+ | \| | \bor\b | \band/or\b | \bplus\b | \bas\ well\ as\b | \balong\ with\b )
            [\s(\["'*]*+ (?:(?:possibly|perhaps|maybe|probably|also)\s++)?+ (?:[oO]ption\s++)?+ ([A-Z]) (?![\w'’])
      | [,(–—-]?+ \s*+ \b(?:possibly|perhaps|maybe)\s++ (?:[oO]ption\s++)?+ ([A-Z]) (?![\w'’])
      | ,?+ \s*+ \band\b [\s(\["'*]*+ (?:[oO]ption\s++)?+ ([A-Z]) (?![\w'’])
            (?!\s(?:is|was|does|did|has|had|would|can)\b)
      | [,;] [\s(\["'*]*+ ([A-Z]) (?= [)\]"'*]*+ \s*+ (?: $ | [.,;:/&+\n] | and\b | or\b ) )
    )
    """
)
_ANOTHER_BEFORE = re.compile(r"(?<![\w'])([A-Z])[)\"'*]*\s?(?:/|&|,|\bor\b|\band\b)\s?$")
# "The answer is B, and A, C and D are wrong" states one choice.
_VERDICT = re.compile(
    r"(?:,?+\s*+(?:and\s++|or\s++)?+[A-Z](?![\w'’]))?+"
    r"[)\]\"'*_]*+\s*+(?:both\s++|all\s++)?(?:is|are|was|were|can|could|would|do|does|did|has|have|had|fail|may|might)\b"
    r"(?!\s++(?:both\s++|all\s++)?(?:correct|right|true|possible|plausible|appropriate|acceptable|reasonable)\b)"
)
_NAME_BEFORE_LETTER = re.compile(
    r"(?i)\b(?:vitamin|hepatitis|factor|type|group|class|stage|grade|influenza|protein|interferon|coenzyme)\s$"
)
"""A word before a letter that is part of a name: `vitamin D is the best`."""
_MARKUP = re.compile(
    r"(?:\\boxed\{(?:\\(?:text|textbf|mathrm|mathbf)\{)?+|<(?:final_)?answer>|<choice>)[\s(*]*+([A-Z])(?![\w'’])"
)
"""The letter in `\\boxed{B}` or `<answer>B</answer>`."""
_LABELLED = re.compile(
    r"(?:(?:the\s++)?(?:final\s++|correct\s++)?(?:option|choice|answer)\s*+(?:is\b|:)?\s*+)?+(\w)"
    r"(?:\s*+[-–—(,]\s*+|\s++)?(?P<rest>.*)",
    re.DOTALL,
)
"""`option b`, `answer: b`, `b - no`, `b (no)`: a text in lower case."""
_BETWEEN = re.compile(r"[)\]\"'*_.:,;\s(–—-]*+(?:(?:or|and)\s++)?+")
_LISTED = re.compile(
    r"(?i:(?:both|either|options?|choices?|answers?)\s++){0,2}+[(\[\"'*]*+([A-Z])(?![\w'’])(?P<rest>[^A-Za-z]*+"
    r"(?:[A-Z](?![\w'’])[^A-Za-z]*+|(?:and|or|plus|also|possibly|maybe|perhaps|as|well|along|with|option)\b[^A-Za-z]*+)++"
    r"(?:\bare\b.*)?)",
    re.DOTALL,
)
"""A list of letters: `A or B`, `both A and B are correct`."""
_LINE_LETTER = re.compile(r"(?m)^[ \t]*+[(*]*+([A-Z])\**+[).:]")
_LINE = re.compile(r"[^\n]*+")


class ChoiceReader:
    """Reads which of a question's options a text states. Of options with the same text, the first one is returned."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options
        self._texts = {letter: _normalize(option) for letter, option in options.items()}
        self._letters = {letter.lower(): letter for letter in options}

    def read_words(self, words: str) -> str | None:
        """Return the option that a few words name (`B`, `(B) no`, `B: no` or `no`), or None.

        A letter takes precedence over an option of the same text (blood group A). A letter with the text of another
        option names none, and so does a text that two options share except for capitals.
        """
        letter = self._match(words)
        return None if letter is None else first_same_option(self._options, letter)

    def read_answer(self, text: str) -> set[str]:
        """Return the options that the answer text of a reply states, in addition to the reply's `choice`."""
        stated = self._find(_STATED, text) | self._find(_CORRECT, text) | self._read_cued_words(text)
        # The text may consist of options or begin with one. `C. difficile was found` begins with a name.
        text = text.strip(_EDGES)
        head, separator, rest = _split_letter(text)
        begins_with_letter = bool(separator) and head in self._options
        others = self._find_others(head, rest) if begins_with_letter else set()
        if begins_with_letter and separator == "." and rest[:1].islower() and not others:
            return stated | {head} if self._begins_with(rest, head) else stated
        if letter := self.read_words(text):
            return stated | {letter}
        return stated | ({head} | others if begins_with_letter else self._read_list(text))

    def read_prose(self, text: str) -> set[str]:
        """Return the options that a reply in prose states. Without a statement: what the text is, else mentions."""
        stated = self._read_cued_words(text) | self._find(_STATED, text)
        stated |= self._find(_CORRECT, text) | self._find(_MARKUP, text)
        if stated:
            return stated
        line_letters = self._merge_alike(set(_LINE_LETTER.findall(text)) & set(self._options))
        if len(line_letters) > 1:
            return line_letters
        if letter := self.read_words(text):
            return {letter}
        if several := self._read_list(text):
            return several
        mentioned = self._find(_MENTIONED, text)
        return mentioned if len(mentioned) > 1 else self._find(_MENTIONED, _DISCUSSED.sub("", text))

    def _match(self, words: str) -> str | None:
        words = words.replace("**", "")
        normalized = _normalize(words)
        if normalized in self._letters:
            return self._letters[normalized]
        if same := self._merge_alike(self._letters_with_text(normalized)):
            return same.pop() if len(same) == 1 else None
        head, separator, rest = _split_letter(normalized)
        letter = self._letters.get(head) if separator else None
        labelled = _LABELLED.fullmatch(normalized)
        if letter is None and labelled and labelled[1] in self._letters:
            letter = self._letters[labelled[1]]
            return letter if labelled["rest"].strip(_EDGES) in ("", self._texts[letter]) else None
        if letter is None or (rest != self._texts[letter] and rest in self._texts.values()):
            return None
        _, _, rest = _split_letter(words.strip(_EDGES))
        return None if self._find_others(letter, rest) else letter

    def _merge_alike(self, letters: Iterable[str]) -> set[str]:
        """Replace each letter by the first one whose option has the same text."""
        return set(map(partial(first_same_option, self._options), letters))

    def _begins_with(self, text: str, letter: str) -> bool:
        option = self._texts[letter]
        return bool(option) and text[: len(option)].lower() == option

    def _read_list(self, text: str) -> set[str]:
        """Return the options that a text lists: `A or B`, `both A and B are correct`, `no - maybe`."""
        if listed := _LISTED.fullmatch(text):
            others = self._find_others(listed[1], listed["rest"])
            return {listed[1]} | others if others and listed[1] in self._options else set()
        for letter, option in self._texts.items():
            if not self._begins_with(text, letter):
                continue
            # The text of one option, then only the text of another.
            remainder = _normalize(_skip(_BETWEEN, text[len(option) :]))
            if remainder != option and remainder in self._texts.values():
                return {letter} | self._letters_with_text(remainder)
        return set()

    def _letters_with_text(self, text: str) -> set[str]:
        return {letter for letter, option in self._texts.items() if option == text}

    def _read_cued_words(self, text: str) -> set[str]:
        """Return the options, by letter or text, that follow `the answer is`."""
        return set(filter(None, map(self.read_words, _STATED_WORDS.findall(text))))

    def _find_others(self, letter: str, rest: str) -> set[str]:
        """Return the options that follow `letter` in the rest of its line: "or B", "/B", ", B", " - higher"."""
        line = _first_line(rest)
        at = len(line) - len(_skip(_BETWEEN, line))
        option = self._texts.get(letter, "")
        if option and line[at : at + len(option)].lower() == option:
            at += len(option)
        else:
            at = 0
        others: set[str] = set()
        while another := _ANOTHER.match(line, at):
            others.add(another[another.lastindex or 0])
            at = another.end(another.lastindex or 0)
        if others and _VERDICT.match(line, at):
            return set()
        remainder = _normalize(_skip(_BETWEEN, line, at))
        if remainder:
            others |= self._letters_with_text(remainder)
        alike = first_same_option(self._options, letter)
        return {other for other in others & set(self._options) if first_same_option(self._options, other) != alike}

    def _find(self, pattern: re.Pattern[str], text: str) -> set[str]:
        """Return the options that a pattern finds, with the options listed next to them."""
        letters: set[str] = set()
        for match in pattern.finditer(text):
            group = match.lastindex or 0
            letter, begin = match[group], match.start(group)
            if letter not in self._options or _NAME_BEFORE_LETTER.search(text[max(0, begin - 20) : begin]):
                continue
            words = _STATED_WORDS.match(text, match.start())
            stated = _normalize(words[1]) if words else ""
            if pattern is _STATED and len(stated) > 1 and stated in self._texts.values():
                continue  # the words of the statement are an option's text, as in `The answer is A and B`
            letters |= {letter} | self._find_others(letter, _first_line(text, match.end()))
            before = _ANOTHER_BEFORE.search(text[max(0, match.start() - 20) : match.start()])
            if before and pattern is _CORRECT:
                letters |= {before[1]} & set(self._options)
        return self._merge_alike(letters)


def _normalize(words: str) -> str:
    return words.strip(_EDGES).lower()


def _first_line(text: str, at: int = 0) -> str:
    line = _LINE.match(text, at)
    return line[0] if line else ""


def _skip(pattern: re.Pattern[str], text: str, at: int = 0) -> str:
    """Return the text after a match of the pattern at this place, or from this place if it does not match."""
    match = pattern.match(text, at)
    return text[match.end() if match else at :]


def _split_letter(text: str) -> tuple[str, str, str]:
    """Split `b) no` into `b`, `)` and `no`. The separator is empty if the text does not begin like this."""
    match = re.match(r"(\w+)([).:])\s+(.*)", text, re.DOTALL)
    return (match[1], match[2], match[3]) if match else (text, "", "")


# The choice field of a reply, even of broken JSON: a text, a list of texts, or a bare word.
_FIELD = re.compile(
    r"""(?:["'](?:answer_choice|choice)["']|\banswer_choice)\s*:\s*
    (?: "((?:[^"\\]|\\.)*)" | '((?:[^'\\]|\\.)*)' | \[([^\[\]]*)\] | ([^\W\d_]+) )""",
    re.VERBOSE,
)
_FOUND_NOTHING = re.compile(r'"found"\s*:\s*false\b')
_REPLY_CUE = re.compile(
    r"(?i)\b(?:answer|choice|option)\b[^\n.:=]{0,40}?(?:\b(?:is|would be|should be|must be)\b|:|=)[\s:*_]*"
    r"([^\n]{0,500})"
)
"""The words after `the answer is`."""
_CUE_VARIANT = re.compile(
    r"(?i)[\"']?\b(answer|choice|option)(?:\s+(?:to|for)\s+(?:this|the)\s+question)?(?:[\"'](?=\s*:))?"
)
"""`"answer"` and `answer to this question`, which `ChoiceReader` reads as `answer`."""
_OPENING = re.compile(r"[^.,;:!]{2,}(?=[.,;:!])")
_FOREIGN_LETTER = re.compile(r"^[a-z][).:]+\s+")
"""A letter before an abstention: `E. None of the above` of four options is no fifth option."""
_ABSTAINS = re.compile(
    r"""(?ix)
    (?: none | null | nil | n/?a | unknown | unclear | uncertain | undetermined | undeterminable | indeterminate
      | indeterminable | inconclusive | insufficient | inadequate | unspecified | unanswerable | undecided
      | (?:more|further|additional)\ (?:information|data|evidence|research|stud(?:y|ies))
      | (?:a\ )?lack\ of\ (?:information|data|evidence) | missing\ (?:information|data|evidence)
      | neither (?=\s+of\b|\W*$)
      | (?:i\ am|i['’]m)?\ ?(?:not\ sure|unsure) | it['’]s\ (?:unclear|unknown|uncertain)
      | there\ is\ (?:insufficient|inadequate|not\ enough)
      | (?:(?:the|this)\ )?question\ (?:cannot|can\ not|can['’]t|is\ (?:unanswerable|unclear|incomplete)|incomplete)
      | (?:there\ (?:is|are)\ )?no\s+(?:\w+\s+){0,2}?
        (?:answer|option|choice|information|evidence|data|mention|documents?|conclusion)
      | (?:(?:it|this|that|(?:the\ )?(?:correct\ )?answer)\ (?:is\ )?)?
        not\s+(?:enough|sufficient|clear|known|given|specified|mentioned|provided|stated|found|available|possible|listed
                |supported|addressed|among|discussed|explicitly|directly|applicable|determin\w+|answerable|in\ the)
      | (?:(?:it|this|that|which|(?:the\ )?(?:correct\ )?answer|i|we)\ )?(?:(?:is|am|are)\ )?
        (?:cannot|can\ not|can['’]t|could\ not|unable|impossible|unknown|unclear|uncertain)
      | (?:i|we)\ (?:do\ not|don['’]t)\ (?:know|have)
      | (?:the\ )?(?:(?:given|provided|relevant|available|current|existing)\ )?
        (?:documents?|information|evidence|data|literature|studies|passages?|context)
        \ (?:(?:is|are|do|does|did|was|were)\ )?(?:not|insufficient|inconclusive|inadequate|unavailable|lacking|unclear)
    )\b"""
)

# The message of a program whose call failed, at the beginning of the reply.
_ERROR = re.compile(
    r"""(?ix)
    \W*+ (?:
        (?:[a-z]\w*\.){0,4} (?:[a-z]{1,40})? (?:error|exception|timeout) (?:\ code)? \s? [:(]
      | (?:the\ )? (?:response|prompt|request|output|content|completion)\ was\ (?:filtered|blocked|flagged)
      | content[ _-]?filter
      | (?:request|connection|read|gateway)\ (?:timed\ out|time-?out|error|aborted|reset|refused|broken)
      | https?connectionpool\( | [45]\d\d\ (?:client|server)\ error
      | (?:[45]\d\d\ )? (?:bad\ gateway|service\ (?:is\ )?(?:temporarily\ )?unavailable|internal\ server\ error
                       |gateway\ time-?out|too\ many\ requests)
      | rate\ limit\ (?:reached|exceeded) | this\ model['’]s\ maximum\ context\ length
      | (?:the\ server|that\ model)\ (?:is|had|was)\ (?:currently\ )?(?:an\ error|overloaded)
      | (?:the\ )?(?:api|server|endpoint)\ returned\ (?:an?\ )?(?:empty|error)
      | (?:doctype\ )?html \s*+ [>\n]
    )"""
)
_ERROR_OBJECT = re.compile(r"""\s*+\{\s*+["']error["']\s*+:""")
_REPLY_EDGES = "()[]{}\"'*_.,:;\\ \t\r\n"


@dataclass(frozen=True, slots=True)
class FreeReply:
    """What a reply states. `choice` is a letter if the state is `answered`, else None."""

    state: AnswerState
    choice: str | None = None


def read_free_reply(reply: str, options: Mapping[str, str]) -> FreeReply:
    """Return the choice that a reply states, as the letter of one of the options.

    The state is `failed` for an empty reply or an error message, `abstained` for a reply that denies an answer,
    and `unparsed` for a reply with no choice or with two different ones.
    """
    if not re.search(r"\w", reply):
        return FreeReply("failed")
    reader = ChoiceReader(options)
    values: list[str] = []
    for text, quoted, texts, word in _FIELD.findall(reply):
        values += re.findall(r"[^\s\"',][^\"',]*", texts) if texts else [text or quoted or word]
    if values:
        choices = set(filter(None, map(reader.read_words, values)))
        return _conclude(choices, abstains=any(map(_abstains, values)))
    if _ERROR.match(reply) or _ERROR_OBJECT.match(reply):
        return FreeReply("failed")
    if _FOUND_NOTHING.search(reply):
        return FreeReply("abstained")
    lines = [line for line in reply.splitlines() if re.search(r"\w", line)]
    prose = _CUE_VARIANT.sub(r"\1", reply)
    choices = reader.read_prose(prose) or reader.read_prose(lines[-1])
    opening = _OPENING.match(lines[0].strip())
    if not choices and opening and (choice := reader.read_words(opening[0])):
        choices = {choice}
    statements = [*_REPLY_CUE.findall(reply), lines[0], lines[-1]]
    return _conclude(choices, abstains=any(map(_abstains, statements)))


def _conclude(choices: set[str], *, abstains: bool) -> FreeReply:
    if len(choices) == 1:
        return FreeReply("answered", choices.pop())
    return FreeReply("abstained" if abstains and not choices else "unparsed")


def _abstains(words: str) -> bool:
    """Return whether these words say that there is no answer."""
    return bool(_ABSTAINS.match(_FOREIGN_LETTER.sub("", words.strip(_REPLY_EDGES).casefold())))
