"""What is put in the place of good values: other types, edges of numbers, texts that mean something to a reader."""

from __future__ import annotations

import copy
import datetime
import math
from typing import Any

from hypothesis import strategies as st

NUMBERS = (0, 1, -1, 2, 0.5, -0.0, 1.5, 5e-324, 1e-300, 1e300, math.inf, -math.inf, math.nan, 31, 1024, 3071, 2**31)
LARGE = (2**53 + 1, 2**63 - 1, 2**63, 10**9, 10**18, 10**400, -(10**400))
WORDS = (
    *("", " ", "on", "no", "null", "~", "1e3", "1_000", "0x10", "1:30", "nan", ".inf", "none", "digits", "natural"),
    *("lenet", "membership", "cpu", "auto", "custom", "../../x", "/", "a/b", "C:\\x", "-", "*", "&a", "{}", "[", "%s"),
    *("a\nb", "a\rb", "\t", "\x1b[31m", "é", "名前", "\u202e", "\ufeff", "\ud7ff", "None", "$HOME", "{x}", "a" * 300),
)
OTHERS = (None, True, False, [], {}, [[]], [None], {"a": None}, {"": 1}, {1: 2}, b"\x00\xff", (), [1] * 40, ["x"] * 40)
TIMES = (datetime.date(2024, 1, 31), datetime.datetime(2024, 1, 31, 12, 30))

odd_values = st.one_of(
    st.sampled_from(NUMBERS),
    st.sampled_from(LARGE),
    st.sampled_from(WORDS),
    st.sampled_from(OTHERS),
    st.sampled_from(TIMES),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
    st.integers(2, 400).map(lambda depth: _nested(depth)),
    st.lists(st.sampled_from((*NUMBERS, *WORDS)), max_size=4),
).map(copy.deepcopy)  # changes are made in place
plain_values = odd_values.filter(lambda value: not isinstance(value, bytes | datetime.date))
"""Those of them that JSON can hold."""


def _nested(depth: int) -> Any:
    """Lists in lists."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def paths(tree: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Ways to all values in nested mappings and lists."""
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    found = [] if not before else [before]
    for key, value in inner:
        found += paths(value, (*before, key))
    return found


def at(tree: Any, path: tuple[Any, ...]) -> Any:
    """The value at the end of a way."""
    for key in path:
        tree = tree[key]
    return tree


CHANGES = ("replace", "replace", "replace", "delete", "add", "rename", "wrap", "repeat")


@st.composite
def changed(draw: st.DrawFn, trees: tuple[Any, ...], values: st.SearchStrategy[Any]) -> tuple[Any, list[tuple]]:
    """One of some trees with one to three changes, and where they were made."""
    tree = copy.deepcopy(draw(st.sampled_from(trees)))
    changes = []
    for _ in range(draw(st.sampled_from((1, 1, 1, 2, 3)))):
        known = paths(tree)
        if not known:
            break
        path = draw(st.sampled_from(known))
        kind = draw(st.sampled_from(CHANGES))
        _change(draw, tree, path, kind, values)
        changes.append((kind, path))
    return tree, changes


def _change(draw: st.DrawFn, tree: Any, path: tuple, kind: str, values: st.SearchStrategy) -> None:
    """Make one change in place."""
    home, key = at(tree, path[:-1]), path[-1]
    if kind == "replace":
        home[key] = copy.deepcopy(draw(values))
    elif kind == "delete":
        del home[key]
    elif kind == "add" and isinstance(home, dict):
        home[draw(st.sampled_from(WORDS) | st.text(max_size=8))] = copy.deepcopy(draw(values))
    elif kind == "add":
        home.insert(draw(st.integers(0, len(home))), copy.deepcopy(draw(values)))
    elif kind == "rename" and isinstance(home, dict):
        name = draw(st.sampled_from((f"{key}s", str(key).upper(), str(key)[:-1], "", "é", 1, None)))
        home[name] = home.pop(key)
    elif kind == "wrap":
        home[key] = draw(st.sampled_from(([home[key]], {"x": home[key]}, [[home[key]]], str(home[key]))))
    elif kind == "repeat":
        # Copies: one object in two places could be put into itself by a later change.
        home[key] = [copy.deepcopy(home[key]) for _ in range(draw(st.sampled_from((2, 30))))]


@st.composite
def damaged(draw: st.DrawFn, contents: tuple[bytes, ...], words: tuple[bytes, ...] = ()) -> bytes:
    """The bytes of a good file with some cut off, overwritten, repeated or inserted."""
    content = bytearray(draw(st.sampled_from(contents)))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, max(len(content) - 1, 0)))
        end = start + draw(st.sampled_from((1, 1, 4, 40, 400)))
        kind = draw(st.sampled_from(("cut", "drop", "flip", "noise", "insert", "repeat")))
        if kind == "cut":
            del content[start:]
        elif kind == "drop":
            del content[start:end]
        elif kind == "flip" and content:
            content[start] ^= 1 << draw(st.integers(0, 7))
        elif kind == "noise":
            content[start:end] = draw(st.binary(min_size=1, max_size=40))
        elif kind == "insert":
            content[start:start] = draw(st.sampled_from((*words, b"\x00", b"\xff\xfe", b"\t", b"\n", b"\r\n", b"  ")))
        elif kind == "repeat":
            content[end:end] = content[start:end]
    return bytes(content)
