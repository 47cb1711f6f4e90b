"""`electra score` and `electra minimal-pairs` with masked language models that transformers loads."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from support.errors import raises
from tokenizers import models, pre_tokenizers, processors, trainers
from transformers import (
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertTokenizer,
    DistilBertConfig,
    DistilBertForMaskedLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
)
from transformers.utils import logging as transformers_logging

import electra
from electra.errors import ModelError, TokenizerError, UsageError
from electra.pretraining.evaluation import transformers_scorer

WORDS = ["the", "cat", "dog", "fox", "owl", "sees", "likes", "mice", "milk", ".", ",", "##s"]
SENTENCES = ["the cat sees mice .", "the dog likes milk , the fox sees owls .", "mice", "a zebra sees the cat ."]
POSITIONS = 16
"""Tokens of the longest input of every model here."""
SIZES: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


def save_word_piece(directory: Path) -> int:
    """Save BERT's kind of tokenizer; returns its size."""
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    BertTokenizer(vocab={token: id for id, token in enumerate(vocabulary)}).save_pretrained(directory)
    return len(vocabulary)


def save_byte_level(directory: Path) -> int:
    """Train RoBERTa's kind of tokenizer, and save it; returns its size."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(SENTENCES * 3, trainer)
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    names = {"bos": "<s>", "cls": "<s>", "eos": "</s>", "sep": "</s>", "pad": "<pad>", "unk": "<unk>", "mask": "<mask>"}
    tokens = {f"{name}_token": token for name, token in names.items()}
    PreTrainedTokenizerFast(tokenizer_object=backend, **tokens).save_pretrained(directory)
    return backend.get_vocab_size()


def build_network(kind: str, vocab_size: int) -> Any:
    """Build a network with random weights large enough for predictions that differ."""
    torch.manual_seed(0)
    sizes = {**SIZES, "vocab_size": vocab_size, "initializer_range": 0.5}
    if kind == "bert":
        return BertForMaskedLM(BertConfig(**sizes, max_position_embeddings=POSITIONS))
    if kind == "roberta":  # its positions begin behind that of padding, which is 1
        return RobertaForMaskedLM(RobertaConfig(**sizes, max_position_embeddings=POSITIONS + 2, type_vocab_size=1))
    if kind == "distilbert":
        sizes = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, "initializer_range": 0.5}
        return DistilBertForMaskedLM(
            DistilBertConfig(**sizes, vocab_size=vocab_size, max_position_embeddings=POSITIONS)
        )
    sizes |= {"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3}
    return ModernBertForMaskedLM(ModernBertConfig(**sizes, max_position_embeddings=POSITIONS, local_attention=4))


def save_model(kind: str, directory: Path) -> Path:
    """Save a tokenizer and a network."""
    directory.mkdir(parents=True, exist_ok=True)
    build_network(kind, (save_byte_level if kind == "roberta" else save_word_piece)(directory)).save_pretrained(
        directory
    )
    return directory


@pytest.fixture(scope="module", params=["bert", "roberta", "distilbert", "modernbert"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(request.param, tmp_path_factory.mktemp("models") / request.param)


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    return save_model("bert", tmp_path / "bert")


@torch.no_grad()
def compute_directly(model: Path, sentence: str) -> list[float]:
    """Compute log p of each token between the first and the last one, masking one at a time, in float64 after the network."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    network = AutoModelForMaskedLM.from_pretrained(model).eval()
    ids = torch.tensor([tokenizer(sentence)["input_ids"]])
    terms = []
    for position in range(1, ids.shape[1] - 1):
        masked = ids.clone()
        masked[0, position] = tokenizer.mask_token_id
        terms.append(float(network(masked).logits[0, position].double().log_softmax(0)[ids[0, position]]))
    return terms


def test_scores_equal_a_direct_computation(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [compute_directly(model, sentence) for sentence in SENTENCES]
    rows = electra.score(SENTENCES, model=model)
    for row, sentence, terms in zip(rows, SENTENCES, expected, strict=True):
        assert (set(row), row["text"], row["tokens"]) == ({"text", "tokens", "masked-lm"}, sentence, len(terms))
        assert row["masked-lm"]["total"] == pytest.approx(sum(terms), rel=1e-5)
        assert row["masked-lm"]["mean"] == pytest.approx(sum(terms) / len(terms), rel=1e-5)
    assert len({row["masked-lm"]["mean"] for row in rows}) == len(rows), "the predictions differ"
    monkeypatch.setattr(transformers_scorer, "MAX_LOGITS", 1)  # a row at a time
    for row, alone in zip(rows, electra.score(SENTENCES, model=model, methods="masked-lm"), strict=True):
        assert row["masked-lm"]["total"] == pytest.approx(alone["masked-lm"]["total"], rel=1e-5)


def test_accuracies_of_minimal_pairs_equal_a_direct_computation(model: Path, tmp_path: Path) -> None:
    animals, things = ("cat", "dog", "fox", "owl"), ("mice", "milk")
    pairs = [(f"the {a} sees {b} .", f"the {b} sees {a} .") for a in animals for b in things]
    lines = [json.dumps({"sentence_good": good, "sentence_bad": bad, "UID": "order"}) for good, bad in pairs]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines))
    results = electra.minimal_pairs(model, tmp_path / "pairs.jsonl")
    right = [sum(compute_directly(model, good)) > sum(compute_directly(model, bad)) for good, bad in pairs]
    assert results["methods"]["masked-lm"]["overall"] == 100 * sum(right) / len(right)
    assert set(results["methods"]) == {"masked-lm"}
    (tmp_path / "long.jsonl").write_text(
        lines[0] + "\n" + json.dumps({"sentence_good": "a", "sentence_bad": "cat " * 99})
    )
    with raises(UsageError, "longer-than-model", f"{tmp_path / 'long.jsonl'}:2: ", POSITIONS):
        electra.minimal_pairs(model, tmp_path / "long.jsonl")


def test_the_longest_sentence_has_as_many_tokens_as_the_model_positions(model: Path) -> None:
    longest = " ".join(["cat"] * (POSITIONS - 2))
    (row,) = electra.score(longest, model=model)
    assert row["tokens"] == POSITIONS - 2
    assert row["masked-lm"]["total"] == pytest.approx(sum(compute_directly(model, longest)), rel=1e-5)
    with raises(UsageError, "longer-than-model", POSITIONS + 1, POSITIONS):
        electra.score(f"{longest} cat", model=model)
    with raises(UsageError, "no-tokens"):
        electra.score("", model=model)


def test_the_limit_of_the_tokenizer_counts_too(bert: Path) -> None:
    file = bert / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"model_max_length": 6}))
    assert electra.score("the cat sees mice", model=bert)[0]["tokens"] == 4
    with raises(UsageError, "longer-than-model", 7, 6):
        electra.score("the cat sees mice .", model=bert)


def test_special_tokens_in_a_sentence_have_no_score_and_unknown_words_have(bert: Path) -> None:
    sentence = "the [MASK] zebra ."
    terms = compute_directly(bert, sentence)
    assert len(terms) == 4
    (row,) = electra.score(sentence, model=bert)
    assert row["tokens"] == 3
    assert row["masked-lm"]["total"] == pytest.approx(terms[0] + terms[2] + terms[3], rel=1e-5)


def test_token_types_are_those_of_the_tokenizer(bert: Path) -> None:
    """Here the sentence has type 1, which changes the scores."""
    sentence = SENTENCES[0]
    (before,) = electra.score(sentence, model=bert)
    file = bert / "tokenizer.json"
    backend = tokenizers.Tokenizer.from_file(str(file))
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokens = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    names = ["input_ids", "token_type_ids", "attention_mask"]
    PreTrainedTokenizerFast(tokenizer_object=backend, model_input_names=names, **tokens).save_pretrained(bert)
    tokenizer, network = AutoTokenizer.from_pretrained(bert), AutoModelForMaskedLM.from_pretrained(bert).eval()
    inputs = tokenizer(sentence, return_tensors="pt")
    assert set(inputs["token_type_ids"][0].tolist()) == {0, 1}
    expected, ids = 0.0, inputs["input_ids"]
    for position in range(1, ids.shape[1] - 1):
        masked = ids.clone()
        masked[0, position] = tokenizer.mask_token_id
        with torch.no_grad():
            logits = network(masked, token_type_ids=inputs["token_type_ids"]).logits
        expected += float(logits[0, position].double().log_softmax(0)[ids[0, position]])
    (row,) = electra.score(sentence, model=bert)
    assert row["masked-lm"]["total"] == pytest.approx(expected, rel=1e-5) != before["masked-lm"]["total"]


def test_half_precision_weights_are_computed_in_float32(bert: Path) -> None:
    network = AutoModelForMaskedLM.from_pretrained(bert).bfloat16()
    network.save_pretrained(bert)
    (row,) = electra.score(SENTENCES[0], model=bert)
    network.float().save_pretrained(bert)
    (expected,) = electra.score(SENTENCES[0], model=bert)
    assert row == expected


def test_messages_of_transformers_are_hidden(bert: Path, capfd: pytest.CaptureFixture) -> None:
    before = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    electra.score("the cat", model=bert)
    AutoModelForMaskedLM.from_pretrained(bert).bert.save_pretrained(bert)
    capfd.readouterr()
    with raises(ModelError, "no-head", bert, "cls.predictions"):
        electra.score("the cat", model=bert)
    assert capfd.readouterr() == ("", "")
    assert before == (transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled())


def test_impossible_options_are_refused(bert: Path) -> None:
    with raises(UsageError, "no-method", bert, "both", "masked-lm"):
        electra.score("the cat", model=bert, methods="both")
    with raises(UsageError, "meaningless-option", "--mask-fraction"):
        electra.score("the cat", model=bert, mask_fraction=0.15)


def test_impossible_directories_are_refused(bert: Path) -> None:
    config = json.loads((bert / "config.json").read_text())
    weights = (bert / "model.safetensors").read_bytes()
    (bert / "model.safetensors").write_bytes(weights[:-100])
    with raises(ModelError, "unreadable", bert, "transformers"):
        electra.score("the cat", model=bert)
    (bert / "model.safetensors").write_bytes(weights)
    (bert / "config.json").write_text(json.dumps(config | {"model_type": "none such"}))
    with pytest.raises(electra.ElectraError) as raised:  # by the tokenizer or the network, whichever comes first
        electra.score("the cat", model=bert)
    assert raised.value.code == "unreadable"
    (bert / "config.json").write_text(json.dumps(config | {"model_type": "gpt2"}))
    with raises(ModelError, "unreadable", bert, "masked language model"):
        electra.score("the cat", model=bert)
    (bert / "config.json").write_text(json.dumps(config))
    network = BertForMaskedLM.from_pretrained(bert)
    with torch.no_grad():
        network.bert.embeddings.LayerNorm.weight[3] = torch.nan
    network.save_pretrained(bert)
    with raises(ModelError, "not-finite", bert, "LayerNorm.weight"):
        electra.score("the cat", model=bert)


def test_impossible_tokenizers_are_refused(bert: Path) -> None:
    build_network("bert", 9).save_pretrained(bert)
    with raises(TokenizerError, "other-tokenizer", 5 + len(WORDS), 9):
        electra.score("the cat", model=bert)
    backend = tokenizers.Tokenizer(models.WordLevel({"the": 0, "cat": 1, "[UNK]": 2}, unk_token="[UNK]"))
    PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]").save_pretrained(bert)
    with raises(TokenizerError, "no-mask-token", bert):
        electra.score("the cat", model=bert)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        (bert / name).unlink(missing_ok=True)
    with raises(TokenizerError, "no-tokenizer", bert, "vocab.txt"):
        electra.score("the cat", model=bert)


class Attack:
    """An object whose unpickling creates a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return __import__("os").mkdir, (str(self.folder),)


def test_code_in_a_directory_is_not_executed(bert: Path) -> None:
    executed = bert / "executed"
    (bert / "model.safetensors").unlink()
    torch.save({"bert.embeddings.LayerNorm.bias": Attack(executed)}, bert / "pytorch_model.bin")
    with raises(ModelError, "unreadable", bert):
        electra.score("the cat", model=bert)
    config = json.loads((bert / "config.json").read_text())
    code = f"import os\nos.mkdir({str(executed)!r})\nfrom transformers import BertConfig, BertForMaskedLM\n"
    (bert / "own.py").write_text(code)
    auto_map = {"AutoConfig": "own.BertConfig", "AutoModelForMaskedLM": "own.BertForMaskedLM"}
    (bert / "config.json").write_text(json.dumps(config | {"model_type": "own", "auto_map": auto_map}))
    with pytest.raises(electra.ElectraError) as raised:
        electra.score("the cat", model=bert)
    assert raised.value.code == "unreadable"
    assert not executed.exists()


def test_without_transformers_a_message_names_it(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with raises(UsageError, "missing-extra", bert, "pip install transformers"):
        electra.score("the cat", model=bert)


def test_transformers_is_not_imported_for_a_run(finished: Path) -> None:
    program = "import sys, electra; electra.score('mice', model=sys.argv[1]); assert 'transformers' not in sys.modules"
    subprocess.run([sys.executable, "-c", program, str(finished)], check=True)
