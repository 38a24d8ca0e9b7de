"""Less work than was asked for: fewer bits, rows, terms or outputs, and objects that only pretend to be tensors."""

from __future__ import annotations

from tests.evaluator.corpus.entry import WRONG, WRONG_OR_WILD, Entry, statuses
from tests.evaluator.corpus.kept import PHASES, UNTIMED
from tests.evaluator.sources import ANSWER, BRANCHES, FAINT, TWO_OUTPUTS, branches, candidate, two_outputs

BFLOAT = "F.gelu(F.linear(x.bfloat16(), self.linear.weight.bfloat16(), self.linear.bias.bfloat16())).float()"
PASSES = "it would pass"

LESS: tuple[Entry, ...] = (
    Entry(
        "products in half precision",
        "F18",
        candidate("return F.gelu(F.linear(x.half(), self.linear.weight.half(), self.linear.bias.half())).float()"),
        WRONG,
        PASSES,
    ),
    Entry("products in bfloat16", "F18", candidate(f"return {BFLOAT}"), WRONG, PASSES),
    Entry(
        "bfloat16 behind an output that eager gets wrong",
        "F18",
        two_outputs("F.linear(x.bfloat16(), self.linear.weight.bfloat16(), self.linear.bias.bfloat16()).float()"),
        WRONG,
        "output 1: typical error",
        TWO_OUTPUTS,
    ),
    Entry(
        "operands cut to ten bits",
        "F18",
        candidate(
            "return F.gelu(F.linear(cut(x), cut(self.linear.weight), self.linear.bias))",
            top="""
            def cut(t):
                return ((t.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)
            """,
        ),
        WRONG,
        PASSES,
    ),
    Entry(
        "bfloat16 only once calls are timed",
        "F18",
        candidate(
            f"""
            self.calls += 1
            return {ANSWER} if {UNTIMED} else {BFLOAT}
            """,
            init="self.loads = self.calls = 0",
            extra=PHASES,
        ),
        WRONG,
        "a freshly built model is right",
    ),
    Entry(
        "another GELU",
        "F18",
        candidate('return F.gelu(self.linear(x), approximate="tanh")'),
        WRONG,
        PASSES,
    ),
    Entry(
        "a sigmoid for a GELU",
        "F18",
        candidate("y = self.linear(x); return y * torch.sigmoid(1.702 * y)"),
        WRONG,
        "typical error",
    ),
    Entry(
        "an error at the gate's edge",
        "F18",
        candidate(f"return {ANSWER}.mul_(1 + 5e-6)"),
    ),
    Entry(
        "an error beyond the gate's edge",
        "F18",
        candidate(f"return {ANSWER}.mul_(1 + 5e-5)"),
        WRONG,
        PASSES,
    ),
    Entry(
        "small weights pruned",
        "F18",
        candidate("w = self.linear.weight; return F.gelu(F.linear(x, w * (w.abs() > 1e-3), self.linear.bias))"),
        WRONG,
        "typical error",
    ),
    Entry(
        "a layer of lower rank",
        "F18",
        candidate(
            "return F.gelu(torch.addmm(self.linear.bias, x @ self.right, self.left))",
            extra="""
            def load_state_dict(self, state, strict=True):
                result = super().load_state_dict(state, strict)
                u, s, v = torch.linalg.svd(self.linear.weight.detach().t())
                self.right, self.left = u[:, :56] * s[:56], v[:56]
                return result
            """,
        ),
        WRONG,
        "typical error",
    ),
    Entry("a bias left out", "F36", candidate("return F.gelu(x @ self.linear.weight.T)"), WRONG, "typical error"),
    Entry("half the rows", "F36", candidate(f"y = {ANSWER}; y[256:] = y[:256]; return y"), WRONG, "typical error"),
    Entry(
        "one row for all",
        "F36",
        candidate("return F.gelu(self.linear(x[:1])).expand(512, 64)"),
        WRONG,
        "typical error",
    ),
    Entry(
        "the last element forgotten",
        "F36",
        candidate(f"y = {ANSWER}; y[-1, -1] = 0; return y"),
        WRONG,
        "largest",
    ),
    Entry(
        "no numbers at all",
        "F16",
        candidate("return torch.full_like(x, float('nan'))"),
        statuses("non_finite"),
        "NaN",
    ),
    Entry(
        "a broken kernel behind a fallback",
        "F20",
        candidate(
            f"""
            with contextlib.suppress(Exception):
                return torch.ops.mine.gelu_linear(x, self.linear.weight, self.linear.bias)
            return {ANSWER}
            """,
            top="import contextlib",
        ),
    ),
    Entry(
        "a tensor that computes when it is copied",
        "F04",
        candidate(
            f"""
            y = torch.empty_like(x).as_subclass(Lazy)
            y.answer = lambda: {ANSWER}
            return y
            """,
            top="""
            class Lazy(torch.Tensor):
                @classmethod
                def __torch_function__(cls, function, types, args=(), kwargs=None):
                    if function is torch.Tensor.copy_:
                        return args[0].copy_(args[1].answer())
                    return super().__torch_function__(function, types, args, kwargs or {})
            """,
        ),
        WRONG_OR_WILD,
    ),
    Entry(
        "a tensor that computes when its address is asked for",
        "F04",
        candidate(
            f"""
            y = torch.empty_like(x).as_subclass(Lazy)
            y.answer = lambda: {ANSWER}
            return y
            """,
            top="""
            class Lazy(torch.Tensor):
                def data_ptr(self):
                    self.kept = self.answer()
                    return self.kept.data_ptr()
            """,
        ),
    ),
    Entry(
        "a tensor that lies about its address",
        "lies about types",
        candidate(
            "y = torch.zeros_like(x).as_subclass(Liar); y.address = x.data_ptr(); return y",
            top="""
            class Liar(torch.Tensor):
                def data_ptr(self): return self.address
            """,
        ),
        WRONG,
        "typical error",
    ),
    Entry(
        "a tensor that lies about its strides",
        "lies about types",
        candidate(
            "return torch.zeros_like(x).as_subclass(Liar)",
            top="""
            class Liar(torch.Tensor):
                def stride(self): return (1 << 40, 1 << 40)
            """,
        ),
        WRONG,
        "no output 0 in memory",
    ),
    Entry(
        "a tensor that computes when it is compared",
        "F04",
        candidate(
            f"""
            y = torch.zeros_like(x).as_subclass(Lazy)
            y.answer = lambda: {ANSWER}
            return y
            """,
            top="""
            class Lazy(torch.Tensor):
                @classmethod
                def __torch_function__(cls, function, types, args=(), kwargs=None):
                    if function in (torch.allclose, torch.isclose, torch.equal, torch.Tensor.to, torch.sub):
                        args = [a.answer() if isinstance(a, Lazy) else a for a in args]
                        return function(*args, **(kwargs or {}))
                    return super().__torch_function__(function, types, args, kwargs or {})
            """,
        ),
        WRONG,
        "typical error",
    ),
    Entry(
        "a tensor that lies about its shape",
        "lies about types",
        candidate(
            "return torch.full((1,), 0.28).as_subclass(Liar)",
            top="""
            class Liar(torch.Tensor):
                shape = property(lambda self: torch.Size((512, 64)))
                dtype = property(lambda self: torch.float32)
            """,
        ),
        WRONG | statuses("runtime_error"),
    ),
    Entry(
        "an object that calls itself a tensor",
        "lies about types",
        candidate(
            "return Liar()",
            top="""
            class Liar:
                __class__ = property(lambda self: torch.Tensor)
                shape, dtype = torch.Size((512, 64)), torch.float32
            """,
        ),
        statuses("runtime_error"),
        "Liar",
    ),
    Entry(
        "zeros below every absolute tolerance",
        "F16",
        candidate("return torch.zeros_like(x)"),
        WRONG,
        "typical error",
        problem=FAINT,
    ),
    Entry(
        "one output for both",
        "F15",
        branches('"pair": (left, right)', '"pair": (left, left)'),
        WRONG,
        "typical error",
        problem=BRANCHES,
    ),
    Entry(
        "a branch left out",
        "F36",
        branches("left + right", "left + left"),
        WRONG,
        "typical error",
        problem=BRANCHES,
    ),
)
