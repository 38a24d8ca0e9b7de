"""Pre-norm MLP block of a transformer

Layer norm, a linear layer to a wider space, GELU, a linear layer back, and the residual. The two products dominate;
around them the norm and the activation can be fused.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """y = x + W2 gelu(W1 norm(x) + b1) + b2, with the exact (erf) GELU."""

    def __init__(self, features, hidden_features):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.widen = nn.Linear(features, hidden_features)
        self.narrow = nn.Linear(hidden_features, features)

    def forward(self, x):
        """x: (rows, features) -> (rows, features)"""
        hidden = self.norm(x)
        hidden = self.widen(hidden)
        hidden = F.gelu(hidden)
        return x + self.narrow(hidden)


rows = 512
features = 256
hidden_features = 512


def get_inputs():
    return [torch.randn(rows, features)]


def get_init_inputs():
    return [features, hidden_features]
