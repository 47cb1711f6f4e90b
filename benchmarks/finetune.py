"""Examples per second of fine-tuning, against Hugging Face's `Trainer`: same model, data, batch size and precision.

    python benchmarks/finetune.py --data GLUE_FOLDER [--model DIR] [--steps 40] [--rounds 5] [--threads 2]

Both sides train the same encoder on the same tokenised examples of SST-2 and RTE in batches of 32 with AdamW, clipping and
dropout. Ours buckets by length and pads to the batch; Trainer runs as its users run it: shuffled, with the collator that
pads to the longest of a batch, without evaluation, logging and saving. The two sides alternate in one process, so that
other work on the machine hits both; the table gives medians over the rounds and their ratio. The mark is 2 x.
"""

import argparse
import json
import platform
import statistics
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import torch
import transformers
from transformers import (
    DataCollatorWithPadding,
    ElectraConfig,
    ElectraForSequenceClassification,
    Trainer,
    TrainingArguments,
)

import electra
from electra.finetuning.features import FeatureLoader, Features
from electra.finetuning.glue import glue_task
from electra.finetuning.model import FinetunedModel
from electra.finetuning.sentences import SentenceTask
from electra.model.encoder import Encoder, EncoderConfig, initialise
from electra.presets import small
from electra.runtime import Runtime, cpu_name
from electra.text.tokenizer import Tokenizer, load_tokenizer
from electra.train.checkpoint import Checkpoints, TrainingState
from electra.train.loop import Recipe, TrainingConfig, train
from electra.train.optimizer import OptimizerConfig
from electra.train.schedule import Budget, ScheduleConfig

MARK = 2.0
BATCH = 32


class Silent:
    """An observer that says nothing."""

    def started(self, state: TrainingState) -> None: ...

    def stepped(self, state: TrainingState) -> None: ...

    def logged(self, state: TrainingState, metrics: dict[str, float]) -> None: ...


def ours(task: SentenceTask, features: Features, sizes: EncoderConfig, steps: int, seed: int) -> float:
    """Seconds of `steps` steps of our loop."""
    model = FinetunedModel(Encoder(sizes), task.head(sizes))
    initialise(model.encoder)
    loader = FeatureLoader(features, batch_size=BATCH, pad_id=0, seed=seed)
    recipe = Recipe(
        Budget(steps=steps),
        TrainingConfig(batch_size=BATCH, log_every=steps, checkpoint_every=10**9, checkpoint_minutes=1e9),
        OptimizerConfig(learning_rate=1e-4),
        ScheduleConfig(),
        seed,
    )
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(Path(folder), 1, print)
        checkpoints.save = lambda *_: Path(folder)  # Trainer does not save either
        where = Runtime(torch.device("cpu"), torch.float32)
        start = time.perf_counter()
        train(model, loader.iterate, recipe, where, checkpoints, Silent(), lambda: False)
        return time.perf_counter() - start


def theirs(
    tokenizer: transformers.PreTrainedTokenizerBase, features: Features, sizes: EncoderConfig, steps: int, seed: int
) -> float:
    """Seconds of `steps` steps of Trainer."""
    config = ElectraConfig(
        vocab_size=sizes.vocab_size,
        embedding_size=sizes.embedding_size,
        hidden_size=sizes.hidden_size,
        num_hidden_layers=sizes.num_layers,
        num_attention_heads=sizes.num_heads,
        intermediate_size=sizes.ffn_size,
        num_labels=2,
    )
    labels = features.targets["label"]
    rows = [
        {
            "input_ids": list(ids),
            "token_type_ids": [0] * a + [1] * (len(ids) - a),
            "attention_mask": [1] * len(ids),
            "labels": int(labels[i]),
        }
        for i, (ids, a) in enumerate(zip(features.ids, features.segment_a, strict=True))
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
    name: str, data: str, tokenizer: Tokenizer, stock: transformers.PreTrainedTokenizerBase, options: SimpleNamespace
) -> dict:
    """Both sides in turn; examples per second of each round."""
    task = glue_task(name, data, tokenizer)
    features = task.features("train")
    sizes = options.sizes
    seconds: dict[str, list[float]] = {"electra": [], "Trainer": []}
    for round_number in range(options.rounds + 1):  # the first one warms up
        for side in seconds:
            seed = max(round_number, 1)
            if side == "electra":
                elapsed = ours(task, features, sizes, options.steps, seed)
            else:
                elapsed = theirs(stock, features, sizes, options.steps, seed)
            if round_number:
                seconds[side].append(elapsed)
    rates = {side: [options.steps * BATCH / each for each in times] for side, times in seconds.items()}
    ratio = statistics.median(a / b for a, b in zip(rates["electra"], rates["Trainer"], strict=True))
    return {
        "task": name,
        "median_tokens": statistics.median(map(len, features.ids)),
        "examples_per_second": {side: statistics.median(each) for side, each in rates.items()},
        "rounds": rates,
        "ratio": ratio,
        "mark": MARK,
        "met": ratio >= MARK,
    }


def main() -> None:
    """Measure, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="folder in GLUE's layout")
    parser.add_argument("--tokenizer", required=True, help="tokenizer directory")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--tasks", nargs="+", default=["sst2", "rte"])
    parser.add_argument("--out", default=str(Path(__file__).parent / "results" / "finetune.json"))
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    transformers.logging.set_verbosity_error()
    tokenizer, stock = load_tokenizer(given.tokenizer), transformers.AutoTokenizer.from_pretrained(given.tokenizer)
    base = small().model
    sizes = EncoderConfig(**{**vars(base), "vocab_size": tokenizer.vocab_size, "num_layers": given.layers})
    options = SimpleNamespace(steps=given.steps, rounds=given.rounds, sizes=sizes)
    rows = [measure(name, given.data, tokenizer, stock, options) for name in given.tasks]
    print(f"{'task':<8}{'electra':>12}{'Trainer':>12}{'ratio':>8}   (examples/s; the mark is {MARK:g} x)")
    for row in rows:
        rate = row["examples_per_second"]
        verdict = "" if row["met"] else "   BELOW THE MARK"
        print(f"{row['task']:<8}{rate['electra']:>12.1f}{rate['Trainer']:>12.1f}{row['ratio']:>8.2f}{verdict}")
    result = {
        "machine": cpu_name(),
        "threads": given.threads,
        "versions": {
            "electra": electra.__version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "python": platform.python_version(),
        },
        "model": f"ELECTRA-Small, {given.layers} layers",
        "batch": BATCH,
        "steps": given.steps,
        "rows": rows,
    }
    Path(given.out).parent.mkdir(parents=True, exist_ok=True)
    Path(given.out).write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
