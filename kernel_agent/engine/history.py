"""Answers to the agent's ``history`` tool, from the store: what is not in its context any more."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence

from kernel_agent.errors import UsageError
from kernel_agent.model import Candidate
from kernel_agent.store.repository import Store

USAGE = "history takes one of: best | top [N] | failed [N] | tried [N] | show ID | diff A B (IDs are attempts' numbers)"
ROWS = 10
HYPOTHESIS = 90
SOURCE_LIMIT = 24_000


def answer(store: Store, session_id: str, query: str) -> str:
    """Plain text for the model. Raises UsageError with the usage when the query is not understood."""
    words = query.replace("#", " ").split()
    if not words:
        raise UsageError(USAGE)
    candidates = store.candidates(session_id)
    verb, arguments = words[0].lower(), words[1:]
    if verb == "best":
        return _best(store, session_id, candidates)
    if verb == "show" and len(arguments) == 1:
        return _show(store, _pick(candidates, arguments[0]))
    if verb == "diff" and len(arguments) == 2:
        return _diff(store, *(_pick(candidates, a) for a in arguments))
    lists: dict[str, Callable[[Sequence[Candidate]], list[Candidate]]] = {
        "top": lambda all_: sorted((c for c in all_ if _speedup(c)), key=_speedup, reverse=True),
        "failed": lambda all_: [c for c in reversed(all_) if c.screen is not None and c.screen.status != "correct"],
        "tried": lambda all_: list(reversed(all_)),
    }
    if verb in lists and len(arguments) <= 1:
        rows = lists[verb](candidates)[: _count(arguments)]
        return "\n".join(_row(c) for c in rows) or f"nothing {verb} yet"
    raise UsageError(USAGE)


def _best(store: Store, session_id: str, candidates: Sequence[Candidate]) -> str:
    best = store.best(session_id)
    if best is None:
        return "no correct candidate yet"
    chosen = next(c for c in candidates if c.id == best.candidate_id)
    head = f"best: #{best.attempt}, {best.speedup:.3f}x [{best.speedup_low:.3f}, {best.speedup_high:.3f}] confirmed"
    return head + "\n" + _show(store, chosen)


def _show(store: Store, c: Candidate) -> str:
    source = store.source(c.source_sha)
    if len(source) > SOURCE_LIMIT:
        source = source[:SOURCE_LIMIT] + f"\n# … {len(source) - SOURCE_LIMIT:,} more characters"
    return f"{_row(c)}\n{source}"


def _diff(store: Store, a: Candidate, b: Candidate) -> str:
    before, after = (store.source(c.source_sha).splitlines() for c in (a, b))
    lines = list(difflib.unified_diff(before, after, f"#{a.n}", f"#{b.n}", lineterm=""))
    return "\n".join(lines)[:SOURCE_LIMIT] or f"#{a.n} and #{b.n} have the same source"


def _row(c: Candidate) -> str:
    verdict = "not judged yet"
    if c.screen is not None:
        verdict = c.screen.status
        if c.screen.speedup is not None:
            verdict = f"{c.screen.speedup:.3f}x"
        if c.promotion is not None and c.promotion.accepted and c.promotion.speedup is not None:
            verdict = f"{c.promotion.speedup:.3f}x confirmed"
    text = " ".join(c.hypothesis.split())
    return f"#{c.n} (step {c.step}) {verdict}: {text[:HYPOTHESIS]}{'…' if len(text) > HYPOTHESIS else ''}"


def _speedup(c: Candidate) -> float:
    return (c.screen.speedup or 0.0) if c.screen is not None else 0.0


def _pick(candidates: Sequence[Candidate], word: str) -> Candidate:
    found = next((c for c in candidates if str(c.n) == word), None)
    if found is None:
        raise UsageError(f"there is no attempt {word}; there are {len(candidates)}. {USAGE}")
    return found


def _count(arguments: Sequence[str]) -> int:
    if not arguments:
        return ROWS
    if not arguments[0].isdigit() or not 0 < int(arguments[0]) <= 100:
        raise UsageError(f"{arguments[0]!r} is no count from 1 to 100. {USAGE}")
    return int(arguments[0])
