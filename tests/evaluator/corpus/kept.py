"""Answers that are kept, guessed, found or stolen, where they should be computed."""

from __future__ import annotations

from tests.evaluator.corpus.entry import WRONG, WRONG_OR_WILD, Entry, statuses
from tests.evaluator.sources import ANSWER, candidate

PHASES = """
def load_state_dict(self, state, strict=True):
    self.loads, self.calls = self.loads + 1, 0
    return super().load_state_dict(state, strict)
"""
"""Counts calls since the last weights came: the first ones are all checks; later one settles, the rest are timed."""
UNTIMED = "self.loads < 2 or self.calls < 2"

KEPT: tuple[Entry, ...] = (
    Entry(
        "cached by address",
        "F05",
        candidate(
            f"""
            key = (x.data_ptr(), x._version)
            if key not in self.known:
                self.known[key] = {ANSWER}
            return self.known[key]
            """,
            init="self.known = {}",
        ),
        WRONG,
        "earlier input",
    ),
    Entry(
        "cached by a hash of samples",
        "F05",
        candidate(
            f"""
            key = tuple(x.flatten()[::512].tolist())
            stamp = tuple(p._version for p in self.parameters())
            if self.stamp != (stamp, key):
                self.stamp, self.kept = (stamp, key), {ANSWER}
            return self.kept
            """,
            init="self.stamp = self.kept = None",
        ),
        WRONG,
        "cached",
    ),
    Entry(
        "the answer of the call before",
        "F05",
        candidate(
            f"""
            before, self.kept = self.kept, {ANSWER}
            return self.kept if before is None else before
            """,
            init="self.kept = None",
        ),
        WRONG,
        "earlier input",
    ),
    Entry(
        "only what changed is computed again",
        "F05",
        candidate(
            f"""
            stamp = tuple(p._version for p in self.parameters())
            if self.stamp != stamp:
                self.stamp, self.seen, self.kept = stamp, x.clone(), {ANSWER}
                return self.kept
            rows = (x != self.seen).any(1).nonzero().flatten()
            self.kept = self.kept.clone()
            self.kept[rows] = F.gelu(self.linear(x[rows]))
            self.seen.copy_(x)
            return self.kept
            """,
            init="self.stamp = None",
        ),
    ),
    Entry(
        "answers kept on disk",
        "F06",
        candidate(
            f"""
            import os
            stamp = tuple(p._version for p in self.parameters())
            path = f"/tmp/{{hash((stamp, tuple(x.flatten()[::512].tolist())))}}.pt"
            if not os.path.exists(path):
                torch.save({ANSWER}, path)
            return torch.load(path)
            """
        ),
        WRONG,
        "cached",
    ),
    Entry(
        "a batch of all inputs in sight",
        "F07",
        candidate(
            """
            import gc
            if not self.ready:
                found = [t for t in gc.get_objects() if type(t) is torch.Tensor and t.shape == x.shape]
                self.ready = {t.data_ptr(): F.gelu(self.linear(t)) for t in found}
            return self.ready[x.data_ptr()]
            """,
            init="self.ready = {}",
        ),
        WRONG,
        "earlier input",
    ),
    Entry(
        "a tensor of the right shape that lay around",
        "F11",
        candidate(
            """
            import gc
            found = [t for t in gc.get_objects() if type(t) is torch.Tensor and t.shape == x.shape]
            others = [t for t in found if t.data_ptr() != x.data_ptr()]
            return others[0] if others else torch.zeros_like(x)
            """
        ),
        WRONG_OR_WILD,
    ),
    Entry("memory as it comes", "F12", candidate("return torch.empty_like(x)"), WRONG_OR_WILD),
    Entry(
        "memory that held an answer",
        "F12",
        candidate(
            f"""
            if self.calls == 0:
                y = {ANSWER}
                del y
            self.calls += 1
            return torch.empty_like(x)
            """,
            init="self.calls = 0",
        ),
        WRONG_OR_WILD,
    ),
    Entry(
        "the input is emptied first",
        "F14",
        candidate(f"x.zero_(); return {ANSWER}"),
        statuses("mutated_input"),
        "copy",
    ),
    Entry(
        "the answer written over the input",
        "F14",
        candidate(f"return x.copy_({ANSWER})"),
        statuses("mutated_input"),
        "copy",
    ),
    Entry("zeros", "F15", candidate("return torch.zeros_like(x)"), WRONG, "typical error"),
    Entry("a constant", "F15", candidate("return torch.full_like(x, 0.28)"), WRONG, "typical error"),
    Entry("the input itself", "F15", candidate("return x"), WRONG, "typical error"),
    Entry("the input's rectified half", "F15", candidate("return x.relu()"), WRONG, "typical error"),
    Entry(
        "the mean of the answers so far",
        "F15",
        candidate(
            f"""
            if len(self.seen) < 3:
                self.seen.append({ANSWER})
            return torch.stack(self.seen).mean(0)
            """,
            init="self.seen = []",
        ),
        WRONG,
    ),
    Entry(
        "seeds that others use",
        "F17",
        candidate(
            f"""
            if self.known is None:
                self.known = []
                for seed in (0, 1, 42, 43, 1234):
                    torch.manual_seed(seed)
                    self.known.append(torch.randn(512, 64))
            return {ANSWER} if any(torch.equal(x, k) for k in self.known) else torch.zeros_like(x)
            """,
            init="self.known = None",
        ),
        WRONG,
        "typical error",
    ),
    Entry(
        "a seed left in the report buffer",
        "F17",
        candidate(
            """
            import struct, sys
            worker = sys._getframe()
            while "self" not in worker.f_locals or not hasattr(worker.f_locals["self"], "report"):
                worker = worker.f_back
            (seed,) = struct.unpack("<q", worker.f_locals["self"].report[:8])
            torch.manual_seed(seed)
            return F.gelu(self.linear(torch.randn(512, 64)))
            """
        ),
        WRONG,
        "typical error",
    ),
    Entry(
        "the weights of a known seed",
        "F17",
        candidate(
            "return F.gelu(F.linear(x, KNOWN.weight, KNOWN.bias))",
            top="torch.manual_seed(42); KNOWN = nn.Linear(64, 64)",
        ),
        WRONG,
        "typical error",
    ),
    Entry(
        "the weights of the constructor",
        "F17",
        candidate(
            "return F.gelu(F.linear(x, *self.packed))",
            init="self.packed = self.linear.weight.detach().clone(), self.linear.bias.detach().clone()",
        ),
        WRONG,
        "typical error",
    ),
    Entry(
        "the first weights that came",
        "F17",
        candidate(
            """
            if self.packed is None:
                self.packed = self.linear.weight.clone(), self.linear.bias.clone()
            return F.gelu(F.linear(x, *self.packed))
            """,
            init="self.packed = None",
        ),
        WRONG,
        "stale weight cache",
    ),
    Entry(
        "kept once calls are timed, told by their number",
        "phases told apart",
        candidate(
            f"""
            self.calls += 1
            if {UNTIMED}:
                self.kept = {ANSWER}
            return self.kept
            """,
            init="self.loads = self.calls = 0",
            extra=PHASES,
        ),
        WRONG,
        "cached",
    ),
    Entry(
        "kept when calls come fast",
        "phases told apart",
        candidate(
            f"""
            import time
            now = time.perf_counter()
            if now - self.last > 0.5:
                self.kept = {ANSWER}
            self.last = now
            return self.kept
            """,
            init="self.last = 0.0",
        ),
        WRONG,
        "cached",
    ),
    Entry(
        "kept when the clock's caller is on the stack",
        "phases told apart",
        candidate(
            f"""
            import sys
            names, frame = [], sys._getframe()
            while frame:
                names.append(frame.f_code.co_name)
                frame = frame.f_back
            if self.kept is None or not any("time" in n or "serve" in n for n in names):
                self.kept = {ANSWER}
            return self.kept
            """,
            init="self.kept = None",
        ),
        WRONG,
        "cached",
    ),
)
