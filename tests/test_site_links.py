"""The check of the links of the built documentation site, on a site with planted faults."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHECK = Path(__file__).parents[1] / "docs" / "site" / "links.py"


def run_check(site: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(CHECK), str(site)], capture_output=True, text=True, check=False)


def write_page(site: Path, name: str, body: str) -> None:
    path = site / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"<html><body>{body}</body></html>", encoding="utf-8")


def test_sound_links_are_counted_and_not_fetched(tmp_path: Path) -> None:
    write_page(
        tmp_path,
        "index.html",
        '<a href="a/b.html#here">b</a> <a href="a/">a</a> <a href="https://doi.org/10.1000/x">x</a>',
    )
    write_page(
        tmp_path,
        "a/b.html",
        '<h2 id="here">Here</h2> <a href="../index.html">i</a> <img src="data:image/png;base64,AA==">',
    )
    write_page(tmp_path, "a/index.html", '<a href="b.html">b</a>')
    result = run_check(tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("4 links inside the site lead somewhere")
    assert "1 addresses on 1 other hosts was checked; they were NOT fetched" in result.stdout


def test_broken_links_are_named_with_their_page(tmp_path: Path) -> None:
    faults = {
        '<a href="nowhere.html">': "nowhere.html: no such file",
        '<a href="b.html#nowhere">': "b.html#nowhere: no such anchor",
        '<a href="../../outside.html">': "../../outside.html: no such file",
        '<img src="https://a.org/a.png">': "https://a.org/a.png: the page would load this from another host",
        '<script src="//example.org/a.js"></script>': "//example.org/a.js: the page would load this from another host",
        '<a href="http://example.org/">': "http://example.org/: not https",
        '<a href="https://example/">': "https://example/: no name of a host",
        '<a href="https://example.org/{id}">': "https://example.org/{id}: characters that no address has",
        '<a href="https://doi.org/PMC12">': "https://doi.org/PMC12: no DOI",
    }
    write_page(tmp_path, "b.html", "")
    write_page(tmp_path, "index.html", "".join(faults))
    result = run_check(tmp_path)
    assert result.returncode == 1
    assert result.stderr.splitlines() == [f"index.html: {problem}" for problem in faults.values()]
    assert result.stdout == "9 broken links\n"
