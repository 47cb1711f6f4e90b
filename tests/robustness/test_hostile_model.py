"""Invalid model directories and heads: an error that names the file, before a model is built, and no code is executed."""

import json
import os
import pickle
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.damage import NOT_FILES, NOT_JSON, Damage, broken_json, check_short_error, cut, edit, oversized, write
from support.errors import fails, raises
from support.toy_tasks import TINY, WORDS, save_model, toy_tokenizer

import electra
from electra.errors import ModelError, TokenizerError
from electra.finetuning.classification.heads import HuggingFaceClassificationHead, TextClassificationHead
from electra.finetuning.export import HEAD_FILE
from electra.finetuning.tagging.task import TaggingHead
from electra.inference.finetuned import load_finetuned
from electra.model.checkpoints import load_pretrained, save_pretrained
from electra.model.encoder import Encoder
from electra.pretraining.stages.initial_sizes import SIZES
from electra.text.tokenizer import load_tokenizer


def tensors(name: str = "model.safetensors", **changes: torch.Tensor | None) -> Damage:
    """Replace the tensors whose names end with the keywords (`_` stands for a dot); None removes a tensor."""

    def damage(folder: Path) -> None:
        found = load_file(folder / name)
        for ending, tensor in changes.items():
            (key,) = [key for key in found if key.replace(".", "_").endswith(ending)]
            del found[key]
            if tensor is not None:
                found[key] = tensor
        save_file(found, folder / name)

    return damage


def pickled(content: object) -> Damage:
    """Replace the weights by a pickle."""

    def damage(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        torch.save(content, folder / "pytorch_model.bin")

    return damage


def compressed(folder: Path) -> None:
    """Replace the weights by a small file that is much larger when it is decompressed."""
    pickled({"a": torch.zeros(1_000_000)})(folder)
    file = folder / "pytorch_model.bin"
    with zipfile.ZipFile(file) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)


class Evil:
    """Creates a directory when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = str(trace)

    def __reduce__(self) -> tuple:
        return os.mkdir, (self.trace,)


ONE = torch.ones(1)
CONFIG = {
    **broken_json("config.json"),
    "no model type": edit("config.json", model_type=...),
    "a model type that is not text": edit("config.json", model_type=["electra"]),
    "an activation that is not text": edit("config.json", hidden_act={"gelu": 1}),
    "a width that is text": edit("config.json", hidden_size="32"),
    "a width that is true": edit("config.json", hidden_size=True),
    "a width with a fraction": edit("config.json", hidden_size=32.5),
    "a width of 0": edit("config.json", hidden_size=0),
    "a negative width": edit("config.json", hidden_size=-32),
    "a width of 10^9": edit("config.json", hidden_size=10**9),
    "a width of 10^7": edit("config.json", hidden_size=10**7),
    "10^7 layers": edit("config.json", num_hidden_layers=10**7),
    "10^9 layers": edit("config.json", num_hidden_layers=10**9),
    "3 layers instead of 2": edit("config.json", num_hidden_layers=3),
    "a vocabulary of 10^7": edit("config.json", vocab_size=10**7),
    "10^7 positions": edit("config.json", max_position_embeddings=10**7),
    "an inner width of 10^7": edit("config.json", intermediate_size=10**7),
    "embeddings of another width": edit("config.json", embedding_size=32),
    "heads that do not divide the width": edit("config.json", num_attention_heads=5),
    "heads as a list": edit("config.json", num_attention_heads=[2]),
    "dropout NaN": edit("config.json", hidden_dropout_prob=float("nan")),
    "dropout 7": edit("config.json", attention_probs_dropout_prob=7),
    "epsilon infinite": edit("config.json", layer_norm_eps=float("inf")),
    "a deviation of NaN": edit("config.json", initializer_range=float("nan")),
}
WEIGHTS = {
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "weights of one byte": write("model.safetensors", b"x"),
    "weights that are empty": write("model.safetensors", b""),
    "weights with a header cut": cut("model.safetensors", 100),
    "weights cut": cut("model.safetensors", 10_000),
    "a header of 2^60 bytes": write("model.safetensors", (2**60).to_bytes(8, "little") + b"{}"),
    **{f"weights are {case}": make("model.safetensors") for case, make in NOT_FILES.items()},
    "a scalar": tensors(word_embeddings_weight=torch.tensor(1.0)),
    "a scalar of three": tensors(layer_0_attention_self_query_weight=torch.tensor(1.0)),
    "another shape": tensors(layer_1_output_dense_weight=torch.ones(3, 5)),
    "a bias of another shape": tensors(layer_1_output_dense_bias=torch.ones(33)),
    "a weight is missing": tensors(layer_1_output_dense_bias=None),
    "whole numbers": tensors(layer_0_attention_output_dense_bias=torch.ones(32, dtype=torch.int64)),
    "complex numbers": tensors(layer_0_attention_output_dense_bias=torch.ones(32, dtype=torch.complex64)),
    "other tensors": lambda folder: save_file({"x": ONE}, folder / "model.safetensors"),
    "a pickled list": pickled([ONE]),
    "a pickled number": pickled(5),
    "pickled tensors without names": pickled({1: ONE}),
    "a pickled state within a state": pickled({"state_dict": {"a": ONE}}),
    "a pickled sparse tensor": pickled({"electra.embeddings.word_embeddings.weight": torch.eye(3).to_sparse()}),
    "a number repeated 10^12 times": pickled({"a": ONE.expand(10**6, 10**6)}),
    "compressed": compressed,
    "not a pickle": lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"),
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("good") / "model")


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("case", [*CONFIG, *WEIGHTS])
def test_invalid_models_are_rejected(case: str, good: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(good, tmp_path / "model")
    (CONFIG | WEIGHTS)[case](folder)
    with pytest.raises(ModelError) as raised:
        load_pretrained(folder)
    check_short_error(raised.value, "config.json" if case in CONFIG else str(folder))


def test_pickled_code_is_not_executed(good: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(good, tmp_path / "model")
    pickled({"a": Evil(tmp_path / "trace")})(folder)
    with raises(ModelError, "foreign-objects", f"{folder / 'pytorch_model.bin'}: "):
        load_pretrained(folder)
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Evil(tmp_path / "trace")))
    with raises(ModelError, "foreign-objects", f"{folder / 'pytorch_model.bin'}: "):
        load_pretrained(folder)
    assert not (tmp_path / "trace").exists()


def test_buffers_are_ignored(good: Path, tmp_path: Path) -> None:
    """Older versions of Hugging Face saved `position_ids`."""
    folder = shutil.copytree(good, tmp_path / "model")
    weights = load_file(folder / "model.safetensors") | {"electra.embeddings.position_ids": torch.arange(64)[None]}
    save_file(weights, folder / "model.safetensors")
    assert (
        load_pretrained(folder).state("replaced-token").keys() == load_pretrained(good).state("replaced-token").keys()
    )


def test_null_means_the_default(good: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(good, tmp_path / "model")
    edit("config.json", hidden_act=None, layer_norm_eps=None)(folder)
    assert load_pretrained(folder).config == replace(TINY, layer_norm_eps=1e-12)


TOKENIZER = {
    **broken_json("tokenizer.json"),
    "no vocabulary": edit("tokenizer.json", model__vocab=...),
    "ids that are true": edit("tokenizer.json", model__vocab={"[PAD]": False, "[UNK]": True}),
    "no prefix": edit("tokenizer.json", model__continuing_subword_prefix=...),
    "no unknown token": edit("tokenizer.json", model__unk_token=...),
    "an unknown token that is not text": edit("tokenizer.json", model__unk_token=5),
    "words of a negative length": edit("tokenizer.json", model__max_input_chars_per_word=-1),
    "words of 10^30 characters": edit("tokenizer.json", model__max_input_chars_per_word=10**30),
    "a length that is text": edit("tokenizer.json", model__max_input_chars_per_word="100"),
    "no clean_text": edit("tokenizer.json", normalizer__clean_text=...),
    "clean_text that is text": edit("tokenizer.json", normalizer__clean_text="true"),
    "no lowercase": edit("tokenizer.json", normalizer__lowercase=...),
    "lowercase null": edit("tokenizer.json", normalizer__lowercase=None),
    "accents 3": edit("tokenizer.json", normalizer__strip_accents=3),
    "no Chinese": edit("tokenizer.json", normalizer__handle_chinese_chars=...),
    "a normalizer that is text": edit("tokenizer.json", normalizer="BertNormalizer"),
    "added tokens that are not a list": edit("tokenizer.json", added_tokens={"content": "x"}),
    "added tokens without content": edit("tokenizer.json", added_tokens=[{"id": 0}]),
    "added tokens that are numbers": edit("tokenizer.json", added_tokens=[5]),
    "ids with a hole": edit("tokenizer.json", model__vocab={"[PAD]": 0, "[UNK]": 10**12}),
}
VOCABULARY = {
    **{f"tokenizer_config.json {case}": write("tokenizer_config.json", content) for case, content in NOT_JSON.items()},
    "lowercase that is text": edit("tokenizer_config.json", do_lower_case="yes"),
    "accents that are a list": edit("tokenizer_config.json", strip_accents=[]),
    "an absurdly large configuration": oversized("tokenizer_config.json"),
    "an absurdly large vocabulary": oversized("vocab.txt"),
    **{f"vocab.txt is {case}": make("vocab.txt") for case, make in NOT_FILES.items()},
    "a vocabulary that is not UTF-8": write("vocab.txt", b"[PAD]\n\xff\n"),
    "an empty vocabulary": write("vocab.txt", b""),
}


@pytest.mark.parametrize("case", [*TOKENIZER, *VOCABULARY])
def test_invalid_tokenizers_are_rejected(case: str, good: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(good, tmp_path / "model")
    if case in VOCABULARY:
        (folder / "tokenizer.json").unlink()
    (TOKENIZER | VOCABULARY)[case](folder)
    with pytest.raises(TokenizerError) as raised:
        load_tokenizer(folder)
    check_short_error(raised.value, str(folder))


SENTENCES = {
    "task": "table",
    "kind": "classification",
    "labels": ["no", "yes", "odd"],
    "max_length": 32,
    "pairs": False,
}
TAGS = {"task": "tagging", "labels": ["O", "B-X", "I-X"], "scheme": "bio2", "max_length": 32}


def save_finetuned(folder: Path, kind: str) -> Path:
    """Save a fine-tuned model of random weights, with a kind of head that transformers has, or with a head of this package."""
    torch.manual_seed(0)
    encoder = {f"encoder.{name}": tensor for name, tensor in Encoder(TINY).state_dict().items()}
    heads = {
        "sequence-classification": HuggingFaceClassificationHead(TINY.hidden_size, 3),
        "token-classification": TaggingHead(TINY.hidden_size, 3),
    }
    head = {f"head.{name}": tensor for name, tensor in heads[kind].state_dict().items()} if kind in heads else {}
    save_pretrained(folder, encoder | head, TINY, kind, 0, {"id2label": {"0": "no", "1": "yes", "2": "odd"}})
    if kind == "none":
        save_file(TextClassificationHead("classification", TINY.hidden_size, 3, 0.0).state_dict(), folder / HEAD_FILE)
    settings = TAGS if kind == "token-classification" else SENTENCES
    (folder / "task.json").write_text(json.dumps(settings))
    toy_tokenizer().save(folder)
    return folder


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tuned")
    for name, kind in (("sentences", "sequence"), ("tags", "token")):
        save_finetuned(root / name, f"{kind}-classification")
    save_finetuned(root / "own", "none")
    return root


SPAN = {"max_length": 32, "max_query_length": 8}
TASK = {
    **broken_json("task.json"),
    "a task that is a number": edit("task.json", task=5),
    "an unknown kind": edit("task.json", kind="ranking"),
    "an unknown pooling": edit("task.json", pooling="max"),
    "no labels": edit("task.json", labels=...),
    "labels that are text": edit("task.json", labels="yes"),
    "labels that are numbers": edit("task.json", labels=[0, 1, 2]),
    "too few labels": edit("task.json", labels=["no", "yes"]),
    "too many labels": edit("task.json", labels=["a", "b", "c", "d"]),
    "another number of outputs": edit("task.json", kind="regression"),
    "no length": edit("task.json", max_length=...),
    "a negative length": edit("task.json", max_length=-5),
    "a length of 2": edit("task.json", max_length=2),
    "more than the positions": edit("task.json", max_length=65),
    "a length that is text": edit("task.json", max_length="32"),
    "pairs that are text": edit("task.json", pairs="no"),
    "columns that are numbers": edit("task.json", columns=[1]),
    "no columns": edit("task.json", columns=[]),
    "spans that are a list": edit("task.json", task="squad2", span=[]),
    "spans of another architecture": edit("task.json", task="squad2", span=SPAN),
    "spans with a text for a number": edit("task.json", task="squad2", span=SPAN | {"beam_size": "20"}),
    "spans with a beam of 0": edit("task.json", task="squad2", span=SPAN | {"beam_size": 0}),
    "spans without room": edit("task.json", task="squad2", span={"max_length": 4}),
    "spans with another head": edit("task.json", task="squad2", span=SPAN | {"head": "third"}),
    "a threshold of NaN": edit("task.json", task="squad2", span=SPAN, best_null_threshold=float("nan")),
    "tags of another architecture": lambda folder: (folder / "task.json").write_text(json.dumps(TAGS)),
    "a task that cannot predict": edit("task.json", task="wnli-candidates"),
    "an unknown task": edit("task.json", task="ranking"),
}


def predicted(folder: Path) -> list[dict]:
    source = folder.parent / "input.txt"
    source.write_text("the cat sees mice .\n")
    return list(electra.predict(model=str(folder), input=str(source), form="lines"))


def test_valid_models_predict(tuned: Path, tmp_path: Path) -> None:
    for name in ("sentences", "tags", "own"):
        for with_task in (True, False) if name != "own" else (True,):
            folder = shutil.copytree(tuned / name, tmp_path / f"{name}-{with_task}")
            if not with_task:
                (folder / "task.json").unlink()
            assert set(predicted(folder)[0]) & {"label", "tags"}


@pytest.mark.parametrize("case", TASK)
def test_invalid_task_files_are_rejected(case: str, tuned: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tuned / "sentences", tmp_path / "model")
    TASK[case](folder)
    with pytest.raises(ModelError) as raised:
        predicted(folder)
    check_short_error(raised.value, str(folder))


OTHERS = {
    "names that are a list": edit("config.json", id2label=["a", "b", "c"]),
    "names that are numbers": edit("config.json", id2label={"0": 0, "1": 1, "2": 2}),
    "names of words": edit("config.json", id2label={"zero": "a"}),
    "names with a hole": edit("config.json", id2label={"0": "a", "2": "b", "3": "c"}),
    "names from 1": edit("config.json", id2label={"1": "a", "2": "b", "3": "c"}),
    "names of negative numbers": edit("config.json", id2label={"-1": "a", "0": "b", "1": "c"}),
    "too few names": edit("config.json", id2label={"0": "a"}),
    "architectures that are text": edit("config.json", architectures="ElectraForSequenceClassification"),
    "architectures of numbers": edit("config.json", architectures=[5]),
    "another architecture": edit("config.json", architectures=["ElectraForMultipleChoice"]),
    "the architecture of another head": edit("config.json", architectures=["ElectraForTokenClassification"]),
    "an unknown problem": edit("config.json", problem_type="ranking"),
    "a problem that is a list": edit("config.json", problem_type=[]),
    "a head that is a scalar": tensors(classifier_out_proj_bias=torch.tensor(1.0)),
    "a head of another width": tensors(classifier_dense_weight=torch.ones(32, 31)),
    "a head that is missing": tensors(classifier_out_proj_weight=None),
    "a head of whole numbers": tensors(classifier_out_proj_bias=torch.ones(3, dtype=torch.int32)),
}


@pytest.mark.parametrize("case", OTHERS)
def test_invalid_models_without_a_task_file_are_rejected(case: str, tuned: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tuned / "sentences", tmp_path / "model")
    (folder / "task.json").unlink()
    OTHERS[case](folder)
    with pytest.raises(ModelError) as raised:
        predicted(folder)
    check_short_error(raised.value, str(folder))


def test_too_few_positions_are_rejected(tmp_path: Path) -> None:
    config = replace(TINY, max_positions=2)
    state = {f"encoder.{name}": tensor for name, tensor in Encoder(config).state_dict().items()}
    head = {
        f"head.{name}": tensor
        for name, tensor in HuggingFaceClassificationHead(config.hidden_size, 2).state_dict().items()
    }
    save_pretrained(tmp_path / "m", state | head, config, "sequence-classification", 0)
    toy_tokenizer().save(tmp_path / "m")
    with raises(ModelError, "too-few-positions", tmp_path / "m", " 2 "):
        load_finetuned(str(tmp_path / "m"))


HEAD = {
    "a head cut": cut(HEAD_FILE, 50),
    "an empty head": write(HEAD_FILE, b""),
    **{f"the head is {case}": make(HEAD_FILE) for case, make in NOT_FILES.items()},
    "another head": lambda folder: save_file({"start.weight": ONE}, folder / HEAD_FILE),
    "a head with more": lambda folder: save_file(load_file(folder / HEAD_FILE) | {"x": ONE}, folder / HEAD_FILE),
    "a scalar": tensors(HEAD_FILE, output_bias=torch.tensor(0.5)),
    "labels of another number": edit("task.json", labels=["a"]),
    "no kind": edit("task.json", kind=...),
}


@pytest.mark.parametrize("case", HEAD)
def test_invalid_heads_of_this_package_are_rejected(case: str, tuned: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tuned / "own", tmp_path / "model")
    HEAD[case](folder)
    with pytest.raises(ModelError) as raised:
        predicted(folder)
    check_short_error(raised.value, str(folder))


def test_a_tokenizer_with_more_tokens_than_embeddings_is_rejected(tuned: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tuned / "sentences", tmp_path / "model")
    replace(toy_tokenizer(), vocabulary=(*toy_tokenizer().vocabulary, "more")).save(folder)
    with raises(ModelError, "vocabulary-over-embeddings", folder, f" {len(WORDS) + 6} ", f" {len(WORDS) + 5}"):
        predicted(folder)


@pytest.mark.parametrize(
    ("case", "code", "code_of_pretrain"),
    [
        ("10^7 layers", "out-of-range", "out-of-range"),
        ("a width of 10^7", "wrong-shape", "other-sizes"),
        ("another shape", "wrong-shape", "wrong-shape"),
        ("config.json is a FIFO", "special-file", "special-file"),
    ],
)
def test_every_command_rejects_invalid_models(
    case: str, code: str, code_of_pretrain: str, good: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(good, tmp_path / "model")
    (CONFIG | WEIGHTS)[case](folder)
    (tmp_path / "t.csv").write_text("sentence,label\n" + "the cat is good,1\nthe dog is bad,0\n" * 9)
    (tmp_path / "a.txt").write_text("the cat sees mice .\n\n" * 99)
    out = tmp_path / "out"
    fails(["finetune", "table", "--train", tmp_path / "t.csv", "--out", out, "--model", folder], code, folder)
    fails(["predict", "--model", folder, "--input", tmp_path / "t.csv"], code, folder)
    fails(["fill-mask", "the [MASK]", "--model", folder], code, folder)
    sizes = [f"--model.{name.replace('_', '-')}={getattr(TINY, name)}" for name in SIZES]
    words = ["pretrain", tmp_path / "a.txt", "--init", folder, *sizes, "--seq-len", "24", "--out", out]
    fails(words, code_of_pretrain, folder)
    assert not out.exists()
