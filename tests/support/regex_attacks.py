"""Collect every regular expression of the package, and attack each with strings made from its own parse tree.

A pattern is safe if matching takes time in proportion to the text. `slow_attack` returns a text for which it does not.
"""

from __future__ import annotations

import ast
import importlib
import re
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import FrameType, ModuleType
from typing import Any, TypeAlias

# Private modules, which the stubs of the standard library do not have.
sre: Any = importlib.import_module("re._constants")
parser: Any = importlib.import_module("re._parser")

Tree: TypeAlias = Any
"""A parse tree of the standard library: a sequence of (operator, argument)."""

METHODS = frozenset({"search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer"})
HARMLESS = frozenset({"Pattern", "Match", "RegexFlag", "escape", "error"})
"""Names of the module `re` that neither make nor use a pattern; the flags in capitals are others."""
LIMIT_SECONDS = 0.5
"""CPU time for which one attack may run before it counts as endless: a linear one takes about a millisecond."""

MOST_ATTACKS = 300
"""On one pattern; of more, every second or third is made, since those on neighbouring parts are alike."""


# --- Collecting -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """Where a module makes or uses a pattern: `module:function`, and the methods it calls on it."""

    name: str
    line: int
    pattern: re.Pattern[Any] | None
    """None if its text depends on values that only exist while the function runs."""
    methods: frozenset[str]


def places(name: str, tree: ast.Module, module: ModuleType | None) -> Iterator[Place]:
    """Yield every pattern that this module makes or passes to a function of `re`.

    Raises AssertionError for a use of `re` that this function cannot follow.
    """
    uses = _uses(tree)
    targets = dict(_targets(tree))
    calls = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for owner, node in _with_functions(tree):
        if isinstance(node, ast.Import):
            assert all(alias.name != "re" or alias.asname is None for alias in node.names), (
                f"{name}: re as another name"
            )
        if isinstance(node, ast.ImportFrom):
            assert node.module != "re", f"{name}:{node.lineno}: write `import re`"
        if isinstance(node, ast.Attribute) and _is_re(node.value):
            plain = node.attr in HARMLESS or node.attr.isupper()
            assert plain or id(node) in calls, f"{name}:{node.lineno}: re.{node.attr} is passed on"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_re(node.func.value):
            function = node.func.attr
            if function in HARMLESS:
                continue
            assert function in METHODS | {"compile"}, f"{name}:{node.lineno}: re.{function} is not known"
            methods = frozenset({function})
            if function == "compile":
                methods = uses.get(targets.get(id(node), ""), METHODS) or METHODS
            yield Place(f"{name}:{owner}", node.lineno, _evaluate(node, module), methods)


def _is_re(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "re"


def _with_functions(tree: ast.AST, owner: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Yield every node with the dotted name of the function or class around it."""
    for node in ast.iter_child_nodes(tree):
        inner = owner
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{owner}.{node.name}".lstrip(".")
        yield inner, node
        yield from _with_functions(node, inner)


def _targets(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the id of each `re.compile(...)` that a module binds to one name, with this name."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            yield id(node.value), node.targets[0].id


def _uses(tree: ast.Module) -> Mapping[str, frozenset[str]]:
    """Return the methods called on each name; a name that is used in any other way may be used by every method."""
    uses: dict[str, set[str]] = {}
    direct = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in METHODS:
            uses.setdefault(node.value.id, set()).add(node.attr)
            direct.add(id(node.value))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in direct:
            uses[node.id] = set(METHODS)
    return {name: frozenset(methods) for name, methods in uses.items()}


def _evaluate(call: ast.Call, module: ModuleType | None) -> re.Pattern[Any] | None:
    """Return the pattern of a call of `re`, or None if its arguments name anything but globals of the module."""
    if module is None:
        return None
    position = {"sub": 4, "subn": 4, "split": 3, "compile": 1}.get(getattr(call.func, "attr", ""), 2)
    nodes = [call.args[0], *call.args[position : position + 1]]
    nodes += [keyword.value for keyword in call.keywords if keyword.arg == "flags"]
    try:
        values = [eval(compile(ast.Expression(node), "<pattern>", "eval"), vars(module)) for node in nodes]
    except (NameError, AttributeError):
        return None
    return re.compile(*values)


def compiled(value: object, depth: int = 4) -> Iterator[re.Pattern[Any]]:
    """Yield the patterns that a global value holds, also inside of mappings and sequences."""
    if isinstance(value, re.Pattern):
        yield value
    elif depth and isinstance(value, Mapping):
        for item in value.values():
            yield from compiled(item, depth - 1)
    elif depth and isinstance(value, tuple | list | set | frozenset):
        for item in value:
            yield from compiled(item, depth - 1)


def load(name: str) -> ModuleType | None:
    """Return the module, or None if it needs an extra that is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "epicrisis").startswith("epicrisis"):
            raise
        return None


# --- Attacking ------------------------------------------------------------------------------------------------------

_POOL = "aA1 \n\t.,;:-_/<>[](){}\"'\\|&é中\0"


@dataclass(frozen=True)
class Attack:
    """A text: `prefix`, then `pump` again and again, then `suffix`."""

    prefix: str
    pump: str
    suffix: str

    def text(self, size: int) -> str:
        return self.prefix + self.pump * (size // len(self.pump)) + self.suffix


def attacks(pattern: re.Pattern[Any]) -> list[Attack]:
    """Return the attacks on this pattern: every repeated part many times, behind what reaches it, before what fails.

    Besides: every character that the pattern tells from others, in the same places, and the way to a repeat itself
    many times, since a search begins anew at every place.
    """
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    tree = parser.parse(source, pattern.flags & ~re.UNICODE if isinstance(pattern.pattern, bytes) else pattern.flags)
    letters = _letters(list(_singles(tree)))
    pairs = dict.fromkeys(("", letter) for letter in letters)
    for prefix, body in _repeats(tree, ("",)):
        samples = dict.fromkeys([*(_sample(body, way) for way in range(4)), *_letters(list(_singles(body)))])
        for pump in samples:
            pairs["", pump] = pairs[prefix, pump] = pairs["", prefix + pump] = None
        pairs["", prefix] = None
    made = [Attack(prefix, pump, end) for prefix, pump in pairs if pump for end in ("", "\0!", "\n")]
    return made[:: 1 + len(made) // MOST_ATTACKS]


def _letters(singles: list[Tree]) -> list[str]:
    """Return one character for each class of characters that these nodes treat alike."""
    singles = list({str(node): node for node in singles}.values())
    pool = dict.fromkeys([*_POOL, *(letter for node in singles for letter in _named(node))])
    classes: dict[tuple[bool, ...], str] = {}
    for letter in pool:
        classes.setdefault(tuple(_admits(node, letter) for node in singles), letter)
    return [letter for kinds, letter in classes.items() if any(kinds)]


def _parts(op: Any, value: Any) -> list[Tree]:
    """Return the trees inside of one node, in their order."""
    if op is sre.BRANCH:
        return list(value[1])
    if op in (sre.SUBPATTERN, sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        return [value[-1]]
    if op in (sre.ASSERT, sre.ASSERT_NOT):
        return [value[1]]
    if op is sre.ATOMIC_GROUP:
        return [value]
    if op is sre.GROUPREF_EXISTS:
        return [part for part in value[1:] if part is not None]
    return []


def _singles(tree: Tree) -> Iterator[Tree]:
    """Yield the nodes that match one character."""
    for op, value in tree:
        if op in (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN):
            yield op, value
        for part in _parts(op, value):
            yield from _singles(part)


def _named(node: Tree) -> list[str]:
    op, value = node
    if op in (sre.LITERAL, sre.NOT_LITERAL):
        return [chr(value)]
    ranges = value if op is sre.IN else []
    named = [chr(item) for kind, item in ranges if kind is sre.LITERAL]
    return named + [chr(item[0]) for kind, item in ranges if kind is sre.RANGE]


_CATEGORIES = {
    sre.CATEGORY_DIGIT: r"\d",
    sre.CATEGORY_NOT_DIGIT: r"\D",
    sre.CATEGORY_SPACE: r"\s",
    sre.CATEGORY_NOT_SPACE: r"\S",
    sre.CATEGORY_WORD: r"\w",
    sre.CATEGORY_NOT_WORD: r"\W",
}


@cache
def _in_category(category: Any, letter: str) -> bool:
    return re.match(_CATEGORIES[category], letter) is not None


def _admits(node: Tree, letter: str) -> bool:
    """Return whether this node matches the character; case and the flag DOTALL are left out of account."""
    op, value = node
    if op is sre.LITERAL:
        return bool(ord(letter) == value)
    if op is sre.NOT_LITERAL:
        return bool(ord(letter) != value)
    if op is sre.ANY:
        return letter != "\n"
    negated = bool(value) and value[0][0] is sre.NEGATE
    return negated != any(_item_admits(kind, item, letter) for kind, item in value)


def _item_admits(kind: Any, item: Any, letter: str) -> bool:
    if kind is sre.LITERAL:
        return bool(ord(letter) == item)
    if kind is sre.RANGE:
        return bool(item[0] <= ord(letter) <= item[1])
    return kind is sre.CATEGORY and _in_category(item, letter)


def _choices(node: Tree) -> list[str]:
    return [letter for letter in dict.fromkeys([*_named(node), *_POOL]) if _admits(node, letter)] or ["\ue000"]


def _sample(tree: Tree, way: int) -> str:
    """Return a text that this tree may match; another `way` takes other branches, characters and counts."""
    text = ""
    for op, value in tree:
        if op in (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN):
            letters = _choices((op, value))
            text += letters[way % len(letters)]
        elif op is sre.BRANCH:
            text += _sample(value[1][way % len(value[1])], way)
        elif op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            least, most, part = value
            text += _sample(part, way) * (least if way % 2 else max(least, min(1, most)))
        elif op not in (sre.ASSERT, sre.ASSERT_NOT):
            text += "".join(_sample(part, way) for part in _parts(op, value)[:1])
    return text


def _repeats(tree: Tree, prefixes: tuple[str, ...]) -> Iterator[tuple[str, Tree]]:
    """Yield every repeated part with texts that lead to it."""
    for position, (op, value) in enumerate(tree):
        reached = tuple(dict.fromkeys(before + _sample(tree[:position], way) for before in prefixes for way in (0, 1)))
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT) and value[1] > 1:
            for prefix in reached[:3]:
                yield prefix, value[-1]
        for part in _parts(op, value):
            yield from _repeats(part, reached[:3])


class Endless(Exception):
    """The time for one attack is over."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise Endless in the block after this CPU time; the engine looks for signals while it backtracks."""

    def stop(signum: int, frame: FrameType | None) -> None:
        raise Endless

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _run(pattern: re.Pattern[Any], methods: Iterable[str], text: Any) -> float:
    """Return the CPU seconds of the methods of this pattern on this text."""
    begin = time.thread_time()
    if "match" in methods:
        pattern.match(text)
    if "fullmatch" in methods:
        pattern.fullmatch(text)
    if (METHODS - {"match", "fullmatch"}) & set(methods):
        for _ in pattern.finditer(text):
            pass
    return time.thread_time() - begin


def slow_attack(pattern: re.Pattern[Any], methods: frozenset[str]) -> Attack | None:
    """Return an attack on which the time of these methods grows faster than the text; None if there is none."""
    for attack in attacks(pattern):
        if _is_slow(pattern, methods, attack):
            return attack
    return None


def _is_slow(pattern: re.Pattern[Any], methods: frozenset[str], attack: Attack) -> bool:
    """A short text first, since nearly all attacks fail. Of those that seem to succeed, four times the text must cost
    more than eight times the time, twice in a row, so that a busy machine alone cannot fail the test."""

    def seconds(size: int) -> float:
        text = attack.text(size)
        return _run(pattern, methods, text.encode("latin-1", "replace") if isinstance(pattern.pattern, bytes) else text)

    try:
        with limited(LIMIT_SECONDS):
            long = seconds(4_000)
            if long < 0.0003 or long < 6 * seconds(1_000):
                return False
        with limited(8 * LIMIT_SECONDS):
            return all(seconds(12_000) > max(8 * min(seconds(3_000) for _ in range(3)), 0.003) for _ in range(2))
    except Endless:
        return True
