"""Model cards: the `README.md` of a model directory, with the YAML front matter that the Hugging Face hub reads."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from electra.storage import write_atomically


@dataclass(frozen=True)
class ModelCard:
    """Content of a model card."""

    title: str
    description: str
    architecture: str
    """The transformers class that reads the directory, such as `ElectraForPreTraining`."""
    facts: Mapping[str, str]
    """Data, sizes and budget: name -> value."""
    metrics: Mapping[str, str]
    """Formatted scores: meaning -> value."""
    metrics_title: str = "Held-out metrics"
    pipeline_tag: str | None = None
    """Task on the hub, such as `fill-mask`; None if no pipeline of transformers supports the model."""


def write_model_card(directory: Path, card: ModelCard) -> None:
    """Write `README.md` into a model directory.

    Raises:
        StorageError: the directory cannot be written.
    """
    write_atomically(directory / "README.md", format_model_card(card).encode())


def format_model_card(card: ModelCard) -> str:
    """Format the card as Markdown. The license is `other` until the publisher of the model fills it in."""
    front: dict[str, object] = {
        "library_name": "transformers",
        "license": "other",
        "license_name": "FILL-IN",
        "tags": ["electra", "replaced-token-detection"],
    }
    if card.pipeline_tag:
        front["pipeline_tag"] = card.pipeline_tag
    metrics = f"## {card.metrics_title}\n\n{format_table('metric', card.metrics)}\n" if card.metrics else ""
    return f"""---
{yaml.safe_dump(front, sort_keys=False)}---

# {escape(card.title)}

{escape(card.description)}

## Training

{format_table("property", card.facts)}
{metrics}## Usage

```python
from transformers import AutoTokenizer, {card.architecture}

tokenizer = AutoTokenizer.from_pretrained("PATH")
model = {card.architecture}.from_pretrained("PATH")
```

`PATH` is this directory, or its name on the hub.

## License

To be filled in, here and in the fields `license` and `license_name` above. It depends on the training data, and on the
model that training started from, if any.
"""


def format_table(heading: str, rows: Mapping[str, str]) -> str:
    """Format a Markdown table of two columns."""
    body = "".join(f"| {escape(name)} | {escape(value)} |\n" for name, value in rows.items())
    return f"| {heading} | value |\n|---|---|\n{body}"


SPECIAL = str.maketrans({**{character: f"\\{character}" for character in "\\|*_`[]"}, "<": "&lt;", ">": "&gt;"})


def escape(text: str) -> str:
    """Escape Markdown and HTML characters, and join lines: paths and names come from users."""
    return " ".join(text.translate(SPECIAL).split())
