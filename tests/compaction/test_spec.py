from __future__ import annotations

import pytest

from compaction.errors import CompactionError
from compaction.spec import CliffSpec, NoneSpec, parse_spec


@pytest.mark.parametrize(
    ("text", "spec", "canonical"),
    [
        ("none", NoneSpec(), "none"),
        ("cliff:128k", CliffSpec(budget_tokens=128_000, k=3), "cliff:128k,k=3"),
        ("cliff:128k,k=3", CliffSpec(budget_tokens=128_000, k=3), "cliff:128k,k=3"),
        (" cliff:1.5M , k = 1 ", CliffSpec(budget_tokens=1_500_000, k=1), "cliff:1500k,k=1"),
        (
            "cliff:4097,result=0,thought=80",
            CliffSpec(budget_tokens=4097, thought=80, result=0),
            "cliff:4097,k=3,thought=80,result=0",
        ),
    ],
)
def test_reads_and_writes(text: str, spec: NoneSpec | CliffSpec, canonical: str) -> None:
    assert parse_spec(text) == spec
    assert str(spec) == canonical
    assert parse_spec(canonical) == spec


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("clif:128k", "unknown compaction strategy 'clif' .* known are cliff, none"),
        ("", "unknown compaction strategy ''"),
        ("none:3", "none takes nothing"),
        ("cliff", "budget ''"),
        ("cliff:", "budget ''"),
        ("cliff:lots", "budget 'lots'"),
        ("cliff:-5", "budget '-5'"),
        ("cliff:0.5", "budget '0.5'"),
        ("cliff:500", "below the least, 1000"),
        ("cliff:16k,q=3", "unknown option 'q=3' .* known are k, thought, result"),
        ("cliff:16k,", "unknown option ''"),
        ("cliff:16k,k=0", "option k=0 .* from 1 to 100"),
        ("cliff:16k,k=many", "option k=many"),
        ("cliff:16k,k=1,k=2", "option k is given twice"),
    ],
)
def test_names_the_part_it_cannot_use(text: str, named: str) -> None:
    with pytest.raises(CompactionError, match=named):
        parse_spec(text)
