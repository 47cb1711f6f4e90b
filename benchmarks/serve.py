"""Sentences per second of `electra predict`, against the `transformers` pipeline on the same fine-tuned model.

    python benchmarks/serve.py [--model DIR] [--sentences 512] [--rounds 5] [--threads 2]

Sentences of mixed lengths (3 to 100 words of running text, more short ones) are classified from a file. Ours is what
`electra predict` runs after loading the model: read the file, tokenize, sort by length, predict, and build a record for each
sentence. On a CPU, two more rows are ours in ONNX Runtime, from files that `electra export` writes in float32 and int8. The
pipeline gets the same sentences as a list, with truncation: one at a time, its default, and in batches of 32, padded to the
longest of each. The mark is against the faster of the two. By default the model is an ELECTRA-Small with random weights and a
classifier of two labels, which is as fast as a trained one.
"""

import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from corpora import build_tokenizer, write_text
from measuring import Mark, build_parser, compute_median_ratio, report, run_interleaved
from peer import build_hf_config
from transformers import AutoTokenizer, ElectraForSequenceClassification, pipeline

import electra
from electra.model.cpu.library import find_kernel_problem
from electra.presets import PRESETS
from electra.runtime.setup import Runtime, RuntimeConfig, start_runtime

MARK = 3.0
OURS, ONE, BATCHES = "electra", "pipeline", "pipeline-batches"
ONNX = {"fp32": "electra-onnx", "int8": "electra-onnx-int8"}
"""Precision -> side in ONNX Runtime."""
SHORTEST, LONGEST = 3, 100  # words
MEGABYTES = 4


def save_random_model(directory: Path, text: Path, preset: str) -> Path:
    """Save a classifier with random weights in Hugging Face's format, with a tokenizer trained on `text`."""
    sizes = PRESETS[preset]().model
    transformers.set_seed(0)
    config = build_hf_config(sizes)
    config.id2label = {0: "negative", 1: "positive"}
    ElectraForSequenceClassification(config).save_pretrained(directory)
    build_tokenizer(text, sizes.vocab_size).save(directory, sizes.max_positions)
    return directory


def split_into_sentences(text: Path, number: int) -> list[str]:
    """Split running text into sentences; the logarithm of their lengths is uniform."""
    words = text.read_text().split()
    draw = random.Random(0)
    sentences, start = [], 0
    for _ in range(number):
        length = round(SHORTEST * (LONGEST / SHORTEST) ** draw.random())
        sentences.append(" ".join(words[i % len(words)] for i in range(start, start + length)))
        start += length
    return sentences


def build_ours(model: Path, file: Path, **options: Any) -> Callable[[], list[str]]:
    """Return a function that labels the file's sentences by `electra predict`."""
    predictor = electra.load(model, runtime=options)
    return lambda: [str(row["label"]) for row in predictor.predict(file)]


def build_onnx(model: Path, file: Path, folder: Path) -> dict[str, Callable[[], list[str]]]:
    """Export the model to folders in `folder`; return the sides in ONNX Runtime."""
    sides = {}
    for precision, name in ONNX.items():
        electra.export(model, out=folder / name, precision=precision)
        sides[name] = build_ours(folder / name, file, engine="onnx")
    return sides


def build_pipeline(model: Path, sentences: list[str], runtime: Runtime, batch_size: int) -> Callable[[], list[str]]:
    """Return a function that labels the sentences by the pipeline."""
    classify = pipeline(
        "text-classification",
        model=ElectraForSequenceClassification.from_pretrained(model, dtype=runtime.dtype),
        tokenizer=AutoTokenizer.from_pretrained(model),
        device=runtime.device,
        batch_size=batch_size,
    )
    return lambda: [row["label"] for row in classify(sentences, truncation=True, max_length=128)]


def time_side(side: Callable[[], Any], runtime: Runtime) -> Callable[[], float]:
    """Return a function that runs the side and returns its seconds."""

    def seconds() -> float:
        runtime.synchronize()
        start = time.perf_counter()
        side()
        runtime.synchronize()
        return time.perf_counter() - start

    return seconds


def measure(model: Path, sentences: list[str], file: Path, rounds: int, runtime: Runtime) -> dict[str, Any]:
    """Compute medians, ratios, and for each other side the share of sentences with the same label as ours."""
    sides = {
        OURS: build_ours(model, file, device=runtime.device.type),
        **(build_onnx(model, file, file.parent) if runtime.device.type == "cpu" else {}),
        ONE: build_pipeline(model, sentences, runtime, 1),
        BATCHES: build_pipeline(model, sentences, runtime, 32),
    }
    labels = {name: side() for name, side in sides.items()}
    seconds = run_interleaved({name: time_side(side, runtime) for name, side in sides.items()}, rounds)
    rates = {name: [len(sentences) / each for each in times] for name, times in seconds.items()}
    return {
        "sentences_per_second": {name: statistics.median(each) for name, each in rates.items()},
        "ratio": {name: compute_median_ratio(rates[OURS], each) for name, each in rates.items() if name != OURS},
        "same_label": {
            name: statistics.mean(a == b for a, b in zip(labels[OURS], each, strict=True))
            for name, each in labels.items()
            if name != OURS
        },
        "rounds": rates,
    }


def main(argv: list[str] | None = None) -> None:
    """Measure, print the table, write the JSON."""
    parser = build_parser(__doc__)
    parser.add_argument("--model", type=Path, help="fine-tuned sequence classifier; by default random weights")
    parser.add_argument("--preset", default="small", choices=PRESETS, help="sizes of the random weights")
    parser.add_argument("--sentences", type=int, default=512)
    parser.add_argument("--text", nargs="+", default=["builtin"], help="text of the sentences")
    parser.add_argument("--megabytes", type=float, default=MEGABYTES, help="megabytes of the text")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--threads", type=int)
    given = parser.parse_args(argv)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    find_kernel_problem()  # compiles the kernels before the measurement, as training a model does
    with (
        start_runtime(RuntimeConfig(given.device, threads=given.threads)) as runtime,
        tempfile.TemporaryDirectory() as folder,
    ):
        text, file = Path(folder) / "text.txt", Path(folder) / "sentences.txt"
        write_text(text, given.text, given.megabytes)
        model = given.model or save_random_model(Path(folder) / "model", text, given.preset)
        sentences = split_into_sentences(text, given.sentences)
        file.write_text("\n".join(sentences) + "\n")
        found = measure(model, sentences, file, given.rounds, runtime)
        print(f"{len(sentences):,} sentences of {SHORTEST} to {LONGEST} words, on {runtime.describe()}")
        print(f"{'':<20}{'sentences/s':>12}{'electra is':>12}{'same label':>12}")
        for name, rate in found["sentences_per_second"].items():
            times = f"{found['ratio'][name]:.2f} x" if name in found["ratio"] else ""
            same = f"{found['same_label'][name]:.1%}" if name in found["same_label"] else ""
            print(f"{name:<20}{rate:>12,.1f}{times:>12}{same:>12}")
        mark = Mark("times the faster pipeline", min(found["ratio"][name] for name in (ONE, BATCHES)), MARK)
        about = {"model": str(given.model) if given.model else f"{given.preset}, random", "sentences": len(sentences)}
        report(
            f"serve_{runtime.device.type}",
            given.out,
            [mark],
            about | {"device": runtime.describe()} | found,
            torch.get_num_threads(),
        )


if __name__ == "__main__":
    main()
