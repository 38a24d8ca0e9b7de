"""Fuse bias, GELU and residual into one pass over the product."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cmath>
#include <cstdint>

extern "C" void tail(const float* product, const float* bias, const float* x, float* y, int64_t rows, int64_t columns) {
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c) {
            const int64_t i = r * columns + c;
            const float v = product[i] + bias[c];
            y[i] = x[i] + 0.5f * v * (1.0f + std::erf(v * 0.70710678f));
        }
}
"""


def build():
    path = load_inline(
        name="bias_gelu_residual_01",
        cpp_sources=SOURCE,
        is_python_module=False,
        no_implicit_headers=True,
        extra_cflags=["-O3", "-march=native"],
    )
    return ctypes.CDLL(path)


def pointer(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features, bias=False)
        self.bias = nn.Parameter(0.1 * torch.randn(features))
        self.kernels = build()

    def forward(self, x):
        x = x.contiguous()
        product = self.linear(x)
        rows, columns = x.shape
        y = torch.empty_like(x)
        self.kernels.tail(
            pointer(product), pointer(self.bias), pointer(x), pointer(y), ctypes.c_int64(rows), ctypes.c_int64(columns)
        )
        return y
