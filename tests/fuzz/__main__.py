"""`PYTHONPATH=tests python -m fuzz --seed 0 --cases 300`: run commands on malformed input, and count the outcomes.

Each case changes something in valid files and runs a command on them in a forked process with limits on time and memory. A
command must accept its input, or reject it with an error of one line. The exit status is 1 if a command does anything else.
`--only N` runs case N of a seed alone, shows all its output and keeps its folder.
"""

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from fuzz.kinds import KINDS, draw_case
from fuzz.material import make_material
from fuzz.worker import FAILURES, OUTCOMES, Worker


def main() -> int:
    """Run the cases; 1 if any failed."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__, allow_abbrev=False)
    parser.add_argument("--seed", type=int, default=0, help="seed of all cases")
    parser.add_argument("--cases", type=int, default=300, help="number of cases")
    parser.add_argument("--only", type=int, help="number of a single case to run and show in full")
    parser.add_argument("--from", type=int, default=0, dest="first", help="number of the first case")
    parser.add_argument("--kind", choices=sorted(KINDS), help="only cases of this kind of input")
    parser.add_argument("--list", action="store_true", help="print a line for each case: its changes and its outcome")
    arguments = parser.parse_args()
    seconds: Counter[str] = Counter()
    numbers = range(arguments.first, arguments.first + arguments.cases) if arguments.only is None else [arguments.only]
    counts: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory(prefix="fuzz-", ignore_cleanup_errors=True) as root:
        base = Path(root) / "base"
        worker = Worker()
        worker.call(lambda: make_material(base))
        for number in numbers:
            folder = (
                Path(tempfile.mkdtemp(prefix=f"fuzz-{number}-")) if arguments.only is not None else Path(root) / "case"
            )
            case = draw_case(arguments.seed, number, base, folder, arguments.kind)
            result = worker.run(case, folder)
            counts[case.kind, result.outcome] += 1
            seconds[case.kind] += result.seconds
            if result.outcome in FAILURES or arguments.only is not None:
                print(f"\n{result.outcome}: --seed {arguments.seed} --only {number}", end="")
                print(f" --kind {arguments.kind}" if arguments.kind else "", f"({case.kind}: {'; '.join(case.what)})")
                print(
                    f"  electra {' '.join(map(ascii, case.words))[:600]}", *(f"{k}={v!a}" for k, v in case.env.items())
                )
                print("  " + ascii(result.details if arguments.only is None else result.output).replace(r"\n", "\n  "))
            if arguments.list:
                last = result.details.split("\n")[-1][:300]
                print(
                    f"{number} {case.kind}: {result.outcome} in {result.seconds:.1f} s: {'; '.join(case.what)}: {last}"
                )
            if arguments.only is not None:
                print(f"  {folder}")
            else:
                worker.clear(folder)
    show(counts, seconds)
    return int(any(outcome in FAILURES for _, outcome in counts))


def show(counts: Counter[tuple[str, str]], seconds: Counter[str]) -> None:
    """Print the outcomes by kind of input as a Markdown table, and the seconds of each kind."""
    kinds = [kind for kind in KINDS if any(counts[kind, outcome] for outcome in OUTCOMES)]
    rows = [["input", *OUTCOMES], ["---", *["---:" for _ in OUTCOMES]]]
    rows += [[kind, *(str(counts[kind, outcome]) for outcome in OUTCOMES)] for kind in kinds]
    rows.append(["all", *(str(sum(counts[kind, outcome] for kind in kinds)) for outcome in OUTCOMES)])
    print()
    for row in rows:
        print(f"| {' | '.join(row)} |")
    print("\nseconds: " + ", ".join(f"{kind} {spent:.0f}" for kind, spent in seconds.most_common()))


if __name__ == "__main__":
    sys.exit(main())
