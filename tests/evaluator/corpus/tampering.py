"""Hands on clocks, comparisons, channels, files and the harness itself."""

from __future__ import annotations

from tests.evaluator.corpus.entry import JAILED, WRONG, WRONG_OR_WILD, Entry, statuses
from tests.evaluator.sources import ANSWER, EAGER, HEAD, candidate

EARLY = "answered before the work was done"
ZEROS = "return torch.zeros_like(x)"
CHANNEL = "import os, sys, time; channel = int(sys.argv[1])"
WORKER = "worker = next(o for o in gc.get_objects() if type(o).__name__ == 'Worker')"

TAMPERING: tuple[Entry, ...] = (
    Entry(
        "clocks and comparisons replaced",
        "F08",
        candidate(
            ZEROS,
            top="""
            import time
            for name in ("perf_counter", "perf_counter_ns", "monotonic", "time"):
                setattr(time, name, lambda: 0)
            torch.allclose = torch.equal = lambda *a, **k: True
            torch.cuda.synchronize = lambda *a, **k: None
            torch.testing.assert_close = lambda *a, **k: None
            """,
        ),
        WRONG,
        "typical error",
    ),
    Entry(
        "copies that do nothing",
        "F08",
        candidate(ZEROS, top="torch.Tensor.copy_ = lambda mine, *a, **k: mine"),
        WRONG,
        "typical error",
    ),
    Entry(
        "a patch behind two slashes",
        "F37",
        candidate(ZEROS, top="n = 8 // 4; torch.allclose = lambda *a, **k: n > 0"),
        WRONG,
        "typical error",
    ),
    Entry(
        "a patch by other names",
        "F37",
        candidate(
            ZEROS,
            top="""
            import _thread, contextlib
            with contextlib.suppress(Exception):
                globals()["__builtins__"]
                setattr(torch, "all" + "close", lambda *a, **k: True)
                vars(torch)["eq" + "ual"] = torch.allclose
            _thread.start_new_thread(lambda: None, ())
            """,
        ),
        WRONG,
        "typical error",
    ),
    Entry(
        "the evaluator's own gate replaced",
        "F09",
        candidate(ZEROS, top="import evaluator.gate; evaluator.gate.passes = lambda *a: True"),
        statuses("load_error"),
        "No module named 'evaluator'",
    ),
    Entry(
        "every result in sight rewritten",
        "F09",
        candidate(
            """
            import gc
            for found in gc.get_objects():
                if type(found) is dict and {"speedup", "correct", "runtime_stats", "passed"} & set(map(str, found)):
                    found.update(speedup=9.0, correct=True, passed=True, runtime_stats={"mean": 1e-6})
            return torch.zeros_like(x)
            """
        ),
        WRONG,
        "typical error",
    ),
    Entry(
        "the reference's functions redefined",
        "F21",
        candidate(
            "return self.linear(x)",
            top="""
            import builtins
            F.gelu = torch.nn.functional.gelu = builtins.gelu = lambda x, *a, **k: x
            class Model(nn.Module):
                def __init__(self, features): super().__init__()
                def forward(self, x): return x
            """,
        ),
        WRONG,
        "typical error",
    ),
    Entry(
        "a verdict printed",
        "F26",
        candidate('import os; print(\'{"status": "correct"}\', flush=True); os._exit(0)'),
        statuses("crashed"),
        "exit code 0",
    ),
    Entry(
        "a forged report",
        "F26",
        candidate(
            f"""
            import gc, json, time
            {WORKER}
            text = json.dumps({{"kind": "correct", "message": "correct 9x", "speedup": 9}}).encode()
            worker.report[8:8 + len(text)] = text
            worker.control.send(b"e")
            time.sleep(100)
            """
        ),
        statuses("runtime_error"),
        "correct 9x",
    ),
    Entry(
        "a report that blames the problem",
        "F26",
        candidate(
            f"""
            import gc, json, time
            {WORKER}
            text = json.dumps({{"kind": "problem_unsound", "message": "skip me"}}).encode()
            worker.report[8:8 + len(text)] = text
            worker.control.send(b"e")
            time.sleep(100)
            """
        ),
        statuses("runtime_error"),
        "skip me",
    ),
    Entry(
        "zeros into every descriptor",
        "F26",
        candidate(
            f"""
            import os
            y = {ANSWER}
            for fd in range(3, 64):
                try:
                    os.pwrite(fd, bytes(4096), 0)
                except OSError:
                    pass
            return y
            """,
            top=JAILED,
        ),
        statuses("mutated_input"),
    ),
    Entry(
        "results rewritten on the way out",
        "F27",
        candidate(
            ZEROS,
            top="""
            import atexit, glob
            def rewrite():
                for path in glob.glob("/tmp/*.json") + ["/tmp/result.json"]:
                    open(path, "w").write('{"correct": true, "speedup": 9.0}')
            atexit.register(rewrite)
            class Last:
                def __del__(self): rewrite()
            last = Last()
            """,
        ),
        WRONG,
        "typical error",
    ),
    Entry(
        "what it came from deleted",
        "F28",
        candidate(
            """
            import os
            for path in ("/opt/evaluator/worker.py", "/tmp/candidate.py", "/tmp/extensions"):
                try:
                    os.unlink(path)
                except OSError as error:
                    print(path, error)
            open("/opt/evaluator/worker.py", "w")
            """,
            top=JAILED,
        ),
        statuses("runtime_error"),
        "Read-only file system",
    ),
    Entry(
        "another torch in the working folder",
        "F28",
        candidate(ZEROS, top=JAILED + 'open("torch.py", "w").write("allclose = lambda *a, **k: True")'),
        statuses("load_error"),
        "Read-only file system",
    ),
    Entry(
        "torch's own files changed",
        "F28",
        candidate(ZEROS, top=JAILED + 'open(torch.__file__, "a").write("# changed")'),
        statuses("load_error"),
        "Read-only file system",
    ),
    Entry(
        "done before it began",
        "F29",
        candidate(
            f"""
            {CHANNEL}
            os.write(channel, b"d")
            time.sleep(0.3)  # on a busy machine it would be done before it is stopped
            return {ANSWER}
            """
        ),
        WRONG_OR_WILD,
        EARLY,
    ),
    Entry(
        "done once too often",
        "F29",
        candidate(
            f"""
            {CHANNEL}
            y = {ANSWER}
            if self.calls == 4:
                os.write(channel, b"d")
            self.calls += 1
            return y
            """,
            init="self.calls = 0",
        ),
        statuses("incorrect", "runtime_error"),  # as the judge waits for an answer or for loaded weights
    ),
    Entry(
        "never done",
        "F33",
        candidate("while True: pass", top=JAILED),
        statuses("timeout"),
        "in forward",
    ),
    Entry(
        "a closed channel",
        "protocol",
        candidate(f"{CHANNEL}; os.close(channel); time.sleep(100)"),
        statuses("crashed"),
        "closed its channel",
    ),
    Entry(
        "nested too deeply to be parsed",
        "protocol",
        EAGER + "x = " + "-" * 100_000 + "1\n",
        statuses("compile_error"),
        "nested too deeply",
    ),
    Entry(
        "an account nested too deeply to be read",
        "protocol",
        candidate(
            f"""
            {WORKER}
            text = b'{{"unused": ' + b"[" * 60000
            worker.report[8:8 + len(text)] = text
            worker.control.send(b"e")
            time.sleep(100)
            """,
            top="import gc, time",
        ),
        statuses("runtime_error"),
        "no readable account",
    ),
    Entry(
        "an answer that cannot be read once the model is built anew",
        "protocol",
        candidate(
            """
            y = torch.zeros_like(x)
            return y if len(MADE) == 1 else y.as_subclass(Elsewhere)
            """,
            init="MADE.append(1)",
            top="""
            MADE = []

            class Elsewhere(torch.Tensor):
                def data_ptr(self):
                    return 1
            """,
        ),
        WRONG,
        "typical error",
    ),
    Entry(
        "nonsense said",
        "protocol",
        candidate(f"{CHANNEL}; os.write(channel, b'?'); return {ANSWER}"),
        statuses("runtime_error"),
        "outside the protocol",
    ),
    Entry(
        "nonsense said on the clock",
        "protocol",
        candidate(
            f"""
            {CHANNEL}
            self.calls += 1
            if self.calls == 4:
                os.write(channel, b"?")
            return {ANSWER}
            """,
            init="self.calls = 0",
        ),
        statuses("runtime_error"),
        "outside the protocol",
    ),
    Entry(
        "a flooded channel",
        "protocol",
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
        statuses("incorrect", "runtime_error", "timeout"),
    ),
    Entry(
        "another program in the worker's place",
        "protocol",
        candidate(
            f"""
            {CHANNEL}
            text = f"import socket; s = socket.socket(fileno={{channel}}); s.send(b'd')\\n"
            text += "while s.recv(1): s.send(b'd')"
            os.execv(sys.executable, [sys.executable, "-c", text])
            """,
            top=JAILED,
        ),
        WRONG_OR_WILD,
        EARLY,
    ),
    Entry(
        "a child in the worker's place",
        "protocol",
        candidate(f"return {ANSWER}", init="import os\nif os.fork(): os._exit(0)", top=JAILED),
        statuses("crashed"),
        "exit code 0",
    ),
    Entry(
        "the worker's own call replaced",
        "frames",
        candidate(
            f"""
            import struct, sys
            frame = sys._getframe()
            while "self" not in frame.f_locals or not hasattr(frame.f_locals["self"], "report"):
                frame = frame.f_back
            worker = frame.f_locals["self"]
            worker.call = lambda: struct.pack_into("<3q", worker.report, 8, 4096, 64, 1)
            return {ANSWER}
            """
        ),
        WRONG,
        "cannot be read",
    ),
    Entry(
        "the worker's functions traced and replaced",
        "frames",
        candidate(
            ZEROS,
            init="""
            import sys
            main = sys.modules["__main__"]
            main.flatten = lambda value: ([torch.full((512, 64), 0.28)], "tensor")
            def trace(frame, event, argument):
                if event == "return" and frame.f_code.co_name == "flatten":
                    frame.f_locals["value"] = None
                return trace
            sys.settrace(trace)
            """,
        ),
        WRONG,
        "typical error",
    ),
    Entry(
        "weights written for everybody",
        "weights",
        candidate(
            f"""
            import gc
            {WORKER}
            worker.weights_map[:64] = bytes(64)
            return torch.zeros_like(x)
            """
        ),
        statuses("runtime_error"),
        "TypeError",
    ),
    Entry(
        "weights unsealed for everybody",
        "weights",
        candidate(
            f"""
            import ctypes, gc
            {WORKER}
            address = torch.frombuffer(worker.weights_map, dtype=torch.uint8).data_ptr()
            print(ctypes.CDLL(None).mprotect(ctypes.c_void_p(address), 4096, 3))
            ctypes.memset(address, 0, 64)
            return torch.zeros_like(x)
            """
        ),
        statuses("crashed"),
        "SIGSEGV",
    ),
    Entry(
        "weights emptied while they are handed over",
        "weights",
        candidate(
            f"return {ANSWER}",
            extra="""
            def load_state_dict(self, state, strict=True):
                self.given = state
                for value in state.values():
                    value.zero_()
                return super().load_state_dict(state, strict)
            """,
        ),
        WRONG,
    ),
    Entry(
        "the jail's init made to work",
        "signals",
        candidate(
            """
            import ctypes
            libc = ctypes.CDLL(None, use_errno=True)
            libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
            libc.ptrace(16, 1, None, None)
            return torch.zeros_like(x)
            """,
            top=JAILED,
        ),
        WRONG,
        "typical error",
    ),
    Entry(
        "the jail's init killed",
        "signals",
        candidate("import os, signal; os.kill(1, signal.SIGKILL); return torch.zeros_like(x)", top=JAILED),
        WRONG,
        "typical error",
    ),
    Entry(
        "a class of its own called Module",
        "lies about types",
        HEAD
        + """
class ModelNew:
    __class__ = property(lambda self: nn.Module)
    def __init__(self, features): pass
    def load_state_dict(self, state, strict=True): pass
    def __call__(self, x): return torch.zeros_like(x)
""",
        WRONG,
        "typical error",
    ),
    Entry(
        "an exit on loading",
        "F26",
        "import os\nos._exit(0)\n" + EAGER,
        statuses("crashed"),
        "exit code 0",
    ),
)
