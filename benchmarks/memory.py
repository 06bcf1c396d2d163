"""Peak resident memory of a join over 2 and over 20 million rows, each in a process of its own.

    python benchmarks/memory.py [SMALL LARGE]

Prints both peaks and their ratio; streams are read batch by batch, so it should be close to 1.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from slackwater.pipelines.generate import generate

CODE = """
import re, sys
from slackwater.pipelines.runners.local.runner import run
from slackwater.pipelines.template.reader import read_template
folder = sys.argv[1]
summary = run(read_template("window-join", {"left": f"{folder}/s1.parquet", "right": f"{folder}/s2.parquet",
                                            "out": f"{folder}/out"}))
# Not ru_maxrss: it would start from the size of the process that started this one.
print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1], summary["results"])
"""


def peak(rows: int, folder: Path) -> float:
    """Return the peak in MB of joining ``rows`` rows over both streams."""
    generate("syn2", folder, rows=rows // 2, seed=1, delayed=0.2, max_delay=2000, keys=1000)
    done = subprocess.run([sys.executable, "-c", CODE, str(folder)], capture_output=True, text=True, check=True)
    kilobytes, results = map(int, done.stdout.split())
    print(f"{rows:>12,} rows  {results:>12,} results  peak {kilobytes / 1024:,.0f} MB")
    return kilobytes / 1024


def main() -> None:
    small, large = map(int, sys.argv[1:3] or (2_000_000, 20_000_000))
    with tempfile.TemporaryDirectory(prefix="slackwater-memory-") as folder:
        peaks = [peak(rows, Path(folder, str(rows))) for rows in (small, large)]
    print(f"ratio {peaks[1] / peaks[0]:.2f}")


if __name__ == "__main__":
    main()
