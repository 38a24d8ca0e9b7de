"""Bias, GELU and residual around a linear layer

A matrix product followed by three element-wise steps, each a pass over memory of its own in eager mode. Fusing them
into one pass, or into the tail of the product, is the first thing a kernel can gain.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """y = x + gelu(x W^T + b), with the exact (erf) GELU."""

    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features, bias=False)
        self.bias = nn.Parameter(0.1 * torch.randn(features))

    def forward(self, x):
        """x: (rows, features) -> (rows, features)"""
        hidden = self.linear(x)
        hidden = hidden + self.bias
        hidden = F.gelu(hidden)
        return x + hidden


rows = 4096
features = 128


def get_inputs():
    return [torch.randn(rows, features)]


def get_init_inputs():
    return [features]
