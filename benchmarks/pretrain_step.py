"""Tokens per second of one ELECTRA training step, against `transformers` and against the limit of the machine.

    python benchmarks/pretrain_step.py [--preset small --batch-size 16 --seq-len 128] [--steps 4] [--rounds 5] [--threads 2]
    python benchmarks/pretrain_step.py --preset base --batch-size 2 --seq-len 512 --steps 1 --rounds 3

Ours is the training loop itself (loader, mask, generator, sample, discriminator, backward, clip, optimizer; dropout 0.1),
without checkpoints. The peers (`peer.py`) train networks of the same sizes on the same batches: eager; compiled; and eager
with the vocabulary's head at the masked positions only, which the classes do not offer, to show its part of the difference.
The sides alternate in turns of `--steps` steps, each in a separate process; the table has medians over the rounds. (In a
shared process the peers were slower, because every step freed their logits and requested memory from the system again:
docs/research/log.) A turn starts with an untimed step, in which memory is allocated again. Peak memory is that of the process,
with imports and compilation, or that of the GPU.

The limit is the time of all operations at the rate of a large matrix product (`electra.runtime.speed.measure_matmul_rate`),
measured in every round. The mark on a CPU counts the operations that the machine has to do: Appendix E's FLOPs without
look-ups, with a backward pass of two forwards (`PretrainingModel.utilized_share`), for the share of positions that are not
padding. The table also has the share by Appendix E's count, which the mark on a GPU uses: it includes padding, and look-ups as
products with one-hot vectors, which are not computed, so it is not a share of the machine. Both counts include the generator's
last layer in full, although ours computes it only at the masked positions: under 1 % of Small.

`--compile` and `--graphs` are `--training.compile` and `--training.graphs` of our side, `--no-kernels` is `--runtime.kernels
false`. Tokens exclude padding. On a CPU, ours computes padding only in embeddings, attention and heads, the peers everywhere.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from corpora import list_names, prepare_text
from measuring import (
    build_parser,
    peak_memory,
    report,
    run_interleaved,
    send_result,
    start_side,
    wait_for_requests,
)
from quiet_loop import Unsaved
from step_results import COMPILED, MASKED_ONLY, OURS, SIDES, Turn, build_marks, print_table, summarize

from electra.console import console
from electra.data.batch import Batch
from electra.data.loader import BatchLoader
from electra.data.shards import PreparedData
from electra.execution import enable_kernels
from electra.model.cpu.library import find_kernel_problem
from electra.presets import PRESETS
from electra.pretraining.build import build_model
from electra.pretraining.config import PretrainConfig
from electra.pretraining.execution import check_graphs, compile_parts, list_graph_lengths, resolve_micro_batch_size
from electra.pretraining.objectives.model import PretrainingModel
from electra.pretraining.objectives.networks import compute_generator_sizes
from electra.runtime.setup import Runtime, RuntimeConfig, start_runtime
from electra.runtime.speed import measure_matmul_rate
from electra.seeding import Stream, seed_everything
from electra.text.tokenizer import load_tokenizer
from electra.train.config import TrainingConfig
from electra.train.loop import train

if TYPE_CHECKING:
    from peer import PeerStep

PASSED_ON = ("preset", "batch-size", "seq-len", "steps", "backend", "device", "precision")
MEGABYTES = 4  # text to prepare; enough for a vocabulary of 30,522


@dataclass(frozen=True)
class Case:
    """A configuration on prepared data, and the measurement."""

    config: PretrainConfig
    data: PreparedData
    steps: int
    """Steps per turn."""
    backend: str
    """Back end of torch.compile for the compiled peer."""
    runtime: Runtime

    def model(self) -> PretrainingModel:
        tokenizer = load_tokenizer(self.data.tokenizer_path)
        model = build_model(self.config, tokenizer, torch.from_numpy(self.data.unigrams)).to(self.runtime.device)
        if self.config.training.compile:
            compile_parts(model, self.runtime.device)
        else:
            enable_kernels(model, self.runtime)
        return model

    def loader(self, padded_to: Sequence[int] = ()) -> BatchLoader:
        return BatchLoader(
            self.data.train,
            batch_size=self.config.training.batch_size,
            micro_batch_size=resolve_micro_batch_size(self.config, self.runtime),
            pad_id=load_tokenizer(self.data.tokenizer_path).pad_id,
            seed=(self.config.seed,),
            padded_to=padded_to,
        )


def build_case(given: argparse.Namespace, data: PreparedData, runtime: Runtime) -> Case:
    """Build the case of a preset with the given sizes, without logs and checkpoints."""
    training = TrainingConfig(
        given.batch_size,
        given.micro_batch_size,
        log_every=10**9,
        checkpoint_every=10**9,
        checkpoint_minutes=1e9,
        compile=given.compile,
        graphs=given.graphs,
    )
    config = replace(PRESETS[given.preset](), seq_len=given.seq_len, training=training)
    return Case(config, data, given.steps, given.backend, runtime)


def run_our_turns(case: Case, model: PretrainingModel, turns: Iterable[object], done: Callable[[Turn], None]) -> None:
    """Run a warm-up step and `case.steps` timed steps of our training loop for each of `turns`; pass the results to `done`.

    Results: seconds; tokens; places (tokens and padding); flops, by Appendix E; matmul, the FLOP/s of a large matrix product
    as the mean of measurements before and after the turn.
    """

    def batches_from(first_step: int) -> Iterator[list[Batch]]:
        lengths = list_graph_lengths(case.config.seq_len) if case.config.training.graphs else ()
        with closing(case.loader(lengths).iterate(first_step)) as batches:
            for _ in turns:
                tokens, places, flops = 0, 0, 0.0
                before = measure_matmul_rate(case.runtime)
                yield next(batches)
                case.runtime.synchronize()
                start = time.perf_counter()
                for _ in range(case.steps):
                    micro_batches = next(batches)
                    tokens += sum(int(batch.lengths.sum()) for batch in micro_batches)
                    places += sum(batch.input_ids.numel() for batch in micro_batches)
                    flops += sum(map(model.flops, micro_batches))
                    yield micro_batches
                case.runtime.synchronize()
                seconds = time.perf_counter() - start
                matmul = statistics.fmean([before, measure_matmul_rate(case.runtime)])
                done({"seconds": seconds, "tokens": tokens, "places": places, "flops": flops, "matmul": matmul})

    train(model, batches_from, case.config.recipe(), case.runtime, Unsaved(), [], lambda: False)


def build_peer(case: Case, name: str) -> PeerStep:
    """Build the peer `name` with networks of our sizes."""
    from peer import PeerConfig, PeerStep  # imported here, because our side does not need transformers

    spec = case.model().spec
    config = PeerConfig(
        spec.main,
        compute_generator_sizes(spec.main, spec.generator),
        spec.masking.fraction,
        spec.vocabulary,
        case.config.seq_len,
        masked_only=name == MASKED_ONLY,
        backend=case.backend if name == COMPILED else None,
        learning_rate=case.config.optimizer.learning_rate,
    )
    return PeerStep(config, case.loader().iterate(0), case.steps, case.runtime)


def serve_side(side: str, case: Case) -> None:
    """Run a side's turns at the requests of the parent process."""

    def done(turn: Turn) -> None:
        on_gpu = case.runtime.device.type == "cuda"
        send_result(turn | {"peak": torch.cuda.max_memory_allocated() if on_gpu else peak_memory()})
        if on_gpu:
            torch.cuda.empty_cache()  # frees memory for the other sides

    if side == OURS:
        run_our_turns(case, case.model(), wait_for_requests(), done)
    else:
        step = build_peer(case, side)
        for _ in wait_for_requests():
            done({"seconds": step()})


def measure_rounds(given: argparse.Namespace, data: PreparedData) -> dict[str, list[Turn]]:
    """Measure all sides by round, after a warm-up round."""
    arguments = [f"--{name}={getattr(given, name.replace('-', '_'))}" for name in PASSED_ON]
    arguments += [f"--threads={torch.get_num_threads()}", f"--data={data.path}"]
    arguments += [f"--micro-batch-size={given.micro_batch_size}"] * (given.micro_batch_size is not None)
    arguments += ["--compile"] * given.compile + ["--graphs"] * given.graphs + ["--no-kernels"] * given.no_kernels
    with ExitStack() as stack:
        sides = {
            name: stack.enter_context(start_side("pretrain_step.py", [*arguments, f"--be={name}"]))
            for name in (OURS, *given.peers)
        }
        return run_interleaved(sides, given.rounds)


def main(argv: list[str] | None = None) -> None:
    """Measure, print the table, write the JSON."""
    parser = build_parser(__doc__)
    parser.add_argument("--preset", default="small", choices=PRESETS)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--micro-batch-size", type=int, help="of our side; default: by device")
    parser.add_argument("--seq-len", type=int, default=128)
    parser.add_argument("--compile", action="store_true", help="compile our side too")
    parser.add_argument("--graphs", action="store_true", help="run our side with CUDA graphs")
    parser.add_argument("--no-kernels", action="store_true", help="run our side without CPU kernels")
    parser.add_argument("--steps", type=int, default=4, help="steps per turn")
    parser.add_argument("--peers", nargs="*", default=list(SIDES[1:]), choices=SIDES[1:], help="peers to measure")
    parser.add_argument("--text", nargs="+", default=["builtin"], help="text of the batches")
    parser.add_argument("--megabytes", type=float, default=MEGABYTES, help="megabytes of the text")
    parser.add_argument("--backend", default="inductor", help="back end of torch.compile for the compiled peer")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--precision", default="auto", choices=("auto", "float32", "bfloat16"))
    parser.add_argument("--threads", type=int)
    parser.add_argument("--data", type=Path, help="prepared data of --seq-len")
    parser.add_argument("--be", choices=SIDES, help="run this side for a benchmark in the parent process")
    given = parser.parse_args(argv)
    with (
        start_runtime(RuntimeConfig(given.device, given.precision, given.threads, not given.no_kernels)) as runtime,
        tempfile.TemporaryDirectory() as folder,
    ):
        vocab_size = PRESETS[given.preset]().model.vocab_size
        data = (
            PreparedData.open(given.data)
            if given.data
            else prepare_text(Path(folder), given.text, given.megabytes, vocab_size, given.seq_len)
        )
        case = build_case(given, data, runtime)
        check_graphs(case.config, runtime)
        seed_everything(Stream.INITIAL_WEIGHTS, 0)
        if given.be:
            console.quiet = True  # the output has only results
            serve_side(given.be, case)
            return
        share = case.model().utilized_share(given.seq_len)  # also compiles the CPU kernels before the turns
        found = summarize(measure_rounds(given, data), share)
        print_table(given, found, runtime)
        names = ("preset", "batch_size", "micro_batch_size", "seq_len", "steps", "compile", "graphs")
        sizes = {name: getattr(given, name) for name in names}
        execution = {"device": runtime.describe(), "precision": str(runtime.dtype).removeprefix("torch.")}
        execution["kernels"] = runtime.kernels and not given.compile and find_kernel_problem() is None
        name = (
            f"pretrain_step_{given.preset}_{given.batch_size}x{given.seq_len}"
            + "_compiled" * given.compile
            + "_graphs" * given.graphs
            + "_no_kernels" * given.no_kernels
        )
        name += f"_{given.precision}" * (given.precision != "auto")
        marks = build_marks(given.preset, found, runtime) if given.peers else []  # none without peers, in experiments
        report(
            f"{name}_{runtime.device.type}",
            given.out,
            marks,
            {"text": list_names(given.text)} | sizes | execution | found,
            torch.get_num_threads(),
        )


if __name__ == "__main__":
    main()
