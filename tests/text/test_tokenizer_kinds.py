"""WordPiece, BPE and Unigram through the whole chain, on text of several languages, with and without spaces."""

from pathlib import Path

import pytest
import torch
from support.errors import fails
from support.places import DATA
from support.toy import LANGUAGES, TINY_RUN, write_language
from transformers import AutoModel, AutoTokenizer, ElectraForMaskedLM, ElectraForPreTraining

import electra
from electra import cli
from electra.data.shards import PreparedData
from electra.model.checkpoints import load_pretrained
from electra.pretraining.objectives.networks import Discriminator
from electra.pretraining.stages.warm_start import load_into
from electra.text.tokenizer import load_tokenizer

MODELS = {"wordpiece": ["--pretokenized"], "bpe": [], "unigram": ["--byte-fallback"]}
"""Model -> more options."""
OPTIONS = {name: value for name, value in TINY_RUN.items() if name not in ("steps", "model")}
SIZES = {name: value for name, value in TINY_RUN["model"].items() if name != "vocab_size"}


def check_chain(text: Path, model: str, more: list[str], folder: Path, lines: list[str]) -> None:
    """Run tokenizer, prepare and pretrain, and compare ids and outputs with transformers'."""
    size = ["--multiple-of", "64", "--vocab-size", "384", "--model", model]
    cli.main(["tokenizer", str(text), "--out", f"{folder}/tokenizer", *size, *more])
    prepare = ["--tokenizer", f"{folder}/tokenizer", "--out", f"{folder}/data", "--seq-len", "24", "--workers", "1"]
    cli.main(["prepare", str(text), *prepare])
    tokenizer = load_tokenizer(folder / "tokenizer")
    assert tokenizer.vocab_size % 64 == 0
    run = folder / "run"
    masking = {"strategy": "word"}
    electra.pretrain(data=str(folder / "data"), out=str(run), steps=2, model=SIZES, masking=masking, **OPTIONS)
    assert PreparedData.open(folder / "data").manifest.vocab_size == tokenizer.vocab_size
    for name in ("discriminator", "generator"):
        assert load_tokenizer(run / name) == tokenizer
        theirs = AutoTokenizer.from_pretrained(run / name)
        assert theirs(lines, add_special_tokens=False)["input_ids"] == tokenizer.encode_lines(lines)
    pretrained = load_pretrained(run / "discriminator")
    network = Discriminator(pretrained.config).eval()
    load_into(network, pretrained, "replaced-token")
    inputs = theirs(lines, padding=True, truncation=True, max_length=24, return_tensors="pt")
    ids, types, mask = inputs["input_ids"], inputs["token_type_ids"], inputs["attention_mask"].bool()
    with torch.no_grad():
        ours, hidden = network(ids, types, mask, return_hidden=True)
        stock = ElectraForPreTraining.from_pretrained(run / "discriminator").eval()(**inputs).logits
        torch.testing.assert_close(ours[mask], stock[mask], atol=1e-5, rtol=0)
        stock = AutoModel.from_pretrained(run / "discriminator").eval()(**inputs).last_hidden_state
        torch.testing.assert_close(hidden[mask], stock[mask], atol=1e-5, rtol=0)
        logits = ElectraForMaskedLM.from_pretrained(run / "generator").eval()(**inputs).logits
    assert logits.shape[-1] == tokenizer.vocab_size


@pytest.mark.parametrize(
    "language", ["ko", "lower", *(pytest.param(each, marks=pytest.mark.slow) for each in ("zh", "de"))]
)
@pytest.mark.parametrize("model", MODELS)
def test_models_of_every_tokenizer_load_in_transformers(model: str, language: str, tmp_path: Path) -> None:
    text = write_language(tmp_path / "text.txt", language)
    lines = text.read_text("utf-8").split("\n")[:4]
    # Words of pre-segmented text without spaces are whole lines, which are [UNK].
    more = MODELS[model] if LANGUAGES[language][1] else [each for each in MODELS[model] if each != "--pretokenized"]
    check_chain(text, model, more, tmp_path, lines)


@pytest.mark.slow
@pytest.mark.skipif(not (DATA / "multilingual").is_dir(), reason=f"{DATA / 'multilingual'} is absent")
@pytest.mark.parametrize("language", ["ko", "zh", "de"])
@pytest.mark.parametrize("model", ["wordpiece", "bpe", "unigram"])
def test_text_of_wikipedia(model: str, language: str, tmp_path: Path) -> None:
    import zstandard

    text = tmp_path / "text.txt"
    with (DATA / f"multilingual/{language}wiki.txt.zst").open("rb") as file:
        text.write_bytes(zstandard.ZstdDecompressor().stream_reader(file).read(200_000).rsplit(b"\n", 1)[0])
    check_chain(text, model, [], tmp_path, [line for line in text.read_text("utf-8").split("\n") if line][:20])


def test_fill_mask_and_masked_lm_with_bytes(tmp_path: Path) -> None:
    text = write_language(tmp_path / "text.txt", "ko")
    tokenizer = electra.tokenizer(str(text), out=tmp_path / "tokenizer", model="bpe", vocab_size=384)
    out = tmp_path / "run"
    given = {"tokenizer": str(tokenizer), "objective": "mlm", "steps": 2, "model": SIZES}
    electra.pretrain(str(text), out=str(out), **given, **OPTIONS)
    filled = electra.fill_mask("나는 [MASK] 책을", model=str(out), top=2)
    assert len(filled) >= 1


def test_hostile_tokenizers_exit_with_one_line(tmp_path: Path, text: Path) -> None:
    words = ["prepare", text, "--out", tmp_path / "data", "--tokenizer"]
    file = tmp_path / "tokenizer.json"
    file.write_text('{"model": {"type": "WordLevel", "vocab": {}}}')
    fails([*words, file], "unknown-tokenizer", file)
    file.write_text(
        '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "pre_tokenizer": {"type": "ByteLevel"}}'
    )
    fails([*words, file], "damaged", file)
    with file.open("wb") as huge:
        huge.truncate(1 << 30)
    fails([*words, file], "too-large", file)
    fails(["tokenizer", text, "--out", tmp_path / "new", "--model", "bpe", "--byte-fallback"], "conflicting-options")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tokenizer.json"]
