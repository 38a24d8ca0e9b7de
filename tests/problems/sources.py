"""A small well-formed problem, to be bent by the tests."""

GOOD = '''"""A small problem

More words.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        rows, columns = x.shape
        return self.linear(x) * scale


rows = 4  # how many
width: int = 8 * 2
scale = 0.5
shift = -3
fast = True
a, b = 1, 2


def get_inputs():
    return [torch.randn(rows, width)]


def get_init_inputs():
    return [width]
'''
