"""A GELU that vectorises: erf by a rational formula and an own exponential, in place in the product's buffer."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cstdint>
#include <cstring>

// exp(t) for t <= 0: 2^n by its bits, 2^f by a polynomial on [-1/2, 1/2].
static inline float exp_negative(float t) {
    t = t < -87.0f ? -87.0f : t;
    const float scaled = t * 1.44269504f;
    const float shifted = scaled + 12582912.0f;  // 1.5 * 2^23: rounds to the nearest integer
    const float f = scaled - (shifted - 12582912.0f);
    float p = 1.3333558e-3f;
    p = p * f + 9.6181291e-3f;
    p = p * f + 5.5504109e-2f;
    p = p * f + 2.4022651e-1f;
    p = p * f + 6.9314718e-1f;
    p = p * f + 1.0f;
    int32_t bits;
    std::memcpy(&bits, &shifted, 4);
    bits = (bits << 23) + 0x3f800000;
    float power;
    std::memcpy(&power, &bits, 4);
    return p * power;
}

// Abramowitz and Stegun 7.1.26: |error of erf| <= 1.5e-7.
static inline float gelu(float v) {
    const float u = v * 0.70710678f;
    const float a = u < 0.0f ? -u : u;
    const float t = 1.0f / (1.0f + 0.3275911f * a);
    float q = 1.061405429f;
    q = q * t - 1.453152027f;
    q = q * t + 1.421413741f;
    q = q * t - 0.284496736f;
    q = q * t + 0.254829592f;
    const float tail = q * t * exp_negative(-a * a);  // erfc(|u|)
    return 0.5f * v * (u < 0.0f ? tail : 2.0f - tail);
}

extern "C" void tail(float* y, const float* bias, const float* x, int64_t rows, int64_t columns) {
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; ++r) {
        float* out = y + r * columns;
        const float* in = x + r * columns;
#pragma omp simd
        for (int64_t c = 0; c < columns; ++c) out[c] = in[c] + gelu(out[c] + bias[c]);
    }
}
"""


def build():
    path = load_inline(
        name="bias_gelu_residual_05",
        cpp_sources=SOURCE,
        is_python_module=False,
        no_implicit_headers=True,
        extra_cflags=["-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fopenmp"],
        extra_ldflags=["-fopenmp"],
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
        y = self.linear(x)
        rows, columns = x.shape
        self.kernels.tail(pointer(y), pointer(self.bias), pointer(x), ctypes.c_int64(rows), ctypes.c_int64(columns))
        return y
