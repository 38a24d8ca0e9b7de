"""For every test: SIGINT interrupts what a test starts."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """A shell without job control starts its background commands with SIGINT ignored, which children inherit."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
