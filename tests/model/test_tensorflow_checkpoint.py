"""Checkpoints of the original TensorFlow code: converted, they compute what the code and what transformers computes."""

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.damage import contents
from support.errors import fails, notices, raises
from support.places import REFERENCE
from support.tensorflow_names import hf_to_tf, message, write_checkpoint
from support.toy_tasks import toy_tokenizer
from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining, ElectraModel

import electra
from electra.errors import ElectraError, ModelError, UsageError
from electra.model.tensorflow.bundle import Bundle, find_tensorflow_checkpoint
from electra.model.tensorflow.index import read_index
from electra.model.tensorflow.networks import find_networks

TF_SMALL = REFERENCE / "tf_small"
VOCABULARY = toy_tokenizer().vocab_size
SIZES = {
    "vocab_size": VOCABULARY,
    "embedding_size": 24,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 1,
    "intermediate_size": 40,
    "max_position_embeddings": 20,
}


def build(kind: type, seed: int, **sizes: int) -> Any:
    """A network of transformers whose weights are all random, also those that are initially zero or one."""
    torch.manual_seed(seed)
    network = kind(ElectraConfig(**SIZES | sizes)).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn_like(parameter) / 4)
    return network


def get_weights(network: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The weights without tied output embeddings."""
    return {name: p.detach().clone() for name, p in network.named_parameters() if name != "generator_lm_head.weight"}


def save(folder: Path, variables: dict[str, Any], **options: Any) -> Path:
    """Write a checkpoint with a vocabulary beside it; returns its name."""
    toy_tokenizer().save(folder)
    return write_checkpoint(folder / "model.ckpt-7", variables, **options)


def save_pair(folder: Path, main: Any, generator: Any, shared: bool = True, **options: Any) -> Path:
    """Write a discriminator and a generator with optimizer slots and a step, as the original code does."""
    variables = hf_to_tf(get_weights(main), "electra")
    own = hf_to_tf(get_weights(generator), "generator")
    if shared:
        own = {name: value for name, value in own.items() if not name.startswith("generator/embeddings/")}
    variables |= own
    slots = {
        f"{name}/{slot}": np.ones_like(value) for name, value in variables.items() for slot in ("adam_m", "adam_v")
    }
    return save(folder, {**variables, **slots, "global_step": np.array(7)}, **options)


@torch.no_grad()
def assert_equal_outputs(ours: Path, theirs: Any, tolerance: float = 1e-6) -> None:
    """Compare a directory, read by transformers, with the network that it was written from."""
    network, report = type(theirs).from_pretrained(ours, output_loading_info=True)
    assert not any(report.values()), report
    ids = torch.randint(5, VOCABULARY, (3, 12), generator=torch.Generator().manual_seed(0))
    types = torch.arange(12).expand(3, 12) // 6
    outputs = [each.eval()(ids, token_type_ids=types)[0] for each in (network, theirs)]
    torch.testing.assert_close(*outputs, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize(
    ("main_sizes", "generator_sizes", "shared", "shards"),
    [
        ({}, {"hidden_size": 32, "intermediate_size": 16}, True, 1),
        ({"embedding_size": 64}, {"embedding_size": 64, "hidden_size": 32}, True, 3),
        ({"hidden_size": 128, "num_attention_heads": 2}, {"embedding_size": 24, "hidden_size": 24}, False, 2),
        ({"num_hidden_layers": 1}, {"embedding_size": 64}, False, 1),
    ],
    ids=["projection", "no projection", "generator's own embeddings", "both without"],
)
def test_a_pair_of_any_sizes(
    main_sizes: dict, generator_sizes: dict, shared: bool, shards: int, tmp_path: Path
) -> None:
    main, generator = build(ElectraForPreTraining, 0, **main_sizes), build(ElectraForMaskedLM, 1, **generator_sizes)
    if shared:
        generator.electra.embeddings.load_state_dict(main.electra.embeddings.state_dict())
    save_pair(tmp_path / "tf", main, generator, shared, shards=shards)
    found = electra.convert(tmp_path / "tf", out=tmp_path / "hf")
    assert found == {name: tmp_path / "hf" / name for name in ("discriminator", "generator")}
    assert_equal_outputs(found["discriminator"], main)
    assert_equal_outputs(found["generator"], generator)
    for name in found:
        assert (tmp_path / "hf" / name / "vocab.txt").read_text() == (tmp_path / "tf/vocab.txt").read_text()


def test_baselines_of_the_original_code(tmp_path: Path) -> None:
    masked_lm = build(ElectraForMaskedLM, 0)
    variables = hf_to_tf(get_weights(masked_lm), "electra")
    assert_equal_outputs(
        electra.convert(save(tmp_path / "a", variables), out=tmp_path / "bert")["masked_lm"], masked_lm
    )
    tied = build(ElectraForPreTraining, 1)
    tied.electra.load_state_dict(masked_lm.electra.state_dict())
    found = electra.convert(
        save(tmp_path / "b", variables | hf_to_tf(get_weights(tied), "electra")), out=tmp_path / "tied"
    )
    assert_equal_outputs(found["discriminator"], tied)
    assert_equal_outputs(found["generator"], masked_lm)
    bare = build(ElectraModel, 2)
    weights = {f"electra.{name}": tensor for name, tensor in get_weights(bare).items()}
    found = electra.convert(save(tmp_path / "c", hf_to_tf(weights, "electra")), out=tmp_path / "bare")
    assert_equal_outputs(found["discriminator"], bare)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_becomes_float32(dtype: torch.dtype, tmp_path: Path) -> None:
    main = build(ElectraForPreTraining, 0)
    main.load_state_dict({name: tensor.to(dtype).float() for name, tensor in main.state_dict().items()})
    variables = {
        name: torch.from_numpy(value).to(dtype) for name, value in hf_to_tf(get_weights(main), "electra").items()
    }
    assert_equal_outputs(electra.convert(save(tmp_path / "tf", variables), out=tmp_path / "hf")["discriminator"], main)


def test_names_of_a_checkpoint(tmp_path: Path) -> None:
    prefix = save(tmp_path / "tf", hf_to_tf(get_weights(build(ElectraForPreTraining, 0)), "electra"))
    index = prefix.with_name("model.ckpt-7.index")
    assert {find_tensorflow_checkpoint(path) for path in (prefix, index, prefix.parent)} == {prefix}
    for file in list(prefix.parent.glob("model.ckpt-7.*")):
        shutil.copy(file, prefix.parent / file.name.replace("-7", "-9"))
    with raises(ModelError, "several-checkpoints", "model.ckpt-7", "model.ckpt-9"):
        find_tensorflow_checkpoint(prefix.parent)
    (prefix.parent / "checkpoint").write_text('model_checkpoint_path: "gs://bucket/electra/model.ckpt-9"\n')
    assert find_tensorflow_checkpoint(prefix.parent) == prefix.with_name("model.ckpt-9")
    assert find_tensorflow_checkpoint(tmp_path / "nowhere") is None


def test_number_of_heads(tmp_path: Path) -> None:
    variables = hf_to_tf(get_weights(build(ElectraForPreTraining, 0, hidden_size=96)), "electra")
    prefix = save(tmp_path / "tf", variables)
    with raises(UsageError, "unknown-heads", prefix, "--heads", 96):
        electra.convert(prefix, out=tmp_path / "hf")
    assert not (tmp_path / "hf").exists()
    folder = electra.convert(prefix, out=tmp_path / "hf", heads=4)["discriminator"]
    assert json.loads((folder / "config.json").read_text())["num_attention_heads"] == 4


def test_output_and_tokenizer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    variables = hf_to_tf(get_weights(build(ElectraForPreTraining, 0)), "electra")
    prefix = save(tmp_path / "tf", variables)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    fails(["convert", prefix, "--out", tmp_path / "full"], "not-empty", tmp_path / "full")
    words = tmp_path / "words.txt"
    tokens = (prefix.parent / "vocab.txt").read_text()
    words.write_text(f"{tokens}more\n")
    fails(
        ["convert", prefix, "--out", tmp_path / "o", "--tokenizer", words], "vocabulary-over-embeddings", "--tokenizer"
    )
    words.write_text(tokens.removesuffix("2\n"))
    electra.convert(prefix, out=tmp_path / "fewer", tokenizer=words, private=True)
    assert len(notices(caplog, "padded-vocabulary")) == 1
    assert (tmp_path / "fewer/discriminator/vocab.txt").stat().st_mode & 0o777 == 0o600
    for name in ("vocab.txt", "tokenizer.json"):
        (prefix.parent / name).unlink()
    fails(["convert", prefix, "--out", tmp_path / "o"], "no-tokenizer", "--tokenizer vocab.txt")
    assert not (tmp_path / "o").exists()


WORD = "electra/embeddings/word_embeddings"


def edit(**changes: Any) -> Callable[[str, dict[int, Any]], object]:
    """Set fields of the entry of the word embeddings; `header` sets the number of shards, `big` the endianness."""
    fields = {"dtype": 1, "shape": 2, "shard": 3, "offset": 4, "size": 5, "checksum": 6, "slices": 7}
    header = {"header": 1, "big": 2}

    def change(name: str, entry: dict[int, Any]) -> None:
        numbers = {"": header, WORD: fields}.get(name, {})
        entry.update({numbers[key]: value for key, value in changes.items() if key in numbers})

    return change


def shape(*sizes: int) -> bytes:
    return message({2: [message({1: size}) for size in sizes]})


HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "offset beyond the file": ({"change": edit(offset=1 << 40)}, "truncated"),
    "size beyond the file": ({"change": edit(shape=shape(1 << 20, 24), size=24 * 4 << 20)}, "truncated"),
    "size other than the shape's": ({"change": edit(size=8)}, "damaged"),
    "other shape": ({"change": edit(shape=shape(2 * VOCABULARY, 12))}, "wrong-shape"),
    "one dimension": ({"change": edit(shape=shape(24 * VOCABULARY))}, "wrong-shape"),
    "huge shape": ({"change": edit(shape=shape(1 << 62, 1 << 62))}, "out-of-range"),
    "negative shape": ({"change": edit(shape=shape((1 << 64) - 1, 24))}, "out-of-range"),
    "a thousand dimensions": ({"change": edit(shape=shape(*[1] * 1000))}, "damaged"),
    "strings": ({"change": edit(dtype=7)}, "wrong-type"),
    "integers": ({"change": edit(dtype=3)}, "wrong-type"),
    "slices": ({"change": edit(slices=b"")}, "partitioned"),
    "no such shard": ({"change": edit(shard=5)}, "damaged"),
    "other checksum": ({"change": edit(checksum=1)}, "damaged"),
    "no shards": ({"change": edit(header=0)}, "damaged"),
    "a million shards": ({"change": edit(header=10**6)}, "damaged"),
    "bytes for a number": ({"change": edit(header=b"x")}, "damaged"),
    "big-endian": ({"change": edit(big=1)}, "damaged"),
    "compressed": ({"compression": b"\1"}, "damaged"),
    "unsorted": ({"order": lambda items: sorted(items, reverse=True)}, "damaged"),
    "repeated": ({"order": lambda items: sorted([*items, items[-1]])}, "damaged"),
    "no header": ({"order": lambda items: sorted(items)[1:]}, "damaged"),
}


@pytest.fixture(scope="module")
def variables() -> dict[str, np.ndarray]:
    return hf_to_tf(get_weights(build(ElectraForPreTraining, 0)), "electra")


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_checkpoints_are_rejected(case: str, variables: dict, tmp_path: Path) -> None:
    options, code = HOSTILE[case]
    prefix = save(tmp_path / "tf", variables, **options)
    before = contents(tmp_path)
    error = fails(["convert", prefix, "--out", tmp_path / "hf"], code, "model.ckpt-7")
    assert len(str(error)) < 400
    assert contents(tmp_path) == before
    fails(["pretrain", tmp_path, "--init", prefix, "--out", tmp_path / "run", "--seq-len", "16"], code, "model.ckpt-7")
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda folder: (folder / "model.ckpt-7.index").unlink(), "no-index"),
        (lambda folder: (folder / "model.ckpt-7.index").write_bytes(b""), "not-index"),
        (lambda folder: (folder / "model.ckpt-7.index").write_bytes(b"PK\3\4" * 100), "not-index"),
        (lambda folder: (folder / "model.ckpt-7.data-00000-of-00001").unlink(), "missing"),
        (lambda folder: (folder / "model.ckpt-7.data-00000-of-00001").write_bytes(b"x"), "truncated"),
    ],
    ids=["no index", "empty index", "other index", "no data", "truncated data"],
)
def test_missing_and_truncated_files(damage: Callable, code: str, variables: dict, tmp_path: Path) -> None:
    prefix = save(tmp_path / "tf", variables)
    damage(prefix.parent)
    fails(["convert", prefix, "--out", tmp_path / "hf"], code, "model.ckpt-7")
    assert not (tmp_path / "hf").exists()


def test_other_checkpoints(variables: dict, tmp_path: Path) -> None:
    bert = {name.replace("electra/", "bert/"): value for name, value in variables.items()}
    fails(["convert", save(tmp_path / "bert", bert), "--out", tmp_path / "hf"], "not-electra", "bert")
    fails(["convert", tmp_path / "nowhere", "--out", tmp_path / "hf"], "not-checkpoint", tmp_path / "nowhere")
    lacking = {name: value for name, value in variables.items() if "layer_1/output/dense/bias" not in name}
    place = "electra/encoder/layer_1/output/dense/bias"
    fails(["convert", save(tmp_path / "lacking", lacking), "--out", tmp_path / "hf"], "missing-weight", place)
    broken = variables | {place: np.full_like(variables[place], np.nan)}
    fails(["convert", save(tmp_path / "broken", broken), "--out", tmp_path / "hf"], "not-finite", place)


def test_every_changed_or_missing_byte_of_an_index_is_noticed(variables: dict, tmp_path: Path) -> None:
    prefix = save(tmp_path / "tf", variables)
    file = prefix.with_name("model.ckpt-7.index")
    data, index = file.read_bytes(), read_index(file)
    for place in range(0, len(data), 5):
        for changed in (data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :], data[:place]):
            file.write_bytes(changed)
            found = None
            with suppress(ModelError):
                found = read_index(file)
            # Padding of the footer, and the block of filters, are not read.
            assert found is None or (found == index and len(changed) == len(data)), place


def test_the_extra_is_named(variables: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = save(tmp_path / "tf", variables)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with raises(UsageError, "missing-extra", prefix, "pip install 'electra[tf]'"):
        electra.convert(prefix, out=tmp_path / "hf")


@pytest.mark.slow
def test_pretraining_continues_from_a_checkpoint(tmp_path: Path, text: Path, tiny_run: dict) -> None:
    main = build(ElectraForPreTraining, 0, max_position_embeddings=32)
    generator = build(ElectraForMaskedLM, 1, hidden_size=32, max_position_embeddings=32)
    generator.electra.embeddings.load_state_dict(main.electra.embeddings.state_dict())
    prefix = save_pair(tmp_path / "tf", main, generator)
    options = {name: value for name, value in tiny_run.items() if name != "model"}
    options |= {"steps": 1, "optimizer.learning_rate": 1e-12}
    electra.pretrain(str(text), out=str(tmp_path / "run"), init=str(prefix), **options)
    assert_equal_outputs(tmp_path / "run/discriminator", main, 1e-5)
    assert_equal_outputs(tmp_path / "run/generator", generator, 1e-5)
    vocabulary = (tmp_path / "tf/vocab.txt").read_text()
    assert (tmp_path / "run/discriminator/vocab.txt").read_text() == vocabulary
    again = electra.pretrain(str(text), out=str(tmp_path / "run"), init=str(prefix), **options)
    assert again["step"] == 1
    with pytest.raises(ElectraError, match="num_heads|--model.num-heads"):  # of the wrong number of heads
        electra.pretrain(str(text), out=str(tmp_path / "x"), init=str(prefix), **options | {"model.num_heads": 3})


@pytest.mark.skipif(not TF_SMALL.exists(), reason=f"the golden numbers are not at {TF_SMALL}")
class TestGolden:
    """A checkpoint that the original code trained, with what it computed."""

    def test_variables(self) -> None:
        prefix = find_tensorflow_checkpoint(TF_SMALL)
        assert prefix is not None
        bundle = Bundle(prefix)
        expected = {name.replace("|", "/"): value for name, value in np.load(TF_SMALL / "weights.npz").items()}
        assert bundle.index.entries.keys() == expected.keys()
        assert all(np.array_equal(bundle.read(name).numpy(), value) for name, value in expected.items())
        read = {
            name for network in find_networks(prefix).values() for names in network.variables.values() for name in names
        }
        assert read | {"global_step"} >= expected.keys()

    @torch.no_grad()
    def test_outputs(self, tmp_path: Path) -> None:
        found = electra.convert(TF_SMALL, out=tmp_path, heads=4)
        data = {name: torch.from_numpy(each) for name, each in np.load(TF_SMALL / "expected.npz").items()}
        real, types = data["input_mask"].bool(), data["segment_ids"].long()
        main = ElectraForPreTraining.from_pretrained(found["discriminator"]).eval()
        output = main(data["corrupted_input_ids"].long(), real.long(), types, output_hidden_states=True)
        assert (output.hidden_states[-1] - data["discriminator_hidden"])[real].abs().max() < 1e-4
        assert (output.logits.sigmoid() - data["discriminator_probs"])[real].abs().max() < 1e-4
        losses = torch.nn.functional.binary_cross_entropy_with_logits(
            output.logits, data["is_replaced"].float(), reduction="none"
        )
        per_example = (losses * real).sum(1) / real.sum(1)
        assert (per_example - data["discriminator_per_example_loss"]).abs().max() < 1e-4
        generator = ElectraForMaskedLM.from_pretrained(found["generator"]).eval()
        logits = generator(data["masked_input_ids"].long(), real.long(), types).logits
        logits = logits.gather(1, data["masked_lm_positions"].long()[..., None].expand(-1, -1, logits.shape[-1]))
        used = data["masked_lm_weights"].bool()
        assert (logits - data["generator_logits"])[used].abs().max() < 1e-4
        generator_loss = torch.nn.functional.cross_entropy(logits[used], data["masked_lm_ids"].long()[used])
        assert float(generator_loss) == pytest.approx(float(data["generator_loss"]), abs=1e-4)
        total = float(generator_loss) + 50 * float((losses * real).sum() / real.sum())
        assert total == pytest.approx(float(data["total_loss"]), abs=1e-4 * 50)
