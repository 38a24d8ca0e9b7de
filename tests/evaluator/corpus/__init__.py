"""Two corpora of candidates: those that would rather be called fast than be fast, and honest ones, however unusual.

Families F01 to F37 are those of public reports on evaluators of kernels; other families say in words what is tried.
"""

from tests.evaluator.corpus.entry import Entry
from tests.evaluator.corpus.honest import HONEST
from tests.evaluator.corpus.hostile import HOSTILE

__all__ = ["HONEST", "HOSTILE", "Entry"]
