"""Opens the folder of an archive, or of checkpoints in an object store; pyarrow is imported when one is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.errors import ConfigError

if TYPE_CHECKING:
    from proxy.sinks.parquet_files import ParquetFolder


def open_folder(place: str) -> ParquetFolder:
    """Return the folder at a path or URL. Raises ConfigError where it cannot be used, or pyarrow is missing."""
    try:
        from proxy.sinks.parquet_files import ParquetFolder  # noqa: PLC0415  pyarrow is large, and an extra
    except ImportError as error:
        raise ConfigError("archives and object stores need pyarrow; pip install 'mcp-interlock[parquet]'") from error
    from proxy.sinks.role import SinkError  # noqa: PLC0415

    try:
        return ParquetFolder(place)
    except SinkError as error:
        raise ConfigError(str(error)) from error
