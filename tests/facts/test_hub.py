"""Reading from the hub: what is asked of it, and every failure in our own words. No test here opens a connection."""

import io
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tonnage.errors import EndpointError, InputError, TonnageError, UnknownError
from tonnage.facts.hub import fetch_config, fetch_headers

COMMIT = "a" * 40


class RangeFile(io.BytesIO):
    """A remote file that remembers how much of it was read."""

    def __init__(self, content: bytes, log: list[int]) -> None:
        super().__init__(content)
        self.size = len(content)
        self.log = log

    def read(self, size: int | None = -1, /) -> bytes:
        """Read and remember."""
        found = super().read(size)
        self.log.append(len(found))
        return found


def stand_in(monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes]) -> list[int]:
    """Put a huggingface_hub in place that serves these files of one commit; returns the log of bytes read."""
    log: list[int] = []

    def open_file(path: str, mode: str, **_: object) -> RangeFile:
        return RangeFile(files[path.removeprefix(f"org/model@{COMMIT}/")], log)

    def model_info(repo_id: str, revision: str | None) -> SimpleNamespace:
        return SimpleNamespace(sha=COMMIT, siblings=[SimpleNamespace(rfilename=name) for name in files])

    hub = ModuleType("huggingface_hub")
    hub.__dict__["HfFileSystem"] = lambda: SimpleNamespace(open=open_file)
    hub.__dict__["HfApi"] = lambda: SimpleNamespace(model_info=model_info)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    return log


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Put a huggingface_hub in place whose every call fails like this."""

    def fail(*_: object, **__: object) -> None:
        raise error

    hub = ModuleType("huggingface_hub")
    hub.__dict__.update(hf_hub_download=fail, HfApi=fail, HfFileSystem=fail)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)


def shard(name: str, size: int) -> bytes:
    """Return a file with one tensor."""
    header = json.dumps({name: {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(size)


def test_headers_are_read_at_one_commit_and_without_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two shards of a megabyte cost 100 kB each; files in folders below are another layout and left alone."""
    one, two = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    files = {
        one: shard("a", 1_000_000),
        two: shard("b", 1_000_000),
        "model.safetensors.index.json": json.dumps({"weight_map": {"a": one, "b": two}}).encode(),
        "original/consolidated.safetensors": b"",
    }
    log = stand_in(monkeypatch, files)
    found = fetch_headers("org/model")
    assert (found.bytes, found.files) == (2_000_000, (one, two))
    assert sum(log) < 201_000


def test_a_broken_shard_is_named_with_its_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same refusals as for a folder, with the place on the hub."""
    stand_in(monkeypatch, {"model.safetensors": shard("a", 10)[:-1]})
    with pytest.raises(InputError, match=f"org/model@{COMMIT}/model.safetensors: the download is incomplete"):
        fetch_headers("org/model")


def test_a_config_is_an_object(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What the hub gives is read; what is no JSON object is refused."""
    path = tmp_path / "config.json"
    hub = ModuleType("huggingface_hub")
    hub.__dict__["hf_hub_download"] = lambda *_, **__: str(path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    path.write_text('{"model_type": "llama"}')
    assert fetch_config("org/model") == {"model_type": "llama"}
    for text in ("[]", "{", "[" * 100_000):
        path.write_text(text)
        with pytest.raises(InputError, match=r"org/model: config\.json: is not"):
            fetch_config("org/model")


def test_without_the_extra_the_hint_is_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """huggingface_hub is optional; its absence is no traceback."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for fetch in (fetch_config, fetch_headers):
        with pytest.raises(InputError, match="which is not installed") as caught:
            fetch("org/model")
        assert caught.value.hint == "pip install 'tonnage[hub]'"


@pytest.mark.parametrize(
    ("bases", "kind", "says"),
    [
        (["HFValidationError"], InputError, "is no name of a repository"),
        (["RepositoryNotFoundError"], UnknownError, "no such repository, or it is private"),
        pytest.param(["RepositoryNotFoundError", "GatedRepoError"], InputError, "is gated", id="nearest-base-counts"),
        (["RevisionNotFoundError"], UnknownError, "has no such revision"),
        (["EntryNotFoundError"], UnknownError, "has no such file"),
        (["EntryNotFoundError", "LocalEntryNotFoundError"], EndpointError, "the cache has no copy"),
        (["OfflineModeIsEnabled"], EndpointError, "HF_HUB_OFFLINE is set"),
        (["ReadTimeout"], EndpointError, "the hub could not be read: ReadTimeout: said so"),
    ],
)
def test_failures_of_the_hub_come_in_our_words(
    monkeypatch: pytest.MonkeyPatch, bases: list[str], kind: type[TonnageError], says: str
) -> None:
    """By the name of the class, whichever release of huggingface_hub and HTTP library raised it."""
    error_type: type[Exception] = Exception
    for name in bases:
        error_type = type(name, (error_type,), {})
    failing(monkeypatch, error_type("said so"))
    for fetch in (fetch_config, fetch_headers):
        with pytest.raises(kind) as caught:
            fetch("org/model")
        assert type(caught.value) is kind
        assert caught.value.where == "org/model"
        assert says in caught.value.problem
        assert caught.value.hint


def test_the_real_library_offline_is_told_in_our_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With HF_HUB_OFFLINE set, huggingface_hub itself refuses before any connection."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    for fetch in (fetch_config, fetch_headers):
        with pytest.raises(EndpointError, match="org/model: ") as caught:
            fetch("org/model")
        assert caught.value.hint


def test_the_real_library_refuses_a_name_that_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path is no repository; the hint shows how one is written."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    pytest.importorskip("huggingface_hub")
    with pytest.raises(InputError, match="is no name of a repository") as caught:
        fetch_config("models/of/mine")
    assert "Qwen" in caught.value.hint
