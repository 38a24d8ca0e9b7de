"""Extensions: built once, kept by content, never mixed up."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from evaluator.builds import BuildCache, BuildFailed, Built, first_errors
from evaluator.model import Limits
from evaluator.workers import Nursery
from tests.evaluator.sources import candidate

LIMITS = Limits(build_seconds=60)


def extension(value: int) -> str:
    """A C library made by the compiler alone: builds in a moment, and needs nothing of torch's headers."""
    return candidate(
        f"return x + {value}",
        top=f"""
        import os, subprocess
        import torch.utils.cpp_extension
        folder = os.environ["TORCH_EXTENSIONS_DIR"] + "/mine"
        if os.path.exists(folder + "/mine.so"):
            print("found built")
        else:
            os.makedirs(folder)
            open(folder + "/mine.c", "w").write("int f(void) {{ return {value}; }}")
            subprocess.run(["cc", "-shared", "-fPIC", "-o", folder + "/mine.so", folder + "/mine.c"], check=True)
            print("compiled")
        """,
    )


@pytest.fixture
def cache(tmp_path: Path, nursery: Nursery) -> BuildCache:
    return BuildCache(tmp_path / "builds", nursery)


def get(cache: BuildCache, source: str, limits: Limits = LIMITS) -> Built:
    return cache.get(source, "[8]", "", limits)


def test_the_second_time_no_compiler_runs(cache: BuildCache) -> None:
    first = get(cache, extension(1))
    assert first.facts is not None
    assert (first.facts.cached, first.facts.artifacts) == (False, 1)
    assert "compiled" in first.facts.log
    second = get(cache, extension(1))
    assert second.facts is not None
    assert (second.facts.cached, second.facts.seconds, second.extensions) == (True, 0.0, first.extensions)


def test_another_source_is_another_build(cache: BuildCache) -> None:
    one, two = get(cache, extension(1)), get(cache, extension(2))
    assert two.facts is not None
    assert not two.facts.cached
    assert one.extensions != two.extensions
    assert len(list(cache.folder.iterdir())) == 2


def test_two_builders_at_once_agree(cache: BuildCache, level: str) -> None:
    found: list[Built] = []

    def build() -> None:
        # A jail dies with the thread that started it, so each builder waits here for its own.
        mine = Nursery(level, 1, 0)
        found.append(BuildCache(cache.folder, mine).get(extension(3), "[8]", "", LIMITS))
        mine.close()

    threads = [threading.Thread(target=build) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert [b.facts.artifacts for b in found if b.facts] == [1, 1]
    assert [p.suffix for p in cache.folder.iterdir()] == [".build"], "no half-written file is left"
    again = get(cache, extension(3))
    assert again.facts is not None
    assert again.facts.cached
    assert again.extensions in [b.extensions for b in found]


def test_plain_python_builds_nothing(cache: BuildCache) -> None:
    assert get(cache, candidate("return x")) == Built(None, None)
    assert not cache.folder.exists()


def test_a_build_that_hangs_is_ended(cache: BuildCache) -> None:
    source = "import time\nimport torch.utils.cpp_extension\ntime.sleep(1000)\n"
    with pytest.raises(BuildFailed) as caught:
        get(cache, source, Limits(build_seconds=1.5))
    assert caught.value.status == "build_timeout"
    assert caught.value.build.seconds < 15
    assert not cache.folder.exists()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("import os; os._exit(0)", "crashed"),
        ("raise ValueError('x')", "load_error"),
        ("raise RuntimeError(\"Error building extension 'x': error: expected ';'\")", "compile_error"),
        ("raise MemoryError()", "out_of_memory"),
    ],
)
def test_failures_have_their_status(cache: BuildCache, body: str, status: str) -> None:
    with pytest.raises(BuildFailed) as caught:
        get(cache, f"# cpp_extension\n{body}\n")
    assert caught.value.status == status


def test_a_forged_length_is_refused(cache: BuildCache) -> None:
    """The archive's header is the candidate's to write: no length of it may make the judge read beyond the buffer."""
    forged = candidate(
        "return x",
        top="""
        # cpp_extension
        import mmap, os, struct, sys
        for fd in range(3, 64):
            try:
                memory = mmap.mmap(fd, 64 << 20)
                memory[:16] = struct.pack("<qq", 1 << 62, -5)
            except (OSError, ValueError):
                pass
        """,
    )
    built = get(cache, forged)
    assert built.extensions is None


def test_the_first_errors_come_with_their_place() -> None:
    log = "ninja: building\n" + "\n".join(f"main.cpp:{n}: error: wrong {n}\n  {n} | code\n    ^" for n in range(1, 6))
    errors = first_errors(log + "\nRuntimeError: Error building extension 'x'")
    assert errors == tuple(f"main.cpp:{n}: error: wrong {n}\n  {n} | code\n    ^" for n in range(1, 4))
    assert first_errors("all is well") == ()
