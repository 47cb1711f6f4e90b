"""The command line: quick, with every option explained, and one clear line for every mistake."""

import contextlib
import io
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from support.command_line import error

import electra
from electra import cli, commands
from electra.commands.pretraining import resolve_pretraining
from electra.config import suggestions
from electra.presets import PRESETS
from electra.pretraining import run
from electra.pretraining.config import PretrainConfig


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch) -> list[PretrainConfig]:
    """The configurations that `pretrain` is called with, instead of running them."""
    seen: list[PretrainConfig] = []
    monkeypatch.setattr(run, "pretrain", lambda config, out, callbacks: seen.append(config) or {})
    return seen


def test_help_imports_nothing_heavy() -> None:
    """`electra --help` starts in a tenth of a second because of that."""
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
        "(type: tiny, small, small++, base, base++, large, bert-small, bert-base or bert-large, default: tiny)" in text
    )
    assert "The defaults shown are those of the preset tiny." in text
    assert "Pre-training task: electra; or what the paper compares it with" in text
    assert "(type: int or null, default: 20000)" in text
    assert "(type: strict or replace, default: strict)" in text
    for cryptic in ("Literal[", " | ", "CONFIG Path to", "--model CONFIG"):
        assert cryptic not in text.replace("--config CONFIG", "")


@pytest.mark.parametrize("command", ["tokenizer", "prepare", "evaluate", "fill-mask", "study", "flops", "evaluate-mlm"])
def test_types_in_the_help_of_functions_are_those_of_python(command: str, capsys: pytest.CaptureFixture) -> None:
    """Of paths too, which the functions take as objects as well."""
    cli.main([command, "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "(type: int or null" in text or "(type: str or null" in text or "(type: str" in text
    for cryptic in ("PathLike", "Union[", "Literal[", " | "):
        assert cryptic not in text


@pytest.mark.parametrize("words", ["--steps 1e3", "--steps=1e3", "--steps 1000.0", "--steps 1000"])
def test_integer_options_accept_scientific_notation(resolved: list[PretrainConfig], words: str) -> None:
    cli.main(["pretrain", "a", "--out", "r", *words.split(), "--optimizer.learning-rate", "1e-3"])
    assert (resolved[0].steps, resolved[0].optimizer.learning_rate) == (1000, 1e-3)


def test_difference_of_configurations_is_described(tmp_path: Path) -> None:
    saved, tiny = tmp_path / "c.yaml", PRESETS["tiny"]()
    saved.write_text(electra.config.files.to_yaml(tiny))
    other = replace(tiny, text=("a", "b"), steps=None, hours=2.0, cased=True)
    assert electra.config.files.describe_difference(saved, other, ()) == (
        "--text is not set there, a b here; --steps is 20000 there, not set here; --hours is not set there, 2.0 here; "
        "1 more option differs"
    )
    assert (
        electra.config.files.describe_difference(saved, replace(tiny, cased=True), ())
        == "--cased is false there, true here"
    )


def test_a_preset_then_options(resolved: list[PretrainConfig]) -> None:
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
    ("words", "message"),
    [
        ("pretrian", "there is no command 'pretrian'; did you mean pretrain?"),
        ("xyz", "there is no command 'xyz'; there are pretrain, tokenizer, prepare, evaluate"),
        ("pretrain a --out r --optimiser.learning-rate 1", "no option --optimiser.learning-rate; did you mean --optimizer.learning-rate?"),
        ("pretrain a --out r --stesp 1", "there is no option --stesp; did you mean --steps?"),
        ("pretrain a --out r --seq-len x", "--seq-len: expected int, got x"),
        ("pretrain a --out r --documents page", "--documents: expected blank-line, file or line, got page"),
        ("pretrain a --out r --preset huge", "--preset: expected tiny, small, small++, base, base++, large, bert-small, bert-base or bert-large, got huge"),
        ("pretrain a --out r --preset smal", "got smal; did you mean small?"),
        ("pretrain a --out r --objective gpt", "--objective: expected electra, electra-15, "),
        ("pretrain a --out r --steps 5 --hours 1", "exactly one of --steps, --hours and --flops is needed"),
        ("pretrain a --out r --seq-len 1024", "--seq-len 1024 is more than the 512 positions of the model"),
        ("pretrain a --out r --seq-len 4", "--seq-len 4: at least 5 tokens"),
        ("pretrain a --out r --workers 0", "--workers 0: at least 1"),
        ("pretrain a --out r --model.hidden-size 30", "model.hidden_size is 30; it must be a multiple of model.num_heads, 4"),
        ("pretrain a --out r --config nowhere.yaml", "nowhere.yaml: no such config file"),
        ("pretrain a", "--out is missing; electra pretrain --help explains it"),
        ("pretrain a --out r --seed 3 b", "'b' follows other options; name all of TEXT together"),
        ("pretrain a --out r -o x", "there is no option -o; --help lists all options"),
        ("prepare a --out r", "--tokenizer is missing; electra prepare --help explains it"),
        ("evaluate", "RUN is missing; electra evaluate --help explains it"),
        ("prepare a", "--tokenizer and --out are missing"),
        ("pretrain a --out r --optimizer.lr 1", "no option --optimizer.lr; did you mean --optimizer.learning-rate?"),
        ("pretrain a --out r --bs 1", "there is no option --bs; did you mean --training.batch-size?"),
        ("pretrain a --out r --tokenizer.vocab-size 3", "no option --tokenizer.vocab-size; did you mean --model.vocab-size?"),
        ("pretrain a --out r --generator.temperature nan", "--generator.temperature: expected a finite number, got nan"),
        ("pretrain a --out r --optimizer.learning 1", "did you mean --optimizer.learning-rate?"),
        ("pretrain a --out r --steps 1.5", "--steps: expected int or null, got 1.5"),
        ("tokenizer a --out r --vocab-sise 5", "there is no option --vocab-sise; did you mean --vocab-size?"),
        ("pretrain a --out r --hidden-size 5", "there is no option --hidden-size; did you mean --model.hidden-size?"),
        ("pretrain a --out r --device cpu", "there is no option --device; did you mean --runtime.device?"),
        ("pretrain a --out r --qwerty 5", "there is no option --qwerty; --help lists all options"),
        ("evaluate r --exemplars 5", "there is no option --exemplars; --help lists all options"),
    ],
)  # fmt: skip
def test_invalid_command_lines_are_reported(
    words: str, message: str, capsys: pytest.CaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in error(capsys, *words.split())
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("finetune sst2 --model m --out o --class-weights 1 9", "--class-weights; classes are not weighted; to weight a class, repeat its rows"),
        ("pretrain a --out r --resume", "--resume; to resume an interrupted run, run the same command again with the same --out"),
        ("finetune sst2 --model m --out o --resume_from_checkpoint c", "--resume-from-checkpoint; to resume an interrupted run"),
        ("tokenizer a --out r --resume", "--resume; --help lists all options"),
        ("pretrain a --out r --extend 9", "--extend; a finished run cannot be extended; continue from its weights in another run with --init RUN"),
        ("pretrain a --out r --fp16", "--fp16; float16 is not supported; use --runtime.precision bfloat16"),
        ("study objectives --data d --out o --bf16 true", "--bf16; use --precision bfloat16"),
        ("pretrain a --out r --gpus 2", "--gpus; for several GPUs run torchrun --nproc-per-node N -m electra pretrain"),
        ("finetune sst2 --model m --out o --gpus 2", "--gpus; --runtime.device cuda uses one GPU"),
        ("pretrain a --out r --no-cuda", "--no-cuda; use --runtime.device cpu"),
        ("pretrain a --out r --lr 1", "--lr; did you mean --optimizer.learning-rate?"),
        ("finetune sst2 --model m --out o --lr 1", "--lr; did you mean --learning-rate?"),
        ("pretrain a --out r --learning_rate 1", "--learning-rate; did you mean --optimizer.learning-rate?"),
        ("pretrain a --out r --epochs 3", "--epochs; the length of pre-training is --steps, --hours or --flops"),
        ("finetune sst2 --model m --out o --num_train_epochs 3", "--num-train-epochs; did you mean --epochs?"),
        ("finetune sst2 --model m --out o --steps 3", "--steps; the length of fine-tuning is --epochs"),
        ("pretrain a --out r --batch_size 3", "--batch-size; did you mean --training.batch-size?"),
        ("finetune sst2 --model m --out o --per_device_train_batch_size 3", "--per-device-train-batch-size; did you mean --batch-size?"),
        ("pretrain a --output_dir r", "--output-dir; did you mean --out?"),
        ("finetune sst2 --model_name_or_path m --out o", "--model-name-or-path; did you mean --model?"),
        ("pretrain a --out r --overwrite-output-dir", "--overwrite-output-dir; nothing is overwritten"),
        ("pretrain --dataset a --out r", "--dataset; text is named without an option"),
        ("glue --model m --data g --out o --report_to wandb", "--report-to; --log-to tensorboard, wandb or trackio names where metrics go"),
        ("pretrain a --out r --runtime.device cuda:1", "got cuda:1; to select a GPU, set CUDA_VISIBLE_DEVICES=1 and use cuda"),
    ],
)  # fmt: skip
def test_options_of_other_tools_have_a_suggestion(words: str, message: str, capsys: pytest.CaptureFixture) -> None:
    assert message in error(capsys, *words.split())


def test_suggestions_name_existing_options() -> None:
    """The options in the tables and in the sentences are those of some command."""
    names = set()
    for command in cli.COMMANDS:
        with contextlib.redirect_stdout(io.StringIO()) as text:
            cli.main([command, "--help"])
        names |= set(re.findall(r"--[a-z0-9.-]+", text.getvalue()))
    for ours in suggestions.RENAMED.values():
        assert {suggestions.format_flag(name) for name in ours} <= names
    for _, verbs, options, answer in suggestions.ANSWERS:
        assert set(verbs) <= set(cli.COMMANDS)
        named = {suggestions.format_flag(name) for name in options} | set(re.findall(r"--[a-z0-9.-]+", answer))
        assert named - {"--nproc-per-node"} <= names


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("pretrain --data hf://a/b --out r", "--data hf://a/b: hf:// is for text to pre-train on and for GLUE (hf://nyu-mll/glue); download it first: hf download --repo-type dataset a/b --local-dir FOLDER"),
        ("pretrain a --init hf://a/b --out r", "--init hf://a/b: hf:// is for text"),
        ("pretrain a --tokenizer hf://a/b --out r", "--tokenizer hf://a/b: hf:// is for text"),
        ("prepare a --tokenizer hf://a/b --out r", "download it first: hf download a/b --local-dir FOLDER"),
        ("tokenizer a --out hf://a/b", "--out hf://a/b: hf:// is for text"),
        ("evaluate hf://a/b", "RUN hf://a/b: hf:// is for text"),
        ("fill-mask x --model hf://a/b", "--model hf://a/b: hf:// is for text to pre-train on and for GLUE (hf://nyu-mll/glue); download it first"),
        ("finetune sst2 --model hf://a/b --data g --out o", "--model hf://a/b: hf:// is for text to pre-train on and for GLUE (hf://nyu-mll/glue); name a model of the hub without hf://, as a/b"),
        ("finetune squad1 --model m --data hf://a/b --out o", "--data hf://a/b: hf:// is for text"),
        ("finetune table --model m --train hf://a/b --out o", "--train hf://a/b: hf:// is for text"),
        ("predict --model m --input hf://a/b", "--input hf://a/b: hf:// is for text"),
        ("study objectives --data d --tags hf://a/b --out o", "--tags hf://a/b: hf:// is for text"),
    ],
)  # fmt: skip
def test_hub_addresses_are_rejected_for_local_paths(words: str, message: str, capsys: pytest.CaptureFixture) -> None:
    assert message in error(capsys, *words.split())


def test_text_in_place_of_a_file_is_reported(capsys: pytest.CaptureFixture) -> None:
    advice = "texts are read from a file, --input FILE, or from standard input: echo 'who is it' | electra predict --model MODEL --input -"
    for words in (["who is it"], ["who is it", "--model", "m"], ["--model", "m", "who is it"]):
        assert error(capsys, "predict", *words) == f"'who is it': is no option; {advice}"
    for words in (["--input", "who is it"], ["--input=who is it", "--model", "m"]):
        assert error(capsys, "predict", *words) == f"'who is it': no such file; {advice}"


@pytest.mark.slow
def test_invalid_device_from_python_is_rejected() -> None:
    code = "import electra; electra.fill_mask('a [MASK]', model='m', device='cuda:1')"  # a test would check its type
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (
        "device 'cuda:1': expected auto, cpu or cuda; select a GPU with CUDA_VISIBLE_DEVICES"
        in done.stderr.splitlines()[-1]
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "modle: {hidden_size: 3}",
            "c.yaml: there is no option --modle.hidden-size; did you mean --model.hidden-size?",
        ),
        ("model: {hiden_size: 3}", "c.yaml: there is no option --model.hiden-size; did you mean --model.hidden-size?"),
        ("steps: many", "c.yaml: --steps: expected int or null, got many"),
        ("a: [", "c.yaml: not a config file"),
        ("just words", "c.yaml: not a config file (expected names and values)"),
    ],
)
def test_invalid_config_files_are_reported(
    content: str, message: str, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(content)
    assert message in error(capsys, "pretrain", "a", "--out", str(tmp_path / "r"), "--config", str(file))


def test_unknown_name_in_python_is_rejected() -> None:
    with pytest.raises(electra.ElectraError, match="did you mean --optimizer.learning-rate"):
        electra.pretrain("a", out="r", optimizer={"learning_rat": 1})


def test_the_public_names() -> None:
    assert sorted(electra.__all__) == electra.__all__
    for name in electra.__all__:
        assert getattr(electra, name) is not None
    functions = {name.replace("_", "-") for name in commands.__all__}
    assert set(electra.__all__) == {*commands.__all__, "Callback", "ElectraError", "__version__", "show_log"}
    assert set(cli.COMMANDS) == functions - {"load"}
    unknown = "nothing"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
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
