"""Run all benchmarks: their tables, their JSON files, and at the end the missed marks.

    python benchmarks/run_all.py [--glue GLUE_FOLDER --tokenizer DIR] [--only serve loader] [--device cpu] [--smoke]

About 25 minutes on two cores of an Intel Xeon with AVX-512. `--smoke` runs toy sizes, to check that everything works: its
numbers mean nothing, so it needs a separate `--out`. The fine-tuning benchmark needs GLUE and a tokenizer (a directory that
`transformers` reads, as `electra tokenizer` writes it); without them it is skipped, with a message. `prepare` has marks on
growth for text that is long enough (`--text`); the built-in text is not. Each run is a separate process; a failure does not
stop the others, but the exit code is 1. Missed marks do not change the exit code.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from measuring import HERE

Runs = dict[str, list[list[str]]]

CPU: Runs = {
    "pretrain_step": [
        ["--preset=small", "--batch-size=16", "--seq-len=128", "--device=cpu"],
        ["--preset=small", "--batch-size=16", "--seq-len=128", "--device=cpu", "--no-kernels", "--peers"],
        ["--preset=base", "--batch-size=2", "--seq-len=512", "--steps=1", "--device=cpu"],
    ],
    "prepare": [["--rounds=3"]],
    "loader": [["--device=cpu"]],
    "finetune": [["--rounds=3", "--layers=4"]],
    "serve": [["--device=cpu"]],
}
IN_BFLOAT16 = [*CPU["pretrain_step"][0], "--rounds=3", "--precision=bfloat16"]
"""Run of `pretrain_step` for CPUs with bfloat16 matrix products (AMX); without them it takes a hundred times as long."""
FASTEST = ["--compile", "--graphs"]
GPU: Runs = {
    "pretrain_step": [
        ["--preset=small", "--batch-size=128", "--seq-len=128", "--steps=50", "--device=cuda", *FASTEST],
        ["--preset=small", "--batch-size=128", "--seq-len=128", "--steps=50", "--device=cuda", "--peers"],
        ["--preset=small", "--batch-size=128", "--seq-len=128", "--steps=50", "--device=cuda", "--graphs", "--peers"],
        ["--preset=small", "--batch-size=512", "--seq-len=128", "--steps=20", "--device=cuda", *FASTEST],
        [
            "--preset=base",
            "--batch-size=32",
            "--micro-batch-size=32",
            "--seq-len=512",
            "--steps=20",
            "--device=cuda",
            *FASTEST,
        ],
    ],
    "loader": [["--batch-size=128", "--steps=50", "--device=cuda"]],
    "serve": [["--sentences=8192", "--device=cuda"]],
}
TOY = ["--rounds=1", "--megabytes=0.05", "--preset=tiny", "--device=cpu"]
TOY_STEP = [*TOY, "--batch-size=4", "--seq-len=16", "--steps=1"]
SMOKE: Runs = {
    "pretrain_step": [[*TOY_STEP, "--backend=eager"]],
    "prepare": [["--rounds=1", "--megabytes", "0.02", "0.2", "--vocab-size=300"]],
    "loader": [[*TOY_STEP, "--shards=10", "--examples=8"]],
    "finetune": [["--rounds=1", "--layers=1", "--steps=1"]],
    "serve": [[*TOY, "--sentences=16"]],
}


def select_runs(device: str) -> Runs:
    """Select the runs for a device of this machine."""
    if device == "cuda":
        return GPU
    return {**CPU, "pretrain_step": [*CPU["pretrain_step"], *[IN_BFLOAT16] * has_amx()]}


def has_amx(processors: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether the CPU has Intel's matrix extensions, according to the system."""
    return processors.exists() and "amx_bf16" in processors.read_text()


def list_missed(out: Path, since: float) -> list[str]:
    """List the missed marks in the files written to `out` after `since`, each with its file's name."""
    files = [file for file in sorted(out.glob("*.json")) if file.stat().st_mtime >= since]
    return [
        f"{file.stem}: {mark['what']}: {mark['value']:.3g}, {'at most' if mark['at_most'] else 'at least'} {mark['bound']:g}"
        for file in files
        for mark in json.loads(file.read_text())["marks"]
        if not mark["met"]
    ]


def run(name: str, arguments: Sequence[str]) -> bool:
    """Run a benchmark; return whether it succeeded."""
    print(f"\n== {name} {' '.join(arguments)}", flush=True)
    return subprocess.run([sys.executable, str(HERE / f"{name}.py"), *arguments], check=False).returncode == 0


def main(argv: list[str] | None = None) -> int:
    """Run the benchmarks; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=CPU, help="only these benchmarks")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="device, and sizes for it")
    parser.add_argument("--smoke", action="store_true", help="toy sizes")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--text", nargs="+", help="by default the built-in text")
    parser.add_argument("--glue", help="folder in GLUE's layout, for finetune")
    parser.add_argument("--tokenizer", help="tokenizer directory, for finetune")
    parser.add_argument("--out", type=Path, help="folder for the JSON files; by default results/ in this folder")
    given = parser.parse_args(argv)
    if given.smoke and given.out is None:
        parser.error("--smoke: its numbers mean nothing; name an --out other than that of real results")
    given.out = given.out or HERE / "results"
    runs = SMOKE if given.smoke else select_runs(given.device)
    began, failed = time.time(), []
    for name in given.only or runs:
        if name not in runs:
            print(f"\n== {name}: no runs on {given.device}")
            continue
        more = [f"--out={given.out}"]
        if given.threads and name != "prepare":
            more.append(f"--threads={given.threads}")
        if name == "finetune":
            if not (given.glue and given.tokenizer):
                print("\n== finetune is skipped: it needs --glue and --tokenizer")
                continue
            more += [f"--data={given.glue}", f"--tokenizer={given.tokenizer}"]
        elif given.text:
            more += ["--text", *given.text]
        failed += [name for arguments in runs[name] if not run(name, [*arguments, *more])]
    print("\n" + "\n".join(["marks missed:", *(list_missed(given.out, began) or ["none"])]))
    if failed:
        print(f"failed: {', '.join(failed)}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
