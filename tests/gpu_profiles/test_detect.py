from __future__ import annotations

from gpu_profiles.detect import devices


def test_this_machine_is_described_or_the_reason_is_given() -> None:
    found = devices()
    assert found.devices or found.reason
    assert [device.index for device in found.devices] == sorted(device.index for device in found.devices)
    for device in found.devices:
        assert device.name
        assert device.uuid.startswith("GPU-")
        assert device.memory_bytes > 1 << 30
        assert device.compute_capability.count(".") == 1


def test_asking_twice_gives_the_same_answer() -> None:
    assert devices() == devices()
