"""Processes and threads that were stopped, and wake themselves: SIGCONT from a timer of their own undoes a stop."""

from __future__ import annotations

from tests.evaluator.corpus.entry import CORRECT, WRONG, Entry, statuses
from tests.evaluator.sources import ANSWER, candidate

TIMER = """
import ctypes, os, signal, struct, threading, time

libc = ctypes.CDLL(None)

def timer():
    libc.signal(signal.SIGCONT, ctypes.cast(libc.abs, ctypes.c_void_p))
    event = ctypes.create_string_buffer(struct.pack("QiI48x", 0, signal.SIGCONT, 0))
    made = ctypes.c_void_p()
    assert libc.timer_create(1, event, ctypes.byref(made)) == 0
    return made

def wake(made, seconds):
    libc.timer_settime(made, 0, struct.pack("qqqq", 0, 0, 0, int(seconds * 1e9)), None)
"""

# Children of each round stand still until a timer of their own wakes them, mostly in another's turn; there they end.
ENDS_STOPPED = candidate(
    f"return {ANSWER}",
    top=TIMER
    + """
signal.signal(signal.SIGCHLD, signal.SIG_IGN)

def end_in(seconds):
    until = time.monotonic() + seconds
    wake(timer(), seconds)
    while time.monotonic() < until:
        os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(0)
""",
    extra="""
    def load_state_dict(self, state, strict=True):
        for n in range(6):
            if os.fork() == 0:
                end_in(0.05 + 0.007 * n)
        time.sleep(0.02)
        return super().load_state_dict(state, strict)
    """,
)

# A thread that sleeps on a timer's SIGCONT and finishes the answer when the clock has stopped, before it is read.
AFTER_THE_CLOCK = candidate(
    f"""
    self.calls += 1
    if self.loads < 2 or self.calls < 2:
        return {ANSWER}
    if self.timer is None:
        self.timer = timer()
        threading.Thread(target=self.work, daemon=True).start()
    self.x, self.y = x, torch.empty_like(x)
    started = threading.Thread(target=int)
    started.start()  # something new for the judge to look for
    self.go.set()
    wake(self.timer, 0.015)
    return self.y
    """,
    top=TIMER,
    init="self.timer, self.loads, self.go = None, 0, threading.Event()",
    extra=f"""
    def work(self):
        with torch.no_grad():
            while True:
                self.go.wait()
                self.go.clear()
                time.sleep(0.005)  # the clock stops first
                x = self.x
                self.y.copy_({ANSWER})
                os.kill(os.getpid(), signal.SIGSTOP)

    def load_state_dict(self, state, strict=True):
        self.loads, self.calls = self.loads + 1, 0
        return super().load_state_dict(state, strict)
    """,
)

# A helper whose first thread has ended, and whose second one works while all are stopped.
DEAD_LEADER = candidate(
    f"return {ANSWER}",
    top=TIMER
    + """
import platform

EXIT = {"x86_64": 60, "aarch64": 93}[platform.machine()]

def work():
    made = timer()
    while True:
        wake(made, 0.002)
        os.kill(os.getpid(), signal.SIGSTOP)
        until = time.monotonic() + 0.002
        while time.monotonic() < until:
            pass
""",
    init="self.helper = None",
    extra="""
    def load_state_dict(self, state, strict=True):
        if self.helper is None:
            self.helper = os.fork()
            if self.helper == 0:
                threading.Thread(target=work).start()
                libc.syscall(EXIT, 0)  # this thread alone
        return super().load_state_dict(state, strict)
    """,
)

BACKGROUND = statuses("background_work")

AWAKE: tuple[Entry, ...] = (
    # Unseen where it ends while nobody is measured, and then nothing is gained.
    Entry("children that end while they are stopped", "work while stopped", ENDS_STOPPED, BACKGROUND | CORRECT),
    Entry("a helper without its first thread", "work while stopped", DEAD_LEADER, BACKGROUND),
    Entry("finished between clock and reading", "work while stopped", AFTER_THE_CLOCK, BACKGROUND | WRONG),
)
