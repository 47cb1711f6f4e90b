"""BERT by Hugging Face's Trainer, the peer of the speedrun: the same text, tokenizer and body, masked by its own collator."""

import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from torch.utils.data import Dataset
from transformers import (
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    ElectraConfig,
    ElectraForMaskedLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from electra.data.shards import ExampleSet, PreparedData
from electra.runtime.setup import RuntimeConfig, start_runtime

MAX_STEPS = 10**7
"""More updates than any budget allows; the time ends the training."""
LOG_EVERY = 100


class Examples(Dataset):
    """Prepared examples as the Trainer reads them."""

    def __init__(self, examples: ExampleSet) -> None:
        self.examples = examples

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        (example,) = self.examples.rows([index])
        return {
            "input_ids": example.ids.tolist(),
            "token_type_ids": [int(place >= example.segment_a) for place in range(len(example.ids))],
        }


class Deadline(TrainerCallback):
    """End the training when the time is over."""

    def __init__(self, hours_left: Callable[[], float]) -> None:
        self.hours_left = hours_left

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Stop at the end of the time."""
        control.should_training_stop = self.hours_left() <= 0


def build_scheduler(optimizer: torch.optim.Optimizer, hours_left: Callable[[], float]) -> Any:
    """Build warm-up over a tenth of the time and linear decay to zero at its end."""
    whole = hours_left()

    def get_factor(step: int) -> float:
        done = 1 - hours_left() / whole
        return min(done / 0.1, max(0.0, (1 - done) / 0.9))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, get_factor)


def train(
    data: Path, tokenizer: Path, out: Path, hours_left: Callable[[], float], sizes: dict[str, Any], rate: float
) -> dict[str, Any]:
    """Train until no hours are left; save `out`/masked_lm, and return FLOPs, tokens, hardware and versions.

    `sizes` are arguments of `ElectraConfig`: BERT is ELECTRA's encoder with a masked-LM head. The FLOPs are the Trainer's
    count, 6 per parameter and token, which is not that of Appendix E.
    """
    transformers.set_seed(0)
    prepared, words = PreparedData.open(str(data)), AutoTokenizer.from_pretrained(tokenizer)
    model = ElectraForMaskedLM(ElectraConfig(vocab_size=len(words), pad_token_id=words.pad_token_id, **sizes))
    arguments = TrainingArguments(
        str(out / "trainer"), max_steps=MAX_STEPS, per_device_train_batch_size=32, learning_rate=rate, weight_decay=0.01,
        logging_steps=LOG_EVERY, save_strategy="no", report_to="none", use_cpu=True, disable_tqdm=True, seed=0,
        include_num_input_tokens_seen="non_padding",
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, eps=1e-6, weight_decay=0.01)
    trainer = Trainer(
        model,
        arguments,
        DataCollatorForLanguageModeling(words),
        Examples(prepared.train),
        callbacks=[Deadline(hours_left)],
        optimizers=(optimizer, build_scheduler(optimizer, hours_left)),
    )
    trainer.train()
    directory = out / "masked_lm"
    model.save_pretrained(directory)
    words.save_pretrained(directory)
    with start_runtime(RuntimeConfig("cpu", "float32")) as runtime:
        hardware = runtime.describe()
    return {
        "flops": float(trainer.state.total_flos),
        "tokens": int(trainer.state.num_input_tokens_seen),
        "hardware": hardware,
        "versions": {
            "transformers": transformers.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }
