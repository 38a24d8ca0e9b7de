"""Problems and candidates, as text: one small linear layer, and the many ways to answer it."""

from __future__ import annotations

import textwrap

from problems.model import Problem

PROBLEM = '''"""Linear and GELU"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        return F.gelu(self.linear(x))


def get_inputs():
    return [torch.randn(512, 64)]


def get_init_inputs():
    return [64]
'''

HEAD = """import torch, torch.nn as nn, torch.nn.functional as F
"""


def problem(source: str = PROBLEM) -> Problem:
    return Problem(id="tests/linear", title="linear", origin="file", source=source)


def changed(old: str, new: str) -> Problem:
    """The problem with one piece of its text replaced."""
    assert old in PROBLEM
    return problem(PROBLEM.replace(old, new))


def candidate(forward: str, *, init: str = "", top: str = "", extra: str = "") -> str:
    """A ModelNew with the reference's parameters; ``forward`` and ``init`` are bodies, ``extra`` more methods."""
    body = [HEAD, textwrap.dedent(top), "class ModelNew(nn.Module):", "    def __init__(self, features):"]
    body += ["        super().__init__()", "        self.linear = nn.Linear(features, features)"]
    body += [textwrap.indent(textwrap.dedent(init), " " * 8), "    def forward(self, x):"]
    body += [textwrap.indent(textwrap.dedent(forward), " " * 8), textwrap.indent(textwrap.dedent(extra), " " * 4)]
    return "\n".join(body) + "\n"


ANSWER = "F.gelu(self.linear(x))"
EAGER = candidate(f"return {ANSWER}")


FAINT = changed("F.gelu(self.linear(x))", "F.gelu(self.linear(x)) * 1e-6")
"""Every output lies below the absolute tolerances that are in use."""

BRANCHES = Problem(
    id="tests/branches",
    title="branches",
    origin="file",
    source=HEAD
    + """

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.first = nn.Linear(features, features)
        self.second = nn.Linear(features, features)
        self.unused = nn.Linear(3, 3)
        self.register_buffer("offset", torch.linspace(-1, 1, features))

    def forward(self, x, y, power):
        left = torch.tanh(self.first(x) + self.offset)
        right = F.relu(self.second(y)) ** power
        return {"sum": left + right, "pair": (left, right)}


def get_inputs():
    return [torch.randn(256, 64), torch.randn(256, 64), 2]


def get_init_inputs():
    return [64]
""",
)
"""Two inputs and a number, two layers, a dead one and a buffer, three outputs in a dictionary and a tuple."""
BRANCHES_EAGER = BRANCHES.source.replace("class Model(", "class ModelNew(")


def branches(old: str, new: str) -> str:
    """``BRANCHES_EAGER`` with one piece of its text replaced."""
    assert old in BRANCHES_EAGER
    return BRANCHES_EAGER.replace(old, new)


def two_outputs(forward: str, name: str = "ModelNew") -> str:
    """Whole numbers that eager itself gets wrong in some places, and a layer: ``forward`` returns the layer."""
    return (
        HEAD
        + f"""
class {name}(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.code = nn.Linear(features, 8)
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        return (self.code(x) * 3e4).round().long(), {forward}

def get_inputs():
    return [torch.randn(512, 64)]

def get_init_inputs():
    return [64]
"""
    )


TWO_OUTPUTS = problem(two_outputs("self.linear(x)", "Model"))

REPEATED = problem(
    HEAD
    + """
class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return (x * self.scale).mean(1, keepdim=True).repeat(1, 8192)

def get_inputs():
    return [torch.randn(512, 64)]

def get_init_inputs():
    return [64]
"""
)
"""Its answer holds each number 8192 times, and need not be written more than once."""
MANY_OUTPUTS = problem(
    REPEATED.source.replace("return (x", "y = (x").replace(
        ".repeat(1, 8192)", ".repeat(1, 1024)\n        return tuple(y.clone() for _ in range(16))"
    )
)
"""The same tensor sixteen times over."""
