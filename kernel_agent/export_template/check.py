#!/usr/bin/env python3
"""Checks kernel.py against reference.py on this machine, and its speed against the record in evidence.json.

WARNING: this EXECUTES GENERATED CODE. kernel.py was written by a language model; this script runs it in a subprocess of
its own, with your rights and without a sandbox. Use a machine or container where that is acceptable.

Needs PyTorch (and whatever kernel.py imports), nothing else. Usage: python check.py [--json] [--rounds N] [--seconds S]

What it does. A child process builds both models. Each round draws fresh weights, copies them into both by name
(load_state_dict), and draws fresh inputs. kernel.py must be as close to the reference in float64 as its precision lane
allows, in every round; then both are timed on the same inputs in alternating order, and every timed output is compared
too. A round's result is the median ratio of its pairs; the speedup is the geometric mean over rounds, with a 95%
t-interval. Both run in one process, so this refutes mistakes and stale claims; it is no defence against a kernel that
sets out to deceive it.

The record holds when (1) every output is correct, and (2) the measured interval does not lie wholly below the recorded
lower bound less 10%: speedup_high >= 0.9 * recorded speedup_low. On other hardware (2) may fail for honest reasons.

Exit code: 0 the record holds, 1 it does not, 2 it could not be checked (usage, files, PyTorch or device missing).
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import json
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic, perf_counter  # by name and before kernel.py runs: it may replace those of the module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or "--child" in sys.argv:
    import torch  # the parent only needs to know that it is there

    Outputs = list[torch.Tensor]

HERE = Path(__file__).resolve().parent
TOLERANCE = 0.10
PAIRS = 6
MIN_ROUNDS = 4
# Bounds of the error per precision lane: rms relative to the output's scale, and at the 1 - 1e-6 quantile.
LANES = {"fp32": (1e-5, 1e-4), "tf32": (1e-3, 1e-2), "fp16": (2e-3, 2e-2), "bf16": (1e-2, 8e-2)}
# 97.5% quantiles of Student's t for 1 to 15 degrees of freedom; beyond, 2.131 is a little too wide.
STUDENT = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)


class CannotCheck(Exception):
    """Something other than the kernel is missing or broken: exit code 2."""


class Refuted(Exception):
    """The kernel is wrong: exit code 1."""


# -- the parent: arguments, the child, the answer -------------------------------------------------------------------


def main() -> int:
    options = parse()
    if options.child:
        return child(options)
    notice = "This runs kernel.py, generated code, on this machine (in a subprocess, without a sandbox)."
    print(notice, file=sys.stderr if options.json else sys.stdout, flush=True)
    try:
        record = read_record()
        if importlib.util.find_spec("torch") is None:
            raise CannotCheck("PyTorch is not installed for this Python: pip install torch")
        answer = judge(record, run_child(options))
    except CannotCheck as problem:
        print(f"check.py: {problem}", file=sys.stderr)
        return 2
    print(json.dumps(answer) if options.json else in_words(answer))
    return 0 if answer["holds"] else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Check kernel.py against reference.py. Executes generated code.")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--rounds", type=int, default=12, help=f"rounds, at least {MIN_ROUNDS} (default 12)")
    parser.add_argument("--seconds", type=float, default=60, help="no new round after this long (default 60)")
    parser.add_argument("--timeout", type=float, default=1800, help="kill everything after this long (default 1800)")
    parser.add_argument("--child", metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rounds < MIN_ROUNDS:
        parser.error(f"--rounds must be at least {MIN_ROUNDS}: an interval needs several")
    return options


def read_record() -> dict[str, Any]:
    """What evidence.json claims; checks that all files are there."""
    for name in ("kernel.py", "reference.py", "evidence.json"):
        if not (HERE / name).is_file():
            raise CannotCheck(f"{HERE / name} is missing: keep the exported folder together")
    try:
        evidence = json.loads((HERE / "evidence.json").read_text("utf-8"))
        evaluation = evidence["evaluation"]
        lane = str(evaluation["lane"] or "fp32")
        record = {
            "speedup": float(evaluation["speedup"]),
            "speedup_low": float(evaluation["speedup_low"]),
            "speedup_high": float(evaluation["speedup_high"]),
            "lane": lane,
            "bounds": LANES[lane],
            "target": str(evaluation["target"]),
            "device": str(evaluation["gpu"]),
            "threads": int(evaluation["evidence"]["threads"]),
        }
        hashes = {"kernel.py": evidence["kernel_sha256"], "reference.py": evidence["reference_sha256"]}
    except (ValueError, KeyError, TypeError) as error:
        raise CannotCheck(f"{HERE / 'evidence.json'} is damaged ({error!r}): export again") from error
    record["changed"] = [n for n, sha in hashes.items() if hashlib.sha256((HERE / n).read_bytes()).hexdigest() != sha]
    return record


def run_child(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        result = Path(scratch) / "result.json"
        command = [sys.executable, "-B", str(HERE / "check.py"), "--child", str(result)]
        command += ["--rounds", str(options.rounds), "--seconds", str(options.seconds)]
        # As when it was recorded: idle threads sleep instead of taking the other side's cores.
        environment = {"OMP_WAIT_POLICY": "passive", **os.environ}
        with (Path(scratch) / "log").open("w+b") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
            )
            try:
                code = process.wait(options.timeout)
            except subprocess.TimeoutExpired:
                return {"refuted": f"kernel.py or reference.py did not finish within {options.timeout:g} s"}
            finally:
                # The whole group: the child and whatever it started.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            log.seek(0)
            said = log.read().decode("utf-8", "replace")[-2000:]
        if result.is_file():
            found: dict[str, Any] = json.loads(result.read_text("utf-8"))
            if "cannot" in found:
                raise CannotCheck(found["cannot"])
            return found
    end = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return {"refuted": f"the process that ran kernel.py ended with {end}; it said: {clean(said) or 'nothing'}"}


def judge(record: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """The rule of this file's head."""
    answer = {"holds": False, "correct": False, "reason": "", "recorded": record, **found}
    if "refuted" in found:
        answer["reason"] = answer.pop("refuted")
        return answer
    answer["correct"] = True
    bound = (1 - TOLERANCE) * record["speedup_low"]
    answer["holds"] = found["speedup_high"] >= bound
    side = "does not lie" if answer["holds"] else "lies"
    answer["reason"] = f"the measured interval {side} wholly below {bound:.2f}x, the recorded lower bound less 10%"
    return answer


def in_words(answer: dict[str, Any]) -> str:
    record = answer["recorded"]
    lines = [f"note:     {name} was changed since the export" for name in record["changed"]]
    if answer["correct"]:
        lines.append(
            f"correct:  yes, in {answer['rounds']} rounds of fresh weights and inputs; "
            f"rms error {answer['rms']:.1e} of {answer['rms_bound']:.1e} allowed (lane {record['lane']})"
        )
        lines.append(f"speedup:  {interval(answer)} here")
    else:
        lines.append("correct:  no")
    lines.append(f"recorded: {interval(record)} on {clean(record['device']) or record['target']}")
    lines.append(f"verdict:  the record {'holds' if answer['holds'] else 'DOES NOT HOLD'}: {answer['reason']}")
    return "\n".join(lines)


def interval(of: dict[str, Any]) -> str:
    return f"{of['speedup']:.2f}x (95%: {of['speedup_low']:.2f} to {of['speedup_high']:.2f})"


def clean(text: str) -> str:
    """Text from outside, without what a terminal would obey."""
    text = re.sub(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*)", "", text)
    return "".join(c for c in text if c.isprintable() or c in "\n\t").strip()


# -- the child: runs the generated code -----------------------------------------------------------------------------


def child(options: argparse.Namespace) -> int:
    try:
        found = measure(read_record(), options.rounds, options.seconds)
    except Refuted as refuted:
        found = {"refuted": str(refuted)}
    except CannotCheck as problem:
        found = {"cannot": str(problem)}
    Path(options.child).write_text(json.dumps(found), "utf-8")
    return 0


def measure(record: dict[str, Any], rounds: int, seconds: float) -> dict[str, Any]:
    device = torch.device(record["target"])
    if device.type == "cuda" and not torch.cuda.is_available():
        raise CannotCheck("the record is for a CUDA GPU and PyTorch sees none here")
    if device.type == "cpu" and 0 < record["threads"] <= (os.cpu_count() or 1):
        torch.set_num_threads(record["threads"])
    torch.backends.cuda.matmul.allow_tf32 = record["lane"] == "tf32"
    torch.backends.cudnn.allow_tf32 = record["lane"] == "tf32"
    bench = Bench(device, record["bounds"])
    logs: list[float] = []
    deadline = monotonic() + seconds
    with torch.no_grad():
        while len(logs) < rounds and (len(logs) < MIN_ROUNDS or monotonic() < deadline):
            logs.append(bench.round(seed=1000 * len(logs) + int.from_bytes(os.urandom(4), "big")))
    mean = statistics.fmean(logs)
    half = STUDENT[min(len(logs) - 1, len(STUDENT)) - 1] * statistics.stdev(logs) / math.sqrt(len(logs))
    return {
        "speedup": math.exp(mean),
        "speedup_low": math.exp(mean - half),
        "speedup_high": math.exp(mean + half),
        "rounds": len(logs),
        "rms": bench.worst_rms,
        "rms_bound": bench.rms_bound,
    }


class Bench:
    """Both models on one device, and the rounds between them."""

    def __init__(self, device: torch.device, lane: tuple[float, float]) -> None:
        self.device, self.lane = device, lane
        self.worst_rms, self.rms_bound = 0.0, lane[0]
        try:
            self.problem = importlib.import_module("reference")
            self.reference = self.problem.Model(*self.problem.get_init_inputs()).to(device)
            torch.set_default_dtype(torch.float64)
            self.exact = self.problem.Model(*self.problem.get_init_inputs()).double().to(device)
        except Exception as error:
            raise CannotCheck(f"reference.py does not load: {named(error)}") from error
        finally:
            torch.set_default_dtype(torch.float32)
        self.initial = {name: value.detach().clone() for name, value in self.reference.state_dict().items()}
        self.parameters = {name for name, _ in self.reference.named_parameters()}
        try:
            self.kernel = importlib.import_module("kernel").ModelNew(*self.problem.get_init_inputs()).to(device)
        except Exception as error:
            raise Refuted(f"kernel.py does not load: {named(error)}") from error

    def round(self, seed: int) -> float:
        """ln of the median ratio of one round; Refuted when an output is wrong."""
        torch.manual_seed(seed)
        self.load_weights()
        inputs = self.inputs()
        self.check(inputs, self.timed(self.kernel, inputs)[0])
        ratios = []
        for pair in range(PAIRS):
            inputs = self.inputs()
            order = (self.kernel, self.reference) if pair % 2 else (self.reference, self.kernel)
            done = {model: self.timed(model, inputs) for model in order}
            (mine, mine_seconds), (theirs, their_seconds) = done[self.kernel], done[self.reference]
            # Each side may be one bound from the truth, so they may be two apart; a tenth for the scale's own change.
            self.compare(mine, theirs, theirs, 2.1 * self.rms_bound, math.inf, "in a timed call")
            ratios.append(their_seconds / mine_seconds)
        return math.log(statistics.median(ratios))

    def load_weights(self) -> None:
        """Fresh ones, the same in all three models. Constants (norm scales, zero biases) become non-trivial."""
        state = {}
        for name, value in self.initial.items():
            state[name] = value.clone()
            if name in self.parameters and value.is_floating_point() and value.numel():
                shuffled = value.flatten()[torch.randperm(value.numel(), device=value.device)].view_as(value)
                spread = float(value.std(correction=0)) or 1.0
                noise, shift = torch.randn_like(value), torch.randn_like(value)
                state[name] = shuffled * (1 + 0.2 * noise) + 0.05 * spread * shift
        self.reference.load_state_dict(state)
        self.exact.load_state_dict({n: v.double() if v.is_floating_point() else v for n, v in state.items()})
        try:
            # Not strict: a parameter the outputs do not depend on may be missing. The outputs tell.
            self.kernel.load_state_dict({name: value.clone() for name, value in state.items()}, strict=False)
        except Exception as error:
            raise Refuted(f"kernel.py does not take the reference's weights: {named(error)}") from error

    def inputs(self) -> list[Any]:
        return [x.to(self.device) if isinstance(x, torch.Tensor) else x for x in self.problem.get_inputs()]

    def check(self, inputs: list[Any], mine: Outputs) -> None:
        """Against float64; the bound allows for eager's own error and for one unit in the last place of the inputs."""
        exact = self.exact_outputs(inputs)
        rms, tail = self.lane
        theirs = [self.timed(self.reference, case)[0] for case in (inputs, nudged(inputs))]
        for case in theirs:
            case_rms, case_tail = errors(case, exact)
            rms, tail = max(rms, 4 * case_rms), max(tail, 8 * case_tail)
        self.rms_bound = rms
        self.worst_rms = max(self.worst_rms, self.compare(mine, theirs[0], exact, rms, tail, "on fresh inputs"))

    def exact_outputs(self, inputs: list[Any]) -> Outputs:
        torch.set_default_dtype(torch.float64)
        try:
            return flat(self.exact(*[x.double() if is_float(x) else x for x in inputs]))
        finally:
            torch.set_default_dtype(torch.float32)

    def compare(self, mine: Outputs, like: Outputs, right: Outputs, rms: float, tail: float, when: str) -> float:
        """``like``: the reference's own outputs, for shape and dtype; ``right``: what the values are held against."""
        (what, wanted) = ([f"{tuple(x.shape)} {x.dtype}" for x in outputs] for outputs in (mine, like))
        if what != wanted:
            raise Refuted(f"kernel.py returns {', '.join(what)}, the reference {', '.join(wanted)}")
        found_rms, found_tail = errors(mine, right)
        if not (found_rms <= rms and found_tail <= tail):
            raise Refuted(
                f"kernel.py is wrong {when}: rms error {found_rms:.1e} ({rms:.1e} allowed), "
                f"largest {found_tail:.1e} ({tail:.1e} allowed)"
            )
        return found_rms

    def timed(self, model: Any, inputs: list[Any]) -> tuple[Outputs, float]:
        """Outputs of ``model``, copied since it may write its next ones into the same memory, and seconds."""
        inputs = [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]
        try:
            self.wait()
            start = perf_counter()
            outputs = model(*inputs)
            self.wait()
            seconds = perf_counter() - start
            return [x.clone() for x in flat(outputs)], seconds
        except Exception as error:
            if model is self.kernel:
                raise Refuted(f"kernel.py failed: {named(error)}") from error
            raise CannotCheck(f"reference.py failed: {named(error)}") from error

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def errors(mine: Outputs, right: Outputs) -> tuple[float, float]:
    """Worst rms and tail error over the outputs; infinite where NaN and infinities do not match."""
    found = [error(m, r) for m, r in zip(mine, right, strict=True)]
    return max((e[0] for e in found), default=0.0), max((e[1] for e in found), default=0.0)


def error(mine: torch.Tensor, right: torch.Tensor) -> tuple[float, float]:
    """Relative to the RMS of ``right`` over its smallest trailing dimensions of at least 64 elements."""
    if right.numel() == 0:
        return 0.0, 0.0
    if not right.is_floating_point():
        return (0.0, 0.0) if torch.equal(mine, right) else (math.inf, math.inf)
    mine, right = mine.double(), right.double()
    finite = torch.isfinite(right)
    if not torch.equal(finite, torch.isfinite(mine)):
        return math.inf, math.inf
    mine, right = mine.where(finite, 0.0), right.where(finite, 0.0)
    dims, size = 0, 1
    while dims < right.dim() and size < 64:
        dims += 1
        size *= right.shape[-dims]
    trailing = tuple(range(-dims, 0))
    scale = right.square().mean(trailing, keepdim=True).sqrt() if dims else right.abs()
    scale = scale.clamp_min(1e-3 * float(right.square().mean().sqrt()) + 1e-300)
    distance = (mine - right).abs()
    tail = (distance / (scale + right.abs())).flatten()
    keep = max(1, round(tail.numel() * 1e-6))
    return float((distance / scale).square().mean().sqrt()), float(tail.topk(keep).values[-1])


def nudged(inputs: list[Any]) -> list[Any]:
    """Every floating element moved by one unit in the last place, up or down."""
    away = [torch.where(torch.rand(x.shape) < 0.5, -math.inf, math.inf).to(x) if is_float(x) else x for x in inputs]
    return [torch.nextafter(x, a) if is_float(x) else x for x, a in zip(inputs, away, strict=True)]


def named(error: Exception) -> str:
    return f"{type(error).__name__}: {clean(str(error))[-1500:]}"


def is_float(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.is_floating_point()


def flat(outputs: Any) -> Outputs:
    """Tensors of nested tuples, lists and dicts, in order."""
    if isinstance(outputs, dict):
        return [x for value in outputs.values() for x in flat(value)]
    if isinstance(outputs, list | tuple):
        return [x for value in outputs for x in flat(value)]
    return [outputs]


if __name__ == "__main__":
    sys.exit(main())
