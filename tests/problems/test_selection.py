from __future__ import annotations

import pytest

from problems.selection import near, select

IDS = (
    "bundled/attention",
    "bundled/mlp",
    "kernelbench/level1/1_A",
    "kernelbench/level3/1_MLP",
    "kernelbench/level3/2_Wide",
    "kernelbench/level3/10_ResNet",
)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("bundled/mlp", {"bundled/mlp"}),
        ("bundled/*", {"bundled/attention", "bundled/mlp"}),
        ("bundled", {"bundled/attention", "bundled/mlp"}),
        ("kernelbench/level3/", set(IDS[3:])),
        ("kernelbench/level3/1", {"kernelbench/level3/1_MLP"}),
        ("kernelbench/level3/2-10", set(IDS[4:])),
        ("kernelbench/level3/*Net", {"kernelbench/level3/10_ResNet"}),
        ("kernelbench/*/1", set()),
        ("kernelbench/level3/1, bundled/mlp", {"bundled/mlp", "kernelbench/level3/1_MLP"}),
        ("kernelbench/level3/3-9", set()),
        ("bundle", set()),
        ("", set()),
    ],
)
def test_a_pattern_means_these_ids_in_their_order(pattern: str, expected: set[str]) -> None:
    assert select(pattern, IDS) == tuple(id for id in IDS if id in expected)


def test_a_mistyped_id_finds_the_near_ones() -> None:
    assert near("bundled/atention", IDS)[0] == "bundled/attention"
    assert near("ResNet", IDS)[0] == "kernelbench/level3/10_ResNet"
    assert near("zzzzzzzz", IDS) == ()
