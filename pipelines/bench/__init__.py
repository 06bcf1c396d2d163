"""Benchmarks, ``slackwater bench NAME``: one list, one set of common options, one way to report.

Figures are ratios that are measured side by side in one run; absolute times depend on the machine and are never
asserted. Each package below holds the benchmarks of one concept and declares them (``BENCHMARKS``): ``registry``
lists them all, ``benchmark`` has what they declare, ``report`` prints and writes what they find.
"""
