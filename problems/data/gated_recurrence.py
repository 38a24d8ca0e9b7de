"""Gated recurrence over a sequence, one step at a time

A recurrent layer in the manner of a GRU, as a Python loop: small matrix products and a dozen element-wise
operations in every step. The product with the input does not depend on the state, and may leave the loop.
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    """h_t = (1 - z_t) * n_t + z_t * h_{t-1}, from h_0 = 0; returns every h_t."""

    def __init__(self, input_features, hidden_features):
        super().__init__()
        self.hidden_features = hidden_features
        self.from_input = nn.Linear(input_features, 3 * hidden_features)
        self.from_hidden = nn.Linear(hidden_features, 3 * hidden_features)

    def forward(self, x):
        """x: (steps, batch, input_features) -> (steps, batch, hidden_features)"""
        hidden = x.new_zeros(x.shape[1], self.hidden_features)
        states = []
        for x_t in x:
            input_r, input_z, input_n = self.from_input(x_t).chunk(3, dim=1)
            hidden_r, hidden_z, hidden_n = self.from_hidden(hidden).chunk(3, dim=1)
            reset = torch.sigmoid(input_r + hidden_r)
            update = torch.sigmoid(input_z + hidden_z)
            proposal = torch.tanh(input_n + reset * hidden_n)
            hidden = (1 - update) * proposal + update * hidden
            states.append(hidden)
        return torch.stack(states)


steps = 24
batch = 16
input_features = 64
hidden_features = 128


def get_inputs():
    return [torch.randn(steps, batch, input_features)]


def get_init_inputs():
    return [input_features, hidden_features]
