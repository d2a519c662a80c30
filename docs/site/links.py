"""Check the links of the built site: `python docs/site/links.py build/site`.

Every link inside the site leads to a file, and to an anchor there if it names one. Pages load nothing from other hosts.
Links to other hosts are not fetched, because the site is built without the internet; only their form is checked.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

import typer
from selectolax.lexbor import LexborHTMLParser

_HOST = re.compile(r"(?:[a-z0-9-]+\.)+[a-z]{2,}")
_DOI = re.compile(r"/10\.\d{4,9}/\S+")
_INLINE = frozenset({"data", "mailto"})


@dataclass(frozen=True)
class LinkReport:
    """What a check of a site's links found."""

    internal: int
    """Links inside the site, to files and anchors."""
    external: frozenset[str]
    """Addresses on other hosts."""
    problems: list[str] = field(default_factory=list)
    """One line for each broken link: its page, the link, and what is wrong."""


def check_links(site: Path) -> LinkReport:
    """Return what is wrong with the links of every HTML page below `site`."""
    internal = 0
    external: set[str] = set()
    problems: list[str] = []
    for page in sorted(site.rglob("*.html")):
        name = page.relative_to(site).as_posix()
        for tag, link in _read_page(page).links:
            problem = None
            address = urlsplit(link)
            if address.scheme in _INLINE:
                continue
            if address.scheme or address.netloc:
                external.add(link)
                problem = _check_form(tag, link, address)
            else:
                internal += 1
                problem = _check_target(site, page, address)
            if problem is not None:
                problems.append(f"{name}: {link}: {problem}")
    return LinkReport(internal, frozenset(external), problems)


@dataclass(frozen=True)
class _Page:
    links: tuple[tuple[str, str], ...]
    """Tag and address of every link."""
    anchors: frozenset[str]


@cache
def _read_page(path: Path) -> _Page:
    tree = LexborHTMLParser(path.read_text(encoding="utf-8"))
    links: list[tuple[str, str]] = []
    for node in tree.css("[href], [src]"):
        address = node.attributes.get("href") or node.attributes.get("src")
        if address and node.tag:
            links.append((node.tag, address))
    anchors = {node.attributes.get("id") or "" for node in tree.css("[id]")}
    anchors |= {node.attributes.get("name") or "" for node in tree.css("a[name]")}
    return _Page(tuple(links), frozenset(anchors))


def _check_form(tag: str, link: str, address: SplitResult) -> str | None:
    """Return what is wrong with an address on another host, or None."""
    if tag != "a":
        return "the page would load this from another host"
    if address.scheme != "https":
        return "not https"
    if _HOST.fullmatch(address.netloc) is None:
        return "no name of a host"
    if any(character.isspace() or character in "<>{}" for character in link):
        return "characters that no address has"
    if address.netloc == "doi.org" and _DOI.fullmatch(address.path) is None:
        return "no DOI"
    return None


def _check_target(site: Path, page: Path, address: SplitResult) -> str | None:
    """Return what is wrong with a link inside the site, or None. A link to a folder needs an index.html there."""
    start = site if address.path.startswith("/") else page.parent
    target = start / unquote(address.path).lstrip("/") if address.path else page
    target = Path(os.path.normpath(target))
    if target.is_dir():
        target /= "index.html"
    if not target.is_relative_to(site) or not target.is_file():
        return "no such file"
    is_page = target.suffix == ".html"
    if address.fragment and is_page and unquote(address.fragment) not in _read_page(target).anchors:
        return "no such anchor"
    return None


def main(site: Path) -> int:
    """Say what was checked, and every broken link. Return the exit code."""
    report = check_links(site)
    for problem in report.problems:
        typer.echo(problem, err=True)
    hosts = {urlsplit(link).netloc for link in report.external}
    typer.echo(
        f"{report.internal:,} links inside the site lead somewhere, and no page loads anything from another host. The "
        f"form of {len(report.external)} addresses on {len(hosts)} other hosts was checked; they were NOT fetched."
        if not report.problems
        else f"{len(report.problems)} broken links"
    )
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
