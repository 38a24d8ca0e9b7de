"""Problem files as syntax trees: parsed here once, with errors a reader can act on. Nothing is ever executed."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from problems.model import ProblemError


def parse(source: str, where: str) -> ast.Module:
    """The syntax tree of ``source``.

    Raises ``ProblemError`` with the line and its text when it is not Python; ``where`` names it in the message.
    """
    try:
        return ast.parse(source)
    except SyntaxError as error:
        line = f" line {error.lineno}" if error.lineno else ""
        text = f": {error.text.strip()}" if error.text else ""
        raise ProblemError(
            f"{where} is not valid Python:{line} ({error.msg}){text}. Correct it and try again."
        ) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise ProblemError(f"{where} cannot be parsed as Python: {error}. Is it a Python source file?") from error


def module_level(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run when the module is imported, those under ``if``, ``try`` and ``with`` included."""
    for statement in body:
        yield statement
        match statement:
            case ast.If():
                yield from module_level([*statement.body, *statement.orelse])
            case ast.Try():
                handlers = [inner for handler in statement.handlers for inner in handler.body]
                yield from module_level([*statement.body, *handlers, *statement.orelse, *statement.finalbody])
            case ast.With():
                yield from module_level(statement.body)


def title(tree: ast.Module, name: str) -> str:
    """First line of the module's docstring; without one, the file's ``name`` in words (``1_Tall_MLP``: Tall MLP)."""
    docstring = (ast.get_docstring(tree) or "").strip()
    if docstring:
        return docstring.splitlines()[0].strip()
    number, _, rest = name.partition("_")
    words = rest if number.isdigit() and rest else name
    return " ".join(words.replace("_", " ").split()) or name
