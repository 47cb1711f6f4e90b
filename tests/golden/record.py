"""Golden traces: 20 steps of losses and gradient norms for every objective and every fine-tuning task, as text.

    PYTHONPATH=tests python -m golden.record     writes tests/golden/traces/NAME.txt; `git diff` shows what has changed

Float32 on one CPU thread, without CPU kernels. A refactor leaves every digit as it is on the same machine; another
processor rounds differently, which `test_traces.py` allows for.
"""

import random
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from support import toy_tasks
from support.toy import TINY_RUN, sentences

import electra
from electra.finetuning import run as finetuning
from electra.finetuning.qa.config import SpanConfig
from electra.finetuning.registry import TASKS
from electra.runtime.setup import RuntimeConfig
from electra.train.config import Recipe
from electra.train.metrics_log import read_metrics
from electra.train.schedule import Budget

TRACES = Path(__file__).parent / "traces"
STEPS = 20
RUNTIME = {"device": "cpu", "threads": 1, "kernels": False}
LOSS = "_loss"
"""End of the names of the metrics that are losses."""

REFERENCE = {
    "masking": {"with_replacement": True, "mlm_mask": 0.85, "mlm_random": 0.0},
    "training": {"means": "local"},
    "optimizer": {"bias_correction": False},
    "schedule": {"kind": "linear-product"},
}
"""What `electra.presets.reference` sets."""

NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}
PRETRAINING: dict[str, dict[str, Any]] = {
    "electra": {},
    "electra-dropout": {"model": {}},
    "electra-15": {"objective": "electra-15"},
    "electra-other-15": {"objective": "electra-other-15"},
    "replace-mlm": {"objective": "replace-mlm"},
    "all-tokens-mlm": {"objective": "all-tokens-mlm"},
    "all-tokens-mlm-without-copy": {"objective": "all-tokens-mlm", "copy": False},
    "mlm": {"objective": "mlm"},
    "electra-unigram": {"generator": {"kind": "unigram"}},
    "electra-uniform": {"generator": {"kind": "uniform"}},
    "electra-adversarial": {"generator": {"training": "adversarial"}},
    "electra-tying-all": {"generator": {"tying": "all", "size": 1.0}},
    "electra-tying-none": {"generator": {"tying": "none"}},
    "electra-other-than-original": {"generator": {"exclude_original_token": True, "temperature": 1.5}},
    "electra-contrast": {"contrast": {"weight": 1.0}},
    "electra-token-prediction": {"token_prediction": {"masked": 1.0, "filled": 1.0}},
    "electra-sequence-contrast": {"sequence_contrast": {"weight": 1.0}},
    "corrective-lm": {"objective": "corrective-lm"},
    "electric": {"objective": "electric"},
    "electric-unigram": {"objective": "electric-unigram"},
    "electra-hard-masking": {"masking": {"strategy": "hard"}},
    "electra-rare-masking": {"masking": {"strategy": "rare"}},
    "electra-length-warmup": {"length_warmup": {"steps": 10, "length": 12}},
    "electra-two-stage": {"procedure": "two-stage", "generator": {"size": 1.0}, "steps": 2 * STEPS},
    "electra-reference": REFERENCE,
    "mlm-reference": {"objective": "mlm", **REFERENCE},
}
"""What each run differs in from `toy.TINY_RUN` without dropout, whose draws may change where losses do not."""

FINETUNING: dict[str, dict[str, Any]] = {
    **{task: {"data": "glue"} for task in ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli", "ax")},
    "sst2-dropout": {"task": "sst2", "data": "glue", "dropout": 0.1},
    "wnli-candidates": {"data": "glue"},
    "squad1": {"train": "answered.json", "dev": "answered.json"},
    "squad2": {"train": "questions.json", "dev": "questions.json"},
    "squad2-plain": {
        "task": "squad2",
        "train": "questions.json",
        "dev": "questions.json",
        "span": SpanConfig(head="plain"),
    },
    "mrqa": {"train": "mrqa.jsonl", "dev": "mrqa.jsonl"},
    "multiple-choice": {"train": "choices.jsonl"},
    "chunk": {"data": "chunk"},
    "ner": {"train": "chunk/train.txt", "dev": "chunk/test.txt"},
    "pos": {"train": "pos.txt", "dev": "pos.txt"},
    "tagging": {"train": "pos.txt"},
    "table": {"train": "table.jsonl", "text": "text", "label": "label"},
    "table-multilabel": {
        "task": "table",
        "train": "several.jsonl",
        "text": "text",
        "label": "label",
        "kind": "multilabel",
    },
    "table-regression": {
        "task": "table",
        "train": "scores.jsonl",
        "text": "text",
        "label": "label",
        "kind": "regression",
    },
}
"""Options of each run beside those of `toy_tasks.finetune_settings`; files lie in the folder of `write_tasks`."""


def pretraining_trace(name: str, folder: Path) -> str:
    """The trace of a pre-training run, with the text and the run in `folder`."""
    text = folder / "text.txt"
    if not text.exists():
        text.write_text(sentences(150))
    given = {"steps": STEPS, "model": NO_DROPOUT} | PRETRAINING[name] | {"runtime": RUNTIME}
    sections = {key: {**TINY_RUN.get(key, {}), **value} for key, value in given.items() if isinstance(value, dict)}
    out = folder / name
    electra.pretrain(str(text), out=str(out), **{**TINY_RUN, **given, **sections})
    stages = [out / "first-stage/metrics.jsonl", out / "metrics.jsonl"]
    return "".join(read_trace(file) for file in stages if file.exists())


def finetuning_trace(name: str, folder: Path) -> str:
    """The trace of a fine-tuning run, with the model, the task's files and the run in `folder`."""
    if not (folder / "model").exists():
        toy_tasks.save_model(folder / "model")
        write_tasks(folder)
    given = {"task": name, "epochs": 100.0, "learning_rate": 1e-3, "layerwise_decay": 0.8, "dropout": 0.0}
    given |= FINETUNING[name]
    given |= {"pooling": "cls"} if "pooling" in TASKS[given["task"]].options else {}
    paths = {key: str(folder / given[key]) for key in ("data", "train", "dev") if key in given}
    config = toy_tasks.finetune_settings(
        folder / "model", **{**given, **paths}, runtime=RuntimeConfig(device="cpu", threads=1, kernels=False)
    )
    with mock.patch.object(finetuning, "build_recipe", partial(short_recipe, finetuning.build_recipe)):
        finetuning.finetune(config, folder / name)
    return read_trace(folder / name / "seed-0/metrics.jsonl")


def short_recipe(build_recipe: Callable[[Any], Recipe], run: Any) -> Recipe:
    """The recipe of a fine-tuning run, for `STEPS` steps that are all logged."""
    recipe = build_recipe(run)
    return replace(recipe, budget=Budget(steps=STEPS), training=replace(recipe.training, log_every=1))


def write_tasks(folder: Path) -> None:
    """The files of `FINETUNING`."""
    glue = toy_tasks.write_glue(folder / "glue", rows=16)
    toy_tasks.write_wnli(glue)
    draw = random.Random(7)
    for split, number in (("train", 16), ("dev", 8), ("test", 8)):
        cola, qqp, qnli = [], [], []
        for i in range(number):
            text, kind = toy_tasks.sentence(draw)
            first, second, same = toy_tasks.pair(draw)
            verdict = "entailment" if same else "not_entailment"
            labeled = split != "test"
            cola.append(f"gj04\t{int(kind)}\t\t{text}" if labeled else f"{i}\t{text}")
            qqp.append(f"{i}\t1\t2\t{first}\t{second}\t{int(same)}" if labeled else f"{i}\t{first}\t{second}")
            qnli.append(f"{i}\t{first}\t{second}" + (f"\t{verdict}" if labeled else ""))
        toy_tasks.write_tsv(glue / "CoLA" / f"{split}.tsv", cola[0] if labeled else "index\tsentence", cola[labeled:])
        toy_tasks.write_tsv(
            glue / "QQP" / f"{split}.tsv", "id\tqid1\tqid2\tq1\tq2\tlabel" if labeled else "id\tq1\tq2", qqp
        )
        toy_tasks.write_tsv(glue / "QNLI" / f"{split}.tsv", "index\tq\ts\tlabel" if labeled else "index\tq\ts", qnli)
    toy_tasks.write_questions(folder / "answered.json", 16, 1)
    toy_tasks.write_questions(folder / "questions.json", 16, 1, impossible=True)
    context, paragraphs = "the cat likes mice .", []
    for i, answer in enumerate(["cat", "mice", "likes"] * 4):
        start = context.index(answer)
        detected = [{"text": answer, "char_spans": [[start, start + len(answer) - 1]]}]
        qa = {"qid": f"q{i}", "question": "is good", "detected_answers": detected, "answers": [answer]}
        paragraphs.append({"context": context, "qas": [qa]})
    toy_tasks.write_jsonl(folder / "mrqa.jsonl", paragraphs)
    toy_tasks.write_choices(folder / "choices.jsonl", 32, 1)
    toy_tasks.write_conll(folder / "chunk/train.txt", 16, 1)
    toy_tasks.write_conll(folder / "chunk/test.txt", 8, 2)
    toy_tasks.write_neighbors(folder / "pos.txt", 16, 1)
    examples = [toy_tasks.sentence(draw) for _ in range(32)]
    toy_tasks.write_jsonl(folder / "table.jsonl", [{"text": text, "label": str(kind)} for text, kind in examples])
    toy_tasks.write_jsonl(
        folder / "several.jsonl",
        [{"text": text, "label": ["kind"] * kind + ["very"] * ("very" in text)} for text, kind in examples],
    )
    toy_tasks.write_jsonl(folder / "scores.jsonl", [{"text": text, "label": 1.5 * kind} for text, kind in examples])


def read_trace(file: Path) -> str:
    """The lines of a trace out of a run's `metrics.jsonl`: the total loss, all losses and the gradient norm."""
    rows = list(read_metrics(file))
    losses = [name for name in rows[0] if name.endswith(LOSS) and name != "weighted_loss"]
    losses.sort(key=lambda name: name != "generator_loss")  # the first one, if there is a generator
    metrics = ["loss", *losses, "gradient_norm"]
    lines = [" ".join(["step", *(name.removesuffix(LOSS) for name in metrics)])]
    lines += [" ".join([str(row["step"]), *(f"{row[name]:.9g}" for name in metrics)]) for row in rows]
    return "\n".join(lines) + "\n"


TRACE_OF = {f"pretrain-{name}": partial(pretraining_trace, name) for name in PRETRAINING}
TRACE_OF |= {f"finetune-{name}": partial(finetuning_trace, name) for name in FINETUNING}
"""Every trace: the name of its file, and the function that makes it in a folder."""


def main() -> None:
    """Write all traces."""
    torch.set_num_threads(1)
    TRACES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, trace_of in TRACE_OF.items():
            (TRACES / f"{name}.txt").write_text(trace_of(Path(folder)))


if __name__ == "__main__":
    main()
