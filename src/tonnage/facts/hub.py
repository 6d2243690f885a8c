"""What does a model on the Hugging Face hub look like, without downloading its weights?

Fetches config.json, and the headers of the shards by range requests; needs the extra `hub`. What is read is handed to
the same readers that a folder goes through, so that a model weighs the same there and here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.errors import EndpointError, InputError, TonnageError, UnknownError
from tonnage.facts.checkpoint import Checkpoint, TensorInfo, assemble, read_remote

if TYPE_CHECKING:
    from huggingface_hub import HfFileSystem


def fetch_config(repo_id: str, revision: str | None = None) -> dict[str, Any]:
    """Return a repository's config.json; from the local cache where the hub is out of reach and it is there.

    Raises InputError: the extra is not installed, no valid name, a gated repository, no JSON object.
    Raises UnknownError: no such repository, revision or file. Raises EndpointError: the hub is out of reach.
    """
    with _hub_errors(repo_id):
        from huggingface_hub import hf_hub_download

        text = Path(hf_hub_download(repo_id, "config.json", revision=revision)).read_bytes()
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError("is not JSON", where=f"{repo_id}: config.json", hint="check it on the hub") from error
    if not isinstance(config, dict):
        raise InputError("is not a JSON object", where=f"{repo_id}: config.json", hint="check it on the hub")
    return config


def fetch_headers(repo_id: str, revision: str | None = None) -> Checkpoint:
    """Return the checkpoint of a repository: one request a shard, and no weights.

    All files are read at the commit that `revision` (main if None) names at the start, so that a push half-way
    cannot mix two versions. Raises what `fetch_config` raises, and what `read_folder` refuses.
    """
    with _hub_errors(repo_id):
        from huggingface_hub import HfApi, HfFileSystem

        info = HfApi().model_info(repo_id, revision=revision)
        names = [sibling.rfilename for sibling in info.siblings or [] if "/" not in sibling.rfilename]
        files = HfFileSystem()
    root = f"{repo_id}@{info.sha}"
    return assemble(
        names,
        lambda name: _content(files, repo_id, f"{root}/{name}"),
        lambda name: _tensors(files, repo_id, f"{root}/{name}"),
        where=repo_id,
    )


def _content(files: HfFileSystem, repo_id: str, path: str) -> bytes:
    with _hub_errors(repo_id), files.open(path, "rb") as file:
        content: bytes = file.read()
    return content


def _tensors(files: HfFileSystem, repo_id: str, path: str) -> tuple[TensorInfo, ...]:
    """Return the tensors of one shard; without a cache each read is one range request of just that length."""
    with _hub_errors(repo_id):
        file = files.open(path, "rb", cache_type="none")

    def fetch(start: int, stop: int) -> bytes:
        with _hub_errors(repo_id):
            file.seek(start)
            found: bytes = file.read(stop - start)
        return found

    with file:
        return read_remote(fetch, file.size, path)


@contextmanager
def _hub_errors(repo_id: str) -> Iterator[None]:
    """Say in our words what huggingface_hub raises; it sits on three HTTP libraries over its releases.

    Anything unknown from inside it is taken as the hub's failure, so nothing but calls of it may stand in the block.
    """
    try:
        yield
    except TonnageError:
        raise
    except ImportError as error:
        problem = "reading from the hub needs huggingface_hub, which is not installed"
        raise InputError(problem, where=repo_id, hint="pip install 'tonnage[hub]'") from error
    except Exception as error:
        raise _translated(error, repo_id) from error


_ELSEWHERE = "connect, or download the model elsewhere and give its folder"
_WORDS: dict[str, tuple[type[TonnageError], str, str]] = {
    "HFValidationError": (InputError, "is no name of a repository", "write it like 'Qwen/Qwen3.5-4B'"),
    "GatedRepoError": (InputError, "is gated", "accept its licence on the hub, then log in: hf auth login"),
    "RepositoryNotFoundError": (UnknownError, "no such repository, or it is private", "check the name; hf auth login"),
    "RevisionNotFoundError": (UnknownError, "has no such revision", "give a branch, tag or commit that exists"),
    "OfflineModeIsEnabled": (EndpointError, "offline, since HF_HUB_OFFLINE is set", "unset it, or give a folder"),
    "LocalEntryNotFoundError": (EndpointError, "the hub is out of reach, and the cache has no copy", _ELSEWHERE),
    "EntryNotFoundError": (UnknownError, "has no such file", "check that it is a model with config.json and weights"),
    "FileNotFoundError": (UnknownError, "has no such file", "check that it is a model with config.json and weights"),
}
"""By the name of the class or of its nearest base: the names are older and steadier than the modules they sit in."""


def _translated(error: Exception, repo_id: str) -> TonnageError:
    for base in type(error).__mro__:
        if base.__name__ in _WORDS:
            kind, problem, hint = _WORDS[base.__name__]
            return kind(problem, where=repo_id, hint=hint)
    problem = f"the hub could not be read: {type(error).__name__}: {str(error)[:200]}"
    return EndpointError(problem, where=repo_id, hint=_ELSEWHERE)
