"""What does this folder of safetensors weigh, exactly, by tensor and dtype, without loading a tensor?

A safetensors file is an 8-byte little-endian length, a JSON header of that length, and the tensors' bytes with no gap
(https://github.com/huggingface/safetensors, "Format"). Only headers are read, so a 700 GB checkpoint takes seconds,
and a file that is cut short, padded, or no safetensors at all is told apart before anybody waits for it to load.

The core works on `fetch(start, stop) -> bytes`; a file, some bytes and a range reader are three ways to give it one.
Above 400 lines, since most of them are refusals, each with its own words: one file first, then the folder, then the
summary.
"""

from __future__ import annotations

import json
import re
import reprlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from tonnage.errors import InputError
from tonnage.facts.dtype import storage_bits
from tonnage.units import ceil_div

HEADER_LIMIT_BYTES = 100_000_000
"""safetensors' own limit on a header (`MAX_HEADER_SIZE`); anything above is no header."""

Fetch = Callable[[int, int], bytes]
"""Returns the bytes from start up to, not including, stop."""

_INDEX_NAME = "model.safetensors.index.json"
_FIELDS = {"dtype", "shape", "data_offsets"}
_LARGEST_COUNT = 2**64
_NUMBERED = re.compile(r"(.*)-(\d+)-of-(\d+)\.safetensors")
_REMOTE_HEAD_BYTES = 100_000

_MAGIC: tuple[tuple[bytes, str, str], ...] = (
    (b"version https://git-lfs", "is a git-LFS pointer, not the weights", "fetch the weights: git lfs pull"),
    (b"GGUF", "is a GGUF file", "give the folder of the safetensors it was made from"),
    (b"PK\x03\x04", "is a zip with a pickle inside, as torch.save writes it", "convert it to safetensors"),
    *((bytes([0x80, protocol]), "is a pickle", "convert it to safetensors") for protocol in range(2, 6)),
    (b"<!DOCTYPE", "is a web page, not the weights", "the download was refused or redirected; fetch it again"),
    (b"<html", "is a web page, not the weights", "the download was refused or redirected; fetch it again"),
)
"""Asked only once a file has failed as safetensors: `80 02 00 00 00 00 00 00` is also an honest length, 640."""

_FETCH_AGAIN = "fetch the file again"
_display = reprlib.Repr()
_display.maxstring = _display.maxother = 120


class TensorInfo(msgspec.Struct, frozen=True):
    """A tensor as its header declares it; `bytes` is what it occupies in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int

    @property
    def elements(self) -> int:
        """Stored elements: four-bit weights packed eight to an I32 count once per I32."""
        return prod(self.shape)


class Checkpoint(msgspec.Struct, frozen=True):
    """The tensors of all counted shards. `notes` say what a reader should know, such as files left out."""

    tensors: tuple[TensorInfo, ...]
    files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """All tensors; the files are larger by their headers."""
        return sum(tensor.bytes for tensor in self.tensors)

    @property
    def elements(self) -> int:
        """All stored elements (see `TensorInfo.elements`)."""
        return sum(tensor.elements for tensor in self.tensors)

    @property
    def by_dtype(self) -> dict[str, int]:
        """Bytes by storage dtype, largest first."""
        totals: Counter[str] = Counter()
        for tensor in self.tensors:
            totals[tensor.dtype] += tensor.bytes
        return dict(totals.most_common())


# One file


def read_header(source: BinaryIO | bytes, file_size: int, where: str) -> tuple[TensorInfo, ...]:
    """Return the tensors of one file in the order of their bytes; `where` names it in errors.

    `source` may be the whole file or only its beginning; `file_size` is the size of the whole.

    >>> header = b'{"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}'
    >>> read_header(len(header).to_bytes(8, "little") + header, 8 + len(header) + 16, "tiny.safetensors")
    (TensorInfo(name='w', dtype='F32', shape=(2, 2), bytes=16),)

    Raises InputError: anything that safetensors itself would refuse, duplicate keys and foreign fields too.
    Raises UnknownError: a dtype that we do not know.
    """
    return _read(_reader(source), file_size, where)


def read_remote(fetch: Fetch, size: int, where: str) -> tuple[TensorInfo, ...]:
    """Return the tensors of one file behind a range reader, mostly with a single request.

    Most headers are below 100 kB, so that much is asked for at once, and the rest only where it is needed.
    """
    head = fetch(0, min(size, _REMOTE_HEAD_BYTES))
    return _read(lambda start, stop: head[start:stop] if stop <= len(head) else fetch(start, stop), size, where)


def read_file(path: Path) -> tuple[TensorInfo, ...]:
    """Return the tensors of one file on disk; links are followed."""
    _check_is_file(path)
    try:
        with path.open("rb") as file:
            return read_header(file, path.stat().st_size, str(path))
    except OSError as error:
        raise _unreadable(path, error) from error


def _reader(source: BinaryIO | bytes) -> Fetch:
    if isinstance(source, bytes):
        return lambda start, stop: source[start:stop]

    def fetch(start: int, stop: int) -> bytes:
        source.seek(start)
        return source.read(stop - start)

    return fetch


def _read(fetch: Fetch, file_size: int, where: str) -> tuple[TensorInfo, ...]:
    header_bytes = _header_length(fetch, file_size, where)
    data_start = 8 + header_bytes
    text = _exactly(fetch, 8, data_start, where)
    try:
        if not text.startswith(b"{"):
            raise ValueError("it does not begin with '{'")
        header = _strict_json(text)
    except ValueError as error:
        raise _no_header(fetch, file_size, f"the header is not JSON: {_clip(error)}", where) from error
    _check_metadata(header.pop("__metadata__", {}), where)
    placed = sorted((_placed(name, entry, where) for name, entry in header.items()), key=lambda each: each[:2])
    _check_layout(placed, data_start, file_size, where)
    return tuple(tensor for _, _, tensor in placed)


def _header_length(fetch: Fetch, file_size: int, where: str) -> int:
    """Return the length of the JSON header, refused before anything of that size is read."""
    if file_size < 8:
        raise _no_header(fetch, file_size, f"{file_size} bytes are too few for a safetensors file", where)
    length = int.from_bytes(_exactly(fetch, 0, 8, where), "little")
    if length > HEADER_LIMIT_BYTES:
        problem = f"a header of {length:,} bytes is above safetensors' limit of {HEADER_LIMIT_BYTES:,}"
        raise _no_header(fetch, file_size, problem, where)
    if length == 0:
        problem = "the header is empty: the space is reserved but nothing was written"
        raise InputError(problem, where=where, hint=_FETCH_AGAIN)
    if length > file_size - 8:
        problem = f"the download is incomplete: {file_size:,} bytes, and the header alone takes {8 + length:,}"
        raise _no_header(fetch, file_size, problem, where)
    return length


def _exactly(fetch: Fetch, start: int, stop: int, where: str) -> bytes:
    found = fetch(start, stop)
    if len(found) != stop - start:
        problem = f"asked for bytes {start:,} to {stop:,}, got {len(found):,} bytes"
        raise InputError(problem, where=where, hint="the file changed while it was read, or the server ignores ranges")
    return found


def _no_header(fetch: Fetch, file_size: int, problem: str, where: str) -> InputError:
    """Return the error for a file without a readable header, named for what it is where its first bytes tell."""
    head = fetch(0, min(file_size, 256))
    for magic, what, hint in _MAGIC:
        if head.startswith(magic):
            pointed = re.search(rb"\nsize (\d{1,20})\n", head)
            size = f" ({file_size:,} of {int(pointed[1]):,} bytes)" if pointed and b"git-lfs" in magic else ""
            return InputError(f"{what}{size}", where=where, hint=hint)
    return InputError(problem, where=where, hint=f"{_FETCH_AGAIN}, or check that it is safetensors")


def _strict_json(text: bytes) -> dict[str, Any]:
    """Return a JSON object; ValueError for anything else, duplicate keys, NaN and unpaired surrogates too."""
    try:
        value = json.loads(text.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"key {_display.repr(twice)} appears twice")
    "\n".join(found).encode()
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _check_metadata(metadata: object, where: str) -> None:
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise InputError("__metadata__ is not an object of strings", where=where, hint="write the file again")


def _placed(name: str, entry: object, where: str) -> tuple[int, int, TensorInfo]:
    """Return (start, stop, tensor) of one header entry, or refuse what cannot be true."""
    where = f"{where}: tensor {_display.repr(name)}"
    dtype, shape, (start, stop) = _fields(entry, where)
    bits = storage_bits(dtype, where=where)
    needed = ceil_div(_elements(shape, where) * bits, 8)
    if stop - start != needed:
        problem = f"{_display.repr(shape)} of {dtype} takes {needed:,} bytes, but offsets {start:,} to {stop:,} hold "
        raise InputError(f"{problem}{stop - start:,}", where=where, hint="the header is wrong; write the file again")
    return start, stop, TensorInfo(name=name, dtype=dtype, shape=tuple(shape), bytes=needed)


def _fields(entry: object, where: str) -> tuple[str, list[int], list[int]]:
    if not isinstance(entry, dict) or entry.keys() != _FIELDS:
        found = sorted(entry) if isinstance(entry, dict) else entry
        raise _malformed(f"expected the fields data_offsets, dtype, shape, found {_display.repr(found)}", where)
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str):
        raise _malformed(f"dtype {_display.repr(dtype)} is not a name", where)
    if not _are_counts(shape):
        raise _malformed(f"shape {_display.repr(shape)} is not a list of whole numbers from 0", where)
    if not _are_counts(offsets) or len(offsets) != 2:
        raise _malformed(f"data_offsets {_display.repr(offsets)} are not two whole numbers from 0", where)
    return dtype, shape, offsets


def _malformed(problem: str, where: str) -> InputError:
    return InputError(problem, where=where, hint="the header is wrong; write the file again")


def _are_counts(value: object) -> bool:
    return isinstance(value, list) and all(type(each) is int and each >= 0 for each in value)


def _elements(shape: list[int], where: str) -> int:
    """Return the product, stopped where it leaves 64 bits: a hostile shape must not cost minutes."""
    if 0 in shape:
        return 0
    elements = 1
    for dimension in shape:
        elements *= dimension
        if elements >= _LARGEST_COUNT:
            raise _malformed(f"shape {_display.repr(shape)} has more elements than any file can hold", where)
    return elements


def _check_layout(placed: list[tuple[int, int, TensorInfo]], data_start: int, file_size: int, where: str) -> None:
    """Refuse overlap, holes, a file that ends too early or too late: each byte belongs to exactly one tensor."""
    position = 0
    for start, stop, tensor in placed:
        if start != position:
            wrong = "overlaps the one before by" if start < position else "leaves a hole before it of"
            problem = f"{wrong} {abs(start - position):,} bytes"
            raise _malformed(problem, f"{where}: tensor {_display.repr(tensor.name)}")
        position = stop
    expected = data_start + position
    if file_size < expected:
        problem = f"the download is incomplete: {file_size:,} of {expected:,} bytes"
        raise InputError(problem, where=where, hint=_FETCH_AGAIN)
    if file_size > expected:
        problem = f"{file_size - expected:,} bytes after the last tensor belong to no tensor"
        raise InputError(problem, where=where, hint=f"{_FETCH_AGAIN}; do not serve it as it is")


# All shards of a model


def read_folder(path: Path) -> Checkpoint:
    """Return the checkpoint of a model folder, from the headers of its shards.

    With an index, exactly the files that it names count and must be there; without one, all `*.safetensors`.
    Raises InputError: no safetensors, a shard missing or broken, index and headers in disagreement.
    """
    if not path.is_dir():
        hint = "give the folder that holds it" if path.is_file() else "check the path"
        raise InputError("is not a folder", where=str(path), hint=hint)
    try:
        names = [entry.name for entry in path.iterdir()]
    except OSError as error:
        raise _unreadable(path, error) from error
    return assemble(names, lambda name: _content(path / name), lambda name: read_file(path / name), where=str(path))


def assemble(
    names: Iterable[str],
    content: Callable[[str], bytes],
    tensors: Callable[[str], tuple[TensorInfo, ...]],
    *,
    where: str,
) -> Checkpoint:
    """Return the checkpoint of a listing of file names, wherever they lie.

    `content` reads the small index file, `tensors` the header of a shard.
    """
    names = sorted(name for name in names if not name.startswith("."))
    present = [name for name in names if name.endswith(".safetensors")]
    index = _index_name(names, where)
    if index is None:
        files, notes = _without_index(present, names, where)
        shards = {file: tensors(file) for file in files}
        _tensor_files(shards, where)
    else:
        weight_map, total_bytes = _parse_index(content(index), f"{where}: {index}")
        files, notes = _with_index(weight_map, present, where)
        shards = {file: tensors(file) for file in files}
        _check_index(weight_map, _tensor_files(shards, where), f"{where}: {index}")
        notes += _total_note(total_bytes, shards)
    return Checkpoint(tuple(tensor for shard in shards.values() for tensor in shard), tuple(files), tuple(notes))


def _index_name(names: list[str], where: str) -> str | None:
    found = [name for name in names if name.endswith(".safetensors.index.json")]
    if _INDEX_NAME in found:
        return _INDEX_NAME
    if len(found) > 1:
        problem = f"{len(found)} index files, and none is {_INDEX_NAME}: {_listed(found)}"
        raise InputError(problem, where=where, hint="keep the one that belongs to the model")
    return found[0] if found else None


def _parse_index(text: bytes, where: str) -> tuple[dict[str, str], object]:
    """Return (tensor -> file, the total size it claims)."""
    try:
        index = _strict_json(text)
    except ValueError as error:
        problem = f"the index is not JSON: {_clip(error)}"
        raise _no_header(_reader(text), len(text), problem, where) from error
    weight_map, metadata = index.get("weight_map"), index.get("metadata")
    if not isinstance(weight_map, dict) or not weight_map:
        raise InputError("the index has no weight_map", where=where, hint=_FETCH_AGAIN)
    for file in weight_map.values():
        if not isinstance(file, str) or not re.fullmatch(r"[^/\\]+\.safetensors", file):
            problem = f"weight_map names {_display.repr(file)}, which is no safetensors file of this folder"
            raise InputError(problem, where=where, hint="the index is wrong; fetch it again")
    return weight_map, metadata.get("total_size") if isinstance(metadata, dict) else None


def _with_index(weight_map: Mapping[str, str], present: list[str], where: str) -> tuple[list[str], list[str]]:
    """Return (files to count, notes); what the index does not name is left out, as engines do."""
    wanted = sorted(set(weight_map.values()))
    missing = [file for file in wanted if file not in set(present)]
    if missing:
        problem = f"{len(missing)} of {len(wanted)} shards named by the index are missing: {_listed(missing)}"
        raise InputError(problem, where=where, hint="the download is incomplete; fetch them")
    surplus = [file for file in present if file not in set(wanted)]
    return wanted, [f"not counted, since the index does not name them: {_listed(surplus)}"] if surplus else []


def _without_index(present: list[str], names: list[str], where: str) -> tuple[list[str], list[str]]:
    """Return (files to count, notes); `consolidated*` is the same model in another layout where others are there."""
    if not present:
        raise _nothing(names, where)
    second = [file for file in present if file.startswith("consolidated")]
    files = [file for file in present if file not in set(second)] or second
    _check_numbers(files, where)
    note = f"not counted, since it holds the same model in another layout: {_listed(second)}"
    return files, [note] if second and files != second else []


def _check_numbers(files: list[str], where: str) -> None:
    """Refuse gaps in `model-00001-of-00004.safetensors`: without an index the numbers are all that tells."""
    series: dict[tuple[str, int], set[int]] = {}
    for match in filter(None, map(_NUMBERED.fullmatch, files)):
        number, total = int(match[2][:9]), int(match[3][:9])
        if not 1 <= number <= total:
            raise InputError(f"shard {number} of {total} cannot be", where=f"{where}: {match[0]}", hint=_FETCH_AGAIN)
        series.setdefault((match[1], total), set()).add(number)
    for (stem, total), numbers in series.items():
        if len(numbers) < total:
            first = next(number for number in range(1, total + 1) if number not in numbers)
            problem = f"{total - len(numbers)} of {total} shards of {stem!r} are missing, the first is number {first}"
            raise InputError(problem, where=where, hint="the download is incomplete; fetch them")


def _nothing(names: list[str], where: str) -> InputError:
    """Return the error for a folder without safetensors, with what to do about what is there."""
    if not names:
        return InputError("the folder is empty", where=where, hint="give the folder that holds the model's files")
    if any(name.endswith(".gguf") for name in names):
        return InputError("GGUF only, no safetensors", where=where, hint="give the folder of the original safetensors")
    if any(name.endswith((".bin", ".pt", ".pth", ".ckpt")) for name in names):
        hint = "convert it to safetensors, or fetch a revision that has them; loading a pickle can run code"
        return InputError("pickled weights only, no safetensors", where=where, hint=hint)
    hint = "give one of the folders in snapshots/" if "snapshots" in names else "give the folder with the weights"
    return InputError("no safetensors in this folder", where=where, hint=hint)


def _tensor_files(shards: Mapping[str, tuple[TensorInfo, ...]], where: str) -> dict[str, str]:
    """Return tensor -> file; refuse a tensor in two files, which would be counted twice."""
    found: dict[str, str] = {}
    for file, tensors in shards.items():
        for tensor in tensors:
            if tensor.name in found:
                problem = f"tensor {_display.repr(tensor.name)} is in both {found[tensor.name]} and {file}"
                raise InputError(problem, where=where, hint="remove the copy that does not belong to the model")
            found[tensor.name] = file
    return found


def _check_index(weight_map: Mapping[str, str], found: Mapping[str, str], where: str) -> None:
    """Refuse an index that disagrees with the headers, in either direction."""
    if weight_map == found:
        return
    every = dict.fromkeys([*weight_map, *found])
    wrong = [name for name in every if weight_map.get(name) != found.get(name)]
    listed, real = (place.get(wrong[0], "no file") for place in (weight_map, found))
    problem = (
        f"index and headers disagree on {len(wrong)} of {len(every)} tensors; the index has "
        f"{_display.repr(wrong[0])} in {listed}, the headers in {real}"
    )
    raise InputError(problem, where=where, hint="index and shards are of different versions; fetch all of them again")


def _total_note(total_bytes: object, shards: Mapping[str, tuple[TensorInfo, ...]]) -> list[str]:
    """Return a note where the index' total is not the sum of the headers; the headers are what counts."""
    counted = sum(tensor.bytes for tensors in shards.values() for tensor in tensors)
    if type(total_bytes) not in (int, float) or total_bytes == counted:
        return []
    return [f"the index claims {_display.repr(total_bytes)} bytes; the headers have {counted}, which is what counts"]


def _content(path: Path) -> bytes:
    """Return a small file; one above the header limit comes back cut, and then is no JSON."""
    _check_is_file(path)
    try:
        with path.open("rb") as file:
            return file.read(HEADER_LIMIT_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, error) from error


def _check_is_file(path: Path) -> None:
    """Refuse a link to nowhere, a folder and a device; opening one of the last could wait for ever."""
    if not path.is_file():
        problem = "is a link to a file that is not there" if path.is_symlink() else "is not a file"
        raise InputError(problem, where=str(path), hint=_FETCH_AGAIN)


def _unreadable(path: Path, error: OSError) -> InputError:
    return InputError(f"cannot be read: {error.strerror or error}", where=str(path), hint="check the path and rights")


def _listed(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _clip(error: ValueError) -> str:
    return str(error)[:200]


# What it is made of

_CLASSES: tuple[tuple[str, str], ...] = (
    ("draft", r"^(model\.)?(mtp|mtp_layers|nextn)\."),
    (
        "vision",
        r"^(model\.)?(visual|vision\w*|embed_vision|multi_modal_projector|mm_projector|mlp1|image_\w+|patch_merger"
        r"|pre_mm_projector_norm)\.",
    ),
    (
        "scales",
        r"[._](scales?|scale_inv|weight_scale_2|zeros|qzeros|zero_point|g_idx|weight_shape|absmax|nested_absmax"
        r"|quant_map|nested_quant_map|quant_state[\w.]*)$",
    ),
    ("norm", r"(^|\.)(\w*norm\w*|ln_\w+|ln\d?)(\.(weight|bias))?$"),
    ("lm_head", r"(^|\.)(lm_head|embed_out)\.|^output\."),
    ("embedding", r"(^|\.)(embed\w*|wte|wpe|\w*_embeddings?)\.|\.embeddings?\."),
    ("experts", r"\.(experts|shared_experts?|shared_expert_gate|router|block_sparse_moe)\.|\.(mlp|mixer|moe)\.gate\."),
    ("mlp", r"\.(mlp|feed_forward|ffn|fc1|fc2|w[123]|(gate|up|down|gate_up)_proj)\."),
    ("attention", r"\.(\w*attn|\w*attention|mixer|mamba|[qkvo]_proj|qkv_proj|Wqkv|w[qkvo]|wqkv)\."),
)
"""(class, pattern of tensor names), the first match counts. Names are those of Hugging Face and Mistral layouts."""

_DRAFT_MARK = re.compile(r"(.*\.layers\.\d+)\.(eh_proj|enorm|hnorm|shared_head)\.")
"""DeepSeek, GLM and Kimi number the draft layer as one more layer; only these parts tell (vLLM, deepseek_mtp.py)."""

CLASSES = (*(name for name, _ in _CLASSES), "other")


def summarise(checkpoint: Checkpoint) -> dict[str, int]:
    """Return bytes by class of tensor, largest first, for display; they sum to `checkpoint.bytes`.

    Draft (MTP) and vision are whole parts, norms and scales included. Experts are routed and shared ones with their
    router; attention includes linear attention and state-space mixers; scales are what quantisation adds.

    >>> names = {"model.embed_tokens.weight": 8, "model.layers.0.self_attn.q_proj.weight": 4, "lm_head.weight": 8}
    >>> summarise(Checkpoint(tuple(TensorInfo(name, "U8", (size,), size) for name, size in names.items())))
    {'embedding': 8, 'lm_head': 8, 'attention': 4}
    """
    drafts = {match[1] for tensor in checkpoint.tensors if (match := _DRAFT_MARK.match(tensor.name))}
    known: dict[str, str] = {}
    totals: Counter[str] = Counter()
    for tensor in checkpoint.tensors:
        layer = re.match(r".*?\.layers\.\d+(?=\.)", tensor.name) if drafts else None
        if layer and layer[0] in drafts:
            totals["draft"] += tensor.bytes
            continue
        pattern = re.sub(r"\.\d+(?=\.)", ".0", tensor.name)
        if pattern not in known:
            known[pattern] = _class_of(pattern)
        totals[known[pattern]] += tensor.bytes
    return dict(totals.most_common())


def _class_of(name: str) -> str:
    return next((cls for cls, pattern in _CLASSES if re.search(pattern, name)), "other")
