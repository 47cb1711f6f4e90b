"""Model cards of exported directories."""

from pathlib import Path

import pytest
import yaml

from electra.model.model_card import ModelCard, format_model_card


def front_matter(path: Path) -> dict:
    _, front, _ = path.read_text().split("---\n", 2)
    return yaml.safe_load(front)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "tag"), [("discriminator", None), ("generator", "fill-mask")])
def test_pretraining_run_writes_cards(finished: Path, name: str, tag: str | None) -> None:
    card = finished / name / "README.md"
    front, text = front_matter(card), card.read_text()
    assert front["license"] == "other"
    assert front["library_name"] == "transformers"
    assert front.get("pipeline_tag") == tag
    assert "| budget |" in text
    assert "area under the ROC curve" in text
    assert "from_pretrained" in text
    assert str(finished.parent) not in text, "a published card has no local path"


def test_fine_tuning_writes_a_card(inputs: Path) -> None:
    card = inputs / "tuned" / "seed-0" / "model" / "README.md"
    assert front_matter(card)["pipeline_tag"] == "text-classification"
    assert "| dev: accuracy |" in card.read_text()
    assert str(inputs) not in card.read_text()


def test_characters_of_markdown_are_escaped() -> None:
    card = ModelCard("a|b", "<script>", "ElectraModel", {"text": "a\n| b |"}, {})
    text = format_model_card(card)
    assert "<script>" not in text
    assert r"| text | a \| b \| |" in text
