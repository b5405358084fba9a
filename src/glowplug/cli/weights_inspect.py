"""``glowplug weights inspect``: what a checkpoint holds, from its listing and its headers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from glowplug import weights
from glowplug.cli.app import App
from glowplug.cli.options import AsJson, Uri
from glowplug.cli.output import print_json, print_table
from glowplug.units import count, format_bytes
from glowplug.weights.checkpoint.totals import by_dtype, by_file, total
from glowplug.weights.transfer.marker import COMPLETE_NAME, PUSHING_NAME, SEAL_NAME

if TYPE_CHECKING:
    from glowplug.cache.envelope import Json
    from glowplug.weights.base import Checkpoint

app = App()

_WIDTH = 80


@app.command(epilog="Example: glowplug weights inspect s3://bucket/models/qwen3-8b")
def inspect(
    uri: Uri,
    tensors: Annotated[bool, typer.Option("--tensors", help="List every tensor.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a checkpoint holds. Reads its listing and the headers of its files, and no weight."""
    checkpoint = weights.open(uri, env=os.environ)
    if as_json:
        print_json(_document(checkpoint, tensors=tensors))
        return
    _print_files(checkpoint)
    print()
    rows = [[name, str(of.tensors), format_bytes(of.bytes), f"{of.parameters:,}"] for name, of in by_dtype(checkpoint).items()]
    print_table(["DTYPE", "TENSORS", "SIZE", "PARAMETERS"], rows)
    if tensors:
        print()
        header = ["DTYPE", "SHAPE", "SIZE", "TENSOR"]
        _print_wide(
            header,
            [[tensor.dtype, _shape(tensor.shape), format_bytes(tensor.size_bytes), tensor.name] for tensor in checkpoint.tensors],
        )
    print()
    whole = total(checkpoint)
    tensor_count, file_count = count(whole.tensors, "tensor"), count(len(checkpoint.files), "file")
    print(f"total      {tensor_count}, {format_bytes(whole.bytes)}, {whole.parameters:,} parameters, {file_count}")
    if checkpoint.uri.endswith(".safetensors"):
        return  # what lies beside a single file is not looked at
    beside = _beside(checkpoint)
    print(f"sealed     {'yes, not checked here' if SEAL_NAME in beside else 'no'}")
    print(f"complete   {_completeness(beside)}")


def _completeness(beside: set[str]) -> str:
    if PUSHING_NAME in beside:
        return "a push is under way, or has died; push it again"
    return "marked" if COMPLETE_NAME in beside else "no marker"


def _print_files(checkpoint: Checkpoint) -> None:
    totals = by_file(checkpoint)
    rows = [[format_bytes(file.size_bytes), str(of.tensors), file.name] for file, of in zip(checkpoint.files, totals, strict=True)]
    _print_wide(["SIZE", "TENSORS", "FILE"], rows)
    if checkpoint.ignored:
        print()
        _print_wide(["IGNORED BECAUSE", "FILE"], [[reason, name] for name, reason in checkpoint.ignored])


def _print_wide(header: list[str], rows: list[list[str]]) -> None:
    """A table whose last column is cut in its middle to fit a narrow terminal; JSON has all of it."""
    used = sum(max(len(row[column]) for row in [header, *rows]) + 2 for column in range(len(header) - 1))
    room = max(24, _WIDTH - used)
    print_table(header, [[*row[:-1], _cut(row[-1], room)] for row in rows])


def _cut(text: str, room: int) -> str:
    text = text if text.isprintable() else ascii(text)
    return text if len(text) <= room else f"{text[: room // 2 - 2]}...{text[len(text) - (room - room // 2 - 1) :]}"


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) if shape else "scalar"


def _beside(checkpoint: Checkpoint) -> set[str]:
    return {entry.name for entry in checkpoint.others}


def _document(checkpoint: Checkpoint, *, tensors: bool) -> Json:
    whole, beside = total(checkpoint), _beside(checkpoint)
    document: dict[str, Json] = {
        "uri": checkpoint.uri,
        "tensors": whole.tensors,
        "bytes": whole.bytes,
        "parameters": whole.parameters,
        "sealed": SEAL_NAME in beside,
        "complete_marker": COMPLETE_NAME in beside,
        "push_under_way": PUSHING_NAME in beside,
        "files": [
            {"name": file.name, "bytes": file.size_bytes, "tensors": of.tensors, "header_sha256": file.header_sha256}
            for file, of in zip(checkpoint.files, by_file(checkpoint), strict=True)
        ],
        "dtypes": {
            name: {"tensors": of.tensors, "bytes": of.bytes, "parameters": of.parameters}
            for name, of in by_dtype(checkpoint).items()
        },
        "ignored": [{"name": name, "reason": reason} for name, reason in checkpoint.ignored],
        "others": [{"name": entry.name, "bytes": entry.size_bytes} for entry in checkpoint.others],
        "metadata": dict(checkpoint.metadata),
    }
    if tensors:
        document["tensor_list"] = [
            {
                "name": tensor.name, "dtype": tensor.dtype, "shape": list(tensor.shape),
                "file": checkpoint.files[tensor.file].name, "start": tensor.start, "end": tensor.end,
            }
            for tensor in checkpoint.tensors
        ]  # fmt: skip
    return document
