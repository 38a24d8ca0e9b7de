"""Work done before the clock starts, after it stops, by somebody else, or at somebody else's cost."""

from __future__ import annotations

from tests.evaluator.corpus.entry import CORRECT, JAILED, WRONG, WRONG_OR_WILD, Entry, statuses
from tests.evaluator.corpus.kept import PHASES, UNTIMED
from tests.evaluator.sources import ANSWER, candidate

BACKGROUND = statuses("background_work")

ELSEWHEN: tuple[Entry, ...] = (
    Entry(
        "filled by a thread later",
        "F03",
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
        WRONG_OR_WILD,
    ),
    Entry(
        "filled by a thread later, once calls are timed",
        "F03",
        candidate(
            f"""
            import threading
            self.calls += 1
            if {UNTIMED}:
                return {ANSWER}
            y = torch.zeros_like(x)
            def fill():
                with torch.no_grad():
                    y.copy_({ANSWER})
            threading.Thread(target=fill, daemon=True).start()
            return y
            """,
            init="self.loads = self.calls = 0",
            extra=PHASES,
        ),
        # The thread may be quicker than the copy of the placeholder, or not yet stopped when somebody looks.
        WRONG_OR_WILD | BACKGROUND,
    ),
    Entry(
        "filled by a child later",
        "F03",
        candidate(
            f"""
            import mmap, os, time
            y = torch.frombuffer(mmap.mmap(-1, x.nbytes), dtype=x.dtype).view(x.shape)
            answer = {ANSWER}
            if os.fork() == 0:
                time.sleep(0.02)
                y.copy_(answer)
                os._exit(0)
            return y
            """,
            top=JAILED,
        ),
        WRONG | BACKGROUND,
    ),
    Entry(
        "rewritten on and on after the answer",
        "F30",
        candidate(
            f"""
            import threading, time
            y = torch.zeros_like(x)
            def fill():
                time.sleep(0.005)
                with torch.no_grad():
                    while True: y.copy_({ANSWER})
            threading.Thread(target=fill, daemon=True).start()
            return y
            """
        ),
        WRONG | BACKGROUND,
    ),
    Entry(
        "its input written after the answer",
        "F30",
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
        statuses("mutated_input", "incorrect", "background_work"),
    ),
    Entry(
        "a child for every answer",
        "F31",
        candidate(
            f"""
            import os
            self.calls += 1
            if 4 <= self.calls <= 12 and os.fork() == 0:
                while True: pass
            return {ANSWER}
            """,
            init="self.calls = 0",
            top=JAILED,
        ),
        BACKGROUND,
        "ran on after the answer",
    ),
    Entry(
        "an endless chain of children",
        "F31",
        candidate(
            f"return {ANSWER}",
            init="""
            import os
            if os.fork() == 0:
                while True:
                    if os.fork(): os._exit(0)
            """,
            top=JAILED,
        ),
        statuses("background_work", "timeout"),
    ),
    Entry(
        "a helper process that answers",
        "F31",
        candidate(
            """
            import os
            self.x.copy_(x)
            os.write(self.ask[1], b"?")
            os.read(self.answer[0], 1)
            return self.y.clone()
            """,
            init="""
            import mmap, os
            def shared(*shape):
                count = torch.Size(shape).numel()
                return torch.frombuffer(mmap.mmap(-1, 4 * count), dtype=torch.float32).view(shape)
            self.x, self.y, self.ask, self.answer = shared(512, 64), shared(512, 64), os.pipe(), os.pipe()
            self.linear.weight.data, self.linear.bias.data = shared(64, 64), shared(64)
            if os.fork() == 0:
                torch.set_num_threads(1)
                os.close(self.ask[1])
                with torch.no_grad():
                    while os.read(self.ask[0], 1):
                        self.y.copy_(F.gelu(self.linear(self.x)))
                        os.write(self.answer[1], b"!")
                os._exit(0)
            """,
            top=JAILED,
        ),
        CORRECT | BACKGROUND,
    ),
    Entry(
        "a helper on the network",
        "F31",
        candidate(
            """
            import socket
            server = socket.create_connection(("192.0.2.1", 9), 1)
            server.sendall(x.numpy().tobytes())
            return torch.frombuffer(bytearray(server.recv(x.nbytes)), dtype=x.dtype).view(x.shape)
            """
        ),
        statuses("runtime_error"),
        "unreachable",
    ),
    Entry(
        "a thread that polls its input",
        "prefetching",
        candidate(
            f"""
            self.x = x
            if self.watcher is None:
                self.watcher = threading.Thread(target=self.watch, daemon=True)
                self.watcher.start()
            seen, ready = self.ready
            return ready if seen is not None and torch.equal(seen, x) else {ANSWER}
            """,
            init="self.x = self.watcher = None; self.ready = None, None",
            top="import threading, time",
            extra="""
            def load_state_dict(self, state, strict=True):
                self.ready = None, None
                return super().load_state_dict(state, strict)

            def watch(self):
                with torch.no_grad():
                    while True:
                        time.sleep(0.0002)
                        seen = self.ready[0]
                        if seen is None or not torch.equal(seen, self.x):
                            x = self.x.clone()
                            self.ready = x, F.gelu(self.linear(x))
            """,
        ),
        CORRECT | BACKGROUND | WRONG,
    ),
    Entry(
        "an alarm that polls its input",
        "prefetching",
        candidate(
            f"""
            self.x = x
            seen, ready = self.ready
            return ready if seen is not None and torch.equal(seen, x) else {ANSWER}
            """,
            init="""
            self.x, self.ready = None, (None, None)
            signal.signal(signal.SIGALRM, self.poll)
            signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
            """,
            top="import signal",
            extra="""
            def load_state_dict(self, state, strict=True):
                self.ready = None, None
                return super().load_state_dict(state, strict)

            def poll(self, *_):
                if self.x is not None and (self.ready[0] is None or not torch.equal(self.ready[0], self.x)):
                    with torch.no_grad():
                        x = self.x.clone()
                        self.ready = x, F.gelu(self.linear(x))
            """,
        ),
        CORRECT | BACKGROUND | WRONG,
    ),
    Entry(
        "everything warmed up in load_state_dict",
        "prefetching",
        candidate(
            f"return {ANSWER}",
            extra="""
            def load_state_dict(self, state, strict=True):
                result = super().load_state_dict(state, strict)
                with torch.no_grad():
                    for _ in range(200):
                        F.gelu(self.linear(torch.randn(512, 64)))
                return result
            """,
        ),
    ),
    Entry(
        "threads that burn",
        "F22",
        candidate(
            f"return {ANSWER}",
            init="""
            import threading
            def burn():
                while True: sum(range(1000))
            for _ in range(2):
                threading.Thread(target=burn, daemon=True).start()
            """,
        ),
        CORRECT | BACKGROUND,
    ),
    Entry(
        "orphans that burn",
        "F22",
        candidate(
            f"return {ANSWER}",
            init="""
            import os
            for _ in range(2):
                if os.fork() == 0:
                    os.setsid()
                    if os.fork():
                        os._exit(0)
                    while True: pass
            """,
            top=JAILED,
        ),
        CORRECT | BACKGROUND,
    ),
    Entry(
        "one thread for everybody else",
        "F22",
        candidate(
            f"""
            torch.set_num_threads(self.threads)
            y = {ANSWER}
            torch.set_num_threads(1)
            return y
            """,
            init="self.threads = torch.get_num_threads(); torch.set_num_threads(1)",
        ),
    ),
    Entry(
        "backends switched off for everybody else",
        "F22",
        candidate(
            f"""
            torch.backends.mkldnn.enabled = True
            y = {ANSWER}
            torch.backends.mkldnn.enabled = False
            return y
            """,
            init="torch.backends.mkldnn.enabled = False",
        ),
    ),
    Entry("denormals flushed", "F22", candidate(f"return {ANSWER}", init="torch.set_flush_denormal(True)")),
    Entry(
        "half a gigabyte hoarded",
        "F35",
        candidate(
            f"return {ANSWER}",
            init="""
            import os
            self.hoard = torch.ones(1 << 27), [os.dup(1) for _ in range(500)]
            """,
        ),
    ),
    Entry(
        "another core, another scheduling class",
        "scheduling",
        candidate(
            f"return {ANSWER}",
            init="""
            import os
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
            os.nice(5)
            """,
        ),
    ),
    Entry(
        "naps while nobody measures",
        "scheduling",
        candidate(
            f"""
            import time
            self.calls += 1
            if {UNTIMED}:
                time.sleep(0.01)
            return {ANSWER}
            """,
            init="self.loads = self.calls = 0",
            extra=PHASES,
        ),
    ),
)
