"""A tiny model directory, and toy tasks on which it is fine-tuned in a second."""

import json
import random
from pathlib import Path

import torch

from electra.finetuning.config import FinetuneConfig
from electra.model.checkpoints import save_pretrained
from electra.model.encoder import EncoderConfig
from electra.model.initialization import initialize
from electra.pretraining.objectives.networks import Discriminator
from electra.text.tokenizer import SPECIAL_TOKENS, Normalization, Tokenizer

ANIMALS, THINGS = ["cat", "dog", "fox", "owl"], ["mice", "milk", "birds", "sleep"]
WORDS = [
    "the",
    "a",
    "cat",
    "dog",
    "fox",
    "owl",
    "sees",
    "likes",
    "hunts",
    "fears",
    "mice",
    "milk",
    "birds",
    "sleep",
    "good",
    "bad",
    "fine",
    "awful",
    "is",
    "was",
    "not",
    "very",
    ".",
    ",",
    "1",
    "2",
]
TINY = EncoderConfig(
    vocab_size=len(SPECIAL_TOKENS) + len(WORDS),
    embedding_size=16,
    hidden_size=32,
    num_layers=2,
    num_heads=2,
    ffn_size=64,
    max_positions=64,
    dropout=0.1,
    attention_dropout=0.1,
    initializer_range=0.15,
)


def toy_tokenizer() -> Tokenizer:
    return Tokenizer((*SPECIAL_TOKENS, *WORDS), Normalization())


def save_model(directory: Path, config: EncoderConfig = TINY) -> Path:
    """Save a discriminator with random weights, in the format that pre-training writes."""
    torch.manual_seed(0)
    model = Discriminator(config)
    initialize(model, config.initializer_range)
    tokenizer = toy_tokenizer()
    save_pretrained(directory, model.state_dict(), config, "replaced-token", tokenizer.pad_id)
    tokenizer.save(directory)
    return directory


def sentence(draw: random.Random) -> tuple[str, bool]:
    """Return a sentence, and whether it is positive."""
    positive = draw.random() < 0.5
    adjective = draw.choice(["good", "fine"] if positive else ["bad", "awful"])
    extra = draw.choice(["", "very ", "not very likely, "]) if positive else draw.choice(["", "very "])
    return f"the {draw.choice(['cat', 'dog', 'fox', 'owl'])} is {extra}{adjective} .", positive


def pair(draw: random.Random) -> tuple[str, str, bool]:
    """Return two sentences, and whether both are about the same animal."""
    first = draw.choice(["cat", "dog"])
    second = draw.choice(["cat", "dog"])
    return f"the {first} sleeps", f"a {second} hunts mice", first == second


def write_glue(folder: Path, rows: int = 64) -> Path:
    """Write a folder in GLUE's layout with small versions of SST-2, MRPC, STS-B, RTE and MNLI."""
    for split, number, seed in (("train", rows, 1), ("dev", rows // 2, 2), ("test", rows // 4, 3)):
        draw = random.Random(seed)
        labeled = split != "test"
        sst, mrpc, sts, rte = [], [], [], []
        for i in range(number):
            text, positive = sentence(draw)
            sst.append(f"{text}\t{int(positive)}" if labeled else f"{i}\t{text}")
            a, b, same = pair(draw)
            mrpc.append("\t".join([str(int(same)) if labeled else str(i), "7", "8", a, b]))
            score = f"{5.0 * same:.3f}"
            sts.append("\t".join([str(i), "g", "f", "y", "o", "s", "s", a, b, *([score] if labeled else [])]))
            verdict = "entailment" if same else "not_entailment"
            rte.append("\t".join([str(i), a, b, *([verdict] if labeled else [])]))
        write_tsv(folder / "SST-2" / f"{split}.tsv", "sentence\tlabel" if labeled else "index\tsentence", sst)
        write_tsv(folder / "MRPC" / f"{split}.tsv", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", mrpc)
        label = "\tscore" if labeled else ""
        header = f"index\tgenre\tfilename\tyear\told\ts1\ts2\tsentence1\tsentence2{label}"
        write_tsv(folder / "STS-B" / f"{split}.tsv", header, sts)
        label = "\tlabel" if labeled else ""
        write_tsv(folder / "RTE" / f"{split}.tsv", f"index\tsentence1\tsentence2{label}", rte)
    write_mnli(folder, rows)
    return folder


def write_mnli(folder: Path, rows: int) -> None:
    draw = random.Random(5)
    for file, columns in (("train", 12), ("dev_matched", 16), ("dev_mismatched", 16), ("test_matched", 10)):
        lines = []
        for i in range(rows // 2):
            a, b, same = pair(draw)
            row = [str(i), *["n/a"] * 7, a, b, *["n/a"] * (columns - 11), "entailment" if same else "neutral"]
            lines.append("\t".join(row[:columns]))
        write_tsv(folder / "MNLI" / f"{file}.tsv", "\t".join(f"c{i}" for i in range(columns)), lines)
    write_tsv(folder / "AX" / "diagnostic.tsv", "index\tsentence1\tsentence2", ["0\tthe cat sleeps\ta cat hunts mice"])


def write_wnli(folder: Path) -> Path:
    rows = [
        "0\tThe cat likes the dog because he is good.\tThe cat is good.\t1",
        "1\tThe cat likes the dog because he is good.\tThe dog is good.\t0",
        "2\tThe fox fears the owl because it is bad.\tThe owl is bad.\t1",
    ]
    for split in ("train", "dev"):
        write_tsv(folder / "WNLI" / f"{split}.tsv", "index\tsentence1\tsentence2\tlabel", rows)
    write_tsv(folder / "WNLI" / "test.tsv", "index\tsentence1\tsentence2", [row[:-2] for row in rows])
    return folder


def write_tsv(path: Path, header: str, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([header, *lines]) + "\n")


def write_jsonl(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_conll(path: Path, sentences: int, seed: int, tags: bool = True) -> Path:
    draw = random.Random(seed)
    blocks = []
    for _ in range(sentences):
        rows = [("the", "B-A"), (draw.choice(ANIMALS), "I-A"), ("likes", "O"), (draw.choice(THINGS), "B-T"), (".", "O")]
        blocks.append("\n".join(f"{word} {tag}" if tags else word for word, tag in rows))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join(blocks) + "\n")
    return path


def write_neighbors(path: Path, sentences: int, seed: int) -> None:
    """Write sentences in which the tag of the last word depends only on the word before it; every word is one token."""
    draw = random.Random(seed)
    blocks = []
    for _ in range(sentences):
        verb, tag = draw.choice([("sees", "A"), ("likes", "B")])
        blocks.append(f"{draw.choice(ANIMALS)} O\n{verb} O\n{draw.choice(THINGS)} {tag}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join(blocks) + "\n")


def write_questions(path: Path, number: int, seed: int, impossible: bool = False) -> Path:
    draw = random.Random(seed)
    paragraphs = []
    for i in range(number):
        context = f"the {draw.choice(ANIMALS)} likes {draw.choice(THINGS)} ."
        thing = context.split()[3]
        none = impossible and i % 4 == 0
        answers = [] if none else [{"text": thing, "answer_start": context.index(thing)}]
        question = "was fine" if none else "likes very"
        qa = {
            "id": f"q{i}",
            "question": question,
            "answers": answers,
            **({"is_impossible": none} if impossible else {}),
        }
        paragraphs.append({"context": context, "qas": [qa]})
    path.write_text(json.dumps({"version": "v2.0", "data": [{"title": "t", "paragraphs": paragraphs}]}))
    return path


def write_choices(path: Path, number: int, seed: int) -> Path:
    """Write questions with two adjectives as choices, of which the positive one is the answer."""
    draw, rows = random.Random(seed), []
    for _ in range(number):
        endings = [draw.choice(["bad", "awful"]), draw.choice(["good", "fine"])]
        draw.shuffle(endings)
        answer = next(i for i, ending in enumerate(endings) if ending in ("good", "fine"))
        rows.append({"context": f"the {draw.choice(['cat', 'dog'])} is", "endings": endings, "label": answer})
    return write_jsonl(path, rows)


def finetune_settings(model: Path, task: str, **more) -> FinetuneConfig:
    return FinetuneConfig(
        task=task, model=str(model), **{"epochs": 8.0, "learning_rate": 1e-2, "batch_size": 8, **more}
    )
