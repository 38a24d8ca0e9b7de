"""A verdict in the agent's words: at most 500 characters, so that compaction keeps it whole."""

from __future__ import annotations

from evaluator.model import Evaluation
from kernel_agent.model import Candidate, Improvement
from kernel_agent.plain_text import plain

LIMIT = 500
REASON_LIMIT = 200
ERROR_LIMIT = 220
FIXES = (
    ("incomplete type", "include the header that defines it"),
    ("undefined symbol", 'declare the function extern "C" or fix its name; link what defines it (extra_ldflags)'),
    ("undefined reference", "define the function or link what defines it (extra_ldflags)"),
    ("size mismatch", "keep the reference's parameter shapes; pack copies elsewhere"),
    ("expected ';'", "a semicolon is missing on or before that line"),
    ("was not declared in this scope", "declare it or include its header"),
    ("No such file or directory", "the header is not there: leave it out or include another"),
    ("is not contiguous", "call .contiguous() before data_ptr()"),
)


def verdict(
    candidate: Candidate,
    screen: Evaluation,
    promotion: Evaluation | None,
    improved: Improvement | None,
    best: Improvement | None,
    left: str,
    since: int,
) -> str:
    """The result of one attempt.

    :param improved: the new best that this attempt became.
    :param best: the best after this attempt.
    :param left: steps and money left, in words.
    :param since: attempts since the last improvement.
    """
    head = f"#{candidate.n} (step {candidate.step}) {screen.status}"
    if screen.status == "correct":
        body = _measured(screen)
        if improved is not None:
            head += " NEW BEST"
            times = f"{improved.candidate_ms:.4g} ms; eager {improved.reference_ms:.4g} ms"
            body = f"confirmed {_interval(improved.speedup, improved.speedup_low, improved.speedup_high)} ({times})"
        elif promotion is not None:
            body += _not_better(promotion)
    else:
        body = _clip(plain(screen.reason), REASON_LIMIT) + _first_error(screen)
    tail = []
    if best is not None and improved is None:
        tail.append(f"best #{best.attempt} {_interval(best.speedup, best.speedup_low, best.speedup_high)}")
    if since:
        tail.append(
            f"{since} attempts since the last improvement" if since > 1 else "1 attempt since the last improvement"
        )
    tail.append(left)
    ending = ". " + "; ".join(tail) + "."
    return _clip(f"{head}: {body.rstrip('.')}", LIMIT - len(ending)) + ending


def _measured(e: Evaluation) -> str:
    assert e.speedup is not None
    assert e.speedup_low is not None
    assert e.speedup_high is not None
    text = f"{_interval(e.speedup, e.speedup_low, e.speedup_high)} of eager"
    text += f" ({e.candidate_ms:.4g} ms; eager {e.reference_ms:.4g} ms)"
    if e.speedup_compile is not None:
        text += f", {e.speedup_compile:.3f}x of torch.compile"
    if e.speedup_lane is not None:
        text += f", {e.speedup_lane:.3f}x of eager in {e.lane}"
    gate = next((g for g in e.gates if g.gate == e.gate and g.lane == e.lane and g.rms is not None), None)
    if gate is not None:
        text += f", error {gate.rms:.1e} (lane {e.lane})"
    if e.flags:
        text += f", flags {', '.join(e.flags)}"
    return text


def _not_better(promotion: Evaluation) -> str:
    if promotion.status != "correct":
        return f"; confirming it failed: {promotion.status}, {_clip(promotion.reason, 120)}"
    if promotion.gain is not None:
        return f"; beside the best: gain {promotion.gain:+.1%}, not beyond doubt"
    return ""


def _first_error(e: Evaluation) -> str:
    if not e.errors:
        return ""
    text = plain(e.errors[0]).strip()
    shown = f" | {_clip(text, ERROR_LIMIT)}" if text and text not in e.reason else ""
    both = text + e.reason
    fix = next((advice for sign, advice in FIXES if sign in both), "")
    return shown + (f" | try: {fix}" if fix else "")


def _interval(value: float, low: float, high: float) -> str:
    return f"{value:.3f}x [{low:.3f}, {high:.3f}]"


def _clip(text: str, limit: int) -> str:
    text = " ".join(text.split()) if "\n" not in text or limit < 60 else text
    return text if len(text) <= limit else text[: limit - 1] + "…"
