"""Complete error messages, as a user sees them on the terminal, for the most frequent mistakes.

Other tests compare the codes of errors and the values in their messages; the sentences are in this file only.
"""

import json
import shlex
import shutil
from pathlib import Path

import pytest
from support.toy import sentences
from support.toy_tasks import save_model

from electra import cli

MESSAGES: dict[str, tuple[str, str]] = {
    "unknown command": (
        "electra pretrian text",
        "there is no command 'pretrian'; did you mean pretrain?",
    ),
    "unknown option": (
        "electra pretrain text --out new --lr 1e-4",
        "there is no option --lr; did you mean --optimizer.learning-rate?",
    ),
    "option of another tool": (
        "electra finetune sst2 --model model --out new --fp16",
        "there is no option --fp16; float16 is not supported; use --runtime.precision bfloat16",
    ),
    "negated option": (
        "electra pretrain text --out new --no-cased",
        "there is no option --no-cased; use --cased false",
    ),
    "missing option": (
        "electra pretrain text",
        "--out is missing; electra pretrain --help explains it",
    ),
    "wrong type": (
        "electra pretrain text --out new --seq-len short",
        "--seq-len: expected int, got short",
    ),
    "unknown choice": (
        "electra pretrain text --out new --preset smal",
        "--preset: expected tiny, nano, micro, small, small++, base, base++, large, bert-small, bert-base or bert-large, got smal; "
        "did you mean small?",
    ),
    "values with a comma": (
        "electra pretrain text --out new --log-to tensorboard,wandb",
        "--log-to: expected tensorboard, wandb or trackio, got tensorboard,wandb; separate the values by spaces: "
        "--log-to tensorboard wandb",
    ),
    "out of range": (
        "electra pretrain text --out new --training.batch-size 0",
        "--training.batch-size is 0; it must be at least 1",
    ),
    "unknown option in a config file": (
        "electra pretrain text --out new --config unknown.yaml",
        "unknown.yaml: there is no option --model.hiden-size; did you mean --model.hidden-size?",
    ),
    "config file that is not YAML": (
        "electra pretrain text --out new --config broken.yaml",
        "broken.yaml: not a config file (line 2: expected ',' or ']', but got '<stream end>')",
    ),
    "no text": (
        "electra pretrain --out new",
        "give either text to train on (files, folders, hf://owner/name or builtin) or --data DIR",
    ),
    "missing file": (
        "electra tokenizer nowhere.txt --out new",
        "nowhere.txt: cannot be read: No such file or directory",
    ),
    "folder without text": (
        "electra tokenizer pictures --out new",
        "pictures: no text in this folder: none of its 2 files is one of .txt (plain text), .jsonl (a JSON object per line), "
        ".parquet (a table with a text column), .arrow (an Arrow table with a text column), .json (as .jsonl, only compressed), each plain, .gz or .zst",
    ),
    "not UTF-8": (
        "electra tokenizer latin-1.txt --out new",
        "latin-1.txt: not UTF-8 at byte offset 3 (0xe9): convert the file, or use --encoding-errors replace",
    ),
    "too little text": (
        "electra pretrain short.txt --out new --preset tiny --seq-len 16 --training.batch-size 4",
        "{folder}/short.txt: too little text: 1 training example of up to 16 tokens, less than one batch of 4; add text, "
        "or lower --training.batch-size or --seq-len",
    ),
    "output of another run": (
        "electra pretrain --config run/config.yaml --out run --optimizer.learning-rate 1e-5",
        "run: a run of another configuration: --optimizer.learning-rate is 0.002 there, 1e-05 here; choose another --out, or "
        "repeat the options it was started with; to continue training from it, use --init run --out ANOTHER",
    ),
    "output with other files": (
        "electra pretrain text --out pictures",
        "pictures: not empty and not a run; choose another --out",
    ),
    "directory without prepared data": (
        "electra pretrain --data text --out new",
        "text: not prepared data (there is no manifest.json); electra prepare creates prepared data",
    ),
    "truncated data": (
        "electra pretrain --data truncated --out new --preset tiny",
        "{folder}/truncated/train/00000.arrow: {size:,} bytes, expected {expected:,}: it was truncated or changed; delete "
        "{folder}/truncated/manifest.json and run electra prepare as before: only damaged parts are prepared again",
    ),
    "model directory without config.json": (
        "electra fill-mask 'the [MASK] .' --model pictures",
        "pictures: not a model directory, it has no config.json; name a run of electra or a Hugging Face model",
    ),
    "text without [MASK]": (
        "electra fill-mask 'the cat .' --model run",
        "'the cat .': has no [MASK] (in capitals and brackets) to fill",
    ),
    "evaluation of another directory": (
        "electra evaluate text",
        "text: not a run directory, it has no config.yaml; name the --out of electra pretrain",
    ),
    "task without data": (
        "electra finetune sst2 --model model --out new",
        "sst2 needs --data: a folder in GLUE's layout, or hf://nyu-mll/glue",
    ),
    "unknown label": (
        "electra finetune table --model model --train train.csv --dev dev.csv --text text --label label --out new",
        "{folder}/dev.csv:2: the label is 'fine'; the training rows have bad, good; correct the row, or remove it",
    ),
    "unknown column": (
        "electra finetune table --model model --train train.csv --text text --label lable --out new",
        "{folder}/train.csv: no column 'lable'; there are text, label",
    ),
    "text as an argument of predict": (
        "electra predict --model model 'who is it'",
        "'who is it' is not an option; texts are read from a file, --input FILE, or from standard input: "
        "echo 'who is it' | electra predict --model MODEL --input -",
    ),
    "prediction with a pre-trained model": (
        "electra predict --model run --input train.csv",
        "run/discriminator: ElectraForPreTraining, not a fine-tuned model; fine-tune it with electra finetune",
    ),
    "launch variable that is not a number": (
        "RANK=x electra pretrain text --out new",
        "environment variable RANK='x': expected an integer; torchrun sets it; unset it to run one process",
    ),
    "missing launch variable": (
        "WORLD_SIZE=2 electra pretrain text --out new",
        "WORLD_SIZE is 2, but RANK is not set; start several processes with torchrun, or unset WORLD_SIZE to run one",
    ),
}
"""Name of the mistake -> a command line and its message. In the message, `folder` is the current directory; `size` and
`expected` are the sizes of the truncated file."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, finished: Path) -> Path:
    """The files that the command lines name."""
    folder = tmp_path_factory.mktemp("folder")
    for name, content in {
        "text/a.txt": sentences(50),
        "short.txt": "the cat sees mice .\n\nthe dog sleeps .\n",
        "unknown.yaml": "model: {hiden_size: 3}\n",
        "broken.yaml": "seed: 3\nlog_to: [tensorboard",
        "pictures/a.png": "",
        "pictures/b.png": "",
        "train.csv": "text,label\n" + "the cat,good\nthe dog,bad\n" * 8,
        "dev.csv": "text,label\nthe cat,fine\n",
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    (folder / "latin-1.txt").write_bytes(b"caf\xe9\n")
    save_model(folder / "model")
    (folder / "run").symlink_to(finished)
    shutil.copytree(finished / "data", folder / "truncated")
    shard = folder / "truncated/train/00000.arrow"
    shard.write_bytes(shard.read_bytes()[:-100])
    return folder


@pytest.mark.parametrize("mistake", MESSAGES)
def test_message(mistake: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    line, message = MESSAGES[mistake]
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*"))
    variables, _, words = line.partition("electra ")
    for variable in variables.split():
        monkeypatch.setenv(*variable.split("=", 1))
    with pytest.raises(SystemExit) as stop:
        cli.main(shlex.split(words))
    expected = json.loads((folder / "truncated/manifest.json").read_text())["train"][0]["bytes"]
    message = message.format(folder=folder, size=expected - 100, expected=expected)
    assert capsys.readouterr().err == f"electra: error: {message}\n"
    assert stop.value.code == 2
    assert sorted(folder.rglob("*")) == before, "nothing is written"
