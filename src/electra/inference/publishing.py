"""Upload of model directories to the Hugging Face hub: which files belong to a model, and one commit for each revision.

Files on the hub are added or replaced, never deleted.
"""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from electra.errors import HubError, ModelError, RunError, UsageError
from electra.external import one_line
from electra.finetuning.export import HEAD_FILE
from electra.finetuning.hub import find_model_directory
from electra.model.checkpoints import load_pretrained
from electra.pretraining.learning_curve import list_exports, read_amounts
from electra.pretraining.run_directory import RunDirectory
from electra.schema import check_file

if TYPE_CHECKING:
    from huggingface_hub import HfApi

log = logging.getLogger(__name__)

REQUIRED_FILES = ("config.json", "model.safetensors")
CARD = "README.md"
MODEL_FILES = (
    *REQUIRED_FILES,
    HEAD_FILE,
    "task.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
    CARD,
    "LICENSE",
)
"""Names of the files that are sent; any other file of the directory stays where it is."""
PICKLES = {".bin", ".ckpt", ".pickle", ".pkl", ".pt", ".pth"}
"""Suffixes of weights that execute code when they are loaded."""
DEFAULT_BRANCH = "main"
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
BRANCH = re.compile(r"\w[\w.-]*(/\w[\w.-]*)*", re.ASCII)
STATUS_CODES = {
    401: ("unauthorized", "the token is not valid: log in again with hf auth login, or set HF_TOKEN"),
    403: ("forbidden", "the token has no permission to write there: use one with write access to this owner"),
    404: ("not-found", "there is no such owner, repository or revision, or the token may not see it"),
    409: ("conflict", "another change was made at the same time: run the command again"),
}


@dataclass(frozen=True)
class Upload:
    """A file to send."""

    source: Path
    name: str
    """Path in the repository."""
    content: bytes | None = None
    """What is sent instead of the file's own content."""

    @property
    def size(self) -> int:
        """Bytes to send."""
        return self.source.stat().st_size if self.content is None else len(self.content)


def plan_revisions(
    directory: Path, part: str, revision: str | None, exports: bool, card_fields: Mapping[str, Any]
) -> dict[str, list[Upload]]:
    """List the files to send by revision; a revision `step-N` for each export, the finished model last.

    Args:
        directory: A model directory, a finished pre-training run, or a fine-tuning run.
        part: Networks of a run: main, generator or both.
        revision: Branch of the finished model.
        exports: Whether to send the exports of a run.
        card_fields: Fields of the front matter of the model cards that are replaced.

    Raises:
        UsageError: an option is for a pre-training run, and `directory` is none.
        ModelError: a network is missing, damaged, pickled, or has a link to outside.
        RunError: the run is not finished, or has no exports.
    """
    plans: dict[str, Path] = {revision or DEFAULT_BRANCH: directory}
    is_run = RunDirectory(directory).config.exists()
    if is_run and RunDirectory(directory).load_summary() is None:
        raise RunError("unfinished", f"{directory}: the run is not finished; run electra pretrain again")
    if exports:
        steps = {f"step-{read_amounts(path)['step']}": path for path in list_exports(directory)}
        if revision in steps:
            raise UsageError("reserved-revision", f"--revision {revision} is the revision of an export")
        plans = steps | plans
    elif not is_run and part != "main":
        raise UsageError("not-run", f"--part {part} is for a pre-training run; {directory} is none")
    return {
        name: [
            upload
            for folder, network in find_networks(path, part, is_run).items()
            for upload in list_uploads(network, folder, card_fields)
        ]
        for name, path in plans.items()
    }


def find_networks(directory: Path, part: str, is_run: bool) -> dict[str, Path]:
    """Find the model directories to send, by folder in the repository; a single one is sent to the top.

    Raises:
        ModelError: the run has no such network, or `directory` is not a model.
    """
    if not is_run:
        if not directory.exists():
            raise ModelError("missing", f"{directory}: no such directory")
        return {"": find_model_directory(str(directory))}
    networks = {path.name: path for path in RunDirectory(directory).list_networks()}
    main = next((path for name, path in networks.items() if name != "generator"), None)
    chosen = {"main": main, "generator": networks.get("generator")}
    wanted = [part] if part in chosen else list(chosen)
    found = [path for name in wanted if (path := chosen[name]) is not None]
    if len(found) < len(wanted):
        raise ModelError(
            "missing", f"{directory}: --part {part}: the run has only {', '.join(networks) or 'no network'}"
        )
    return {"" if len(found) == 1 else path.name: path for path in found}


def list_uploads(directory: Path, folder: str, card_fields: Mapping[str, Any]) -> list[Upload]:
    """List the files of a model directory to send, after a check that its weights can be read.

    Raises:
        ModelError: a required file is missing or damaged, weights are pickled, or a link leaves the directory.
    """
    if missing := [name for name in REQUIRED_FILES if not (directory / name).exists()]:
        raise ModelError("missing", f"{directory}: has no {' and no '.join(missing)}, which a model on the hub needs")
    if pickled := sorted(path.name for path in directory.iterdir() if path.suffix in PICKLES):
        raise ModelError(
            "pickled-weights",
            f"{directory}: {pickled[0]} is pickled, loading it can execute code; only model.safetensors is sent, "
            f"so move the other file away",
        )
    uploads = []
    for name in MODEL_FILES:
        path = directory / name
        if not path.exists() and not path.is_symlink():
            continue
        if not path.resolve().is_relative_to(directory.resolve()):
            raise ModelError(
                "leaves-directory", f"{path}: a link to {path.resolve()}, outside the directory; copy the file"
            )
        check_file(path, ModelError)
        uploads.append(Upload(path, str(PurePosixPath(folder) / name)))
    load_pretrained(directory)
    return [edit_card(upload, card_fields) if upload.source.name == CARD else upload for upload in uploads]


def edit_card(upload: Upload, fields: Mapping[str, Any]) -> Upload:
    """Replace fields of the front matter of a model card in what is sent; the file itself stays as it is.

    A license replaces the `FILL-IN` in the field `license_name` too.

    Raises:
        ModelError: the card is not UTF-8, or its front matter cannot be read.
    """
    if not fields:
        return upload
    from huggingface_hub import ModelCard

    try:
        card = ModelCard(upload.source.read_text(encoding="utf-8"))
        values = card.data.to_dict() | fields
        if "license" in fields:
            values.pop("license_name", None)
        card.content = f"---\n{type(card.data)(**values).to_yaml()}\n---\n{card.text}"
    except Exception as error:  # the type depends on the parser of YAML
        raise ModelError("bad-card", f"{upload.source}: cannot be read as a model card: {one_line(error)}") from error
    return Upload(upload.source, upload.name, card.content.encode())


def check_names(repository: str, revision: str | None) -> None:
    """Raise a `UsageError` for a repository that is not owner/name, or a revision that cannot be a branch."""
    if not REPOSITORY.fullmatch(repository) or ".." in repository or "--" in repository:
        raise UsageError("bad-repository", f"{repository!r}: expected a repository of the hub as owner/name")
    if revision is not None and (".." in revision or not BRANCH.fullmatch(revision)):
        raise UsageError("bad-revision", f"--revision {revision!r}: expected a branch of letters, digits, . _ - and /")


def send(repository: str, revisions: Mapping[str, Sequence[Upload]], private: bool) -> dict[str, str]:
    """Create the repository if there is none, and make a commit in each revision; return revision -> address of the commit.

    Raises:
        HubError: there is no token, the hub refuses or fails, or the repository is public and `private` was asked for.
    """
    import huggingface_hub
    from huggingface_hub import CommitOperationAdd

    import electra

    if huggingface_hub.get_token() is None:
        raise HubError("no-token", "the hub needs a token: hf auth login, or set HF_TOKEN")
    api = huggingface_hub.HfApi(library_name="electra", library_version=electra.__version__)
    commits = {}
    with convert_hub_errors(repository, api):
        api.create_repo(repository, private=private, exist_ok=True)
        if private and not api.model_info(repository).private:
            raise HubError(
                "public-repository", f"{repository} exists and is public, nothing was sent; to send it, --private false"
            )
        for revision, uploads in revisions.items():
            if revision != DEFAULT_BRANCH:
                api.create_branch(repository, branch=revision, exist_ok=True)
            operations = [
                CommitOperationAdd(upload.name, upload.source if upload.content is None else upload.content)
                for upload in uploads
            ]
            commit = api.create_commit(
                repository, operations, commit_message=f"Upload by electra {electra.__version__}", revision=revision
            )
            commits[revision] = str(commit.commit_url)
            log.info(f"sent {repository}, revision {revision}", extra={"code": "sent"})
    return commits


@contextmanager
def convert_hub_errors(repository: str, api: "HfApi") -> Iterator[None]:
    """Turn errors of the hub, the network and `huggingface_hub` into a `HubError`."""
    from huggingface_hub.errors import HfHubHTTPError

    try:
        yield
    except HubError:
        raise
    except Exception as error:  # a failed upload wraps its cause, and the type of network errors depends on the version
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, HfHubHTTPError):
            cause = cause.__cause__
        if cause is None:
            reason = f"{type(error).__name__}: {one_line(error.__cause__ or error)}"
            raise HubError(
                "unreachable", f"{repository}: {api.endpoint} did not answer ({reason}); try again"
            ) from error
        status = cause.response.status_code
        code, advice = STATUS_CODES.get(status, ("hub-failed", f"{one_line(cause)}; try again later"))
        raise HubError(code, f"{repository}: {api.endpoint} answered {status}: {advice}") from error
