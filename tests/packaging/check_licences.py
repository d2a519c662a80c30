"""List the licences of all dependencies, write bills of materials, and refuse what Apache-2.0 cannot be given with.

`make licences` runs it over the environments of `make test-wheel`. pip-licenses reads the licences that packages state,
cyclonedx-bom writes the bills. Files of others within this package (scripts, citation styles) name their own licences.
Code that is compiled into a wheel (llama.cpp, pdfium, Rust crates) is not listed; the wheels have its licences in their
folders `licenses`.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]
PERMITTED = {
    "0bsd",
    "3-clause bsd license",
    "apache 2.0",
    "apache license",
    "apache software license",
    "apache-2.0",
    "bsd license",
    "bsd-2-clause",
    "bsd-2-clause-views",
    "bsd-3-clause",
    "cc0-1.0",
    "cnri-python",
    "isc",
    "isc license (iscl)",
    "mit",
    "mit license",
    "mit-0",
    "mit-cmu",
    # Copyleft of the files themselves: they are installed unchanged, beside this package.
    "mozilla public license 2.0 (mpl 2.0)",
    "mpl-2.0",
    "psf-2.0",
    "python software foundation license",
    "unlicense",
    "version 2.0",
    "zlib",
}
"""Terms that may stand in a licence, in lower case. Every term must be here, also beside another after OR."""
REVIEWED = {
    "agent-client-protocol": "Apache-2.0",
    "dirtyjson": "MIT or AFL, at choice",
    "psycopg": "LGPL-3.0: a library that is imported unchanged, which users may replace; only with an extra",
    "psycopg-binary": "LGPL-3.0, as psycopg",
    "psycopg-pool": "LGPL-3.0, as psycopg",
    "pypdfium2": "BSD-3-Clause, Apache-2.0; pdfium's parts are permissive (folder licenses of the wheel)",
}
"""Packages whose metadata do not tell, with what their licence files say."""
SHARE_ALIKE = "CC-BY-SA-3.0"
"""The licence of the citation styles: they stay under it, with the names of their authors, and say what was changed."""
OURSELVES = "epicrisis itself"
PACKAGE = ROOT / "src" / "epicrisis"
_CSL = "{http://purl.org/net/xbiblio/csl}"
_SEPARATOR = re.compile(r"\s+(?:AND|OR|WITH)\s+|[;,]")


def main() -> None:
    """Write the list and the bills into a folder. Exit with 1 if a licence is not permitted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("environments", type=Path, help="folder of the environments of check_wheel")
    parser.add_argument("output", type=Path, help="folder for the list and the bills")
    arguments = parser.parse_args()
    output: Path = arguments.output
    output.mkdir(parents=True, exist_ok=True)
    licences: dict[tuple[str, str], str] = {}
    users: dict[tuple[str, str], list[str]] = {}
    environments = sorted(path.parent for path in arguments.environments.glob("*/pyvenv.cfg"))
    if not environments:
        sys.exit(f"no environments in {arguments.environments}: run make test-wheel")
    for environment in environments:
        for name, version, licence in read_licences(environment):
            licences[name, version] = licence
            users.setdefault((name, version), []).append(environment.name)
        write_bill(environment, output / f"epicrisis-{environment.name}.cdx.json")
    for name, version, licence in read_bundled():
        licences[name, version] = licence
        users[name, version] = [OURSELVES]
    refused: list[str] = []
    with (output / "licences.csv").open("w", encoding="utf-8", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(("package", "version", "licence", "installed by"))
        for (name, version), licence in sorted(licences.items()):
            by = users[name, version]
            table.writerow((name, version, licence, "base" if "base" in by else " ".join(by)))
            is_style = by == [OURSELVES] and licence == SHARE_ALIKE
            if name not in REVIEWED and not is_style and not is_permitted(licence):
                refused.append(f"{name} {version}: {licence}")
    print(f"{len(licences)} packages and files of {len(environments)} environments: {output / 'licences.csv'}")
    if refused:
        sys.exit("not known to allow use with Apache-2.0:\n" + "\n".join(refused))


def read_licences(environment: Path) -> list[tuple[str, str, str]]:
    """Return name, version and licence of every package, this one excepted."""
    command = [str(Path(sys.executable).with_name("pip-licenses")), "--format=json", "--from=mixed", "--with-system"]
    command += [f"--python={environment / 'bin' / 'python'}", "--ignore-packages", "epicrisis"]
    rows = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    # Some packages state the whole text. Its title is its first line.
    return [(row["Name"], row["Version"], row["License"].strip().partition("\n")[0]) for row in rows]


def read_bundled() -> list[tuple[str, str, str]]:
    """Return name, version and licence of the files of others within this package: scripts and citation styles."""
    scripts = json.loads((PACKAGE / "server" / "page" / "static" / "vendored.json").read_text(encoding="utf-8"))
    files = [(script["file"], script["version"], script["licence"]) for script in scripts]
    for path in sorted((PACKAGE / "report" / "styles").iterdir()):
        style = ElementTree.parse(path)
        rights, updated = style.find(f"{_CSL}info/{_CSL}rights"), style.findtext(f"{_CSL}info/{_CSL}updated", "")
        url = "" if rights is None else rights.get("license", "")
        licence = SHARE_ALIKE if url.endswith("/licenses/by-sa/3.0/") else f"unknown: {url}"
        files.append((path.name, updated[:10], licence))
    return files


def is_permitted(licence: str) -> bool:
    """Return whether all terms of a licence are permitted."""
    terms = [term.strip(" ()").lower() for term in _SEPARATOR.split(licence)]
    # The brackets belong to some names.
    return all(term in PERMITTED or f"{term})" in PERMITTED for term in terms)


def write_bill(environment: Path, path: Path) -> None:
    """Write the bill of materials of an environment, in CycloneDX, without times or random numbers."""
    command = [str(Path(sys.executable).with_name("cyclonedx-py")), "environment", "--output-reproducible"]
    if environment.name != "base":
        # Takes seconds, and tells no more than for the base.
        command.append("--no-validate")
    command += ["--pyproject", str(ROOT / "pyproject.toml"), "--output-file", str(path), str(environment)]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL if environment.name != "base" else None)


if __name__ == "__main__":
    main()
