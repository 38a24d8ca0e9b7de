"""The adversarial corpus. Neighbours share a problem, so that a judge sets up few benches.

Left out because they need a GPU (see benchmarks/gpu_check): F01, F02, F10, F13, F19, F23, F24, F25 and F34. F32, a
build without end, is in test_builds: its cap is the longest of all.
"""

from __future__ import annotations

from tests.evaluator.corpus.awake import AWAKE
from tests.evaluator.corpus.elsewhen import ELSEWHEN
from tests.evaluator.corpus.entry import Entry
from tests.evaluator.corpus.kept import KEPT
from tests.evaluator.corpus.less import LESS
from tests.evaluator.corpus.tampering import TAMPERING

HOSTILE: tuple[Entry, ...] = (*KEPT, *ELSEWHEN, *AWAKE, *TAMPERING, *LESS)
