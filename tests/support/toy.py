"""A toy language, and a run on it that takes a second."""

import random

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
    """Documents of a toy language with words that go together, a blank line between."""
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
