"""The command line: start-up time, help pages, options, and errors for invalid command lines."""

import contextlib
import io
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from support.errors import fails, raises

import electra
from electra import cli, commands
from electra.commands.pretraining import resolve_pretraining
from electra.config import suggestions
from electra.errors import UsageError
from electra.presets import PRESETS
from electra.pretraining import run
from electra.pretraining.config import PretrainConfig


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch) -> list[PretrainConfig]:
    """Record the configurations that `pretrain` is called with, instead of running them."""
    seen: list[PretrainConfig] = []
    monkeypatch.setattr(run, "pretrain", lambda config, out, callbacks: seen.append(config) or {})
    return seen


def test_help_does_not_import_large_packages() -> None:
    """`electra --help` takes a tenth of a second for this reason."""
    code = "import sys; from electra.cli import main; main(['--help']); print(sorted(set(sys.modules) & {'torch', 'numpy', 'yaml', 'rich'}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert all(f"  {name}" in done.stdout for name in cli.COMMANDS)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_explains_every_option(name: str, capsys: pytest.CaptureFixture) -> None:
    cli.main([name, "--help"])
    text = capsys.readouterr().out
    options = [line for line in text.splitlines() if line.startswith("  --")]
    assert options
    assert "ARG:" not in text
    assert "_" not in "".join(line.split()[0] for line in options), "names are written with hyphens"


def test_help_shows_how_a_boolean_option_is_turned_off(capsys: pytest.CaptureFixture) -> None:
    cli.main(["pretrain", "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert "  --private [true|false]" in lines
    assert "  --runtime.kernels [true|false]" in lines


@pytest.mark.parametrize(
    ("words", "expected"), [("--cased", True), ("--cased true", True), ("--cased false", False), ("--cased=no", False)]
)
def test_boolean_options(resolved: list[PretrainConfig], words: str, expected: bool) -> None:
    cli.main(["pretrain", "a", "--out", "r", *words.split()])
    assert resolved[0].cased is expected


def test_every_field_has_a_help_text(capsys: pytest.CaptureFixture) -> None:
    cli.main(["pretrain", "--help"])
    text = " ".join(capsys.readouterr().out.split("\narguments:")[1].split())
    for name in electra.config.files.flatten(yaml.safe_load(electra.config.files.to_yaml(PretrainConfig()))):
        option = "--" + name.replace("_", "-")
        if name != "text":
            after = text.split(f" {option} ", 1)[1]
            assert "(type:" in after.split(" --", 1)[0], option
            assert len(after.split("(type:")[0].split()) > 2, f"{option} is not explained"


def test_help_of_pretrain(capsys: pytest.CaptureFixture) -> None:
    cli.main(["pretrain", "--help", "--preset", "tiny"])
    lines = capsys.readouterr().out
    text = " ".join(lines.split())
    assert text.startswith("usage: electra pretrain [TEXT ...] --out OUT")
    assert (
        "(type: tiny, nano, micro, small, small++, base, base++, large, bert-small, bert-base or bert-large, default: tiny)"
        in text
    )
    assert "The defaults shown are those of the preset tiny." in text
    assert "Pre-training task: electra; or what the paper compares it with" in text
    assert "(type: int or null, default: 20000)" in text
    assert "(type: strict or replace, default: strict)" in text
    for annotation in ("Literal[", " | ", "CONFIG Path to", "--model CONFIG"):
        assert annotation not in text.replace("--config CONFIG", "")


@pytest.mark.parametrize(
    "command", ["tokenizer", "prepare", "evaluate", "fill-mask", "study", "flops", "evaluate-mlm", "minimal-pairs"]
)
def test_help_shows_plain_types(command: str, capsys: pytest.CaptureFixture) -> None:
    """The help of a command has names of Python types, not annotations, also for paths."""
    cli.main([command, "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "(type: int or null" in text or "(type: str or null" in text or "(type: str" in text
    for annotation in ("PathLike", "Union[", "Literal[", " | "):
        assert annotation not in text


@pytest.mark.parametrize("words", ["--steps 1e3", "--steps=1e3", "--steps 1000.0", "--steps 1000"])
def test_integer_options_accept_scientific_notation(resolved: list[PretrainConfig], words: str) -> None:
    cli.main(["pretrain", "a", "--out", "r", *words.split(), "--optimizer.learning-rate", "1e-3"])
    assert (resolved[0].steps, resolved[0].optimizer.learning_rate) == (1000, 1e-3)


def test_difference_of_configurations_is_described(tmp_path: Path) -> None:
    saved, tiny = tmp_path / "c.yaml", PRESETS["tiny"]()
    saved.write_text(electra.config.files.to_yaml(tiny))
    other = replace(tiny, text=("a", "b"), steps=None, hours=2.0, cased=True)
    description = electra.config.files.describe_difference(saved, other, ())
    assert description is not None
    expected = (("--text", "a b"), ("--steps", "20000"), ("--hours", "2.0"), ("1",))
    for part, values in zip(description.split("; "), expected, strict=True):
        assert all(value in part for value in values)
    description = electra.config.files.describe_difference(saved, replace(tiny, cased=True), ())
    assert description is not None
    assert re.findall(r"--cased|true|false|;", description) == ["--cased", "false", "true"]
    assert electra.config.files.describe_difference(saved, tiny, ()) is None
    lines = [line for line in saved.read_text().splitlines() if "final_fraction" not in line]
    saved.write_text("\n".join(lines))  # of a version without this option
    assert electra.config.files.describe_difference(saved, tiny, ()) is None
    falling = replace(tiny, masking=replace(tiny.masking, final_fraction=0.1))
    description = electra.config.files.describe_difference(saved, falling, ())
    assert description == "--masking.final-fraction is not set there, 0.1 here"


def test_options_override_the_preset(resolved: list[PretrainConfig]) -> None:
    cli.main(
        [
            "pretrain",
            "a",
            "b",
            "--preset",
            "tiny",
            "--out",
            "r",
            "--model.hidden-size",
            "64",
            "--optimizer.learning-rate=1e-4",
            "--cased",
        ]
    )
    (config,) = resolved
    assert config.text == ("a", "b")
    assert config.preset == "tiny"
    assert config.model.hidden_size == 64
    assert config.optimizer.learning_rate == 1e-4
    assert config.cased is True
    assert config.training.batch_size == PRESETS["tiny"]().training.batch_size


def test_options_override_the_file_which_overrides_the_preset(resolved: list[PretrainConfig], tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("preset: tiny\nseed: 7\nmodel: {hidden_size: 64}\noptimizer.learning_rate: 1e-4\nsteps: 9\n")
    cli.main(f"pretrain a --out r --seed 8 --config {file}".split())
    cli.main(f"pretrain a --config {file} --out r --hours 2 --preset small".split())
    one, two = resolved
    assert (one.preset, one.seed, one.model.hidden_size, one.optimizer.learning_rate) == ("tiny", 8, 64, 1e-4)
    assert (one.steps, one.hours) == (9, None)
    assert (two.preset, two.seed, two.model.num_layers, two.model.hidden_size) == ("small", 7, 12, 64)
    assert (two.steps, two.hours) == (None, 2.0)


def test_python_accepts_the_same_names(resolved: list[PretrainConfig]) -> None:
    cli.main(
        [
            "pretrain",
            "a",
            "--preset",
            "tiny",
            "--out",
            "r",
            "--model.hidden-size",
            "64",
            "--optimizer.learning-rate",
            "1e-4",
        ]
    )
    electra.pretrain("a", preset="tiny", out="r", model={"hidden_size": 64}, **{"optimizer.learning_rate": 1e-4})
    assert resolved[0] == resolved[1]


def test_python_has_the_same_defaults(resolved: list[PretrainConfig]) -> None:
    cli.main(["pretrain", "a", "--out", "r"])
    electra.pretrain("a", out="r")
    assert resolved[0] == resolved[1] == PRESETS["small"]().__class__(text=("a",))


def test_the_saved_configuration_reads_back(tmp_path: Path) -> None:
    for name, preset in PRESETS.items():
        file = tmp_path / f"{name}.yaml"
        file.write_text(electra.config.files.to_yaml(preset()))
        assert resolve_pretraining({}, file, tmp_path) == preset()


@pytest.mark.parametrize(
    ("words", "code", "values"),
    [
        ("pretrian", "unknown-command", "pretrian pretrain"),
        ("xyz", "unknown-command", "xyz pretrain tokenizer prepare evaluate"),
        ("pretrain a --out r --optimiser.learning-rate 1", "unknown-option", "--optimiser.learning-rate --optimizer.learning-rate"),
        ("pretrain a --out r --stesp 1", "unknown-option", "--stesp --steps"),
        ("pretrain a --out r --seq-len x", "wrong-type", "--seq-len int x"),
        ("pretrain a --out r --cased=maybe", "wrong-type", "--cased true false maybe"),
        ("pretrain a --out r --documents page", "unknown-choice", "--documents blank-line file line page"),
        ("pretrain a --out r --preset huge", "unknown-choice", "--preset tiny nano micro small small++ base base++ large bert-small bert-base bert-large huge"),
        ("pretrain a --out r --preset smal", "unknown-choice", "smal; small?"),
        ("pretrain a --out r --objective gpt", "unknown-choice", "--objective electra electra-15 gpt"),
        ("pretrain a --out r --log-to tensorboard,wandb", "unknown-choice", "--log-to tensorboard,wandb; trackio"),
        ("pretrain a --out r --steps 5 --hours 1", "wrong-budget", "--steps --hours --flops"),
        ("pretrain a --out r --seq-len 1024", "longer-than-model", "--seq-len 1024 512 --model.max-positions"),
        ("pretrain a --out r --seq-len 4", "out-of-range", "--seq-len 4 5"),
        ("pretrain a --out r --workers 0", "out-of-range", "--workers 0 1"),
        ("pretrain a --out r --model.hidden-size 30", "indivisible", "model.hidden_size 30 model.num_heads 4"),
        ("pretrain a --out r --config nowhere.yaml", "missing", "nowhere.yaml"),
        ("pretrain a", "missing-option", "--out pretrain --help"),
        ("pretrain a --out", "missing-value", "--out"),
        ("pretrain a --out r --seed 3 b", "scattered-values", "'b' TEXT"),
        ("pretrain a --out r -o x", "unknown-option", "-o; --help"),
        ("flops tiny", "not-option", "'tiny' --help"),
        ("prepare a --out r", "missing-option", "--tokenizer prepare --help"),
        ("evaluate", "missing-option", "RUN evaluate --help"),
        ("evaluate r s", "extra-argument", "'s' RUN"),
        ("minimal-pairs", "missing-option", "MODEL FILES minimal-pairs --help"),
        ("minimal-pairs m a --threads 2 b", "scattered-values", "'b' FILES"),
        ("prepare a", "missing-option", "--tokenizer --out"),
        ("pretrain a --out r --optimizer.lr 1", "unknown-option", "--optimizer.lr --optimizer.learning-rate"),
        ("pretrain a --out r --bs 1", "unknown-option", "--bs --training.batch-size"),
        ("pretrain a --out r --tokenizer.vocab-size 3", "unknown-option", "--tokenizer.vocab-size --model.vocab-size"),
        ("pretrain a --out r --generator.temperature nan", "not-finite", "--generator.temperature nan"),
        ("pretrain a --out r --optimizer.learning 1", "unknown-option", "--optimizer.learning; --optimizer.learning-rate"),
        ("pretrain a --out r --steps 1.5", "wrong-type", "--steps int null 1.5"),
        ("tokenizer a --out r --vocab-sise 5", "unknown-option", "--vocab-sise --vocab-size"),
        ("pretrain a --out r --hidden-size 5", "unknown-option", "--hidden-size; --model.hidden-size"),
        ("pretrain a --out r --device cpu", "unknown-option", "--device; --runtime.device"),
        ("pretrain a --out r --qwerty 5", "unknown-option", "--qwerty; --help"),
        ("evaluate r --exemplars 5", "unknown-option", "--exemplars; --help"),
        ("pretrain a --out r --no-cased", "unknown-option", "--no-cased; --cased"),
        ("pretrain a --out r --no-out", "unknown-option", "--no-out; --help"),
    ],
)  # fmt: skip
def test_invalid_command_lines_are_rejected(
    words: str, code: str, values: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fails(words.split(), code, *values.split())
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("finetune sst2 --model m --out o --class-weight 1 9", ["--class-weight;", "--class-weights"]),
        ("finetune sst2 --model m --out o --patience 3", ["--patience;", "--early-stopping"]),
        ("pretrain a --out r --resume", ["--resume;", "--out"]),
        ("finetune sst2 --model m --out o --resume_from_checkpoint c", ["--resume-from-checkpoint;", "--out"]),
        ("tokenizer a --out r --resume", ["--resume;", "--help"]),
        ("pretrain a --out r --extend 9", ["--extend;", "--init RUN --out"]),
        ("pretrain a --out r --fp16", ["--fp16;", " float16", "--runtime.precision bfloat16"]),
        ("study objectives --data d --out o --bf16 true", ["--bf16;", "--precision bfloat16"]),
        ("pretrain a --out r --gpus 2", ["--gpus;", "torchrun --nproc-per-node N -m electra pretrain"]),
        ("finetune sst2 --model m --out o --gpus 2", ["--gpus;", "--runtime.device cuda", "CUDA_VISIBLE_DEVICES"]),
        ("pretrain a --out r --no-cuda", ["--no-cuda;", "--runtime.device cpu"]),
        ("pretrain a --out r --lr 1", ["--lr;", "--optimizer.learning-rate"]),
        ("finetune sst2 --model m --out o --lr 1", ["--lr;", " --learning-rate"]),
        ("pretrain a --out r --learning_rate 1", ["--learning-rate;", "--optimizer.learning-rate"]),
        ("pretrain a --out r --epochs 3", ["--epochs;", "--steps, --hours or --flops"]),
        ("finetune sst2 --model m --out o --num_train_epochs 3", ["--num-train-epochs;", " --epochs"]),
        ("finetune sst2 --model m --out o --steps 3", ["--steps;", "--epochs"]),
        ("pretrain a --out r --batch_size 3", ["--batch-size;", "--training.batch-size"]),
        ("finetune sst2 --model m --out o --per_device_train_batch_size 3", ["--per-device-train-batch-size;", " --batch-size"]),
        ("pretrain a --output_dir r", ["--output-dir;", "--out?"]),
        ("finetune sst2 --model_name_or_path m --out o", ["--model-name-or-path;", "--model?"]),
        ("pretrain a --out r --overwrite-output-dir", ["--overwrite-output-dir;", "--out"]),
        ("pretrain --dataset a --out r", ["--dataset;", "hf://owner/name", "builtin"]),
        ("glue --model m --data g --out o --report_to wandb", ["--report-to;", "--log-to tensorboard, wandb or trackio"]),
    ],
)  # fmt: skip
def test_options_of_other_tools_have_a_suggestion(words: str, values: list[str]) -> None:
    error = fails(words.split(), "unknown-option", *values)
    assert ("--help" in str(error)) == ("--help" in values), "advice of its own, or a reference to the help"


def test_gpu_numbers_have_a_suggestion() -> None:
    words = "pretrain a --out r --runtime.device cuda:1"
    fails(words.split(), "unknown-choice", "--runtime.device", "cuda:1", "CUDA_VISIBLE_DEVICES=1")


def test_suggestions_name_existing_options() -> None:
    """All options named in the tables of suggestions and in their texts are options of some command."""
    names = set()
    for command in cli.COMMANDS:
        with contextlib.redirect_stdout(io.StringIO()) as text:
            cli.main([command, "--help"])
        names |= set(re.findall(r"--[a-z0-9.-]+", text.getvalue()))
    for ours in suggestions.RENAMED.values():
        assert {suggestions.format_flag(name) for name in ours} <= names
    for _, only_for, options, answer in suggestions.ANSWERS:
        assert set(only_for) <= set(cli.COMMANDS)
        named = {suggestions.format_flag(name) for name in options} | set(re.findall(r"--[a-z0-9.-]+", answer))
        assert named - {"--nproc-per-node"} <= names


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("pretrain --data hf://a/b --out r", ["--data hf://a/b", "hf://nyu-mll/glue", "hf download --repo-type dataset a/b --local-dir"]),
        ("pretrain a --init hf://a/b --out r", ["--init hf://a/b", "hf://, as a/b"]),
        ("pretrain a --tokenizer hf://a/b --out r", ["--tokenizer hf://a/b", "hf://, as a/b"]),
        ("prepare a --tokenizer hf://a/b --out r", ["--tokenizer hf://a/b", "hf://, as a/b"]),
        ("tokenizer a --out hf://a/b", ["--out hf://a/b"]),
        ("evaluate hf://a/b", ["RUN hf://a/b"]),
        ("fill-mask x --model hf://a/b", ["--model hf://a/b", "hf://nyu-mll/glue", "hf://, as a/b"]),
        ("finetune sst2 --model hf://a/b --data g --out o", ["--model hf://a/b", "hf://nyu-mll/glue", "hf://, as a/b"]),
        ("finetune squad1 --model m --data hf://a/b --out o", ["--data hf://a/b"]),
        ("finetune table --model m --train hf://a/b --out o", ["--train hf://a/b"]),
        ("predict --model m --input hf://a/b", ["--input hf://a/b"]),
        ("study objectives --data d --tags hf://a/b --out o", ["--tags hf://a/b"]),
    ],
)  # fmt: skip
def test_hub_addresses_are_rejected_for_local_paths(words: str, values: list[str]) -> None:
    fails(words.split(), "hub-not-allowed", *values)


def test_text_in_place_of_a_file_is_reported() -> None:
    advice = ["'who is it'", "--input FILE", "echo 'who is it' | electra predict --model MODEL --input -"]
    for words in (["who is it"], ["who is it", "--model", "m"], ["--model", "m", "who is it"]):
        fails(["predict", *words], "text-as-option", *advice)
    for words in (["--input", "who is it"], ["--input=who is it", "--model", "m"]):
        fails(["predict", *words], "text-as-file", *advice)


@pytest.mark.slow
def test_invalid_device_from_python_is_rejected() -> None:
    """In another process, because beartype checks the type of `device` in this one."""
    code = """
import electra
try:
    electra.fill_mask("a [MASK]", model="m", device="cuda:1")
except electra.ElectraError as error:
    print(error.code, error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found, _, message = done.stdout.partition(" ")
    assert found == "unknown-choice"
    assert "'cuda:1'" in message
    assert "CUDA_VISIBLE_DEVICES" in message


@pytest.mark.parametrize(
    ("content", "code", "values"),
    [
        ("modle: {hidden_size: 3}", "unknown-option", ["--modle.hidden-size", "--model.hidden-size"]),
        ("model: {hiden_size: 3}", "unknown-option", ["--model.hiden-size", "--model.hidden-size"]),
        ("steps: many", "wrong-type", ["--steps", "int or null", "many"]),
        ("steps: '10,000'", "wrong-type", ["--steps", "10,000", "write it as 10000"]),
        ("seed: 1\na: [", "not-yaml", ["line 2"]),
        ("just words", "not-mapping", []),
    ],
)
def test_invalid_config_files_are_rejected(content: str, code: str, values: list[str], tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(content)
    fails(["pretrain", "a", "--out", tmp_path / "r", "--config", file], code, file, *values)


def test_unknown_name_in_python_is_rejected() -> None:
    with raises(UsageError, "unknown-option", "--optimizer.lerning-rate", "--optimizer.learning-rate"):
        electra.pretrain("a", out="r", optimizer={"lerning_rate": 1})


def test_the_public_names() -> None:
    assert sorted(electra.__all__) == electra.__all__
    for name in electra.__all__:
        assert getattr(electra, name) is not None
    functions = {name.replace("_", "-") for name in commands.__all__}
    assert set(electra.__all__) == {*commands.__all__, "Callback", "ElectraError", "__version__", "show_log"}
    assert set(cli.COMMANDS) == functions - {"load"}
    unknown = "nothing"
    with pytest.raises(AttributeError, match="nothing"):
        getattr(electra, unknown)


def test_importing_the_package_imports_nothing_else() -> None:
    code = (
        "import sys, electra; print(sorted(m for m in sys.modules if m.split('.')[0] in ('torch', 'numpy', 'electra')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['electra']"


def test_version(capsys: pytest.CaptureFixture) -> None:
    cli.main(["--version"])
    assert capsys.readouterr().out == f"electra {electra.__version__}\n"
