from __future__ import annotations

from pathlib import Path

import pytest

from gpu_profiles import loader
from gpu_profiles.model import GpuProfile, GpuProfileError

L40S = Path(loader.__file__).parent / "data" / "l40s.toml"


def test_the_profiles_that_come_with_the_package() -> None:
    assert [(p.id, p.arch, p.capability) for p in loader.profiles()] == [
        ("l40s", "sm_89", (8, 9)),
        ("rtx-pro-6000-blackwell", "sm_120", (12, 0)),
    ]


@pytest.mark.parametrize("profile", loader.profiles(), ids=lambda p: p.id)
def test_the_figures_are_dense_and_hang_together(profile: GpuProfile) -> None:
    peak = profile.peak_tflops
    assert None not in (peak.fp64, peak.tf32, peak.fp16, peak.bf16, peak.fp8)
    assert peak.tf32 is not None
    assert peak.fp16 is not None
    assert peak.fp64 == pytest.approx(peak.fp32 / 64, rel=0.01)
    assert peak.tf32 == pytest.approx(2 * peak.fp32, rel=0.01)
    assert peak.fp16 == peak.bf16 == pytest.approx(2 * peak.tf32, rel=0.02)
    assert peak.fp8 == pytest.approx(2 * peak.fp16, rel=0.02)
    # fp32: 128 cores an SM, two operations a cycle, at a clock between 2 and 3 GHz.
    assert 2.0 < peak.fp32 * 1e12 / (profile.sms * 128 * 2) / 1e9 < 3.0
    assert profile.source


def test_an_unknown_id_suggests_near_ones() -> None:
    with pytest.raises(GpuProfileError, match=r"no GPU profile 'L40'\. Did you mean l40s\?"):
        loader.profile("L40")
    with pytest.raises(GpuProfileError, match="Did you mean rtx-pro-6000-blackwell"):
        loader.profile("RTX PRO 6000")
    with pytest.raises(GpuProfileError, match=r"no GPU profile 'zzz'\. There are: l40s"):
        loader.profile("zzz")


def test_a_profile_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(L40S.read_text().replace('id = "l40s"', 'id = "mine"').replace("sms = 142", "sms = 100"))
    assert loader.resolve(str(path)).sms == 100
    assert loader.resolve("l40s").sms == 142


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('arch = "sm_89"', 'arch = "sm_90"', "is not that of compute capability 8.9"),
        ("sms = 142", "sms = 0", "sms: "),
        ("sms = 142", "multiprocessors = 142", "multiprocessors: "),
        ("fp32 = 91.6", "", "peak_tflops.fp32: "),
        ("101_376", "201_376", "more shared memory than an SM"),
        ("sms = 142", "sms = ", "is not TOML"),
    ],
)
def test_a_wrong_file_is_named_with_the_wrong_key(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = L40S.read_text()
    assert old in text
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(old, new))
    with pytest.raises(GpuProfileError, match=r"mine\.toml") as caught:
        loader.from_file(path)
    assert said in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(GpuProfileError, match=r"no such file: .*none\.toml"):
        loader.resolve(str(tmp_path / "none.toml"))
