"""The insert-size model of another run, read from its ``--json-stats`` file."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import TYPE_CHECKING

from mapper.errors import InputFormatError

if TYPE_CHECKING:
    from mapper.pair.insert_size import InsertSizeModel

log = logging.getLogger(__name__)

_KEYS = ("mean", "std", "low", "high", "pairs")


def read_model(path: Path) -> InsertSizeModel:
    """Return the model that a run used, bit for bit.

    JSON keeps the shortest decimal text of a double, which reads back as the same double,
    and the model follows from these five numbers alone. A run without pairs among its first
    reads used the assumed model: it is returned then, with a warning.

    Raises
    ------
    InputFormatError
        If the file cannot be read or is not from a run that used an insert size.
    """
    from mapper.pair.insert_size import assumed_model, model_of

    try:
        summary = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputFormatError(f"{path}: cannot be read as JSON: {error}") from error
    size = summary.get("insert_size") if isinstance(summary, dict) else None
    if size is None and _is_run(summary):
        log.warning("%s: that run met no pairs; their insert size is assumed, as there", path)
        return assumed_model()
    if size is None:
        raise InputFormatError(
            f"{path}: holds no insert size; the --json-stats file of a run on pairs is expected"
        )
    if not _is_model(size):
        raise InputFormatError(
            f"{path}: insert_size is {json.dumps(size)}; numbers {', '.join(_KEYS)} are expected, "
            "std and pairs not below 0, low not above high (mean and std null: not estimated)"
        )
    return model_of(size)


def _is_run(summary: object) -> bool:
    """Return True for the summary of a run."""
    return isinstance(summary, dict) and isinstance(summary.get("counts"), dict)


def _is_model(size: object) -> bool:
    if not isinstance(size, dict) or any(key not in size for key in _KEYS):
        return False
    mean, std, low, high, pairs = (size[key] for key in _KEYS)
    if any(type(number) is not int for number in (low, high, pairs)) or pairs < 0 or low > high:
        return False
    if mean is None and std is None:
        return True
    if any(type(number) not in (int, float) for number in (mean, std)):
        return False
    return math.isfinite(mean) and math.isfinite(std) and bool(std >= 0)
