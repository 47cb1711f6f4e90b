"""The command that sends a model to the Hugging Face hub: push."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from electra.config.checks import check_local
from electra.storage import PathLike


def push(
    directory: PathLike,
    repository: str,
    *,
    part: Literal["main", "generator", "both"] = "main",
    private: bool = True,
    revision: str | None = None,
    exports: bool = False,
    license: str | None = None,
    language: Iterable[str] = (),
    dry_run: bool = False,
) -> dict[str, Any]:
    """Send a model to the Hugging Face hub.

    The endpoint is https://huggingface.co, or HF_ENDPOINT; the token that of `hf auth login`, or HF_TOKEN. Needs the extra
    `electra[hub]`.

    Args:
        directory: Model directory, finished pre-training run, or fine-tuning run.
        repository: Repository as owner/name; it is created if there is none.
        part: For a pre-training run: main (the discriminator, or the only network) or generator, at the top of the repository;
            both, in folders.
        private: Create a private repository, and refuse a public one.
        revision: Branch; created if there is none. By default main.
        exports: Send also the exports of a pre-training run, each to the branch step-N.
        license: License in the model card that is sent, as an identifier of the hub, such as apache-2.0.
        language: Languages in the model card that is sent, as codes such as en.
        dry_run: Only list what would be sent, without network.

    Returns:
        `repository`, `private`, `files` (a dictionary for each file: `revision`, `name`, `bytes` and `source`), and `commits`
        (revision -> address), which is empty with `dry_run`.

    Raises:
        UsageError: a name has another form, an option does not fit the directory, or the extra is not installed.
        ModelError: not a model directory, a file is missing or damaged, or weights are pickled.
        RunError: the run is not finished, or has no exports.
        HubError: no token, or the hub refuses, fails or cannot be reached.
    """
    from electra.text.hub import require_hub

    check_local({"DIRECTORY": directory})
    require_hub(repository)
    from electra.inference import publishing

    publishing.check_names(repository, revision)
    languages = [language] if isinstance(language, str) else list(language)
    fields = {name: value for name, value in (("license", license), ("language", languages)) if value}
    revisions = publishing.plan_revisions(Path(directory), part, revision, exports, fields)
    files = [
        {"revision": name, "name": each.name, "bytes": each.size, "source": str(each.source)}
        for name, uploads in revisions.items()
        for each in uploads
    ]
    commits = {} if dry_run else publishing.send(repository, revisions, private)
    return {"repository": repository, "private": private, "files": files, "commits": commits}
