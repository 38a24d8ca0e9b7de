"""One problem set up for judging: its own worker, the weights all sides load, the yardsticks and the control."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch

from evaluator import draws, gate, timing
from evaluator.channel import Buffer, Description, Literal, TensorSpec
from evaluator.contest import Contest, Player
from evaluator.draws import Weights
from evaluator.machine import Sweep
from evaluator.model import LANES_ON, Contract, Control, EvaluationSpec, Limits
from evaluator.workers import Nursery, Worker, WorkerFailed
from problems.model import Problem

DESCRIPTION_BYTES = 4 << 20
YARDSTICK_INPUTS = 8
NULL_CALLS = 16
CONTROL_SECONDS = 600.0
CONTROL_TRIES = 2
CONTROL_FAILED = 0.05
"""|ln ratio| of an A/A beyond which this host cannot be measured on at the moment."""


class ReferenceFailed(Exception):
    """The problem's own model did not do what it must; never the candidate's fault."""

    def __init__(self, failure: WorkerFailed) -> None:
        super().__init__(str(failure))
        self.failure = failure


class Bench:
    """Everything about a problem that outlives one evaluation.

    The oracle is a jailed worker that holds the reference in float64; it also draws the inputs, since ``get_inputs``
    is the problem's code and the judge runs none.
    """

    def __init__(
        self, problem: Problem, nursery: Nursery, sweep: Sweep, limits: Limits, contract: Contract = "names"
    ) -> None:
        self.problem, self.nursery, self.sweep, self.limits = problem, nursery, sweep, limits
        self.by_seed = contract == "kernelbench"
        self.weight_seed = draws.seed()
        self.flags: list[str] = []
        self.controls: list[float] = []
        self.control: Control | None = None
        self._control_at = 0.0
        self._drawing = False
        self._drawn: list[torch.Tensor] | None = None
        self.rng = draws.generator()
        try:
            self._set_up(double=True)
            self.yardstick = self._measure_yardstick()
        except WorkerFailed as failure:
            self.close()
            raise ReferenceFailed(failure) from failure
        self.null_ms = self._measure_null()

    # -- set-up -------------------------------------------------------------------------------------------------

    def _set_up(self, double: bool) -> None:
        (self.oracle,) = self.nursery.take(self.limits)
        source, out = Buffer.of(self.problem.source.encode()), Buffer(DESCRIPTION_BYTES)
        meta = {
            "role": "oracle",
            "module": "problem",
            "class": "Model",
            "init": None,
            "seed": draws.seed(),
            "double": double,
            "by_seed": self.by_seed,
        }
        self.oracle.channel.seed(self.weight_seed)
        try:
            self.oracle.assign(meta | {"fp32_precision": "ieee"}, [source.fd, out.fd], self.limits.load_seconds)
            self.description = Description.model_validate_json(out.text())
        finally:
            source.close()
            out.close()
        self.weights = Weights(self.description.state, self.description.state_bytes)
        fds, outputs = self.oracle.make_buffers(self.description, double=double)
        buffers = self.meta(outputs)
        self.oracle.assign(buffers, [*fds, self.weights.buffer.fd, self.weights.initial.fd], self.limits.load_seconds)
        self.fresh_weights()
        try:
            self.draw_inputs()
            self.truth(self.draw_inputs())
        except WorkerFailed:
            if not double:
                raise
            # The reference cannot run in float64 (a hard-coded dtype): its float32 answer has to serve.
            self.oracle.kill()
            self.weights.close()
            self.flags.append("float64_unavailable")
            self._set_up(double=False)

    def meta(self, outputs: Sequence[TensorSpec]) -> dict[str, Any]:
        d = self.description
        return {
            "inputs": [
                s.model_dump() if isinstance(s, Literal) else {"shape": s.shape, "dtype": s.dtype} for s in d.inputs
            ],
            "outputs": [{"shape": s.shape, "dtype": s.dtype} for s in outputs],
            "structure": d.structure,
            "state": [json.loads(s.model_dump_json()) for s in d.state],
        }

    # -- the oracle ---------------------------------------------------------------------------------------------

    def begin_draw(self) -> None:
        """Let the oracle draw while others work; ``draw_inputs`` takes what it drew. Not beside a clock."""
        if not self._drawing and self._drawn is None:
            self.oracle.channel.seed(draws.seed())
            self.oracle.ask(b"i")
            self._drawing = True

    def draw_inputs(self) -> list[torch.Tensor]:
        self.begin_draw()
        self.end_draw()
        assert self._drawn is not None
        drawn, self._drawn = self._drawn, None
        return drawn

    def end_draw(self) -> None:
        """Before the oracle can be asked anything else."""
        if self._drawing:
            self._drawing = False
            try:
                self.oracle.answered(b"d", self.limits.first_call_seconds)
            except WorkerFailed:
                self.oracle.kill()  # a late answer would be taken for that to the next question
                raise
            self._drawn = [x.clone() for x in self.oracle.inputs]

    def truth(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """The reference's answer in float64."""
        self.end_draw()
        self.oracle.write_inputs(inputs)
        self.oracle.tell(b"g", b"d", self.limits.first_call_seconds)
        return self.oracle.captured()

    def fresh_weights(self) -> None:
        """New parameters for everybody; each worker must be told to ``load_weights``."""
        self.weights.draw(self.rng)
        self.weight_seed = draws.seed()
        self.load_weights(self.oracle)

    def load_weights(self, worker: Worker) -> None:
        if worker is self.oracle:
            self.end_draw()
        worker.channel.seed(self.weight_seed)
        worker.tell(b"w", b"w", self.limits.load_seconds)

    # -- players ------------------------------------------------------------------------------------------------

    def start(self, worker: Worker, source: str, cls: str, extensions: bytes | None = None) -> None:
        """Load ``source`` into an unused worker. Raises WorkerFailed."""
        fds, outputs = worker.make_buffers(self.description)
        meta = self.meta(outputs) | {
            "role": "model",
            "module": "problem" if cls == "Model" else "candidate",
            "class": cls,
            "init": self.description.init,
            "problem_source": self.problem.source if self.description.init is None else "",
            "seed": draws.seed(),
            "fp32_precision": "ieee",
            "extensions": extensions is not None,
            "by_seed": self.by_seed,
        }
        worker.channel.seed(self.weight_seed)
        text = Buffer.of(source.encode())
        passed = [text.fd, *fds, self.weights.buffer.fd]
        archive = Buffer.of(extensions) if extensions is not None else None
        if archive is not None:
            passed.append(archive.fd)
        try:
            worker.assign(meta, passed, self.limits.load_seconds)
        finally:
            text.close()
            if archive is not None:
                archive.close()

    def reference(self, worker: Worker) -> Player:
        try:
            self.start(worker, self.problem.source, "Model")
        except WorkerFailed as failure:
            raise ReferenceFailed(failure) from failure
        return Player("reference", worker)

    # -- yardsticks ---------------------------------------------------------------------------------------------

    def _measure_yardstick(self) -> gate.Yardstick:
        """Eager's error and the effect of input noise, pooled over fresh inputs and two sets of weights."""
        (worker,) = self.nursery.take(self.limits)
        eager: gate.Errors = ()
        noise: gate.Errors = ()
        nulls: dict[str, gate.Errors] = {}
        before: list[torch.Tensor] = []
        try:
            self.start(worker, self.problem.source, "Model")
            for n in range(YARDSTICK_INPUTS):
                if n == YARDSTICK_INPUTS // 2:
                    self.fresh_weights()
                    self.load_weights(worker)
                inputs = self.draw_inputs()
                truth = self.truth(inputs)
                worker.write_inputs(inputs)
                worker.tell(b"g", b"d", self.limits.first_call_seconds)
                eager = gate.worst(eager, gate.measure(worker.captured(), truth))
                moved = self.truth(draws.one_ulp_noise(inputs, self.rng))
                noise = gate.worst(noise, gate.measure(moved, truth))
                if n != YARDSTICK_INPUTS // 2:
                    for name, answer in gate.null_answers(truth, before).items():
                        nulls[name] = gate.worst(nulls.get(name, ()), gate.measure(answer, truth))
                before = truth
        finally:
            worker.kill()
        yardstick = gate.Yardstick(eager, noise, nulls, LANES_ON["cpu"])
        if yardstick.chaotic:
            self.flags.append("chaotic")
        return yardstick

    def _measure_null(self) -> float:
        """5th percentile, in ms, of a call that answers with a ready output of this shape."""
        (worker,) = self.nursery.take(self.limits)
        try:
            fds, outputs = worker.make_buffers(self.description)
            meta = self.meta(outputs) | {"role": "null", "fp32_precision": "ieee"}
            worker.assign(meta, [*fds, self.weights.buffer.fd], self.limits.load_seconds)
            inputs = [x.clone() for x in self.oracle.inputs]
            times = []
            for _ in range(NULL_CALLS):
                worker.write_inputs(inputs)
                self.sweep()
                times.append(worker.timed_call(self.limits.call_seconds))
        finally:
            worker.kill()
        return statistics.quantiles(times, n=20)[0] * 1e3

    # -- the control --------------------------------------------------------------------------------------------

    @property
    def between_sd(self) -> float:
        return timing.between_process_sd(self.controls)

    @property
    def control_ok(self) -> bool:
        c = self.control
        return c is not None and abs(c.ratio - 1) <= CONTROL_FAILED and c.half_width <= timing.UNSTABLE_HALF_WIDTH

    def ensure_control(self) -> None:
        """A full A/A at the start and every ten minutes; bounded retries when it fails."""
        age = time.monotonic() - self._control_at
        if self.control is not None and self.control_ok and age < CONTROL_SECONDS:
            self.control = self.control.model_copy(update={"age_seconds": age})
            return
        for _ in range(CONTROL_TRIES):
            self._run_control()
            if self.control_ok:
                return

    def _run_control(self) -> None:
        workers = self.nursery.take(self.limits, 2)
        try:
            players = [self.reference(w) for w in workers]
            rounds = Contest(self, players, check=()).run(self.limits.search_seconds)
        finally:
            for worker in workers:
                worker.kill()
        self.take_as_control(rounds.log_ratios(0, 1))

    def take_as_control(self, logs: list[float]) -> None:
        """Round medians of the reference against itself, whoever measured them."""
        self._control_at = time.monotonic()
        self.controls.append(statistics.mean(logs))
        now = timing.estimate(logs, self.between_sd)
        self.control = Control(
            ratio=now.ratio,
            half_width=now.half_width,
            quiet=now.within <= 2 * timing.ENOUGH_HALF_WIDTH and abs(now.mean) <= 0.03,
            between_process_sd=self.between_sd,
        )

    def close(self) -> None:
        if hasattr(self, "oracle"):
            self.oracle.kill()
        if hasattr(self, "weights"):
            self.weights.close()


def reference_spec(spec: EvaluationSpec) -> tuple[str, Limits, Contract]:
    """What a bench is cached by: the problem's text, the caps its workers run under, and how weights are given."""
    return spec.problem.sha256, spec.limits, spec.contract
