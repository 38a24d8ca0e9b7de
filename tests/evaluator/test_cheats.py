"""Candidates that would rather be called fast than be fast. None may be; most are told why."""

from __future__ import annotations

import pytest

from evaluator.model import Status
from tests.evaluator.conftest import Judged
from tests.evaluator.sources import ANSWER, HEAD, candidate

Verdict = tuple[str, set[Status], str]

CHEATS: dict[str, Verdict] = {
    "output filled by a thread later": (
        candidate(
            f"""
            import threading, time
            y = torch.empty_like(x)
            def fill():
                time.sleep(0.02)
                y.copy_({ANSWER})
            threading.Thread(target=fill, daemon=True).start()
            return y
            """
        ),
        {"incorrect", "non_finite"},
        "",
    ),
    "cached by address": (
        candidate(
            f"""
            key = (x.data_ptr(), x._version)
            if key not in self.known:
                self.known[key] = {ANSWER}
            return self.known[key]
            """,
            init="self.known = {}",
        ),
        {"incorrect"},
        "earlier input",
    ),
    "cached by a hash of samples": (
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
        {"incorrect"},
        "cached",
    ),
    "stale weights": (
        candidate(
            """
            if self.packed is None:
                self.packed = self.linear.weight.clone(), self.linear.bias.clone()
            return F.gelu(F.linear(x, *self.packed))
            """,
            init="self.packed = None",
        ),
        {"incorrect"},
        "stale weight cache",
    ),
    "weights of the constructor": (
        candidate(
            "return F.gelu(F.linear(x, *self.packed))",
            init="self.packed = self.linear.weight.detach().clone(), self.linear.bias.detach().clone()",
        ),
        {"incorrect"},
        "typical error",
    ),
    "a bias left out": (candidate("return F.gelu(x @ self.linear.weight.T)"), {"incorrect"}, "typical error"),
    "half the rows": (
        candidate(f"y = {ANSWER}; y[256:] = y[:256]; return y"),
        {"incorrect"},
        "typical error",
    ),
    "a forged report": (
        candidate(
            """
            import json, gc
            main = __import__("sys").modules["__main__"]
            w = next(o for o in gc.get_objects() if isinstance(o, main.Worker))
            text = json.dumps({"kind": "correct", "message": "correct 9x", "speedup": 9}).encode()
            w.report[8:8 + len(text)] = text
            w.control.send(b"e")
            import time; time.sleep(100)
            """
        ),
        {"runtime_error"},
        "correct 9x",
    ),
    "patches clocks and comparisons": (
        candidate(
            "return torch.zeros_like(x)",
            top="""
            import time
            for name in ("perf_counter", "perf_counter_ns", "monotonic", "time"):
                setattr(time, name, lambda: 0)
            torch.allclose = torch.equal = lambda *a, **k: True
            torch.cuda.synchronize = lambda *a, **k: None
            torch.testing.assert_close = lambda *a, **k: None
            """,
        ),
        {"incorrect"},
        "typical error",
    ),
    "forks while it answers": (
        candidate(
            f"""
            import os
            self.calls += 1
            if 4 <= self.calls <= 12 and os.fork() == 0:
                while True: pass
            return {ANSWER}
            """,
            init="self.calls = 0",
        ),
        {"background_work"},
        "ran on after the answer",
    ),
    "an endless chain of forks": (
        candidate(
            f"return {ANSWER}",
            init="""
            import os
            if os.fork() == 0:
                while True:
                    if os.fork(): os._exit(0)
            """,
        ),
        {"background_work", "timeout"},
        "",
    ),
    "closes its channel": (
        candidate("import os, sys; os.close(int(sys.argv[1])); import time; time.sleep(100)"),
        {"crashed"},
        "closed its channel",
    ),
    "says done too early": (
        candidate(
            f"""
            import os, sys
            os.write(int(sys.argv[1]), b"d")
            return {ANSWER}
            """
        ),
        {"incorrect", "non_finite"},
        "not written",
    ),
    "says done once too often": (
        candidate(
            f"""
            import os, sys
            y = {ANSWER}
            if self.calls == 4:
                os.write(int(sys.argv[1]), b"d")
            self.calls += 1
            return y
            """,
            init="self.calls = 0",
        ),
        {"incorrect", "runtime_error"},  # as the judge waits for an answer or for loaded weights
        "",
    ),
    "talks nonsense": (
        candidate(f"import os, sys; os.write(int(sys.argv[1]), b'?'); return {ANSWER}"),
        {"runtime_error"},
        "outside the protocol",
    ),
    "talks nonsense on the clock": (
        candidate(
            f"""
            import os, sys
            self.calls += 1
            if self.calls == 4:
                os.write(int(sys.argv[1]), b"?")
            return {ANSWER}
            """,
            init="self.calls = 0",
        ),
        {"runtime_error"},
        "outside the protocol",
    ),
    "floods its channel": (
        candidate(
            f"""
            import os, socket, sys
            s = socket.socket(fileno=os.dup(int(sys.argv[1])))
            s.setblocking(False)
            try:
                while True: s.send(b"d" * 1000)
            except BlockingIOError:
                s.setblocking(True)
            return {ANSWER}
            """
        ),
        {"incorrect", "runtime_error", "timeout"},
        "",
    ),
    "deletes what it came from": (
        candidate(
            """
            import os
            for path in ("/opt/worker.py", "/tmp/candidate.py", "/tmp/extensions"):
                try:
                    os.unlink(path)
                except OSError as error:
                    print(path, error)
            open("/opt/worker.py", "w")
            """
        ),
        {"runtime_error"},
        "Read-only file system",
    ),
    "writes its input after the answer": (
        candidate(
            f"""
            import threading, time
            y = {ANSWER}
            def spoil():
                time.sleep(0.001)
                while True: x.add_(1.0)
            threading.Thread(target=spoil, daemon=True).start()
            return y
            """
        ),
        {"mutated_input", "incorrect", "background_work"},
        "",
    ),
    "makes the jail's init work for it": (
        candidate(
            """
            import ctypes
            libc = ctypes.CDLL(None, use_errno=True)
            libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
            libc.ptrace(16, 1, None, None)
            return torch.zeros_like(x)
            """
        ),
        {"incorrect"},
        "typical error",
    ),
}


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_gains_nothing(judged: Judged, name: str) -> None:
    source, statuses, words = CHEATS[name]
    evaluation = judged(source)
    assert evaluation.status in statuses, evaluation.reason
    assert words in evaluation.reason
    if evaluation.status == "correct":
        assert evaluation.speedup_low is not None
        assert evaluation.speedup_low <= 1.0


BURNERS = {
    "a thread": """
        import threading
        def burn():
            while True: sum(range(1000))
        for _ in range(2):
            threading.Thread(target=burn, daemon=True).start()
    """,
    "an orphan in its own session": """
        import os
        for _ in range(2):
            if os.fork() == 0:
                os.setsid()
                if os.fork():
                    os._exit(0)
                while True: pass
    """,
}


@pytest.mark.parametrize("name", BURNERS)
def test_burning_cores_does_not_slow_the_reference(judged: Judged, name: str) -> None:
    """The burner lives from the constructor on; stopped while the reference runs, it only slows its own side."""
    evaluation = judged(candidate(f"return {ANSWER}", init=BURNERS[name]))
    assert evaluation.status in ("correct", "unstable", "background_work"), evaluation.reason
    if evaluation.status == "correct":
        assert evaluation.speedup is not None
        assert evaluation.speedup < 1.0


def test_an_answer_kept_on_disk_is_gone_in_the_next_jail(judged: Judged) -> None:
    text = (
        HEAD + "import os\nopen('/tmp/kept', 'w').write('x'); open('/dev/shm/kept', 'w').write('x')\nraise ValueError\n"
    )
    judged(text)
    again = judged(
        HEAD + "import os\nraise ValueError(str(os.path.exists('/tmp/kept') or os.path.exists('/dev/shm/kept')))\n"
    )
    assert "False" in again.reason
