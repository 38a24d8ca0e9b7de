"""The honest corpus: everything the contract of a candidate allows, and some of it rarely seen. All are correct."""

from __future__ import annotations

from tests.evaluator.corpus.entry import Entry
from tests.evaluator.sources import (
    ANSWER,
    BRANCHES,
    BRANCHES_EAGER,
    EAGER,
    HEAD,
    MANY_OUTPUTS,
    REPEATED,
    TWO_OUTPUTS,
    branches,
    candidate,
    two_outputs,
)

LEAN_CPP = '''
CPP = """
#include <torch/csrc/utils/pybind.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <cmath>
at::Tensor gelu(const at::Tensor& x) {
    at::Tensor y = at::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i)
        out[i] = 0.5f * in[i] * (1.0f + std::erf(in[i] * 0.70710678f));
    return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("gelu", &gelu); }
"""
from torch.utils.cpp_extension import load_inline
lib = load_inline(name="lean", cpp_sources=CPP, no_implicit_headers=True, extra_cflags=["-O2"])
'''
PLAIN_C = '''
import ctypes
C = """
#include <cmath>
extern "C" void gelu(float* x, long n) {
    for (long i = 0; i < n; ++i) x[i] = 0.5f * x[i] * (1.0f + std::erf(x[i] * 0.70710678f));
}
"""
from torch.utils.cpp_extension import load_inline
path = load_inline(name="plain", cpp_sources=C, is_python_module=False, no_implicit_headers=True, extra_cflags=["-O2"])
lib = ctypes.CDLL(path)
'''


def honest(name: str, family: str, source: str) -> Entry:
    return Entry(name, family, source)


HONEST: tuple[Entry, ...] = (
    honest("the reference itself", "speed", EAGER),
    honest("twice the work", "speed", candidate("self.linear(x) * 2 - self.linear(x); return " + ANSWER)),
    honest(
        "all-ones initial weights",
        "weights",
        candidate(f"return {ANSWER}", init="for p in self.parameters(): nn.init.ones_(p)"),
    ),
    honest(
        "weights packed lazily, by version",
        "weights",
        candidate(
            """
            w, b = self.linear.weight, self.linear.bias
            if self.versions != (w._version, b._version):
                self.packed = w.t().contiguous(), b.clone()
                self.versions = (w._version, b._version)
            return F.gelu(torch.addmm(self.packed[1], x, self.packed[0]))
            """,
            init="self.versions = None",
        ),
    ),
    honest(
        "weights packed in load_state_dict",
        "weights",
        candidate(
            "return F.gelu(torch.addmm(self.linear.bias, x, self.packed))",
            extra="""
            def load_state_dict(self, state, strict=True):
                result = super().load_state_dict(state, strict)
                self.packed = self.linear.weight.detach().t().contiguous()
                return result
            """,
        ),
    ),
    honest(
        "weights packed by an override that takes the state alone",
        "weights",
        candidate(
            "return F.gelu(torch.addmm(self.bias, x, self.packed))",
            extra="""
            def load_state_dict(self, state):
                self.packed, self.bias = state["linear.weight"].t().contiguous(), state["linear.bias"]
            """,
        ),
    ),
    honest(
        "weights packed at construction and by a hook",
        "weights",
        candidate(
            "return F.gelu(torch.addmm(self.linear.bias, x, self.packed))",
            init="""
            self.packed = self.linear.weight.detach().t().contiguous()
            def pack(module, keys):
                self.packed.copy_(self.linear.weight.detach().t())
            self.register_load_state_dict_post_hook(pack)
            """,
        ),
    ),
    honest(
        "packed weights in a buffer that is not persistent",
        "weights",
        candidate(
            "return F.gelu(torch.addmm(self.linear.bias, x, self.packed))",
            init='self.register_buffer("packed", torch.empty(features, features), persistent=False)',
            extra="""
            def load_state_dict(self, state, strict=True):
                result = super().load_state_dict(state, strict)
                self.packed.copy_(self.linear.weight.t())
                return result
            """,
        ),
    ),
    honest(
        "parameters without a layer",
        "weights",
        HEAD
        + """
class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.ParameterDict(
            {"bias": nn.Parameter(torch.zeros(features)), "weight": nn.Parameter(torch.zeros(features, features))}
        )

    def forward(self, x):
        return F.gelu(torch.addmm(self.linear["bias"], x, self.linear["weight"].t()))
""",
    ),
    honest(
        "a workspace that persists",
        "buffers",
        candidate(
            """
            if self.space is None:
                self.space = torch.empty_like(x)
            torch.addmm(self.linear.bias, x, self.linear.weight.t(), out=self.space)
            return F.gelu(self.space)
            """,
            init="self.space = None",
        ),
    ),
    honest(
        "the same output tensor for every call",
        "buffers",
        candidate(
            "self.out.copy_(self.linear(x)); return torch.ops.aten.gelu.out(self.out, out=self.out)",
            init="self.out = torch.empty(512, 64)",
        ),
    ),
    honest(
        "work in place on its own tensors", "buffers", candidate("y = self.linear(x); return torch.ops.aten.gelu_(y)")
    ),
    honest(
        "a view of the input kept between calls",
        "buffers",
        candidate(
            """
            if self.halves is None:
                self.halves = x[:256], x[256:]
            return torch.cat([F.gelu(self.linear(half)) for half in self.halves])
            """,
            init="self.halves = None",
        ),
    ),
    honest(
        "an output with strides",
        "outputs",
        candidate("return F.gelu(self.linear.weight @ x.t() + self.linear.bias[:, None]).t()"),
    ),
    honest(
        "a view of a larger output",
        "outputs",
        candidate("y = torch.zeros(600, 80); y[40:552, 8:72] = F.gelu(self.linear(x)); return y[40:552, 8:72]"),
    ),
    honest(
        "threads of its own, joined",
        "threads",
        candidate(
            """
            import threading
            y = torch.empty_like(x)
            def half(part):
                with torch.no_grad():
                    y[part] = F.gelu(F.linear(x[part], self.linear.weight, self.linear.bias))
            threads = [threading.Thread(target=half, args=(p,)) for p in (slice(0, 256), slice(256, None))]
            for t in threads: t.start()
            for t in threads: t.join()
            return y
            """
        ),
    ),
    honest(
        "a pool of threads that waits between calls",
        "threads",
        candidate(
            """
            def part(rows):
                with torch.no_grad():
                    return F.gelu(self.linear(rows))
            return torch.cat(list(self.pool.map(part, x.split(256))))
            """,
            init="""
            from concurrent.futures import ThreadPoolExecutor
            self.pool = ThreadPoolExecutor(2)
            """,
        ),
    ),
    honest("one thread only", "threads", candidate(f"return {ANSWER}", init="torch.set_num_threads(1)")),
    honest(
        "an import that may fail",
        "imports",
        candidate(
            f"return {ANSWER}",
            top="""
            try:
                import a_library_that_is_not_there as fast
            except ImportError:
                fast = None  # pass
            """,
        ),
    ),
    honest(
        "numpy inside",
        "imports",
        candidate(
            """
            y = x.numpy() @ self.linear.weight.numpy().T + self.linear.bias.numpy()
            return F.gelu(torch.from_numpy(y))
            """,
            top="import numpy",
        ),
    ),
    honest(
        "C++ with the lean headers",
        "compiled",
        candidate("return lib.gelu(F.linear(x, self.linear.weight, self.linear.bias))", top=LEAN_CPP),
    ),
    honest(
        "C through ctypes",
        "compiled",
        candidate(
            "y = self.linear(x); lib.gelu(ctypes.c_void_p(y.data_ptr()), ctypes.c_long(y.numel())); return y",
            top=PLAIN_C,
        ),
    ),
    honest(
        "scripted",
        "compiled",
        candidate(
            "return fused(x, self.linear.weight, self.linear.bias)",
            top="""
            @torch.jit.script
            def fused(x, w, b):
                return F.gelu(torch.addmm(b, x, w.t()))
            """,
        ),
    ),
    honest(
        "a functional call",
        "rewritten",
        candidate("return F.gelu(torch.func.functional_call(self.linear, dict(self.linear.named_parameters()), (x,)))"),
    ),
    honest(
        "a call of its own instead of forward",
        "rewritten",
        candidate(f"return {ANSWER}", extra="__call__ = forward"),
    ),
    honest(
        "the formula written out",
        "rewritten",
        candidate("y = self.linear(x); return 0.5 * y * (1 + torch.erf(y * 0.7071067811865476))"),
    ),
    honest(
        "inference mode, and words printed",
        "rewritten",
        candidate(f"with torch.inference_mode():\n    print('called', x.shape)\n    return {ANSWER}"),
    ),
    Entry(
        "half precision inside, where the lane allows it",
        "precision",
        candidate(
            "return F.gelu(F.linear(x.bfloat16(), self.linear.weight.bfloat16(), self.linear.bias.bfloat16())).float()"
        ),
        lane="bf16",
    ),
    Entry(
        "autocast, where the lane allows it",
        "precision",
        candidate(f"with torch.autocast('cpu', torch.bfloat16):\n    return ({ANSWER}).float()"),
        lane="bf16",
    ),
    Entry("dictionaries, tuples and a number", "outputs", BRANCHES_EAGER, problem=BRANCHES),
    Entry(
        "aliases of one tensor as outputs",
        "outputs",
        branches(
            'return {"sum": left + right, "pair": (left, right)}',
            'both = torch.stack([left, right]); return {"sum": both.sum(0), "pair": (both[0], both[1])}',
        ),
        problem=BRANCHES,
    ),
    Entry("whole numbers beside a layer", "outputs", two_outputs("self.linear(x)"), problem=TWO_OUTPUTS),
    Entry(
        "one tensor for many outputs",
        "outputs",
        MANY_OUTPUTS.source.replace("class Model(", "class ModelNew(").replace("y.clone()", "y"),
        problem=MANY_OUTPUTS,
    ),
    honest(
        "a process named in no known encoding",
        "rewritten",
        candidate(
            f"return {ANSWER}",
            top="import ctypes",
            init="ctypes.CDLL(None).prctl(15, b'\\xff\\xfe', 0, 0, 0)",
        ),
    ),
    Entry(
        "an expanded view, less than the time to write it out",
        "outputs",
        REPEATED.source.replace("class Model(", "class ModelNew(").replace(".repeat(1, 8192)", ".expand(-1, 8192)"),
        problem=REPEATED,
    ),
    Entry(
        "layers in another order, the dead one left out",
        "weights",
        branches(
            """        self.first = nn.Linear(features, features)
        self.second = nn.Linear(features, features)
        self.unused = nn.Linear(3, 3)
""",
            """        self.second = nn.Linear(features, features)
        self.first = nn.Linear(features, features)
""",
        ),
        problem=BRANCHES,
    ),
    Entry(
        "one more buffer",
        "weights",
        branches(
            "        self.unused = nn.Linear(3, 3)\n",
            '        self.unused = nn.Linear(3, 3)\n        self.register_buffer("ones", torch.ones(3))\n',
        ),
        problem=BRANCHES,
    ),
)
