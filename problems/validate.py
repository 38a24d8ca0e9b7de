"""Does a source have the form of a problem? Decided on its syntax tree alone."""

from __future__ import annotations

import ast

from problems.model import ProblemError
from problems.parsing import module_level, parse

FORM = """A problem is a Python module of this form:

    class Model(nn.Module):
        def __init__(self, features): ...
        def forward(self, x): ...

    def get_inputs():
        return [torch.randn(128, 256)]      # the tensors that forward takes

    def get_init_inputs():
        return [256]                        # the arguments of Model(...)"""


def validate(source: str, where: str) -> ast.Module:
    """Check that ``source`` defines ``Model`` with ``forward``, ``get_inputs()`` and ``get_init_inputs()``.

    Returns the syntax tree. Raises ``ProblemError`` that lists everything amiss and shows the form.
    """
    tree = parse(source, where)
    classes: dict[str, ast.ClassDef] = {}
    functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
    assigned: set[str] = set()
    for statement in module_level(tree.body):
        match statement:
            case ast.ClassDef():
                classes[statement.name] = statement
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                functions[statement.name] = statement
            case _:
                assigned |= _names_bound(statement)
    faults = _model_faults(classes)
    for name in ("get_inputs", "get_init_inputs"):
        if function := functions.get(name):
            if isinstance(function, ast.AsyncFunctionDef):
                faults.append(f"{name}() is an async function; it must be an ordinary one")
            if required := _required_arguments(function):
                faults.append(f"{name}() must take no arguments, but needs {', '.join(required)}")
        elif name not in assigned:
            faults.append(f"{name}() is missing")
    if faults:
        raise ProblemError(f"{where} is not a problem: {'; '.join(faults)}.\n{FORM}")
    return tree


def _model_faults(classes: dict[str, ast.ClassDef]) -> list[str]:
    if "Model" not in classes:
        remedy = " (this looks like a candidate: it defines ModelNew)" if "ModelNew" in classes else ""
        return [f"class Model is missing{remedy}"]
    if not _defines_forward("Model", classes, set()):
        return ["class Model has no method forward"]
    return []


def _defines_forward(name: str, classes: dict[str, ast.ClassDef], seen: set[str]) -> bool:
    """Whether the class, or a base of it in the same module, defines ``forward``."""
    if name in seen or name not in classes:
        return False
    seen.add(name)
    for statement in classes[name].body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "forward":
            return True
        if "forward" in _names_bound(statement):
            return True
    return any(isinstance(base, ast.Name) and _defines_forward(base.id, classes, seen) for base in classes[name].bases)


def _names_bound(statement: ast.stmt) -> set[str]:
    """Names that an assignment or an import binds."""
    match statement:
        case ast.Assign():
            targets = statement.targets
        case ast.AnnAssign() if statement.value is not None:
            targets = [statement.target]
        case ast.Import() | ast.ImportFrom():
            return {alias.asname or alias.name for alias in statement.names}
        case _:
            return set()
    return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}


def _required_arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    required = positional[: len(positional) - len(arguments.defaults)]
    keywords = [a for a, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if default is None]
    return [argument.arg for argument in [*required, *keywords]]
