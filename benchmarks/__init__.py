"""``make bench``: what the library costs, each figure beside its floor.

``benchmarks/README.md`` says what each goal measures and how.
"""
