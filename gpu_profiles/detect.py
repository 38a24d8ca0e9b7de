"""The GPUs of this machine, asked of NVML: no CUDA context is made and torch is not needed."""

from __future__ import annotations

from gpu_profiles.model import Detection, Device


def devices() -> Detection:
    """The GPUs that the driver reports, in PCI order. Without a driver or a device: none, with the reason.

    Takes well under a millisecond where there is no driver. A device that cannot be read (it fell off the bus) is left
    out and named in the reason.
    """
    import pynvml  # here, so that importing this module does nothing

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Detection(reason=_no_driver(error))
    try:
        driver = str(pynvml.nvmlSystemGetDriverVersion())
        found: list[Device] = []
        faults: list[str] = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                found.append(_read(index, driver))
            except pynvml.NVMLError as error:
                faults.append(f"GPU {index} cannot be read: {error}")
        if not found and not faults:
            faults.append("the NVIDIA driver is loaded but reports no GPU")
        return Detection(devices=tuple(found), reason="; ".join(faults))
    except pynvml.NVMLError as error:
        return Detection(reason=f"the NVIDIA driver does not answer: {error}")
    finally:
        pynvml.nvmlShutdown()


def _read(index: int, driver: str) -> Device:
    import pynvml

    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    return Device(
        index=index,
        name=str(pynvml.nvmlDeviceGetName(handle)),
        uuid=str(pynvml.nvmlDeviceGetUUID(handle)),
        memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
        compute_capability=f"{major}.{minor}",
        driver=driver,
    )


def _no_driver(error: Exception) -> str:
    import pynvml

    if isinstance(error, pynvml.NVMLError_LibraryNotFound):
        return "no NVIDIA driver is installed (libnvidia-ml.so was not found)"
    if isinstance(error, pynvml.NVMLError_DriverNotLoaded):
        return "the NVIDIA driver is installed but not loaded, or this container was given no GPU"
    return f"the NVIDIA driver does not answer: {error}"
