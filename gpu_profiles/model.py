"""What is optimized for: the figures of one GPU model, and the devices of this machine."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator


class GpuProfileError(Exception):
    """A profile that is not there or cannot be read; the message says which, where and the remedy."""


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PeakTflops(Frozen):
    """Dense peak rates in TFLOP/s, without structured sparsity, at boost clock. None: the hardware has no such path.

    ``fp32`` and ``fp64`` run on the ordinary cores, the others on tensor cores with fp32 accumulation.
    """

    fp64: PositiveFloat | None = None
    fp32: PositiveFloat
    tf32: PositiveFloat | None = None
    fp16: PositiveFloat | None = None
    bf16: PositiveFloat | None = None
    fp8: PositiveFloat | None = None


class GpuProfile(Frozen):
    """One GPU model, in the maker's figures. Nothing here is measured."""

    id: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    """As written after ``--profile``."""
    name: str
    compute_capability: str = Field(pattern=r"^\d+\.\d$")
    """``8.9``; also what ``TORCH_CUDA_ARCH_LIST`` takes."""
    arch: str
    """Build target of nvcc and ptxas: ``sm_89``."""
    sms: PositiveInt
    """Streaming multiprocessors."""
    memory_bytes: PositiveInt
    """Nominal; drivers and ECC leave a few percent less."""
    memory_bandwidth_gb_s: PositiveFloat
    """Peak of device memory in 10^9 bytes a second."""
    l2_bytes: PositiveInt
    shared_memory_per_sm_bytes: PositiveInt
    shared_memory_per_block_bytes: PositiveInt
    """Most that one block may have, by opting in."""
    registers_per_sm: PositiveInt
    """32-bit registers."""
    peak_tflops: PeakTflops
    power_w: PositiveFloat
    """Board power limit."""
    source: str
    """Where the figures come from."""

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability as (major, minor)."""
        major, _, minor = self.compute_capability.partition(".")
        return int(major), int(minor)

    @model_validator(mode="after")
    def _the_figures_agree(self) -> Self:
        if self.arch.rstrip("af") != "sm_{}{}".format(*self.capability):
            raise ValueError(f"arch {self.arch} is not that of compute capability {self.compute_capability}")
        if self.shared_memory_per_block_bytes > self.shared_memory_per_sm_bytes:
            raise ValueError("a block cannot have more shared memory than an SM")
        return self


class Device(Frozen):
    """One GPU of this machine, as the driver reports it."""

    index: int
    """NVML's, in PCI order; ``CUDA_VISIBLE_DEVICES`` neither hides nor renumbers it."""
    name: str
    uuid: str
    memory_bytes: int
    compute_capability: str
    driver: str
    """The driver's version."""


class Detection(Frozen):
    """The GPUs of this machine; without any, why."""

    devices: tuple[Device, ...] = ()
    reason: str = ""
    """Why there are none, or which one could not be read; empty when all is well."""
