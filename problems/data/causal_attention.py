"""Causal multi-head self-attention, step by step

Projection to queries, keys and values, scores, mask, softmax, weighted sum and output projection, with every
intermediate written to memory. Half of the scores are masked away: a kernel need not compute them.
"""

import math

import torch
import torch.nn as nn


class Model(nn.Module):
    """Self-attention in which each position attends to itself and to the positions before it."""

    def __init__(self, features, heads):
        super().__init__()
        self.heads = heads
        # No bias here: softmax ignores a bias of the keys, so it could not be told from a kernel that drops it.
        self.qkv = nn.Linear(features, 3 * features, bias=False)
        self.proj = nn.Linear(features, features)
        nn.init.normal_(self.qkv.weight, std=1.0 / math.sqrt(features))

    def forward(self, x):
        """x: (batch, positions, features) -> (batch, positions, features)"""
        batch, positions, features = x.shape
        width = features // self.heads
        q, k, v = self.qkv(x).split(features, dim=2)
        q = q.view(batch, positions, self.heads, width).transpose(1, 2)
        k = k.view(batch, positions, self.heads, width).transpose(1, 2)
        v = v.view(batch, positions, self.heads, width).transpose(1, 2)
        scores = q @ k.transpose(2, 3) / math.sqrt(width)
        future = torch.ones(positions, positions, dtype=torch.bool, device=x.device).triu(1)
        weights = torch.softmax(scores.masked_fill(future, float("-inf")), dim=3)
        mixed = (weights @ v).transpose(1, 2).reshape(batch, positions, features)
        return self.proj(mixed)


batch = 2
positions = 256
features = 128
heads = 4


def get_inputs():
    return [torch.randn(batch, positions, features)]


def get_init_inputs():
    return [features, heads]
