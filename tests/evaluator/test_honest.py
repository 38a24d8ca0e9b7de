"""Honest candidates, however unusual: each must be called correct."""

from __future__ import annotations

import pytest

from tests.evaluator.conftest import TRIES, Judged, accepted
from tests.evaluator.sources import ANSWER, EAGER, candidate

HONEST: dict[str, str] = {
    "the reference itself": EAGER,
    "all-ones initial weights": candidate(f"return {ANSWER}", init="for p in self.parameters(): nn.init.ones_(p)"),
    "weights packed lazily by version": candidate(
        """
        w, b = self.linear.weight, self.linear.bias
        if self.versions != (w._version, b._version):
            self.packed = w.t().contiguous(), b.clone()
            self.versions = (w._version, b._version)
        return F.gelu(torch.addmm(self.packed[1], x, self.packed[0]))
        """,
        init="self.versions = None",
    ),
    "weights packed in load_state_dict": candidate(
        "return F.gelu(torch.addmm(self.linear.bias, x, self.packed))",
        extra="""
        def load_state_dict(self, state, strict=True):
            result = super().load_state_dict(state, strict)
            self.packed = self.linear.weight.detach().t().contiguous()
            return result
        """,
    ),
    "a workspace that persists": candidate(
        """
        if self.space is None:
            self.space = torch.empty_like(x)
        torch.addmm(self.linear.bias, x, self.linear.weight.t(), out=self.space)
        return F.gelu(self.space)
        """,
        init="self.space = None",
    ),
    "an output with strides": candidate("return F.gelu(self.linear.weight @ x.t() + self.linear.bias[:, None]).t()"),
    "threads of its own, joined": candidate(
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
    "C++ with the lean headers": candidate(
        "return lib.gelu(F.linear(x, self.linear.weight, self.linear.bias))",
        top='''
        from torch.utils.cpp_extension import load_inline
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
        lib = load_inline(name="lean", cpp_sources=CPP, no_implicit_headers=True, extra_cflags=["-O2"])
        ''',
    ),
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_work_is_correct(judged: Judged, name: str) -> None:
    evaluation = judged(HONEST[name])
    assert accepted(evaluation), (evaluation.status, evaluation.reason, evaluation.errors)
    if evaluation.status == "correct":
        assert evaluation.lane == "fp32"
    if "C++" in name:
        assert evaluation.build is not None
        assert evaluation.build.artifacts == 1


def test_the_same_request_has_the_same_answer(judged: Judged) -> None:
    first = judged(EAGER, tries=TRIES)
    assert accepted(first), first.reason
    if first.status == "correct":
        assert first.speedup is not None
        assert 0.8 < first.speedup < 1.25
        assert first.evidence.checked_outputs > 8 * 3
        assert first.evidence.control is not None
        assert judged(EAGER).model_copy(update={"seconds": first.seconds}) == first
    refused = judged("raise ValueError('once')\n")
    assert judged("raise ValueError('once')\n").model_copy(update={"seconds": refused.seconds}) == refused


def test_lower_precision_passes_in_its_own_lane_only(judged: Judged) -> None:
    source = candidate(
        "return F.gelu(F.linear(x.bfloat16(), self.linear.weight.bfloat16(), self.linear.bias.bfloat16())).float()"
    )
    refused = judged(source)
    assert refused.status == "incorrect"
    assert "it would pass " in refused.reason
    named = refused.reason.rsplit("it would pass ", 1)[1]
    assert named in ("fp16", "bf16")
    allowed = judged(source, lane="bf16")
    assert accepted(allowed), allowed.reason
    if allowed.status == "correct":
        assert allowed.lane in ("fp16", "bf16")
        honest = {g.lane: g.passed for g in allowed.gates if g.gate == "honest"}
        assert not honest["fp32"]
        assert honest["bf16"]
