"""What a person in a hurry reads first: the page's address, what is missing, and results before energy."""

from __future__ import annotations

from tests.cli.conftest import Run


def test_help_of_serve_says_that_there_is_a_page_and_where(run: Run) -> None:
    text = " ".join(run("serve", "--help").output.split())
    assert "Serve a page to ask these libraries" in text
    assert "Open http://127.0.0.1:8080 in a browser" in text


def test_question_in_place_of_a_library_says_that_the_library_is_missing(run: Run) -> None:
    result = run("ask", "Does aspirin help?")
    assert result.exit_code == 2
    assert result.stderr == 'epicrisis: the library is missing: epicrisis ask LIBRARY "Does aspirin help?"\n'
