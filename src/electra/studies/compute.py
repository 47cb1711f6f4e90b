"""Cost of an update: FLOPs by formula, time by measurement."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import torch

from electra.data.batch import Batch
from electra.data.loader import pad_batch
from electra.execution import enable_kernels
from electra.finetuning.batching import LabeledBatch
from electra.finetuning.classification.heads import TextClassificationHead
from electra.finetuning.model import FinetunedModel
from electra.finetuning.recipe import choose_pooling
from electra.model.encoder import Encoder, EncoderConfig
from electra.model.flops import Cost
from electra.model.initialization import initialize
from electra.pretraining.build import build_meta_model, build_model
from electra.pretraining.config import PretrainConfig
from electra.pretraining.execution import resolve_micro_batch_size
from electra.pretraining.stages.two_stage import configure_stage_one
from electra.runtime.setup import Runtime, RuntimeConfig, start_runtime
from electra.text.tokenizer import SPECIAL_TOKENS, Normalization, Tokenizer
from electra.train.optimizer import OptimizerConfig, build_optimizer

MAX_TIMED_FLOPS = 1e11
"""Most FLOPs of a batch that is timed on a CPU: seconds on a slow core. On a GPU only full batches reach its throughput."""
REPETITIONS, MIN_SECONDS = 7, 2.0


@dataclass(frozen=True)
class Step:
    """One update."""

    flops: float
    seconds: float


@lru_cache
def compute_step_flops(config: PretrainConfig) -> float:
    """Compute the mean FLOPs of an update on full rows (Appendix E), over the run and over the updates of two stages."""
    stages = list_training_stages(config)
    return config.training.batch_size * sum(
        share * build_meta_model(stage).mean_row_flops(config.seq_len) for stage, share in stages
    )


@lru_cache
def compute_look_up_share(config: PretrainConfig) -> float:
    """Compute the share of `compute_step_flops` that are embedding look-ups, which hardware does not compute."""
    return compute_share_of_flops(config, lambda cost: cost.look_ups)


@lru_cache
def compute_hardware_share(config: PretrainConfig) -> float:
    """Compute the ratio of hardware operations to `compute_step_flops`: no look-ups, a backward pass of two forward passes."""
    return compute_share_of_flops(config, lambda cost: cost.utilized)


def compute_share_of_flops(config: PretrainConfig, count: Callable[[Cost], int]) -> float:
    """Compute the ratio of another count of an update's operations to its FLOPs."""
    costs = [
        (share, cost)
        for stage, share in list_training_stages(config)
        for cost in build_meta_model(stage).mean_row_costs(config.seq_len).values()
    ]
    return sum(share * count(cost) for share, cost in costs) / sum(share * cost.flops for share, cost in costs)


def list_training_stages(config: PretrainConfig) -> list[tuple[PretrainConfig, float]]:
    """List what a run trains in sequence, with its share of the updates; see `electra.pretraining.stages.two_stage`."""
    if not config.stage:
        return [(config, 1.0)]
    first = config.stage_one_share or 0.5
    return [(configure_stage_one(config), first), (config, 1 - first)]


def measure_step(config: PretrainConfig) -> Step:
    """Time an update on random full rows; for two stages, the mean over the updates of both."""
    with start_runtime(config.runtime) as runtime:
        stages = list_training_stages(config)
        seconds = sum(share * measure_step_seconds(stage, runtime) for stage, share in stages)
    return Step(compute_step_flops(config), seconds)


def measure_step_seconds(config: PretrainConfig, runtime: Runtime) -> float:
    """Measure the seconds of an update in the middle of a run; for a large batch, time a part and scale."""
    tokens = (f"token{i}" for i in range(config.model.vocab_size - len(SPECIAL_TOKENS)))  # any strings
    tokenizer = Tokenizer((*SPECIAL_TOKENS, *tokens), Normalization())
    model = build_model(config, tokenizer, torch.ones(tokenizer.vocab_size, dtype=torch.long)).to(runtime.device)
    enable_kernels(model, runtime)
    model.set_progress(0.5)
    rows = count_timed_rows(resolve_micro_batch_size(config, runtime), float(model.row_flops(config.seq_len)), runtime)
    batch = random_batch(rows, config.seq_len, config.model.vocab_size)
    counts = model.counts(batch)
    optimizer = build_optimizer(model.named_parameters(), config.optimizer)

    def forward_backward() -> None:
        with runtime.autocast():
            loss, _ = model(batch.to(runtime.device), counts)
        loss.backward()

    seconds = measure_median_seconds(forward_backward, runtime) * config.training.batch_size / rows
    return seconds + measure_median_seconds(optimizer.step, runtime)


def measure_finetuning_step(model: EncoderConfig, length: int, batch_size: int, device: RuntimeConfig) -> float:
    """Measure the seconds of a fine-tuning update on rows of `length`."""
    with start_runtime(device) as runtime:
        encoder = Encoder(model)
        initialize(encoder, model.initializer_range)
        pooling = choose_pooling(None, model)
        head = TextClassificationHead("classification", model.hidden_size, 2, 0.1, pooling=pooling)
        module = FinetunedModel(encoder, head).to(runtime.device)
        enable_kernels(module, runtime)
        optimizer = build_optimizer(module.named_parameters(), OptimizerConfig())
        rows = count_timed_rows(batch_size, module.flops(labeled_batch(1, length, model.vocab_size)), runtime)
        batch = labeled_batch(rows, length, model.vocab_size).to(runtime.device)

        def forward_backward() -> None:
            with runtime.autocast():
                loss, _ = module(batch, {"examples": float(rows)})
            loss.backward()

        seconds = measure_median_seconds(forward_backward, runtime) * batch_size / rows
        return seconds + measure_median_seconds(optimizer.step, runtime)


def count_timed_rows(rows: int, row_flops: float, runtime: Runtime) -> int:
    """Return how many of a micro-batch's rows to time."""
    return max(1, min(rows, int(MAX_TIMED_FLOPS / row_flops))) if runtime.device.type == "cpu" else rows


def measure_median_seconds(work: Callable[[], object], runtime: Runtime) -> float:
    """Measure the median seconds of repetitions after a warm-up."""
    work()
    times: list[float] = []
    while len(times) < REPETITIONS and sum(times) < MIN_SECONDS:
        runtime.synchronize()
        start = time.perf_counter()
        work()
        runtime.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def random_batch(rows: int, length: int, vocab_size: int) -> Batch:
    """Build a batch of full rows of random tokens, none of them special."""
    ids = torch.randint(len(SPECIAL_TOKENS), vocab_size, (rows, length)).numpy()
    batch = pad_batch(list(ids), [length // 2] * rows, pad_id=0)
    return replace(batch, keys=torch.arange(rows))


def labeled_batch(rows: int, length: int, vocab_size: int) -> LabeledBatch:
    """Build a random batch with a label per row."""
    return LabeledBatch(random_batch(rows, length, vocab_size), {"label": torch.zeros(rows, dtype=torch.long)})
