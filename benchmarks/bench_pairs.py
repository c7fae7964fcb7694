"""Compares a run of the demo with what VLCs are meant to reach (case P5 and the README's figures).

    python benchmarks/bench_pairs.py              # runs `vlcs demo`, then compares
    python benchmarks/bench_pairs.py out.json     # compares a file that `vlcs demo --json` wrote

What is held equal between the ways is on docs/demo.md. Exit code 1: a figure is missed. Targets are for two
CPUs; on more, untouched defaults lose by more.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

# pair: {ratio of medians by round: (at least, at most)}
NEAR_BEST = {"contexts/tuned": (0.0, 1.05)}
TARGETS = {
    "boosting": {**NEAR_BEST, "defaults/contexts": (2.5, None)},
    "training": {**NEAR_BEST, "defaults/contexts": (1.5, None)},
    "clustering": {**NEAR_BEST, "defaults/contexts": (1.25, None)},
    "reading": {**NEAR_BEST, "defaults/contexts": (1.5, None)},
    "python": {**NEAR_BEST, "in turn/contexts": (1.85, None)},
}


def record() -> dict:
    if len(sys.argv) > 1:
        return json.loads(Path(sys.argv[1]).read_text())
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "pairs.json")
        subprocess.run([sys.executable, "-m", "vlcs", "demo", "--json", str(file)], check=False)
        return json.loads(file.read_text())


def main() -> int:
    run = record()
    print(f"\n{run['machine']['model']}, {len(run['machine']['cpus'])} CPUs, {run['machine']['date']}")
    missed = [f"{failure.splitlines()[0]}" for failure in run["failures"]]
    for pair, targets in TARGETS.items():
        if pair not in run["pairs"]:
            print(f"{pair:12}not measured")
            continue
        for name, (least, most) in targets.items():
            got = run["pairs"][pair]["ratios"][name]
            wanted = f"at most {most}" if most else f"at least {least}"
            good = got["median"] >= least and (most is None or got["median"] <= most)
            figure = f"{got['median']:.2f} [{got['low']:.2f}, {got['high']:.2f}]"
            print(f"{pair:12}{name:20}{figure:22}{wanted:15}{'ok' if good else 'MISSED'}")
            if not good:
                missed.append(f"{pair} {name}")
    print(f"missed: {', '.join(missed)}" if missed else "all reached")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
