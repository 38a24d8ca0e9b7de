"""A session's process: one OpenHands conversation on one problem, until the engine or the gateway ends it.

    python -m kernel_agent.session.main FD

It owns no key, no store and no device. Killed at any point, it is started again with the same session id and goes on
from its last complete step: the workspace is put back, the SDK repeats the interrupted request, and the gateway's
journal answers it.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
from pathlib import Path

from evaluator.processes import PR_SET_PDEATHSIG, prctl
from kernel_agent.session.protocol import ChannelClosed, Ended, EngineClient, Hello, Line, SessionConfig


def quiet_sdk(state_dir: Path) -> None:
    """Settings the SDK and LiteLLM read when first imported: no network, no banner, nothing of the user's own."""
    os.environ.update(
        LITELLM_LOCAL_MODEL_COST_MAP="True",
        OPENHANDS_SUPPRESS_BANNER="1",
        LOG_LEVEL="ERROR",
        OH_PERSISTENCE_DIR=str(state_dir / "openhands"),
        HOME=str(state_dir),
    )


def run(engine: EngineClient, config: SessionConfig) -> Ended:
    """Hold the conversation until no further call is possible; says why."""
    from kernel_agent.session.agent import SessionConversation

    conversation = SessionConversation(engine, config)
    try:
        return conversation.run()
    finally:
        conversation.close()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    engine = EngineClient(Line(socket.socket(fileno=int(sys.argv[1]))))
    try:
        config = engine.ask(Hello()).config
        assert config is not None
        quiet_sdk(Path(config.state_dir))
        try:
            ended = run(engine, config)
        except ChannelClosed:
            raise
        except Exception:
            ended = Ended(why="error", detail=traceback.format_exc())
        engine.ask(ended)
    except ChannelClosed:
        os._exit(3)  # the engine is gone: nothing is left to tell anybody
    # The SDK keeps threads and exit handlers that may wait for a shell; everything worth keeping is on disk.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
