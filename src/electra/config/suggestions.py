"""Suggestions for an unknown option: the nearest name, or the replacement of another tool's option."""

import difflib
from collections.abc import Iterable, Sequence

MIN_SIMILARITY = 0.75
"""Minimum similarity (difflib's ratio) of a suggested name."""
MIN_LAST_PART_SIMILARITY = 0.8
"""Minimum similarity of the last part of a dotted name, which is shorter."""

RENAMED: dict[str, tuple[str, ...]] = {
    "lr": ("learning_rate", "optimizer.learning_rate"),
    "output_dir": ("out",),
    "output": ("out",),
    "save_dir": ("out",),
    "model_name_or_path": ("model", "init"),
    "model_name": ("model", "init"),
    "checkpoint": ("model", "init"),
    "pretrained": ("model", "init"),
    "per_device_train_batch_size": ("batch_size", "training.batch_size"),
    "train_batch_size": ("batch_size", "training.batch_size"),
    "num_train_epochs": ("epochs",),
    "num_epochs": ("epochs",),
    "max_steps": ("steps",),
    "num_steps": ("steps",),
    "num_train_steps": ("steps",),
    "max_seq_length": ("max_length", "seq_len"),
    "max_seq_len": ("max_length", "seq_len"),
    "max_length": ("seq_len",),
    "seq_length": ("max_length", "seq_len"),
    "seq_len": ("max_length",),
    "warmup_steps": ("schedule.warmup_steps", "warmup"),
    "warmup_ratio": ("warmup", "schedule.max_warmup"),
    "save_steps": ("training.checkpoint_every",),
    "logging_steps": ("training.log_every",),
    "num_workers": ("workers",),
    "num_proc": ("workers",),
    "train_file": ("train",),
    "validation_file": ("dev",),
    "test_file": ("test",),
    "mlm_probability": ("masking.fraction",),
    "mask_prob": ("masking.fraction",),
}
"""Option of another tool -> options of this package; the first one of the command is suggested."""

PRETRAIN, FINETUNE = ("pretrain",), ("finetune", "glue")
RUNS = ("prepare", *PRETRAIN, *FINETUNE, "study")
PRECISION, DEVICE = ("runtime.precision", "precision"), ("runtime.device", "device")

ANSWERS: tuple[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], str], ...] = (
    (
        ("resume", "resume_from", "resume_from_checkpoint"),
        RUNS,
        (),
        "to resume an interrupted run, run the same command again with the same --out",
    ),
    (
        ("extend", "continue", "more_steps"),
        PRETRAIN,
        (),
        "a finished run cannot be extended; continue from its weights in another run with --init RUN --out ANOTHER",
    ),
    (
        ("overwrite", "overwrite_output_dir", "force"),
        (*RUNS, "tokenizer"),
        (),
        "nothing is overwritten; delete the directory, or choose another --out",
    ),
    (("fp16", "half", "amp"), (), PRECISION, "float16 is not supported; use {} bfloat16"),
    (("bf16", "mixed_precision"), (), PRECISION, "use {} bfloat16"),
    (
        ("gpus", "gpu", "num_gpus", "n_gpu", "devices", "nproc", "nproc_per_node", "num_processes"),
        PRETRAIN,
        (),
        "for several GPUs run torchrun --nproc-per-node N -m electra pretrain …; CUDA_VISIBLE_DEVICES selects them",
    ),
    (
        ("gpus", "gpu", "num_gpus", "n_gpu", "devices"),
        (),
        DEVICE,
        "{} cuda uses one GPU; CUDA_VISIBLE_DEVICES selects it",
    ),
    (("cpu", "use_cpu", "no_cuda", "no_gpu"), (), DEVICE, "use {} cpu"),
    (("cuda", "use_cuda", "use_gpu"), (), DEVICE, "use {} cuda"),
    (
        ("epochs", "num_train_epochs", "num_epochs", "max_epochs"),
        PRETRAIN,
        (),
        "the length of pre-training is --steps, --hours or --flops; with --steps the number of epochs is printed",
    ),
    (
        ("steps", "max_steps", "num_train_steps", "hours"),
        FINETUNE,
        (),
        "the length of fine-tuning is --epochs, passes over the training examples",
    ),
    (
        ("class_weight", "pos_weight"),
        FINETUNE,
        ("class_weights",),
        "use {} balanced, or a number for each class",
    ),
    (
        ("gradient_accumulation_steps", "accumulate_grad_batches"),
        (),
        ("training.micro_batch_size",),
        "{} splits a batch into parts whose gradients are accumulated",
    ),
    (
        ("early_stopping_patience", "patience"),
        FINETUNE,
        ("early_stopping",),
        "use {} with the number of epochs without a better dev score",
    ),
    (
        ("load_best_model_at_end",),
        (),
        ("select",),
        "use {} best: it saves the weights of the epoch with the best dev score",
    ),
    (
        ("wandb", "report_to", "tensorboard", "logging_dir"),
        (*PRETRAIN, *FINETUNE),
        ("log_to",),
        "use {} tensorboard, wandb or trackio; metrics.jsonl in --out is always written",
    ),
    (
        ("text", "dataset", "corpus", "input"),
        ("tokenizer", "prepare", *PRETRAIN),
        (),
        "text is named without an option: files, folders, hf://owner/name, or builtin",
    ),
)
"""Options of other tools without counterpart: their names; commands (empty: all); options of which the command must have one
(the first replaces {}); the answer."""


def format_flag(name: str) -> str:
    """Format the option of a field: `--model.hidden-size` for `model.hidden_size`."""
    return "--" + name.replace("_", "-")


def suggest_option(name: str, names: Sequence[str], command: str) -> str:
    """Suggest a replacement for an unknown option.

    Args:
        name: Given name, with underscores.
        names: Existing options, with underscores.
        command: Command, such as `pretrain`.
    """
    for others, commands, options, answer in ANSWERS:
        found = next((each for each in options if each in names), None)
        if name in others and (not commands or command in commands) and (not options or found):
            return answer.format(format_flag(found or ""))
    nearest = next((each for each in RENAMED.get(name, ()) if each in names), None) or find_nearest(name, names)
    return f"did you mean {format_flag(nearest)}?" if nearest else "--help lists all options"


def find_nearest(name: str, names: Sequence[str]) -> str | None:
    """Find the most similar name; None if none is similar enough."""
    last = name.rpartition(".")[2]
    if abbreviated := [each for each in names if get_initials(each) == last]:
        return abbreviated[0]
    by_last = {each.rpartition(".")[2]: each for each in reversed(names)}
    near = [each for each in names if each.rpartition(".")[2] == last]
    near += difflib.get_close_matches(name, names, cutoff=MIN_SIMILARITY)
    near += [by_last[each] for each in difflib.get_close_matches(last, list(by_last), cutoff=MIN_LAST_PART_SIMILARITY)]
    return max(near, key=lambda each: difflib.SequenceMatcher(None, name, each).ratio(), default=None)


def get_initials(name: str) -> str | None:
    """Return `lr` for `optimizer.learning_rate`; None for a name without underscores."""
    words = name.rpartition(".")[2].split("_")
    return "".join(word[:1] for word in words) if len(words) > 1 else None


def suggest_value(name: str, value: str, many: bool = False) -> str:
    """Return a hint for the message about a wrong value, or an empty string.

    Args:
        name: Option, with underscores.
        value: Its value, or one of its values.
        many: Whether the option has several values.
    """
    if name.rpartition(".")[2] == "device" and value.startswith("cuda:"):
        return f"; to select a GPU, set CUDA_VISIBLE_DEVICES={value.removeprefix('cuda:')} and use cuda"
    if many and "," in value:
        values = " ".join(value.replace(",", " ").split())
        return f"; separate the values by spaces: {format_flag(name)} {values}" if values else ""
    return ""


def suggest_choice(value: str, choices: Iterable[str]) -> str:
    """Return `; did you mean large?` if a choice is similar to the value, otherwise an empty string."""
    near = difflib.get_close_matches(value[:100], list(choices), n=1)
    return f"; did you mean {near[0]}?" if near else ""
