"""Untrusted text (problem ids, replies, build logs) made safe to show: escaping is the medium's job, this is ours.

A terminal obeys control sequences and a page obeys bidirectional overrides; neither belongs in what is shown.
"""

from __future__ import annotations

import re
import unicodedata

_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
"""ANSI control sequences whole (CSI, OSC, two-character), so that no ``[31m`` stays behind."""
_KEPT = "\n\t"


def plain(text: str) -> str:
    """``text`` without control sequences, control and format characters; line feeds and tabs stay."""
    return "".join(c for c in _SEQUENCE.sub("", text) if c in _KEPT or not _is_control(c))


def plain_line(text: str) -> str:
    """``plain`` on one line: every run of white space becomes a single blank."""
    return " ".join(plain(text).split())


def _is_control(character: str) -> bool:
    # Cc: C0 and C1 controls. Cf: bidirectional overrides, zero-width marks. Cs: lone surrogates, which UTF-8 refuses.
    return unicodedata.category(character) in ("Cc", "Cf", "Cs")
