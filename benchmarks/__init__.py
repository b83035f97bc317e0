"""Rivals side by side: ``python -m benchmarks [NAME ...] [--quick] [--json FILE]``.

Every comparison is one file with a function ``run(bench)`` that gives rows for the table. Ours and the rival
take turns in one run, and only ratios are judged, because machines differ and are shared. See
``docs/design/benchmarks.md``.
"""
