"""Runs and files of deltas, made in one go."""

from collections.abc import Mapping

import numpy as np

from nyala.engine.cfile.writer import CFileInfo
from nyala.engine.delta.file import ColumnEncoding, DeltaFileWriter
from nyala.engine.delta.run import DeltaRun
from nyala.engine.fs.filesystem import FileSystem
from nyala.engine.vectors.vector import Vector


def sorted_run(rowids: np.ndarray, timestamps: np.ndarray, values: Vector) -> DeltaRun:
    """Return deltas given in the order of their timestamps as a run."""
    order = np.argsort(rowids, kind="stable")
    return DeltaRun(rowids[order], timestamps[order], values.take(order))


def write_delta_file(
    fs: FileSystem,
    path: str,
    file_id: int,
    kind: str,
    rowset_id: int,
    runs: Mapping[int, DeltaRun],
    encodings: Mapping[int, ColumnEncoding],
) -> CFileInfo:
    """Write runs by column id as one file and sync it; the caller syncs the directory. ``runs`` must not be empty."""
    with DeltaFileWriter(fs, path, file_id, kind, rowset_id, encodings) as writer:
        for column_id, run in sorted(runs.items()):
            writer.add(column_id, [run])
        return writer.finish()
