"""The in-process loop: candidate, reference, inputs, clock and comparison in one process, deliberately naive.

This file runs alone in the jail (``python -I loop.py FD``): it needs torch and the standard library, nothing of ours.
It does what evaluators in the manner of KernelBench do, weaknesses included, to show what they would have said:

* weights match only because both constructors run after the same seed;
* both models stay in train mode, under ``no_grad``, and see the same inputs, which nobody copies;
* five trials with seeds that anyone can guess; an element-wise tolerance; dtypes are not compared;
* a hundred timed calls on the input of the last trial, whose outputs nobody looks at;
* the reference is timed afterwards, in a process where the candidate has run; the clock is Python's own.

Life: send ``r`` once torch is imported, receive a request (two descriptors by SCM_RIGHTS: a JSON request, and the
buffer for the answer), do it, write the answer, send ``d``.
"""

from __future__ import annotations

import importlib.util
import json
import mmap
import os
import socket
import sys
import time
import traceback
import types
from typing import Any

import torch

SEED = 42
TRIALS = 5
WARM_UPS, CALLS = 3, 100
WORDS_LIMIT = 2000
EXTENSIONS = "/tmp/extensions"

Answer = dict[str, Any]


def judge(request: Answer) -> Answer:
    """What such an evaluator finds: ``passed``, ``largest_error``, and mean times once the loosest tolerance holds."""
    problem = execute(request["problem"], "problem")
    torch.manual_seed(SEED)
    arguments = problem.get_init_inputs()
    torch.manual_seed(SEED)
    reference = problem.Model(*arguments)
    candidate = execute(request["candidate"], "candidate")
    torch.manual_seed(SEED)
    model = candidate.ModelNew(*arguments)

    passed, largest = list(request["tolerances"]), 0.0
    for trial in range(TRIALS):
        torch.manual_seed(SEED + trial)
        inputs = problem.get_inputs()
        expected, given = tensors(reference(*inputs)), tensors(model(*inputs))
        if [t.shape for t in expected] != [t.shape for t in given]:
            shapes = f"{[tuple(t.shape) for t in given]}, expected {[tuple(t.shape) for t in expected]}"
            return {"mismatch": f"trial {trial}: output shapes {shapes}"}
        for e, g in zip(expected, given, strict=True):
            dtype = e.dtype if e.is_floating_point() else torch.float64
            e, g = e.to(dtype), g.to(dtype)
            passed = [t for t in passed if torch.allclose(g, e, atol=t, rtol=t)]
            if e.numel():
                largest = max(largest, float((g.double() - e.double()).abs().max().nan_to_num(torch.inf, torch.inf)))
    answer: Answer = {"passed": passed, "largest_error": largest if largest < float("inf") else None}
    if passed:
        answer["candidate_ms"], answer["calls"] = mean_ms(model, inputs, request["timed_seconds"])
        answer["reference_ms"], _ = mean_ms(reference, inputs, request["timed_seconds"])
    return answer


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors of a result, however it nests them."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [tensor for part in value for tensor in tensors(part)]
    raise TypeError(f"forward returned a {type(value).__name__}")


def mean_ms(model: Any, inputs: list[Any], seconds: float) -> tuple[float, int]:
    """Mean wall time of a call in milliseconds over ``CALLS`` calls, or as many as begin within ``seconds``."""
    for _ in range(WARM_UPS):
        model(*inputs)
    times: list[float] = []
    deadline = time.perf_counter() + seconds
    while not times or (len(times) < CALLS and time.perf_counter() < deadline):
        start = time.perf_counter()
        model(*inputs)
        times.append(time.perf_counter() - start)
    return 1e3 * sum(times) / len(times), len(times)


def execute(source: str, name: str) -> types.ModuleType:
    """Import ``source`` as module ``name`` from a file, where ``inspect`` and the JIT look for its text."""
    path = f"/tmp/{name}.py"
    with open(path, "w", encoding="utf-8") as f:
        f.write(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def main() -> None:
    os.environ["TORCH_EXTENSIONS_DIR"] = EXTENSIONS
    os.makedirs(EXTENSIONS, exist_ok=True)
    control = socket.socket(fileno=int(sys.argv[1]))
    control.send(b"r")
    _, fds, _, _ = socket.recv_fds(control, 4, 2)
    if len(fds) != 2:
        return  # whoever started this is gone
    request = json.loads(mmap.mmap(fds[0], 0, access=mmap.ACCESS_READ)[:].rstrip(b"\0"))
    memory = mmap.mmap(fds[1], 0)
    torch.set_num_threads(request["threads"])
    try:
        with torch.no_grad():
            answer = judge(request)
    except BaseException as error:
        words = f"{type(error).__name__}: {error}"
        answer = {"error": words[:WORDS_LIMIT], "detail": traceback.format_exc()[-WORDS_LIMIT:]}
    text = json.dumps(answer).encode()
    memory[: len(text)] = text
    control.send(b"d")


if __name__ == "__main__":
    main()
