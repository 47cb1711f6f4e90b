"""MB of text per second and core from text to shards, against the bare tokenizers library and a `datasets` recipe.

    python benchmarks/prepare.py [--text FILES] [--megabytes 20 222] [--rounds 3]

Every run is a separate process with one core and one thread; imports are not timed, and the processes of the sides alternate.
Ours is `electra.data.prepare.prepare`, from a file to examples on disk. The bare library encodes the same lines, ten thousand
at a time, and drops the ids; reading the file is not timed. The recipe is the usual one of masked language modeling:
`load_dataset("text")`, `map` with a fast tokenizer, `map` that joins a batch's tokens and splits them into rows, with a new
cache every time. The peers are measured at the first size, ours at all sizes: memory and cost per MB must stay flat. The
smaller texts are every n-th document of the largest. Short text is repeated; 1 MB is 10^6 bytes.
"""

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

from corpora import build_tokenizer, list_names, write_share, write_text
from measuring import Mark, build_parser, compute_median_ratio, peak_memory, report, run_interleaved, run_script

from electra.data.prepare import prepare
from electra.text.corpus import Corpus
from electra.text.tokenizer import load_tokenizer

SEQ_LEN = 128
LINES = 10_000
OURS, BARE, RECIPE = "electra", "tokenizers", "datasets"
BARE_SHARE, RECIPE_TIMES = 0.8, 2.0
FLAT = 1.1
"""Maximum growth of memory and of cost per MB that counts as flat."""


def run_ours(text: Path, tokenizer: Path, folder: Path) -> float:
    """Measure the seconds from text to shards."""
    loaded = load_tokenizer(tokenizer)
    start = time.perf_counter()
    prepare(Corpus((str(text),)), loaded, folder / "data", seq_len=SEQ_LEN, workers=1)
    return time.perf_counter() - start


def run_bare(text: Path, tokenizer: Path, folder: Path) -> float:
    """Measure the seconds of encoding only."""
    from tokenizers import Tokenizer

    loaded = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    lines = [line for line in text.read_text().splitlines() if line]
    start = time.perf_counter()
    for first in range(0, len(lines), LINES):
        loaded.encode_batch_fast(lines[first : first + LINES], add_special_tokens=False)
    return time.perf_counter() - start


def run_recipe(text: Path, tokenizer: Path, folder: Path) -> float:
    """Measure the seconds of loading, tokenizing and grouping."""
    import datasets
    from transformers import AutoTokenizer

    datasets.disable_progress_bars()
    loaded = AutoTokenizer.from_pretrained(tokenizer)

    def tokenize(rows: dict[str, list[str]]) -> dict[str, Any]:
        return loaded(rows["text"], return_special_tokens_mask=True)

    def group(rows: dict[str, list[list[int]]]) -> dict[str, list[list[int]]]:
        joined = {name: list(chain.from_iterable(values)) for name, values in rows.items()}
        total = len(joined["input_ids"]) // SEQ_LEN * SEQ_LEN
        return {name: [ids[i : i + SEQ_LEN] for i in range(0, total, SEQ_LEN)] for name, ids in joined.items()}

    start = time.perf_counter()
    lines = datasets.load_dataset("text", data_files=str(text), split="train", cache_dir=str(folder))
    tokens = lines.map(tokenize, batched=True, remove_columns=["text"])
    tokens.map(group, batched=True)
    return time.perf_counter() - start


SIDES = {OURS: run_ours, BARE: run_bare, RECIPE: run_recipe}


def pin_to_one_core() -> None:
    """Restrict this process and its children to one core and thread."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def run_alone(side: str, text: Path, tokenizer: Path) -> dict[str, float]:
    """Run a side once in this process, on one core."""
    pin_to_one_core()
    with tempfile.TemporaryDirectory() as folder:
        return {"seconds": SIDES[side](text, tokenizer, Path(folder)), "peak_bytes": peak_memory()}


def measure(texts: dict[float, Path], tokenizer: Path, sides: list[str], rounds: int) -> tuple[dict, dict]:
    """Measure the seconds of each round and the largest peak memory, by side and megabytes ("electra 20")."""
    peaks: dict[str, float] = {}
    smallest = next(iter(texts))

    def run(side: str, megabytes: float) -> Callable[[], float]:
        def seconds() -> float:
            arguments = [f"--alone={side}", f"--text={texts[megabytes]}", f"--tokenizer={tokenizer}"]
            done = run_script("prepare.py", arguments)
            name = f"{side} {megabytes:g}"
            peaks[name] = max(peaks.get(name, 0), done["peak_bytes"])
            return done["seconds"]

        return seconds

    runs = {f"{side} {smallest:g}": run(side, smallest) for side in sides}
    runs |= {f"{OURS} {megabytes:g}": run(OURS, megabytes) for megabytes in list(texts)[1:]}
    return run_interleaved(runs, rounds, warm_up=0), peaks


def build_marks(seconds: dict, peaks: dict, sizes: dict[float, int], sides: list[str]) -> list[Mark]:
    """Build the marks against the peers at the first size, and on growth from the first size to the last."""
    first, last = next(iter(sizes)), list(sizes)[-1]
    small, large = f"{OURS} {first:g}", f"{OURS} {last:g}"
    marks = []
    if BARE in sides:
        speed = compute_median_ratio(seconds[f"{BARE} {first:g}"], seconds[small])
        marks.append(Mark("times the bare tokenizers library", speed, BARE_SHARE))
    if RECIPE in sides:
        speed = compute_median_ratio(seconds[f"{RECIPE} {first:g}"], seconds[small])
        marks.append(Mark("times the datasets recipe", speed, RECIPE_TIMES))
    growth = compute_median_ratio(seconds[large], seconds[small]) * sizes[first] / sizes[last]
    marks.append(Mark(f"cost per MB at {last:g} MB for that at {first:g} MB", growth, FLAT, at_most=True))
    grown = peaks[large] / peaks[small]
    marks.append(Mark(f"peak memory at {last:g} MB for that at {first:g} MB", grown, FLAT, at_most=True))
    return marks


def main(argv: list[str] | None = None) -> None:
    """Measure, print the table, write the JSON."""
    parser = build_parser(__doc__)
    parser.add_argument("--text", nargs="+", default=["builtin"])
    parser.add_argument("--megabytes", nargs="+", type=float, default=[20, 222], help="sizes of the corpus")
    parser.add_argument("--vocab-size", type=int, default=30_522)
    parser.add_argument("--tokenizer", type=Path, help="tokenizer directory; by default one is trained on the text")
    parser.add_argument("--sides", nargs="+", default=list(SIDES), choices=SIDES, help="sides besides electra")
    parser.add_argument("--alone", choices=SIDES, help="run this side once on --text in this process, print JSON")
    given = parser.parse_args(argv)
    if given.alone:
        print(json.dumps(run_alone(given.alone, Path(given.text[0]), given.tokenizer)))
        return
    with tempfile.TemporaryDirectory() as folder:
        texts = {megabytes: Path(folder) / f"{megabytes:g}.txt" for megabytes in sorted(given.megabytes)}
        *smaller, largest = texts
        written = write_text(texts[largest], given.text, largest)
        sources = [str(texts[largest])]
        sizes = {each: write_share(texts[each], sources, each) for each in smaller} | {largest: written.bytes}
        tokenizer = given.tokenizer or Path(folder) / "tokenizer"
        if not given.tokenizer:
            build_tokenizer(next(iter(texts.values())), given.vocab_size).save(tokenizer)
        sides = list(dict.fromkeys([OURS, *given.sides]))
        seconds, peaks = measure(texts, tokenizer, sides, given.rounds)
    rates = {name: sizes[float(name.split()[1])] / 1e6 / statistics.median(each) for name, each in seconds.items()}
    print(f"{'':<12}{'MB':>8}{'MB/s':>10}{'peak memory':>14}   (one core)")
    for name, rate in rates.items():
        side, megabytes = name.split()
        print(f"{side:<12}{megabytes:>8}{rate:>10.2f}{peaks[name] / 1e6:>11,.0f} MB")
    marks = build_marks(seconds, peaks, sizes, sides)
    if written.passes > 1:
        print(f"The text is repeated {written.passes} times, so its growth has no marks: repeated text proves nothing.")
        marks = [mark for mark in marks if mark.bound != FLAT]
    result = {
        "text": list_names(given.text),
        "passes": written.passes,
        "seq_len": SEQ_LEN,
        "bytes": sizes,
        "megabytes_per_second": rates,
        "peak_bytes": peaks,
        "rounds": seconds,
    }
    report("prepare", given.out, marks, result, threads=1)


if __name__ == "__main__":
    main()
