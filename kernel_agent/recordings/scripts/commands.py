"""What agents of both sessions run."""

MACHINE = """\
nproc &&
g++ -march=native -dM -E -x c++ /dev/null |
  grep -E '__(AVX2|AVX512F|FMA)__'"""

COMPARE = '''\
"""python compare.py FILE: typical error of a candidate against the reference in float64, for two sets of weights."""

import sys
from runpy import run_path

import torch

reference, candidate = run_path("reference.py"), run_path(sys.argv[1])
sizes = reference["get_init_inputs"]()
kernel = candidate["ModelNew"](*sizes)
for seed in range(2):
    torch.manual_seed(seed)
    model = reference["Model"](*sizes)
    kernel.load_state_dict(model.state_dict())
    (x,) = reference["get_inputs"]()
    with torch.no_grad():
        got, truth = kernel(x).double(), model.double()(x.double())
    error = (got - truth).square().mean().sqrt() / truth.square().mean().sqrt()
    print(f"{sys.argv[1]}: typical error {error:.1e}, same shape {got.shape == truth.shape}")
'''
