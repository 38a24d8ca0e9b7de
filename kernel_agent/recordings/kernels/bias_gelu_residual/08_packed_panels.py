"""Weights packed in panels when they are loaded, a larger tile, and a GELU of one polynomial."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cstdint>

#ifdef __AVX512F__
constexpr int LANES = 16, ROWS = 12;
#else
constexpr int LANES = 8, ROWS = 6;
#endif
typedef float Vector __attribute__((vector_size(LANES * 4)));
typedef float Unaligned __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

// gelu(v) = max(v, 0) - g(|v|) with g(a) = a erfc(a / sqrt 2) / 2, a smooth bump that is below 4e-7 from 5.25 on.
// Fitted by Chebyshev interpolation of degree 15 in s = a / 2.625 - 1; largest error in single precision 4.5e-7. No
// division, no exponential.
constexpr float BUMP[16] = {
    5.05011021e-03f, 1.99867096e-02f, -5.29680618e-02f, -7.55128292e-02f, 2.15304943e-01f,
    3.60977085e-02f, -4.17465089e-01f, 2.91801344e-01f, 2.60121241e-01f, -5.80767245e-01f,
    3.57286134e-01f, 8.26668576e-02f, -2.91023432e-01f, 2.14354935e-01f, -7.63056767e-02f,
    1.13730157e-02f};

static inline Vector gelu(Vector v) {
    Vector a = v < 0.0f ? -v : v;
    a = a < 5.25f ? a : Vector{} + 5.25f;
    const Vector s = a * (1.0f / 2.625f) - 1.0f;
    Vector bump = Vector{} + BUMP[0];
#pragma GCC unroll 15
    for (int i = 1; i < 16; ++i) bump = bump * s + BUMP[i];
    return (v < 0.0f ? Vector{} : v) - bump;
}

constexpr int VECTORS = 2, COLUMNS = VECTORS * LANES;  // of a tile
constexpr int64_t CHUNK = 96;  // rows that a core keeps in its cache while the weights pass

// One tile of x W^T + b. Fully unrolled and a function of its own, so that all its sums stay in registers.
__attribute__((noinline)) static void product(
    const float* x, const float* panel, const float* bias, Vector (*tile)[VECTORS], int64_t columns) {
    Vector sum[ROWS][VECTORS];
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; ++j) sum[i][j] = *(const Unaligned*)(bias + j * LANES);
    for (int64_t k = 0; k < columns; ++k) {
        Vector weights[VECTORS];
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; ++j) weights[j] = *(const Unaligned*)(panel + k * COLUMNS + j * LANES);
#pragma GCC unroll 16
        for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < VECTORS; ++j) sum[i][j] += x[i * columns + k] * weights[j];
    }
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; ++j) tile[i][j] = sum[i][j];
}

// y = x + gelu(tile)
__attribute__((noinline)) static void finish(const Vector (*tile)[VECTORS], const float* x, float* y, int64_t columns) {
    for (int i = 0; i < ROWS; ++i)
        for (int j = 0; j < VECTORS; ++j) {
            const int64_t at = i * columns + j * LANES;
            *(Unaligned*)(y + at) = *(const Unaligned*)(x + at) + gelu(tile[i][j]);
        }
}

extern "C" int panel_width() { return COLUMNS; }

// w comes in panels of COLUMNS columns: one stays in the first-level cache while the rows of a chunk pass.
extern "C" void layer(const float* x, const float* w, const float* bias, float* y, int64_t rows, int64_t columns) {
#pragma omp parallel for schedule(static)
    for (int64_t chunk = 0; chunk < rows; chunk += CHUNK) {
        const int64_t end = chunk + CHUNK < rows ? chunk + CHUNK : rows;
        for (int64_t c = 0; c < columns; c += COLUMNS)
            for (int64_t block = chunk; block < end; block += ROWS) {
                // The last block moves back to end with the last row: it repeats rows rather than overrun.
                const int64_t r = block + ROWS <= rows ? block : rows - ROWS;
                Vector tile[ROWS][VECTORS];
                product(x + r * columns, w + c * columns, bias + c, tile, columns);
                finish(tile, x + r * columns + c, y + r * columns + c, columns);
            }
    }
}
"""


def build():
    path = load_inline(
        name="bias_gelu_residual_08",
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
        self.pack()
        self.register_load_state_dict_post_hook(lambda module, keys: module.pack())

    def pack(self):
        """Weights as (panel, k, column in the panel); again whenever weights are loaded."""
        weight = self.linear.weight.detach()
        width = self.kernels.panel_width()
        self.panels = weight.view(-1, width, weight.shape[1]).transpose(1, 2).contiguous()

    def forward(self, x):
        x = x.contiguous()
        rows, columns = x.shape
        y = torch.empty_like(x)
        self.kernels.layer(
            pointer(x),
            pointer(self.panels),
            pointer(self.bias),
            pointer(y),
            ctypes.c_int64(rows),
            ctypes.c_int64(columns),
        )
        return y
