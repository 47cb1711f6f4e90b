"""Tokens per second of one ELECTRA training step, against `transformers` and against what the machine can do.

    python benchmarks/pretrain_step.py [--preset small --batch-size 16 --seq-len 128] [--steps 4] [--rounds 5] [--threads 2]
    python benchmarks/pretrain_step.py --preset base --batch-size 2 --seq-len 512 --steps 1 --rounds 3

Ours is the training loop itself (loader, mask, generator, sample, discriminator, backward, clip, optimiser; dropout 0.1),
without saving. The peers (`peer.py`) train networks of the same sizes on the same batches: eager; compiled; and eager with
the vocabulary's head at the chosen positions only, which is not what the classes offer, and shows how much of the difference
that is. All take turns in one process, `--steps` steps each; medians over the rounds. Peak memory is that of a process in
which one side trains alone (of the GPU, where there is one; otherwise of the process with its imports, compiling included).

The limit has every operation done at the rate of a large matrix product (`electra.runtime.matmul_rate`), measured in every
round. The mark on a CPU counts what the machine really has to do: Appendix E's FLOPs without look-ups, with a backward pass
of two forwards (`PretrainingModel.utilised_share`), for the share of the places at which a token stands. The table shows the
share by Appendix E's own count too, which the mark on a GPU takes: it has padding, and look-ups as products with one-hot
vectors, which no one computes, so it is not a share of the machine.
`--compile` has our layers compiled (`--training.compile`). Either count has the generator's last layer whole, though ours
works at the chosen positions only there: under 1 % of Small. Tokens are real ones; ours leaves
padding out of all but embeddings, attention and heads, the peers compute it everywhere.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from corpora import names_of, prepared
from measuring import Mark, in_own_process, options, peak_memory, ratio, report
from quiet_loop import Silent, Unsaved

from electra.data.loader import Batch, BatchLoader
from electra.data.shards import PreparedData
from electra.presets import PRESETS
from electra.pretraining.build import build_model
from electra.pretraining.config import PretrainConfig
from electra.pretraining.networks import generator_sizes
from electra.pretraining.objectives import PretrainingModel
from electra.pretraining.run import compile_layers, rows_at_once
from electra.runtime import Runtime, RuntimeConfig, matmul_rate, runtime, seed_everything
from electra.text.tokenizer import load_tokenizer
from electra.train.loop import TrainingConfig, train

OURS, EAGER, COMPILED, CHOSEN_ONLY = "electra", "transformers", "transformers-compiled", "transformers-chosen-only"
SIDES = (OURS, EAGER, COMPILED, CHOSEN_ONLY)
PASSED_ON = ("preset", "batch-size", "seq-len", "steps", "backend", "device", "precision")
MEGABYTES = 4  # of text, prepared; a vocabulary of 30,522 wants some


@dataclass(frozen=True)
class Case:
    """One set of sizes on prepared data, and what is measured of it."""

    config: PretrainConfig
    data: PreparedData
    steps: int
    """Steps of a turn."""
    rounds: int
    backend: str
    """Of torch.compile, for the compiled peer."""
    where: Runtime

    def model(self) -> PretrainingModel:
        tokenizer = load_tokenizer(self.data.tokenizer_path)
        model = build_model(self.config, tokenizer, torch.from_numpy(self.data.unigrams)).to(self.where.device)
        if self.config.training.compile:
            compile_layers(model, self.where.device)
        return model

    def loader(self) -> BatchLoader:
        return BatchLoader(
            self.data.train,
            batch_size=self.config.training.batch_size,
            micro_batch_size=rows_at_once(self.config, self.where),
            pad_id=load_tokenizer(self.data.tokenizer_path).pad_id,
            seed=self.config.seed,
        )


@dataclass
class Turns:
    """What the rounds gave, the first one, which warms up, left out."""

    seconds: dict[str, list[float]]
    tokens: list[int]
    places: list[int]
    """Tokens and padding."""
    flops: list[float]
    """Of our steps, counted as in Appendix E."""
    matmul: list[float]
    """FLOP/s of a large matrix product, the mean of just before our turn and just after it."""


def case_of(given: argparse.Namespace, data: PreparedData, where: Runtime) -> Case:
    """The preset as it is, but for the sizes given, and without logs."""
    training = TrainingConfig(
        given.batch_size,
        given.micro_batch_size,
        log_every=10**9,
        checkpoint_every=10**9,
        checkpoint_minutes=1e9,
        compile=given.compile,
    )
    config = replace(PRESETS[given.preset](), seq_len=given.seq_len, training=training)
    return Case(config, data, given.steps, given.rounds, given.backend, where)


def peers(case: Case, model: PretrainingModel, names: list[str]) -> dict[str, Callable[[], float]]:
    """The peers called `names`, with networks of the sizes of `model`."""
    if not set(names) - {OURS}:
        return {}
    from peer import PeerConfig, PeerStep  # only here: a process of our side alone does not import transformers

    setting = model.setting
    plain = PeerConfig(
        setting.main,
        generator_sizes(setting.main, setting.generator),
        setting.masking.fraction,
        setting.vocabulary,
        case.config.seq_len,
        learning_rate=case.config.optimizer.learning_rate,
    )
    configs = {
        EAGER: plain,
        COMPILED: replace(plain, backend=case.backend),
        CHOSEN_ONLY: replace(plain, chosen_only=True),
    }
    return {
        name: PeerStep(configs[name], case.loader().iterate(0), case.steps, case.where)
        for name in names
        if name != OURS
    }


def take_turns(case: Case, model: PretrainingModel, others: dict[str, Callable[[], float]]) -> Turns:
    """Our loop, which asks for batches, hands over to `others` after every `case.steps` of them."""
    turns = Turns({name: [] for name in (OURS, *others)}, [], [], [], [])

    def batches_from(first_step: int) -> Iterator[list[Batch]]:
        with closing(case.loader().iterate(first_step)) as batches:
            for _ in range(case.rounds + 1):
                tokens, places, flops = 0, 0, 0.0
                before = matmul_rate(case.where)
                case.where.synchronise()
                start = time.perf_counter()
                for _ in range(case.steps):
                    micro_batches = next(batches)
                    tokens += sum(int(batch.lengths.sum()) for batch in micro_batches)
                    places += sum(batch.input_ids.numel() for batch in micro_batches)
                    flops += sum(map(model.flops, micro_batches))
                    yield micro_batches
                case.where.synchronise()
                turns.seconds[OURS].append(time.perf_counter() - start)
                turns.tokens.append(tokens)
                turns.places.append(places)
                turns.flops.append(flops)
                turns.matmul.append(statistics.fmean([before, matmul_rate(case.where)]))
                for name, other in others.items():
                    turns.seconds[name].append(other())

    train(model, batches_from, case.config.recipe(), case.where, Unsaved(), Silent(), lambda: False)
    for measured in (*turns.seconds.values(), turns.tokens, turns.places, turns.flops, turns.matmul):
        del measured[0]
    return turns


def peak_of(side: str, case: Case) -> int:
    """Bytes that a round of one side takes at most, in a process that has done nothing else."""
    model = case.model()
    if side == OURS:
        take_turns(replace(case, rounds=0), model, {})
    else:
        step = peers(case, model, [side])[side]
        del model
        step()
    return torch.cuda.max_memory_allocated() if case.where.device.type == "cuda" else peak_memory()


def peaks_alone(given: argparse.Namespace, data: PreparedData, sides: list[str]) -> dict[str, int]:
    """`peak_of` each side, in a process of its own."""
    arguments = [f"--{name}={getattr(given, name.replace('-', '_'))}" for name in PASSED_ON]
    arguments += [f"--threads={torch.get_num_threads()}", f"--data={data.path}"]
    arguments += [f"--micro-batch-size={given.micro_batch_size}"] * (given.micro_batch_size is not None)
    arguments += ["--compile"] * given.compile
    return {side: in_own_process("pretrain_step.py", [*arguments, f"--peak-of={side}"]) for side in sides}


def summary(turns: Turns, share: float, peaks: dict[str, int]) -> dict[str, Any]:
    """Medians and ratios; `share` is the operations of the machine for each one of Appendix E's, padding aside."""
    rates = {
        name: [tokens / each for tokens, each in zip(turns.tokens, seconds, strict=True)]
        for name, seconds in turns.seconds.items()
    }
    appendix_e = statistics.median(
        flops / seconds / rate
        for flops, seconds, rate in zip(turns.flops, turns.seconds[OURS], turns.matmul, strict=True)
    )
    filled = sum(turns.tokens) / sum(turns.places)
    return {
        "tokens_per_second": {name: statistics.median(each) for name, each in rates.items()},
        "ratio": {name: ratio(rates[OURS], each) for name, each in rates.items() if name != OURS},
        "matmul_flops_per_second": statistics.median(turns.matmul),
        "utilisation": appendix_e * share * filled,
        "utilisation_by_appendix_e": appendix_e,
        "places_filled": filled,
        "peak_bytes": peaks,
        "rounds": rates,
    }


def marks_of(preset: str, found: dict[str, Any], where: Runtime) -> list[Mark]:
    """The marks that are set for a preset on a device."""
    ratios, utilisation = found["ratio"], found["utilisation"]
    limit = f"{preset}: share of the limit (all at the measured rate of a matrix product)"
    if where.device.type == "cpu":
        bounds = {EAGER: 2.5} if preset == "small" else {}
        limits = [Mark(limit, utilisation, 0.8)] if preset == "small" else []
    else:
        bounds = {EAGER: 6.0, COMPILED: 2.0} if preset == "small" else {}
        limits = [Mark(f"{limit}, by Appendix E", found["utilisation_by_appendix_e"], 0.45)] if preset == "base" else []
        if preset == "small":
            limits.append(Mark("small: tokens/s", found["tokens_per_second"][OURS], 3e6))
    return [Mark(f"{preset}: times {name}", ratios[name], bounds[name]) for name in bounds if name in ratios] + limits


def show(given: argparse.Namespace, found: dict[str, Any], where: Runtime) -> None:
    """Print the table."""
    print(f"{given.preset}, {given.batch_size} x {given.seq_len}, on {where.describe()}")
    print(f"{'':<26}{'tokens/s':>12}{'electra is':>12}{'peak memory':>14}")
    for name, rate in found["tokens_per_second"].items():
        times = f"{found['ratio'][name]:.2f} x" if name in found["ratio"] else ""
        peak = f"{found['peak_bytes'][name] / 1e6:,.0f} MB" if found["peak_bytes"] else ""
        print(f"{name:<26}{rate:>12,.0f}{times:>12}{peak:>14}")
    limit = found["tokens_per_second"][OURS] / found["utilisation"]
    print(
        f"{'limit':<26}{limit:>12,.0f}   at {found['matmul_flops_per_second'] / 1e9:,.0f} GFLOP/s of a matrix product"
    )
    print(
        f"share of the limit {found['utilisation']:.1%}; by Appendix E's own count {found['utilisation_by_appendix_e']:.1%}"
    )


def main(argv: list[str] | None = None) -> None:
    """Measure, print the table, write the JSON."""
    parser = options(__doc__)
    parser.add_argument("--preset", default="small", choices=PRESETS)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--micro-batch-size", type=int, help="of our side; by default what suits the device")
    parser.add_argument("--seq-len", type=int, default=128)
    parser.add_argument("--compile", action="store_true", help="have our layers compiled too")
    parser.add_argument("--steps", type=int, default=4, help="steps of a turn")
    parser.add_argument("--sides", nargs="+", default=list(SIDES), choices=SIDES, help="electra always takes part")
    parser.add_argument("--text", nargs="+", default=["builtin"], help="what the batches are made of")
    parser.add_argument("--megabytes", type=float, default=MEGABYTES, help="how much of the text")
    parser.add_argument("--backend", default="inductor", help="of torch.compile, for the compiled peer")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--precision", default="auto", choices=("auto", "float32", "bfloat16"))
    parser.add_argument("--threads", type=int)
    parser.add_argument("--data", type=Path, help="prepared before, of --seq-len")
    parser.add_argument("--no-memory", action="store_true", help="leave out peak memory, which needs a process a side")
    parser.add_argument("--peak-of", choices=SIDES, help="print the peak memory of this side alone, as JSON")
    given = parser.parse_args(argv)
    with (
        runtime(RuntimeConfig(given.device, given.precision, given.threads)) as where,
        tempfile.TemporaryDirectory() as folder,
    ):
        vocab_size = PRESETS[given.preset]().model.vocab_size
        data = (
            PreparedData.open(given.data)
            if given.data
            else prepared(Path(folder), given.text, given.megabytes, vocab_size, given.seq_len)
        )
        case = case_of(given, data, where)
        seed_everything(0)
        if given.peak_of:
            print(json.dumps(peak_of(given.peak_of, case)))
            return
        model = case.model()
        others = peers(case, model, given.sides)
        turns = take_turns(case, model, others)
        peaks = {} if given.no_memory else peaks_alone(given, data, [OURS, *others])
        found = summary(turns, model.utilised_share(given.seq_len), peaks)
        show(given, found, where)
        named = ("preset", "batch_size", "micro_batch_size", "seq_len", "steps", "compile")
        sizes = {name: getattr(given, name) for name in named}
        where_run = {"device": where.describe(), "precision": str(where.dtype).removeprefix("torch.")}
        name = f"pretrain_step_{given.preset}_{given.batch_size}x{given.seq_len}" + "_compiled" * given.compile
        name += f"_{given.precision}" * (given.precision != "auto")
        marks = marks_of(given.preset, found, where)
        report(
            f"{name}_{where.device.type}",
            given.out,
            marks,
            {"text": names_of(given.text)} | sizes | where_run | found,
            torch.get_num_threads(),
        )


if __name__ == "__main__":
    main()
