"""A toy language, a run of one second on it, the values that tests compare between runs, and texts that are difficult to tokenize."""

import random
from pathlib import Path

from electra.train.metrics_log import read_metrics

# A run that takes a second: every stage of the real one, on a model of 2 layers of 16.
TINY_RUN = {
    "preset": "tiny",
    "steps": 12,
    "seq_len": 24,
    "workers": 1,
    "model": {
        "vocab_size": 160,
        "embedding_size": 8,
        "hidden_size": 16,
        "num_layers": 2,
        "num_heads": 2,
        "ffn_size": 32,
        "max_positions": 32,
        "dropout": 0.1,
        "attention_dropout": 0.1,
    },
    "training": {"batch_size": 8, "micro_batch_size": 4, "log_every": 1, "checkpoint_every": 4},
}


def sentences(number: int, seed: int = 0) -> str:
    """Generate documents of a toy language with dependencies between its words, separated by blank lines."""
    draw = random.Random(seed)
    animals, verbs, things = (
        ["cat", "dog", "fox", "owl"],
        ["sees", "likes", "hunts"],
        ["mice", "milk", "birds", "sleep"],
    )
    documents = []
    for _ in range(number):
        lines = [
            " ".join(f"the {draw.choice(animals)} {draw.choice(verbs)} {draw.choice(things)} ." for _ in range(3))
            for _ in range(draw.randint(1, 4))
        ]
        documents.append("\n".join(lines))
    return "\n\n".join(documents) + "\n"


LANGUAGES = {
    "ko": ("나는 도서관에서 책을 읽었습니다 . 친구와 함께 공원을 걷고 점심을 먹었습니다 , 날씨가 좋았습니다 .", " "),
    "zh": ("我们 今天 去 图书馆 看 书 。 天气 很 好 ， 他们 在 公园 里 散步 ， 朋友 喜欢 学习 语言 。", ""),
    "de": (
        "Der kleine Fuchs überquert die Straße . Größere Häuser stehen nebeneinander , Kinder spielen draußen .",
        " ",
    ),
    "lower": ("der fuchs läuft und die kinder spielen im garten hinter dem haus", ""),
}
"""Language -> words of it, and what separates words in its text; of two, nothing."""


def write_language(path: Path, language: str, documents: int = 120) -> Path:
    """Write documents of random words of a language, separated by blank lines."""
    words, space = LANGUAGES[language][0].split(), LANGUAGES[language][1]
    draw = random.Random(language)
    lines = [[space.join(draw.choices(words, k=12)) for _ in range(3)] for _ in range(documents)]
    path.write_text("\n\n".join("\n".join(each) for each in lines) + "\n", "utf-8")
    return path


DIFFICULT_TEXTS = [
    "Hello, World! It's 3.14 o'clock... isn't it?",
    "Crème brûlée à la Übergröße, İstanbul, ﬁne, ＡＢＣ, Ångström, e\u0301 o\u0308",
    "中文字符和English混合，日本語のテキスト。한국어 문장",
    "emoji 😀👩‍👩‍👧🇩🇪 and ‮reversed‬ text",
    "tab\there\u00a0nbsp\u2003em\u200bzero\ufeffbom\x00nul\x07bell\x1b[0m\ufffdreplaced\u00adsoft",
    "a" * 99 + " " + "b" * 201 + " " + "supercalifragilisticexpialidocious" * 2,
    "the [ MASK ] and [UNUSED] (SEP) [ [MASK",
    "", "   ", "!", "##ing ##", "\u0300", "x\u0301\u0302\u0303", "ＷＩＤＥ", "ﷺ ½ ² ™ №",
    "http://example.org/a_b?c=d&e=%20#f user@host.org C:\\path\\to $5 €6 £7 ¥8",
]  # fmt: skip
TEXT = """The quick brown fox jumps over the lazy dog. The dog sleeps, the fox runs; it is a quick one.

Größe und Übermut: the word naïve has an accent, as has the café. Running, runner, runs, ran.

Lowering the lowest of the lower lows is slower than slowing the slowest.
"""


TIMES = ("seconds", "tokens_per_second", "flops_per_second", "mfu")


def trace(run: Path) -> list[dict]:
    """The metrics of a run without those that depend on the clock."""
    return [{k: v for k, v in row.items() if k not in TIMES} for row in read_metrics(run / "metrics.jsonl")]


def weights(run: Path) -> bytes:
    return (run / "discriminator/model.safetensors").read_bytes() + (run / "generator/model.safetensors").read_bytes()
