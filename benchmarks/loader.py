"""The loader: its share of a training step, and the start-up time of a run on many shards.

    python benchmarks/loader.py [--batch-size 16 --seq-len 128] [--shards 1000 --examples 8000] [--rounds 5] [--threads 2]

Here batches are made in the requesting thread; in training, another thread makes them ahead during the step. They alternate
with equally many steps of our training loop (on a GPU compiled and with CUDA graphs). Target: a batch takes under 2 % of a
step.
Start-up is: opening prepared data of `--shards` shards, which verifies all checksums, building the loader, and its first
batch. The shards are random tokens, of the size that a chunk of text gives (about a million tokens), in a temporary folder;
they have just been written, so they are in the page cache as far as memory allows.
"""

import shutil
import statistics
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from corpora import prepare_text
from measuring import Mark, build_parser, compute_median_ratio, report, run_interleaved
from pretrain_step import Case, Turn, build_case, run_our_turns

from electra.data.examples import Examples
from electra.data.loader import BatchLoader
from electra.data.manifest import MANIFEST, Manifest, save_json
from electra.data.shards import PreparedData, write_shard, write_unigrams
from electra.presets import PRESETS
from electra.runtime.setup import RuntimeConfig, start_runtime

STEP_SHARE, START_SECONDS = 0.02, 2.0
MEGABYTES = 4


def measure_step_share(case: Case, rounds: int) -> dict[str, object]:
    """Measure the seconds of batches and steps alternately; the first round is a warm-up."""
    loader = case.loader()
    step_seconds: list[float] = []
    batch_seconds: list[float] = []

    def make_batches(turn: Turn) -> None:
        step_seconds.append(turn["seconds"])
        made = len(batch_seconds) * case.steps
        start = time.perf_counter()
        for step in range(made, made + case.steps):
            loader.batches(step)
        batch_seconds.append(time.perf_counter() - start)

    run_our_turns(case, case.model(), range(rounds + 1), make_batches)
    del step_seconds[0], batch_seconds[0]
    return {
        "batches_per_second": case.steps / statistics.median(batch_seconds),
        "steps_per_second": case.steps / statistics.median(step_seconds),
        "share": compute_median_ratio(batch_seconds, step_seconds),
        "rounds": [batch / step for batch, step in zip(batch_seconds, step_seconds, strict=True)],
    }


def write_many_shards(folder: Path, like: PreparedData, shards: int, examples: int) -> Path:
    """Write prepared data of `shards` shards of full random examples, with the tokenizer and settings of `like`."""
    settings = like.manifest.settings
    draw = np.random.default_rng(0)
    offsets = np.arange(examples + 1, dtype=np.int64) * settings.seq_len
    halves = np.full(examples, settings.seq_len // 2, np.int32)

    def shard(number: int):
        ids = draw.integers(settings.vocab_size, size=examples * settings.seq_len, dtype=np.uint16)
        return write_shard(folder, "train", number, Examples(ids, offsets, halves))

    shutil.copytree(like.tokenizer_path, folder / "tokenizer")
    train = [shard(number) for number in range(shards)]
    heldout = write_shard(
        folder, "heldout", 0, Examples(np.zeros(settings.seq_len, np.uint16), offsets[:2], halves[:1])
    )
    unigrams = write_unigrams(folder, train[:1], settings.vocab_size, ())
    save_json(folder / MANIFEST, Manifest(settings, shards, "documents", train, [heldout], unigrams))
    return folder


def start(path: Path, batch_size: int) -> float:
    """Measure the seconds from a directory to the first batch."""
    began = time.perf_counter()
    data = PreparedData.open(path)
    loader = BatchLoader(data.train, batch_size=batch_size, micro_batch_size=batch_size, pad_id=0, seed=(0,))
    loader.batches(0)
    return time.perf_counter() - began


def main(argv: list[str] | None = None) -> None:
    """Measure, print the table, write the JSON."""
    parser = build_parser(__doc__)
    parser.add_argument("--preset", default="small", choices=PRESETS)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--seq-len", type=int, default=128)
    parser.add_argument("--steps", type=int, default=4, help="steps and batches per turn")
    parser.add_argument("--shards", type=int, default=1000)
    parser.add_argument("--examples", type=int, default=8000, help="examples per shard")
    parser.add_argument("--text", nargs="+", default=["builtin"], help="text of the batches")
    parser.add_argument("--megabytes", type=float, default=MEGABYTES, help="megabytes of the text")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--threads", type=int)
    given = parser.parse_args(argv)
    with (
        start_runtime(RuntimeConfig(given.device, threads=given.threads)) as runtime,
        tempfile.TemporaryDirectory() as folder,
    ):
        vocab_size = PRESETS[given.preset]().model.vocab_size
        data = prepare_text(Path(folder), given.text, given.megabytes, vocab_size, given.seq_len)
        on_gpu = runtime.device.type == "cuda"
        how = {"compile": on_gpu, "graphs": on_gpu}  # the fastest step
        case = build_case(SimpleNamespace(**vars(given), **how, backend=None, micro_batch_size=None), data, runtime)
        step = measure_step_share(case, given.rounds)
        path = write_many_shards(Path(folder) / "shards", data, given.shards, given.examples)
        seconds = run_interleaved({"start": lambda: start(path, given.batch_size)}, given.rounds)["start"]
        print(f"{given.preset}, {given.batch_size} x {given.seq_len}, on {runtime.describe()}")
        print(f"{step['batches_per_second']:,.0f} batches/s, {step['steps_per_second']:,.2f} steps/s")
        print(
            f"{given.shards:,} shards of {given.examples:,} examples: first batch after {statistics.median(seconds):.2f} s"
        )
        marks = [
            Mark("seconds of a batch for each of a step", step["share"], STEP_SHARE, at_most=True),
            Mark(
                f"seconds to start on {given.shards:,} shards", statistics.median(seconds), START_SECONDS, at_most=True
            ),
        ]
        sizes = {name: getattr(given, name) for name in ("preset", "batch_size", "seq_len", "shards", "examples")}
        result = {**sizes, **how, "device": runtime.describe(), "step": step, "start_seconds": seconds}
        report(f"loader_{runtime.device.type}", given.out, marks, result, torch.get_num_threads())


if __name__ == "__main__":
    main()
