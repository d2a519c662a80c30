"""--local-only proven from outside: the whole program in a network namespace with nothing in it but loopback, and under
strace, which sees every connection of every thread, native libraries included."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import _missing
from tests.support.pubmed_xml import HEAD, article

OUTSIDE = "192.0.2.1"
"""Set aside for documentation: nobody has it."""

_CALLS = ("connect", "sendto", "sendmsg", "sendmmsg")
_IN_THIS_MACHINE = {"UNIX", "LOCAL", "NETLINK", "UNSPEC"}

# A new namespace has its loopback turned off (SIOCSIFFLAGS; IFF_UP and IFF_RUNNING).
_LOOPBACK_UP = """
import fcntl, os, socket, struct, sys
with socket.socket() as any_socket:
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH22x", b"lo", 0x41))
os.execvp(sys.argv[1], sys.argv[1:])
"""


@dataclass(frozen=True)
class Watched:
    """How a program ended. `asked`: addresses beyond this machine, `None` where strace is not to be had."""

    code: int
    out: str
    err: str
    asked: set[str] | None


def _works(*command: str) -> bool:
    return shutil.which(command[0]) is not None and subprocess.run(command, capture_output=True).returncode == 0


@cache
def _namespace() -> tuple[str, ...]:
    """Runs a program where there is no network; nothing where this machine does not allow that."""
    found = next((flags for flags in ("-rn", "-n") if _works("unshare", flags, "true")), None)
    return ("unshare", found, sys.executable, "-c", _LOOPBACK_UP) if found else ()


@cache
def _tracer() -> tuple[str, ...]:
    """Runs a program and writes down what it connects to; nothing where this machine does not allow that."""
    plain = ("strace", "-f", "-qq", "-s", "0", "-e", f"trace={','.join(_CALLS)}", "-o")
    # Stops only at these calls, and so is fast.
    fast = (*plain[:2], "--seccomp-bpf", *plain[2:])
    return next((way for way in (fast, plain) if _works(*way, "/dev/null", "true")), ())


def watched(folder: Path, *command: str, **environment: str) -> Watched:
    """The program, without a network and traced, each where that can be had; one of both there must be."""
    if not _namespace() and not _tracer():
        _missing("unshare or strace")
    trace = folder / "trace"
    trace.write_text("")
    tracer = (*_tracer(), str(trace)) if _tracer() else ()
    done = subprocess.run(
        [*_namespace(), *tracer, *command],
        env={**os.environ, **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return Watched(done.returncode, done.stdout, done.stderr, asked_for(trace.read_text()) if tracer else None)


def asked_for(trace: str) -> set[str]:
    """The addresses, of any family, in what strace wrote down that are not this machine's."""
    found = set()
    for line in trace.splitlines():
        if any(f"{call}(" in line for call in _CALLS):
            for family, rest in re.findall(r"\{sa_family=AF_(\w+)([^}]*)", line):
                address = re.search(r'inet_(?:addr\(|pton\(AF_INET6, )"([^"]+)"', rest)
                if family not in _IN_THIS_MACHINE and not (address and ipaddress.ip_address(address[1]).is_loopback):
                    found.add(address[1] if address else family)
    return found


def test_trace_parser_returns_contacted_hosts() -> None:
    assert (
        asked_for(
            "1 connect(3, {sa_family=AF_UNIX, sun_path=...}, 110) = 0\n"
            '1 connect(3, {sa_family=AF_INET, sin_port=htons(80), sin_addr=inet_addr("127.0.0.1")}, 16) = 0\n'
            '1 connect(3, {sa_family=AF_INET6, sin6_port=htons(80), inet_pton(AF_INET6, "::1", &sin6_addr)}, 28) = 0\n'
            "1 sendto(3, ..., 20, 0, {sa_family=AF_NETLINK, nl_pid=0, nl_groups=00000000}, 12) = 20\n"
            "1 sendto(3, ..., 1, 0, NULL, 0) = 1\n"
        )
        == set()
    )
    assert asked_for(
        '1 connect(3, {sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr("192.0.2.1")}, 16 <unfinished ...>\n'
        '2 connect(3, {sa_family=AF_INET6, sin6_port=htons(80), inet_pton(AF_INET6, "2001:db8::1", &sin6_addr)}, 28)\n'
        '3 sendto(3, ..., 1, 0, {sa_family=AF_INET, sin_port=htons(9), sin_addr=inet_addr("192.0.2.2")}, 16) = 1\n'
        "4 connect(3, {sa_family=AF_VSOCK, svm_cid=0x2}, 16) = 0\n"
    ) == {"192.0.2.1", "192.0.2.2", "2001:db8::1", "VSOCK"}


@pytest.mark.slow
def test_connection_from_native_code_is_detected(tmp_path: Path) -> None:
    """Which the guard inside Python cannot: the proof below would be none without this."""
    planted = f"""
import ctypes, socket, struct, threading
from epicrisis.system.local_only import set_local_only
set_local_only(True)
libc = ctypes.CDLL(None, use_errno=True)

def ask():
    address = struct.pack("=HH4s8x", socket.AF_INET, socket.htons(80), socket.inet_aton({OUTSIDE!r}))
    descriptor = libc.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK, 0)
    print(libc.connect(descriptor, address, 16), ctypes.get_errno())

thread = threading.Thread(target=ask)
thread.start()
thread.join()
"""
    seen = watched(tmp_path, sys.executable, "-c", planted)
    assert (seen.code, seen.err) == (0, "")
    assert seen.asked in (None, {OUTSIDE})
    if _namespace():
        unreachable = 101
        assert seen.out.split() == ["-1", str(unreachable)]


# -- the program ----------------------------------------------------------------------------------------------------

SECRET = "Mrs Muster of Musterstadt"
QUESTION = f"Does aspirin lower the risk of pre-eclampsia in {SECRET}?"


def sources(folder: Path) -> list[str]:
    """Documents that name places elsewhere: a DTD, a stylesheet and a picture."""
    (folder / "papers.jsonl").write_text(
        json.dumps({"id": "a", "title": "Aspirin", "text": f"Aspirin lowers the risk of pre-eclampsia. {SECRET}."})
    )
    (folder / "pubmed.xml").write_text(f"{HEAD}<PubmedArticleSet>{article(1)}</PubmedArticleSet>")
    (folder / "page.html").write_text(
        f'<html><head><link rel="stylesheet" href="http://{OUTSIDE}/a.css"><title>Zinc</title></head>'
        f'<body><img src="http://{OUTSIDE}/a.png"><p>Zinc shortens acute diarrhoea.</p></body></html>'
    )
    return ["papers.jsonl", "pubmed.xml", "page.html"]


def environment(folder: Path, model_home: Path) -> dict[str, str]:
    """Whatever may tempt a library to ask outside or to be talkative."""
    proxy = f"http://{OUTSIDE}:3128"
    home = folder / "home"
    home.mkdir()
    return {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        "EPICRISIS_HOME": str(model_home),
        # Threads that wait for each other are slow where the machine is busy.
        "EPICRISIS_THREADS": "1",
        "http_proxy": proxy,
        "https_proxy": proxy,
        "all_proxy": proxy,
        "no_proxy": "",
        "ORT_DISABLE_TELEMETRY": "0",
        "RUST_LOG": "debug",
        "LANCE_LOG": "debug",
        "LLAMA_ARG_LOG_VERBOSITY": "9",
    }


@pytest.mark.long
@pytest.mark.models
def test_program_with_local_only_contacts_no_other_machine(tmp_path: Path, model_home: Path) -> None:
    """And says nothing of anybody on the way, on whatever stream and however its libraries are asked to."""
    tempting = environment(tmp_path, model_home)

    def epicrisis(*arguments: str) -> tuple[int, Mapping[str, Any]]:
        seen = watched(tmp_path, sys.executable, "-m", "epicrisis", *arguments, "--local-only", "--json", **tempting)
        assert seen.asked in (None, set()), arguments
        assert SECRET not in seen.err
        assert len(seen.err.splitlines()) <= 1, seen.err
        return seen.code, json.loads(seen.out)

    code, added = epicrisis("library", "add", "library", *sources(tmp_path))
    assert (code, added["added"]) == (0, 3)
    code, ranking = epicrisis("search", "library", "aspirin and pre-eclampsia")
    assert (code, ranking["hits"][0]["passage"]["document_id"]) == (0, "a")
    settings = (
        "--model",
        "smollm2-135m",
        "--setting",
        "partition=2",
        "--setting",
        "preflight.enabled=false",
        "--setting",
        "log=log",
    )
    code, answer = epicrisis("ask", "library", QUESTION, "-k", "2", "--options", "yes,no", *settings)
    assert code in (0, 2)
    assert answer["state"] in ("answered", "abstained", "unparsed")
    assert answer["usage"]["completion_tokens"] > 0
    code, told = epicrisis("doctor")
    assert (code, told["contacts"]) == (0, [])

    logged = (tmp_path / "log").read_text()
    assert SECRET not in logged
    assert [json.loads(line)["event"] for line in logged.splitlines()][-1] == "answered"
    # A device's name and events to be sent later are a report as well.
    assert [path.name for path in (tmp_path / "home").rglob("*")] == []
