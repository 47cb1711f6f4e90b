"""Examples per second of fine-tuning, against Hugging Face's `Trainer`: same model, data, batch size and precision.

    python benchmarks/finetune.py --data GLUE_FOLDER --tokenizer DIR [--steps 40] [--rounds 5] [--threads 2]

Both sides train the same encoder on the same tokenized examples of SST-2 and RTE in batches of 32 with AdamW, clipping and
dropout. Ours buckets by length and pads to the longest of a batch; Trainer runs as its users run it: shuffled, with the
collator that pads to the longest of a batch, without evaluation, logging and saving. The two sides alternate in one process,
so other work on the machine affects both; the table has medians over the rounds and their ratio. Target: 2 x.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import torch
import transformers
from measuring import Mark, build_parser, compute_median_ratio, report, run_interleaved
from peer import build_hf_config
from quiet_loop import Unsaved
from transformers import (
    DataCollatorWithPadding,
    ElectraForSequenceClassification,
    Trainer,
    TrainingArguments,
)

from electra.execution import enable_kernels
from electra.finetuning.batching import BatchLoader, EncodedExamples
from electra.finetuning.classification.glue import load_glue_task
from electra.finetuning.classification.task import TextClassification
from electra.finetuning.model import FinetunedModel
from electra.model.encoder import Encoder, EncoderConfig
from electra.model.initialization import initialize
from electra.presets import small
from electra.runtime.setup import Runtime
from electra.text.tokenizer import Tokenizer, load_tokenizer
from electra.train.config import Recipe, TrainingConfig
from electra.train.loop import train
from electra.train.optimizer import OptimizerConfig
from electra.train.schedule import Budget, ScheduleConfig

MARK = 2.0
BATCH = 32


def run_ours(task: TextClassification, examples: EncodedExamples, sizes: EncoderConfig, steps: int, seed: int) -> float:
    """Measure the seconds of `steps` steps of our loop."""
    model = FinetunedModel(Encoder(sizes), task.build_head(sizes))
    initialize(model.encoder)
    runtime = Runtime(torch.device("cpu"), torch.float32, kernels=True)
    enable_kernels(model, runtime)
    loader = BatchLoader(examples, batch_size=BATCH, pad_id=0, seed=seed)
    recipe = Recipe(
        Budget(steps=steps),
        TrainingConfig(batch_size=BATCH, log_every=steps, checkpoint_every=10**9, checkpoint_minutes=1e9),
        OptimizerConfig(learning_rate=1e-4),
        ScheduleConfig(),
        (seed,),
    )
    start = time.perf_counter()
    # without checkpoints, as Trainer
    train(model, loader.iterate, recipe, runtime, Unsaved(), [], lambda: False)
    return time.perf_counter() - start


def run_trainer(
    tokenizer: transformers.PreTrainedTokenizerBase,
    examples: EncodedExamples,
    sizes: EncoderConfig,
    steps: int,
    seed: int,
) -> float:
    """Measure the seconds of `steps` steps of Trainer."""
    config = build_hf_config(sizes)  # of two labels
    labels = examples.targets["label"]
    rows = [
        {
            "input_ids": list(ids),
            "token_type_ids": [0] * a + [1] * (len(ids) - a),
            "attention_mask": [1] * len(ids),
            "labels": int(labels[i]),
        }
        for i, (ids, a) in enumerate(zip(examples.input_ids, examples.segment_a, strict=True))
    ]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=steps,
            per_device_train_batch_size=BATCH,
            learning_rate=1e-4,
            seed=seed,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        trainer = Trainer(
            ElectraForSequenceClassification(config),
            arguments,
            data_collator=DataCollatorWithPadding(tokenizer),
            train_dataset=rows,
        )
        start = time.perf_counter()
        trainer.train()
        return time.perf_counter() - start


def measure(
    name: str, data: str, tokenizer: Tokenizer, stock: transformers.PreTrainedTokenizerBase, given: SimpleNamespace
) -> dict:
    """Measure both sides alternately, in examples per second by round."""
    task = load_glue_task(name, data, tokenizer)
    examples = task.encode("train")

    def seeded(side: Callable[[int], float]) -> Callable[[], float]:
        seeds = count()
        return lambda: side(next(seeds))

    sides = {
        "electra": seeded(lambda seed: run_ours(task, examples, given.sizes, given.steps, seed)),
        "Trainer": seeded(lambda seed: run_trainer(stock, examples, given.sizes, given.steps, seed)),
    }
    seconds = run_interleaved(sides, given.rounds)
    rates = {side: [given.steps * BATCH / each for each in times] for side, times in seconds.items()}
    return {
        "task": name,
        "median_tokens": statistics.median(map(len, examples.input_ids)),
        "examples_per_second": {side: statistics.median(each) for side, each in rates.items()},
        "rounds": rates,
        "ratio": compute_median_ratio(rates["electra"], rates["Trainer"]),
    }


def main(argv: list[str] | None = None) -> None:
    """Measure, print the table, write the JSON."""
    parser = build_parser(__doc__)
    parser.add_argument("--data", required=True, help="folder in GLUE's layout")
    parser.add_argument("--tokenizer", required=True, help="tokenizer directory")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--steps", type=int, default=40, help="steps per turn")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--tasks", nargs="+", default=["sst2", "rte"])
    given = parser.parse_args(argv)
    torch.set_num_threads(given.threads)
    transformers.logging.set_verbosity_error()
    tokenizer, stock = load_tokenizer(given.tokenizer), transformers.AutoTokenizer.from_pretrained(given.tokenizer)
    sizes = replace(small().model, vocab_size=tokenizer.vocab_size, num_layers=given.layers)
    chosen = SimpleNamespace(steps=given.steps, rounds=given.rounds, sizes=sizes)
    rows = [measure(name, given.data, tokenizer, stock, chosen) for name in given.tasks]
    print(f"{'task':<8}{'electra':>12}{'Trainer':>12}{'ratio':>8}   (examples/s)")
    for row in rows:
        rate = row["examples_per_second"]
        print(f"{row['task']:<8}{rate['electra']:>12.1f}{rate['Trainer']:>12.1f}{row['ratio']:>8.2f}")
    marks = [Mark(f"{row['task']}: times Trainer", row["ratio"], MARK) for row in rows]
    result = {"model": f"ELECTRA-Small, {given.layers} layers", "batch": BATCH, "steps": given.steps, "rows": rows}
    report("finetune", given.out, marks, result, given.threads)


if __name__ == "__main__":
    main()
