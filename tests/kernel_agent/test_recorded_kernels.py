"""The recorded kernels do what their names say: the honest ones are right, the others fail in the way recorded."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import kernel_agent
from problems.catalog import Catalog

KERNELS = Path(kernel_agent.__file__).parent / "recordings" / "kernels"
HONEST = [
    "bias_gelu_residual/01_fused_serial",
    "bias_gelu_residual/03_parallel_rows",
    "bias_gelu_residual/05_vector_gelu",
    "bias_gelu_residual/07_fused_product",
    "bias_gelu_residual/08_packed_panels",
    "gated_recurrence/01_hoisted_projection",
    "gated_recurrence/04_fused_cell",
    "gated_recurrence/05_whole_loop",
    "gated_recurrence/06_batch_over_cores",
    "gated_recurrence/08_register_tiles",
]
BROKEN = ["bias_gelu_residual/02_undeclared_stride", "gated_recurrence/02_undeclared_tanh"]
WRONG = ["bias_gelu_residual/04_lost_residual", "gated_recurrence/03_state_in_place"]
CHEATS = [
    "bias_gelu_residual/06_remembered_answers",
    "gated_recurrence/07_slow_clock",
    "gated_recurrence/09_late_states",
]


@pytest.fixture(autouse=True)
def _own_build_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    torch.manual_seed(0)
    with torch.no_grad():
        yield


class Pair:
    """A problem's model and a recorded kernel with the same weights, which both take from a state dict by name."""

    def __init__(self, name: str) -> None:
        reference: dict[str, Any] = {"__name__": "problem"}
        exec(Catalog().get(f"bundled/{name.partition('/')[0]}").source, reference)
        candidate: dict[str, Any] = {"__name__": "candidate"}
        exec((KERNELS / f"{name}.py").read_text(), candidate)
        self.get_inputs = reference["get_inputs"]
        self.model: torch.nn.Module = reference["Model"](*reference["get_init_inputs"]())
        self.kernel: torch.nn.Module = candidate["ModelNew"](*reference["get_init_inputs"]())

    def new_weights(self) -> None:
        state = {
            name: (2 / value.shape[1]) ** 0.5 * torch.randn_like(value) if value.dim() > 1 else torch.randn_like(value)
            for name, value in self.model.state_dict().items()
        }
        self.model.load_state_dict(state)
        self.kernel.load_state_dict(state)

    def error(self, x: torch.Tensor) -> float:
        """Root mean square of the difference, over that of the answer at double precision."""
        got = self.kernel(x).double()
        expected = self.model.double()(x.double())
        self.model.float()
        return float((got - expected).square().mean().sqrt() / expected.square().mean().sqrt())


def test_every_recorded_kernel_is_accounted_for() -> None:
    there = {f"{path.parent.name}/{path.stem}" for path in KERNELS.glob("*/*.py")}
    assert there == {*HONEST, *BROKEN, *WRONG, *CHEATS}


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_kernel_is_right_for_new_inputs_and_new_weights(name: str) -> None:
    pair = Pair(name)
    (x,) = pair.get_inputs()
    for _ in range(2):
        pair.new_weights()
        before = x.clone()
        assert pair.error(x) < 2e-6
        assert torch.equal(x, before)
        x.copy_(torch.randn_like(x))
        assert pair.error(x) < 2e-6


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_one_does_not_compile(name: str) -> None:
    with pytest.raises(RuntimeError, match="Error building extension"):
        Pair(name)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_one_runs_and_is_wrong(name: str) -> None:
    pair = Pair(name)
    pair.new_weights()
    assert pair.error(pair.get_inputs()[0]) > 1e-2


def test_remembered_answers_are_right_until_the_input_changes_in_place() -> None:
    pair = Pair(CHEATS[0])
    pair.new_weights()
    (x,) = pair.get_inputs()
    assert pair.error(x) < 2e-6
    x.copy_(torch.randn_like(x))
    assert pair.error(x) > 0.1


def test_late_states_are_not_there_when_forward_returns() -> None:
    pair = Pair(CHEATS[2])
    pair.new_weights()
    (x,) = pair.get_inputs()
    late = pair.kernel(x)
    at_once = late.clone()
    deadline = time.monotonic() + 10
    while not late[-1].all() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not at_once.any()
    expected = pair.model(x)
    assert torch.allclose(late, expected, atol=1e-4)


def test_the_slow_clock_slows_the_clock_of_its_own_process() -> None:
    script = (
        "import sys, threading, time\n"
        "exec(open(sys.argv[1]).read())\n"
        "start = time.perf_counter(); threading.Event().wait(0.2); print(time.perf_counter() - start)"
    )
    path = KERNELS / f"{CHEATS[1]}.py"
    run = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    assert float(run.stdout) < 0.1
