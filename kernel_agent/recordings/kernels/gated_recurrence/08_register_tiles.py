"""Tiles of sequences by units, their sums in registers, weights packed in panels, the input projected in the step."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cstdint>
#include <cstring>
#include <vector>

#ifdef __AVX512F__
constexpr int LANES = 16, ROWS = 8;
#else
constexpr int LANES = 8, ROWS = 4;
#endif
typedef float Vector __attribute__((vector_size(LANES * 4)));
typedef float Unaligned __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t Integers __attribute__((vector_size(LANES * 4)));

static inline Vector load(const float* at) { return *(const Unaligned*)at; }

// exp(t): 2^n by its bits, 2^f by a polynomial on [-1/2, 1/2].
static inline Vector exponential(Vector t) {
    t = t < -87.0f ? Vector{} - 87.0f : t;
    t = t > 87.0f ? Vector{} + 87.0f : t;
    const Vector scaled = t * 1.44269504f;
    const Vector shifted = scaled + 12582912.0f;  // 1.5 * 2^23: rounds to the nearest integer
    const Vector f = scaled - (shifted - 12582912.0f);
    Vector p = Vector{} + 1.3333558e-3f;
    p = p * f + 9.6181291e-3f;
    p = p * f + 5.5504109e-2f;
    p = p * f + 2.4022651e-1f;
    p = p * f + 6.9314718e-1f;
    p = p * f + 1.0f;
    return p * (Vector)(((Integers)shifted << 23) + 0x3f800000);
}

static inline Vector sigmoid(Vector v) { return 1.0f / (1.0f + exponential(-v)); }
static inline Vector hyperbolic(Vector v) { return 2.0f * sigmoid(2.0f * v) - 1.0f; }

// sums[i] += sum over k of rows[i][k] panel[k]. Fully unrolled and a function of its own, so that the sums stay in
// registers.
template <int VECTORS>
__attribute__((noinline)) static void accumulate(
    const float* rows, int64_t stride, const float* panel, int64_t depth, Vector (*sums)[VECTORS]) {
    Vector sum[ROWS][VECTORS];
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < VECTORS; ++j) sum[i][j] = sums[i][j];
    for (int64_t k = 0; k < depth; ++k) {
        Vector weights[VECTORS];
#pragma GCC unroll 2
        for (int j = 0; j < VECTORS; ++j) weights[j] = load(panel + (k * VECTORS + j) * LANES);
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 2
            for (int j = 0; j < VECTORS; ++j) sum[i][j] += rows[i * stride + k] * weights[j];
    }
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < VECTORS; ++j) sums[i][j] = sum[i][j];
}

extern "C" int lanes() { return LANES; }

// gates: panels (inputs + width, 2, LANES) of r and z; proposals: panels (inputs + width, LANES) of n;
// bias: (4, width) of r, z, n from the input, n from the state. batch is at least ROWS, width a multiple of LANES.
extern "C" void recurrence(
    const float* x, const float* gates, const float* proposals, const float* bias, float* states, int64_t steps,
    int64_t batch, int64_t inputs, int64_t width) {
    const int64_t depth = inputs + width;
#pragma omp parallel for schedule(static)
    for (int64_t block = 0; block < batch; block += ROWS) {
        // The last tile moves back to end with the last sequence: it repeats sequences rather than overrun.
        const int64_t b = block + ROWS <= batch ? block : batch - ROWS;
        std::vector<float> now(ROWS * depth, 0.0f), next(ROWS * depth, 0.0f);  // rows of x_t followed by h
        for (int64_t t = 0; t < steps; ++t) {
            for (int i = 0; i < ROWS; ++i)
                std::memcpy(&now[i * depth], x + (t * batch + b + i) * inputs, inputs * sizeof(float));
            for (int64_t u = 0; u < width; u += LANES) {
                Vector gate[ROWS][2], from_input[ROWS][1], from_state[ROWS][1];
                for (int i = 0; i < ROWS; ++i) {
                    gate[i][0] = load(bias + u);
                    gate[i][1] = load(bias + width + u);
                    from_input[i][0] = load(bias + 2 * width + u);
                    from_state[i][0] = load(bias + 3 * width + u);
                }
                const float* panel = proposals + u * depth;
                accumulate<2>(now.data(), depth, gates + 2 * u * depth, depth, gate);
                accumulate<1>(now.data(), depth, panel, inputs, from_input);
                accumulate<1>(now.data() + inputs, depth, panel + inputs * LANES, width, from_state);
                for (int i = 0; i < ROWS; ++i) {
                    const Vector before = load(&now[i * depth + inputs + u]);
                    const Vector proposal = hyperbolic(from_input[i][0] + sigmoid(gate[i][0]) * from_state[i][0]);
                    const Vector after = proposal + sigmoid(gate[i][1]) * (before - proposal);
                    *(Unaligned*)&next[i * depth + inputs + u] = after;
                    *(Unaligned*)(states + (t * batch + b + i) * width + u) = after;
                }
            }
            now.swap(next);
        }
    }
}
"""


def build():
    path = load_inline(
        name="gated_recurrence_08",
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
    def __init__(self, input_features, hidden_features):
        super().__init__()
        self.hidden_features = hidden_features
        self.from_input = nn.Linear(input_features, 3 * hidden_features)
        self.from_hidden = nn.Linear(hidden_features, 3 * hidden_features)
        self.kernels = build()
        self.pack()
        self.register_load_state_dict_post_hook(lambda module, keys: module.pack())

    def pack(self):
        """Weights as (block of units, k, gate, unit), the k of the input before those of the state; on every load."""
        weight = torch.cat([self.from_input.weight, self.from_hidden.weight], dim=1).detach()
        panels = weight.view(3, -1, self.kernels.lanes(), weight.shape[1]).permute(1, 3, 0, 2)
        self.gates = panels[:, :, :2].contiguous()
        self.proposals = panels[:, :, 2:].contiguous()
        from_input = self.from_input.bias.detach().view(3, -1)
        from_hidden = self.from_hidden.bias.detach().view(3, -1)
        self.biases = torch.cat([from_input[:2] + from_hidden[:2], from_input[2:], from_hidden[2:]])

    def forward(self, x):
        x = x.contiguous()
        steps, batch, inputs = x.shape
        states = x.new_empty(steps, batch, self.hidden_features)
        self.kernels.recurrence(
            pointer(x),
            pointer(self.gates),
            pointer(self.proposals),
            pointer(self.biases),
            pointer(states),
            ctypes.c_int64(steps),
            ctypes.c_int64(batch),
            ctypes.c_int64(inputs),
            ctypes.c_int64(self.hidden_features),
        )
        return states
