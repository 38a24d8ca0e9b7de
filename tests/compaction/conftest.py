"""The SDK must not reach for the network or a user's own settings; it reads these when it is first imported."""

from __future__ import annotations

import os
import tempfile

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
os.environ.setdefault("OPENHANDS_SUPPRESS_BANNER", "1")
os.environ.setdefault("LOG_LEVEL", "ERROR")
os.environ.setdefault("OH_PERSISTENCE_DIR", tempfile.mkdtemp(prefix="openhands-"))
