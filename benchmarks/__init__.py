"""What is measured rather than tested: ``python -m benchmarks NAME``. Run it on a machine that does nothing else."""
