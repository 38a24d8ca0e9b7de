"""Sizes of a problem: its module-level number constants, and the same source with other values in their place.

Only literals are touched, in the text itself, so that everything else (comments included) stays as it was and the
problem's hash changes only when its meaning does.
"""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from problems.model import ProblemError, SizeOverride
from problems.parsing import parse as parse_source

Number = int | float | bool


@dataclass(frozen=True)
class _Literal:
    """A constant and the place of its value in the source, in bytes of UTF-8."""

    value: Number
    start: int
    end: int


def constants(source: str, where: str = "the problem") -> tuple[SizeOverride, ...]:
    """The constants that may be overridden, in the order of the source.

    They are the top-level names bound exactly once, to an int, float or bool literal or to a product, sum or
    difference of int literals (``8192 * 2``).
    """
    return tuple(SizeOverride(name=name, value=found.value) for name, found in _literals(source, where).items())


def parse(text: str) -> SizeOverride:
    """``NAME=VALUE`` as an override, with VALUE an int, float or bool as Python writes it."""
    name, separator, value = (part.strip() for part in text.partition("="))
    if not separator or not name.isidentifier():
        raise ProblemError(f"{text!r} is not an override: write NAME=VALUE, such as batch=64")
    try:
        tree = ast.parse(value, mode="eval")
    except (SyntaxError, ValueError):
        number = None
    else:
        number = _fold(tree.body)
    if number is None:
        number = {"true": True, "false": False}.get(value.lower())
    if number is None:
        raise ProblemError(f"{text!r} is not an override: {value!r} is no int, float or bool")
    return SizeOverride(name=name, value=number)


def effective(source: str, overrides: Iterable[SizeOverride], where: str = "the problem") -> tuple[SizeOverride, ...]:
    """The overrides that change ``source``, in the constants' own types; one that repeats the present value is dropped.

    Raises ``ProblemError`` for a name that is no constant, one given twice, or a value of another type. An int is
    accepted for a float.
    """
    literals = _literals(source, where)
    changes: dict[str, SizeOverride] = {}
    named: set[str] = set()
    for override in overrides:
        if override.name not in literals:
            there = ", ".join(f"{name}={found.value}" for name, found in literals.items()) or "none"
            raise ProblemError(f"{where} has no size constant {override.name!r}. Its constants: {there}.")
        if override.name in named:
            raise ProblemError(f"{override.name} is overridden twice; give it one value")
        named.add(override.name)
        present = literals[override.name].value
        value = _converted(override, present, where)
        if value != present:
            changes[override.name] = SizeOverride(name=override.name, value=value)
    return tuple(changes[name] for name in literals if name in changes)


def override(source: str, overrides: Iterable[SizeOverride], where: str = "the problem") -> str:
    """``source`` with the constants' values replaced where they stand; raises as ``effective`` does."""
    literals = _literals(source, where)
    text = source.encode()
    changes = effective(source, overrides, where)
    for change in sorted(changes, key=lambda change: literals[change.name].start, reverse=True):
        place = literals[change.name]
        text = text[: place.start] + repr(change.value).encode() + text[place.end :]
    return text.decode()


def _converted(override: SizeOverride, present: Number, where: str) -> Number:
    value = override.value
    if type(present) is float and type(value) is int:
        value = float(value)
    if type(value) is not type(present):
        raise ProblemError(
            f"{override.name} in {where} is {type(present).__name__} ({present}); "
            f"{override.value} is {type(override.value).__name__}"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise ProblemError(f"{override.name} in {where} must be a finite number, not {value}")
    return value


def _literals(source: str, where: str) -> dict[str, _Literal]:
    tree = parse_source(source, where)
    # ast counts lines by \n, \r\n and \r alone, and columns in bytes: do the same.
    starts = [0]
    encoded = source.encode()
    for line in encoded.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found: dict[str, _Literal] = {}
    for name, node in _assignments(tree):
        value = _fold(node)
        if value is not None and node.end_lineno is not None and node.end_col_offset is not None:
            start = starts[node.lineno - 1] + node.col_offset
            found[name] = _Literal(value, start, starts[node.end_lineno - 1] + node.end_col_offset)
    bound = Counter(_bound_in_module(tree))
    changed_elsewhere = {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
    return {name: literal for name, literal in found.items() if bound[name] == 1 and name not in changed_elsewhere}


def _bound_in_module(scope: ast.AST) -> Iterator[str]:
    """Every binding of a name in the module's own scope: those of functions and classes are other variables."""
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif not isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            yield from _bound_in_module(node)


def _assignments(tree: ast.Module) -> list[tuple[str, ast.expr]]:
    """Top-level ``name = value``, annotated or not, and ``a, b = 1, 2`` item by item."""
    pairs: list[tuple[str, ast.expr]] = []
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pairs.append((name, value))
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                pairs.append((name, value))
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(values):
                pairs += [(n.id, v) for n, v in zip(names, values, strict=True) if isinstance(n, ast.Name)]
    return pairs


def _fold(node: ast.expr) -> Number | None:
    """The value of a number literal, a signed one, or simple arithmetic on int literals; None for anything else."""
    match node:
        case ast.Constant(value=bool() | int() | float() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _fold(operand)
            return None if inner is None or isinstance(inner, bool) else -inner
        case ast.BinOp(left=left, op=ast.Mult() | ast.Add() | ast.Sub() as operator, right=right):
            a, b = _fold(left), _fold(right)
            if type(a) is not int or type(b) is not int:
                return None
            match operator:
                case ast.Mult():
                    return a * b
                case ast.Add():
                    return a + b
                case _:
                    return a - b
    return None
