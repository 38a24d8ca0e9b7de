"""What the agent is told: a static system prompt (it stays in the provider's cache) and the task of one problem.

Texts of others (the problem's source) are fenced as data.
"""

from __future__ import annotations

from evaluator.model import Evaluation, Lane, Target, lane_on
from kernel_agent.model import CampaignSettings
from problems.model import Problem

CONTRACT = """\
You optimize one PyTorch module. You write a *candidate*: a Python file that defines `class ModelNew`, which computes what the
reference `Model` computes and is faster. You have hundreds of steps; the budget ends the work, you do not.

# The contract
- `ModelNew` takes the same constructor arguments as `Model` and the same inputs to `forward`, and returns outputs of the
  same shapes and dtypes. It derives from `torch.nn.Module`.
- Weights are loaded into it by the reference's parameter names (`load_state_dict`), and new weights are loaded several
  times while it is measured. Keep the names. If you pack or convert weights, do it again whenever they change: in an
  overridden `load_state_dict`, or by comparing each parameter's `_version`. Parameters that do not matter may be missing.
- Inputs are yours to read, never to write. Views, strided outputs and persistent workspaces are fine.
- All work of a call ends before `forward` returns: join your threads, start no processes.
- The file is imported in a jail without network, with a private /tmp. It is built once and cached by its content.

# How it is judged
A separate process holds inputs, clock and comparison. Every timed call gets fresh inputs, every timed output is captured and
checked against a float64 reference, and the idle side is stopped while the other runs. So nothing but faster, right
code helps: a cached, late, partial or constant output is seen and rejected with its reason. The speedup is eager's time over
yours, paired, with a 95% interval. A new best counts only after a second, paired measurement against the old best.
"""

LOOP = """\
# How to work
- The shell, the editor and `evaluate_kernel` share the folder /workspace. `reference.py` is there.
- Change one thing at a time, with one hypothesis, and submit it: `evaluate_kernel(path, hypothesis)`. Start with a simple right
  version, then find what bounds it (time the parts in the shell) before the third try at the same spot.
- Your context may be cut at any moment, without a warning. What is not in a file, in NOTES.md or in `history` is gone. Write
  into /workspace/NOTES.md what failed and why; not code: every submitted source is kept, `history` shows it.
- Never paste a whole kernel into a message again; edit the file.
- When several attempts in a row gain nothing, take a large step: another algorithm, fusion, layout, blocking, or language.
"""

CPP = """\
# C++ on this CPU: the lean template (it builds in under a second)
```python
import ctypes, torch
from torch.utils.cpp_extension import load_inline

SOURCE = r'''
#include <cstdint>
extern "C" void scale(const float* x, float* y, int64_t n, float a) {
    #pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++) y[i] = a * x[i];
}
'''
library = ctypes.CDLL(load_inline(
    name="scale", cpp_sources=SOURCE, is_python_module=False, no_implicit_headers=True,
    extra_cflags=["-O3", "-march=native", "-fopenmp"], extra_ldflags=["-fopenmp"]))
library.scale.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_float]

class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        library.scale(x.data_ptr(), y.data_ptr(), x.numel(), 2.0)
        return y
```
- No torch header is needed: pass `data_ptr()` and sizes. Keep a reference to every tensor until the call is over.
- Do not link with -ffast-math: it sets flush-to-zero for the whole process. `-fno-math-errno` and a polynomial are safe.
- The threads are placed one to a core. `torch.mm(..., out=)` is hard to beat for large products; fuse what surrounds it.
- Use double or pairwise sums where many terms are added: the gate compares with float64.
"""

TEMPLATES: dict[Target, str] = {"cpu": CPP, "cuda": ""}
PRECISION: dict[Lane, str] = {
    "fp32": "Lane fp32: the typical error must stay within 1e-5 of the output's scale; half-precision or TF32 arithmetic fails.",
    "tf32": "Lane tf32: typical errors up to 1e-3 of the output's scale pass; TF32 products are allowed.",
    "fp16": "Lane fp16: typical errors up to 2e-3 of the output's scale pass; half-precision products are allowed.",
    "bf16": "Lane bf16: typical errors up to 1e-2 of the output's scale pass; bfloat16 products are allowed.",
}


def system_prompt(settings: CampaignSettings) -> str:
    """The same for every session of a campaign, and for its whole life."""
    parts = [CONTRACT, PRECISION[lane_on(settings.target, settings.lane)] + "\n", LOOP, TEMPLATES[settings.target]]
    return "\n".join(part for part in parts if part)


def task(problem: Problem, settings: CampaignSettings, baseline: Evaluation | None) -> str:
    """The first user message of a session."""
    budget = settings.budget
    lines = [f"Problem {problem.id}: {problem.title}"]
    if baseline is not None and baseline.reference_ms is not None:
        lines.append(
            f"Eager PyTorch takes {baseline.reference_ms:.4g} ms a call on {baseline.gpu} "
            f"with {baseline.evidence.threads} threads. That is what you are compared with."
        )
    lines.append(f"Device: {settings.target} ({settings.profile}). Budget: {budget.steps} steps.")
    if budget.target_speedup is not None:
        lines.append(f"The session ends when a best of {budget.target_speedup:g}x is confirmed.")
    fence = "`" * max(3, _longest_run(problem.source) + 1)
    lines += [
        "",
        "The reference, as data (it is also in /workspace/reference.py):",
        f"{fence}python",
        problem.source.rstrip(),
        fence,
    ]
    lines += ["", "Write the candidate into /workspace/kernel.py and submit it with evaluate_kernel."]
    return "\n".join(lines)


def _longest_run(text: str) -> int:
    """Longest run of backticks, so that a fence cannot be closed from within."""
    longest = run = 0
    for c in text:
        run = run + 1 if c == "`" else 0
        longest = max(longest, run)
    return longest
