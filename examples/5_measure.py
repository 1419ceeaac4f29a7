"""Measure speculation against plain decoding from Python, and read what the figures say.

python examples/5_measure.py
"""

from draftproof import Options, Speculator
from draftproof.bench.plan import Plan
from draftproof.bench.sweep import run
from draftproof.report.bench_summary import recommend
from draftproof.results import Workload, to_json
from draftproof.stats.rows import bench_rows

speculator = Speculator("demo-target", "demo-draft")
plan = Plan(
    target="demo-target",
    draft="demo-draft",
    workloads=(Workload("statements", ("The for statement", "The while statement")),),
    ks=(1, 3),
    k=3,
    options=Options(max_new_tokens=32),
    repeats=2,
)
for result in run(plan, speculator):  # after every prompt; keep to_json(result), and an unfinished one can go on
    print(f"{len(result.cells)} cells, {len(to_json(result)):,} characters of raw values")

rows = bench_rows(result.cells)
for row in rows:
    print(f"{row.arm.name}: {row.tokens_per_s:.0f} tokens a second, same text: {row.identical}")
print(recommend(rows))
