"""``python -m kernel_agent.cli``."""

from __future__ import annotations

from kernel_agent.cli import main

if __name__ == "__main__":
    main()
