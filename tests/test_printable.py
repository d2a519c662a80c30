"""What is shown holds nothing that a terminal would obey, and what is for machines stays the same data."""

from __future__ import annotations

import json
import shlex
import subprocess
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.core.errors import InputError
from epicrisis.core.printable import (
    REPLACEMENT,
    agree,
    count_noun,
    printable,
    printable_json,
    quote_for_shell,
    split_printable_lines,
)
from tests.support.unsafe_text import UNSAFE, unsafe_in

ANY = st.text(st.characters())


def test_printable_replaces_every_unsafe_character() -> None:
    assert printable(f"a{UNSAFE}b") == "a" + REPLACEMENT * len(UNSAFE) + "b"


def test_printable_keeps_ordinary_text() -> None:
    kept = (
        "naïve 5 µg, β-blocker, 高血圧, عربى, \u200cمی\u200cخواهم, hi\u00adphen, 👩\u200d⚕️, thin\u2009space\u00a0[red]"
    )
    assert printable(kept) == kept


def test_printable_replaces_line_breaks() -> None:
    assert printable("a\nb\r\nc\rd\ve\ff\x85g\u2028h\u2029i\tj") == "a b c d e f g h i j"
    assert printable("a\n\tb", lines=True) == "a\n\tb"
    assert printable("a\r\u2028b", lines=True) == f"a{REPLACEMENT * 2}b"


def test_split_lines_handles_all_line_breaks() -> None:
    assert split_printable_lines("a\u2028b\x85c\r\nd") == ["a", "b", "c", "d"]


@pytest.mark.slow
@given(ANY)
def test_printable_text_has_no_unsafe_characters(text: str) -> None:
    assert not unsafe_in(printable(text))
    assert "\n" not in printable(text)
    assert not unsafe_in(printable(text, lines=True))
    assert printable(printable(text)) == printable(text)


@pytest.mark.slow
@given(st.recursive(ANY, lambda inner: st.lists(inner) | st.dictionaries(ANY, inner), max_leaves=5))
def test_printable_json_keeps_data(value: object) -> None:
    text = printable_json(json.dumps(value, ensure_ascii=False, indent=2))
    assert not unsafe_in(text)
    assert json.loads(text) == value
    text.encode()


def test_printable_json_escapes_supplementary_characters_as_pairs() -> None:
    assert printable_json('"\U000e0041é\x9b"') == '"\\udb40\\udc41é\\u009b"'


@pytest.mark.parametrize(
    "word", ["plain", "my library", "it's; rm -rf ~", "$(id)", "a\x1b[31m'\\b", "new\nline", "a\u202eb"]
)
def test_quote_for_shell_round_trips(word: str) -> None:
    quoted = quote_for_shell(word)
    assert printable(quoted) == quoted
    told = subprocess.run(["bash", "-c", f"printf %s {quoted}"], capture_output=True, check=True).stdout
    assert told.decode() == word
    if printable(word) == word:
        assert shlex.split(quoted) == [word]


def test_error_message_is_one_printable_line() -> None:
    error = InputError(f"the file a{UNSAFE}b\nepicrisis: all is well is missing: check it")
    assert not unsafe_in(str(error))
    assert "\n" not in error.as_failure().message


def test_unsafe_character_table_is_complete() -> None:
    assert {unicodedata.category(character) for character in UNSAFE} == {"Cc", "Cf", "Cn", "Cs"}


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 documents"), (1, "1 document"), (2, "2 documents"), (1234, "1,234 documents")]
)
def test_count_noun_agrees_with_its_number(count: int, text: str) -> None:
    assert count_noun(count, "document") == text


def test_words_agree_with_one_alone() -> None:
    assert [agree(count, "is", "are") for count in (0, 1, 2)] == ["are", "is", "are"]
